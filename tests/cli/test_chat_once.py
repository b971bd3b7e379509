"""`runlane chat --message`: one input, one answer, for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from runlane.testing import Reply
from tests.cli.cli_program import COMMAND, AtTerminal, environment, run
from tests.cli.model_server import answer, asked, flags, hanging, serving, stored


def test_the_answer_is_all_that_stdout_holds(tmp_path: Path) -> None:
    """One shot prints the answer and exits 0; both messages are in the store."""
    with serving(answer("Good ", "day", "!")) as server:
        done = run(["chat", "c1", "--message", "Hello", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
    assert (done.code, done.out, done.err) == (0, "Good day!\n", "")
    assert [(m.role, m.text) for m in stored(tmp_path / "c.db", "c1").messages] == [
        ("user", "Hello"),
        ("assistant", "Good day!"),
    ]


def test_instructions_and_a_message_from_stdin_reach_the_model(tmp_path: Path) -> None:
    """`--system` goes into the system message, and `-m -` sends all of stdin."""
    with serving(answer("ok")) as server:
        arguments = ["chat", "-m", "-", "--system", "Be brief.", *flags(server, tmp_path / "c.db")]
        done = run(arguments, env=environment(tmp_path), stdin="two\nlines\n")
        assert done.code == 0, done
        assert asked(server.requests[0]) == [("system", "Be brief."), ("user", "two\nlines\n")]


def test_a_program_gets_an_envelope(tmp_path: Path) -> None:
    """With --json stdout is one document with the conversation, the run, its end and the text."""
    with serving(answer("ok")) as server:
        done = run(["chat", "c1", "-m", "x", "--json", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
    envelope = done.envelope
    assert (envelope["schema"], envelope["ok"]) == ("runlane.cli.chat/1", True)
    assert envelope["data"]["conversation"] == "c1"
    [only] = envelope["data"]["answers"]
    assert (only["state"], only["reason"], only["text"]) == ("completed", "success", "ok")
    assert only["run"] == stored(tmp_path / "c.db", "c1").runs[0].id


def test_a_program_can_follow_line_by_line(tmp_path: Path) -> None:
    """With --jsonl every line is an object: events as they happen, then the envelope."""
    with serving(answer("a", "b")) as server:
        done = run(["--jsonl", "chat", "c1", "-m", "x", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
    *events, envelope = map(json.loads, done.out.splitlines())
    kinds = [event["type"] for event in events]
    assert kinds[0] == "admission"
    assert kinds[-1] == "terminal"
    assert "".join(event["text"] for event in events if event["type"] == "assistant-delta") == "ab"
    assert envelope["ok"] is True


def test_a_repeated_key_is_answered_from_the_store(tmp_path: Path) -> None:
    """The same idempotency key gives the same run and the same text, and the model is asked once."""
    with serving(answer("only once")) as server:
        arguments = ["chat", "c1", "-m", "x", "--idempotency-key", "k1", "--json", *flags(server, tmp_path / "c.db")]
        first, second = (run(arguments, env=environment(tmp_path)) for _ in range(2))
        assert len(server.requests) == 1
    assert (first.code, second.code) == (0, 0)
    assert first.envelope["data"] == second.envelope["data"]


def test_an_answer_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    """After --timeout the run is interrupted durably, what came is kept, and the command exits 8."""
    with serving(hanging("so ", "far")) as server:
        arguments = ["chat", "c1", "-m", "x", "--timeout", "1.5", "--json", *flags(server, tmp_path / "c.db")]
        done = run(arguments, env=environment(tmp_path))
    assert (done.code, done.envelope["error"]["code"]) == (8, "timeout"), done
    snapshot = stored(tmp_path / "c.db", "c1")
    assert snapshot.runs[0].terminal_reason == "interrupted"
    assert snapshot.messages[1].text == "so far"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_keeps_the_part_answer(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C exits 130 and SIGTERM 143; the run has ended in the store, with what had come of its answer."""
    store = tmp_path / "c.db"
    with serving(hanging("so ", "far")) as server:
        program = subprocess.Popen(
            [*COMMAND, "chat", "c1", "-m", "x", *flags(server, store)],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with program:
            assert program.stdout is not None
            assert program.stdout.read(6) == b"so far"
            program.send_signal(number)
            _, err = program.communicate(timeout=30)
    assert program.returncode == 128 + number
    assert b"Traceback" not in err
    snapshot = stored(store, "c1")
    assert snapshot.runs[0].terminal_reason == ("interrupted" if number is signal.SIGINT else "shutdown")
    assert snapshot.messages[1].text == "so far"


def test_ctrl_c_at_a_terminal_ends_the_command(tmp_path: Path) -> None:
    """A single Ctrl-C ends a one shot at a terminal with 130, says that what came is kept, and keeps it."""
    with (
        serving(hanging("so ", "far")) as server,
        AtTerminal(["chat", "c1", "-m", "x", *flags(server, tmp_path / "c.db")], env=environment(tmp_path)) as terminal,
    ):
        terminal.wait_for("so far")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
    assert "interrupted; what came of the answer is kept" in terminal.screen
    assert stored(tmp_path / "c.db", "c1").messages[1].text == "so far"


@pytest.mark.parametrize(("columns", "encoding"), [(40, "ascii"), (200, "latin-1"), (40, "utf-8")])
def test_any_terminal_will_do(columns: int, encoding: str, tmp_path: Path) -> None:
    """A narrow terminal, and one without UTF-8, gets the answer; what it cannot show becomes a question mark."""
    with (
        serving(answer("Grüße ", "aus ", "東京")) as server,
        AtTerminal(
            ["chat", "-m", "x", *flags(server, tmp_path / "c.db")],
            env=environment(tmp_path, PYTHONIOENCODING=encoding),
            columns=columns,
        ) as terminal,
    ):
        assert terminal.wait_end() == 0, terminal.screen
    if encoding == "utf-8":
        assert "Grüße aus 東京" in terminal.screen
    else:
        assert " aus ??" in terminal.screen


def test_no_color_means_no_escape_sequence(tmp_path: Path) -> None:
    """With NO_COLOR or --no-color a terminal gets plain text; without, reasoning is set apart by its style."""
    screens = []
    for extra, more in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {})):
        with (
            serving(answer("x", thought="hm")) as server,
            AtTerminal(
                ["chat", "-m", "x", *extra, *flags(server, tmp_path / "c.db")], env=environment(tmp_path, **more)
            ) as terminal,
        ):
            assert terminal.wait_end() == 0
            screens.append("\x1b" in terminal.screen)
    assert screens == [False, False, True]


def test_a_model_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in an answer are not passed on to people; a program gets the text as it is."""
    with serving(answer("\x1b]0;title\x07red"), answer("\x1b[31mred")) as server:
        shown = run(["chat", "-m", "x", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
        told = run(["chat", "-m", "x", "--json", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
    assert "\x1b" not in shown.out
    assert told.envelope["data"]["answers"][0]["text"] == "\x1b[31mred"


def test_planted_secrets_are_never_printed(tmp_path: Path) -> None:
    """Keys in the environment and a password in the URL stay out of every output, also when the server repeats them."""
    planted = {"RUNLANE_API_KEY": "rk-planted-1", "OPENAI_API_KEY": "sk-planted-2", "PGPASSWORD": "planted-3"}
    refusal = Reply(f"no: {' '.join(planted.values())} hunter2pw".encode(), status=400)
    with serving(refusal, refusal) as server:
        url = server.base_url.replace("http://", "http://me:hunter2pw@") + "/v1"
        for form in ([], ["--json", "--verbose"]):
            arguments = ["chat", "-m", "x", "--model", "m", "--base-url", url, "--store", str(tmp_path / "c.db"), *form]
            done = run(arguments, env=environment(tmp_path, **planted))
            assert done.code != 0
            for secret in (*planted.values(), "hunter2pw"):
                assert secret not in done.out + done.err

"""`runlane chat` as a conversation: at a terminal, over a pipe, in two terminals, after a death."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from runlane.testing import Reply
from tests.cli.cli_program import COMMAND, AtTerminal, environment, run, wait_until
from tests.cli.model_server import answer, asked, flags, hanging, serving, stored


def _chat(tmp_path: Path, arguments: Sequence[str]) -> AtTerminal:
    return AtTerminal(["chat", "c1", *arguments], env=environment(tmp_path, NO_COLOR="1"))


def test_a_conversation_is_continued_with_its_history(tmp_path: Path) -> None:
    """Reopened, a conversation shows its tail, and the model gets what was said before."""
    store = tmp_path / "c.db"
    with serving(answer("Hello ", "Ada"), answer("You are Ada")) as server:
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for("> ")
            terminal.type("I am Ada\n")
            terminal.wait_for(r"Hello Ada\n> ")
            terminal.type("/quit\n")
            assert terminal.wait_end() == 0
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for(r"> I am Ada\nHello Ada\n(.*\n)?> ")
            terminal.type("Who am I?\n")
            terminal.wait_for("You are Ada")
            terminal.type("\x04")
            assert terminal.wait_end() == 0
        assert asked(server.requests[1]) == [
            ("user", "I am Ada"),
            ("assistant", "Hello Ada"),
            ("user", "Who am I?"),
        ]


def test_ctrl_c_interrupts_the_answer_and_keeps_what_came(tmp_path: Path) -> None:
    """The first Ctrl-C ends the run as interrupted with its part answer, the chat goes on, and the model learns it."""
    store = tmp_path / "c.db"
    with serving(hanging("so ", "far"), answer("next")) as server, _chat(tmp_path, flags(server, store)) as terminal:
        terminal.wait_for("> ")
        terminal.type("one\n")
        terminal.wait_for("so far")
        terminal.type("\x03")
        end = terminal.wait_for(r"interrupted; what came of the answer is kept\n> ")
        terminal.type("two\n")
        terminal.wait_for(r"next\n> ", start=end)
        terminal.type("/quit\n")
        assert terminal.wait_end() == 0
        roles = [role for role, _ in asked(server.requests[1])]
        assert roles[:2] == ["user", "assistant"]
        assert asked(server.requests[1])[1][1].startswith("so far")
    snapshot = stored(store, "c1")
    assert [(one.state, one.terminal_reason) for one in snapshot.runs] == [
        ("interrupted", "interrupted"),
        ("completed", "success"),
    ]
    assert snapshot.messages[1].text == "so far"


def test_a_second_ctrl_c_leaves(tmp_path: Path) -> None:
    """With nothing running the first Ctrl-C says how to leave, and the second leaves with 130."""
    with serving() as server, _chat(tmp_path, flags(server, tmp_path / "c.db")) as terminal:
        terminal.wait_for("> ")
        terminal.type("\x03")
        terminal.wait_for("nothing is running; Ctrl-C again or /quit leaves")
        terminal.type("\x03")
        assert terminal.wait_end() == 130
    assert "Traceback" not in terminal.screen


def test_stop_interrupts_too_and_what_is_typed_meanwhile_waits(tmp_path: Path) -> None:
    """An input typed while an answer streams is admitted at once and answered next; /stop ends the running one."""
    store = tmp_path / "c.db"
    with serving(hanging("first"), answer("second")) as server, _chat(tmp_path, flags(server, store)) as terminal:
        terminal.wait_for("> ")
        terminal.type("one\n")
        terminal.wait_for("first")
        terminal.type("two\n")
        terminal.type("/stop\n")
        end = terminal.wait_for("> two\n")
        terminal.wait_for(r"second\n> ", start=end)
        terminal.type("/quit\n")
        assert terminal.wait_end() == 0
    assert [one.terminal_reason for one in stored(store, "c1").runs] == ["interrupted", "success"]


def test_lines_from_a_pipe_are_answered_in_order(tmp_path: Path) -> None:
    """Piped lines are inputs; the program leaves when all are answered, with 0."""
    store = tmp_path / "c.db"
    with serving(answer("A"), answer("B")) as server:
        done = run(["chat", "c1", *flags(server, store)], env=environment(tmp_path), stdin="one\n\ntwo")
    assert done.code == 0, done
    assert done.out == "> one\nA\n> two\nB\n"
    assert [m.text for m in stored(store, "c1").messages] == ["one", "A", "two", "B"]


def test_a_new_conversation_names_itself(tmp_path: Path) -> None:
    """Without an id a conversation gets one, and says it, so that it can be continued."""
    store = tmp_path / "c.db"
    with serving(answer("A")) as server:
        done = run(["chat", *flags(server, store)], env=environment(tmp_path), stdin="one\n")
    named = re.search(r"conversation (chat_[0-9a-f]{32}) in ", done.err)
    assert named is not None, done
    assert len(stored(store, named[1]).runs) == 1


def test_a_second_terminal_waits_behind_the_first_ones_answer(tmp_path: Path) -> None:
    """Two chats on one file and one conversation: the second's input is accepted at once and answered in its turn."""
    store = tmp_path / "c.db"
    with serving(hanging("slow"), answer("quick")) as server, _chat(tmp_path, flags(server, store)) as first:
        first.wait_for("> ")
        first.type("one\n")
        first.wait_for("slow")
        with _chat(tmp_path, flags(server, store)) as second:
            second.wait_for(r"> one\n(.*\n)?> ")
            second.type("two\n")
            wait_until(lambda: len(stored(store, "c1").runs) == 2)
            assert [one.state for one in stored(store, "c1").runs] == ["running", "queued"]
            first.type("/stop\n")
            second.wait_for(r"quick\n")
            second.type("/quit\n")
            assert second.wait_end() == 0
        first.type("/quit\n")
        assert first.wait_end() == 0
        assert [role for role, _ in asked(server.requests[1])] == ["user", "assistant", "user"]
    assert [one.terminal_reason for one in stored(store, "c1").runs] == ["interrupted", "success"]


def test_what_a_dead_chat_left_behind_is_answered_on_opening(tmp_path: Path) -> None:
    """A chat killed with SIGKILL in mid-answer loses nothing: reopened, its input is answered, once."""
    store = tmp_path / "c.db"
    with serving(hanging("half an "), answer("the whole answer")) as server:
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for("> ")
            terminal.type("one\n")
            terminal.wait_for("half an ")
            terminal.process.kill()
            assert terminal.wait_end() == -9
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for("the whole answer")
            terminal.type("/quit\n")
            assert terminal.wait_end() == 0
        assert asked(server.requests[1]) == [("user", "one")]
    snapshot = stored(store, "c1")
    assert [(m.role, m.text) for m in snapshot.messages] == [("user", "one"), ("assistant", "the whole answer")]
    assert [(one.terminal_reason, one.fencing_token) for one in snapshot.runs] == [("success", 2)]


def test_ctrl_c_withdraws_an_input_that_waits_for_another_terminal(tmp_path: Path) -> None:
    """Whoever waits behind another process's answer is told, and Ctrl-C takes the own input back, not the other's."""
    store = tmp_path / "c.db"
    with serving(hanging("slow")) as server, _chat(tmp_path, flags(server, store)) as first:
        first.wait_for("> ")
        first.type("one\n")
        first.wait_for("slow")
        with _chat(tmp_path, flags(server, store)) as second:
            second.wait_for(r"> one\n(.*\n)?> ")
            second.type("two\n")
            second.wait_for("an answer that another process gives")
            second.type("\x03")
            second.wait_for(r"cancelled before the model was asked; the input is kept\n> ")
            second.type("/quit\n")
            assert second.wait_end() == 0
        assert [one.state for one in stored(store, "c1").runs] == ["running", "cancelled"]


def test_a_waiting_terminal_takes_over_from_one_that_died(tmp_path: Path) -> None:
    """If the process that answers dies, the terminal that waits behind it answers both inputs, each once, in order."""
    store = tmp_path / "c.db"
    with (
        serving(hanging("half"), answer("all of one"), answer("all of two")) as server,
        _chat(tmp_path, flags(server, store)) as first,
    ):
        first.wait_for("> ")
        first.type("one\n")
        first.wait_for("half")
        with _chat(tmp_path, flags(server, store)) as second:
            second.wait_for(r"> one\n(.*\n)?> ")
            second.type("two\n")
            wait_until(lambda: len(stored(store, "c1").runs) == 2)
            first.process.kill()
            second.wait_for("all of one\n(.*\n)*all of two\n")
            second.type("/quit\n")
            assert second.wait_end() == 0
    snapshot = stored(store, "c1")
    assert [m.text for m in snapshot.messages] == ["one", "all of one", "two", "all of two"]
    assert [one.terminal_reason for one in snapshot.runs] == ["success", "success"]


def test_what_waits_when_one_leaves_is_answered_on_opening(tmp_path: Path) -> None:
    """Leaving stops the running answer, says that the waiting input is kept, and reopening answers it."""
    store = tmp_path / "c.db"
    with serving(hanging("first"), answer("second")) as server:
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for("> ")
            terminal.type("one\n")
            terminal.wait_for("first")
            terminal.type("two\n")
            wait_until(lambda: len(stored(store, "c1").runs) == 2)
            terminal.type("/quit\n")
            assert terminal.wait_end() == 0
        assert "answered when the conversation is opened again" in " ".join(terminal.screen.split())
        assert [one.terminal_reason for one in stored(store, "c1").runs] == ["shutdown", None]
        with _chat(tmp_path, flags(server, store)) as terminal:
            terminal.wait_for("second")
            terminal.type("/quit\n")
            assert terminal.wait_end() == 0
    assert [one.terminal_reason for one in stored(store, "c1").runs] == ["shutdown", "success"]


def test_every_failure_over_a_pipe_is_told(tmp_path: Path) -> None:
    """Of several piped inputs each failed one is told on stderr, the others are answered, and the exit code is 10."""
    with serving(Reply(status=500), answer("B"), Reply(status=429)) as server:
        arguments = ["chat", "c1", *flags(server, tmp_path / "c.db")]
        done = run(arguments, env=environment(tmp_path), stdin="one\ntwo\nthree\n")
    assert done.code == 10
    assert [line.partition(" (")[0].partition(";")[0] for line in done.err.splitlines() if "runlane:" in line] == [
        "runlane: openai-chat answered 500 Internal Server Error",
        "runlane: openai-chat answered 429 Too Many Requests",
    ]
    assert "B\n" in done.out


def test_without_stdin_there_is_nothing_to_do(tmp_path: Path) -> None:
    """With stdin closed or at its end a chat opens, says where it is, and leaves with 0."""
    with serving() as server:
        arguments = [*COMMAND, "chat", *flags(server, tmp_path / "c.db")]
        for redirection in ("<&-", "</dev/null"):
            script = f"exec {shlex.join(arguments)} {redirection}"
            done = subprocess.run(
                ["/bin/sh", "-c", script], env=environment(tmp_path), capture_output=True, check=False
            )
            assert (done.returncode, done.stdout) == (0, b""), done


def test_a_reader_that_goes_away_ends_the_chat_quietly(tmp_path: Path) -> None:
    """When nobody reads stdout any more the command ends with 141, without a traceback, and its run is ended too."""
    store = tmp_path / "c.db"
    with serving(hanging("so ", "far")) as server:
        arguments = [*COMMAND, "chat", "c1", "-m", "x", *flags(server, store)]
        with subprocess.Popen(
            arguments, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.read(1)
            program.stdout.close()
            server.release()
            err = program.stderr.read()
    assert (program.returncode, err) == (141, b"")
    assert stored(store, "c1").runs[0].terminal_reason in {"shutdown", "success"}

"""What goes wrong between a chat and its model or its store: a typed message, the promised exit code, nothing lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from runlane.records import TextPart
from runlane.testing import Reply
from tests.cli.cli_program import AtTerminal, environment, run
from tests.cli.model_server import answer, chunk, cut, flags, serving, spoken, stored

_PLANTED = "rk-planted-secret-0042"
_JSON = {"Content-Type": "application/json"}


def _refusal(status: int, message: str = "", code: str = "") -> Reply:
    body = json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode() if message else b""
    return Reply(body, status=status, headers=_JSON if message else ())


_BROKEN_JSON = Reply(
    chunk({"content": "so far "}) + b'data: {"choices": [{"delta": \n\n' + spoken("never said"),
    headers={"Content-Type": "text/event-stream"},
)

# The reply, the error's code, words of the message, and the part of the answer that is kept.
_FAULTS: dict[str, tuple[Reply, str, str, str]] = {
    "unknown model": (
        _refusal(404, "The model `m` does not exist", "model_not_found"),
        "provider.failure",
        "check the model name",
        "",
    ),
    "401": (_refusal(401, f"Incorrect API key provided: {_PLANTED}"), "provider.failure", "check the key", ""),
    "401 without a body": (_refusal(401), "provider.failure", "check the key", ""),
    "429": (_refusal(429, "Rate limit reached", "rate_limit_exceeded"), "provider.failure", "send it again later", ""),
    "429 without a body": (_refusal(429), "provider.failure", "send it again later", ""),
    "500": (_refusal(500, "The server had an error"), "provider.failure", "send it again later", ""),
    "500 without a body": (_refusal(500), "provider.failure", "send it again later", ""),
    "cut in mid-token": (cut("so far ", "and"), "provider.stream_cut", "send the message again", "so far and"),
    "malformed JSON": (_BROKEN_JSON, "model.protocol", "--base-url", "so far "),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_failing_model_is_told_and_nothing_is_lost(fault: str, tmp_path: Path) -> None:
    """Exit 10, an envelope that says what happened and what to do; the input and the part answer stay in the store."""
    reply, code, words, kept = _FAULTS[fault]
    store = tmp_path / "chat.db"
    with serving(reply) as server:
        done = run(
            ["chat", "c1", "--message", "Say something", "--json", *flags(server, store)],
            env=environment(tmp_path, RUNLANE_API_KEY=_PLANTED),
        )
    assert done.code == 10, done
    error = done.envelope["error"]
    assert (error["code"], words in error["message"]) == (code, True), error
    assert _PLANTED not in done.out + done.err
    assert "Traceback" not in done.err
    snapshot = stored(store, "c1")
    assert [(one.state, one.terminal_reason) for one in snapshot.runs] == [("failed", "provider_failure")]
    question, partial = snapshot.messages
    assert (question.text, question.status) == ("Say something", "committed")
    assert (partial.text, partial.status) == (kept, "failed")


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_failing_model_is_told_at_a_terminal(fault: str, tmp_path: Path) -> None:
    """At a terminal the message stands on the screen, without a traceback and without the key."""
    reply, _, words, _ = _FAULTS[fault]
    with (
        serving(reply) as server,
        AtTerminal(
            ["chat", "c1", "--message", "Say something", *flags(server, tmp_path / "chat.db")],
            env=environment(tmp_path, OPENAI_API_KEY=_PLANTED),
        ) as terminal,
    ):
        code = terminal.wait_end()
    assert code == 10
    assert "runlane: " in terminal.screen
    assert words in " ".join(terminal.screen.split())
    assert "Traceback" not in terminal.screen
    assert _PLANTED not in terminal.screen


def test_after_a_failure_the_conversation_goes_on(tmp_path: Path) -> None:
    """A failed turn does not block its conversation: the next input is answered."""
    store = tmp_path / "chat.db"
    with serving(_refusal(500), answer("fine")) as server:
        env = environment(tmp_path)
        first = run(["chat", "c1", "-m", "one", *flags(server, store)], env=env)
        second = run(["chat", "c1", "-m", "two", *flags(server, store)], env=env)
    assert (first.code, second.code, second.out) == (10, 0, "fine\n")


def test_a_refused_connection_is_told(tmp_path: Path) -> None:
    """Nobody listens: exit 10, the address is named, and the input is kept as failed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    arguments = ["chat", "c1", "-m", "hi", "--base-url", f"http://127.0.0.1:{port}/v1", "--model", "m", "--json"]
    done = run([*arguments, "--store", str(tmp_path / "chat.db")], env=environment(tmp_path))
    assert (done.code, done.envelope["error"]["code"]) == (10, "provider.failure")
    assert str(port) in done.envelope["error"]["message"]
    assert stored(tmp_path / "chat.db", "c1").runs[0].terminal_reason == "provider_failure"


def test_a_missing_key_is_told_before_anything_is_accepted(tmp_path: Path) -> None:
    """An endpoint elsewhere needs a key: exit 6, both variables are named, and no store is made."""
    arguments = ["chat", "-m", "hi", "--base-url", "https://model.invalid/v1", "--model", "m", "--json"]
    done = run([*arguments, "--store", str(tmp_path / "chat.db")], env=environment(tmp_path))
    assert (done.code, done.envelope["error"]["code"]) == (6, "model.credential_missing")
    assert "RUNLANE_API_KEY or OPENAI_API_KEY" in done.envelope["error"]["message"]
    assert not (tmp_path / "chat.db").exists()


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (["chat", "-m", "hi"], "--model"),
        (["chat", "-m", " ", "--model", "m"], "--message"),
        (["chat", "-m", "hi", "--model", "m", "--base-url", "no url"], "--base-url"),
        (["chat", "--model", "m", "--idempotency-key", "k"], "--idempotency-key"),
        (["chat", "--model", "m", "--timeout", "3"], "--timeout"),
        (["chat", "-m", "hi", "--model", "m", "--store", "mysql://here/x", "--base-url", "http://[::1]:9"], "--store"),
        (["chat", "-m", "hi", "--model", "m", "--json", "--jsonl"], "--json"),
    ],
)
def test_misuse_is_told_and_names_the_flag(arguments: list[str], subject: str, tmp_path: Path) -> None:
    """What cannot be done is refused with exit 2 and one line that names the flag."""
    done = run(arguments, env=environment(tmp_path))
    assert done.code == 2, done
    assert subject in done.err + done.out
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 1


@contextmanager
def _spoiled(kind: str, tmp_path: Path) -> Iterator[Path]:
    """Make a place where no store can be."""
    match kind:
        case "below a file":
            (tmp_path / "file").write_bytes(b"")
            yield tmp_path / "file" / "chat.db"
        case "unwritable directory":
            yield Path("/proc/runlane/chat.db")
        case "a directory":
            yield tmp_path
        case "a newer version":
            stored(tmp_path / "new.db", "c1")
            with closing(apsw.Connection(str(tmp_path / "new.db"))) as connection:
                connection.pragma("user_version", 999)
            yield tmp_path / "new.db"
        case _:
            other = tmp_path / "other.db"
            other.write_bytes(b"this is a diary, not a database\n" * 200)
            yield other


@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        ("below a file", 7, "store.unavailable"),
        ("unwritable directory", 7, "store.unavailable"),
        ("a directory", 7, "store.unavailable"),
        ("no database", 74, "store.foreign"),
        ("a newer version", 5, "store.too_new"),
    ],
)
def test_a_store_that_cannot_be_opened_is_told(kind: str, code: int, error: str, tmp_path: Path) -> None:
    """The store's fault is named with its path, nothing is sent to the model, and a foreign file is left as it was."""
    with _spoiled(kind, tmp_path) as store, serving() as server:
        before = store.read_bytes() if store.is_file() else None
        arguments = ["chat", "-m", "hi", "--json", *flags(server, store)]
        done = run(arguments, env=environment(tmp_path))
        assert (done.code, done.envelope["error"]["code"]) == (code, error), done
        assert str(store) in done.envelope["error"]["message"]
        assert "Traceback" not in done.err
        assert server.requests == ()
        assert before is None or store.read_bytes() == before


def test_an_unplanned_error_shows_its_traceback_only_when_asked(tmp_path: Path) -> None:
    """A bug ends with exit 1 and one line; --verbose adds the traceback."""
    bug = tmp_path / "sitecustomize.py"
    bug.write_text("import runlane.cli._place as place\nplace.chat_store = None\n")
    env = environment(tmp_path)
    env["PYTHONPATH"] = f"{tmp_path}:{env.get('PYTHONPATH', '')}"
    arguments = ["chat", "-m", "hi", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    quiet, verbose = run(arguments, env=env), run([*arguments, "--verbose"], env=env)
    assert (quiet.code, verbose.code) == (1, 1)
    assert "unexpected TypeError" in quiet.err
    assert "--verbose" in quiet.err
    assert "Traceback" not in quiet.err
    assert "Traceback" in verbose.err


def test_a_part_answer_is_only_text(tmp_path: Path) -> None:
    """What is kept of an answer that was cut in mid-token is the text that had arrived whole."""
    with serving(cut("one ", "two")) as server:
        run(["chat", "c1", "-m", "count", *flags(server, tmp_path / "c.db")], env=environment(tmp_path))
    [_, partial] = stored(tmp_path / "c.db", "c1").messages
    assert [part for part in partial.parts if isinstance(part, TextPart)] == [TextPart(text="one two")]

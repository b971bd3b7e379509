"""`runlane chat` as a conversation: at a terminal, over a pipe, in two terminals, after a death."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.cli.cli_program import AtTerminal, environment, run, wait_until
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

"""`runlane demo`, as it is run by `make run`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from runlane.cli._demo_script import FIRST, SECOND
from tests.cli.cli_program import COMMAND, AtTerminal, environment, run
from tests.cli.model_server import stored

_QUICK = ["demo", "--seconds", "3"]


def _workers(home: Path) -> list[int]:
    """Return the processes of demo workers whose store is below `home`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has just ended
            if "_demo_worker" in line and str(home) in line:
                found.append(int(entry.name))
    return found


def test_every_promise_is_kept_and_told_to_programs(tmp_path: Path) -> None:
    """The demo exits 0 with all checks held, each with its figures; with --store the file stays."""
    store = tmp_path / "demo.db"
    done = run([*_QUICK, "--seed", "2", "--json", "--store", str(store)], env=environment(tmp_path))
    assert done.code == 0, done
    data = done.envelope["data"]
    assert [check["name"] for check in data["checks"] if not check["held"]] == []
    assert len(data["checks"]) == 8
    assert [one["answer"] for one in data["runs"]] == [FIRST.answer, SECOND.answer]
    assert [one["fencing_token"] for one in data["runs"]] == [1, 2]
    assert [m.text for m in stored(store, "demo").messages] == [
        FIRST.question,
        FIRST.answer,
        SECOND.question,
        SECOND.answer,
    ]


def test_it_is_narrated_at_a_narrow_terminal(tmp_path: Path) -> None:
    """At 40 columns the kill, the recovery and the store are shown inside the width; nothing stays behind."""
    env = environment(tmp_path, NO_COLOR="1", TMPDIR=str(tmp_path))
    with AtTerminal(_QUICK, env=env, columns=40) as terminal:
        assert terminal.wait_end() == 0, terminal.screen
    screen = " ".join(terminal.screen.split())
    for words in ("SIGKILL", "recovers", "2 runs, 4 messages", "kept the first answer is intact"):
        assert words in screen, terminal.screen
    assert "BROKEN" not in screen
    assert "\x1b" not in screen
    assert [line for line in terminal.screen.splitlines() if len(line) > 40 and str(tmp_path) not in line] == []
    assert list(tmp_path.glob("runlane-demo-*")) == []


def test_it_works_without_a_terminal_and_without_unicode(tmp_path: Path) -> None:
    """Into a pipe, in ASCII, the same is told without escape sequences; --keep leaves the store and says where."""
    env = environment(tmp_path, PYTHONIOENCODING="ascii", TMPDIR=str(tmp_path))
    done = run([*_QUICK, "--keep"], env=env, encoding="ascii")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "What is in the store" in done.out
    assert done.out.count("kept  ") == 8
    [folder] = tmp_path.glob("runlane-demo-*")
    assert (folder / "demo.db").exists()
    assert f"The store stays in {folder / 'demo.db'}" in done.out.replace("\n", " ")


def test_programs_can_follow_it(tmp_path: Path) -> None:
    """With --jsonl the acts and the pieces come as they happen, and the envelope last."""
    done = run([*_QUICK, "--jsonl"], env=environment(tmp_path, TMPDIR=str(tmp_path)))
    *events, envelope = map(json.loads, done.out.splitlines())
    assert [event["act"] for event in events if event["type"] == "act"] == [1, 2, 3, 4, 5]
    assert sum(event["type"] == "delta" for event in events) > 50
    assert envelope["ok"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_ends_its_worker(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, SIGTERM and even SIGKILL in the middle of an answer leave no process behind."""
    program = subprocess.Popen(
        [*COMMAND, "demo", "--seconds", "60", "--jsonl"],
        env=environment(tmp_path, TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with program:
        assert program.stdout is not None
        while json.loads(program.stdout.readline())["type"] != "delta":
            pass
        [worker] = _workers(tmp_path)
        worker_ended = os.pidfd_open(worker)
        program.send_signal(number)
        _, err = program.communicate(timeout=30)
    assert program.returncode == (-9 if number is signal.SIGKILL else 128 + number)
    assert b"Traceback" not in err
    try:
        assert select.select([worker_ended], [], [], 30)[0] == [worker_ended]
    finally:
        os.close(worker_ended)


def test_it_does_not_touch_a_store_that_exists(tmp_path: Path) -> None:
    """A file that is there already is refused with exit 2 and left as it was."""
    store = tmp_path / "mine.db"
    store.write_bytes(b"precious")
    done = run(["demo", "--store", str(store)], env=environment(tmp_path))
    assert (done.code, store.read_bytes()) == (2, b"precious")
    assert str(store) in done.err

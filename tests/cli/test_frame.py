"""The command line around the commands: help, usage errors, missing extras."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_program import COMMAND, environment, run

_HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"typer", "rich"}:
            raise ModuleNotFoundError(name)
sys.modules["typer"] = None
sys.modules["rich"] = None
from runlane.cli import main
sys.exit(main())
"""


def test_without_its_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    """Without typer and rich the command names the extra to install, on stderr, and exits 2."""
    done = subprocess.run(
        [sys.executable, "-c", _HIDE], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'runlane[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_the_commands(tmp_path: Path) -> None:
    """`runlane --help` lists the commands and exits 0; without a command it does the same and exits 2."""
    helped, bare = run(["--help"], env=environment(tmp_path)), run([], env=environment(tmp_path))
    assert (helped.code, bare.code) == (0, 2)
    assert helped.out.strip() == bare.out.strip()
    assert "--store" in helped.out


def test_an_unknown_flag_is_a_usage_error(tmp_path: Path) -> None:
    """A flag that does not exist ends with exit 2 and one line that says where the right ones stand."""
    done = run(["--bogus"], env=environment(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("runlane: No such option: --bogus")
    assert done.err.count("\n") == 1


def test_a_wrong_flag_of_a_command_leads_to_the_help_of_that_command(tmp_path: Path) -> None:
    """Who misspells a flag of `chat` is sent to the help of `chat`, not to that of everything."""
    done = run(["chat", "--nonsense"], env=environment(tmp_path))
    assert (done.code, done.err) == (2, "runlane: No such option: --nonsense; see: runlane chat --help\n")


@pytest.mark.parametrize("arguments", [["--help"], ["demo"], ["--json", "demo", "--store", "/proc/x"]])
def test_an_output_that_takes_nothing_is_named(tmp_path: Path, arguments: list[str]) -> None:
    """If stdout is on a full device the command says so in one line, without a traceback, and asks for no report."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=50,
        )
    assert done.returncode in {1, 7}
    assert done.stderr == "runlane: the output cannot be written: No space left on device\n"


def test_advice_is_given_once(tmp_path: Path) -> None:
    """A store that cannot be opened by the demo's worker is advised on once."""
    done = run(["demo", "--store", "/proc/x"], env=environment(tmp_path))
    assert done.code == 7
    assert done.err.count("choose another place with --store") == 1


def test_a_usage_error_has_the_form_that_was_asked_for(tmp_path: Path) -> None:
    """With --json a usage error too is one JSON document on stdout, and nothing else."""
    done = run(["--json", "--bogus"], env=environment(tmp_path))
    assert (done.code, done.err) == (2, "")
    assert done.envelope["ok"] is False
    assert done.envelope["error"]["code"] == "usage"


@pytest.mark.parametrize("command", ["chat", "demo"])
def test_the_example_in_a_commands_help_can_be_typed(command: str, tmp_path: Path) -> None:
    """Every command's help ends its text with an example, whose flags all exist."""
    env = environment(tmp_path, COLUMNS="200")
    helped = run([command, "--help"], env=env)
    example = re.search(rf"Example: runlane ({command} .*)", helped.out)
    assert example is not None, helped
    assert run([*shlex.split(example[1]), "--help"], env=env).code == 0


def test_common_flags_may_stand_before_the_command_and_win_over_the_environment(tmp_path: Path) -> None:
    """A store named before the command's name is used, not the one of the environment."""
    env = environment(tmp_path, RUNLANE_STORE="mysql://there")
    arguments = ["--store", "mysql://here", "--json", "chat", "--model", "m", "--base-url", "http://127.0.0.1:9"]
    done = run(arguments, env=env)
    assert (done.code, done.envelope["error"]["code"]) == (2, "value.invalid")
    assert done.envelope["error"]["message"].startswith("--store: ")
    assert run(arguments[2:], env=env).envelope["error"]["message"].startswith("RUNLANE_STORE: ")

"""Measure the benches and print their table; see `python -m benches --help`."""

import argparse
import importlib
import os
import platform
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benches._harness import REGISTRY, ROUNDS, Result, measure

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
START, END = "<!-- table: start -->", "<!-- table: end -->"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("only", nargs="*", help="bench modules, such as `sse`; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    asked = parser.parse_args()
    for path in sorted(FOLDER.glob("bench_*.py")):
        importlib.import_module(f"benches.{path.stem}")
    results: list[tuple[str, Result]] = []
    for module, title, build in REGISTRY.rows:
        if asked.only and module not in asked.only:
            continue
        print(f"{module}: {title}", file=sys.stderr, flush=True)
        results += [(module, result) for result in measure(title, build(), asked.rounds)]
    lines = table(results)
    print("\n".join(lines))
    if asked.write:
        write(lines, {module for module, _ in results})


def table(results: list[tuple[str, Result]]) -> list[str]:
    """Return one markdown table for each bench module."""
    lines: list[str] = []
    for module in dict.fromkeys(module for module, _ in results):
        lines += [f"<!-- {module} -->", f"### {module}", "", conditions(), ""]
        lines += ["| path | beside | ratio | quartiles | to reach | |", "|---|---|---|---|---|---|"]
        for owner, result in results:
            if owner == module:
                lines.append(_line(result))
        lines.append("")
    return lines


def _line(result: Result) -> str:
    what = "times its time" if not result.goal.faster else "times as fast"
    verdict = "" if result.goal.met(result.ratio) else "**missed**"
    return (
        f"| {result.row} | {result.peer} | {result.ratio:.3g} {what} "
        f"| {result.low:.3g} to {result.high:.3g} | {result.goal} | {verdict} |"
    )


def conditions() -> str:
    """Return a line that says where a table was measured."""
    peers = (
        "httpx-sse",
        "anthropic",
        "openai",
        "openai-agents",
        "langgraph",
        "sse-starlette",
        "fastapi",
        "orjson",
        "rfc8785",
        "apsw",
    )
    versions = []
    for name in peers:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} not installed")
    return (
        f"CPython {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors; {', '.join(versions)}."
    )


def write(lines: list[str], modules: set[str]) -> None:
    """Replace the tables of the measured modules in README.md and leave the others."""
    head, _, rest = README.read_text().partition(START)
    body, _, tail = rest.partition(END)
    sections = {part.partition(" -->")[0]: part for part in body.strip().split("<!-- ")[1:]}
    for part in "\n".join(lines).split("<!-- ")[1:]:
        sections[part.partition(" -->")[0]] = part
    assert modules <= sections.keys()
    joined = "\n\n".join("<!-- " + sections[name].strip() for name in sorted(sections))
    README.write_text(f"{head}{START}\n{joined}\n{END}{tail}")


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001 - whatever it was, it is printed
        # A contender that was not ended has threads that would hold the process for ever.
        traceback.print_exc()
        os._exit(1)

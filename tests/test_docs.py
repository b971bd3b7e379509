"""The README's programs do what they say."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from runlane.testing import Answer, ReceivedRequest, ReplayServer, Reply
from tests.fixture_files import REPOSITORY

_ENDPOINT = "https://api.openai.com/v1"
_WORDS = ("I ", "am ", "a ", "replay.")


def _programs() -> list[str]:
    """The Python blocks of the README, in order."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def _respond(request: ReceivedRequest) -> Reply:
    """Call every tool once, if there are any and none was called yet; else answer."""
    if not request.path.endswith("/chat/completions"):
        return Answer("".join(_WORDS)).reply(request)
    asked = json.loads(request.body)
    functions = [shown["function"] for shown in asked.get("tools", ())]
    if not functions or any(message["role"] == "tool" for message in asked["messages"]):
        return _answer()
    calls = [
        {
            "index": index,
            "id": f"call_{index}",
            "function": {
                "name": function["name"],
                "arguments": json.dumps(dict.fromkeys(function["parameters"]["required"], "Bern")),
            },
        }
        for index, function in enumerate(functions)
    ]
    return _streamed([{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}])


def _answer() -> Reply:
    said: list[dict[str, object]] = [{"delta": {"content": word}, "finish_reason": None} for word in _WORDS]
    return _streamed([*said, {"delta": {}, "finish_reason": "stop"}])


def _streamed(choices: list[dict[str, object]]) -> Reply:
    chunks = [{"choices": [{"index": 0, **choice}]} for choice in choices]
    lines = [f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks]
    body = "".join([*lines, "data: [DONE]\n\n"]).encode()
    return Reply(body, headers={"content-type": "text/event-stream"}, chunk_size=64)


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """A model that calls its tools once and then always says the same, on the loopback, in a thread of its own."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(ReplayServer(_respond)) as running,
    ):
        yield running


@pytest.mark.parametrize("number", range(len(_programs())))
def test_a_program_of_the_readme_runs(
    number: int, server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program runs as it stands, but for the endpoint, and prints the model's answer."""
    program = _programs()[number]
    assert _ENDPOINT in program
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    printed = io.StringIO()
    source = program.replace(_ENDPOINT, f"{server.base_url}/v1")
    with contextlib.redirect_stdout(printed):
        exec(compile(source, f"README.md, program {number + 1}", "exec"), {"__name__": "__main__"})  # noqa: S102
    said = printed.getvalue()
    assert "print(" not in program or "".join(_WORDS) in said
    assert all(b"gpt-5-mini" in request.body for request in server.requests)
    rounds = (
        program.count(".stream(")
        + program.count(".ask(")
        + program.count("runner.call(")
        + ("submit(" in program)
        + ("tools=[" in program)
    )
    # A request that is superseded may have reached the model before it was, or not.
    assert rounds <= len(server.requests) <= rounds + program.count('policy="supersede"')


def test_the_first_program_is_about_fifteen_lines() -> None:
    """What a newcomer writes is short."""
    lines = [line for line in _programs()[0].splitlines() if line.strip()]
    assert len(lines) <= 16

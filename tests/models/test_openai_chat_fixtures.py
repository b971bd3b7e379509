"""The recorded OpenAI chat streams give what their index says a full reading gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    ResponseInfo,
    TextDelta,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models.openai_chat import OpenAIChatDecoder
from runlane.sse import SseDecoder
from tests.fixture_files import fixtures_dir

_FOLDER = fixtures_dir()
_INDEX: list[dict[str, Any]] = (
    [] if _FOLDER is None else json.loads((_FOLDER / "streams" / "index.json").read_text(encoding="utf-8"))
)
_CHAT = [entry for entry in _INDEX if entry["api"] == "openai-chat"]


def decode(body: bytes, size: int) -> tuple[list[ModelPart], OpenAIChatDecoder]:
    """Decode a body cut into pieces of `size` bytes."""
    events, decoder = SseDecoder(), OpenAIChatDecoder()
    parts: list[ModelPart] = []
    for start in range(0, len(body), size):
        for event in events.feed(body[start : start + size]):
            parts += decoder.feed(event.data, event.event)
    for event in events.close():
        parts += decoder.feed(event.data, event.event)
    parts += decoder.close()
    return parts, decoder


def summary(parts: list[ModelPart]) -> dict[str, Any]:
    """Say what a list of parts amounts to, in the words of the index."""
    calls = create_tool_call_collector()
    finish: list[FinishReport] = []
    infos: list[ResponseInfo] = []
    usages: list[UsageReport] = []
    for part in parts:
        match part:
            case FunctionCallDelta():
                calls.add(part)
            case FinishReport():
                finish.append(part)
            case ResponseInfo():
                infos.append(part)
            case UsageReport():
                usages.append(part)
            case _:
                pass
    (info,) = infos
    return {
        "text": "".join(part.text for part in parts if isinstance(part, TextDelta)),
        "reasoning": "".join(part.text for part in parts if isinstance(part, ReasoningDelta)),
        "tool_calls": [
            {"id": call.call_id, "name": call.tool_name, "arguments": call.arguments} for call in calls.finish()
        ],
        "finish_reason": finish[0].raw_reason if finish else None,
        "usage": usages[-1].usage.raw if usages else None,
        "model": info.model,
        "response_id": info.response_id,
    }


@pytest.mark.parametrize("size", [1, 7, 1024, 1 << 30])
@pytest.mark.parametrize("entry", _CHAT, ids=lambda entry: Path(entry["file"]).stem)
def test_a_recorded_stream_gives_what_its_index_says(entry: dict[str, Any], size: int, fixtures_dir: Path) -> None:
    """Text, reasoning, calls, finish, usage and identity of every recorded stream are right, however it is cut."""
    parts, decoder = decode((fixtures_dir / "streams" / entry["file"]).read_bytes(), size)
    expected = dict(entry["expected"])
    failed = expected.pop("error") is not None
    assert summary(parts) == expected
    assert (decoder.failure is not None) == failed
    assert isinstance(parts[-1], FinishReport) == (not failed)

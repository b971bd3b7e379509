"""Whatever a provider makes of the port, a run ends: no answer is kept that could not be stored."""

from typing import Any

import pytest
from pydantic import JsonValue

from runlane.errors import InvalidValueError, ModelProtocolError
from runlane.models import (
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
)
from runlane.records import JsonObject, Part, ProviderPart, ReasoningPart, SourcePart, TextPart
from runlane.runtime import FilesConfig, GeneratedFile, RuntimeConfig
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_LONE = "\ud800"
_REPAIRED = "\ufffd"


def _nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (TextDelta(f"a{_LONE}"), TextPart(text=f"a{_REPAIRED}")),
        (ReasoningDelta(f"a{_LONE}"), ReasoningPart(text=f"a{_REPAIRED}")),
        (OpaqueOutput("p", {_LONE: [_LONE]}), {_REPAIRED: [_REPAIRED]}),
        (SourceOutput(_LONE, None, _LONE), SourcePart(source_id=_REPAIRED, title=_REPAIRED)),
        (SourceOutput("example.com", "example.com", "T"), SourcePart(source_id="example.com", title="T")),
        (SourceOutput("s", "https://e.org/", ""), SourcePart(source_id="s", url="https://e.org/")),
    ],
)
async def test_what_can_be_kept_is_kept(said: ModelPart, kept: Part | JsonObject) -> None:
    """A lone surrogate becomes U+FFFD wherever it is, and an address that is no URL costs only the link."""
    async with opened(ScriptedModel([said, FinishReport("stop")])) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert result.reason == "success"
        (part,) = result.message.parts
        assert (part.envelope.data if isinstance(part, ProviderPart) else part) == kept


@pytest.mark.parametrize(
    "said",
    [
        OpaqueOutput("p", {"x": float("nan")}),
        OpaqueOutput("p", {"x": _nested(195)}),
        OpaqueOutput("p", {"x": _nested(505)}),
        OpaqueOutput("", {"x": 1}),
        ReasoningDelta("", phase="end", provider_options={"x": float("inf")}),
        SourceOutput(""),
    ],
)
async def test_what_has_no_stored_form_ends_the_run_with_the_text_before_it(said: ModelPart) -> None:
    """The run fails, keeps its text, and the conversation goes on: it is never left running with nobody to end it."""
    model = ScriptedModel([TextDelta("Well"), said, FinishReport("stop")], "Next answer")
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert (result.reason, result.text) == ("runtime_failure", "Well")
        assert isinstance(result.error, InvalidValueError)
        assert await scene.store.list_active_runs(CONVERSATION) == ()
        following = await scene.runtime.submit(CONVERSATION, "And now?").result
    assert (following.reason, following.text) == ("success", "Next answer")


class _Text(str):
    __slots__ = ()


def _of(kind: Any, *values: Any, **fields: Any) -> Any:  # noqa: ANN401 - types are what is wrong with it
    return kind(*values, **fields)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (_of(TextDelta, 5), "TextDelta whose text is int, not a text"),
        (_of(TextDelta, None), "TextDelta whose text is NoneType"),
        (_of(TextDelta, b""), "TextDelta whose text is bytes"),
        (_of(ReasoningDelta, 5), "ReasoningDelta whose text is int"),
        (
            _of(ReasoningDelta, "x", phase="middle"),
            "ReasoningDelta whose phase is 'middle', not one of delta, end, start",
        ),
        (_of(ReasoningDelta, "x", provider_options=[1]), "provider_options is list, not a mapping or None"),
        (_of(FunctionCallDelta, "0", id="c", name="t", arguments="{}"), "FunctionCallDelta whose index is '0'"),
        (_of(FunctionCallDelta, index=True, id="c", name="t", arguments="{}"), "FunctionCallDelta whose index is bool"),
        (_of(FunctionCallDelta, 0, id=5, name="t", arguments="{}"), "FunctionCallDelta whose id is int"),
        (_of(FunctionCallDelta, 0, id="c", name=[], arguments="{}"), "FunctionCallDelta whose name is list"),
        (_of(FunctionCallDelta, 0, id="c", name="t", arguments={}), "FunctionCallDelta whose arguments is dict"),
        (_of(SourceOutput, 5), "SourceOutput whose source_id is int"),
        (_of(SourceOutput, "s", url=5), "SourceOutput whose url is int"),
        (_of(FileOutput, "text/plain", "text"), "FileOutput whose data is 'text', not bytes"),
        (_of(FileOutput, None, b""), "FileOutput whose media_type is NoneType"),
        (_of(OpaqueOutput, 5, {}), "OpaqueOutput whose provider is int"),
        (_of(OpaqueOutput, "p", [1]), "OpaqueOutput whose data is list"),
        (_of(UsageReport, {"input_tokens": 1}), "UsageReport whose usage is dict, not a ModelUsage"),
        (_of(ResponseInfo, response_id=5), "ResponseInfo whose response_id is int"),
        (_of(FinishReport, "done"), "FinishReport whose reason is 'done', not one of content-filter"),
        (_of(FinishReport, None), "FinishReport whose reason is NoneType"),
        (_of(FinishReport, "stop", raw_reason=5), "FinishReport whose raw_reason is int"),
        ("a text", "yielded str, which is no part of a response"),
        (None, "yielded NoneType, which is no part of a response"),
    ],
)
async def test_a_part_of_the_wrong_shape_is_the_providers_failure(said: Any, problem: str) -> None:  # noqa: ANN401
    """Whoever wrote the provider is told which part and field; the text before it is kept, the conversation goes on."""
    keep = FilesConfig(keep=lambda _: GeneratedFile(reference="r"))
    model = ScriptedModel([TextDelta("Well"), said, FinishReport("stop")], "Next answer")
    async with opened(model, config=RuntimeConfig(files=keep)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert (result.reason, result.text) == ("provider_failure", "Well")
        assert isinstance(result.error, ModelProtocolError)
        assert problem in str(result.error)
        following = await scene.runtime.submit(CONVERSATION, "And now?").result
    assert (following.reason, following.text) == ("success", "Next answer")


async def test_a_text_of_a_subclass_is_a_text() -> None:
    """Only what is no text at all is refused."""
    async with opened(ScriptedModel([TextDelta(_Text("Hello")), FinishReport("stop")])) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).text == "Hello"

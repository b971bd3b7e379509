"""Files that a model makes."""

import pytest

from runlane.errors import UsageError
from runlane.models import FileOutput, FinishReport, TextDelta
from runlane.records import FilePart
from runlane.runtime import FilesConfig, GeneratedFile, KeepFile, RuntimeConfig
from runlane.testing import ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_PICTURE = FileOutput("image/png", b"\x89PNG", "cat.png")
_REPLY: list[ScriptedStep] = [TextDelta("Here: "), _PICTURE, TextDelta("Nice?"), FinishReport("stop")]


def _keeping(keep: KeepFile | None) -> RuntimeConfig:
    return RuntimeConfig(files=FilesConfig(keep=keep))


async def test_a_generated_file_is_kept_by_the_application_and_recorded_by_reference() -> None:
    """The callback gets the bytes, the answer the reference, in the place where the file came; no record has bytes."""
    kept: list[FileOutput] = []

    async def keep(file: FileOutput) -> GeneratedFile:
        kept.append(file)
        return GeneratedFile(reference="s3://bucket/1")

    model = ScriptedModel(_REPLY, "next")
    async with opened(model, config=_keeping(keep)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Draw").result
        await scene.runtime.submit(CONVERSATION, "Thanks").result
    assert kept == [_PICTURE]
    assert [part.type for part in result.message.parts] == ["text", "file", "text"]
    assert result.message.parts[1] == FilePart(media_type="image/png", reference="s3://bucket/1", filename="cat.png")
    assert "s3://" not in repr(model.calls[1].messages)


async def test_the_application_may_name_the_file() -> None:
    """Its own file name wins over the provider's."""
    config = _keeping(lambda _: GeneratedFile(reference="r", filename="dog.png"))
    async with opened(ScriptedModel(_REPLY), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Draw").result
    assert result.message.parts[1] == FilePart(media_type="image/png", reference="r", filename="dog.png")


@pytest.mark.parametrize(
    "keep",
    [None, lambda _: "s3://bucket/1", lambda _: GeneratedFile(reference="")],
    ids=["nothing", "a-text", "no-reference"],
)
async def test_a_file_nobody_can_keep_ends_the_run(keep: KeepFile | None) -> None:
    """Without a callback, or with one that gives no reference, the run is a runtime failure that names the option."""
    async with opened(ScriptedModel(_REPLY), config=_keeping(keep)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Draw").result
    assert (result.reason, result.text) == ("runtime_failure", "Here: ")
    assert "file" in str(result.error)


def test_what_cannot_be_called_keeps_no_files() -> None:
    """A wrong option is refused where it is given."""
    with pytest.raises(UsageError, match=r"files\.keep"):
        FilesConfig(keep="s3")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="files"):
        RuntimeConfig(files=None)  # type: ignore[arg-type]

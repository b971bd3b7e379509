"""A store whose file is taken away while it is open acknowledges nothing more, and still closes in order."""

from pathlib import Path

import pytest

from runlane.errors import StoreUnavailableError
from runlane.runtime import AgentRuntime
from runlane.store.sqlite import SqliteStore
from runlane.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("replaced", [False, True])
async def test_an_input_is_not_accepted_into_a_file_that_is_gone(tmp_path: Path, *, replaced: bool) -> None:
    """What would be committed into a file without a name is refused; the new file, if there is one, is not touched."""
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store, AgentRuntime(store, model=ScriptedModel("One", "Two", "Three")) as runtime:
        assert (await runtime.submit("c", "1").result).text == "One"
        path.rename(tmp_path / "moved.db")
        if replaced:
            path.write_bytes(b"")
        with pytest.raises(StoreUnavailableError, match="removed or replaced while it was open"):
            await runtime.submit("c", "2").admission
    assert path.exists() is replaced
    assert not replaced or path.read_bytes() == b""


async def test_a_file_that_is_put_back_goes_on(tmp_path: Path) -> None:
    """Nothing was lost by the detour, and the refused input can be submitted again."""
    path = tmp_path / "agents.db"
    async with SqliteStore(path) as store, AgentRuntime(store, model=ScriptedModel("One", "Two")) as runtime:
        await runtime.submit("c", "1").result
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreUnavailableError):
            await runtime.submit("c", "2", idempotency_key="k").admission
        (tmp_path / "moved.db").rename(path)
        assert (await runtime.submit("c", "2", idempotency_key="k").result).text == "Two"
        assert (await store.load_head("c")).version > 0

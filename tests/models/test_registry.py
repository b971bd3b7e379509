"""A registry knows what models can do before anything is constructed, and says how old its knowledge is."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from runlane.errors import (
    InvalidValueError,
    ModelNotUsableError,
    ModelSnapshotStaleError,
    UnknownModelError,
    UsageError,
)
from runlane.models import (
    ChatProvider,
    MemoryModelSelectionStore,
    ModelDescriptor,
    ModelProvider,
    ModelRegistry,
    ModelSelection,
    ModelSnapshotPolicy,
    ModelUsage,
    ResponseInfo,
    define_model_registry,
    validate_model_snapshot,
)
from runlane.records import Usage, UsageValue
from runlane.testing import FakeClock, ScriptedModel

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Lab(ModelProvider):
    """A provider with readings of its own; notes what it made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    @override
    def create(self, model_id: str, /) -> ChatProvider:
        self.made.append(model_id)
        return ScriptedModel("said", model_id=model_id)

    @override
    def normalize_usage(self, usage: ModelUsage | None, /) -> Usage:
        figure = UsageValue(value=7, provenance="provider-reported")
        return Usage.unknown().model_copy(update={"input_tokens": figure})

    @override
    def resolve_response_provider(self, info: ResponseInfo, /) -> str | None:
        return f"lab behind {info.upstream_provider}"


def described(**fields: object) -> dict[str, object]:
    """Return a descriptor."""
    return {"provider": "lab", "model_id": "lab-1", "context_window": 8_000, "capabilities": ["tools"], **fields}


def registry(lab: Lab | None = None, **models: Mapping[str, object]) -> ModelRegistry:
    """Return a registry with a model `main` and others."""
    return define_model_registry(models={"main": described(), **models}, providers={"lab": lab or Lab()})


# --- the table of operations --------------------------------------------------------------------------------------


def test_an_unknown_key_is_named() -> None:
    """By every operation that takes one."""
    for operation in (registry().descriptor, registry().supports, registry().preflight, registry().resolve):
        with pytest.raises(UnknownModelError) as refused:
            operation("nobody")
        assert refused.value.model == "nobody"
        assert "nobody" in str(refused.value)


def test_keys_and_descriptors_are_those_defined() -> None:
    """In the order of their definition."""
    found = registry(second=described(model_id="lab-2", availability="available"))
    assert found.keys == ("main", "second")
    assert found.descriptor("second").model_id == "lab-2"


@pytest.mark.parametrize(
    ("wanted", "has"), [((), True), (("tools",), True), (("vision",), False), (("tools", "vision"), False)]
)
def test_a_model_supports_what_it_has_all_of(wanted: tuple[str, ...], has: bool) -> None:  # noqa: FBT001
    """One that is missing is enough."""
    assert registry().supports("main", wanted) is has  # type: ignore[arg-type]


def test_preflight_checks_in_order_and_constructs_nothing() -> None:
    """Name, availability, capabilities, provider: the first that fails is the one that is told."""
    lab = Lab()
    models = registry(
        lab,
        gone=described(availability="unavailable", provider="nobody", capabilities=[]),
        blind=described(provider="nobody", capabilities=[]),
        orphan=described(provider="nobody"),
    )
    told = []
    for key in ("gone", "blind", "orphan"):
        with pytest.raises(ModelNotUsableError) as refused:
            models.preflight(key, ["tools"])
        told.append((refused.value.reason, refused.value.missing))
    assert told == [("unavailable", ()), ("capability", ("tools",)), ("provider", ())]
    assert models.preflight("main", ["tools"]) == models.descriptor("main")
    assert lab.made == []


def test_missing_availability_counts_as_available() -> None:
    """Only a model that says otherwise is refused."""
    models = registry(said=described(availability="available"))
    assert [models.preflight(key).availability for key in models.keys] == [None, "available"]


def test_resolving_makes_the_model_once_and_carries_the_adapters_readings() -> None:
    """The same connections serve every run; usage and upstream provider are read in the adapter's way."""
    lab = Lab()
    models = registry(lab)
    first, second = models.resolve("main", ["tools"]), models.resolve("main")
    assert first.provider is second.provider
    assert lab.made == ["lab-1"]
    assert (first.model, first.context_window) == ("main", 8_000)
    assert first.usage_of(None).input_tokens.value == 7
    assert first.response_provider_of(ResponseInfo(upstream_provider="x")) == "lab behind x"


def test_resolving_a_model_that_cannot_serve_constructs_nothing() -> None:
    """Preflight comes first."""
    lab = Lab()
    with pytest.raises(ModelNotUsableError):
        registry(lab).resolve("main", ["vision"])
    assert lab.made == []


def test_a_provider_may_be_a_function_of_the_models_name() -> None:
    """Its usage is then read plainly."""
    models = define_model_registry(
        models={"main": described()}, providers={"lab": lambda name: ScriptedModel("said", model_id=name)}
    )
    resolved = models.resolve("main")
    assert resolved.provider.model_id == "lab-1"
    assert resolved.usage_of(ModelUsage(input_tokens=3)).input_tokens.value == 3


def test_a_function_that_makes_no_model_is_misuse() -> None:
    """Named by its provider."""
    models = define_model_registry(models={"main": described()}, providers={"lab": lambda _: "model"})  # type: ignore[dict-item, return-value]
    with pytest.raises(UsageError) as refused:
        models.resolve("main")
    assert refused.value.argument == "providers.lab"


@pytest.mark.anyio
async def test_closing_a_registry_closes_what_it_made() -> None:
    """And nothing else."""
    closed: list[str] = []

    class Closing(ScriptedModel):
        @override
        async def aclose(self) -> None:
            closed.append(self.model_id)

    models = define_model_registry(
        models={"main": described(), "other": described(model_id="lab-2")},
        providers={"lab": lambda name: Closing("said", model_id=name)},
    )
    models.resolve("main")
    await models.aclose()
    assert closed == ["lab-1"]


# --- descriptors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"context_window": 0}, "models.bad.context_window"),
        ({"context_window": -1}, "models.bad.context_window"),
        ({"context_window": 1.5}, "models.bad.context_window"),
        ({"capabilities": ["flying"]}, "models.bad.capabilities.0"),
        ({"provider": ""}, "models.bad.provider"),
        ({"model_id": ""}, "models.bad.model_id"),
        ({"availability": "perhaps"}, "models.bad.availability"),
        ({"observed_at": "2026-01-02T03:04:05"}, "models.bad.observed_at"),
        ({"price": 1}, "models.bad.price"),
    ],
)
def test_a_descriptor_is_checked_when_it_is_defined(wrong: dict[str, object], path: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidValueError) as refused:
        registry(bad=described(**wrong))
    assert refused.value.argument == path


@pytest.mark.parametrize("bad", [7, None, "lab"])
def test_a_provider_is_a_provider(bad: object) -> None:
    """Or a function."""
    with pytest.raises(UsageError) as refused:
        define_model_registry(models={}, providers={"lab": bad})  # type: ignore[dict-item]
    assert refused.value.argument == "providers.lab"


def test_a_word_that_is_no_capability_is_refused() -> None:
    """Rather than taken for one the model lacks."""
    with pytest.raises(InvalidValueError):
        registry().supports("main", ["flying"])  # type: ignore[list-item]


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_snapshot_holds_what_is_known_and_reads_back() -> None:
    """From its own JSON too."""
    snapshot = registry().snapshot(source="lab", observed_at=NOW)
    assert (snapshot.schema_version, snapshot.source, snapshot.observed_at) == (1, "lab", NOW)
    assert snapshot.models == {"main": ModelDescriptor.model_validate(described())}
    clock = FakeClock(NOW)
    assert validate_model_snapshot(snapshot.to_json(), ModelSnapshotPolicy(max_age=0), clock=clock) == snapshot


@pytest.mark.parametrize(("age", "fresh"), [(0, True), (60, True), (60.001, False), (-0.001, False), (59.999, True)])
def test_a_snapshot_is_fresh_up_to_and_including_its_limit(age: float, fresh: bool) -> None:  # noqa: FBT001
    """Older is stale, and so is one from the future."""
    snapshot = registry().snapshot(source="lab", observed_at=NOW - timedelta(seconds=age))
    policy, clock = ModelSnapshotPolicy(max_age=60), FakeClock(NOW)
    if fresh:
        assert validate_model_snapshot(snapshot, policy, clock=clock) is snapshot
        return
    with pytest.raises(ModelSnapshotStaleError) as stale:
        validate_model_snapshot(snapshot, policy, clock=clock)
    assert stale.value.age == pytest.approx(age, abs=0.002)
    assert stale.value.max_age == 60


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "60"])
def test_a_limit_is_a_number_of_seconds(bad: object) -> None:
    """The error names it."""
    with pytest.raises((UsageError, InvalidValueError)) as refused:
        ModelSnapshotPolicy(max_age=bad)  # type: ignore[arg-type]
    assert getattr(refused.value, "argument", None) == "max_age"


def test_a_snapshot_of_another_shape_is_refused() -> None:
    """Before its age is looked at."""
    with pytest.raises(InvalidValueError) as refused:
        validate_model_snapshot({"schema_version": 2}, ModelSnapshotPolicy(max_age=1))
    assert refused.value.argument.startswith("snapshot.")


# --- selection ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_selection_belongs_to_a_conversation() -> None:
    """The last one saved is the one that is loaded."""
    store = MemoryModelSelectionStore()
    assert await store.load("c1") is None
    await store.save("c1", {"model_id": "main", "selected_at": NOW})
    second = await store.save("c1", ModelSelection(model_id="second", selected_at=NOW))
    assert await store.load("c1") == second
    assert await store.load("c2") is None


@pytest.mark.anyio
async def test_saving_what_is_no_selection_changes_nothing() -> None:
    """The error names the field."""
    store = MemoryModelSelectionStore()
    first = await store.save("c1", {"model_id": "main", "selected_at": NOW})
    with pytest.raises(InvalidValueError) as refused:
        await store.save("c1", {"model_id": "", "selected_at": NOW})
    assert refused.value.argument == "selection.model_id"
    assert await store.load("c1") == first


@given(ages=st.integers(-5_000, 200_000), limit=st.integers(0, 100))
def test_freshness_is_one_comparison(ages: int, limit: int) -> None:
    """In whole milliseconds, as instants are kept."""
    snapshot = registry().snapshot(source="lab", observed_at=NOW - timedelta(milliseconds=ages))
    fresh = True
    try:
        validate_model_snapshot(snapshot, ModelSnapshotPolicy(max_age=limit), clock=FakeClock(NOW))
    except ModelSnapshotStaleError:
        fresh = False
    assert fresh == (0 <= ages <= limit * 1000)

"""A tree of runners, called in any order with any end, beside a model of its counters."""

from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runlane.contracts import CancelToken, ExecutionOptions
from runlane.errors import BudgetError
from runlane.models import TextDelta
from runlane.runner import ModelCallTrace, ModelChildOptions, ModelChildPolicy, ModelRunner
from tests.runner.speaking import ASK, SILENCE, STOP, Speaker, runner

ENDS = st.sampled_from(["good", "fails", "cut", "token", "scope"])


class RunnerTree(RuleBasedStateMachine):
    """Charges and counts what M42 to M44 and M53 to M57 say, whatever happens to a call."""

    @initialize(
        calls=st.integers(0, 8), child_calls=st.none() | st.integers(0, 4), backend=st.sampled_from(["asyncio", "trio"])
    )
    def start(self, calls: int, child_calls: int | None, backend: str) -> None:
        """Make a root."""
        self.backend = backend
        self.provider = Speaker()
        self.traces: list[ModelCallTrace] = []
        policy = ModelChildPolicy(max_depth=2, max_children=4, max_calls=child_calls)
        root = runner(self.provider, max_calls=calls, children=policy, on_trace=self.traces.append)
        self.runners = [root]
        self.parents: list[int | None] = [None]
        self.own: list[int | None] = [None]
        self.counts = [0]
        self.receipts = [0]
        self.shared, self.for_children = calls, child_calls
        self.charged = 0

    def _depth(self, at: int) -> int:
        depth, above = 0, self.parents[at]
        while above is not None:
            depth, above = depth + 1, self.parents[above]
        return depth

    @rule(at=st.integers(0, 4), limit=st.none() | st.integers(0, 3))
    def child(self, at: int, limit: int | None) -> None:
        """M55: refused when too deep or too many, and then nothing is counted."""
        at %= len(self.runners)
        options = ModelChildOptions(settings=None if limit is None else {"max_calls": limit})
        if self._depth(at) >= 2 or len(self.runners) > 4:
            with pytest.raises(BudgetError):
                self.runners[at].child(options)
            return
        parent = self.runners[at]
        self.runners.append(parent.child(options))
        self.parents.append(at)
        self.own.append(None if limit is None else min(limit, parent.settings.max_calls))
        self.counts.append(0)
        self.receipts.append(0)

    def _admits(self, at: int) -> bool:
        """M56: own budget, policy, shared budget; what was taken before a refusal stays taken."""
        own = self.own[at]
        if own is not None:
            if own == 0:
                return False
            self.own[at] = own - 1
        if self.parents[at] is not None and self.for_children is not None:
            if self.for_children == 0:
                return False
            self.for_children -= 1
        if self.shared == 0:
            return False
        self.shared -= 1
        return True

    @rule(at=st.integers(0, 4), end=ENDS)
    def call(self, at: int, end: str) -> None:
        """M42: charged before anything is sent, whatever comes of it; a receipt for success only."""
        at %= len(self.runners)
        admitted = self._admits(at)
        ended = anyio.run(self._ended, self.runners[at], end, backend=self.backend)
        if not admitted:
            assert ended == "refused"
            return
        assert ended == end
        self.charged += 1
        self.counts[at] += 1
        self.receipts[at] += end == "good"
        status = {"good": "succeeded", "token": "cancelled", "scope": "cancelled"}.get(end, "failed")
        assert self.traces[-1].status == status

    async def _ended(self, speaks: ModelRunner, end: str) -> str:
        parts: dict[str, tuple[Any, ...]] = {
            "good": (TextDelta("x"), STOP),
            "fails": (TextDelta("x"), OSError("down")),
            "cut": (TextDelta("x"),),
        }
        self.provider.parts = parts.get(end, (SILENCE,))
        token, ends = CancelToken(), ["scope"]

        async def ask(scope: anyio.CancelScope) -> None:
            with scope:
                try:
                    await speaks.call(ASK, options=ExecutionOptions(signal=token))
                    ends[0] = "good"
                except BudgetError:
                    ends[0] = "refused"
                except Exception as error:  # noqa: BLE001 - its kind is the end
                    ends[0] = "fails" if isinstance(error, OSError) else ("token" if token.cancelled else "cut")

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(ask, scope)
            if end in {"token", "scope"}:
                await anyio.wait_all_tasks_blocked()
                if end == "token":
                    token.cancel("stop")
                else:
                    scope.cancel()
        return ends[0]

    @invariant()
    def counts_add_up(self) -> None:
        """M43: own counts are one's own, totals add all descendants, every charge has one trace, nothing is busy."""
        totals = list(self.counts)
        for at in range(len(self.runners) - 1, 0, -1):
            above = self.parents[at]
            assert above is not None
            totals[above] += totals[at]
        assert [speaks.call_count for speaks in self.runners] == self.counts
        assert [speaks.total_call_count for speaks in self.runners] == totals
        assert [len(speaks.journal) for speaks in self.runners] == self.receipts
        assert {speaks.budget.available for speaks in self.runners} == {self.shared}
        assert len(self.traces) == self.charged
        assert not any(speaks.busy for speaks in self.runners)


TestRunnerTree = RunnerTree.TestCase
# Each call runs an event loop of its own.
TestRunnerTree.settings = settings(stateful_step_count=12, max_examples=settings().max_examples // 4)

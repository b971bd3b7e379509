"""Whole durable turns on SQLite beside the agents people use today, and what a streamed delta costs.

The model answers at once, so what is measured is everything around it: admission, the loop, the tool call, every write.
Turns wait for the disk and use several threads, so their rows take the wall clock.
"""

import time
from collections.abc import Callable
from functools import partial

import anyio

from benches._harness import Goal, Peer, Row, Work, at_least, at_most, bench
from benches.turn_work import (
    Contender,
    Runlane,
    hops,
    langgraph_agent,
    openai_agent,
    stream_to_one,
)
from runlane.runtime import HistoryConfig

AT_ONCE = 100
LONG, SHORT = 20_000, 20


def _beside(work: Callable[[Contender], Work], langgraph: Goal, openai: Goal) -> Row:
    ours, graph, agents = Runlane(), langgraph_agent(), openai_agent()

    def close() -> None:
        for contender in (ours, graph, agents):
            if contender is not None:
                contender.close()

    return Row(
        ours=work(ours),
        peers=[
            Peer("LangGraph, agent with SqliteSaver", work(graph) if graph else None, langgraph),
            Peer("openai-agents with SQLiteSession", work(agents) if agents else None, openai),
        ],
        clock=time.perf_counter,
        clean=close,
    )


@bench
def bench_turns_one_by_one() -> Row:
    """Ten turns with one tool call, one conversation after another."""
    return _beside(lambda contender: contender.some, at_least(2.5), at_least(3))


@bench
def bench_turns_at_once() -> Row:
    """Turns with one tool call, 100 conversations at once."""
    return _beside(lambda contender: partial(contender.many, AT_ONCE), at_least(4), at_least(3))


@bench
def bench_turn_in_a_long_conversation() -> Row:
    """A turn in a conversation of 20,000 messages, the prompt held to 20."""
    contender = Runlane(history=HistoryConfig(max_messages=SHORT))
    long, short = contender.filled(LONG), contender.filled(SHORT)
    return Row(
        ours=lambda: contender.loop.run(partial(contender.answer, long)),
        peers=[
            Peer(
                "the same at 20 messages",
                lambda: contender.loop.run(partial(contender.answer, short)),
                at_most(1.2),
            )
        ],
        clock=time.perf_counter,
        clean=contender.close,
    )


@bench
def bench_delta() -> Row:
    """A streamed delta from provider bytes to one subscriber, in hops of an anyio memory stream."""
    return Row(
        ours=lambda: anyio.run(stream_to_one),
        peers=[Peer("one hop", lambda: anyio.run(hops), at_most(4))],
    )

"""Work for the bench of turns: the same turn, durable on SQLite, by runlane and by those it is set beside.

Every contender keeps a conversation, answers an input with one tool call and a text, and has a model that answers at
once. Each is written as its own documentation has it, with the settings its SQLite store has by default.
"""

import json
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typing_extensions import override

from benches._harness import optional
from benches.store_work import conversation
from runlane.delivery import AssistantDeltaEvent
from runlane.ids import RandomIds
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    ModelToolResultMessage,
    ModelUsage,
    ResponseInfo,
    TextDelta,
    UsageReport,
)
from runlane.models.openai_chat import OpenAIChat
from runlane.runtime import AgentRuntime, HistoryConfig, RuntimeConfig
from runlane.store import MemoryStore
from runlane.store.sqlite import SqliteStore

T = TypeVar("T")

IDS = RandomIds()
QUESTION = "What is the weather in Paris, and should I take an umbrella?"
ANSWER = ("It is ", "raining ", "in Paris ", "and 18 ", "degrees: ", "do ", "take ", "an umbrella.")
ARGUMENTS = '{"city":"Paris"}'
USAGE = (120, 30)
IN_TURN = 10


class Instant(ChatProvider):
    """A model that answers at once: a tool call first, a text once it has the result."""

    provider_id = "instant"
    model_id = "instant"
    watches_silence = True

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        parts = self._parts(isinstance(messages[-1], ModelToolResultMessage))
        try:
            yield parts
        finally:
            await parts.aclose()

    async def _parts(self, has_result: bool) -> AsyncGenerator[ModelPart, None]:  # noqa: FBT001 - private
        yield ResponseInfo(response_id="resp-1", model="instant")
        if has_result:
            for piece in ANSWER:
                yield TextDelta(piece)
        else:
            yield FunctionCallDelta(0, id="call_1", name="weather", arguments=ARGUMENTS)
        yield UsageReport(ModelUsage(input_tokens=USAGE[0], output_tokens=USAGE[1]))
        yield FinishReport("stop" if has_result else "tool-calls")


async def weather(city: str) -> dict[str, object]:
    """Say what the weather is like."""
    return {"city": city, "t": 18, "sky": "rain"}


class Contender(Protocol):
    """Answers inputs."""

    def close(self) -> None:
        """End it, and remove what it wrote."""
        ...

    def some(self) -> object:
        """Answer one input in each of ten new conversations, one after the other."""
        ...

    def many(self, count: int, /) -> object:
        """Answer one input in each of so many new conversations at once."""
        ...


@dataclass
class Loop:
    """An event loop in a thread of its own, and a folder on the disk."""

    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        # Beside the benches and not in /tmp, which may be memory and would flush for nothing.
        self.folder = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".turn-"))
        self.stack.callback(shutil.rmtree, self.folder)
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal())

    def run(self, do: Callable[[], Awaitable[T]]) -> T:
        """Run something in the loop."""
        return self.portal.call(do)


async def _in_turn(answer: Callable[[], Coroutine[None, None, None]]) -> None:
    for _ in range(IN_TURN):
        await answer()


async def _at_once(count: int, answer: Callable[[], Coroutine[None, None, None]]) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(answer)


class Runlane:
    """`AgentRuntime` on `SqliteStore`, as they are by default."""

    def __init__(self, *, history: HistoryConfig | None = None) -> None:
        self.loop = Loop()
        enter, portal = self.loop.stack.enter_context, self.loop.portal
        self.store = enter(portal.wrap_async_context_manager(SqliteStore(self.loop.folder / "runlane.db")))
        config = RuntimeConfig(history=history or HistoryConfig())
        runtime = AgentRuntime(self.store, model=Instant(), tools=[weather], config=config)
        self.runtime = enter(portal.wrap_async_context_manager(runtime))

    def close(self) -> None:
        """End the runtime, and remove what it wrote."""
        self.loop.stack.close()

    async def answer(self, conversation_id: str | None = None) -> None:
        """Answer one input."""
        result = await self.runtime.submit(conversation_id or IDS.new("conversation"), QUESTION).result
        assert result.reason == "success"

    def some(self) -> None:
        """Answer one input in each of ten new conversations, one after the other."""
        self.loop.run(partial(_in_turn, self.answer))

    def many(self, count: int, /) -> None:
        """Answer one input in each of so many new conversations at once."""
        self.loop.run(partial(_at_once, count, self.answer))

    def filled(self, messages: int) -> str:
        """Return a conversation that holds this many messages, and is at hand."""
        name = self.loop.run(partial(conversation, self.store, messages))
        self.loop.run(partial(self.answer, name))
        return name


def langgraph_agent() -> "Contender | None":
    """LangGraph's prebuilt agent with its SQLite saver, or None if it is not installed."""
    if optional("langgraph.checkpoint.sqlite") is None or optional("langgraph.prebuilt") is None:
        return None
    return _LangGraph()


def openai_agent() -> "Contender | None":
    """Agents of OpenAI's SDK with a SQLiteSession, or None if it is not installed."""
    return None if optional("agents") is None else _OpenAIAgents()


class _LangGraph:
    def __init__(self) -> None:
        from langchain_core.language_models import BaseChatModel  # noqa: PLC0415 - an optional peer
        from langchain_core.messages import AIMessage, BaseMessage, ToolMessage  # noqa: PLC0415
        from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: PLC0415
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415

        usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1], "total_tokens": sum(USAGE)}

        class Model(BaseChatModel):
            @property
            @override
            def _llm_type(self) -> str:
                return "instant"

            @override
            def bind_tools(self, tools: Any, **_: Any) -> Any:
                return self

            @override
            def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
                if isinstance(messages[-1], ToolMessage):
                    answer = AIMessage("".join(ANSWER), usage_metadata=usage)
                else:
                    call = {"name": "weather", "args": {"city": "Paris"}, "id": "call_1"}
                    answer = AIMessage("", tool_calls=[call], usage_metadata=usage)
                return ChatResult(generations=[ChatGeneration(message=answer)])

            @override
            async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
                return self._generate(messages)

        self.loop = Loop()
        path = self.loop.folder / "langgraph.db"
        connection = sqlite3.connect(path, check_same_thread=False)
        self.loop.stack.callback(connection.close)
        self._agent = self._made(Model(), SqliteSaver(connection))
        many = AsyncSqliteSaver.from_conn_string(str(self.loop.folder / "langgraph-many.db"))
        saver = self.loop.stack.enter_context(self.loop.portal.wrap_async_context_manager(many))
        self._many = self._made(Model(), saver)

    def close(self) -> None:
        self.loop.stack.close()

    def _made(self, model: Any, saver: Any) -> Any:  # noqa: ANN401 - types of an optional peer
        from langgraph.prebuilt import create_react_agent  # noqa: PLC0415 - an optional peer

        def weather(city: str) -> dict[str, object]:
            """Say what the weather is like."""
            return {"city": city, "t": 18, "sky": "rain"}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return create_react_agent(model, [weather], checkpointer=saver)

    def some(self) -> None:
        for _ in range(IN_TURN):
            asked = {"messages": [("user", QUESTION)]}
            answer = self._agent.invoke(asked, {"configurable": {"thread_id": IDS.new("thread")}})
            assert answer["messages"][-1].content == "".join(ANSWER)

    def many(self, count: int, /) -> None:
        self.loop.run(partial(_at_once, count, self._answer))

    async def _answer(self) -> None:
        asked = {"messages": [("user", QUESTION)]}
        answer = await self._many.ainvoke(asked, {"configurable": {"thread_id": IDS.new("thread")}})
        assert answer["messages"][-1].content == "".join(ANSWER)


class _OpenAIAgents:
    def __init__(self) -> None:
        from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled  # noqa: PLC0415
        from openai.types.responses import (  # noqa: PLC0415 - an optional peer
            ResponseFunctionToolCall,
            ResponseOutputMessage,
            ResponseOutputText,
        )

        text = ResponseOutputText(annotations=[], text="".join(ANSWER), type="output_text", logprobs=[])
        said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        call = ResponseFunctionToolCall(arguments=ARGUMENTS, call_id="call_1", name="weather", type="function_call")

        class Instantly(Model):
            @override
            async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
                has_result = isinstance(input, list) and input[-1].get("type") == "function_call_output"
                usage = Usage(requests=1, input_tokens=USAGE[0], output_tokens=USAGE[1], total_tokens=sum(USAGE))
                return ModelResponse(output=[said if has_result else call], usage=usage, response_id="resp-1")

            @override
            def stream_response(self, *_: Any, **__: Any) -> Any:
                raise LookupError("this bench does not stream")

        @function_tool
        def weather(city: str) -> dict[str, object]:
            """Say what the weather is like."""
            return {"city": city, "t": 18, "sky": "rain"}

        set_tracing_disabled(True)
        self.loop = Loop()
        self._path = self.loop.folder / "agents.db"
        self._agent = Agent(name="agent", model=Instantly(), tools=[weather])

    def close(self) -> None:
        self.loop.stack.close()

    async def _answer(self) -> None:
        from agents import Runner, SQLiteSession  # noqa: PLC0415 - an optional peer

        session = SQLiteSession(IDS.new("session"), self._path)
        answer = await Runner.run(self._agent, QUESTION, session=session)
        assert answer.final_output == "".join(ANSWER)
        session.close()

    def some(self) -> None:
        self.loop.run(partial(_in_turn, self._answer))

    def many(self, count: int, /) -> None:
        self.loop.run(partial(_at_once, count, self._answer))


DELTAS = 2000
_PIECE = 4096


def _body() -> bytes:
    """Return a streamed chat completion of so many deltas."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    ends: list[str | None] = [*([None] * DELTAS), "stop"]
    deltas = [*({"content": f"word {n} "} for n in range(DELTAS)), {}]
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]}
        for delta, end in zip(deltas, ends, strict=True)
    ]
    events = [*(json.dumps(chunk, separators=(",", ":")) for chunk in chunks), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


_BODY = _body()


def _streamed(_: httpx2.Request) -> httpx2.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(_BODY), _PIECE):
            yield _BODY[start : start + _PIECE]

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())


async def stream_to_one(standing: int = 0) -> None:
    """Have one answer of so many deltas streamed to one subscriber, from the bytes of its provider.

    Args:
        standing: How many others subscribe and read nothing.
    """
    model = OpenAIChat("m", base_url="http://localhost/v1", transport=httpx2.MockTransport(_streamed))
    deltas, conversation_id = 0, IDS.new("conversation")
    async with MemoryStore() as store, AgentRuntime(store, model=model) as runtime, AsyncExitStack() as stack:
        for _ in range(standing):
            await stack.enter_async_context(runtime.subscribe(conversation_id))
        ticket = runtime.submit(conversation_id, QUESTION)
        async for event in ticket.events():
            deltas += isinstance(event, AssistantDeltaEvent)
        assert (await ticket.result).reason == "success"
    assert deltas == DELTAS


async def hops() -> None:
    """Hand as many items from one task to another, by a memory stream that holds a few."""
    sender, receiver = anyio.create_memory_object_stream[int](100)

    async def send() -> None:
        async with sender:
            for number in range(DELTAS):
                await sender.send(number)

    received = 0
    async with anyio.create_task_group() as tasks, receiver:
        tasks.start_soon(send)
        async for _ in receiver:
            received += 1
    assert received == DELTAS

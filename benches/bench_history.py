"""What it costs to turn stored records into a request, and to choose what fits, beside those who do the same.

The conversation is that of an agent: every third turn calls two tools in parallel. `a careful loop` is orjson with a
Python loop that looks at role, status and parts and nothing else: no tool chronology, no decisions, no options. Each
framework starts from its own stored form of the same conversation.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from benches._harness import Peer, Row, at_least, at_most, bench, optional
from runlane.canonical import canonical_record_json
from runlane.history import History, OpenAIChatBodyWriter

_HEAD = b'{"model":"gpt-4o","stream":true,"messages":['
_TAIL = b"]}"
_WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog,", "and", "nobody", "knows", "why.")


def _text(seed: int, length: int) -> str:
    words = itertools.islice(itertools.cycle(_WORDS), seed % 14, seed % 14 + length // 5)
    return " ".join(words)


def _record(number: int, role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    moment = f"2026-01-02T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
    record = {
        "schema_version": 1,
        "id": f"01jgfjjv{number:018x}",
        "conversation_id": "01jgfjjv0000000000000000c0",
        "role": role,
        "status": "completed" if role == "assistant" else "committed",
        "parts": parts,
        "created_at": moment,
        "updated_at": moment,
    }
    return record | ({"run_id": f"01jgfjjw{number:018x}"} if role == "assistant" else {})


def _answer(turn: int) -> list[dict[str, Any]]:
    if turn % 3:
        return [{"type": "text", "text": _text(turn, 700)}]
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Let me look that up.\n"}]
    for call in ("a", "b"):
        wanted = {"query": _text(turn, 60), "limit": 5}
        parts.append(
            {
                "type": "tool-call",
                "call_id": f"call_{turn:08}{call}",
                "tool_name": "search_documents",
                "arguments": orjson.dumps(wanted).decode(),
                "input": wanted,
            }
        )
    for call in ("a", "b"):
        hits = [{"title": _text(turn + hit, 40), "score": hit / 7, "id": hit} for hit in range(3)]
        parts.append(
            {
                "type": "tool-result",
                "call_id": f"call_{turn:08}{call}",
                "tool_name": "search_documents",
                "outcome": "success",
                "output": {"hits": hits},
            }
        )
    return [*parts, {"type": "text", "text": _text(turn, 400)}]


def records(count: int, start: int = 0) -> list[bytes]:
    """Return so many stored records."""
    made = []
    for number in range(start, start + count):
        asks = [{"type": "text", "text": _text(number, 160)}]
        record = _record(number, "assistant", _answer(number // 2)) if number % 2 else _record(number, "user", asks)
        made.append(canonical_record_json(record))
    return made


# --- a careful loop -----------------------------------------------------------------------------------------------


def _loop(parsed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for record in parsed:
        role = record["role"]
        if role == "user":
            texts = [part["text"] for part in record["parts"] if part["type"] == "text"]
            messages.append({"role": "user", "content": "\n".join(texts)})
        elif role == "assistant" and record["status"] in {"completed", "interrupted", "committed"}:
            _loop_answer(record["parts"], messages)
    return messages


def _loop_answer(parts: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    content = ""
    calls: list[dict[str, Any]] = []
    for part in parts:
        kind = part["type"]
        if kind == "text":
            content += part["text"]
        elif kind == "tool-call":
            function = {"name": part["tool_name"], "arguments": part["arguments"]}
            calls.append({"id": part["call_id"], "type": "function", "function": function})
        elif kind == "tool-result":
            if calls:
                messages.append({"role": "assistant", "content": content or None, "tool_calls": calls})
                content, calls = "", []
            output = part.get("output")
            said = output if isinstance(output, str) else orjson.dumps(output).decode()
            messages.append({"role": "tool", "tool_call_id": part["call_id"], "content": said})
    if calls:
        messages.append({"role": "assistant", "content": content or None, "tool_calls": calls})
    elif content:
        messages.append({"role": "assistant", "content": content})


def _loop_body(stored: list[bytes]) -> bytes:
    parsed = [orjson.loads(record) for record in stored]
    return orjson.dumps({"model": "gpt-4o", "stream": True, "messages": _loop(parsed)})


# --- langchain and pydantic-ai ------------------------------------------------------------------------------------


class _Langchain:
    """The same conversation as langchain keeps it."""

    def __init__(self, stored: list[bytes]) -> None:
        self.core: Any = optional("langchain_core.messages")
        self.stored = [] if self.core is None else [orjson.dumps(m) for m in self._dicts(stored)]
        self.loaded: list[Any] = [] if self.core is None else self.load()

    def _dicts(self, stored: list[bytes]) -> list[dict[str, Any]]:
        core = self.core
        made: list[Any] = []
        for message in _loop(map(orjson.loads, stored)):
            if message["role"] == "user":
                made.append(core.HumanMessage(message["content"]))
            elif message["role"] == "tool":
                made.append(core.ToolMessage(message["content"], tool_call_id=message["tool_call_id"]))
            else:
                calls = [
                    {
                        "name": call["function"]["name"],
                        "args": orjson.loads(call["function"]["arguments"]),
                        "id": call["id"],
                    }
                    for call in message.get("tool_calls", ())
                ]
                made.append(core.AIMessage(message["content"] or "", tool_calls=calls))
        dicts: list[dict[str, Any]] = core.messages_to_dict(made)
        return dicts

    def load(self) -> list[Any]:
        loaded: list[Any] = self.core.messages_from_dict([orjson.loads(message) for message in self.stored])
        return loaded

    def convert(self) -> list[Any]:
        converted: list[Any] = self.core.convert_to_openai_messages(self.loaded)
        return converted

    def body(self) -> bytes:
        messages = self.core.convert_to_openai_messages(self.load())
        return orjson.dumps({"model": "gpt-4o", "stream": True, "messages": messages})

    def trim(self) -> list[Any]:
        kept: list[Any] = self.core.trim_messages(
            self.loaded,
            max_tokens=10_000,
            token_counter="approximate",  # noqa: S106 - no password
            start_on="human",
            include_system=True,
        )
        return kept


class _PydanticAI:
    """The same conversation as pydantic-ai keeps it."""

    def __init__(self, stored: list[bytes]) -> None:
        self.messages: Any = optional("pydantic_ai.messages")
        models = optional("pydantic_ai.models.openai")
        if self.messages is None or models is None:
            self.stored = b""
            return
        self.adapter = self.messages.ModelMessagesTypeAdapter
        providers: Any = optional("pydantic_ai.providers.openai")
        base: Any = optional("pydantic_ai.models")
        self.model: Any = models.OpenAIChatModel("gpt-4o", provider=providers.OpenAIProvider(api_key="unused"))
        self.parameters = base.ModelRequestParameters()
        self.stored = self.adapter.dump_json(self._history(stored))
        self.loaded: list[Any] = self.load()

    def _history(self, stored: list[bytes]) -> list[Any]:
        kinds = self.messages
        history: list[Any] = []
        for message in _loop(map(orjson.loads, stored)):
            if message["role"] == "user":
                history.append(kinds.ModelRequest([kinds.UserPromptPart(message["content"])]))
            elif message["role"] == "tool":
                returned = kinds.ToolReturnPart(
                    "search_documents", orjson.loads(message["content"]), message["tool_call_id"]
                )
                history.append(kinds.ModelRequest([returned]))
            else:
                parts: list[Any] = [kinds.TextPart(message["content"])] if message["content"] else []
                for call in message.get("tool_calls", ()):
                    function = call["function"]
                    parts.append(kinds.ToolCallPart(function["name"], function["arguments"], call["id"]))
                history.append(kinds.ModelResponse(parts))
        return history

    def load(self) -> list[Any]:
        loaded: list[Any] = self.adapter.validate_json(self.stored)
        return loaded

    def map(self, history: list[Any] | None = None) -> list[Any]:
        mapping = self.model._map_messages(history or self.loaded, self.parameters)  # noqa: SLF001 - the only way
        try:
            mapping.send(None)
        except StopIteration as done:
            mapped: list[Any] = done.value
            return mapped
        message = "it waits for something"
        raise AssertionError(message)

    def body(self) -> bytes:
        return orjson.dumps({"model": "gpt-4o", "stream": True, "messages": self.map(self.load())})


# --- rows ---------------------------------------------------------------------------------------------------------


def _body(stored: list[bytes]) -> bytes:
    return History(stored).project().messages.openai_chat_body(_HEAD, _TAIL)


def _cold(count: int) -> Row:
    stored = records(count)
    assert orjson.loads(_body(stored)) == orjson.loads(_loop_body(stored))
    langchain, pydantic_ai = _Langchain(stored), _PydanticAI(stored)
    return Row(
        ours=lambda: _body(stored),
        peers=[
            Peer("a careful loop", lambda: _loop_body(stored), at_most(0.3)),
            Peer("langchain", langchain.body if langchain.core else None, at_least(12)),
            Peer("pydantic-ai", pydantic_ai.body if pydantic_ai.stored else None, at_least(18)),
        ],
    )


@bench
def bench_cold_2000() -> Row:
    """2,000 stored records to request body bytes, nothing cached."""
    return _cold(2_000)


@bench
def bench_cold_20000() -> Row:
    """20,000 stored records to request body bytes, nothing cached."""
    return _cold(20_000)


def _one_more(count: int) -> Row:
    stored = records(count)
    history, writer = History(stored), OpenAIChatBodyWriter()
    writer.body(history.project().messages, _HEAD, _TAIL)
    fragments = [orjson.dumps(message) for message in _loop(map(orjson.loads, stored))]
    fresh = (records(2, start) for start in itertools.count(count, 2))

    def turn() -> bytes:
        history.extend(next(fresh))
        return writer.body(history.project().messages, _HEAD, _TAIL)

    def join() -> bytes:
        return b"%b%b%b" % (_HEAD, b",".join(fragments), _TAIL)

    return Row(ours=turn, peers=[Peer("joining the fragments", join, at_most(1.6))])


@bench
def bench_one_more_turn_2000() -> Row:
    """One more turn in a projected history of 2,000 records, to request body bytes."""
    return _one_more(2_000)


@bench
def bench_one_more_turn_20000() -> Row:
    """One more turn in a projected history of 20,000 records, to request body bytes."""
    return _one_more(20_000)


@bench
def bench_objects() -> Row:
    """2,000 parsed records to messages as Python objects."""
    stored = records(2_000)
    history = History(stored)
    parsed = [orjson.loads(record) for record in stored]
    langchain, pydantic_ai = _Langchain(stored), _PydanticAI(stored)
    return Row(
        ours=lambda: tuple(history.project().messages),
        peers=[
            Peer("a careful loop", lambda: _loop(parsed), at_most(1.0)),
            Peer("langchain", langchain.convert if langchain.core else None, at_least(4)),
            Peer("pydantic-ai", pydantic_ai.map if pydantic_ai.stored else None, at_least(4)),
        ],
    )


def _budgeted(stored: Sequence[bytes]) -> tuple[History, int]:
    """A history whose counts are there, and a budget that keeps about its newest 100 records."""
    history = History(stored)
    newest = History(stored[-100:])
    limit = newest.select(2**53 - 1).total_tokens.value or 0
    history.select(limit)
    return history, limit


@bench
def bench_select() -> Row:
    """A budget that keeps the newest 100 of 2,000 records, counts held, decisions not read."""
    stored = records(2_000)
    history, limit = _budgeted(stored)
    assert 90 <= len(history.select(limit).kept) <= 110
    langchain = _Langchain(stored)
    return Row(
        ours=lambda: history.select(limit),
        peers=[Peer("langchain trim_messages", langchain.trim if langchain.core else None, at_least(1_000))],
    )


@bench
def bench_select_length() -> Row:
    """The same in 20,000 records."""
    history, limit = _budgeted(records(20_000))
    short, short_limit = _budgeted(records(200))
    return Row(
        ours=lambda: history.select(limit),
        peers=[Peer("itself in 200 records", lambda: short.select(short_limit), at_most(1.2))],
    )

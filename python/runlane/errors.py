"""Every error that runlane raises, in one tree.

Each class carries a stable dotted `code` (what is stored, sent and compared) and `retryable`: True when repeating the
same request later could work, False when it could not, None when nobody knows. Catch by class or compare `code`; the
text of a message is for people and may change.

Facts are keyword-only and kept as attributes. Errors pickle.
"""

from __future__ import annotations

from typing import Protocol

from typing_extensions import override

__all__ = [
    "AbortedError",
    "BudgetError",
    "CanonicalJsonError",
    "CommandRefusedError",
    "ContextOverflowError",
    "ConversationPurgedError",
    "FormatError",
    "InvalidValueError",
    "LeaseLostError",
    "MissingCredentialError",
    "MissingDependencyError",
    "ModelError",
    "ModelIdleTimeoutError",
    "ModelProtocolError",
    "ProjectionRefusedError",
    "ProviderError",
    "ProviderStreamCutError",
    "RecordCorruptError",
    "RecordTooNewError",
    "RunUnsettledError",
    "RunlaneError",
    "RuntimeClosedError",
    "RuntimeConflictError",
    "SseEncodingError",
    "SseIdleTimeoutError",
    "SseLimitError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCommitUnknownError",
    "StoreDamagedError",
    "StoreError",
    "StoreForeignError",
    "StoreFullError",
    "StoreTooNewError",
    "StoreUnavailableError",
    "ToolError",
    "ToolFenceError",
    "UnknownModelError",
    "UnknownToolError",
    "UsageError",
]


class RunFacts(Protocol):
    """What an error says of a run; `runlane.records.Run` satisfies it."""

    @property
    def id(self) -> str: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def revision(self) -> int: ...


def _restore(kind: type[RunlaneError], args: tuple[object, ...], facts: dict[str, object]) -> RunlaneError:
    """Rebuild a pickled error without calling its constructor, whose facts are keyword-only."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class RunlaneError(Exception):
    """The base of every error raised by runlane."""

    code: str = "error.unknown"
    retryable: bool | None = None

    @override
    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by attributes."""
        return _restore, (type(self), self.args, dict(self.__dict__))


class UsageError(RunlaneError, TypeError):
    """The program calls something in a way it does not offer: a bug in the caller.

    Attributes:
        argument: The argument, option or method that was misused.
    """

    code = "usage"
    retryable: bool | None = False

    def __init__(self, message: str, *, argument: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument = argument


class InvalidValueError(RunlaneError, ValueError):
    """A value is outside what its argument or field accepts.

    Attributes:
        argument: Path of the offending field, such as `loop.max_steps` or `parts.0.text`.
    """

    code = "value.invalid"
    retryable: bool | None = False

    def __init__(self, message: str, *, argument: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument = argument


class MissingDependencyError(RunlaneError, ImportError):
    """An optional library is needed and is not installed.

    Attributes:
        package: The library.
        extra: The extra of runlane that installs it.
    """

    code = "dependency.missing"
    retryable: bool | None = False

    def __init__(self, *, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'runlane[{extra}]'")
        self.package = package
        self.extra = extra


class AbortedError(RunlaneError):
    """Work ended because its cancel token was tripped.

    Attributes:
        reason: The object given to `CancelToken.cancel`, or None.
    """

    code = "aborted"

    def __init__(self, *, reason: object | None = None) -> None:
        super().__init__("aborted" if reason is None else f"aborted: {reason}")
        self.reason = reason


class BudgetError(RunlaneError):
    """An allowance is spent.

    Attributes:
        allowance: Which one, if it has a name.
        limit: Its size, if it has one.
    """

    code = "budget.exhausted"
    retryable: bool | None = False

    def __init__(
        self,
        message: str = "the budget is exhausted",
        *,
        allowance: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message)
        self.allowance = allowance
        self.limit = limit


class CommandRefusedError(RunlaneError):
    """The present state forbids what was asked; nothing was changed."""

    code = "command.refused"
    retryable: bool | None = False


class ProjectionRefusedError(CommandRefusedError):
    """The record `message_id` cannot be shown to a model, and an option says to refuse it; `reason` says why."""

    code = "history.refused"

    def __init__(self, message: str, *, message_id: str, reason: str) -> None:
        super().__init__(message)
        self.message_id, self.reason = message_id, reason


class RuntimeClosedError(CommandRefusedError):
    """A runtime or coordinator that was closed, or not yet entered, was asked to work."""

    code = "runtime.closed"

    def __init__(self, message: str = "the runtime is closed; open a new one to submit or recover") -> None:
        super().__init__(message)


class FormatError(RunlaneError):
    """Bytes or values do not follow the format they claim to have."""

    code = "format"
    retryable: bool | None = False


class SseLimitError(FormatError):
    """A line or an event of an event stream is longer than allowed.

    Attributes:
        scope: `line` or `event`.
        limit: The limit that was passed, in bytes.
    """

    code = "sse.limit_exceeded"

    def __init__(self, *, scope: str, limit: int) -> None:
        super().__init__(f"an event stream {scope} is longer than max_{scope}_bytes={limit}")
        self.scope = scope
        self.limit = limit


class SseEncodingError(FormatError):
    """An event stream is not UTF-8 and replacement was not asked for.

    Attributes:
        offset: Position of the first bad byte from the start of the stream.
    """

    code = "sse.encoding"

    def __init__(self, *, offset: int) -> None:
        super().__init__(f"an event stream has invalid UTF-8 at byte {offset}")
        self.offset = offset


class SseIdleTimeoutError(RunlaneError):
    """An event stream was silent for too long.

    Attributes:
        idle_timeout: The limit, in seconds.
    """

    code = "sse.idle_timeout"
    retryable: bool | None = True

    def __init__(self, *, idle_timeout: float) -> None:
        super().__init__(f"the event stream sent nothing for {idle_timeout:g} s")
        self.idle_timeout = idle_timeout


class CanonicalJsonError(FormatError):
    """A value or a document has no canonical JSON form.

    Attributes:
        path: JSON pointer to the culprit; empty for the whole value.
        problem: What is wrong there.
    """

    code = "canonical.refused"

    def __init__(self, *, path: str, problem: str) -> None:
        super().__init__(f"no canonical JSON at {path or 'the top level'}: {problem}")
        self.path = path
        self.problem = problem


class StoreError(RunlaneError):
    """The store could not do what was asked. A driver lets out no other kind of error.

    Attributes:
        store: Which store, as a path or URL without credentials, if known.
    """

    code = "store"

    def __init__(self, message: str, *, store: str | None = None) -> None:
        super().__init__(message if store is None else f"{store}: {message}")
        self.store = store


class StoreUnavailableError(StoreError):
    """The store cannot be reached or written now: missing rights, a lock held too long, a lost connection."""

    code = "store.unavailable"
    retryable: bool | None = True


class StoreBusyError(StoreUnavailableError):
    """Too many mutations are waiting; nothing was written. Try again shortly."""

    code = "store.busy"


class StoreFullError(StoreUnavailableError):
    """The disk is full; nothing of the refused mutation was written. Free space, then try again."""

    code = "store.full"


class StoreCommitUnknownError(StoreUnavailableError):
    """A commit was sent and its outcome is not known. Send the same commands, with the same ids, again."""

    code = "store.commit_unknown"


class StoreClosedError(StoreError):
    """The store was used before it was opened or after it was closed."""

    code = "store.closed"
    retryable: bool | None = False


class StoreForeignError(StoreError):
    """The file or database is not a runlane store; it was left untouched."""

    code = "store.foreign"
    retryable: bool | None = False


class StoreTooNewError(StoreError):
    """The store was written by a newer version of runlane; it was left untouched. Upgrade this program."""

    code = "store.too_new"
    retryable: bool | None = False


class StoreDamagedError(StoreError):
    """The store is corrupt. Stop writing, keep a copy, restore a backup."""

    code = "store.damaged"
    retryable: bool | None = False


class RecordCorruptError(StoreError):
    """A stored record contradicts itself or its hash; it is refused, never repaired silently."""

    code = "store.record_corrupt"
    retryable: bool | None = False


class RecordTooNewError(StoreError):
    """A stored record has a schema version this program does not know."""

    code = "store.record_too_new"
    retryable: bool | None = False


class LeaseLostError(StoreError):
    """The lease of an owner expired or was taken over; its runs belong to somebody else now.

    Attributes:
        owner: The owner whose lease is gone.
    """

    code = "store.lease_lost"
    retryable: bool | None = False

    def __init__(self, *, owner: str, store: str | None = None) -> None:
        super().__init__(f"the lease of owner {owner!r} is lost", store=store)
        self.owner = owner


class ConversationPurgedError(StoreError):
    """The conversation was purged; its id can never be used again.

    Attributes:
        conversation_id: The purged conversation.
    """

    code = "conversation.purged"
    retryable: bool | None = False

    def __init__(self, *, conversation_id: str) -> None:
        super().__init__(f"conversation {conversation_id!r} was purged; use a new conversation id")
        self.conversation_id = conversation_id


class RuntimeConflictError(RunlaneError):
    """Somebody else changed the run or conversation first, or it does not exist; nothing was written.

    Attributes:
        operation: What was attempted.
    """

    code = "runtime.conflict"
    retryable: bool | None = False

    def __init__(self, message: str, *, operation: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation


class RunUnsettledError(RunlaneError):
    """A run has no executor left here and is not ended: it blocks its conversation until somebody decides.

    Read the run. If its owner is absent or equals `owner_id`, abandon it with its revision, or resume it if it is
    queued; if it has another owner, leave it alone.

    Attributes:
        run: The run as last read; the store may be ahead.
        owner_id: The owner that gave up.
    """

    code = "run.unsettled"

    def __init__(self, *, run: RunFacts, owner_id: str) -> None:
        super().__init__(
            f"run {run.id!r} of conversation {run.conversation_id!r} is not settled at revision {run.revision}; "
            "read it, then recover, resume or abandon it"
        )
        self.run = run
        self.owner_id = owner_id


class ContextOverflowError(RunlaneError):
    """What must be sent does not fit the model's context window."""

    code = "context.overflow"
    retryable: bool | None = False


class ModelError(RunlaneError):
    """A model, its provider or the way it was asked failed."""

    code = "model"


class UnknownModelError(ModelError):
    """No provider serves the model.

    Attributes:
        model: The name that was asked for.
    """

    code = "model.unknown"
    retryable: bool | None = False

    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message)
        self.model = model


class MissingCredentialError(ModelError):
    """A provider needs a key and none was given.

    Attributes:
        variable: The environment variable that would hold it.
    """

    code = "model.credential_missing"
    retryable: bool | None = False

    def __init__(self, *, provider: str, variable: str) -> None:
        super().__init__(f"{provider} needs an API key; set {variable} or pass api_key")
        self.provider = provider
        self.variable = variable


class ModelProtocolError(ModelError):
    """A message or a stream breaks the rules of the conversation with a model.

    Attributes:
        code: `model.protocol` or a more exact code of the same family.
        detail: What is wrong.
    """

    code = "model.protocol"

    def __init__(self, *, detail: str, code: str = "model.protocol") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ProviderError(ModelError):
    """A provider refused a request, failed while answering, or could not be reached.

    Attributes:
        provider: The wire protocol's key, such as `openai-chat`.
        status: The HTTP status, or None when there was none.
        reason: `rate-limited`, `insufficient-credits`, `model-unavailable`, `context-overflow`, `timeout`,
            `unauthorized`, `unreachable`, `stream-error` or `unknown`.
        retry_after: Seconds the provider asked to wait, or None.
        provider_code: The provider's own error code or type, or None.
    """

    code = "provider.failure"

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        reason: str = "unknown",
        status: int | None = None,
        retryable: bool | None = None,
        facts: ProviderFacts | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.reason = reason
        self.status = status
        self.retryable = retryable
        self.retry_after = facts.retry_after if facts else None
        self.provider_code = facts.provider_code if facts else None


class ProviderFacts(Protocol):
    """What a provider said about its own failure."""

    @property
    def retry_after(self) -> float | None: ...
    @property
    def provider_code(self) -> str | None: ...


class ProviderStreamCutError(ModelError):
    """A provider's answer ended without any evidence that it was finished; what arrived is partial."""

    code = "provider.stream_cut"
    retryable: bool | None = True

    def __init__(self, message: str = "the provider's stream ended without a finish report") -> None:
        super().__init__(message)


class ModelIdleTimeoutError(ModelError):
    """A provider was silent for too long while a stream was open.

    Attributes:
        idle_timeout: The limit, in seconds.
    """

    code = "model.idle_timeout"
    retryable: bool | None = True

    def __init__(self, *, idle_timeout: float) -> None:
        super().__init__(f"the model sent nothing for {idle_timeout:g} s")
        self.idle_timeout = idle_timeout


class ToolError(RunlaneError):
    """A failure that a tool wants its model to see.

    Everything given here reaches the model; nothing else from a handler does.

    Attributes:
        code: Stable dotted code, chosen by the tool.
        details: JSON object with safe facts, or None.
        hint: What the model could do about it, or None.
    """

    code = "tool.failed"

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        retryable: bool | None = None,
        details: dict[str, object] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.retryable = retryable
        self.details = details
        self.hint = hint


class UnknownToolError(ToolError):
    """The model called a tool that is not mounted.

    Attributes:
        tool_name: The name it used.
    """

    def __init__(self, *, tool_name: str) -> None:
        super().__init__("tool.unknown", f"there is no tool named {tool_name!r}", retryable=False)
        self.tool_name = tool_name


class ToolFenceError(RunlaneError):
    """A tool call no longer belongs to this run. It ends the run here and is never shown to a model.

    Attributes:
        code: `stale_run` (another owner, or ended) or `run_interrupted`.
    """

    retryable: bool | None = False

    def __init__(self, code: str, *, run_id: str) -> None:
        super().__init__(f"run {run_id!r}: {code}")
        self.code = code
        self.run_id = run_id

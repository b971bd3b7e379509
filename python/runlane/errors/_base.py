"""The root of the tree, misuse, bad values, and what no single part of runlane owns."""

from __future__ import annotations

from typing_extensions import override

__all__ = [
    "AbortedError",
    "BudgetError",
    "CommandRefusedError",
    "InvalidValueError",
    "MissingDependencyError",
    "ProjectionRefusedError",
    "RunlaneError",
    "RuntimeClosedError",
    "StreamBusyError",
    "UsageError",
]


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


class StreamBusyError(UsageError, RuntimeError):
    """Two tasks asked one stream for its next item at the same time; the first is unharmed."""

    code = "stream.busy"

    def __init__(self, *, argument: str) -> None:
        super().__init__("is waiting for another task already; a stream has one reader", argument=argument)


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


def _words(reason: object) -> str:
    """Return what a reason says of itself; any object at all may be one."""
    try:
        return str(reason)
    except Exception:  # noqa: BLE001 - nothing about its words may keep work from being stopped
        return f"a {type(reason).__name__}"


class AbortedError(RunlaneError):
    """Work ended because its cancel token was tripped.

    Attributes:
        reason: The object given to `CancelToken.cancel`, or None.
    """

    code = "aborted"

    def __init__(self, *, reason: object | None = None) -> None:
        super().__init__("aborted" if reason is None else f"aborted: {_words(reason)}")
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

    @classmethod
    def not_entered(cls, by: str = "async with AgentRuntime(...) as runtime") -> RuntimeClosedError:
        """Return the error of what was not entered yet, and how that is done."""
        return cls(f"not open yet; enter it first: {by}")

"""Handlers: calls a service's function with a decoded payload and encodes its result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from types import TracebackType
from typing import Any, Final

from dragoman.core.failure import WRONG_ARGUMENTS
from dragoman.core.oversize import over_max_payload
from dragoman.dialects.sides import MAX_PAYLOAD, Failure
from dragoman.sdk import hooks
from dragoman.sdk.codecs import Codec, Payload, codec
from dragoman.sdk.context import Context
from dragoman.sdk.errors import DragomanError, PermanentFailure, Retry, WrongArguments
from dragoman.sdk.parts import Parts, check_parts
from dragoman.sdk.service_limits import NOTHING_GIVEN, LimitValues
from dragoman.sdk.signatures import context_parameter

MAIN = ("__main__", "__mp_main__")
# Characters of a failure. Longer texts are cut before they leave the handler's process or thread: the worker's own
# thread, which sends the heartbeats, must not handle 60 MB of text.
MOST_TYPE: Final = 256
MOST_MESSAGE: Final = 1 << 16
MOST_TRACEBACK: Final = 1 << 16
MOST_PIECES: Final = 10_000  # lines of a traceback
CUT: Final = "\n... (%d characters left out) ...\n"
OURS = (
    __name__,
    "dragoman.tasks.task",
    "dragoman.tasks.stream_task",
    "dragoman.tasks.streams",
    "dragoman.tasks.retries",
)


class HandlerFailed(Exception):
    """The handler raised an exception, or its payload or result cannot be converted."""

    def __init__(self, failure: Failure, cause: BaseException) -> None:
        super().__init__("the handler failed")
        self.failure = replace(
            failure,
            type=str(failure.type)[:MOST_TYPE],
            message=cut(failure.message, MOST_MESSAGE),
            traceback=cut(failure.traceback, MOST_TRACEBACK),
        )
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Handler:
    """The function of one service, with its codec."""

    name: str
    function: Callable[..., Any]
    codec: Codec
    context_name: str  # parameter that receives the context; empty: none
    is_async: bool
    origin: object = None  # the object that a child process imports; None: the function
    parts: Parts = "join"  # effect for callers that cannot take parts of a result
    limits: LimitValues = NOTHING_GIVEN  # that the worker declares for the service
    declares: Callable[[], dict[str, Any]] | None = None  # returns the parameters of a task as a JSON Schema object

    @property
    def wants_context(self) -> bool:
        return bool(self.context_name) or bool(hooks.registered)

    def perform(self, payload: Payload, context: Context | None) -> Payload:
        """Call the function and return the encoded result. Raises HandlerFailed."""
        if context is None or not hooks.registered:
            return self._perform(payload, context)
        with hooks.around(context):
            return self._perform(payload, context)

    async def perform_async(self, payload: Payload, context: Context | None) -> Payload:
        """Await the function, for a handler that is a coroutine function. Raises HandlerFailed."""
        if context is None or not hooks.registered:
            return await self._perform_async(payload, context)
        with hooks.around(context):
            return await self._perform_async(payload, context)

    def _perform(self, payload: Payload, context: Context | None) -> Payload:
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = self.function(argument, **{self.context_name: context})
            else:
                result = self.function(argument)
        except BaseException as error:  # such as CancelledError: it must not end the thread that runs the handler
            raise HandlerFailed(failure_of(error), error) from None
        return self._encode(result)

    async def _perform_async(self, payload: Payload, context: Context | None) -> Payload:
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = await self.function(argument, **{self.context_name: context})
            else:
                result = await self.function(argument)
        except (asyncio.CancelledError, GeneratorExit):
            raise  # the task was cancelled, not the handler failed
        except BaseException as error:
            raise HandlerFailed(failure_of(error), error) from None
        return self._encode(result)

    def _decode(self, payload: Payload) -> Any:
        try:
            return self.codec.decode(payload)
        except WrongArguments as error:
            failure = Failure(WRONG_ARGUMENTS, _message(error), retry_in=inf, unknown=error.unknown, known=error.known)
            raise HandlerFailed(failure, error) from None
        except BaseException as error:  # as in `_perform`: code of a payload or a result may raise SystemExit
            message = f"the payload is not valid {self.codec.name}, the codec of {self.name!r}: {_message(error)}"
            raise HandlerFailed(Failure("ValueError", message), error) from None

    def _encode(self, result: Any) -> Payload:
        try:
            encoded = self.codec.encode(result)
        except BaseException as error:
            kind = type(result).__name__
            message = f"the handler's result, a {kind}, cannot be encoded as {self.codec.name}: {_message(error)}"
            raise HandlerFailed(Failure("TypeError", message), error) from None
        if len(encoded) > MAX_PAYLOAD:
            problem = over_max_payload("the handler's result", len(encoded), MAX_PAYLOAD)
            raise HandlerFailed(Failure("ValueError", f"{problem}, the maximum that any broker accepts"), ValueError())
        return encoded


def describe(
    name: str,
    function: Callable[..., Any],
    codec_name: str = "bytes",
    parts: Parts = "join",
    limits: LimitValues = NOTHING_GIVEN,
) -> Handler:
    """Return a handler for this function. Raises TypeError if it cannot be called with a payload, and ValueError if the
    codec is unknown. A task makes its own handler."""
    check_parts(parts)
    make: Callable[[str], Handler] | None = getattr(function, "task_handler", None)
    if make is not None:
        return make(name)
    if not callable(function):
        raise TypeError(f"a handler must be callable, not a {type(function).__name__}")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return Handler(name, function, codec(codec_name), context_parameter(function), is_async, parts=parts, limits=limits)


def failure_of(error: BaseException) -> Failure:
    """Return a handler's exception as the failure that its caller receives."""
    return Failure(exception_name(type(error)), _message(error), _traceback(error), _retry_in(error))


def exception_name(kind: type[BaseException]) -> str:
    """Return the name of an exception on the wire: `ValueError`, `mypackage.Trouble`. Builtin ones, and those of the
    script that was started, have no module."""
    if kind.__module__ in ("builtins", *MAIN):
        return kind.__qualname__
    module = "dragoman" if kind.__module__ == DragomanError.__module__ else kind.__module__  # where users import it
    return f"{module}.{kind.__qualname__}"


def _retry_in(error: BaseException) -> float | None:
    """Return the decision of a handler about retries, as in `Failure`."""
    if isinstance(error, PermanentFailure) or getattr(error, "__dragoman_permanent__", False):
        return inf
    return error.delay if isinstance(error, Retry) else None


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters, without its middle: the end of a traceback names the error."""
    if len(text) <= most:
        return text
    half = (most - len(CUT) - 20) // 2
    return text[:half] + CUT % (len(text) - 2 * half) + text[-half:]


def _message(error: BaseException) -> str:
    try:
        return cut(str(error), MOST_MESSAGE)
    except BaseException:  # the exception's own __str__ may raise, also SystemExit, which would end the thread
        return "(no message: __str__ of the exception failed)"


def _traceback(error: BaseException) -> str:
    """Return the traceback from the handler's own code on, without frames of this module and of tasks. It contains the
    messages of all exceptions of the chain, each of which may be long."""
    behind: TracebackType | None = error.__traceback__
    while behind is not None and behind.tb_next is not None and behind.tb_frame.f_globals.get("__name__") in OURS:
        behind = behind.tb_next
    try:
        formatted = traceback.TracebackException(type(error), error, behind, compact=True).format()
        pieces = [cut(each, MOST_MESSAGE) for each in islice(formatted, MOST_PIECES)]
    except BaseException:  # as in `_message`
        return "(no traceback: formatting it failed)"
    return cut("".join(pieces).rstrip("\n"), MOST_TRACEBACK)

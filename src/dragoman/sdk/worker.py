"""A worker: functions offered as services, in whatever dialect its broker speaks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from dragoman.sdk import pickled_calls
from dragoman.sdk.client_settings import url_or_default
from dragoman.sdk.execution import DEFAULT_GRACE, ExecutionOptions
from dragoman.sdk.handlers import Handler, describe
from dragoman.sdk.loading import HandlerLoadError, ObjectReference, is_loading, refer_to
from dragoman.sdk.printable import log_to_stderr

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """Offers functions to a broker.

        worker = Worker("tcp://127.0.0.1:7400")

        @worker.service("resize")
        def resize(image: bytes) -> bytes: ...

        worker.run()

    Functions run in child processes, one for each core, unless `threads` is said; coroutine functions run together on
    an event loop. Seconds and bytes everywhere; what is not said is as on the page about workers. Without a URL it is
    that of the environment (DRAGOMAN_URL), else tcp://127.0.0.1:7400.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        processes: int | None = None,
        threads: int | None = None,
        concurrency: int | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        cancel_grace: float = DEFAULT_GRACE,
    ) -> None:
        """Raises ValueError."""
        self.url = url_or_default(url)
        self.execution = ExecutionOptions(processes, threads, concurrency, max_jobs, max_memory, cancel_grace)
        self.services: dict[str, Handler] = {}
        self._module: str = sys._getframe(1).f_globals.get("__name__", "")  # where children will find us
        self._stop: Callable[[], None] | None = None  # none unless we run

    @overload
    def service(self, name: Function, /) -> Function: ...

    @overload
    def service(self, name: str | None = None, *, codec: str = "bytes") -> Callable[[Function], Function]: ...

    def service(self, name: Any = None, *, codec: str = "bytes") -> Any:
        """Offer the decorated function under this name, or under its own; the function itself stays as it is.

        It is called with each payload and returns the result: bytes, or objects if `codec` is "json", "cbor" or
        "pickle". A parameter that is annotated `Context` gets the job's context. Raises ValueError and TypeError.

            @worker.service
            def resize(image: bytes) -> bytes: ...

            @worker.service("picture.describe", codec="json")
            def describe(request: dict, ctx: Context) -> dict: ...
        """
        if name is not None and not isinstance(name, str):
            return self._offer(None, name, codec)
        return lambda function: self._offer(name, function, codec)

    def offer_python_calls(self, name: str) -> None:
        """Offer to call any function that is sent, as `Client.executor(name, codec="pickle")` does it.

        Whoever can submit a job to this service can then run any code in this worker: never do so where you do not
        trust everybody who reaches the broker.
        """
        self.service(name)(pickled_calls.run)

    def _offer(self, name: str | None, function: Function, codec: str) -> Function:
        if name is None:
            name = getattr(function, "__name__", None)
            if name is None:
                raise TypeError(f"{function!r} has no name of its own: say worker.service(name), the name in quotes")
        if name in self.services:
            raise ValueError(f"the service {name!r} is offered already")
        self.services[name] = describe(name, function, codec)
        return function

    def run(self) -> int:
        """Work until told to stop, by a signal, the broker or `stop`; returns the exit code, 0 if all is well.

        SIGTERM and SIGINT finish the jobs in hand; the same again stops at once. Raises AddressError for a URL that
        cannot be used, and CannotLoad if a child process could not get at a handler. In a child, which imports the
        module that calls this, it returns at once. Where nobody has set up `logging`, it says on standard error what
        becomes of its connection.
        """
        from dragoman.sdk.worker_runner import run

        if is_loading():
            return 0
        if not logging.getLogger().hasHandlers():  # a program of one worker should not be silent about it
            log_to_stderr(logging.INFO)
        return run(self)

    def stop(self) -> None:
        """Finish the jobs in hand and leave; the second time, at once. Any thread may call it."""
        stop = self._stop
        if stop is not None:
            stop()

    def references(self, services: Sequence[str], home: ObjectReference | None = None) -> Mapping[str, ObjectReference]:
        """Where a child process finds the handlers of these. Raises CannotLoad if it cannot."""
        home = home or refer_to(self, self._module)
        found = {}
        for name in services:
            reference = home or _refer_to_function(self.services[name].function)
            if reference is None:
                function = getattr(self.services[name].function, "__qualname__", "its handler")
                raise HandlerLoadError(
                    f"a child process cannot find {function}, the handler of {name!r}: define it, or the Worker, at "
                    "the top level of a module, or run jobs in threads (threads=4, --threads 4)"
                )
            found[name] = reference
        return found


def _refer_to_function(function: Callable[..., Any]) -> ObjectReference | None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return refer_to(function, module, name) if module and name else None

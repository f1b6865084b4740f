"""`dragoman.Worker`: offers functions as services, in the dialect of its URL."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from dragoman.sdk import pickled_calls
from dragoman.sdk.credentials import credentials_of
from dragoman.sdk.default_url import url_or_default
from dragoman.sdk.execution import DEFAULT_GRACE, ExecutionOptions
from dragoman.sdk.handlers import Handler, describe
from dragoman.sdk.loading import HandlerLoadError, ObjectReference, is_loading, refer_to
from dragoman.sdk.option_types import CredentialOptions
from dragoman.sdk.parts import Parts
from dragoman.sdk.printable import log_to_stderr
from dragoman.sdk.service_limits import NOTHING_GIVEN, LimitValues, limits_of

if TYPE_CHECKING:
    from dragoman.tasks.task import Task

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """Offers functions as services of a broker.

        worker = Worker("tcp://127.0.0.1:7400")

        @worker.service("resize")
        def resize(image: bytes) -> bytes: ...

        worker.run()

    Functions run in child processes, one per core by default, or in threads if `threads` is set. Coroutine functions
    share one event loop. Times are in seconds, sizes in bytes; docs/workers.md lists the options and their defaults.
    The default URL is the environment variable DRAGOMAN_URL, else tcp://127.0.0.1:7400. Several addresses are those of
    the brokers of one cluster, as for `Client`: when the broker is gone, the worker goes to another one. The arguments
    `key`, `server_key`, `token`, `token_file` and `tls` are those of `Client`.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        processes: int | None = None,
        threads: int | None = None,
        concurrency: int | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        cancel_grace: float = DEFAULT_GRACE,
        **credentials: Unpack[CredentialOptions],
    ) -> None:
        """Raises ValueError."""
        self.url = url_or_default(url)
        self.credentials = credentials_of(**credentials)
        self.execution = ExecutionOptions(processes, threads, concurrency, max_jobs, max_memory, cancel_grace)
        self.services: dict[str, Handler] = {}
        self._module: str = sys._getframe(1).f_globals.get("__name__", "")  # child processes import the worker from it
        self._stop: Callable[[], None] | None = None  # None while the worker does not run

    @overload
    def service(self, name: Function, /) -> Function: ...

    @overload
    def service(
        self,
        name: str | None = None,
        *,
        codec: str = "bytes",
        parts: Parts = "join",
        max_running: int | None = None,
        max_running_per_tenant: int | None = None,
        rate: str | None = None,
    ) -> Callable[[Function], Function]: ...

    def service(
        self,
        name: Any = None,
        *,
        codec: str = "bytes",
        parts: Parts = "join",
        max_running: int | None = None,
        max_running_per_tenant: int | None = None,
        rate: str | None = None,
    ) -> Any:
        """Offer the decorated function as a service with this name, by default the function's own name.

        The function is called with each payload and returns the result: bytes, or objects if `codec` is "json", "cbor"
        or "pickle". A parameter annotated `Context` receives the job's context. The function itself is not changed.
        `parts`: callers that cannot take parts of a result get them joined ("join"), or their jobs fail ("require").
        `max_running`, `max_running_per_tenant` and `rate` ("100/min", "5/s", "1000/h") limit the service on all workers
        together; an operator may set others. Raises ValueError and TypeError.

            @worker.service
            def resize(image: bytes) -> bytes: ...

            @worker.service("picture.describe", codec="json")
            def describe(request: dict, ctx: Context) -> dict: ...
        """
        limits = limits_of(max_running, max_running_per_tenant, rate)
        if name is not None and not isinstance(name, str):
            return self._offer(None, name, codec, parts)
        return lambda function: self._offer(name, function, codec, parts, limits)

    def include(self, *found: ModuleType | Task[Any, Any]) -> None:
        """Offer tasks: each one given, and all that a given module has at its top level. Raises ValueError.

        worker.include(mypackage.images, send_mail)
        """
        from dragoman.tasks.found import tasks_in

        for each in found:
            for task in tasks_in(each) if isinstance(each, ModuleType) else [each]:
                self._offer(task.name, task, task.format)

    def offer_python_calls(self, name: str) -> None:
        """Offer a service that calls any function it receives, for `Client.executor(name, codec="pickle")`.

        Every caller of this service can run any code in this worker. Use it only if you trust all clients that can
        reach the broker.
        """
        self.service(name)(pickled_calls.run)

    def _offer(
        self,
        name: str | None,
        function: Function,
        codec: str,
        parts: Parts = "join",
        limits: LimitValues = NOTHING_GIVEN,
    ) -> Function:
        if name is None:
            name = getattr(function, "__name__", None)
            if name is None:
                raise TypeError(f"{function!r} has no __name__; pass a service name: worker.service('NAME')")
        if name in self.services:
            raise ValueError(f"service {name!r} is already defined in this worker; choose another name")
        self.services[name] = describe(name, function, codec, parts, limits)
        return function

    def run(self) -> int:
        """Run until a signal, the broker or `stop` ends the worker. Returns the exit code, 0 for success.

        After the first SIGTERM or SIGINT the worker finishes its running jobs; after a second one it stops at once.
        The exit code is 3 if the broker does not accept the key, token or certificate of this worker. Raises
        AddressError if the URL is invalid, CredentialError if a credential is, and HandlerLoadError if a child process
        cannot load a handler. In a child process, which imports the module that calls this method, it returns at once.
        If `logging` is not configured, the worker logs to standard error.
        """
        from dragoman.sdk.worker_runner import run

        if is_loading():
            return 0
        if not logging.getLogger().hasHandlers():
            log_to_stderr(logging.INFO)
        return run(self)

    def stop(self) -> None:
        """Finish the running jobs and stop; the second call stops at once. May be called from any thread."""
        stop = self._stop
        if stop is not None:
            stop()

    def references(self, services: Sequence[str], home: ObjectReference | None = None) -> Mapping[str, ObjectReference]:
        """Return references by which a child process imports the handlers of `services`. Raises HandlerLoadError."""
        home = home or refer_to(self, self._module)
        found = {}
        for name in services:
            handler = self.services[name]
            reference = home or _refer_to_function(handler.origin or handler.function)
            if reference is None:
                function = getattr(handler.origin or handler.function, "__qualname__", "its handler")
                raise HandlerLoadError(
                    f"a child process cannot import {function}, the handler of {name!r}; define it, or the Worker, at "
                    "the top level of a module, or run jobs in threads (threads=4, --threads 4)"
                )
            found[name] = reference
        return found


def _refer_to_function(function: object) -> ObjectReference | None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return refer_to(function, module, name) if module and name else None

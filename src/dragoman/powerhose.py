"""A Powerhose master inside your own program: workers register with it, and `execute` gives them jobs.

    with Master("ipc:///tmp/master-routing.ipc") as master:
        result = master.execute("42", b"data", timeout=60)

It is a whole broker with one listener, on an event loop in a thread of its own. It keeps nothing on disk.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
from dataclasses import replace
from math import inf, isnan
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from dragoman.core.effects import Answer, Effect
from dragoman.core.model import DONE, Job, Wishes
from dragoman.dialects.powerhose.messages import SEPARATOR
from dragoman.dialects.powerhose.options import ListenerOptions as PowerhoseOptions
from dragoman.dialects.powerhose.session import ATTEMPTS
from dragoman.sdk.address import read_options
from dragoman.sdk.endpoint import url_of
from dragoman.sdk.errors import BrokerUnavailable, PayloadTooLarge, error_from
from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.datadir import first_id_without_folder
from dragoman.server.serve import Server, loop_factory
from dragoman.server.wiring import Listener, ListenerOptions

log = logging.getLogger("dragoman.powerhose")

DEFAULT_ENDPOINT = "ipc:///tmp/master-routing.ipc"
CLOSED = "the master was closed"


class Master:
    """Gives jobs to Powerhose workers. Any number of threads may call `execute` at once."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, **options: str | float | bool) -> None:
        """Listen at `endpoint`, as ZeroMQ writes it; `options` are those of a powerhose listener's URL.

        Raises AddressError for what cannot be used, and PlaceTaken (an OSError) where another program listens.
        """
        query = "&".join(f"{name}={quote(_written(value), safe='')}" for name, value in options.items())
        self._url = url_of(endpoint, "powerhose") + (f"?{query}" if query else "")
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()  # under way; guarded by the lock, like the next
        self._is_closed = False
        self._begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, name="powerhose-master", daemon=True)
        self._thread.start()
        try:
            self._begun.result()
        except BaseException:
            self._thread.join()
            raise
        atexit.register(self.close)  # else a socket file would stay

    def execute(self, job_id: str, data: bytes, timeout: float | None = None) -> bytes:
        """The result of the job. Raises JobError: JobTimeout, JobLost, …; BrokerUnavailable once the master is closed.

        Workers are told `job_id` as it is. `timeout` is the caller's patience over everything, and then only what was
        given to the master by name (`queue_timeout`, `job_timeout`) ends a job sooner. Without it their defaults do.
        """
        name = _check_id(job_id)
        if timeout is not None and (isnan(timeout) or timeout < 0):
            raise ValueError(f"timeout {timeout:g} is no number of seconds")
        payload = bytes(memoryview(data))  # the caller may change its own buffer later
        if len(payload) > self._max_payload:
            told = f"refused: payload of {len(payload)} bytes is over max_payload {self._max_payload}"
            raise PayloadTooLarge(told)
        call = _Call(name)
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable(CLOSED)
            self._calls.add(call)
            self._loop.call_soon_threadsafe(self._submit, call, payload, timeout)
        try:
            return call.result.result()
        finally:
            with self._lock:
                self._calls.discard(call)
                if not call.result.done() and not self._is_closed:  # the caller was interrupted
                    self._loop.call_soon_threadsafe(self._abandon, call)

    def close(self) -> None:
        """Stop listening, end every connection and the thread. Jobs under way end with an error."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._over.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.close)

    @property
    def endpoint(self) -> str:
        """Where workers register, as ZeroMQ writes it: the port is told where any free one was asked for."""
        return self._endpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- the thread

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
                runner.run(self._live())
        except BaseException as error:
            if self._begun.done():
                log.error("the master has ended", exc_info=error)
            else:
                self._begun.set_exception(error)
        finally:
            with self._lock:
                calls = list(self._calls)
            for call in calls:
                call.fail(BrokerUnavailable(CLOSED))

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        config = Config(listen=(self._url,), data="memory")
        server = self._server = Server(self._loop, config, first_id_without_folder(), _Log())
        try:
            [(listener, places)] = server.listen()
            self._endpoint = dict(places)["workers"]
            self._read_options(listener)
            self._begun.set_result(None)
            ways: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._over.wait()), server.stopped]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not server.stopped.done():  # else an invariant is broken, and nothing can be said of any job
                server.broker.close(clock.now())
                server.broker.abort(clock.now())
                server.line.turn()
        finally:
            server.host.close()
            with self._lock:
                self._is_closed = True  # nobody may turn to the loop any more

    def _read_options(self, listener: Listener) -> None:
        said, url = listener.address.options, listener.address.url
        own = read_options(PowerhoseOptions, said, url, also=said)
        self._max_payload = read_options(ListenerOptions, said, url, also=said).max_payload
        self._service = own.service
        self._patient = Wishes(
            queue_timeout=own.queue_timeout,
            job_timeout=own.job_timeout or inf,
            attempts=own.attempts,
            default_attempts=ATTEMPTS,
            waits=True,
        )
        self._until_deadline = replace(
            self._patient,
            queue_timeout=own.queue_timeout if "queue_timeout" in said else inf,
            job_timeout=own.job_timeout or inf if "job_timeout" in said else inf,
        )

    def _submit(self, call: _Call, payload: bytes, timeout: float | None) -> None:
        server, now = self._server, clock.now()
        if timeout is None:
            call.job = server.broker.submit(self._service, payload, call, self._patient, now)
        else:
            wishes = self._until_deadline
            call.job = server.broker.submit(self._service, payload, call, wishes, now, deadline=now + timeout)
        server.line.wake()

    def _abandon(self, call: _Call) -> None:
        if call.job is not None:
            self._server.broker.abandon(call.job, call, clock.now())
            self._server.line.wake()


class _Call:
    """A caller, as the broker sees it: somebody who is told the outcome, and who has named its job."""

    def __init__(self, job_name: bytes) -> None:
        self.job_name = job_name  # what the session tells workers
        self.job: Job | None = None
        self.result: concurrent.futures.Future[bytes] = concurrent.futures.Future()

    @property
    def session(self) -> _Call:
        return self

    def say(self, effect: Effect, now: float) -> None:
        if isinstance(effect, Answer):
            if effect.outcome is DONE:
                if not self.result.done():
                    self.result.set_result(bytes(effect.result))
            else:
                self.fail(error_from(f"{effect.outcome}: {effect.reason}"))

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class _Log:
    """The broker's log lines, with their facts behind them, in the standard library's `logging`."""

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if log.isEnabledFor(level):
            error = fields.pop("exception", None)
            facts = "".join(f" {name}={value!r}" for name, value in fields.items())
            log.log(level, "%s%s", event, facts, exc_info=error if isinstance(error, BaseException) else None)


def _check_id(job_id: str) -> bytes:
    """A worker finds the end of the id by the first separator behind it, so it must not hold one, nor begin one."""
    name = job_id.encode()
    if not name or SEPARATOR in name or name.endswith(b":"):
        raise ValueError(
            f"job id {job_id!r} cannot be told on this wire: no empty one, no ':::' in it, no ':' at its end"
        )
    return name


def _written(value: str | float | bool) -> str:
    """A value as it stands in a URL."""
    return str(value).lower() if isinstance(value, bool) else str(value)

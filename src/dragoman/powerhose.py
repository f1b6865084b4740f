"""A Powerhose master inside your own program: workers register with it, and `execute` gives them jobs.

    with Master("ipc:///tmp/master-routing.ipc") as master:
        result = master.execute("42", b"data", timeout=60)

It is a whole broker with one listener, on an event loop in a thread of its own. It keeps nothing on disk.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from dataclasses import replace
from math import inf, isnan
from types import TracebackType
from typing import Self
from urllib.parse import quote

from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.states import DONE
from dragoman.dialects.powerhose.broker_side import ATTEMPTS
from dragoman.dialects.powerhose.messages import SEPARATOR
from dragoman.dialects.powerhose.options import ListenerOptions as PowerhoseOptions
from dragoman.sdk.address import read_options
from dragoman.sdk.errors import BrokerUnavailable, PayloadTooLarge, error_from
from dragoman.sdk.zmq_endpoint import url_from_endpoint
from dragoman.server import clock
from dragoman.server.threaded import ThreadedServer
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
        self._url = url_from_endpoint(endpoint, "powerhose") + (f"?{query}" if query else "")
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()  # under way; guarded by the lock
        self._thread = ThreadedServer((self._url,), log, "master")
        [(listener, places)] = self._thread.opened
        self._endpoint = dict(places)["workers"]
        self._read_options(listener)
        self._thread.ended.add_done_callback(lambda _: self._fail_all())

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
            self._calls.add(call)
        try:
            if not self._thread.post(lambda: self._submit(call, payload, timeout)):
                raise BrokerUnavailable(CLOSED)
            return call.result.result()
        finally:
            with self._lock:
                self._calls.discard(call)
            if not call.result.done():  # the caller was interrupted
                self._thread.post(lambda: self._abandon(call))

    def close(self) -> None:
        """Stop listening, end every connection and the thread. Jobs under way end with an error."""
        self._thread.close()

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

    # ---------------------------------------------------------------- on the broker's thread

    def _fail_all(self) -> None:
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.fail(BrokerUnavailable(CLOSED))

    def _read_options(self, listener: Listener) -> None:
        said, url = listener.address.options, listener.address.url
        own = read_options(PowerhoseOptions, said, url, also=said)
        self._max_payload = read_options(ListenerOptions, said, url, also=said).max_payload
        self._service = own.service
        self._patient = JobOptions(
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
        server, now = self._thread.server, clock.now()
        if timeout is None:
            server.broker.submit(self._service, payload, call, self._patient, now)
        else:
            job_options = self._until_deadline
            server.broker.submit(self._service, payload, call, job_options, now, deadline=now + timeout)
        server.runner.connections.wake()

    def _abandon(self, call: _Call) -> None:
        server = self._thread.server
        server.broker.caller_gone(call, clock.now())
        server.runner.connections.wake()


class _Call(Caller):
    """A caller inside this program, which has named its job."""

    def __init__(self, job_name: bytes) -> None:
        super().__init__(_Deliveries())
        self.job_name = job_name  # what the session tells workers
        self.result: concurrent.futures.Future[bytes] = concurrent.futures.Future()

    def answer(self, answer: DeliverOutcome) -> None:
        if answer.outcome is not DONE:
            self.fail(error_from(answer.outcome, answer.reason, answer.failure, answer.refusal or ""))
        elif not self.result.done():
            self.result.set_result(bytes(answer.result))

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class _Deliveries(Recipient):
    """Hands outcomes to the callers of this program."""

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, DeliverOutcome):
            assert isinstance(effect.caller, _Call)
            effect.caller.answer(effect)
            effect.caller.remove_job(effect.job)


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

"""A Powerhose master inside your own program: workers register with it, and `execute` gives them jobs.

    with Master("ipc:///tmp/master-routing.ipc") as master:
        result = master.execute("42", b"data", timeout=60)

It is a whole broker with one listener, on an event loop in its own thread. It stores nothing on disk.
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
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.states import DONE
from dragoman.dialects.powerhose.broker_side import ATTEMPTS
from dragoman.dialects.powerhose.messages import SEPARATOR
from dragoman.dialects.powerhose.options import ListenerOptions as PowerhoseOptions
from dragoman.sdk.address import read_options
from dragoman.sdk.errors import BrokerUnavailable, PayloadTooLarge, error_from
from dragoman.sdk.extras import needed_by
from dragoman.sdk.zmq_endpoint import url_from_endpoint

with needed_by("dragoman.powerhose"):
    from dragoman.server import clock
    from dragoman.server.threaded import ThreadedServer
    from dragoman.server.wiring import Listener, ListenerOptions

log = logging.getLogger("dragoman.powerhose")

DEFAULT_ENDPOINT = "ipc:///tmp/master-routing.ipc"
CLOSED = "the master was closed"


class Master:
    """Gives jobs to Powerhose workers. Any number of threads may call `execute` at once."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, **options: str | float | bool) -> None:
        """Listen at `endpoint`, a ZeroMQ address. `options` are those of a powerhose listener's URL.

        Raises AddressError for an invalid address or option, and AddressInUse (an OSError) if another program listens
        there.
        """
        query = "&".join(f"{name}={quote(_written(value), safe='')}" for name, value in options.items())
        self._url = url_from_endpoint(endpoint, "powerhose") + (f"?{query}" if query else "")
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()  # in progress; guarded by the lock
        self._thread = ThreadedServer((self._url,), log, "master")
        [(listener, places)] = self._thread.opened
        self._endpoint = dict(places)["workers"]
        self._owner = Owner(self._thread.server.broker.principals.local, "this program", is_limited=False)
        self._read_options(listener)
        self._thread.ended.add_done_callback(lambda _: self._fail_all())

    def execute(self, job_id: str, data: bytes, timeout: float | None = None) -> bytes:
        """Run a job and return its result. Raises JobError: JobTimeout, JobLost, …; BrokerUnavailable once closed.

        Workers receive `job_id` unchanged. `timeout`: seconds to wait for the result, including queueing and all
        attempts. With it, only a `queue_timeout` or `job_timeout` that was passed to the master ends a job sooner;
        without it, their defaults do.
        """
        name = _check_id(job_id)
        if timeout is not None and (isnan(timeout) or timeout < 0):
            raise ValueError(f"timeout {timeout:g} is not a number of seconds from 0")
        payload = bytes(memoryview(data))  # the caller may change its buffer later
        if len(payload) > self._max_payload:
            message = f"refused: payload of {len(payload)} bytes is over max_payload {self._max_payload}"
            raise PayloadTooLarge(message)
        call = _Call(name, self._owner)
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
        """Stop listening, end every connection and the thread. Running jobs end with an error."""
        self._thread.close()

    @property
    def endpoint(self) -> str:
        """Address at which workers register, as ZeroMQ writes it, with the actual port."""
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
        given, url = listener.address.options, listener.address.url
        own = read_options(PowerhoseOptions, given, url, also=given)
        self._max_payload = read_options(ListenerOptions, given, url, also=given).max_payload
        self._service = own.service
        self._default_options = JobOptions(
            queue_timeout=own.queue_timeout,
            job_timeout=own.job_timeout or inf,
            attempts=own.attempts,
            default_attempts=ATTEMPTS,
            waits=True,
        )
        self._until_deadline = replace(
            self._default_options,
            queue_timeout=own.queue_timeout if "queue_timeout" in given else inf,
            job_timeout=own.job_timeout or inf if "job_timeout" in given else inf,
        )

    def _submit(self, call: _Call, payload: bytes, timeout: float | None) -> None:
        server, now = self._thread.server, clock.now()
        if timeout is None:
            server.broker.submit(self._service, payload, call, self._default_options, now)
        else:
            job_options = self._until_deadline
            server.broker.submit(self._service, payload, call, job_options, now, deadline=now + timeout)
        server.runner.connections.wake()

    def _abandon(self, call: _Call) -> None:
        server = self._thread.server
        server.broker.caller_gone(call, clock.now())
        server.runner.connections.wake()


class _Call(Caller):
    """A caller inside this program, with the name of its job."""

    def __init__(self, job_name: bytes, owner: Owner) -> None:
        super().__init__(_Deliveries(), owner)
        self.job_name = job_name  # the job id that workers receive
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
    """Delivers outcomes to the callers of this program."""

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, DeliverOutcome):
            assert isinstance(effect.caller, _Call)
            effect.caller.answer(effect)
            effect.caller.remove_job(effect.job)


def _check_id(job_id: str) -> bytes:
    """Check and encode a job id. Workers find its end by the first separator, so it must not contain or begin one."""
    name = job_id.encode()
    if not name or SEPARATOR in name or name.endswith(b":"):
        raise ValueError(f"job id {job_id!r} cannot be sent: it must not be empty, contain ':::' or end with ':'")
    return name


def _written(value: str | float | bool) -> str:
    """Return a value as it is written in a URL."""
    return str(value).lower() if isinstance(value, bool) else str(value)

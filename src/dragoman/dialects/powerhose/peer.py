"""Worker side and client side of Powerhose, for any Powerhose master. State machines without I/O.

A worker has two kinds of connections. One is its own, REQ to the master's REP: it sends PING, which registers it and
renews its lease, and REMOVE. The others are opened by masters, REQ to the worker's REP, at the endpoint that PING
named: it receives WAKE and JOB. It runs one job at a time, and replies `ERROR` to other requests meanwhile, which every
master takes for a refusal: no reply would block the REP.

Powerhose has no message for a failed job. The worker then closes the connection that the job came from: the master sees
that no result comes, and asks another worker. The worker never invents a result.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.dialects import single_frame_calls, single_frame_client
from dragoman.dialects.powerhose.codec import body_of, read_order, write_ping, write_remove, write_result
from dragoman.dialects.powerhose.messages import ERROR, GIVE, PONG, REMOVED, Job
from dragoman.dialects.powerhose.options import ClientOptions, WorkerOptions
from dragoman.dialects.sides import ClientIO

REGISTRATION_SOCKET: Final = "REQ"
WORK_SOCKET: Final = "REP"
PROMISE: Final = 1.0  # seconds that a GIVE is valid: as long as a master waits for one
PARTING: Final = 1.0  # seconds that the master may take to send REMOVED
STOPPED: Final = 0  # exit codes
REFUSED: Final = 1
MASTER_AWAY: Final = 3


class WorkerPort(Protocol):
    """I/O operations of a worker side. A `caller` is a connection that a master has opened to this worker."""

    def register(self, frames: Sequence[Frame]) -> None:
        """Send a message on the worker's own connection to the master."""

    def reconnect(self, reason: str) -> None:
        """Close that connection, open a new one, and call `opened` again."""

    def answer(self, caller: Hashable, frames: Sequence[Frame]) -> None: ...

    def hang_up(self, caller: Hashable, reason: str) -> None:
        """Close this connection. `hung_up` follows once the master has noticed; no message from it comes before."""

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        """Start the job. `finished` or `failed` follows with the same `job_ref`."""

    def leaving(self, reason: str) -> None:
        """Report that the worker leaves, and the reason."""


class WorkerSide:
    """The worker's side, across any number of connections."""

    def __init__(self, options: WorkerOptions, endpoint: str, io: WorkerPort, now: float) -> None:
        self._options = options
        self._endpoint = endpoint  # the endpoint of this worker, as masters write it
        self._io = io
        self.exit_code = STOPPED
        self.is_leaving = False
        self._is_open = False
        self._awaits_pong = False  # a PING has no PONG yet
        self._has_pong = False  # a PONG has come in this period
        self._missed = 0  # periods in a row without one
        self._since = now  # when this period began
        self._due = now + options.ping_every  # when it ends
        self._remove_until = -inf  # end of the wait for REMOVED
        self._job_ref = 0  # the number of the job that runs
        self._is_working = False
        self._caller: Hashable = None  # the connection that waits for the result; None if it has ended
        self._job_id = b""
        self._promised: Hashable = None  # the connection that got GIVE
        self._promised_until = -inf
        self._failed_caller: Hashable = None

    @property
    def is_busy(self) -> bool:
        """Tell if a master waits for a result."""
        return self._caller is not None

    def is_over(self, now: float) -> bool:
        """Tell if the worker has finished leaving."""
        if not self.is_leaving or self._caller is not None:
            return False
        return now >= self._remove_until and (self._promised is None or now >= self._promised_until)

    # ---------------------------------------------------------------- the worker's own connection

    def opened(self, now: float) -> None:
        """Register. A new connection gives the PONG a whole period, but only once: otherwise connections that keep
        breaking would postpone the time-out for ever."""
        self._is_open = True
        if self.is_leaving:
            self._send_remove(now)
        else:
            period = self._options.ping_every
            self._due = min(now + period, self._since + 2 * period)
            self._ping()

    def lost(self) -> None:
        """Forget what was expected on the ended connection."""
        self._is_open = False
        self._awaits_pong = False
        self._remove_until = -inf

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Handle a reply of the master."""
        try:
            if isinstance(message, TooLarge):
                raise Malformed("too large", f"{message.size} bytes; PONG or REMOVED is expected")
            body = body_of(message)
        except Malformed as problem:
            is_frontend = isinstance(message, list) and message[2:3] == [single_frame_calls.ERROR]
            hint = "; is this where callers connect? workers use the backend" if is_frontend else ""
            self._io.reconnect(f"{problem.reason}: {problem.detail}{hint}")
            return
        if body == PONG:
            self._awaits_pong = False
            self._has_pong = True
            self._missed = 0
        elif body == REMOVED:
            self._remove_until = -inf
        elif body == ERROR:
            self._remove_until = -inf
            if not self.is_leaving:
                detail = f"the master replied ERROR: it may not connect to {self._endpoint}"
                detail += ", or this worker has no right to the service"
                self._leave(REFUSED, f"{detail}; a Dragoman logs the reason, and base= and dial_allow= allow it", now)
        else:
            self._io.reconnect(f"{len(body)} bytes that are neither PONG nor REMOVED; is this a Powerhose master?")

    def stop(self, now: float) -> None:
        """Send REMOVE, accept no more jobs, and finish the running one."""
        if not self.is_leaving:
            self.is_leaving = True
            self._send_remove(now)

    def tick(self, now: float) -> float:
        """End the period when it is due: send the next PING, or count a miss. Returns the time of the next call."""
        if not self.is_leaving and now >= self._due:
            has_pong = self._has_pong
            self._begin_period(now)
            if not has_pong:
                self._miss(now)
            elif self._is_open:
                self._ping()
        if self.is_leaving:
            return min((each for each in (self._remove_until, self._promised_until) if each > now), default=inf)
        return self._due

    def _begin_period(self, now: float) -> None:
        self._since = now
        self._due = now + self._options.ping_every
        self._has_pong = False

    def _ping(self) -> None:
        self._awaits_pong = True
        self._io.register(write_ping(self._endpoint))

    def _miss(self, now: float) -> None:
        """Reconnect, several times as the document demands, to give the master time to come back."""
        self._missed += 1
        if self._missed >= self._options.ping_attempts:
            waited = f"{self._missed} times {self._options.ping_every:g} s"
            self._leave(MASTER_AWAY, f"the master has not replied to a PING for {waited}", now)
        elif self._is_open:
            self._io.reconnect(f"no PONG within {self._options.ping_every:g} s")

    def _leave(self, exit_code: int, reason: str, now: float) -> None:
        self.exit_code = exit_code
        self._io.leaving(reason)
        self.stop(now)

    def _send_remove(self, now: float) -> None:
        """Send REMOVE, even after a PING without PONG: that breaks the step of a REQ, but a REP accepts it."""
        if self._is_open:
            self._remove_until = now + PARTING
            self._io.register(write_remove(self._endpoint))

    # ---------------------------------------------------------------- masters' connections

    def order(self, caller: Hashable, message: Message | TooLarge, now: float) -> None:
        """Handle a message of a master at this worker's endpoint."""
        if caller == self._caller:
            self._caller = None
            self._io.hang_up(caller, "a message came during this master's job")
            return
        try:
            if isinstance(message, TooLarge):
                raise message.malformed()
            parsed = read_order(message)
        except Malformed:
            self._io.answer(caller, [b"", ERROR])
            return
        if isinstance(parsed, Job):
            self._take(caller, parsed, now)
        else:
            self._wake(caller, now)

    def hung_up(self, caller: Hashable, now: float) -> None:
        """Handle the end of a master's connection. The result of its job is dropped."""
        if caller == self._caller:
            self._caller = None
        if caller == self._promised:
            self._promised = None
        if caller == self._failed_caller:
            self._failed_caller = None
            if self._is_open and not self._awaits_pong and not self.is_leaving:
                self._begin_period(now)  # the master has removed this worker: register again now
                self._ping()

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        caller = self._end(job_ref)
        if caller is not None:
            self._io.answer(caller, write_result(self._job_id, result))

    def failed(self, job_ref: Hashable, reason: str, now: float) -> None:
        caller = self._end(job_ref)
        if caller is not None:
            self._failed_caller = caller
            self._io.hang_up(caller, reason)

    def _wake(self, caller: Hashable, now: float) -> None:
        if self.is_leaving or self._is_working or self._is_promised_to_another(caller, now):
            if caller == self._promised:
                self._promised = None
            self._io.answer(caller, [b"", ERROR])
        else:
            self._promised = caller
            self._promised_until = now + PROMISE
            self._io.answer(caller, [b"", GIVE])

    def _take(self, caller: Hashable, job: Job, now: float) -> None:
        """Run a job. A master that got GIVE may send one even if the worker has decided to leave since."""
        is_promised = caller == self._promised
        if self._is_working or self._is_promised_to_another(caller, now) or (self.is_leaving and not is_promised):
            self._io.answer(caller, [b"", ERROR])
            return
        self._promised = None
        self._caller = caller
        self._job_id = job.id
        self._is_working = True
        self._job_ref += 1
        self._io.run(self._job_ref, job.data)

    def _is_promised_to_another(self, caller: Hashable, now: float) -> bool:
        return self._promised not in (None, caller) and now < self._promised_until

    def _end(self, job_ref: Hashable) -> Hashable:
        """End the job. Returns the connection that waits for it."""
        assert self._is_working
        assert job_ref == self._job_ref
        caller, self._caller = self._caller, None
        self._is_working = False
        return caller


class ClientSide(single_frame_client.ClientSide):
    def __init__(self, options: ClientOptions, io: ClientIO) -> None:
        super().__init__(io, worker_reply=ERROR)

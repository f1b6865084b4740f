"""The other side of Powerhose: a worker and a client that work with any Powerhose master. Pure, like the session.

A worker has two kinds of connections. One is its own, REQ to the master's REP: there it says PING, which registers it
and shows that it lives, and REMOVE. The others are opened by masters, REQ to the worker's REP, at the endpoint that
PING named: there it is asked, WAKE, and given, JOB. It does one job at a time, and for whoever asks meanwhile it has
`ERROR`, which every master takes for a refusal: silence would jam the REP.

The wire has no word for a job that failed. The worker then closes the connection that the job came by: the master sees
that no result is coming, and asks another worker. It never makes a result up.
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
PROMISE: Final = 1.0  # seconds that a GIVE is good for: as long as a master waits for one
PARTING: Final = 1.0  # seconds that the master may take to say REMOVED
STOPPED: Final = 0  # exit codes
REFUSED: Final = 1
MASTER_AWAY: Final = 3


class WorkerPort(Protocol):
    """What a worker's side asks for. A `caller` is a connection that some master has opened to us."""

    def register(self, frames: Sequence[Frame]) -> None:
        """Say this on our own connection to the master."""

    def reconnect(self, reason: str) -> None:
        """Close that connection, open a new one, and say `opened` again."""

    def answer(self, caller: Hashable, frames: Sequence[Frame]) -> None: ...

    def hang_up(self, caller: Hashable, reason: str) -> None:
        """Close this connection. `hung_up` follows once the master has noticed, and no word from it before."""

    def run(self, job_ref: Hashable, payload: Frame) -> None:
        """Start the job. `finished` or `failed` follows with the same ticket."""

    def leaving(self, reason: str) -> None:
        """We have decided to go, and why."""


class WorkerSide:
    """One worker's side, for as many connections as it takes."""

    def __init__(self, options: WorkerOptions, endpoint: str, port: WorkerPort, now: float) -> None:
        self._options = options
        self._endpoint = endpoint  # where masters reach us, as they write it
        self._port = port
        self.exit_code = STOPPED
        self.is_leaving = False
        self._is_open = False
        self._is_asked = False  # a PING waits for its PONG
        self._is_answered = False  # a PONG has come in this period
        self._missed = 0  # periods in a row without one
        self._since = now  # when this period began
        self._due = now + options.ping_every  # when it ends
        self._remove_until = -inf  # how long we wait for REMOVED
        self._job_ref = 0  # the number of the job that runs
        self._is_working = False
        self._caller: Hashable = None  # who waits for its result; none once that connection is gone
        self._job_id = b""
        self._promised: Hashable = None  # to whom we said GIVE
        self._promised_until = -inf
        self._failed_caller: Hashable = None

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for a result of ours."""
        return self._caller is not None

    def is_over(self, now: float) -> bool:
        """Whether all has been said and done, and we may go."""
        if not self.is_leaving or self._caller is not None:
            return False
        return now >= self._remove_until and (self._promised is None or now >= self._promised_until)

    # ---------------------------------------------------------------- our own connection

    def opened(self, now: float) -> None:
        """Register. The PONG has a whole period to come; but once only, or connections that are cut again and again
        would put the judgement off for ever."""
        self._is_open = True
        if self.is_leaving:
            self._say_remove(now)
        else:
            period = self._options.ping_every
            self._due = min(now + period, self._since + 2 * period)
            self._ping()

    def lost(self) -> None:
        """The connection is gone, and with it whatever was to be answered on it."""
        self._is_open = False
        self._is_asked = False
        self._remove_until = -inf

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """The master answers."""
        try:
            if isinstance(message, TooLarge):
                raise Malformed("too large", f"{message.size} bytes where a word is due")
            body = body_of(message)
        except Malformed as problem:
            is_frontend = isinstance(message, list) and message[2:3] == [single_frame_calls.ERROR]
            hint = "; is this where callers connect? workers use the other place" if is_frontend else ""
            self._port.reconnect(f"{problem.reason}: {problem.detail}{hint}")
            return
        if body == PONG:
            self._is_asked = False
            self._is_answered = True
            self._missed = 0
        elif body == REMOVED:
            self._remove_until = -inf
        elif body == ERROR:
            self._remove_until = -inf
            if not self.is_leaving:
                told = f"the master said ERROR: it may not connect to us at {self._endpoint}"
                self._leave(REFUSED, f"{told}; a Dragoman says why in its log, and base= and dial_allow= allow it", now)
        else:
            self._port.reconnect(f"{len(body)} bytes that are neither PONG nor REMOVED; is this a Powerhose master?")

    def stop(self, now: float) -> None:
        """Say REMOVE, take no more jobs, and finish the one in hand."""
        if not self.is_leaving:
            self.is_leaving = True
            self._say_remove(now)

    def tick(self, now: float) -> float:
        """At the end of each period: the next PING, or one more that was missed. Returns when to come again."""
        if not self.is_leaving and now >= self._due:
            is_answered = self._is_answered
            self._begin_period(now)
            if not is_answered:
                self._miss(now)
            elif self._is_open:
                self._ping()
        if self.is_leaving:
            return min((each for each in (self._remove_until, self._promised_until) if each > now), default=inf)
        return self._due

    def _begin_period(self, now: float) -> None:
        self._since = now
        self._due = now + self._options.ping_every
        self._is_answered = False

    def _ping(self) -> None:
        self._is_asked = True
        self._port.register(write_ping(self._endpoint))

    def _miss(self, now: float) -> None:
        """The document: it attempts several times to reconnect, to give the master a chance to come back."""
        self._missed += 1
        if self._missed >= self._options.ping_attempts:
            waited = f"{self._missed} times {self._options.ping_every:g} s"
            self._leave(MASTER_AWAY, f"the master has not answered a PING for {waited}", now)
        elif self._is_open:
            self._port.reconnect(f"no PONG within {self._options.ping_every:g} s")

    def _leave(self, exit_code: int, reason: str, now: float) -> None:
        self.exit_code = exit_code
        self._port.leaving(reason)
        self.stop(now)

    def _say_remove(self, now: float) -> None:
        """Behind a PING without its PONG, too: what breaks the step of a REQ is in order for the REP that hears it."""
        if self._is_open:
            self._remove_until = now + PARTING
            self._port.register(write_remove(self._endpoint))

    # ---------------------------------------------------------------- masters' connections

    def order(self, caller: Hashable, message: Message | TooLarge, now: float) -> None:
        """A master says something at our endpoint."""
        if caller == self._caller:
            self._caller = None
            self._port.hang_up(caller, "a word came while we worked at this master's job")
            return
        try:
            if isinstance(message, TooLarge):
                raise message.malformed()
            parsed = read_order(message)
        except Malformed:
            self._port.answer(caller, [b"", ERROR])
            return
        if isinstance(parsed, Job):
            self._take(caller, parsed, now)
        else:
            self._wake(caller, now)

    def hung_up(self, caller: Hashable, now: float) -> None:
        """A master's connection has ended. The result of the job it gave us has nobody to go to any more."""
        if caller == self._caller:
            self._caller = None
        if caller == self._promised:
            self._promised = None
        if caller == self._failed_caller:
            self._failed_caller = None
            if self._is_open and not self._is_asked and not self.is_leaving:
                self._begin_period(now)  # the master has dropped us: that is no time to wait for the next PING
                self._ping()

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        caller = self._end(job_ref)
        if caller is not None:
            self._port.answer(caller, write_result(self._job_id, result))

    def failed(self, job_ref: Hashable, reason: str, now: float) -> None:
        caller = self._end(job_ref)
        if caller is not None:
            self._failed_caller = caller
            self._port.hang_up(caller, reason)

    def _wake(self, caller: Hashable, now: float) -> None:
        if self.is_leaving or self._is_working or self._is_promised_to_another(caller, now):
            if caller == self._promised:
                self._promised = None
            self._port.answer(caller, [b"", ERROR])
        else:
            self._promised = caller
            self._promised_until = now + PROMISE
            self._port.answer(caller, [b"", GIVE])

    def _take(self, caller: Hashable, job: Job, now: float) -> None:
        """Whoever had our GIVE may give us a job, even if we have decided to go since."""
        is_promised = caller == self._promised
        if self._is_working or self._is_promised_to_another(caller, now) or (self.is_leaving and not is_promised):
            self._port.answer(caller, [b"", ERROR])
            return
        self._promised = None
        self._caller = caller
        self._job_id = job.id
        self._is_working = True
        self._job_ref += 1
        self._port.run(self._job_ref, job.data)

    def _is_promised_to_another(self, caller: Hashable, now: float) -> bool:
        return self._promised not in (None, caller) and now < self._promised_until

    def _end(self, job_ref: Hashable) -> Hashable:
        """The job is over. Returns who waits for it."""
        assert self._is_working
        assert job_ref == self._job_ref
        caller, self._caller = self._caller, None
        self._is_working = False
        return caller


class ClientSide(single_frame_client.ClientSide):
    def __init__(self, options: ClientOptions, port: ClientIO) -> None:
        super().__init__(port, worker_word=ERROR)

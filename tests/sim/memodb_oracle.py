"""Rules that every run of MemoDB must keep, checked from outside. The letters are those of docs/rules.md.

I7   a reply was computed for the payload it answers: the result is a keyed hash of it that only the worker can know.
I8   a job is dispatched at most as often as it was accepted and has attempts, and a dispatch is run at most once:
     a reply that may have arrived is only ever repeated under the same request (R60, R65).
R60  no reply without a request; a repeated reply is the same, byte for byte, as long as its worker is alive;
     a worker is never addressed by another one's id.
R6   no job times out before its time.

In an *exact* run connections are cut and messages repeated, but no process ends, none is slow beyond a time limit,
and the limits of what is kept are not reached. Then these hold as well, all the time:

R62  every job is accepted once and run once, and none ends without a reply.
R61  there are never more workers in the records than there are workers.

Otherwise a caller whose job ended without a reply repeats it and that is another job, by design; so is a job whose
reply was not kept long enough. The bound then is I8.

`books` checks the broker side after every event, as `invariants.check` checks the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Attempt
from dragoman.core.states import DONE, RUNNING, Outcome, WorkerState
from dragoman.dialects.memodb.broker_side import MemoDbBrokerSide
from dragoman.dialects.memodb.callers import Callers
from dragoman.dialects.memodb.messages import Ready
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import ConnectionRecord, PendingCall, RemoteMemoDbWorker
from dragoman.server.connection import StreamConnection
from dragoman.server.connections import Connections
from dragoman.server.runner import Runner
from sim.oracle import LATE_SEND, Wrong, require, result_of
from sim.world import World

__all__ = ["RARE", "MemoDbOracle", "WatchedMemoDb", "books", "require", "result_of"]

KINDS = {1: "READY", 3: "RESULT", 4: "HEARTBEAT"}

RARE = (
    "DISCONNECT said again",
    "HEARTBEAT said again",
    "HEARTBEAT known again on a new connection",
    "JOB said again",
    "READY known again on a new connection",
    "READY repeated on its connection",
    "RESULT known again on a new connection",
    "RESULT repeated on its connection",
    "answer asked for on a new connection",
    "answer asked for on its connection",
    "answers nobody waits for any more",
    "answers forgotten and asked for again",
    "answers kept for a caller that is away",
    "broker crashed with jobs running",
    "broker paused",
    "callers that gave up",
    "goodbyes",
    "goodbye repeated",
    "job repeated on its connection",
    "late RESULT got DISCONNECT",
    "parked request moved to a new connection",
    "request id of a lost request with another message",
    "requests sent again",
    "resend timer",
    "running job adopted",
    "second attempts",
    "silence: cancelled",
    "silence: lost",
    "silence: timed out in the queue",
    "silence: timed out in the run",
    "unknown id after a restart got DISCONNECT",
    "unsent JOB taken back",
    "waiting job adopted",
    "workers out of reach for too long",
    "workers silent after HEARTBEAT",
    "workers that start over",
)


@dataclass(slots=True)
class Record:
    """One payload, and all that became of it."""

    service: str
    timeout: int  # on the wire
    accepted: int = 0
    gives: int = 0  # dispatches that were sent, or may have been
    runs: int = 0
    answers: int = 0


class MemoDbOracle:
    def __init__(
        self,
        world: World,
        options: ListenerOptions,
        services: tuple[str, ...],
        *,
        workers: int,
        is_exact: bool,
        outruns: bool = False,
    ) -> None:
        self.hits: Counter[str] = Counter()
        self.services = services
        self.records: dict[int, Record] = {}
        self.gives_said = 0
        self.is_exact = is_exact
        self.workers = workers
        self._outruns = outruns  # sockets that reconnect before the broker has noticed the end of the old connection
        self._world = world
        self._attempts = options.attempts or 1
        self._asked: dict[tuple[str, bytes], bytes] = {}
        self._first: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}  # the reply, and the worker it came from
        self._last_of: dict[bytes, tuple[str, bytes]] = {}  # the last request that was answered, by worker
        self._by_job: dict[bytes, Record] = {}  # of dispatched jobs
        self._former_ids: set[bytes] = set()  # of lives that are over

    def hit(self, what: str, times: int = 1) -> None:
        if times:
            self.hits[what] += times

    # ---------------------------------------------------------------- actors

    def new_job(self, filler: int, service: str, timeout: int) -> bytes:
        """Return a new payload."""
        number = len(self.records) + 1
        self.records[number] = Record(service, timeout)
        return b"job %d %s" % (number, b"x" * filler)

    def asks(self, label: str, id: bytes, body: bytes) -> None:
        self._asked[label, id] = body

    def asked(self, peer_label: str, id: bytes) -> bytes:
        """The request with this id that came by this connection."""
        request = self._asked.get((peer_label[:-1], id))
        require(request is not None, "R60", f"{peer_label} {id.hex()} was never asked")
        assert request is not None
        return request

    def arrives(self, label: str, id: bytes, body: bytes) -> None:
        require((label, id) in self._asked, "R60", f"{label} got an answer to {id.hex()}, which it never asked")

    def executes(self, worker: str, payload: bytes, service: str, timeout: int) -> None:
        record = self._record(payload)
        record.runs += 1
        name = f"{worker} runs {payload[:16]!r}"
        require(record.service == service, "document", f"{name} as {service}, asked for as {record.service}")
        require(record.timeout == timeout, "document", f"{name} for {timeout} ms, asked for with {record.timeout}")
        require(record.runs <= record.gives, "I8", f"{name}: run {record.runs} of {record.gives} hand-outs")
        require(not self.is_exact or record.runs == 1, "R62", f"{name}: run {record.runs} of one job")

    def answered(self, payload: bytes) -> None:
        self._record(payload).answers += 1
        self.hit("answers")

    def gives_up(self, payload: bytes) -> None:
        self.hit("callers that gave up")

    # ---------------------------------------------------------------- the session

    def accepts(self, payload: bytes) -> None:
        record = self._record(payload)
        record.accepted += 1
        if record.accepted > 1 and record.answers:
            self.hit("answers forgotten and asked for again")
        require(not self.is_exact or record.accepted == 1, "R62", f"{payload[:16]!r} is accepted a second time")

    def gives(self, attempt: Attempt) -> None:
        job = attempt.job
        require(job.attempt is attempt, "D2", f"attempt {attempt.number} of {bytes(job.payload[:16])!r} has ended")
        record = self._by_job[job.id] = self._record(job.payload)
        record.gives += 1
        self.gives_said += 1
        if attempt.number > 1:
            self.hit("second attempts")
        most = record.accepted * self._attempts
        require(record.gives <= most, "I8", f"{bytes(job.payload[:16])!r}: {record.gives} hand-outs of {most}")

    def takes_back(self, remote: RemoteMemoDbWorker, attempt: Attempt) -> None:
        """Forget a reply that was never sent: another may be sent instead."""
        self.hit("unsent JOB taken back")
        self._by_job[attempt.job.id].gives -= 1
        self._first.pop(self._last_of.pop(remote.id), None)

    def replies(self, session: WatchedMemoDb, peer: StreamConnection, route: bytes, body: bytes) -> None:
        key = peer.label[:-1], route
        self.asked(peer.label, route)
        worker = body[10:26] if body[9] == 0x50 else b""
        former = self._first.get(key)
        if former is not None and former[0] != body:
            is_dead = bool(former[1]) and former[1] not in session.remotes
            is_twin = self._outruns and self.asked(peer.label, route)[8] == 1  # its former connection seems to live
            require(
                is_dead or is_twin,
                "R60",
                f"{key} was answered {former[0].hex(' ')} and is now answered {body.hex(' ')}",
            )
        elif former is not None and body[8] == 5:
            self.hit("DISCONNECT said again")
        self._first[key] = body, worker
        if worker:
            self._last_of[worker] = key

    def silence(self, answer: DeliverOutcome, now: float, queue_timeout: float) -> None:
        job = answer.job
        if job is None:
            return
        name = f"{bytes(job.payload[:16])!r} ended {answer.outcome}: {answer.reason}"
        require(not self.is_exact, "R62", f"{name}, and nobody failed")
        if answer.outcome is not Outcome.TIMED_OUT:
            self.hit(f"silence: {answer.outcome}")
        elif "no result" in answer.reason:
            self.hit("silence: timed out in the run")
        else:
            self.hit("silence: timed out in the queue")
            require(now >= job.arrival + queue_timeout, "R6", f"{name} after {now - job.arrival:.3f} s")

    def recalls(self, attempt: Attempt, now: float) -> None:
        due = attempt.given + attempt.job.options.job_timeout - LATE_SEND
        require(now >= due, "R6", f"{bytes(attempt.job.payload[:16])!r} was given {now - attempt.given:.3f} s ago")

    def turns_away(self, worker_id: bytes) -> None:
        is_old = worker_id in self._former_ids
        self.hit("unknown id after a restart got DISCONNECT" if is_old else "late RESULT got DISCONNECT")

    def remarked(self, event: str, fields: dict[str, Any]) -> None:
        if event == "event loop stalled":
            self.hit("broker paused")
        elif event == "internal error":
            raise fields["exception"]
        elif event == "bad message":
            require(False, "document", f"an honest peer's message was bad: {fields['reason']}")
        elif event == "worker out of turn":
            require(False, "R67", f"{fields['worker']} was found out of turn: {fields['reason']}")
        elif event == "worker left":
            if "silent" in fields["reason"]:
                self.hit("workers silent after HEARTBEAT")
                require(not self.is_exact, "R75", f"{fields['worker']} lives and was found silent")
            elif "out of reach" in fields["reason"]:
                self.hit("workers out of reach for too long")

    def life_ended(self, broker: Broker) -> None:
        """A crash, or the end of the run."""
        self._former_ids.update(self._last_of)
        self._first = {key: first for key, first in self._first.items() if not first[1]}
        self._last_of.clear()

    # ---------------------------------------------------------------- the end

    def verdict(self) -> None:
        """Check an exact run at its end: every job ran once, from beginning to end."""
        for number, record in self.records.items():
            is_once = (record.accepted, record.gives, record.runs, record.answers) == (1, 1, 1, 1)
            require(is_once or not self.is_exact, "R62", f"job {number}: {record}")

    def _record(self, payload: bytes | bytearray) -> Record:
        return self.records[int(payload[:16].split(b" ")[1])]


class WatchedLine:
    """Wraps the I/O of the broker side: sees every reply that is sent."""

    def __init__(self, oracle: MemoDbOracle, io: Connections) -> None:
        self._oracle = oracle
        self._io = io
        self.session: WatchedMemoDb
        self.remark = io.remark
        self.remark_limited = io.remark_limited
        self.bad_message = io.bad_message
        self.close = io.close

    def send(self, peer: StreamConnection, frames: list[bytes | bytearray], mark: object = None) -> None:
        self._oracle.replies(self.session, peer, bytes(frames[0]), b"".join(frames[1:]))
        self._io.send(peer, frames, mark)


class WatchedCallers(Callers):
    """The real callers of a session, and the oracle looking over their shoulder. It changes nothing."""

    def __init__(self, oracle: MemoDbOracle, session: WatchedMemoDb) -> None:
        super().__init__(
            session, session._broker, session._io, session._options, session._max_payload, session._remotes
        )
        self._oracle = oracle

    def receive_job(  # type: ignore[override]
        self, peer: StreamConnection, route: bytes, mark: int, service: str, timeout: int, payload: Frame, now: float
    ) -> None:
        self.before_job(peer, route, mark)
        accepted = self._broker.counters.accepted
        call = peer.remote.waiting.get(route)
        if call is not None and call.request_hash == mark:
            self._oracle.hit("job repeated on its connection")
        call = peer.remote.answered.get(route)
        if call is not None and call.request_hash == mark:
            self._oracle.hit("answer asked for on its connection")
        lost = any(key[1:3] == (peer.address, route[-4:]) and key[3] != mark for key in self.orphans)
        self._oracle.hit("request id of a lost request with another message", lost)
        beginning = bytes(payload[:16])
        super().receive_job(peer, route, mark, service, timeout, payload, now)
        if self._broker.counters.accepted > accepted:
            self._oracle.accepts(beginning)

    def before_job(self, peer: StreamConnection, route: bytes, mark: int) -> None:
        """The place where a planted bug changes what the session knows before it handles a caller's JOB."""

    def _adopt(self, call: PendingCall, peer: StreamConnection, route: bytes) -> None:  # type: ignore[override]
        if call.job is None:
            self._oracle.hit("answer asked for on a new connection")
        else:
            self._oracle.hit("running job adopted" if call.job.state is RUNNING else "waiting job adopted")
        super()._adopt(call, peer, route)

    def answer(self, answer: DeliverOutcome, now: float) -> None:
        call = answer.caller
        assert isinstance(call, PendingCall)
        if not call.is_over:
            if answer.outcome is not DONE:
                self._oracle.silence(answer, now, self._options.queue_timeout)
            elif call.peer is None:
                self._oracle.hit("answers kept for a caller that is away")
        super().answer(answer, now)


class WatchedMemoDb(MemoDbBrokerSide):
    """The real session, watched like its callers."""

    callers_type = WatchedCallers

    def __init__(
        self,
        oracle: MemoDbOracle,
        broker: Broker,
        io: Connections,
        options: ListenerOptions,
        max_payload: int,
        world: World,
    ) -> None:
        watched = WatchedLine(oracle, io)
        super().__init__(broker, watched, options, max_payload)  # type: ignore[arg-type]
        watched.session = self
        self._oracle = oracle
        self._callers = self.callers_type(oracle, self)

    @property
    def remotes(self) -> dict[bytes, RemoteMemoDbWorker]:
        return self._remotes

    @property
    def waiting(self) -> int:
        return self._callers.waiting

    # ---------------------------------------------------------------- workers

    def _receive_ready(self, peer: StreamConnection, route: bytes, mark: int, ready: Ready, now: float) -> None:  # type: ignore[override]
        super()._receive_ready(peer, route, mark, ready, now)
        oracle = self._oracle
        many = f"{len(self._remotes)} workers in the books, and only {oracle.workers} there"
        require(not oracle.is_exact or len(self._remotes) <= oracle.workers, "R61", many)

    def _receive_worker(  # type: ignore[override]
        self,
        peer: StreamConnection,
        route: bytes,
        mark: int,
        id: bytes,
        result: Frame | None,
        is_leaving: bool,
        now: float,
    ) -> None:
        remote = self._remotes.get(id)
        if remote is not None:
            self.before_request(remote, peer)
            if is_leaving:
                self._oracle.hit("goodbyes")
        elif result is not None:
            self._oracle.turns_away(id)
            if is_leaving:
                self._oracle.hit("goodbye repeated")
        super()._receive_worker(peer, route, mark, id, result, is_leaving, now)

    def before_request(self, remote: RemoteMemoDbWorker, peer: StreamConnection) -> None:
        """The place where a planted bug changes what the session knows before it handles a request of this worker."""

    def _receive_again(self, remote: RemoteMemoDbWorker, peer: StreamConnection, route: bytes, now: float) -> None:  # type: ignore[override]
        hit = self._oracle.hit
        kind = KINDS[self._oracle.asked(peer.label, route)[8]]
        if remote.peer is peer:
            hit(f"{kind} repeated on its connection")
        else:
            hit(f"{kind} known again on a new connection")
            if remote.answer is None:
                hit("parked request moved to a new connection")
        if remote.answer is not None:
            hit("JOB said again" if remote.attempt is not None else "HEARTBEAT said again")
        super()._receive_again(remote, peer, route, now)

    def _give(self, attempt: Attempt, now: float) -> None:
        remote: RemoteMemoDbWorker = attempt.worker.remote
        if remote.peer is None:
            self._oracle.hit("hand-out to a worker that has just gone")
        else:
            require(remote.answer is None, "R60", f"{attempt.worker.name} is given a job and has not asked")
            self._oracle.gives(attempt)
        super()._give(attempt, now)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        remote: RemoteMemoDbWorker | None = attempt.worker.remote
        if remote is None:  # its worker has gone
            super()._take_back(attempt, now)
            return
        held, was_known = remote.attempt, remote.id in self._remotes
        super()._take_back(attempt, now)
        if held is attempt and was_known:
            if remote.attempt is None:
                self._oracle.takes_back(remote, attempt)
            elif remote.is_replayed:
                self._oracle.hit("unsent JOB said again before it could be taken back")

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        self._oracle.recalls(attempt, now)
        super()._recall(attempt, reason, now)


def books(session: WatchedMemoDb, io: Runner) -> None:
    """Raise if the session's records contradict each other. Called after each event, so it builds no unused message."""
    broker, remotes = session._broker, session.remotes
    if not broker.effects:  # otherwise a reply is still to be sent
        calls = sum([len(job.callers) for job in broker.jobs.values()])
        if session.waiting != calls:
            raise Wrong(f"books: {session.waiting} calls are counted, {calls} are there")
    for peer in io.connections.peers:
        if peer.is_open and not peer.is_lost:
            _check_contacts(peer.remote, peer, remotes)
    for key, call in session._callers.orphans.items():
        require(call.peer is None and call.key == key, "books", "a lost call that is not lost")
    for key, remote in session._lost_readies.items():
        is_lost = remote.peer is None and remote.key == key and remotes.get(remote.id) is remote
        require(is_lost and not remote.is_confirmed, "books", "a lost READY that is not lost")
    living = 0
    for remote in remotes.values():
        state, peer = remote.worker.state, remote.peer
        if state is WorkerState.IDLE and (remote.answer is not None or peer is None or remote.attempt is not None):
            raise Wrong(f"R64: {remote.worker.name} is offered jobs and has not asked, or is out of reach")
        if peer is not None and peer.is_lost:
            raise Wrong("books: a remote worker on a connection that is over")
        living += state is not WorkerState.GONE
    require(living == len(broker.worker_registry.workers), "books", "remote workers and workers differ")


def _check_contacts(
    contacts: ConnectionRecord, peer: StreamConnection, remotes: Mapping[bytes, RemoteMemoDbWorker]
) -> None:
    for remote in contacts.remotes:
        if remote.peer is not peer or remotes.get(remote.id) is not remote:
            raise Wrong("books: a remote worker at two places")
    for route, remote in contacts.readies.items():
        if remote not in contacts.remotes or remote.route != route:
            raise Wrong("books: a READY of nobody")
    for route, call in contacts.waiting.items():
        if call.is_over:
            raise Wrong("books: a call waits and is over")
        if call.peer is not peer or call.route != route:
            raise Wrong("books: a call at two places")
    for route, call in contacts.answered.items():
        if call.peer is not peer or call.route != route:
            raise Wrong("books: a call at two places")

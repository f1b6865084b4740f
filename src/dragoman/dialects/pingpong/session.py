"""The broker's side of PingPong: workers on the backend, callers on the frontend.

The documents tie a result to its job by nothing but the order of messages on one connection (edition `plain`), so this
file's care is to ask, for every worker, which attempt it holds: `Guest.attempt`. The rules it keeps are R30 to R50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import Answer, Dismiss, Effect, Give
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Worker
from dragoman.core.oversize import over_max_payload
from dragoman.dialects.frontend import Frontend
from dragoman.dialects.listener_profile import job_options, silent_worker
from dragoman.dialects.pingpong.codec import read_worker, write_job
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import EXIT, PONG, RESERVED, Disconnect, Ping, Ready, Result, WorkerWord
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.routing_ids import CAME_BACK, RoutingIds
from dragoman.dialects.seam import Line, Peer, Session

BACKEND: Final = "backend"

CROSSING: Final = 1.0  # R34: a READY so soon after the job may have crossed it on the wire
PONG_EVERY: Final = 0.02  # R49
EXITS: Final = 3  # R46
EXIT_EVERY: Final = 0.9  # about as often as it pings
LONGEST_RESERVED: Final = max(map(len, RESERVED))
PONG_FRAMES: Final[list[Frame]] = [b"", PONG]
EXIT_FRAMES: Final[list[Frame]] = [b"", EXIT]


class Guest:
    """What we know of one worker's connection."""

    __slots__ = (
        "count",
        "exited",
        "exits",
        "fell_silent",
        "is_exiting",
        "name",
        "peer",
        "ponged",
        "quiet_since",
        "worker",
    )

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer = peer
        self.name = name
        self.worker: Worker | None = None
        self.quiet_since = -inf  # last sign of it since it got the job, or when it got it
        self.fell_silent = False  # R36: it was silent for a while after it got the job, so it is not threaded
        self.ponged = -inf
        self.count = -1
        self.is_exiting = False
        self.exits = 0
        self.exited = -inf

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that it was sent and has not answered, current or not. The core knows."""
        return self.worker.held() if self.worker is not None else None


class PingPongSession(Session):
    dialect = "pingpong"

    def __init__(self, broker: Broker, line: Line, options: ListenerOptions, max_payload: int, started: float) -> None:
        self._broker = broker
        self._line = line
        self._options = options
        self._max_payload = max_payload
        self._edition = options.edition
        self._terms = silent_worker(options, options.worker_expire)
        wishes = replace(job_options(options), queue_timeout=options.queue_timeout)  # 0 = a job never waits
        self._frontend = Frontend(broker, line, options.service, wishes, max_payload)
        self.routing_ids = RoutingIds(broker, line, self._supersede)
        # R38: a threaded worker that outlived our last run may still be at an old job when it pings.
        self._trust_after = started + (options.job_timeout or self._terms.unproven_limit)

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Peer, now: float) -> None:
        self.routing_ids.take(peer, now)
        if peer.endpoint == BACKEND:
            name = peer.identity.decode("utf-8", "backslashreplace") if peer.identity else peer.label
            peer.guest = Guest(peer, name)

    def hear(self, peer: Peer, message: Message | TooLarge, now: float) -> None:
        guest = peer.guest
        try:
            if guest is None:
                self._frontend.hear(peer, message, now)
            elif type(message) is TooLarge:
                self._hear_large(guest, message, now)
            else:
                self._hear_worker(guest, read_worker(message, self._edition), now)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is Give:
            self._give(effect.attempt, now)
        elif type(effect) is Answer:
            self._frontend.answer(effect)
        elif type(effect) is Dismiss:
            self._dismiss(effect, now)
        # Recall: nor for this. Accept: nobody here asks for background jobs.

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:
        self.routing_ids.release(peer)
        guest = peer.guest
        if guest is None:
            self._frontend.lost(peer, now)
        else:
            self._leave(guest, "its worker's connection ended", now, [m for m in unsent if isinstance(m, Attempt)])

    def tick(self, now: float) -> float:
        return inf

    # ---------------------------------------------------------------- what workers say

    def _hear_worker(self, guest: Guest, word: WorkerWord, now: float) -> None:
        if type(word) is Result:
            self._result(guest, word, now)
            return
        self._note_silence(guest, now)
        if type(word) is Ping:
            self._ping(guest, word, now)
        elif type(word) is Ready:
            self._ready(guest, now)
        elif type(word) is Disconnect:
            if guest.attempt is not None and self._edition is Edition.PLAIN:
                self._result(guest, Result(b"DISCONNECT"), now)
            else:
                self._leave(guest, "its worker said DISCONNECT", now)
        elif guest.worker is not None:  # PONG, EXIT: never a result, but it lives
            self._broker.seen(guest.worker, now)

    def _result(self, guest: Guest, result: Result, now: float) -> None:
        attempt = guest.attempt
        is_ours = attempt is not None and (result.token is None or result.token == attempt.token)
        if attempt is None or not is_ours:  # R37: nothing is due, or it is for an earlier attempt
            self._broker.counters.late_results += 1
            self._remark_late(guest)
            if guest.worker is not None:
                self._broker.seen(guest.worker, now)
        else:
            if not self._broker.succeed(attempt, result.payload, now):
                self._remark_late(guest, job=attempt.job.id.hex())
            if attempt.worker.running:
                return  # its next job, on the way this very turn, says as much as a PONG would
        self._line.send(guest.peer, PONG_FRAMES)

    def _remark_late(self, guest: Guest, job: str = "") -> None:
        self._line.remark_limited("late result", peer=guest.peer, worker=guest.name, job=job)

    def _ready(self, guest: Guest, now: float) -> None:
        if guest.is_exiting:
            self._send_exit(guest, now)
            return
        worker, attempt = guest.worker, guest.attempt
        if worker is None:
            if not self._join(guest, now, held_back_until=0.0):
                return
        elif attempt is None:
            self._broker.seen(worker, now)  # R33
        elif _is_unproven(guest):  # READY proves it free (R36)
            self._broker.idle(worker, now)
        else:
            self._broker.counters.ready_while_busy += 1
            self._broker.counters.ambiguous_results += 1  # R44: it may even be the result
            if now - max(attempt.given, self._broker.resumed_at) < CROSSING:  # R34; our pause is not its delay (D13)
                self._broker.seen(worker, now)
            else:
                self._broker.fail(attempt, "its worker said READY instead of a result", now)
        self._line.send(guest.peer, PONG_FRAMES)

    def _ping(self, guest: Guest, ping: Ping, now: float) -> None:
        if guest.is_exiting:
            self._send_exit(guest, now)
            return
        worker = guest.worker
        if worker is None:
            held_back = self._trust_after if now < self._trust_after else 0.0
            if not self._options.adopt_on_ping or not self._join(guest, now, held_back_until=held_back):
                return  # R30: without a PONG it comes again with READY
        else:
            self._broker.seen(worker, now)
            if guest.fell_silent and _is_unproven(guest):
                return  # R36: it is back in its loop without our job; unanswered, it will reconnect and say READY
        if now - guest.ponged < PONG_EVERY:
            self._broker.counters.throttled_pings += 1
            return
        guest.ponged = now
        if ping.counts:
            self._note_count(guest, ping.counts[0])
            self._line.send(guest.peer, [b"", PONG, *ping.counts])
        else:
            self._line.send(guest.peer, PONG_FRAMES)

    def _note_silence(self, guest: Guest, now: float) -> None:
        """Whether a worker that holds a job goes on talking tells a threaded one from one that is back in its loop."""
        if guest.attempt is not None:
            since = max(guest.quiet_since, self._broker.resumed_at)  # our own pause is not its silence (D13)
            if now - since > 2 * self._options.ping_every:
                guest.fell_silent = True
            guest.quiet_since = now

    def _note_count(self, guest: Guest, frame: Frame) -> None:
        if frame.isdigit():
            count = int(frame)
            if count < guest.count:
                self._line.remark("ping count fell", peer=guest.peer, worker=guest.name)
            guest.count = count

    def _hear_large(self, guest: Guest, message: TooLarge, now: float) -> None:
        """A result over the limit was skipped as it came: the job has failed, the worker is free."""
        attempt = guest.attempt
        problem = message.malformed()
        self._line.bad_message(guest.peer, problem.reason, problem.detail)
        token = message.frames[2:3] if self._edition is Edition.PACKAGE else []
        if attempt is not None and token and token != [attempt.token]:
            self._broker.counters.late_results += 1  # of an earlier attempt
        elif attempt is not None:
            self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)
        self._line.send(guest.peer, PONG_FRAMES)

    # ---------------------------------------------------------------- workers come and go

    def _supersede(self, former: Peer, now: float) -> None:
        if isinstance(former.guest, Guest):
            self._leave(former.guest, CAME_BACK, now)

    def _join(self, guest: Guest, now: float, held_back_until: float) -> bool:
        worker = self._broker.join(
            self, guest, guest.name, (self._options.service,), self._terms, now, held_back_until=held_back_until
        )
        if worker is None:
            self._line.remark("worker refused", level="warning", peer=guest.peer, worker=guest.name)
            return False
        guest.worker = worker
        self._line.remark("worker joined", peer=guest.peer, worker=guest.name, service=self._options.service)
        self._line.when_settled(guest.peer, partial(self._broker.idle, worker))
        return True

    def _leave(self, guest: Guest, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker, guest.worker = guest.worker, None
        if worker is not None:
            self._line.remark("worker left", peer=guest.peer, worker=guest.name, reason=reason)
            self._broker.leave(worker, now, reason, unseen)

    def _dismiss(self, effect: Dismiss, now: float) -> None:
        guest: Guest = effect.worker.party
        if guest.worker is not effect.worker:
            return  # it has joined anew since
        was_unproven = guest.attempt is not None
        guest.worker = None
        self._line.remark("worker dismissed", peer=guest.peer, worker=guest.name, reason=effect.reason)
        if effect.farewell.is_final:
            guest.is_exiting = True
            self._send_exit(guest, now)
        elif was_unproven:
            self._line.close(guest.peer, effect.reason)  # a PING must not make it idle: it may still be at the old job

    def _send_exit(self, guest: Guest, now: float) -> None:
        """R46: a worker that stays is told again, and shown the door in the end."""
        if now - guest.exited < EXIT_EVERY:
            return
        if guest.exits >= EXITS:
            self._line.close(guest.peer, "it did not leave when told to")
            return
        guest.exits += 1
        guest.exited = now
        self._line.send(guest.peer, EXIT_FRAMES)

    # ---------------------------------------------------------------- jobs go out, answers come back

    def _give(self, attempt: Attempt, now: float) -> None:
        guest: Guest = attempt.worker.party
        payload = attempt.job.payload
        if self._edition is Edition.PLAIN:
            if len(payload) <= LONGEST_RESERVED and payload in RESERVED:  # R45
                self._broker.reject(attempt, f"reserved word: this wire cannot carry {bytes(payload).decode()}", now)
                return
            frames: list[Frame] = [b"", payload]
        else:
            frames = write_job(payload, attempt.token)
        guest.quiet_since = now
        guest.fell_silent = False
        self._line.send(guest.peer, frames, attempt)


def _is_unproven(guest: Guest) -> bool:
    """Whether it was given an attempt that has ended without its result (D11)."""
    attempt = guest.attempt
    return attempt is not None and attempt.job.attempt is not attempt

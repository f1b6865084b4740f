"""The broker's side of Majordomo: clients and workers at one door.

Who somebody is, and which edition it speaks, is told by its first message and stays so. The client's frame that a
worker sends back untouched is the token of our attempt, so a reply names its attempt by itself (R1); this file's care
is to tell a late reply, which is nobody's fault, from one that was made up (T8).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, DeliverProgress, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Token, Worker
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import RemoteWorker
from dragoman.core.states import DONE, REFUSED, RemovalReason
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.listener_profile import job_options, silent_worker
from dragoman.dialects.majordomo.codec import (
    MAX_SERVICE_BYTES,
    RESERVED,
    read_client,
    read_worker,
    recognise,
    write_client_part,
    write_client_reply,
    write_disconnect,
    write_heartbeat,
    write_worker_request,
)
from dragoman.dialects.majordomo.editions import EditionFrames
from dragoman.dialects.majordomo.messages import Disconnect, Heartbeat, Ready, WorkerReply, WorkerWord
from dragoman.dialects.majordomo.options import ListenerOptions
from dragoman.dialects.routing_ids import CAME_BACK, RoutingIds

OWED_KEPT: Final = 10_000  # tokens of attempts whose workers went without a reply
BEATS_AT_ONCE: Final = 256  # so that a crowd that joined at once does not hold up a turn, time and again

NAMES: Final = {Ready: "READY", WorkerReply: "REPLY", Heartbeat: "HEARTBEAT", Disconnect: "DISCONNECT"}

FOUND: Final = b"200"
NOT_FOUND: Final = b"404"
NOT_IMPLEMENTED: Final = b"501"


class MajordomoWorker(RemoteWorker):
    """What we know of one worker's connection."""

    __slots__ = ("answered", "beat_due", "is_parted", "name", "peer", "wire", "worker")

    def __init__(self, peer: Connection, wire: EditionFrames) -> None:
        self.peer = peer
        self.wire = wire
        self.name = peer.identity.decode("utf-8", "backslashreplace") if peer.identity else peer.label
        self.worker: Worker | None = None
        self.answered: Token | None = None  # what it answered last
        self.is_parted = False  # one of us has said DISCONNECT: until it says READY, we have nothing to say
        self.beat_due = inf

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that it was sent and has not answered, current or not. The core knows."""
        return self.worker.held() if self.worker is not None else None


class MajordomoCaller:
    """The record of one client's connection."""

    __slots__ = ("wire",)

    def __init__(self, wire: EditionFrames) -> None:
        self.wire = wire


class MajordomoBrokerSide(BrokerSide):
    dialect = "majordomo"

    def __init__(self, broker: Broker, line: BrokerIO, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._line = line
        self._heartbeat = options.heartbeat
        self._max_payload = max_payload
        # D5: a worker with one thread, as in the Guide, cannot speak while it works. That it is dead is seen by D12.
        profile = silent_worker(options, options.heartbeat * options.liveness)
        self._terms = replace(profile, max_payload=max_payload, comes_back=True)
        self._wishes = job_options(options)
        self._streaming = replace(self._wishes, streams=True)
        self.routing_ids = RoutingIds(broker, line, self._supersede)
        self._beats: OrderedDict[MajordomoWorker, None] = OrderedDict()  # all workers, in the order of `beat_due`
        self._owed: OrderedDict[Token, None] = OrderedDict()

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        self.routing_ids.take(peer, now)

    def hear(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        guest = peer.guest
        try:
            if guest is None:
                guest = self._meet(peer, message)
            if type(guest) is MajordomoWorker:
                self._hear_worker(guest, message, now)
            else:
                self._hear_client(peer, guest, message, now)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)
            if type(guest) is MajordomoWorker:
                self._disconnect(guest, f"its worker was not understood: {problem.reason}", now)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._give(effect.attempt)
        elif type(effect) is DeliverOutcome:
            self._answer(effect)
        elif type(effect) is DeliverProgress:
            self._pass_on(effect)
        elif type(effect) is RemoveWorker:
            self._dismiss(effect, now)
        # Recall: this wire has no word for it. Accept: nobody here asks for background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        self.routing_ids.release(peer)
        guest = peer.guest
        if isinstance(guest, MajordomoWorker):
            self._leave(guest, "its worker's connection ended", now, [m for m in unsent if isinstance(m, Attempt)])
        else:
            self._broker.caller_gone(peer, now)

    def tick(self, now: float) -> float:
        """Every worker hears of us once a period, idle or not. All have the same, so that who was told goes last."""
        for _ in range(BEATS_AT_ONCE):
            guest = next(iter(self._beats), None)
            if guest is None:
                return inf
            if guest.beat_due > now:
                return guest.beat_due
            self._beat_later(guest, now)
            self._line.send(guest.peer, write_heartbeat(guest.wire))
        return now

    # ---------------------------------------------------------------- whoever comes

    def _meet(self, peer: Connection, message: Message | TooLarge) -> MajordomoWorker | MajordomoCaller:
        wire, is_worker = recognise(message.frames if isinstance(message, TooLarge) else message)
        peer.guest = MajordomoWorker(peer, wire) if is_worker else MajordomoCaller(wire)
        return peer.guest  # type: ignore[no-any-return]

    def _supersede(self, former: Connection, now: float) -> None:
        if isinstance(former.guest, MajordomoWorker):
            self._leave(former.guest, CAME_BACK, now)

    # ---------------------------------------------------------------- what workers say

    def _hear_worker(self, guest: MajordomoWorker, message: Message | TooLarge, now: float) -> None:
        if type(message) is TooLarge:
            self._hear_large(guest, message, now)
            return
        assert type(message) is list
        word = read_worker(message, guest.wire)
        if type(word) is WorkerReply:
            self._reply(guest, word, now)
        elif guest.is_parted and type(word) is not Ready:
            pass  # it crossed our DISCONNECT
        elif type(word) is Heartbeat and guest.worker is not None:
            self._broker.seen(guest.worker, now)
        elif type(word) is Disconnect:
            self._leave(guest, "its worker said DISCONNECT", now)
            guest.is_parted = True
        elif type(word) is Ready and guest.worker is None:
            self._join(guest, word.service, now)
        else:
            self._unexpected(guest, word, now)

    def _reply(self, guest: MajordomoWorker, reply: WorkerReply, now: float) -> None:
        attempt = guest.attempt
        if attempt is None or reply.client != attempt.token:
            self._reply_out_of_turn(guest, reply, now)
        elif not reply.is_final:
            if not self._broker.progress(attempt, reply.body, now, is_part=True):
                self._broker.counters.dropped_parts += 1
        else:
            guest.answered = attempt.token
            if not self._broker.succeed(attempt, reply.body, now):
                self._remark_late(guest, job=attempt.job.id.hex())

    def _reply_out_of_turn(self, guest: MajordomoWorker, reply: WorkerReply, now: float) -> None:
        """Late, if it is for an attempt that there was (D2). Else it is made up, or its sender is out of step."""
        is_late = reply.client == guest.answered or bytes(reply.client[:17]) in self._owed
        if is_late:
            if reply.is_final:
                self._broker.counters.late_results += 1
            else:
                self._broker.counters.dropped_parts += 1
            self._remark_late(guest)
        if guest.worker is not None and is_late:
            self._broker.seen(guest.worker, now)
        elif not guest.is_parted:
            self._unexpected(guest, reply, now)

    def _hear_large(self, guest: MajordomoWorker, message: TooLarge, now: float) -> None:
        """A result over the limit was skipped as it came: the job has failed, the worker is free."""
        word = read_worker(message.frames, guest.wire)
        attempt = guest.attempt
        if type(word) is WorkerReply and word.is_final and attempt is not None and word.client == attempt.token:
            problem = message.malformed()
            self._line.bad_message(guest.peer, problem.reason, problem.detail)
            guest.answered = attempt.token
            self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)
            return
        raise message.malformed()

    def _unexpected(self, guest: MajordomoWorker, word: WorkerWord, now: float) -> None:
        """A valid command that is out of place (RFC 7)."""
        name = NAMES[type(word)]
        self._line.bad_message(guest.peer, "unexpected command", f"{name} from a worker that {_standing(guest)}")
        self._disconnect(guest, f"its worker was out of turn: {name}", now)

    def _remark_late(self, guest: MajordomoWorker, job: str = "") -> None:
        self._line.remark_limited("late result", peer=guest.peer, worker=guest.name, job=job)

    # ---------------------------------------------------------------- workers come and go

    def _join(self, guest: MajordomoWorker, service: str, now: float) -> None:
        worker = self._broker.join(self, guest, guest.name, (service,), self._terms, now, origin=guest.peer.label)
        if worker is None:
            # Told DISCONNECT, it would be back at once. Left in silence, it comes again when it misses our heartbeats.
            guest.is_parted = True
            self._line.complain("worker refused", peer=guest.peer, worker=guest.name, service=service)
            return
        guest.worker = worker
        guest.is_parted = False
        self._beat_later(guest, now)
        self._line.when_settled(guest.peer, partial(self._broker.idle, worker))

    def _beat_later(self, guest: MajordomoWorker, now: float) -> None:
        guest.beat_due = now + self._heartbeat
        self._beats[guest] = None
        self._beats.move_to_end(guest)

    def _leave(self, guest: MajordomoWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker = guest.worker
        if worker is not None:
            self._forget(guest)
            self._broker.leave(worker, now, reason, unseen)

    def _disconnect(self, guest: MajordomoWorker, reason: str, now: float) -> None:
        """Tell it to begin anew, once."""
        self._leave(guest, reason, now)
        if not guest.is_parted:
            guest.is_parted = True
            self._line.send(guest.peer, write_disconnect(guest.wire))

    def _dismiss(self, effect: RemoveWorker, now: float) -> None:
        guest = cast(MajordomoWorker, effect.worker.remote)
        if guest.worker is effect.worker:
            self._forget(guest)
            self._disconnect(guest, effect.reason, now)
            if effect.farewell is RemovalReason.STOPPED:
                self._line.close(guest.peer, effect.reason)  # its next READY is for the next broker

    def _forget(self, guest: MajordomoWorker) -> None:
        attempt, guest.worker = guest.attempt, None
        self._beats.pop(guest, None)
        if attempt is not None:
            self._owed[attempt.token] = None
            if len(self._owed) > OWED_KEPT:
                self._owed.popitem(last=False)

    # ---------------------------------------------------------------- clients

    def _hear_client(self, peer: Connection, caller: MajordomoCaller, message: Message | TooLarge, now: float) -> None:
        if type(message) is TooLarge:
            self._broker.counters.refused += 1
            self._broker.counters.silent_ending(REFUSED)
            raise Malformed("too large", f"{message.size} bytes are over max_payload {self._max_payload}")
        assert type(message) is list
        request = read_client(message, caller.wire)
        if request.service.startswith(RESERVED):
            told = self._look_up(request.service, request.body)
            self._line.send(peer, write_client_reply(caller.wire, request.service, told))
            return
        wishes = self._wishes if caller.wire.client_partial is None else self._streaming
        self._broker.submit(request.service, request.body, peer, wishes, now, owner=peer.owner)

    def _look_up(self, service: str, body: Frame) -> bytes:
        """RFC 8: what the broker says of itself."""
        if service != "mmi.service":
            return NOT_IMPLEMENTED
        known = self._broker.roster.services.get(body[: MAX_SERVICE_BYTES + 1].decode("utf-8", "replace"))
        return FOUND if known is not None and known.workers else NOT_FOUND

    def _answer(self, answer: DeliverOutcome) -> None:
        peer: Connection = answer.caller  # type: ignore[assignment]
        caller: MajordomoCaller = peer.guest
        job = answer.job
        peer.remove_job(job)
        if answer.outcome is DONE and job is not None:
            self._line.send(peer, write_client_reply(caller.wire, job.service.name, answer.result))
        else:
            self._broker.counters.silent_ending(answer.outcome)  # R73

    def _pass_on(self, progress: DeliverProgress) -> None:
        """A part of a result. What a job reports besides has no word here."""
        if progress.is_part:
            peer: Connection = progress.caller  # type: ignore[assignment]
            name = progress.attempt.job.service.name
            self._line.send(peer, write_client_part(peer.guest.wire, name, progress.payload))

    # ---------------------------------------------------------------- jobs go out

    def _give(self, attempt: Attempt) -> None:
        guest = cast(MajordomoWorker, attempt.worker.remote)
        self._line.send(guest.peer, write_worker_request(guest.wire, attempt.token, attempt.job.payload), attempt)


def _standing(guest: MajordomoWorker) -> str:
    if guest.worker is None:
        return "has not said READY"
    return "holds another job" if guest.attempt is not None else "holds no job"

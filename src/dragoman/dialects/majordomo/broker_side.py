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
from dragoman.dialects.listener_profile import default_job_options, silent_worker
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
from dragoman.dialects.majordomo.messages import Disconnect, Heartbeat, Ready, WorkerMessage, WorkerReply
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

    def __init__(self, broker: Broker, io: BrokerIO, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._io = io
        self._heartbeat = options.heartbeat
        self._max_payload = max_payload
        # D5: a worker with one thread, as in the Guide, cannot speak while it works. That it is dead is seen by D12.
        profile = silent_worker(options, options.heartbeat * options.liveness)
        self._profile = replace(profile, max_payload=max_payload, comes_back=True)
        self._job_options = default_job_options(options)
        self._streaming = replace(self._job_options, streams=True)
        self.routing_ids = RoutingIds(broker, io, self._supersede)
        self._beats: OrderedDict[MajordomoWorker, None] = OrderedDict()  # all workers, in the order of `beat_due`
        self._owed: OrderedDict[Token, None] = OrderedDict()

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        self.routing_ids.take(peer, now)

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        try:
            if remote is None:
                remote = self._meet(peer, message)
            if type(remote) is MajordomoWorker:
                self._receive_worker(remote, message, now)
            else:
                self._receive_client(peer, remote, message, now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            if type(remote) is MajordomoWorker:
                self._disconnect(remote, f"its worker was not understood: {problem.reason}", now)

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
        remote = peer.remote
        if isinstance(remote, MajordomoWorker):
            self._leave(remote, "its worker's connection ended", now, [m for m in unsent if isinstance(m, Attempt)])
        else:
            self._broker.caller_gone(peer, now)

    def tick(self, now: float) -> float:
        """Every worker hears of us once a period, idle or not. All have the same, so that who was told goes last."""
        for _ in range(BEATS_AT_ONCE):
            remote = next(iter(self._beats), None)
            if remote is None:
                return inf
            if remote.beat_due > now:
                return remote.beat_due
            self._beat_later(remote, now)
            self._io.send(remote.peer, write_heartbeat(remote.wire))
        return now

    # ---------------------------------------------------------------- whoever comes

    def _meet(self, peer: Connection, message: Message | TooLarge) -> MajordomoWorker | MajordomoCaller:
        wire, is_worker = recognise(message.frames if isinstance(message, TooLarge) else message)
        peer.remote = MajordomoWorker(peer, wire) if is_worker else MajordomoCaller(wire)
        return peer.remote  # type: ignore[no-any-return]

    def _supersede(self, former: Connection, now: float) -> None:
        if isinstance(former.remote, MajordomoWorker):
            self._leave(former.remote, CAME_BACK, now)

    # ---------------------------------------------------------------- what workers say

    def _receive_worker(self, remote: MajordomoWorker, message: Message | TooLarge, now: float) -> None:
        if type(message) is TooLarge:
            self._receive_large(remote, message, now)
            return
        assert type(message) is list
        parsed = read_worker(message, remote.wire)
        if type(parsed) is WorkerReply:
            self._reply(remote, parsed, now)
        elif remote.is_parted and type(parsed) is not Ready:
            pass  # it crossed our DISCONNECT
        elif type(parsed) is Heartbeat and remote.worker is not None:
            self._broker.seen(remote.worker, now)
        elif type(parsed) is Disconnect:
            self._leave(remote, "its worker said DISCONNECT", now)
            remote.is_parted = True
        elif type(parsed) is Ready and remote.worker is None:
            self._join(remote, parsed.service, now)
        else:
            self._unexpected(remote, parsed, now)

    def _reply(self, remote: MajordomoWorker, reply: WorkerReply, now: float) -> None:
        attempt = remote.attempt
        if attempt is None or reply.client != attempt.token:
            self._reply_out_of_turn(remote, reply, now)
        elif not reply.is_final:
            if not self._broker.progress(attempt, reply.body, now, is_part=True):
                self._broker.counters.dropped_parts += 1
        else:
            remote.answered = attempt.token
            if not self._broker.succeed(attempt, reply.body, now):
                self._remark_late(remote, job=attempt.job.id.hex())

    def _reply_out_of_turn(self, remote: MajordomoWorker, reply: WorkerReply, now: float) -> None:
        """Late, if it is for an attempt that there was (D2). Else it is made up, or its sender is out of step."""
        is_late = reply.client == remote.answered or bytes(reply.client[:17]) in self._owed
        if is_late:
            if reply.is_final:
                self._broker.counters.late_results += 1
            else:
                self._broker.counters.dropped_parts += 1
            self._remark_late(remote)
        if remote.worker is not None and is_late:
            self._broker.seen(remote.worker, now)
        elif not remote.is_parted:
            self._unexpected(remote, reply, now)

    def _receive_large(self, remote: MajordomoWorker, message: TooLarge, now: float) -> None:
        """A result over the limit was skipped as it came: the job has failed, the worker is free."""
        parsed = read_worker(message.frames, remote.wire)
        attempt = remote.attempt
        if type(parsed) is WorkerReply and parsed.is_final and attempt is not None and parsed.client == attempt.token:
            problem = message.malformed()
            self._io.bad_message(remote.peer, problem.reason, problem.detail)
            remote.answered = attempt.token
            self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)
            return
        raise message.malformed()

    def _unexpected(self, remote: MajordomoWorker, parsed: WorkerMessage, now: float) -> None:
        """A valid command that is out of place (RFC 7)."""
        name = NAMES[type(parsed)]
        self._io.bad_message(remote.peer, "unexpected command", f"{name} from a worker that {_standing(remote)}")
        self._disconnect(remote, f"its worker was out of turn: {name}", now)

    def _remark_late(self, remote: MajordomoWorker, job: str = "") -> None:
        self._io.remark_limited("late result", peer=remote.peer, worker=remote.name, job=job)

    # ---------------------------------------------------------------- workers come and go

    def _join(self, remote: MajordomoWorker, service: str, now: float) -> None:
        worker = self._broker.join(self, remote, remote.name, (service,), self._profile, now, origin=remote.peer.label)
        if worker is None:
            # Told DISCONNECT, it would be back at once. Left in silence, it comes again when it misses our heartbeats.
            remote.is_parted = True
            self._io.log_limited("worker refused", peer=remote.peer, worker=remote.name, service=service)
            return
        remote.worker = worker
        remote.is_parted = False
        self._beat_later(remote, now)
        self._io.when_settled(remote.peer, partial(self._broker.idle, worker))

    def _beat_later(self, remote: MajordomoWorker, now: float) -> None:
        remote.beat_due = now + self._heartbeat
        self._beats[remote] = None
        self._beats.move_to_end(remote)

    def _leave(self, remote: MajordomoWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker = remote.worker
        if worker is not None:
            self._forget(remote)
            self._broker.leave(worker, now, reason, unseen)

    def _disconnect(self, remote: MajordomoWorker, reason: str, now: float) -> None:
        """Tell it to begin anew, once."""
        self._leave(remote, reason, now)
        if not remote.is_parted:
            remote.is_parted = True
            self._io.send(remote.peer, write_disconnect(remote.wire))

    def _dismiss(self, effect: RemoveWorker, now: float) -> None:
        remote = cast(MajordomoWorker, effect.worker.remote)
        if remote.worker is effect.worker:
            self._forget(remote)
            self._disconnect(remote, effect.reason, now)
            if effect.farewell is RemovalReason.STOPPED:
                self._io.close(remote.peer, effect.reason)  # its next READY is for the next broker

    def _forget(self, remote: MajordomoWorker) -> None:
        attempt, remote.worker = remote.attempt, None
        self._beats.pop(remote, None)
        if attempt is not None:
            self._owed[attempt.token] = None
            if len(self._owed) > OWED_KEPT:
                self._owed.popitem(last=False)

    # ---------------------------------------------------------------- clients

    def _receive_client(
        self, peer: Connection, caller: MajordomoCaller, message: Message | TooLarge, now: float
    ) -> None:
        if type(message) is TooLarge:
            self._broker.counters.refused += 1
            self._broker.counters.unreported_outcome(REFUSED)
            raise Malformed("too large", f"{message.size} bytes are over max_payload {self._max_payload}")
        assert type(message) is list
        request = read_client(message, caller.wire)
        if request.service.startswith(RESERVED):
            told = self._look_up(request.service, request.body)
            self._io.send(peer, write_client_reply(caller.wire, request.service, told))
            return
        job_options = self._job_options if caller.wire.client_partial is None else self._streaming
        self._broker.submit(request.service, request.body, peer, job_options, now, owner=peer.owner)

    def _look_up(self, service: str, body: Frame) -> bytes:
        """RFC 8: what the broker says of itself."""
        if service != "mmi.service":
            return NOT_IMPLEMENTED
        known = self._broker.worker_registry.services.get(body[: MAX_SERVICE_BYTES + 1].decode("utf-8", "replace"))
        return FOUND if known is not None and known.workers else NOT_FOUND

    def _answer(self, answer: DeliverOutcome) -> None:
        peer: Connection = answer.caller  # type: ignore[assignment]
        caller: MajordomoCaller = peer.remote
        job = answer.job
        peer.remove_job(job)
        if answer.outcome is DONE and job is not None:
            self._io.send(peer, write_client_reply(caller.wire, job.service.name, answer.result))
        else:
            self._broker.counters.unreported_outcome(answer.outcome)  # R73

    def _pass_on(self, progress: DeliverProgress) -> None:
        """A part of a result. What a job reports besides has no word here."""
        if progress.is_part:
            peer: Connection = progress.caller  # type: ignore[assignment]
            name = progress.attempt.job.service.name
            self._io.send(peer, write_client_part(peer.remote.wire, name, progress.payload))

    # ---------------------------------------------------------------- jobs go out

    def _give(self, attempt: Attempt) -> None:
        remote = cast(MajordomoWorker, attempt.worker.remote)
        self._io.send(remote.peer, write_worker_request(remote.wire, attempt.token, attempt.job.payload), attempt)


def _standing(remote: MajordomoWorker) -> str:
    if remote.worker is None:
        return "has not said READY"
    return "holds another job" if remote.attempt is not None else "holds no job"

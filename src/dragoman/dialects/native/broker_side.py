"""The broker's side of the native dialect: clients and workers on one listener.

A connection has no role until its HELLO. Then its record is a `RemoteWorker` (with the core's worker) or a
`ClientSession`, and `RemoteWorkers` or `Clients` handles its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core import recipients
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.handover import MoveWorker
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.oversize import over_max_payload
from dragoman.core.recording import record_heartbeat
from dragoman.core.states import RefusalReason
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.native.client_sessions import ClientSession
from dragoman.dialects.native.clients import Clients
from dragoman.dialects.native.codec import expect_frames, read_hello, write_error, write_welcome
from dragoman.dialects.native.extras import OF_SUBMIT
from dragoman.dialects.native.job_extras import OF_JOB
from dragoman.dialects.native.messages import (
    BYE,
    HEARTBEAT,
    HELLO,
    MESSAGE_NAMES,
    TOO_LARGE,
    VERSION,
    Hello,
    Role,
    Welcome,
    name_of,
)
from dragoman.dialects.native.operations import Operations
from dragoman.dialects.native.options import ListenerOptions
from dragoman.dialects.native.remote_workers import RemoteWorker, RemoteWorkers

HEARTBEAT_FRAMES: Final[list[Frame]] = [bytes((HEARTBEAT,))]


class NativeBrokerSide(BrokerSide):
    dialect = "native"

    def __init__(
        self,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        max_payload: int,
        about: str,
        operations: Operations | None = None,
    ) -> None:
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._about = about
        self._clients = Clients(self, broker, io, options, operations, max_payload)
        self._workers = RemoteWorkers(self, broker, io, options, max_payload)

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        peer.remote = None

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        try:
            if isinstance(message, TooLarge):
                self._receive_large(peer, message, now)
                return
            head = message[0]
            if not head:
                raise Malformed("malformed", "the head is empty")
            if type(head) is bytearray:
                message[0] = head = bytes(head)
            kind = head[0]
            if type(remote) is RemoteWorker:
                if remote.worker is not None:
                    self._broker.seen(remote.worker, now)
                receive_worker = self._workers.handlers.get(kind)
                if receive_worker is not None:
                    receive_worker(remote, message, now)
                    return
            elif type(remote) is ClientSession:
                receive_client = self._clients.handlers.get(kind)
                if receive_client is not None:
                    receive_client(remote, message, now)
                    return
            self._receive_other(peer, kind, message, now)
        except Malformed as problem:
            self._send_error(peer, message, problem)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._workers.send_job(effect.attempt)
        elif type(effect) is DeliverOutcome:
            self._clients.answer(effect, now)
        elif isinstance(effect, CancelAttempt):
            self._workers.cancel(effect.attempt, effect.reason, now)
        elif isinstance(effect, DeliverProgress):
            self._clients.send_report(effect, now)
        elif isinstance(effect, RemoveWorker):
            self._workers.remove(effect)
        elif isinstance(effect, MoveWorker):
            self._workers.send_away(effect.worker)
        # Acknowledge: background jobs are submitted by an operation, whose response acknowledges them.

    def unsent(self, remote: recipients.RemoteWorker) -> int:
        return self._io.unsent(cast(RemoteWorker, remote).peer)

    def refusal(self, reason: str) -> list[Frame]:
        return write_error(HELLO, RefusalReason.FORBIDDEN, reason)

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        remote, peer.remote = peer.remote, None
        if type(remote) is RemoteWorker:
            self._workers.lost(remote, unsent, now)
        elif type(remote) is ClientSession and remote.peer is peer:
            self._clients.lost(remote, now)

    def tick(self, now: float) -> float:
        return self._clients.tick(now)

    def say_goodbye(self, reason: str) -> None:
        """Tell the clients that the broker stops. Workers have been removed before."""
        self._clients.say_goodbye(reason)

    # ---------------------------------------------------------------- messages of both roles

    def _receive_other(self, peer: Connection, kind: int, message: Message, now: float) -> None:
        remote = peer.remote
        if remote is None:
            if kind != HELLO:
                raise Malformed("hello first", f"{name_of(kind)} came before HELLO")
            self._hello(peer, read_hello(message), now)
        elif kind == HEARTBEAT:
            expect_frames(message, 1)
            if type(remote) is RemoteWorker and remote.worker is not None:
                record_heartbeat(remote.worker, "HEARTBEAT", now)
            self._io.send(peer, HEARTBEAT_FRAMES)
        elif kind == BYE:
            expect_frames(message, 2)
            if type(remote) is ClientSession:
                self._clients.leave(remote)
            else:
                self._workers.leave(remote, "its worker sent BYE", now)
            self._io.close(peer, "it sent BYE")
        elif kind == HELLO:
            raise Malformed("twice", "HELLO again on the same connection")
        elif kind in MESSAGE_NAMES:
            sender = "a client" if type(remote) is ClientSession else "a worker"
            raise Malformed("role", f"{name_of(kind)} must not be sent by {sender}")
        else:
            raise Malformed("unknown word", f"{name_of(kind)} is not a message type of version {VERSION}")

    def _hello(self, peer: Connection, hello: Hello, now: float) -> None:
        is_worker = hello.role is Role.WORKER
        forbidden = self._workers.enter(peer, hello, now) if is_worker else self._clients.forbidden(peer)
        if forbidden is not None:
            self._io.send(peer, write_error(HELLO, RefusalReason.FORBIDDEN, forbidden))
            self._io.close(peer, forbidden)
        elif is_worker:
            extras: tuple[str, ...] = OF_JOB if hello.extras else ()
            brought = peer.remote.brought if type(peer.remote) is RemoteWorker else ()
            self._welcome(
                peer,
                Role.WORKER,
                retries=hello.retries,
                extras=extras,
                limits=bool(hello.limits),
                running=brought,
                parameters=hello.parameters is not None,
            )
        else:
            client, resumed = self._clients.enter(peer, hello, now)
            understood = OF_SUBMIT if hello.extras else ()
            self._welcome(peer, Role.CLIENT, client.window, resumed, client.epoch, extras=understood)

    def _welcome(
        self,
        peer: Connection,
        role: Role,
        window: int = 0,
        resumed: bool = False,
        epoch: str = "",
        retries: bool = False,
        extras: tuple[str, ...] = (),
        limits: bool = False,
        running: tuple[bytes, ...] = (),
        parameters: bool = False,
    ) -> None:
        options = self._options
        welcome = Welcome(
            options.heartbeat,
            options.lease,
            self._max_payload,
            window,
            options.client_resume_timeout,
            resumed,
            epoch,
            self._about,
            retries,
            extras,
            limits,
            parameters,
            running,
        )
        self._io.send(peer, write_welcome(welcome, role))

    def _receive_large(self, peer: Connection, message: TooLarge, now: float) -> None:
        """Handle a message over the limit, which the carrier has dropped except for its leading frames."""
        sentence = over_max_payload("a message", message.size, self._max_payload)
        frames, remote = message.frames, peer.remote
        kind = frames[0][0] if frames and frames[0] else 0
        if type(remote) is RemoteWorker:
            if remote.worker is not None:
                self._broker.seen(remote.worker, now)
            self._workers.receive_large(remote, kind, message, now, sentence)
        elif type(remote) is ClientSession:
            self._clients.receive_large(remote, kind, message, sentence)
        else:
            raise Malformed(TOO_LARGE, sentence)

    def _send_error(self, peer: Connection, message: Message | TooLarge, problem: Malformed) -> None:
        """Send an error (D6). A connection without HELLO is closed: it probably uses another protocol."""
        frames = message.frames if isinstance(message, TooLarge) else message
        kind = frames[0][0] if frames and frames[0] else 0
        self._io.bad_message(peer, problem.reason, problem.detail)
        self._io.send(peer, write_error(kind, problem.reason, problem.detail))
        if peer.remote is None:
            self._io.close(peer, f"{problem.reason}: {problem.detail}")

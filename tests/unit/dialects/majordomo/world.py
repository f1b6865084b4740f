"""Majordomo in the world of dialects: clients and workers of every edition, written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from dialect_world import DialectWorld, ZmtpEnd
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.model import Worker
from dragoman.core.policy import Policy
from dragoman.dialects.majordomo.broker_side import (
    UNANSWERED_KEPT,
    MajordomoBrokerSide,
    MajordomoCaller,
    RemoteMajordomoWorker,
)
from dragoman.dialects.majordomo.options import ListenerOptions
from dragoman.server.admission import AdmissionLimits

MAX_PAYLOAD = 10_000
ECHO = b"echo"


@dataclass(frozen=True)
class Speech:
    """One edition, by hand."""

    name: str
    worker: tuple[bytes, ...]
    client: tuple[bytes, ...]  # what a request begins with
    partial: tuple[bytes, ...]  # what a part that comes to a client begins with, without the service
    final: tuple[bytes, ...]
    names_service: bool
    reply: bytes
    part: bytes
    heartbeat: bytes
    disconnect: bytes

    def __str__(self) -> str:
        return self.name

    def answer(self, service: bytes, *body: bytes, part: bool = False) -> list[bytes]:
        name = (service,) if self.names_service else ()
        return [*(self.partial if part else self.final), *name, *body]


RFC7 = Speech("0.1", (b"", b"MDPW01"), (b"", b"MDPC01"), (), (b"", b"MDPC01"), True, b"\x03", b"", b"\x04", b"\x05")
RFC18 = Speech(
    "0.2",
    (b"MDPW02",),
    (b"MDPC02", b"\x01"),
    (b"MDPC02", b"\x02"),
    (b"MDPC02", b"\x03"),
    True,
    b"\x04",
    b"\x03",
    b"\x05",
    b"\x06",
)
DELIMITED = Speech(
    "0.2-delimited",
    (b"", b"MDPW02"),
    (b"", b"MDPC02", b"\x01"),
    (b"", b"MDPC02", b"\x02"),
    (b"", b"MDPC02", b"\x03"),
    True,
    b"\x04",
    b"\x03",
    b"\x05",
    b"\x06",
)
FIELD = Speech(
    "0.2-field",
    (b"", b"MDPW02"),
    (b"", b"MDPC02", b"\x02"),
    (b"", b"MDPC02", b"\x03"),
    (b"", b"MDPC02", b"\x04"),
    False,
    b"\x04",
    b"\x03",
    b"\x05",
    b"\x06",
)
SPEECHES = [RFC7, RFC18, DELIMITED, FIELD]


class Side(ZmtpEnd):
    """The remote end of a connection: a DEALER of a ZeroMQ library."""

    def __init__(self, world: World, speech: Speech, identity: bytes) -> None:
        super().__init__(world, Zmtp("DEALER", identity, dials=True))
        self.speech = speech
        self.client = b""  # what came with its last REQUEST

    def receive(self, *frames: bytes) -> None:
        self.send(frames)

    def raw(self, *frames: bytes) -> list[list[bytes]]:
        """Send a message and run an iteration. Returns the messages received since the last call."""
        self.receive(*frames)
        self.world.run_once()
        return self.told()

    def told(self) -> list[list[bytes]]:
        return self.messages()

    # what a worker says and hears

    def command(self, command: bytes, *rest: bytes) -> list[str]:
        self.receive(*self.speech.worker, command, *rest)
        self.world.run_once()
        return self.words()

    def ready(self, service: bytes = ECHO) -> list[str]:
        return self.command(b"\x01", service)

    def heartbeat(self) -> list[str]:
        return self.command(self.speech.heartbeat)

    def disconnect(self) -> list[str]:
        return self.command(self.speech.disconnect)

    def reply(self, *body: bytes, client: bytes | None = None, part: bool = False) -> list[str]:
        command = self.speech.part if part else self.speech.reply
        return self.command(command, self.client if client is None else client, b"", *(body or (b"result",)))

    def words(self) -> list[str]:
        """Return a worker's received messages without heads; a REQUEST as its body, frames joined by `|`."""
        said = []
        at = len(self.speech.worker)
        for message in self.told():
            assert tuple(message[:at]) == self.speech.worker, message
            command, *rest = message[at:]
            if command == b"\x02":
                self.client, empty, *body = rest
                assert empty == b""
                assert len(self.client) == 16
                said.append(b"|".join(body).decode("latin1"))
            else:
                assert not rest
                said.append({self.speech.heartbeat: "HEARTBEAT", self.speech.disconnect: "DISCONNECT"}[command])
        return said

    # what a client says

    def call(self, *body: bytes, service: bytes = ECHO) -> list[list[bytes]]:
        self.receive(*self.speech.client, service, *body)
        self.world.run_once()
        return self.told()

    def done(self, *body: bytes, service: bytes = ECHO) -> bool:
        """Tell if it has received this result, and nothing else."""
        return self.told() == [self.speech.answer(service, *body)]


class World(DialectWorld):
    session: MajordomoBrokerSide

    def __init__(self, *, policy: Policy | None = None, limits: AdmissionLimits | None = None, **options: Any) -> None:
        super().__init__("majordomo", policy=policy, limits=limits)
        self.options = ListenerOptions(**options)
        self.carrier = partial(Zmtp, "ROUTER", limits=ZmtpLimits(max_payload=MAX_PAYLOAD))
        self.session = MajordomoBrokerSide(self.broker, self.connections, self.options, MAX_PAYLOAD)
        self.serve(self.session)

    # ---------------------------------------------------------------- who is there

    def connect(self, speech: Speech = RFC7, identity: bytes = b"") -> Side:
        """Open a connection without a message."""
        side = self.accept(Side(self, speech, identity), "listener", self.carrier())
        self.run_once()
        return side

    def worker(self, speech: Speech = RFC7, identity: bytes = b"", service: bytes = ECHO) -> Side:
        """Return a worker that has sent READY; it is idle unless a job waited for it."""
        side = self.connect(speech, identity)
        side.receive(*speech.worker, b"\x01", service)
        self.run_once()
        assert self.state(side) in ("idle", "busy")
        return side

    def client(self, *body: bytes, speech: Speech = RFC7, service: bytes = ECHO) -> Side:
        """Return a new client that has sent one job."""
        side = self.connect(speech)
        assert side.call(*(body or (b"job",)), service=service) == []
        return side

    def busy(self, speech: Speech = RFC7, client_speech: Speech = RFC7) -> tuple[Side, Side]:
        """Return a worker that has just received a job, and the client that waits for it."""
        worker = self.worker(speech)
        client = self.client(speech=client_speech)
        assert worker.words() == ["job"]
        return worker, client

    # ---------------------------------------------------------------- what to look at

    def remote(self, side: Side) -> RemoteMajordomoWorker:
        remote = side.peer.remote
        assert isinstance(remote, RemoteMajordomoWorker)
        return remote

    def worker_of(self, side: Side) -> Worker:
        worker = self.remote(side).worker
        assert worker is not None
        return worker

    def state(self, side: Side) -> str:
        if side.is_over:
            return "gone"
        remote = side.peer.remote
        if remote is None or isinstance(remote, MajordomoCaller):
            return "new"
        if remote.worker is not None:
            return str(remote.worker.state)
        return "parted" if remote.is_parted else "new"

    # ---------------------------------------------------------------- time and turns

    def wait_beating(self, seconds: float, *workers: Side) -> None:
        """Let time pass, while these workers send HEARTBEAT."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.wait(min(self.options.heartbeat, until - self.now))
            for each in workers:
                each.receive(*each.speech.worker, each.speech.heartbeat)

    # ---------------------------------------------------------------- what must hold

    def check_books(self) -> None:
        met = {}
        for peer in self.connections.peers:
            remote = peer.remote
            if isinstance(remote, RemoteMajordomoWorker):
                assert remote.peer is peer
                if remote.worker is None:
                    assert remote.attempt is None, f"{peer.label} holds an attempt and is nobody"
                else:
                    assert not remote.is_parted
                    met[remote.worker.id] = remote
                    held = [*remote.worker.running.values(), *remote.worker.stuck.values()]
                    assert held == ([] if remote.attempt is None else [remote.attempt])
            elif isinstance(remote, MajordomoCaller):
                assert all(job.id in self.broker.jobs for job in peer.open_jobs())
        assert met.keys() == self.broker.worker_registry.workers.keys(), "broker and session know different workers"
        beats = list(self.session._beats)
        assert {id(each) for each in beats} == {id(each) for each in met.values()}
        dues = [each.beat_due for each in beats]
        assert dues == sorted(dues), "heartbeats are not in order"
        assert len(self.session._unanswered) <= UNANSWERED_KEPT
        named = self.session.routing_ids.owners
        assert all(peer in self.connections.peers and peer.identity == name for (_, name), peer in named.items())


every = pytest.mark.parametrize("speech", SPEECHES, ids=str)
UNKNOWN = b"made up by him.."

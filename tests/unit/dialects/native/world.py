"""The native dialect in the world of dialects: clients and workers whose bytes are written by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import count
from typing import Any

from dialect_world import DialectWorld, ZmtpEnd
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.model import Caller as CoreCaller
from dragoman.core.policy import Policy
from dragoman.core.states import ENDED
from dragoman.dialects.native.broker_side import NativeBrokerSide
from dragoman.dialects.native.client_sessions import ClientSession
from dragoman.dialects.native.clients import MOST_PARSED
from dragoman.dialects.native.options import ListenerOptions
from dragoman.dialects.native.remote_workers import RemoteWorker
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.json_api import JsonOperations
from dragoman.operations.schemas import HealthView
from dragoman.server.admission import AdmissionLimits
from owners import LOCAL_OWNER

MAX_PAYLOAD = 100_000
HEADS = 65_536
SECRET = "00112233445566778899aabbccddeeff"
OUTCOMES = {1: "failed", 2: "timed out", 3: "lost", 4: "cancelled", 5: "refused"}
WORDS = {
    0x01: "HELLO",
    0x02: "WELCOME",
    0x03: "ERROR",
    0x04: "HEARTBEAT",
    0x05: "DRAIN",
    0x06: "BYE",
    0x10: "SUBMIT",
    0x11: "ACCEPTED",
    0x12: "CANCEL",
    0x13: "ACK",
    0x14: "RESUME",
    0x15: "MISSING",
    0x20: "RESULT",
    0x21: "FAILED",
    0x22: "PROGRESS",
    0x23: "PART",
    0x30: "JOB",
    0x31: "RECALL",
    0x32: "RETURN",
    0x33: "MOVE",
    0x40: "ASK",
    0x41: "TELL",
    0x42: "OBJECT",
}
NUMBERS = {word: number for number, word in WORDS.items()}
READY = HealthView(ready=True, problems=[], version="0", jobs=0, workers=0, peers=0, draining=False, loading=False)
Frames = list[bytes]


# -------------------------------------------------------------------- what peers say, byte for byte


def hello(role: int, about: object, version: int = 1) -> Frames:
    return [bytes((1, version, role)), about if isinstance(about, bytes) else json.dumps(about).encode()]


def submit(
    jobs: Sequence[tuple[bytes, bytes]],
    service: str | bytes = "echo",
    *,
    flags: int = 0,
    priority: int = 255,
    attempts: int = 0,
    deadline: int = 0,
    job_timeout: int = 0,
    queue_timeout: int = 0,
) -> Frames:
    """Encode SUBMIT. Times are in milliseconds."""
    head = struct.pack(">BBBBIII", 0x10, flags, priority, attempts, deadline, job_timeout, queue_timeout)
    name = service.encode() if isinstance(service, str) else service
    return [head + name, b"".join(id for id, _ in jobs), *(payload for _, payload in jobs)]


def names(word: str, *ids: bytes) -> Frames:
    return [bytes((NUMBERS[word],)), b"".join(ids)]


def result(*answers: tuple[bytes, bytes]) -> Frames:
    return [b"\x20" + b"".join(name for name, _ in answers), *(payload for _, payload in answers)]


def failed(
    name: bytes, type: str = "ValueError", message: str = "not so", detail: str = "", outcome: int = 1
) -> Frames:
    return [bytes((0x21, outcome)) + name, type.encode(), message.encode(), detail.encode()]


def report(word: str, token: bytes, payload: bytes) -> Frames:
    return [bytes((NUMBERS[word],)) + token, payload]


def ask(number: bytes, question: str, form: object = None, payload: bytes | None = None) -> Frames:
    frames = [
        b"\x40" + number + question.encode(),
        form if isinstance(form, bytes) else json.dumps(form or {}).encode(),
    ]
    return frames if payload is None else [*frames, payload]


def new_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


A, B, C, D = (letter * 16 for letter in (b"A", b"B", b"C", b"D"))


# -------------------------------------------------------------------- what they hear


Said = tuple[Any, ...]


def read(frames: Frames) -> list[Said]:
    """Parse a message of the broker into tuples; a batch becomes several."""
    head, rest = frames[0], frames[1:]
    word = WORDS[head[0]]
    if word in ("WELCOME",):
        (about,) = rest
        return [(word, head[1], json.loads(about))]
    if word == "ERROR":
        code, sentence = rest
        assert sentence.decode()
        return [(word, WORDS.get(head[1], head[1]), code.decode())]
    if word == "HEARTBEAT":
        assert (len(head), rest) == (1, [])
        return [(word,)]
    if word == "BYE":
        (sentence,) = rest
        return [(word, head[1], sentence.decode())]
    if word in ("ACCEPTED", "MISSING"):
        assert len(head) == 1
        return [(word, each) for each in split(rest[0])]
    if word == "RESULT":
        return [(word, name, payload) for name, payload in zip(split(head[1:]), rest, strict=True)]
    if word == "FAILED":
        type, message, detail = (each.decode() for each in rest)
        assert len(head) == 18
        return [(word, OUTCOMES[head[1]], head[2:], type, message, detail)]
    if word in ("PROGRESS", "PART"):
        (payload,) = rest
        assert len(head) == 19
        return [(word, head[1:17], int.from_bytes(head[17:], "big"), payload)]
    if word == "JOB":
        records = [rest[0][at : at + 38] for at in range(0, len(rest[0]), 38)]
        return [
            (word, *struct.unpack(">16s16sHI", record), head[1:].decode(), payload)
            for record, payload in zip(records, rest[1:], strict=True)
        ]
    if word == "TELL":
        view, payload = rest
        assert len(head) == 9
        return [(word, head[1:], json.loads(view), payload)]
    if word == "OBJECT":
        kind, detail = rest
        assert len(head) == 9
        assert detail.decode()
        return [(word, head[1:], kind.decode())]
    assert word == "RECALL"
    (reason,) = rest
    assert len(head) == 17
    return [(word, head[1:], reason.decode())]


def split(frame: bytes) -> list[bytes]:
    assert frame
    assert len(frame) % 16 == 0
    return [frame[at : at + 16] for at in range(0, len(frame), 16)]


class End(ZmtpEnd):
    """The remote end of a connection: a DEALER of a ZeroMQ library."""

    def __init__(self, world: World) -> None:
        super().__init__(world, Zmtp("DEALER", dials=True, limits=ZmtpLimits(max_frames=2000)))

    def receive(self, frames: Frames) -> None:
        self.send(frames)

    def say(self, *frames: bytes) -> list[Said]:
        """Send a message and run an iteration. Returns the messages received since the last call."""
        self.receive(list(frames))
        self.world.run_once()
        return self.told()

    def told(self) -> list[Said]:
        return [said for message in self.messages() for said in read(message)]


class Other(CoreCaller):
    """A caller of another dialect, which records its outcomes."""

    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)
        self.told: list[Effect] = []

    def execute(self, effect: Effect, now: float) -> None:
        assert isinstance(effect, DeliverOutcome | DeliverProgress)
        self.told.append(effect)


class World(DialectWorld):
    session: NativeBrokerSide

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        limits: AdmissionLimits | None = None,
        strict: bool = True,
        max_payload: int = MAX_PAYLOAD,
        offset: float = 1_700_000_000.0,
        about: str = "test",
        **options: Any,
    ) -> None:
        """`offset`: the time of day less the world's time, in seconds. `about`: the broker's name in WELCOME."""
        super().__init__("native", policy=policy, limits=limits, strict=strict)
        self._max_payload = max_payload
        self.epochs: dict[str, str] = {}  # by secret, as the last WELCOME said
        self._ids = count(1)
        self._living: tuple[End, ...] = ()
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, self.store, lambda: offset, lambda: READY
        )
        self.runner.sessions.append(self.operations)
        self.options = ListenerOptions(**options)
        operations = JsonOperations(self.operations)
        self.session = NativeBrokerSide(self.broker, self.connections, self.options, max_payload, about, operations)
        self.serve(self.session)

    # ---------------------------------------------------------------- who is there

    def connect(self) -> End:
        limits = ZmtpLimits(max_payload=self._max_payload + HEADS, max_frames=1027)
        end = self.accept(End(self), "listener", Zmtp("ROUTER", limits=limits))
        self.run_once()
        return end

    def client(self, secret: str = "", **about: Any) -> End:
        """Return a client that has received WELCOME."""
        end = self.connect()
        if secret:
            about["session"] = secret
        ((word, _, welcome),) = end.say(*hello(1, about))
        assert word == "WELCOME"
        self.epochs[secret.lower()] = welcome.get("epoch", "")
        return end

    def worker(self, *services: str, capacity: int = 1, **about: object) -> End:
        """Return a worker that has received WELCOME. Jobs that waited for it are not taken."""
        end = self.connect()
        end.receive(hello(2, {"services": services or ["echo"], "capacity": capacity} | about))
        self.run_once()
        (welcome,) = read(end.inbox.pop(0))
        assert welcome[0] == "WELCOME"
        return end

    def resumed(self, secret: str = SECRET) -> tuple[End, bool]:
        """Connect a client again. Returns it, and whether it resumed its session."""
        end = self.connect()
        epoch = self.epochs.get(secret, "")
        ((word, _, about),) = end.say(*hello(1, {"session": secret, "epoch": epoch}))
        assert word == "WELCOME"
        self.epochs[secret] = about.get("epoch", "")
        return end, about["resumed"]

    def submit(self, client: End, *payloads: bytes, **asked: Any) -> list[bytes]:
        """Submit jobs with new ids. Returns the ids."""
        ids = [new_id(next(self._ids)) for _ in payloads]
        client.receive(submit(list(zip(ids, payloads, strict=True)), **asked))
        self.run_once()
        return ids

    def running(self, worker: End, client: End, payload: bytes = b"job", **asked: Any) -> tuple[bytes, bytes]:
        """Return token and id of a job that the worker has just received."""
        (id,) = self.submit(client, payload, **asked)
        (job,) = worker.told()
        assert (job[0], job[2], job[6]) == ("JOB", id, payload)
        return job[1], id

    # ---------------------------------------------------------------- what to look at

    def client_of(self, end: End) -> ClientSession:
        assert isinstance(end.peer.remote, ClientSession)
        return end.peer.remote

    def state(self, worker: End) -> str:
        remote = worker.peer.remote
        return str(remote.worker.state) if isinstance(remote, RemoteWorker) and remote.worker is not None else "gone"

    # ---------------------------------------------------------------- time and turns

    def wait(self, seconds: float, *living: End) -> None:
        """Let time pass; these workers send heartbeats."""
        self._living = living
        super().wait(seconds)
        self._living = ()
        for end in living:
            end.inbox = [each for each in end.inbox if each != [b"\x04"]]

    def pass_time(self) -> None:
        for end in self._living:
            if not end.is_over:
                end.receive([b"\x04"])

    # ---------------------------------------------------------------- what must hold

    def check_books(self) -> None:
        session = self.session
        assert not session._workers._with_jobs
        assert not session._clients._with_results
        assert len(session._clients._parsed) <= MOST_PARSED
        remotes = [peer.remote for peer in self.connections.peers]
        at_work = {
            remote.worker.id for remote in remotes if isinstance(remote, RemoteWorker) and remote.worker is not None
        }
        assert at_work == set(self.broker.worker_registry.workers), "broker and session know different workers"
        assert not any(remote.unsent for remote in remotes if isinstance(remote, RemoteWorker))
        sessions = session._clients.sessions
        assert all(client.peer is None for client in sessions._away.values())
        assert len(sessions._away) <= self.options.max_sessions
        clients = {id(remote): remote for remote in remotes if isinstance(remote, ClientSession)}
        for secret, client in sessions._by_secret.items():
            assert client.secret == secret
            assert (client.peer is None) == (secret in sessions._away), "away, or not?"
            clients[id(client)] = client
        known = sum(client.count_open() for client in clients.values())
        theirs = [
            job for job in self.broker.jobs.values() if any(isinstance(each, ClientSession) for each in job.callers)
        ]
        assert known == len(theirs), "a job that its client does not know of, or the other way round"
        for client in clients.values():
            self._check_client(client)

    def _check_client(self, client: ClientSession) -> None:
        if client.peer is not None:
            assert client.peer.remote is client
        assert not client.refused
        assert not client.done
        assert not client.results
        for id_, job in ((job.id, job) for job in client.open_jobs()):
            assert job.id == id_
            assert job.state is not ENDED
            assert client in job.callers
        assert client.count_open() <= client.window
        assert len(client.operations) <= client.window
        assert client.peer is not None or not client.operations, "nobody waits for these answers"
        sizes = [len(outcomes.ids) for outcomes in client._kept]
        assert client._kept_count == sum(sizes)
        assert client._kept_count - (sizes[0] if sizes else 0) < client.window
        assert client._kept_bytes == sum(outcomes.size for outcomes in client._kept)
        assert client._kept_bytes <= self.options.max_kept_bytes
        assert client.secret or not client._kept

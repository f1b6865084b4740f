"""MemoDB in the world of dialects: workers and callers that share connections, as bytes."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any, NamedTuple

import cbor2
import pytest

from dialect_world import HOME, DialectWorld, End
from dragoman.carriers.sp import Sp, SpLimits
from dragoman.core.model import Worker
from dragoman.core.policy import Policy
from dragoman.core.states import JobState, WorkerState
from dragoman.dialects.memodb.broker_side import MemoDbBrokerSide
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import ConnectionRecord, PendingCall, RemoteMemoDbWorker
from dragoman.dialects.memodb.reply_cache import RECORD
from dragoman.server.admission import AdmissionLimits

VERSION = "memo01"
READY, JOB, RESULT, HEARTBEAT, DISCONNECT = 1, 2, 3, 4, 5
WORDS = {READY: "READY", JOB: "JOB", RESULT: "RESULT", HEARTBEAT: "HEARTBEAT", DISCONNECT: "DISCONNECT"}
FIELDS = {JOB: 5, RESULT: 3, HEARTBEAT: 3, DISCONNECT: 3}  # what a broker says has exactly as many
REQ_GREETING = b"\0SP\0\0\x30\0\0"
REP_GREETING = b"\0SP\0\0\x31\0\0"
ASK = 0x8000_0000  # the bit that marks the request id among the words of a route

MAX_PAYLOAD = 100_000
ELSEWHERE = "192.0.2.2"
DAY = 86_400_000  # in milliseconds, as in a JOB


def ready(*services: str, id: bytes = b"") -> bytes:
    return header(READY, id, list(services or ("echo",)))


def job(payload: bytes = b"job", *, service: str = "echo", timeout: int = 5_000, id: bytes = b"") -> bytes:
    return header(JOB, id, service, timeout) + payload


def result(id: bytes, payload: bytes = b"result", *flag: bool) -> bytes:
    return header(RESULT, id, *flag) + payload


def heartbeat(id: bytes) -> bytes:
    return header(HEARTBEAT, id)


def header(*items: object) -> bytes:
    """Encode deterministically, with an independent library."""
    return cbor2.dumps([VERSION, *items], canonical=True)


class Said(NamedTuple):
    """One parsed reply."""

    request: int
    word: str
    id: bytes
    fields: tuple[Any, ...] = ()
    payload: bytes = b""


class Side(End):
    """The remote end of a connection: a REQ socket with any number of contexts."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.asked: Counter[bytes] = Counter()  # by route: so many answers it may get
        self.told: Counter[bytes] = Counter()
        self._seen = 0  # bytes of `stream.taken` looked at
        self._inbox: list[Said] = []

    @property
    def is_lost(self) -> bool:
        return self.peer.is_lost

    @property
    def contacts(self) -> ConnectionRecord:
        contacts = self.peer.remote
        assert isinstance(contacts, ConnectionRecord)
        return contacts

    def receive(self, request: int, body: bytes, *hops: int) -> None:
        """Send a request, without an iteration."""
        route = b"".join(word.to_bytes(4, "big") for word in (*hops, request | ASK))
        self.asked[route] += 1
        self.feed(len(route + body).to_bytes(8, "big") + route + body)

    def ask(self, request: int, body: bytes, *hops: int) -> list[Said]:
        """Send a request. Returns the replies since the last call."""
        self.receive(request, body, *hops)
        self.world.run_once()
        return self.heard()

    def heard(self) -> list[Said]:
        """Return the replies since the last call."""
        self.look()
        heard, self._inbox = self._inbox, []
        return heard

    def look(self) -> None:
        """Parse received bytes: the greeting, then whole messages, each a reply to a request."""
        data = self.stream.taken
        if self._seen == 0 and len(data) >= 8:
            assert data[:8] == REP_GREETING
            self._seen = 8
        while 8 <= self._seen <= len(data) - 8:
            start = self._seen + 8
            end = start + int.from_bytes(data[self._seen : start], "big")
            if end > len(data):
                break
            self._seen = end
            self._inbox.append(self._read(bytes(data[start:end])))

    def _read(self, message: bytes) -> Said:
        at = 0
        while message[at] < 0x80:
            at += 4
        route, body = message[: at + 4], message[at + 4 :]
        self.told[route] += 1
        assert self.told[route] <= self.asked[route], f"more answers than requests under {route.hex()}"
        items = cbor2.loads(body[: _header_length(body)])
        encoded = cbor2.dumps(items, canonical=True)
        assert body.startswith(encoded), "what we say is encoded deterministically"
        version, kind, id, *fields = items
        payload = body[len(encoded) :]
        assert version == VERSION
        assert len(items) == FIELDS[kind]
        assert not payload or kind in (JOB, RESULT)
        assert kind != RESULT or id == b""
        return Said(int.from_bytes(route[-4:], "big") - ASK, WORDS[kind], id, tuple(fields), payload)


def _header_length(body: bytes) -> int:
    """Return the length of the first CBOR item; the broker's are arrays of short items."""
    at = 1
    for _ in range(body[0] - 0x80):
        major, info = body[at] >> 5, body[at] & 31
        at += 1
        value = info
        if info >= 24:
            size = 1 << info - 24
            value = int.from_bytes(body[at : at + size], "big")
            at += size
        if major in (2, 3):
            at += value
    return at


class World(DialectWorld):
    session: MemoDbBrokerSide

    def __init__(self, *, policy: Policy | None = None, limits: AdmissionLimits | None = None, **options: Any) -> None:
        super().__init__("memodb", policy=policy, limits=limits)
        self.options = ListenerOptions(**options)
        self.doubles: set[object] = set()  # keys under which two requests were alike: one of them is not known again
        self._start()

    def restart(self) -> None:
        """Start another broker."""
        self.begin()
        self._start()

    def _start(self) -> None:
        self.sides: list[Side] = []  # all that ever connected
        self.session = MemoDbBrokerSide(self.broker, self.connections, self.options, MAX_PAYLOAD)
        self.serve(self.session)

    # ---------------------------------------------------------------- peers come and go

    def connect(self, address: str = HOME, process: int = 0) -> Side:
        carrier = Sp("REP", limits=SpLimits(max_payload=MAX_PAYLOAD))
        side = self.accept(Side(self), "listener", carrier, address, process)
        self.sides.append(side)
        side.feed(REQ_GREETING)
        self.run_once()
        return side

    def cut(self, side: Side) -> None:
        """Cut the connection. Bytes that its stream had no room for were never sent."""
        self.drop(side)
        self.run_once()

    def drop(self, side: Side) -> None:
        """Cut the connection, without an iteration."""
        side.look()
        contacts = side.contacts
        keys = [each.key for each in (*contacts.waiting.values(), *contacts.answered.values())]
        self.doubles.update(key for key in keys if key in self.session._callers.orphans or keys.count(key) > 1)
        keys = [each.key for each in contacts.readies.values()]
        self.doubles.update(key for key in keys if key in self.session._lost_readies or keys.count(key) > 1)
        self.connections.ended(side.peer, "reset")
        self.judge()

    def again(self, side: Side) -> Side:
        """Cut the connection and open a new one."""
        self.cut(side)
        return self.connect(side.peer.address)

    # ---------------------------------------------------------------- workers and callers

    def worker(self, side: Side, request: int = 1, *services: str) -> bytes:
        """Return the id of a worker that has sent READY and waits. The worker does not know its id yet."""
        before = set(self.session._remotes)
        side.ask(request, ready(*services))
        (id,) = set(self.session._remotes) - before
        return id

    def beating_worker(self, side: Side, request: int = 1, *services: str) -> bytes:
        """Return a worker that knows its id: it received HEARTBEAT, replied with `request + 1`, and waits."""
        id = self.worker(side, request, *services)
        self.wait(self.options.heartbeat_after)
        assert side.heard() == [Said(request, "HEARTBEAT", id)]
        assert side.ask(request + 1, heartbeat(id)) == []
        return id

    def busy_worker(self, side: Side, caller: Side, request: int = 1, payload: bytes = b"job", **asked: Any) -> bytes:
        """Return a worker that has just received a job; its caller used request id 500 + `request`."""
        id = self.worker(side, request, *([asked["service"]] if "service" in asked else []))
        caller.receive(500 + request, job(payload, **asked))
        self.run_once()
        (said,) = side.heard()
        assert said.word == "JOB"
        assert (said.request, said.id, said.payload) == (request, id, payload)
        return id

    def remote(self, id: bytes) -> RemoteMemoDbWorker:
        return self.session._remotes[id]

    def is_known(self, id: bytes) -> bool:
        return id in self.session._remotes

    def record(self, id: bytes) -> Worker:
        return self.remote(id).worker

    def state(self, id: bytes) -> str:
        """Return the worker's state in the broker; `gone` if its id is unknown."""
        return str(self.record(id).state) if self.is_known(id) else "gone"

    @property
    def silences(self) -> dict[str, int]:
        return {str(outcome): count for outcome, count in self.counters.unreported_outcomes.items()}

    # ---------------------------------------------------------------- what must hold

    def check_books(self) -> None:
        for side in self.sides:
            side.look()
        open_sides = [side for side in self.sides if not side.is_lost and side.peer.is_open]
        self._check_remotes(open_sides)
        self._check_readies(open_sides)
        self._check_calls(open_sides)
        self._check_answers()

    def _check_remotes(self, sides: list[Side]) -> None:
        session = self.session
        found = [(side, remote) for side in sides for remote in side.contacts.remotes]
        assert len({remote for _, remote in found}) == len(found), "a worker is at two connections"
        for side, remote in found:
            assert session._remotes.get(remote.id) is remote, "a dead worker is at a connection"
            assert remote.peer is side.peer
        met = {remote for _, remote in found}
        for id, remote in session._remotes.items():
            assert remote.id == id
            assert len(id) == 16
            assert (remote.peer is None) == (remote not in met), "a worker is not where it thinks it is"
            self._check_remote(remote)
        ours = {worker.remote for worker in self.broker.worker_registry.workers.values()}
        assert ours == set(session._remotes.values()), "broker and session know different workers"
        living = [remote for _, number, remote in session._heartbeats.entries() if remote.alarm_number == number]
        assert all(session._remotes.get(remote.id) is remote for remote in living), "a dead worker will get a HEARTBEAT"
        assert len(living) == session._heartbeats.armed

    def _check_remote(self, remote: RemoteMemoDbWorker) -> None:
        worker = remote.worker
        assert worker.remote is remote
        held = [*worker.running.values(), *worker.stuck.values()]
        assert held == ([] if remote.attempt is None else [remote.attempt]), "broker and session disagree on its job"
        is_parked = remote.answer is None
        assert not (is_parked and remote.attempt is not None), "it has a job and was not told"
        if remote.peer is None:
            assert worker.away_since != inf, "it is out of reach and the broker does not know"
        elif is_parked:
            assert worker.state is WorkerState.IDLE or worker.stays, f"it waits for an answer and is {worker.state}"
            assert remote.alarm <= remote.heartbeat_due, "it will get no HEARTBEAT"
        elif remote.attempt is None:
            assert worker.state is WorkerState.DETACHED or worker.stays, f"it owes a HEARTBEAT and is {worker.state}"
        else:
            assert worker.away_since == inf, "it is within reach and the broker does not know"

    def _check_readies(self, sides: list[Side]) -> None:
        session = self.session
        found = set()
        for side in sides:
            for route, remote in side.contacts.readies.items():
                assert session._remotes.get(remote.id) is remote, "a dead worker's READY is remembered"
                assert remote.peer is side.peer
                assert remote.route == route
                assert not remote.is_confirmed
                found.add(remote)
        for key, remote in session._lost_readies.items():
            assert session._remotes.get(remote.id) is remote, "a dead worker's READY is remembered"
            assert remote.peer is None
            assert remote.key == key
            assert not remote.is_confirmed
            found.add(remote)
        for remote in session._remotes.values():
            if not remote.is_confirmed and remote not in found:
                assert remote.peer is None, "a READY will not be known again"
                assert remote.key in self.doubles, "a READY will not be known again"

    def _check_calls(self, sides: list[Side]) -> None:
        session = self.session
        waiting = {
            caller for job in self.broker.jobs.values() for caller in job.callers if isinstance(caller, PendingCall)
        }
        assert session._callers.waiting == len(waiting), (
            f"{len(waiting)} calls wait, {session._callers.waiting} are counted"
        )
        for side in sides:
            assert not side.contacts.waiting.keys() & side.contacts.answered.keys()
            for route, call in side.contacts.waiting.items():
                assert call in waiting, "a call waits for nothing"
                assert (call.peer, call.route, call.is_answered) == (side.peer, route, False)
            for route, call in side.contacts.answered.items():
                assert (call.peer, call.route) == (side.peer, route)
                assert call.is_answered
                assert not call.is_over
        for key, call in session._callers.orphans.items():
            assert call.key == key
            assert call.peer is None
            assert not call.is_over
            assert (call in waiting) != call.is_answered
        for call in waiting:
            assert call.job is not None
            assert call.job.state is not JobState.ENDED
            assert not call.is_over
            if call.peer is not None:
                assert call.peer.remote.waiting[call.route] is call, "a call waits and its connection does not know"
            else:
                assert call.key in session._callers.orphans or call.key in self.doubles, (
                    "a call will not be known again"
                )

    def _check_answers(self) -> None:
        answers = self.session._callers.answers
        kept = [call for call in answers._kept if call.is_answered]
        assert len(set(kept)) == len(kept)
        size = sum(RECORD + len(call.result) for call in kept)
        assert answers.bytes == size <= answers.max_bytes
        for call in kept:
            assert call.job is None
            if call.peer is not None:
                assert call.peer.remote.answered[call.route] is call
            else:
                assert call.key in self.session._callers.orphans or call.key in self.doubles
        for side in self.sides:
            if not side.is_lost and side.peer.is_open:
                assert set(side.contacts.answered.values()) <= set(kept), "an answer is kept for ever"
        assert {call for call in self.session._callers.orphans.values() if call.is_answered} <= set(kept)


def disconnected(request: int, id: bytes) -> list[Said]:
    return [Said(request, "DISCONNECT", id)]


def beats(request: int, id: bytes) -> list[Said]:
    return [Said(request, "HEARTBEAT", id)]


def given(request: int, id: bytes, payload: bytes = b"job", timeout: int = 5_000, service: str = "echo") -> list[Said]:
    return [Said(request, "JOB", id, (service, timeout), payload)]


def answered(request: int, payload: bytes = b"result") -> list[Said]:
    return [Said(request, "RESULT", b"", (), payload)]


def repeat(world: World, side: Side, request: int, body: bytes, is_new: bool) -> tuple[Side, list[Said]]:
    """Repeat a request, on the same connection or on a new one."""
    if is_new:
        side = world.again(side)
    return side, side.ask(request, body)


both = pytest.mark.parametrize("is_new", [False, True], ids=["same connection", "new connection"])

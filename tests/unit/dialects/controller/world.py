"""Worker-Controller in the world of dialects: pulses, and workers' sockets as a set of numbers. Numbers and protobuf
are written by hand.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any, NamedTuple

import pytest

from dialect_world import DialectWorld, End
from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.length_prefix import LengthPrefixLimits as PrefixedLimits
from dragoman.core import model
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.options import JobOptions
from dragoman.core.states import Outcome
from dragoman.dialects.controller.broker_side import PULSES, ControllerBrokerSide
from dragoman.dialects.controller.codec import extra_of_pulse, extra_of_response, write_pulse_response
from dragoman.dialects.controller.editions import EDITIONS, SEED
from dragoman.dialects.controller.exchanges import CONTROL
from dragoman.dialects.controller.messages import ControllerError
from dragoman.dialects.controller.options import EditionName, ListenerOptions, OnMismatch
from dragoman.dialects.controller.records import Purpose, RemoteWorker
from owners import LOCAL_OWNER

PULSE = {
    "seed": {"REGISTER": 0, "OK": 1, "FETCH_ME": 2, "SHUTDOWN": 3},
    "shifted": {"OK": 1, "REGISTER": 2, "FETCH_ME": 3, "SHUTDOWN": 4},
}
PULSE_ANSWERS = ("OK", "UNKNOWN_TYPE", "UNKNOWN_ID", "FAILED")
CONTROLS = ("RESTART", "FETCH", "SET_TASK", "GET_STATUS")
ERRORS = ("OK", "NO_FETCH", "BUSY", "TASK_FAILED", "FAILED")
FIRST = {"seed": 0, "shifted": 1}

MAX_PAYLOAD = 100_000
UID, ROOT, STRANGER = "uid 1000", "uid 0", "uid 1001"


# -------------------------------------------------------------------- protobuf by hand


def varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def numbers(*values: int) -> bytes:
    """Encode a message whose fields, from 1 on, are these numbers; zeros are left out."""
    return b"".join(bytes([field << 3]) + varint(value) for field, value in enumerate(values, 1) if value)


def read_numbers(data: bytes) -> dict[int, int]:
    """Decode a message in the form of the broker: each field once, in order, without zeros."""
    found: dict[int, int] = {}
    at = 0
    while at < len(data):
        field, value, shift = data[at] >> 3, 0, 0
        assert data[at] & 7 == 0
        assert field > max(found, default=0)
        at += 1
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        assert value
        found[field] = value
    return found


def framed(head: bytes, extra: bytes = b"") -> bytes:
    return len(head).to_bytes(8, "little") + head + extra


def pulse(
    kind: str | int, edition: str = "seed", *, worker_id: int = 0, task_id: int = 0, next_pulse: int = 60
) -> bytes:
    type = PULSE[edition][kind] if isinstance(kind, str) else kind
    return framed(numbers(type, worker_id, task_id, next_pulse))


class Told(NamedTuple):
    """The reply to a pulse."""

    error: str
    worker_id: int = 0


class Visitor(End):
    """A connection to the controller's socket."""

    def say(self, data: bytes) -> None:
        """Send a message, without an iteration."""
        if not self.peer.is_lost:
            self.feed(data)

    def hang_up(self) -> None:
        self.world.connections.ended(self.peer, "hung up")
        self.world.run_once()

    def told(self, edition: str = "seed") -> Told | None:
        """Return the reply: one message, or None so far."""
        data = bytes(self.stream.taken)
        if not data:
            return None
        length = int.from_bytes(data[:8], "little")
        assert len(data) == 8 + length, "more than one answer"
        found = read_numbers(data[8:])
        assert found.keys() <= {1, 2}
        return Told(PULSE_ANSWERS[found.get(1, 0) - FIRST[edition]], found.get(2, 0))


class Call(End):
    """The worker's end of a connection to its socket: the broker's message, and the response."""

    def __init__(self, world: World, worker_id: int, peer: Any, edition: str, number: int) -> None:
        super().__init__(world)
        self.worker_id = worker_id
        self.edition = edition
        self.number = number
        self.peer = peer
        self.is_answered = False
        self.is_cut = False  # by the worker

    def __repr__(self) -> str:
        return f"call {self.number} to {self.worker_id}"

    @property
    def is_open(self) -> bool:
        return not self.stream.is_closed and not self.is_cut

    @property
    def said(self) -> tuple[str, int, bytes]:
        """Return type, task id and extra bytes of the received message."""
        data = bytes(self.stream.taken)
        length = int.from_bytes(data[:8], "little")
        found = read_numbers(data[8 : 8 + length])
        extra = data[8 + length :]
        assert found.keys() <= {1, 2, 3}
        assert found.get(2, 0) == len(extra)
        return CONTROLS[found.get(1, 0) - FIRST[self.edition]], found.get(3, 0), extra

    @property
    def word(self) -> str:
        return self.said[0]

    @property
    def task(self) -> int:
        return self.said[1]

    def answer(self, error: str | int = "OK", task_id: int = 0, extra: bytes = b"", size: int | None = None) -> None:
        """Send a response and close the connection."""
        self.feed(self.bytes_of(error, task_id, extra, size))
        self.is_answered = True
        self.world.connections.ended(self.peer, "answered")
        self.world.run_once()

    def bytes_of(self, error: str | int = "OK", task_id: int = 0, extra: bytes = b"", size: int | None = None) -> bytes:
        code = ERRORS.index(error) + FIRST[self.edition] if isinstance(error, str) else error
        return framed(numbers(code, task_id, len(extra) if size is None else size), extra)

    def feed(self, data: bytes) -> None:
        assert self.is_open, "nobody reads it: a real worker would have died"
        super().feed(data)

    def cut(self) -> None:
        """Close the connection, as the worker."""
        self.is_cut = True
        super().cut()


class Caller(model.Caller):
    """A caller that waits for a job, with its own recipient."""

    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)
        self.told: list[tuple[Outcome, bytes, str]] = []

    def execute(self, effect: Effect, now: float) -> None:
        assert isinstance(effect, DeliverOutcome)
        self.told.append((effect.outcome, bytes(effect.result), effect.reason))

    @property
    def outcome(self) -> Outcome:
        (told,) = self.told
        return told[0]


class Fellow:
    """A worker with an id."""

    def __init__(self, world: World, id: int, edition: str, address: str) -> None:
        self.world = world
        self.id = id
        self.edition = edition
        self.address = address
        self.process = 0  # by which it sends its pulses
        self._seen = 0

    def pulse(self, kind: str | int = "OK", task_id: int = 0, next_pulse: int = 60, address: str = "") -> Told:
        """Send a pulse. Returns the reply."""
        visitor = self.world.visit(address or self.address, self.process)
        visitor.say(pulse(kind, self.edition, worker_id=self.id, task_id=task_id, next_pulse=next_pulse))
        self.world.run_once()
        told = visitor.told(self.edition)
        assert told is not None
        assert visitor.is_over
        return told

    def ok(self, task_id: int = 0, next_pulse: int = 60) -> None:
        assert self.pulse("OK", task_id, next_pulse) == Told("OK")

    def fetch_me(self, task_id: int = 0, next_pulse: int = 60) -> None:
        assert self.pulse("FETCH_ME", task_id, next_pulse) == Told("OK")

    def calls(self) -> list[Call]:
        """Return the connections since the last call."""
        mine = [call for call in self.world.calls if call.worker_id == self.id]
        new, self._seen = mine[self._seen :], len(mine)
        return new

    def call(self, word: str) -> Call:
        """Return the only connection since the last call."""
        calls = self.calls()
        assert [call.word for call in calls] == [word]
        return calls[0]

    @property
    def remote(self) -> RemoteWorker:
        return self.world.session._workers.by_id[self.id]

    @property
    def is_known(self) -> bool:
        return self.id in self.world.session._workers.by_id

    @property
    def state(self) -> str:
        return str(self.remote.worker.state) if self.is_known else "gone"

    def take(self, payload: bytes = b"job") -> Call:
        """Accept the SET_TASK that has just come."""
        call = self.call("SET_TASK")
        assert call.said[2] == payload
        call.answer("OK", call.task)
        return call

    def finish(self, call: Call, result: bytes = b"result") -> None:
        """Send FETCH_ME, and respond to the FETCH that follows."""
        self.fetch_me(call.task)
        self.call("FETCH").answer("OK", call.task, result)


class World(DialectWorld):
    session: ControllerBrokerSide

    def __init__(self, *, uids: tuple[str, ...] = (UID, ROOT), first_id: int = 0, **options: Any) -> None:
        super().__init__("controller")
        if "edition" in options:
            options["edition"] = EditionName(options["edition"])
        if "restart_on_mismatch" in options:
            options["restart_on_mismatch"] = OnMismatch(options["restart_on_mismatch"])
        self.options = ListenerOptions(**options)
        self.uids = uids
        self.may_close_early = False
        self._start(first_id)

    def restart(self, first_id: int) -> None:
        """Start another broker."""
        self.begin()
        self._start(first_id)

    last_task = 0

    def _start(self, first_id: int) -> None:
        self.calls: list[Call] = []
        self.sockets: set[int] = set()  # ids of workers whose socket files are there
        self.refusing: set[int] = set()  # and nobody listens
        self.hanging: set[int] = set()  # and nobody accepts
        self.listening_as: dict[int, str] = {}  # by whom, if not by the one who registered
        self.listening_by: dict[int, int] = {}  # by which process, if the kernel tells
        self.watched: dict[int, Any] = {}  # processes, and who is told of their end
        self.reached: list[int] = []
        edition = EDITIONS[self.options.edition.value] if self.options.edition is not None else SEED
        self.refusal = write_pulse_response(ControllerError.FAILED, edition)
        self.connections.host_access.process_watch = self._watch
        carrier = partial(LengthPrefix, extra_of_response, single=True, limits=PrefixedLimits(max_payload=MAX_PAYLOAD))
        self.session = ControllerBrokerSide(
            self.broker,
            self.connections,
            self.options,
            self.uids,
            first_id,
            self._reach,
            carrier,
            last_task=self.last_task,
        )
        self.serve(self.session)

    def _reach(self, worker_id: int) -> tuple[object | None, str]:
        self.reached.append(worker_id)
        return (worker_id, "") if worker_id in self.sockets else (None, "no such file")

    def _watch(self, process: int, ended: Any) -> Any:
        assert process not in self.watched
        self.watched[process] = ended
        return lambda: self.watched.pop(process, None)

    def process_ends(self, process: int) -> None:
        self.watched.pop(process)()
        self.run_once()

    # ---------------------------------------------------------------- workers

    def visit(self, address: str = UID, process: int = 0) -> Visitor:
        carrier = LengthPrefix(extra_of_pulse, single=True, refusal=self.refusal)
        return self.accept(Visitor(self), PULSES, carrier, address, process)

    def register(
        self,
        edition: str = "seed",
        address: str = UID,
        next_pulse: int = 60,
        listens: bool = True,
        process: int = 0,
        listener: int | None = None,
    ) -> Fellow:
        """Register a worker, which is starting. Its socket is open unless set otherwise. `process` sends its pulses,
        and listens on its socket unless `listener` does."""
        visitor = self.visit(address, process)
        visitor.say(pulse("REGISTER", edition, next_pulse=next_pulse))
        self.run_once()
        told = visitor.told(edition)
        assert told is not None
        assert told.error == "OK"
        assert visitor.is_over
        fellow = Fellow(self, told.worker_id, edition, address)
        fellow.process = process
        self.listening_by[fellow.id] = process if listener is None else listener
        if listens:
            self.sockets.add(fellow.id)
        assert fellow.state == "starting"
        return fellow

    def worker(self, edition: str = "seed", address: str = UID, next_pulse: int = 60, **processes: int) -> Fellow:
        """Return a worker that is idle, or has just received a waiting job."""
        fellow = self.register(edition, address, next_pulse, **processes)
        self.wait(0.05)
        fellow.call("GET_STATUS").answer()
        return fellow

    def busy(self, edition: str = "seed", next_pulse: int = 60, **job_options: Any) -> tuple[Fellow, Caller, Call]:
        """Return a worker that has accepted a job."""
        fellow = self.worker(edition, next_pulse=next_pulse)
        caller = self.submit(**job_options)
        return fellow, caller, fellow.take()

    # ---------------------------------------------------------------- jobs

    def submit(self, payload: bytes = b"job", **job_options: Any) -> Caller:
        caller = Caller()
        service = self.options.service
        self.broker.submit(service, payload, caller, JobOptions(waits=True, **job_options), self.now)
        self.run_once()
        return caller

    def withdraw(self, caller: Caller) -> None:
        assert caller.job is not None
        assert self.broker.withdraw(caller.job, self.now)
        self.run_once()

    def said(self, event: str) -> int:
        return len(self.remarked(event))

    # ---------------------------------------------------------------- dials

    def give_up_dials(self) -> None:
        """Let hanging dials time out."""
        dials, self.dials = self.dials, []
        for peer, _ in dials:
            self.connections.host_access.dialled(peer, None, "timed out")
        self.run_once()

    @property
    def dialling(self) -> int:
        return len(self.dials)

    def move(self) -> bool:
        dials = [each for each in self.dials if each[1] not in self.hanging]
        self.dials = [each for each in self.dials if each[1] in self.hanging]
        for peer, worker_id in dials:
            if worker_id in self.refusing:
                self.connections.host_access.dialled(peer, None, "connection refused")
                continue
            exchange = peer.remote
            call = Call(self, worker_id, peer, exchange.remote.edition.name, len(self.calls) + 1)
            address = self.listening_as.get(worker_id, exchange.remote.uid)
            process = self.listening_by.get(worker_id, 0)
            self.connections.host_access.dialled(peer, call.stream, address=address, process=process)
            if address == exchange.remote.uid:
                self.calls.append(call)
        return bool(dials)

    # ---------------------------------------------------------------- what must hold

    def check_books(self) -> None:
        for call in self.calls:
            assert call.stream.taken or call.stream.waiting, f"{call}: connected and said nothing"
            is_early = call.stream.is_closed and not call.is_answered and not call.is_cut
            assert not is_early or self.may_close_early, f"{call}: closed before its answer was read"
        session = self.session
        ours = {worker.remote: worker for worker in self.broker.worker_registry.workers.values()}
        assert ours.keys() == set(session._workers.by_id.values()), "broker and session know different workers"
        for id, remote in session._workers.by_id.items():
            assert remote.id == id
            assert remote.worker is ours[remote]
            self._check_remote(remote)
        counts: dict[str, int] = {}
        for remote in session._workers.by_id.values():
            counts[remote.uid] = counts.get(remote.uid, 0) + 1
        assert counts == {uid: count for uid, count in session._workers.count_of.items() if count}

    def _check_remote(self, remote: RemoteWorker) -> None:
        worker = remote.worker
        assert list(worker.running.values()) == ([remote.attempt] if remote.attempt is not None else [])
        due = max(self.session._workers.lease_end(remote), self.now + 2 if remote.probe or remote.exchange else 0)
        assert remote.alarm <= due, "its lease will never be judged"
        assert remote.retry_at == inf or remote.alarm <= remote.retry_at
        if remote.attempt is not None and not remote.is_set:
            assert remote.exchange is not None, "its job waits for nothing"
        if remote.wants_fetch:
            assert remote.exchange is not None, "its FETCH waits for nothing"
        if worker.stuck and remote.exchange is None:
            assert remote.retry_at < inf, "it is stuck, and nothing will prove it"
        if remote.exchange is not None:
            assert remote.exchange.peer is not None
            assert not remote.exchange.is_abandoned
        if remote.probe is not None:
            assert remote.probe.peer is not None
            assert not remote.probe.is_abandoned
            assert remote.probe.alarm < inf, "it is asked for ever"
            assert remote.probe.purpose not in (Purpose.TASK, Purpose.FETCH, Purpose.LEAVE)


editions = pytest.mark.parametrize("edition", ["seed", "shifted"])


def second_worker(world: World, edition: str = "seed") -> Fellow:
    return world.worker(edition)


def retry(world: World) -> None:
    """Wait for the retry delay after the first attempt."""
    world.wait(2.0)


__all__ = [
    "CONTROL",
    "MAX_PAYLOAD",
    "ROOT",
    "STRANGER",
    "UID",
    "Call",
    "Caller",
    "Fellow",
    "Told",
    "World",
    "editions",
    "pulse",
    "retry",
    "second_worker",
]

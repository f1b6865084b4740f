"""Rules that every run of the native dialect must keep, checked from outside. The letters are those of docs/rules.md.

I4       every job ends for its client, exactly once.
I7       a result was computed for the payload it answers: it is a keyed hash that only the worker can know.
I8       with one attempt no job is run twice, however often its client reconnected, and none with another payload.
once     no outcome is sent to a client that has received it already.
MISSING  is sent only for a job that never arrived.

In an *exact* run workers and the broker have no faults, and every client reconnects in time. Then every job that was
not cancelled and does not fail by itself is done.

`books` checks the broker side after every event, as `invariants.check` checks the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.effects import Effect, SendJob
from dragoman.core.states import ENDED
from dragoman.dialects.native.broker_side import NativeBrokerSide
from dragoman.dialects.native.clients import Clients
from dragoman.dialects.native.options import ListenerOptions
from dragoman.dialects.sides import Failure
from dragoman.server.connections import Connections
from sim.oracle import require, result_of
from sim.world import World

__all__ = ["RARE", "NativeOracle", "WatchedNative", "books", "require", "result_of"]

RARE = (
    "broker crashed with jobs running",
    "broker paused",
    "cancelled",
    "done",
    "failed",
    "lost",
    "missing and sent again",
    "outcomes that were not kept",
    "outcomes told again",
    "sessions resumed",
    "takeovers",
    "unavailable",
)


@dataclass(slots=True)
class Record:
    """One job, and all that became of it."""

    client: str
    id: bytes
    runs: int = 0
    outcomes: int = 0
    is_cancelled: bool = False


class NativeOracle:
    def __init__(self, world: World, *, is_exact: bool, attempts: int, cancels: float, failures: float) -> None:
        self.hits: Counter[str] = Counter()
        self.records: dict[bytes, Record] = {}
        self.failing: set[bytes] = set()
        self.missing: set[bytes] = set()
        self.gives_said = 0
        self.is_exact = is_exact
        self.attempts = attempts
        self.cancels = cancels
        self._failures = failures
        self._world = world

    def hit(self, what: str, times: int = 1) -> None:
        if times:
            self.hits[what] += times

    # ---------------------------------------------------------------- actors

    def new_job(self, client: str, id: bytes, filler: int) -> bytes:
        payload = b"job %d %s" % (len(self.records) + 1, b"x" * filler)
        self.records[payload] = Record(client, id)
        if self._world.chance(self._failures):
            self.failing.add(payload)
        return payload

    def cancelled(self, payload: bytes) -> None:
        self.records[payload].is_cancelled = True

    def misses(self, ids: Sequence[bytes]) -> None:
        self.missing.update(ids)
        self.hit("missing and sent again", len(ids))
        runs = {record.id: record.runs for record in self.records.values()}
        for id in ids:
            require(not runs[id], "MISSING", f"{id.hex()} has run already")

    def executes(self, worker: str, payload: bytes, job_id: str) -> None:
        record = self.records.get(payload)
        require(record is not None, "I7", f"{worker} runs {payload[:16]!r}, which nobody asked for")
        assert record is not None
        require(record.id.hex() == job_id, "I7", f"{worker} runs {payload[:16]!r} under another job's id")
        record.runs += 1
        require(record.runs <= self.attempts, "I8", f"{worker}: run {record.runs} of {payload[:16]!r}")

    def answered(self, payload: bytes, result: bytes) -> None:
        record, name = self._ended(payload)
        require(result == result_of(payload), "I7", f"{name} has another job's result")
        require(record.runs > 0, "I7", f"{name} is done and was never run")
        require(payload not in self.failing, "I7", f"{name} is done and has failed")
        self.hit("done")

    def ended(self, payload: bytes, outcome: str, reason: str, failure: Failure | None = None) -> None:
        """`outcome` is "unavailable" if the broker that had the job is gone."""
        record, name = self._ended(payload)
        reason = f"{outcome}: {reason}"
        self.hit(outcome)
        if "not kept" in reason:
            self.hit("outcomes that were not kept")
        if outcome == "failed":
            require(payload in self.failing, "I7", f"{name}: {reason}")
            require(failure == Failure("Failed", "no", "why"), "I7", f"{name}: {failure}")
        elif outcome == "cancelled":
            require(record.is_cancelled or not self.is_exact, "I14", f"{name}: {reason}, and nobody cancelled it")
        else:
            require(outcome != "refused", "window", f"{name}: {reason}")
            require(not self.is_exact, "I14", f"{name}: {reason}, and nobody failed")

    def _ended(self, payload: bytes) -> tuple[Record, str]:
        record = self.records[payload]
        record.outcomes += 1
        name = f"{record.client}: {payload[:16]!r}"
        require(record.outcomes == 1, "I4", f"{name} ended {record.outcomes} times")
        return record, name

    # ---------------------------------------------------------------- the broker

    def frontend_heard(self, broker: Broker, messages: int) -> None: ...

    def life_ended(self, broker: Broker) -> None:
        self.hit("takeovers", broker.counters.takeovers)

    def remarked(self, event: str, fields: dict[str, Any]) -> None:
        if event == "event loop stalled":
            self.hit("broker paused")
        elif event == "internal error":
            raise fields["exception"]
        elif event == "bad message":
            require(False, "document", f"an honest peer's message was bad: {fields['reason']}")

    def verdict(self) -> None:
        for payload, record in self.records.items():
            require(record.outcomes == 1, "I4", f"{record.client}: {payload[:16]!r} ended {record.outcomes} times")


class WatchedClients(Clients):
    """The real clients of a session, and the oracle looking over their shoulder. It changes nothing."""

    def __init__(self, oracle: NativeOracle, session: NativeBrokerSide) -> None:
        super().__init__(session, session._broker, session._io, session._options, None, session._max_payload)
        self.oracle = oracle

    def _resume(self, client: Any, message: Any, now: float) -> None:
        before = sum(map(len, client.peer.out))
        super()._resume(client, message, now)
        self.oracle.hit("sessions resumed")
        self.oracle.hit("outcomes told again", sum(map(len, client.peer.out)) > before)


class WatchedNative(NativeBrokerSide):
    """The real session, watched like its clients."""

    clients_type = WatchedClients

    def __init__(
        self,
        oracle: NativeOracle,
        broker: Broker,
        io: Connections,
        options: ListenerOptions,
        max_payload: int,
        world: World,
    ) -> None:
        super().__init__(broker, io, options, max_payload, "sim")  # type: ignore[arg-type]
        self.oracle = oracle
        self._clients = self.clients_type(oracle, self)

    def execute(self, effect: Effect, now: float) -> None:
        super().execute(effect, now)
        self.oracle.gives_said += type(effect) is SendJob


def books(session: NativeBrokerSide) -> None:
    """Check that the broker side's records of clients match the broker, and that no more is kept than allowed."""
    sessions, options = session._clients.sessions, session._options
    for secret, client in sessions._by_secret.items():
        require(client.secret == secret, "books", "a session under another's secret")
        require((client.peer is None) == (secret in sessions._away), "books", "away, or not?")
        require(client.peer is None or client.peer.remote is client, "books", "a connection that is another's")
        require(client.count_open() <= client.window, "books", "more jobs than the window has room for")
        require(client._kept_bytes <= options.max_kept_bytes, "books", "more is kept than max_kept_bytes")
        for id, job in ((job.id, job) for job in client.open_jobs()):
            is_known = session._broker.jobs.get(id) is job or (job.state is ENDED and bool(session._broker.effects))
            require(is_known, "books", f"{id.hex()} is not in the broker")

"""Events of jobs and workers as bytes, for other brokers of the cluster."""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import UNREADABLE
from dragoman.core.events import EndedAttempt, JobEvent, WorkerEvent
from dragoman.core.model import JobId, WorkerId
from dragoman.core.states import Outcome


class PackedAttempt(msgspec.Struct, array_like=True, frozen=True):
    """An `EndedAttempt`."""

    number: int
    worker: str
    outcome: Outcome
    reason: str
    seconds: float


class PackedJobEvent(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A `JobEvent`."""

    kind: int
    id: bytes
    service: str
    is_background: bool
    is_kept: bool
    attempt: int | None
    worker: str | None
    worker_id: int | None
    outcome: Outcome | None
    reason: str
    is_quarantined: bool
    progress: bytes
    owner: str
    dialect: str | None
    max_attempts: int | None
    last: PackedAttempt | None
    delay: float | None
    state: str
    caller: str


class PackedWorkerEvent(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A `WorkerEvent`, as far as event streams show it."""

    kind: int
    id: int
    name: str
    dialect: str
    services: tuple[str, ...]
    capacity: int
    owner: str


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[PackedJobEvent | PackedWorkerEvent])


def pack_events(events: list[JobEvent | WorkerEvent]) -> bytes:
    return _encoder.encode([_packed(each) for each in events])


def unpack_events(data: bytes) -> list[JobEvent | WorkerEvent]:
    """Raises Malformed."""
    try:
        return [_unpacked(each) for each in _decoder.decode(data)]
    except UNREADABLE as error:
        raise Malformed("bad events", str(error)) from error


def _packed(event: JobEvent | WorkerEvent) -> PackedJobEvent | PackedWorkerEvent:
    if isinstance(event, WorkerEvent):
        return PackedWorkerEvent(
            event.kind, event.id, event.name, event.dialect, event.services, event.capacity, event.owner
        )
    last = event.last
    return PackedJobEvent(
        event.kind,
        event.id,
        event.service,
        event.is_background,
        event.is_kept,
        event.attempt,
        event.worker,
        event.worker_id,
        event.outcome,
        event.reason,
        event.is_quarantined,
        event.progress,
        event.owner,
        event.dialect,
        event.max_attempts,
        None if last is None else PackedAttempt(last.number, last.worker, last.outcome, last.reason, last.seconds),
        event.delay,
        event.state,
        event.caller,
    )


def _unpacked(packed: PackedJobEvent | PackedWorkerEvent) -> JobEvent | WorkerEvent:
    if isinstance(packed, PackedWorkerEvent):
        id = WorkerId(packed.id)
        return WorkerEvent(
            packed.kind, id, packed.name, packed.dialect, packed.services, packed.capacity, owner=packed.owner
        )
    last = packed.last
    return JobEvent(
        packed.kind,
        JobId(packed.id),
        packed.service,
        packed.is_background,
        packed.is_kept,
        packed.attempt,
        packed.worker,
        None if packed.worker_id is None else WorkerId(packed.worker_id),
        packed.outcome,
        packed.reason,
        packed.is_quarantined,
        packed.progress,
        packed.owner,
        packed.dialect,
        packed.max_attempts,
        None if last is None else EndedAttempt(last.number, last.worker, last.outcome, last.reason, last.seconds),
        packed.delay,
        packed.state,
        packed.caller,
    )

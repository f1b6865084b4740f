"""Background jobs in a cluster: each belongs to a shard, and one broker serves a shard.

A broker without a cluster has no placement, and serves all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from dragoman.core.job_keys import Place
from dragoman.core.model import JobId
from dragoman.core.remembered import RequestId
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationError


class Reserved(Protocol):
    """A reserved key: the id of its job, the shard of the job with its epoch, and the digest of the payload."""

    @property
    def id(self) -> JobId: ...

    @property
    def shard(self) -> int: ...

    @property
    def epoch(self) -> int: ...


class ReservedKeys(Protocol):
    """The reserved keys of the shards of this broker, and the jobs of batches that are being accepted."""

    def __len__(self) -> int: ...

    def find(self, place: Place) -> Reserved | None: ...

    def reserve(
        self, place: Place, home: int, id: JobId, shard: int, epoch: int, digest: str, request: str
    ) -> None: ...

    def undo(self, place: Place, request: str) -> None: ...

    def drop(self, place: Place, id: JobId) -> None: ...

    def due(self, most: int, now: float) -> Sequence[tuple[Place, Reserved]]: ...

    def accept(self, ids: Iterable[JobId]) -> None: ...

    def accepted(self, ids: Iterable[JobId]) -> None: ...

    def is_accepting(self, id: JobId) -> bool: ...

    def when_accepted(self, id: JobId, call: Callable[[], None]) -> bool: ...


class Placement(Protocol):
    """Chooses shards. A text instead of an answer is the reason why this broker cannot serve the request."""

    def job_id(
        self, owner: str, service: str, key: str | None, after: Sequence[bytes], asked: RequestId | None
    ) -> JobId | str: ...

    def run_id(self) -> JobId | None: ...

    def id_in(self, shard: int) -> JobId: ...

    def in_shard(self, id: JobId, shard: int) -> JobId: ...

    def shard_of(self, id: bytes) -> int: ...

    def is_foreign(self, shard: int, predecessor: JobId) -> bool: ...

    def expect(self, shard: int, predecessor: JobId) -> int: ...

    def settled(self, shard: int, predecessor: JobId) -> None: ...

    def pin(self, predecessor: JobId, shard: int, epoch: int) -> bool: ...

    def now(self) -> float: ...

    def key_shard(self, owner: str, service: str, key: str) -> int: ...

    def epoch(self, shard: int) -> int: ...

    def request_id(self) -> str: ...

    @property
    def keys(self) -> ReservedKeys: ...

    def batch_shard(
        self, owner: str, ids: Sequence[bytes], after: Sequence[bytes], asked: RequestId | None
    ) -> int | str: ...

    def elsewhere(self, shard: int) -> str | None: ...

    def job_elsewhere(self, id: bytes) -> str | None: ...

    def notes_elsewhere(self) -> str | None: ...

    def problem_of(self, id: bytes) -> str | None: ...


def placed_id(
    placement: Placement,
    owner: str,
    service: str,
    key: str | None,
    after: Sequence[str],
    asked: RequestId | None,
) -> JobId:
    """Return the id of a new background job. Raises OperationError if another broker must take it."""
    placed = placement.job_id(owner, service, key, [bytes.fromhex(each) for each in after], asked)
    if isinstance(placed, str):
        raise OperationError("partitioned", placed)
    return placed


def check_shared(placement: Placement, row: Operation[Any, Any]) -> None:
    """Raise OperationError if another broker must serve this operation: pauses, limits and schedules are in shard 0."""
    reason = placement.notes_elsewhere() if row.answered_by in ("shard 0", "schedule") else None
    if reason is not None:
        raise OperationError("partitioned", reason)


def batch_shard(
    placement: Placement, owner: str, ids: Sequence[bytes], after: Sequence[bytes], asked: RequestId | None
) -> int:
    """Return the shard of a batch. Raises OperationError if another broker must take it, or none can."""
    shard = placement.batch_shard(owner, ids, after, asked)
    if isinstance(shard, str):
        raise OperationError("partitioned", shard)
    reason = placement.elsewhere(shard)
    if reason is not None:
        raise OperationError("partitioned", reason)
    return shard

"""Background jobs in a cluster: each belongs to a shard, and one broker serves a shard.

A broker without a cluster has no placement, and serves all jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from dragoman.core.model import JobId
from dragoman.operations.schemas import OperationError

# Operations on pauses, limits and schedules. The broker that has shard 0 of the cluster serves them.
SHARED: Final = {
    "pause": None,
    "resume": None,
    "limit": None,
    "schedules": None,
    "schedule": None,
    "set schedule": None,
    "delete schedule": None,
    "pause schedule": None,
    "resume schedule": None,
    "run schedule": None,
}


class Placement(Protocol):
    """Chooses shards. A text instead of an answer is the reason why this broker cannot serve the request."""

    def job_id(self, owner: str, service: str, key: str | None, after: Sequence[bytes]) -> JobId | str: ...

    def run_id(self) -> JobId | None: ...

    def id_in(self, shard: int) -> JobId: ...

    def batch_shard(self, ids: Sequence[bytes], after: Sequence[bytes], has_keys: bool) -> int | str: ...

    def elsewhere(self, shard: int) -> str | None: ...

    def job_elsewhere(self, id: bytes) -> str | None: ...

    def notes_elsewhere(self) -> str | None: ...


def placed_id(placement: Placement, owner: str, service: str, key: str | None, after: Sequence[str]) -> JobId:
    """Return the id of a new background job. Raises OperationError if another broker must take it."""
    placed = placement.job_id(owner, service, key, [bytes.fromhex(each) for each in after])
    if isinstance(placed, str):
        raise OperationError("partitioned", placed)
    return placed


def check_shared(placement: Placement, operation: str) -> None:
    """Raise OperationError if another broker must serve this operation."""
    reason = placement.notes_elsewhere() if operation in SHARED else None
    if reason is not None:
        raise OperationError("partitioned", reason)


def batch_shard(placement: Placement, ids: Sequence[bytes], after: Sequence[bytes], has_keys: bool) -> int:
    """Return the shard of a batch. Raises OperationError if another broker must take it, or none can."""
    shard = placement.batch_shard(ids, after, has_keys)
    if isinstance(shard, str):
        raise OperationError("invalid" if has_keys else "partitioned", shard)
    reason = placement.elsewhere(shard)
    if reason is not None:
        raise OperationError("partitioned", reason)
    return shard

"""Background jobs in a cluster: each belongs to a shard, and one broker serves a shard.

A broker without a cluster has no placement, and serves all jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dragoman.core.model import JobId
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import OperationError


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


def check_shared(placement: Placement, row: Operation[Any, Any]) -> None:
    """Raise OperationError if another broker must serve this operation: pauses, limits and schedules are in shard 0."""
    reason = placement.notes_elsewhere() if row.answered_by in ("shard 0", "schedule") else None
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

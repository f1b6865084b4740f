"""Notices that the log of an owned shard takes no writes, so that its jobs hold no workers meanwhile."""

from __future__ import annotations

from typing import Final

from dragoman.cluster.log import ShardLog
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf

UNWRITABLE_AFTER: Final = 3.0  # seconds without an answer to a commit; a server under load takes less


def watch_writer(log: ShardLog, shard: int, broker: Broker, now: float) -> float:
    """Tell the broker when the shard cannot be written, and when it can again. Returns the time of the next call."""
    since = log.writer.waiting_since if log.writer is not None else inf
    due = since + UNWRITABLE_AFTER
    is_unwritable = bool(log.loss) or now >= due
    if is_unwritable is not (shard in broker.job_registry.pending_commits.unwritable):
        if is_unwritable:
            broker.store_reports.unwritable(shard, now)
        else:
            broker.store_reports.writable(shard)
    return inf if is_unwritable else due

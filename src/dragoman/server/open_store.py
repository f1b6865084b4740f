"""Opens the store of a data folder for the broker, and logs its problems."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.store.errors import StoreError
from dragoman.store.limits import StoreLimits
from dragoman.store.null import NullStore
from dragoman.store.sealing import Progress
from dragoman.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from dragoman.cluster.broker_side import ClusterSide
    from dragoman.cluster.store import ShardStore


def open_store(
    loop: asyncio.AbstractEventLoop,
    folder: Path,
    config: Config,
    release: str,
    log: Any,
    progress: Progress | None,
    failed: Callable[[str], None],
) -> SqliteStore:
    """Open the store. `progress` is called while it is upgraded, `failed` once if nothing can be written any more.
    Raises StoreError."""

    def upgraded(rows: int, total: int) -> None:
        if progress is not None:
            progress(rows, total)
        if progress is None or rows == total:
            log.info("store upgraded", rows=rows, total=total)

    limits = StoreLimits(max_store_size=config.max_store_size)
    post = loop.call_soon_threadsafe
    store = SqliteStore(folder, post, clock.wall_offset, limits, author=release, progress=upgraded)
    store.failed = failed
    store.when_lost(lambda message: log.error("store files lost", problem=message))
    if store.problem is not None:
        log.warning("store unavailable", problem=store.problem)
    return store


def store_problems(
    store: SqliteStore | NullStore | ShardStore, side: ClusterSide | None, now: float
) -> tuple[list[str], list[str]]:
    """Return the reasons why new jobs cannot be stored now; and sentences about shards that do not work while others
    do. No other broker could do better with these, so a load balancer must not take this broker away."""
    if isinstance(store, SqliteStore | NullStore):
        return [] if store.problem is None else [f"the store cannot write: {store.problem}"], []
    if store.problem is not None:
        return [f"background jobs are refused: {store.problem}"], []
    if side is not None and (silence := side.silence(now)):
        return [f"background jobs may have other owners by now: {silence}"], []
    keeper = None if side is None else side.keeper
    if keeper is None:
        return [], []
    delays, unusable = store.delays(), [keeper.signs.unusable(shard.number) for shard in keeper.kept]
    if delays and len(delays) == len(store.attached):
        return list(delays.values()), []
    if all(unusable):
        return unusable, []
    found = [sentence or delays.get(number, "") for number, sentence in enumerate(unusable)]
    return [], [sentence for sentence in found if sentence]


def open_shard_store(
    loop: asyncio.AbstractEventLoop,
    folder: Path | None,
    config: Config,
    release: str,
    log: Any,
    now: Callable[[], float],
) -> ShardStore:
    """Make the store of a broker in a cluster. Raises StoreError if the data folder has jobs, which would be lost."""
    if folder is not None:
        kept = open_store(loop, folder, config, release, log, None, lambda message: None)
        last, problem = kept.last_number, kept.close()
        if last or problem:
            raise StoreError(
                f"{folder} has background jobs of a broker without a cluster, which a member of a cluster does not "
                "read; choose another folder with --data, or start without --cluster"
            )
    from dragoman.cluster.store import ShardStore

    return ShardStore(now)

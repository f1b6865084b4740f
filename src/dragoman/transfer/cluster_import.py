"""Imports a file into the shards of a cluster, while no broker runs.

    1  all shards are claimed and read; whatever would be mixed up or lost is refused
    2  every shard is marked as begun: from here on no broker takes it
    3  jobs and values are written, each to its shard
    4  when all of it is in the logs, every shard is marked as done, and released

An import that was interrupted is repeated with the same file: what is there is not written again. A file that was
imported before is refused.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from dragoman.cluster.imports import BEGUN, DONE, interrupted
from dragoman.cluster.imports import PREFIX as IMPORT
from dragoman.cluster.shard_image import ShardImage
from dragoman.cluster.shard_rows import Batch
from dragoman.cluster.store import NOTES, WATCH
from dragoman.core.rights import LOCAL
from dragoman.server.nats_connection import NatsConnection
from dragoman.transfer.errors import TransferError
from dragoman.transfer.exported_job import HEAD, ExportedJob
from dragoman.transfer.file_index import FileIndex
from dragoman.transfer.jobs_file import FileReader, Progress
from dragoman.transfer.open_logs import OpenLog, listen, read_layout
from dragoman.transfer.shard_choice import choose_shards, watches

JOBS_AT_ONCE: Final = 100  # in one batch
BYTES_AT_ONCE: Final = 256 * 1024
SERVICE, KEY, OWNER = HEAD.index("service"), HEAD.index("key"), HEAD.index("owner")

_encoder: Final = msgspec.msgpack.Encoder()


class Target:
    """One shard: its log, what it has, and what waits to be written."""

    def __init__(self, log: OpenLog) -> None:
        self.log = log
        self.image = ShardImage()
        self.is_done = False  # an interrupted import has marked it as done, and brokers may have used it since
        self.written = 0  # jobs and values, with those that were there
        self._jobs: list[ExportedJob] = []
        self._values: list[tuple[str, str | None]] = []
        self._bytes = 0

    async def own(self) -> None:
        def take(batch: object) -> None:
            self.image.take(batch)  # type: ignore[arg-type]

        def forget() -> None:
            self.image = ShardImage()

        await self.log.own(take, forget)

    async def add_job(self, job: ExportedJob) -> None:
        self.written += 1
        if not self.is_done and job.id not in self.image.jobs:  # else an interrupted import has written it
            self._jobs.append(job)
            self._bytes += len(job.payload) + 500
            if len(self._jobs) >= JOBS_AT_ONCE or self._bytes >= BYTES_AT_ONCE:
                await self.send()

    async def add_value(self, key: str, value: str) -> None:
        self.written += 1
        if not self.is_done and key not in self.image.notes:
            self._values.append((key, value))
            self._bytes += len(value)
            if self._bytes >= BYTES_AT_ONCE:
                await self.send()

    async def watch(self, id: bytes, shard: int) -> None:
        """Keep a job or group of this shard, because jobs of another one wait for it."""
        await self.add_value(f"{WATCH}{self.log.shard}/{id.hex()}/{shard}", "0")
        self.written -= 1  # it is no value of the file

    async def send(self) -> None:
        """Write what waits. Times in a log are relative to the moment of the batch."""
        if self._jobs or self._values:
            now = time.time()
            moved = [(job.shifted(-now), job.payload) for job in self._jobs]
            jobs: list[tuple[list[Any], bytes | None]] = [(job.head, payload) for job, payload in moved]
            statuses = [(job.id, job.status, "") for job, _ in moved if job.status is not None]
            batch = Batch(jobs, [], [], statuses, self._values, [])
            self._jobs, self._values, self._bytes = [], [], 0
            await self.log.add(_encoder.encode(batch))

    async def mark(self, key: str, value: str) -> None:
        if self.image.notes.get(key) != value:
            await self.log.add(_encoder.encode(Batch([], [], [], [], [(key, value)], [])))
        await self.log.flush()


async def import_cluster(
    connection: NatsConnection, cluster: str, file: FileReader, index: FileIndex, release: str, progress: Progress
) -> None:
    """Raises InUse and TransferError."""
    layout = await read_layout(connection, cluster)
    members = await listen(connection, cluster, layout)
    chosen = choose_shards(index, layout.shards)
    mark = IMPORT + file.identity
    targets: list[Target] = []
    try:
        for shard in range(layout.shards):
            targets.append(Target(OpenLog(connection, members, cluster, shard, layout, release)))
            await targets[-1].own()
        _check(targets, index, chosen, mark)
    except TransferError:
        await _release([each for each in targets if each.log.claimed_time])
        raise
    for target in targets:
        if not target.is_done:
            await target.mark(mark, BEGUN)
    await _write(targets, file, index, chosen, progress)
    for target in targets:
        await target.mark(mark, DONE)
    await _release(targets)


async def _release(targets: list[Target]) -> None:
    for target in targets:
        await target.log.release()


def _check(targets: list[Target], index: FileIndex, chosen: dict[bytes, int], mark: str) -> None:
    """Raise TransferError if the cluster cannot take the file."""
    marks = [target.image.notes.get(mark) for target in targets]
    if all(each == DONE for each in marks):
        raise TransferError("this file was imported into this cluster before")
    for target in targets:
        target.is_done = target.image.notes.get(mark) == DONE
        other = interrupted(target.image.notes)
        if other and IMPORT + other != mark:
            raise TransferError(f"the import of another file ({other}) was interrupted; finish that one first")
        if target.image.notes.get(mark) is None:
            _check_free(target, index, chosen)


def _check_free(target: Target, index: FileIndex, chosen: dict[bytes, int]) -> None:
    """Raise TransferError if a shard has jobs or values of the file, or jobs with the same keys."""
    shard, image = target.log.shard, target.image
    keys = {
        (entry.owner, entry.service, entry.key): id
        for id, entry in index.jobs.items()
        if entry.key is not None and chosen[id] == shard
    }
    for id, job in image.jobs.items():
        if id in index.jobs:
            raise TransferError(f"the cluster has job {id.hex()} already, in shard {shard}; nothing was imported")
        again = keys.get((job.head[OWNER] or LOCAL, job.head[SERVICE], job.head[KEY])) if len(job.head) > 1 else None
        if again is not None:
            raise TransferError(
                f"job {again.hex()} of the file and job {id.hex()} of the cluster have the same key; delete one of "
                "them. Nothing was imported"
            )
    for key in image.notes:
        if key in index.values:
            raise TransferError(f"the cluster has a value {key!r} already; delete it there. Nothing was imported")


async def _write(
    targets: list[Target], file: FileReader, index: FileIndex, chosen: dict[bytes, int], progress: Progress
) -> None:
    shard_of_group = {key: chosen[id] for id, key in index.groups.items()}
    done = 0
    for item in file.read():
        if isinstance(item, ExportedJob):
            await targets[chosen[item.id]].add_job(item)
            done += 1
            progress(done, len(index.jobs))
        else:
            await targets[shard_of_group.get(item[0], NOTES)].add_value(*item)
    for id, shard in watches(index, chosen):
        await targets[chosen[id]].watch(id, shard)
    for target in targets:
        await target.send()
        await target.log.flush()
    written, wanted = sum(each.written for each in targets), sum(file.counts.values())
    if written != wanted:
        raise TransferError(f"the file has {wanted} jobs and values; {written} were written. Run the import again")

"""Jobs and values of a shard whose log is damaged: those that can be exported, and a list of those that cannot.

A job is left out if its first row or its payload is in a message that cannot be read. A job that has not ended, and
whose newest row is before the damage, is exported as it was then: later rows of it may be lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.imports import interrupted
from dragoman.cluster.jetstream import ApiError, read_stream, stream_info
from dragoman.cluster.layout import Layout, stream_name
from dragoman.cluster.log import IDENTITY
from dragoman.cluster.log_reader import READ_BYTES, ReadBatch
from dragoman.cluster.shard_bytes import MOST_SHARDS
from dragoman.cluster.shard_rows import read_batch
from dragoman.core.groups import PREFIX as GROUP
from dragoman.core.groups import PRESENT
from dragoman.core.restore import StoredJob
from dragoman.server.cluster_init import REQUEST_TIMEOUT
from dragoman.server.cluster_shards import STREAM_NOT_FOUND, layout_problem
from dragoman.server.nats_connection import NatsConnection
from dragoman.transfer.damage import Damage
from dragoman.transfer.damaged_log import DamagedLog, Entry, read_entries
from dragoman.transfer.errors import DamagedShard, TransferError
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.full_image import FullImage

PAUSE: Final = 0.5  # seconds before a request without an answer is repeated
NOTES: Final = 0  # the shard of schedules, pauses and limits
NO_FIRST_ROW: Final = "left out, because their first rows are in messages that cannot be read"
NO_PAYLOAD: Final = "left out, because their payloads are in messages that cannot be read"
NO_ROWS: Final = "left out, because their rows cannot be read"
OLDER: Final = (
    "jobs that have not ended are exported as they were before the damage: what happened to them later may be lost, "
    "and they may run again"
)
NO_GROUP: Final = "groups are left out, because their records are in messages that cannot be read; their jobs are not"
NO_MEMBERS: Final = "groups are exported without some of their jobs, which count as lost"
KEYS: Final = "unknown jobs may be left out with these messages; their keys are free again"
VALUES: Final = "schedules, pauses and limits that were written in these messages are missing, or as they were before"
NO_PREDECESSOR: Final = (
    "jobs come after jobs or groups that are not in the file: the broker cancels them, or runs them if they run after "
    "failures"
)


async def damaged_layout(connection: NatsConnection, cluster: str) -> Layout:
    """Return the layout that most streams of a cluster have. Raises TransferError if none has one."""
    counts: dict[Layout, int] = {}
    number, end, problem = 0, MOST_SHARDS, ""
    while number < end:
        asked = stream_info(stream_name(cluster, number))
        found = layout_problem(cluster, read_stream(await connection.request(asked, REQUEST_TIMEOUT)))
        if isinstance(found, Layout):
            counts[found] = counts.get(found, 0) + 1
            end = max(each.shards for each in counts)
        else:
            problem = problem or found
        number += 1
    if not counts:
        raise TransferError(problem)
    return max(counts, key=counts.__getitem__)


class SalvagedShard:
    """The readable part of one shard. `damages`: what is left out."""

    def __init__(self, shard: int, log: DamagedLog) -> None:
        self.damages = list(log.damages)
        self._shard = shard
        self._image = FullImage()
        self._touched: dict[bytes, int] = {}  # sequence of the newest row of each job
        self._hole = log.last_hole  # later rows of jobs with older ones may be lost
        for batch in log.batches:
            self._take(batch)
        self._drop_unreadable()
        self._jobs = {job.id: (kept, job) for kept, job in self._image.jobs()}
        self._drop_without_payload()
        self._report()

    @property
    def values(self) -> dict[str, str]:
        return self._image.image.notes

    def jobs(self) -> Iterator[tuple[StoredJob, ExportedJob]]:
        yield from self._jobs.values()

    def _tell(self, reason: str, jobs: list[bytes]) -> None:
        if jobs:
            self.damages.append(Damage(self._shard, reason, jobs=tuple(jobs)))

    def _take(self, batch: ReadBatch) -> None:
        try:
            self._image.take(batch)
            rows = read_batch(batch.data)
        except (Malformed, IndexError, TypeError) as problem:
            detail = problem.detail if isinstance(problem, Malformed) else str(problem)
            self.damages.append(Damage(self._shard, f"a batch cannot be read: {detail}", batch.first, batch.last))
            self._hole = max(self._hole, batch.last + 1)  # other batches of the commit may be before it
            return
        for head in [*[head for head, _ in rows.jobs], *rows.heads]:
            self._touched[head[0]] = batch.last
        for id in [*[id for id, _ in rows.payloads], *[id for id, _, _ in rows.statuses]]:
            self._touched[id] = batch.last

    # ---------------------------------------------------------------- jobs that are left out

    def _drop_unreadable(self) -> None:
        image = self._image.image
        unreadable = image.unreadable()
        headless = [id for id in unreadable if len(image.jobs[id].head) == 1]
        self._tell(NO_FIRST_ROW, headless)
        self._tell(NO_ROWS, [id for id in unreadable if id not in headless])
        for id in unreadable:
            del image.jobs[id]

    def _drop_without_payload(self) -> None:
        """A job that has ended needs none, unless it is in quarantine."""
        needed = [id for id, (kept, _) in self._jobs.items() if kept.outcome is None or kept.quarantined]
        lost = [id for id in needed if not self._image.has_payload(id)]
        self._tell(NO_PAYLOAD, lost)
        for id in lost:
            del self._jobs[id]

    # ---------------------------------------------------------------- jobs that are changed

    def _report(self) -> None:
        older: list[bytes] = []
        members: dict[bytes, int] = {}
        for id, (kept, _) in self._jobs.items():
            extras = kept.extras
            if kept.outcome is None and self._touched.get(id, 0) < self._hole:
                older.append(id)
            if extras is not None and extras.group is not None:
                members[extras.group] = members.get(extras.group, 0) + 1
        self._tell(OLDER, older)
        self._tell(NO_GROUP, [id for id in members if GROUP + id.hex() not in self.values])
        groups = [key for key in self.values if key.startswith(GROUP)]
        found = {bytes.fromhex(key.removeprefix(GROUP)): self.values[key] for key in groups}
        self._tell(NO_MEMBERS, [id for id, text in found.items() if members.get(id, 0) < _size_of(text)])
        if self._hole:
            self.damages.append(Damage(self._shard, KEYS if self._shard != NOTES else f"{KEYS}; {VALUES}"))
        unfinished = interrupted(self.values)
        if unfinished:
            reason = f"the import of file {unfinished} may not have ended: its last mark is not in the log"
            self.damages.append(Damage(self._shard, reason))


def _size_of(text: str) -> int:
    """Return the number of jobs that the record of a group says are in the store; 0: it cannot be read."""
    try:
        facts: dict[str, Any] = json.loads(text)
        size, gone = int(facts["size"]), str(facts.get("gone", ""))
        return size - len(gone) + gone.count(PRESENT)
    except (ValueError, KeyError, TypeError):
        return 0


async def salvage(
    connection: NatsConnection, cluster: str, shard: int, layout: Layout, epoch: int, had: int, reason: str
) -> SalvagedShard:
    """Read what is left of a shard. `epoch`: of our claim; 0: the log was not claimed, for this `reason`. `had`: the
    last sequence that the log is known to have had. Raises TransferError if that cannot be found out."""
    name = stream_name(cluster, shard)

    def nothing(problem: str, last: int = 0) -> SalvagedShard:
        everything = "jobs, groups, schedules, pauses and limits" if shard == NOTES else "jobs and groups"
        log = DamagedLog(shard, layout.identity, [])
        log.damages.append(Damage(shard, f"{problem}: all {everything} of the shard are left out", min(last, 1), last))
        return SalvagedShard(shard, log)

    found = read_stream(await connection.request(stream_info(name), REQUEST_TIMEOUT))
    if isinstance(found, ApiError):
        if found.err_code == STREAM_NOT_FOUND:
            return nothing(f"its stream {name} is gone", had)
        raise TransferError(f"shard {shard}: {found.description}")
    identity = found.metadata.get(IDENTITY, "")
    if identity != layout.identity:
        return nothing(f"its stream {name} is that of {identity or 'no cluster'}, not of {layout.identity}", had)
    if found.last and not found.messages:
        return nothing(f"somebody has purged its stream {name}", max(found.last, had))
    if not epoch:
        raise DamagedShard(f"{reason}. Correct the stream {name} with the program of NATS, and export again")

    async def ask(first: int, count: int) -> DirectBatch:
        batch = await connection.batch(name, first, count, REQUEST_TIMEOUT, READ_BYTES)
        if batch.problem or not batch.messages:
            await asyncio.sleep(PAUSE)
        return batch

    entries = await read_entries(ask, found.first, epoch)
    again = read_stream(await connection.request(stream_info(name), REQUEST_TIMEOUT))
    if not isinstance(again, ApiError):  # an owner that learned of our claim late may have purged it meanwhile
        entries = [each for each in entries if each.last >= again.first]
    if epoch <= had:
        entries.append(Entry(epoch, had, 0, None, "lost: the log ended before them"))
    return SalvagedShard(shard, DamagedLog(shard, layout.identity, entries))

"""Exports all shards of a cluster, one after the other, while no broker runs.

A shard whose log is damaged ends the export; or, if the operator wants that, what can be read of it is exported, and
what is left out is a part of the file (`salvage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.imports import PREFIX as IMPORT
from dragoman.cluster.imports import interrupted
from dragoman.cluster.layout import Layout
from dragoman.cluster.log_beginnings import PREFIX as BEGINNINGS
from dragoman.cluster.log_beginnings import missing_beginning
from dragoman.cluster.store import KEY, WATCH
from dragoman.core.groups import PREFIX as GROUP
from dragoman.core.remembered import CLIENT, FORGOTTEN
from dragoman.core.restore import StoredJob
from dragoman.server.nats_connection import NatsConnection
from dragoman.transfer.damage import Damage
from dragoman.transfer.errors import DamagedShard, TransferError
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.full_image import FullImage
from dragoman.transfer.jobs_file import FileWriter, Progress
from dragoman.transfer.open_logs import Members, OpenLog, listen, read_layout
from dragoman.transfer.salvage import NO_PREDECESSOR, damaged_layout, salvage

NOT_EXPORTED: Final = (
    IMPORT,
    WATCH,
    KEY,
    BEGINNINGS,
    CLIENT,
    FORGOTTEN,
)  # the jobs have their keys, and name those that they wait for; requests are those of one cluster
ADVICE: Final = "repair the log, or export what can be read with --skip-damaged"


class ClusterExport:
    """One export. `skips_damaged`: export what can be read of damaged logs. `had`: the last sequence that the logs of
    some shards are known to have had."""

    def __init__(
        self,
        connection: NatsConnection,
        cluster: str,
        file: FileWriter,
        release: str,
        skips_damaged: bool = False,
        had: Mapping[int, int] | None = None,
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._file = file
        self._release = release
        self._skips = skips_damaged
        self._had = had or {}
        self._ids: dict[bytes, None] = {}  # of exported jobs and groups
        self._after: dict[bytes, tuple[int, tuple[bytes, ...]]] = {}  # jobs that wait: their shard, and for which ones

    async def write(self, progress: Progress) -> None:
        """Write all shards. Raises InUse, DamagedShard and TransferError."""
        read = damaged_layout if self._skips else read_layout
        layout = await read(self._connection, self._cluster)
        members = await listen(self._connection, self._cluster, layout)
        beyond = [shard for shard in self._had if not 0 <= shard < layout.shards]
        if beyond:
            raise TransferError(f"the cluster has the shards 0 to {layout.shards - 1}, and no shard {beyond[0]}")
        for shard in range(layout.shards):
            await self._write_shard(members, layout, shard)
            progress(shard + 1, layout.shards)
        self._tell_waiting()

    async def _write_shard(self, members: Members, layout: Layout, shard: int) -> None:
        expected = Layout(layout.identity, layout.shards, 1) if self._skips else layout  # replicas say nothing of rows
        log = OpenLog(self._connection, members, self._cluster, shard, expected, self._release)
        image = FullImage()
        try:
            await log.own(image.take, image.forget)
        except DamagedShard as damage:
            await self._write_rest(layout, shard, log.epoch, damage)
            return
        try:
            damaged = self._problem_of(image, shard, log.first, log.epoch)
            if damaged is not None:
                await self._write_rest(layout, shard, log.epoch, damaged)
                return
            unfinished = interrupted(image.image.notes)
            if unfinished:
                raise TransferError(f"the import of file {unfinished} was interrupted; finish it first")
            self._add(shard, image.jobs(), image.image.notes)
        except Malformed as problem:
            raise DamagedShard(f"shard {shard}: {problem.detail}; {ADVICE}") from None
        finally:
            await log.release()

    def _problem_of(self, image: FullImage, shard: int, first: int, epoch: int) -> DamagedShard | None:
        """Return the error of a log that could be read, and is damaged; None: it is not."""
        had = self._had.get(shard, 0)
        if epoch <= had:
            return DamagedShard(f"shard {shard}: the log ends with {epoch - 1}, and has had {had}")
        missing = missing_beginning(image.image.notes, first)
        if missing:
            return DamagedShard(f"shard {shard}: {missing}")
        unreadable = image.image.unreadable() if self._skips else {}
        return DamagedShard(f"shard {shard}: {next(iter(unreadable.values()))}") if unreadable else None

    async def _write_rest(self, layout: Layout, shard: int, epoch: int, damage: DamagedShard) -> None:
        """Write what can be read of a damaged log. Raises DamagedShard if that is not wanted."""
        if not self._skips:
            raise DamagedShard(f"{damage}; {ADVICE}")
        had = self._had.get(shard, 0)
        found = await salvage(self._connection, self._cluster, shard, layout, epoch, had, str(damage))
        for each in found.damages or [Damage(shard, str(damage).removeprefix(f"shard {shard}: "))]:
            self._file.add_damage(each)
        self._add(shard, found.jobs(), found.values)

    def _add(self, shard: int, jobs: Iterable[tuple[StoredJob, ExportedJob]], values: Mapping[str, str]) -> None:
        """Raises Malformed."""
        for kept, job in jobs:
            self._file.add_job(job)
            self._ids[job.id] = None
            extras = kept.extras
            if extras is not None and kept.outcome is None and kept.token is None and not extras.is_ready:
                self._after[job.id] = (shard, tuple(extras.after))
        for key, value in values.items():
            if not key.startswith(NOT_EXPORTED):
                self._file.add_value(key, value)
            if key.startswith(GROUP):
                self._ids[bytes.fromhex(key.removeprefix(GROUP))] = None

    def _tell_waiting(self) -> None:
        """List jobs that come after others which are left out; in the file of a damaged cluster."""
        if not self._file.damages:
            return
        waiting: dict[int, list[bytes]] = {}
        for id, (shard, before) in self._after.items():
            if any(each not in self._ids for each in before):
                waiting.setdefault(shard, []).append(id)
        for shard, ids in waiting.items():
            self._file.add_damage(Damage(shard, NO_PREDECESSOR, jobs=tuple(ids)))

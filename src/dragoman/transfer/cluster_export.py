"""Exports all shards of a cluster, one after the other, while no broker runs."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.imports import PREFIX as IMPORT
from dragoman.cluster.imports import interrupted
from dragoman.cluster.store import KEY, WATCH
from dragoman.server.nats_connection import NatsConnection
from dragoman.transfer.errors import TransferError
from dragoman.transfer.full_image import FullImage
from dragoman.transfer.jobs_file import FileWriter, Progress
from dragoman.transfer.open_logs import OpenLog, listen, read_layout

NOT_EXPORTED: Final = (IMPORT, WATCH, KEY)  # the jobs have their keys, and name those that they wait for


async def export_cluster(
    connection: NatsConnection, cluster: str, file: FileWriter, release: str, progress: Progress
) -> None:
    """Raises InUse and TransferError."""
    layout = await read_layout(connection, cluster)
    members = await listen(connection, cluster, layout)
    for shard in range(layout.shards):
        log = OpenLog(connection, members, cluster, shard, layout, release)
        image = FullImage()
        await log.own(image.take, image.forget)
        try:
            unfinished = interrupted(image.image.notes)
            if unfinished:
                raise TransferError(f"the import of file {unfinished} was interrupted; finish it first")
            for job in image.jobs():
                file.add_job(job)
            for key, value in image.image.notes.items():
                if not key.startswith(NOT_EXPORTED):
                    file.add_value(key, value)
        except Malformed as problem:
            raise TransferError(f"shard {shard}: {problem.detail}") from None
        finally:
            await log.release()
        progress(shard + 1, layout.shards)

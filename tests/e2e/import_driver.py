"""Imports a file, and kills itself after so many jobs: FILE (folder|cluster) TARGET JOBS."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from dragoman.server import cluster_init
from dragoman.transfer.cluster_import import import_cluster
from dragoman.transfer.file_index import FileIndex
from dragoman.transfer.folder import import_folder
from dragoman.transfer.jobs_file import FileReader, no_progress


def main(name: str, kind: str, target: str, jobs: str) -> None:
    def progress(done: int, total: int) -> None:
        if done >= int(jobs):
            os.kill(os.getpid(), signal.SIGKILL)

    with open(name, "rb") as file:
        reader = FileReader(file)
        index = FileIndex(reader, no_progress)
        if kind == "folder":
            import_folder(Path(target), reader, index, "0.1.0", progress)
        else:
            asyncio.run(into_cluster(target, reader, index, progress))


async def into_cluster(url, reader, index, progress) -> None:  # type: ignore[no-untyped-def]
    connection = await cluster_init.connect(url, "dragoman", "", "import")
    await import_cluster(connection, "dragoman", reader, index, "0.1.0", progress)


main(*sys.argv[1:])

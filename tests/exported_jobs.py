"""Files of exports, for tests."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.jobs_file import FileWriter

CREATED = 1_790_000_000.25


def job_with(id: bytes, *, key: str | None = None, extras: str | None = None, created: float = CREATED) -> ExportedJob:
    """Return a waiting job."""
    head: list[Any] = [id, "later", '{"durable":true}', created, key, b"digest" if key else None, None, None, extras]
    return ExportedJob(head, b"payload", None)


def made_file(path: Path, count: int) -> None:
    """Write a file with so many jobs."""
    random = Random(count)
    with open(path, "wb") as file:
        writer = FileWriter(file.write, "0.1.0", random.randbytes(16).hex(), "folder", CREATED)
        for number in range(count):
            id = random.randbytes(16)
            writer.add_job(job_with(id, key=f"k{number}" if number % 2 else None, created=CREATED + number))
        writer.end()

"""Remembered requests in a store (R235): in the commit of what the request does, and not without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.remembered import CLIENT, RequestId
from dragoman.store import statements
from dragoman.store.file_names import NAME
from dragoman.store.limits import StoreLimits
from dragoman.store.schema import open_file

from .disk import Disk
from .world import LIMITS, Setup, until

CLIENT_NAME = "1" * 32
KEPT = JobOptions(durable=True, waits=True, keep=0.0)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    (tmp_path / "first").mkdir()
    return tmp_path


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("a disk with requests")
    yield disk
    disk.unregister()


def numbered(number: int) -> RequestId:
    return RequestId(CLIENT_NAME, number, 1, 1_700_000_000_000)


def enqueue(setup: Setup, number: int) -> Job:
    """Accept a job and its request, as the operation does."""
    asked = numbered(number)
    id = asked.job_id("local")
    job = setup.broker.submit("s", b"x", setup.caller, KEPT, setup.now, id=id)
    assert job is not None
    setup.broker.job_registry.remembered.accept_job(asked, "local", 0, id, setup.now)
    return job


def is_known(setup: Setup, number: int) -> bool:
    return setup.broker.job_registry.remembered.find(numbered(number), "local", 0, setup.now) is not None


def test_request_is_in_the_commit_of_its_job(tmp_path: Path, disk: Disk) -> None:
    """After the loss of power at any write, the job and its request are there, or neither."""
    setup, random = Setup(tmp_path / "first", StoreLimits(ballast=0, idle=0.001), vfs=disk.name), Random("power")
    setup.settle()
    images: list[dict[str, bytes]] = []
    disk.before_write = lambda: images.append(disk.after_power_cut(random))
    for number in range(1, 20):
        enqueue(setup, number)
        enqueue(setup, 100 + number)
        setup.settle()
    setup.close()
    seen = []
    for count, files in enumerate(images[:60]):
        folder = tmp_path / str(count)
        folder.mkdir()
        for name, left in files.items():
            if name:
                (folder / name).write_bytes(left)
        connection = open_file(folder / NAME)
        jobs = connection.execute("SELECT count(*) FROM job").get
        rows = [text for key, text in statements.read_notes(connection) if key.startswith(CLIENT)]
        connection.close()
        seen.append((jobs, sum(int(text.split('"')[1], 16).bit_count() for text in rows)))
    assert len(set(seen)) > 5
    assert all(jobs == requests for jobs, requests in seen), seen


def test_request_is_known_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "first")
    enqueue(setup, 1)
    enqueue(setup, 3)
    setup = setup.restarted()
    assert [is_known(setup, number) for number in (1, 2, 3)] == [True, False, True]
    setup.close()


def test_request_is_not_remembered_without_its_job(tmp_path: Path, disk: Disk) -> None:
    """The disk was full: the job was refused, and its request was written when there was room again, with all that is
    not a job. If the broker then died, the repetition was told that the job exists."""
    setup = Setup(tmp_path / "first", LIMITS, vfs=disk.name)
    setup.settle()
    enqueue(setup, 1)
    setup.settle()

    def fail() -> None:
        raise apsw.FullError

    disk.before_write = fail
    job = enqueue(setup, 2)
    setup.runner.run_once()
    until(lambda: setup.store.problem is not None)
    disk.before_write = lambda: None
    until(lambda: setup.store.problem is None)  # what could not be written is written; the broker was not told yet
    shutil.copytree(tmp_path / "first", tmp_path / "killed")
    killed = Setup(tmp_path / "killed", LIMITS, seed="another")
    killed.load()
    assert [is_known(killed, number) for number in (1, 2)] == [True, False]
    killed.close()
    setup.settle()
    assert job.id not in setup.broker.jobs
    assert [is_known(setup, number) for number in (1, 2)] == [True, False]
    setup.close()

"""R102: with any part of the unsynced data lost in a power cut, everything acknowledged is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dragoman.core.interim_effects import Acknowledge
from dragoman.store.limits import StoreLimits
from dragoman.store.schema import bring_up_to_date, check_file, open_file

from .disk import Disk
from .world import Setup

IMAGES = 200
LIMITS = StoreLimits(ballast=0, idle=0.001, busy_wal=100_000)  # the log is carried over often


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("losing power")
    yield disk
    disk.unregister()


Image = tuple[dict[str, bytes], list[bytes], list[bytes]]


def has_room(files: dict[str, bytes]) -> bool:
    """True if the log ends in zeros: room that was written ahead, and is not used yet."""
    return files.get("store.db-wal", b"").endswith(bytes(10_000))


def live(
    folder: Path, disk: Disk, random: Random, images: int, synchronous: str = "FULL", *, with_room: int = 0
) -> list[Image]:
    """Run a broker. Returns what a power cut would leave at many instants, and what was acknowledged by then. Of at
    least `with_room` images, the log has room: how often that is so depends on the speed of the store's thread."""
    setup = Setup(folder, LIMITS, vfs=disk.name)
    setup.store._writer._connection.pragma("synchronous", synchronous)
    setup.worker(capacity=1_000_000)
    heard = setup.caller.heard
    taken: list[tuple[dict[str, bytes], int]] = []

    def look() -> None:
        if random.random() < 0.2 and not is_over():
            files = disk.after_power_cut(random)
            if len(taken) < images or has_room(files):
                taken.append((files, len(heard)))

    def is_over() -> bool:
        return len(taken) >= images and sum(has_room(files) for files, _ in taken) >= with_room

    disk.before_write = look
    done = 0
    while not is_over():
        for _ in range(random.randrange(1, 12)):
            setup.enqueue(random.randbytes(random.choice((10, 500, 3_000, 20_000))))
        setup.settle()
        given = setup.given()
        for give in given[done : done + random.randrange(12)]:
            setup.broker.succeed(give.attempt, b"result", setup.now)
            done += 1
        if random.random() < 0.5:
            setup.settle()
    setup.close()
    return [(files, *_promised(setup, said)) for files, said in taken]


def _promised(setup: Setup, said: int) -> tuple[list[bytes], list[bytes]]:
    """Ids of acknowledged jobs, and of those with a delivered outcome, at this point of the record."""
    heard = setup.caller.heard[:said]
    accepted = [each.job.id for each in heard if isinstance(each, Acknowledge)]
    return accepted, [each.job.id for each in heard if not isinstance(each, Acknowledge)]


def missing(folder: Path, image: Image) -> list[bytes]:
    """Return what was acknowledged and is missing. The file itself must be in order."""
    files, accepted, answered = image
    folder.mkdir()
    for name, left in files.items():
        if name:
            (folder / name).write_bytes(left)
    connection = open_file(folder / "store.db")
    try:
        assert check_file(connection, lambda: False) == ""
        bring_up_to_date(connection)
        found = {id for (id,) in connection.execute("SELECT id FROM job")}
        ended = "SELECT id FROM job JOIN fate ON fate.number = job.number WHERE outcome = 'done'"
        over = {id for (id,) in connection.execute(ended)}
    finally:
        connection.close()
    return [id for id in accepted if id not in found] + [id for id in answered if id not in over]


def test_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, disk: Disk) -> None:
    random = Random("power cut")
    (tmp_path / "live").mkdir()
    images = live(tmp_path / "live", disk, random, IMAGES, with_room=IMAGES // 4)
    lost = [missing(tmp_path / str(number), image) for number, image in enumerate(images)]
    assert sum(len(accepted) for _, accepted, _ in images) > 1_000
    assert [each for each in lost if each] == []


def test_without_a_sync_at_each_commit_it_would(tmp_path: Path, disk: Disk) -> None:
    """That the test above can fail."""
    random = Random("power cut")
    (tmp_path / "live").mkdir()
    images = live(tmp_path / "live", disk, random, 40, "NORMAL")
    assert any(missing(tmp_path / str(number), image) for number, image in enumerate(images))

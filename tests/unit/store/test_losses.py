"""R129: a store that has lost something acknowledged is rejected, and what is left of it is recovered.

A damaged log was read up to the damage, and everything behind it was lost without a message; so was everything if the
log or the file itself was missing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import apsw
import pytest

from case_tables import check_every_row
from dragoman.core.model import Job
from dragoman.server.datadir import DataFolder
from dragoman.store import recovery
from dragoman.store.counter import Count, Counter, read_count
from dragoman.store.errors import StoreError
from dragoman.store.limits import StoreLimits
from dragoman.store.log import FRAME_HEADER, HEADER, Log, size_of_log
from dragoman.store.rows import JOB_COLUMNS, STATUS_COLUMNS
from dragoman.store.schema import make_store

from .disk import Disk
from .test_power_cut import live
from .world import Setup, until

JOBS = 600
BUSY = StoreLimits(ballast=0, idle=3_600.0, retry=3_600.0)  # nothing is merged by itself
PAGE = 4_096


def payload(number: int) -> bytes:
    return b"payload %d " % number * 20


def copied(folder: Path, target: Path) -> Path:
    """Copy what `kill -9` leaves of an idle broker."""
    target.mkdir()
    for each in folder.iterdir():
        shutil.copy(each, target / each.name)
    return target


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A folder with this many jobs, most of them only in the log. Returns their ids."""
    folder = tmp_path_factory.mktemp("live")
    make_store(folder)
    (folder / "epoch").write_text("0\n")
    setup = Setup(folder, BUSY)
    ids = []
    for number in range(JOBS):
        ids.append(setup.enqueue(payload(number)).id)
        if number % 3 == 2:
            setup.settle()
    setup.settle()
    until(lambda: (read_count(folder) or (Count(), True))[0].jobs == JOBS)
    image = copied(folder, tmp_path_factory.mktemp("killed") / "data")
    setup.close()
    return image, list(ids)


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def frames_of(path: Path) -> int:
    """Frames of the log, without the room behind them."""
    with Log(path) as read:
        return sum(read.frame(index).is_ours for index in range(read.count))


def in_frame(path: Path, part: float) -> int:
    """A byte in the middle of a page, so far into the log."""
    return size_of_log(int(frames_of(path) * part), PAGE) + FRAME_HEADER + PAGE // 2


def zero(path: Path, first: int, last: int) -> None:
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(bytes(last - first))


def log(folder: Path) -> Path:
    return folder / "store.db-wal"


def store(folder: Path) -> Path:
    return folder / "store.db"


Damage = Callable[[Path], object]

# The damage to the folder; the number of recovered jobs; the error message.
CASES: dict[str, tuple[Damage, int | None, str]] = {
    "log, a byte at a quarter": (lambda f: flip(log(f), in_frame(log(f), 0.25)), JOBS, "its log is damaged at frame"),
    "log, a byte at three quarters": (lambda f: flip(log(f), in_frame(log(f), 0.75)), JOBS, "its log is damaged at"),
    "log, salts of a frame": (
        lambda f: flip(log(f), in_frame(log(f), 0.5) - PAGE // 2 - 12),
        JOBS,
        "its log is damaged at",
    ),
    "log, checksum of a frame": (lambda f: flip(log(f), in_frame(log(f), 0.5) - PAGE // 2 - 4), JOBS, "its log is"),
    "log, its header": (lambda f: flip(log(f), 9), JOBS, "the header of its log is damaged"),
    "log, salts in its header": (lambda f: flip(log(f), 17), JOBS, "the header of its log is damaged"),
    "log, checksum of its header": (lambda f: flip(log(f), 30), JOBS, "the header of its log is damaged"),
    "log, its header is zeros": (lambda f: zero(log(f), 0, HEADER), JOBS, "the header of its log is damaged"),
    "log, cut to half": (lambda f: os.truncate(log(f), in_frame(log(f), 0.5)), None, "it ends with commit"),
    "log, zeros from half": (
        lambda f: zero(log(f), in_frame(log(f), 0.5), log(f).stat().st_size),
        None,
        "it ends with commit",
    ),
    "log, a frame is zeros": (
        lambda f: zero(log(f), *(size_of_log(frames_of(log(f)) // 2 + more, PAGE) for more in (0, 1))),
        JOBS,
        "its log is damaged at",
    ),
    "log, emptied": (lambda f: os.truncate(log(f), 0), 0, "its log is gone or empty"),
    "log, nothing but zeros": (lambda f: zero(log(f), 0, log(f).stat().st_size), 0, "its log is gone or empty"),
    "log, removed": (lambda f: log(f).unlink(), 0, "its log is gone or empty"),
    "file, emptied": (lambda f: os.truncate(store(f), 0), JOBS, "the file is gone or empty"),
    "file, removed": (lambda f: store(f).unlink(), JOBS, "the file is gone or empty"),
    "file and log, removed": (lambda f: (store(f).unlink(), log(f).unlink()), -1, "the file is gone or empty"),
    "file, log and count, removed": (
        lambda f: [each.unlink() for each in (store(f), log(f), f / "commits")],
        -1,
        "brokers have used it",
    ),
}


def start(folder: Path, seed: str = "again") -> Setup:
    """As `dragoman serve` does."""
    held = DataFolder(folder, make_store)
    try:
        setup = Setup(folder, BUSY, seed=seed)
        setup.load()
    finally:
        held.close()
    return setup


def test_what_kill_leaves_is_in_order(tmp_path: Path, killed: tuple[Path, list[bytes]]) -> None:
    folder = copied(killed[0], tmp_path / "data")
    assert recovery.check(folder) == ""
    setup = start(folder)
    assert list(setup.broker.jobs) == killed[1]
    setup.close()
    assert recovery.check(folder) == ""


@pytest.mark.parametrize("room", ["with room", "without room"])
@pytest.mark.parametrize("case", CASES)
def test_lost_commits_are_refused_and_what_is_left_is_recovered(
    tmp_path: Path, killed: tuple[Path, list[bytes]], case: str, room: str
) -> None:
    """Behind the last frame there are zeros, or nothing: on a disk that was full, and in files of earlier releases."""
    image, ids = killed
    do, brought, sentence = CASES[case]
    folder = copied(image, tmp_path / "data")
    used = size_of_log(frames_of(log(folder)), PAGE)
    assert used < log(folder).stat().st_size
    if room == "without room":
        os.truncate(log(folder), used)
    do(folder)
    before = {each.name: each.read_bytes() for each in folder.iterdir() if each.name.startswith("store")}
    with pytest.raises(StoreError, match=rf"{sentence}.*: run `dragoman store recover` on its folder"):
        start(folder)
    found = recovery.examine(folder)
    assert sentence in found.sentence
    assert {each.name: each.read_bytes() for each in folder.iterdir() if each.name.startswith("store")} == before
    if brought == -1:
        with pytest.raises(StoreError, match=r"nothing of .* is left \(.*: restore a backup, or begin with an empty"):
            recovery.recover(folder)
        return
    made = recovery.recover(folder)
    assert made is not None
    assert sentence in made.lost
    if brought is None:
        assert 0 < made.jobs < JOBS
        assert f": {JOBS - made.jobs} jobs that were accepted" in made.lost
    else:
        assert (made.jobs, made.missing, made.left_out) == (brought, [], 0)
    assert recovery.check(folder) == ""
    setup = start(folder)
    assert list(setup.broker.jobs) == ids[: made.jobs]
    for number, job in enumerate(list(setup.broker.jobs.values())[::40]):
        assert fetched(setup, job) == payload(number * 40)
    setup.close()


def fetched(setup: Setup, job: Job) -> bytes:
    brought: list[bytes] = []
    setup.store.fetch(job, lambda payload, result, _: brought.append(bytes(payload)))
    setup.loop.run_until(lambda: brought or setup.failures)
    return brought[0] if brought else b"refused"


def test_jobs_behind_damage_in_the_log_are_named(tmp_path: Path, killed: tuple[Path, list[bytes]]) -> None:
    image, ids = killed
    folder = copied(image, tmp_path / "data")
    flip(log(folder), in_frame(log(folder), 0.25))
    named = recovery.examine(folder).jobs
    assert named == [id.hex() for id in ids[-len(named) :]]
    assert JOBS * 0.7 < len(named) < JOBS * 0.8
    with pytest.raises(StoreError, match=rf"affected: {named[0]}, {named[1]}, .* and {len(named) - 10} more\)"):
        start(folder)


@pytest.mark.parametrize("case", ["log, a byte at a quarter", "log, its header", "file, removed"])
def test_damage_is_found_without_the_count(tmp_path: Path, killed: tuple[Path, list[bytes]], case: str) -> None:
    """After a power failure the count may be old, or not there."""
    folder = copied(killed[0], tmp_path / "data")
    (folder / "commits").unlink()
    CASES[case][0](folder)
    with pytest.raises(StoreError, match=CASES[case][2] if "file" not in case else "its log is there"):
        start(folder)


@pytest.mark.parametrize("content", [b"", b"600 6", b"\0" * 96, b"many 600 1.0 open 00000000\n"])
def test_a_count_that_cannot_be_read_says_nothing(
    tmp_path: Path, killed: tuple[Path, list[bytes]], content: bytes
) -> None:
    folder = copied(killed[0], tmp_path / "data")
    (folder / "commits").write_bytes(content)
    start(folder).close()


def test_last_transaction_that_is_there_in_part_is_no_damage(tmp_path: Path, killed: tuple[Path, list[bytes]]) -> None:
    """As a power failure leaves it: its commit frame is there, and an earlier frame is not. The count is behind."""
    folder = copied(killed[0], tmp_path / "data")
    with Log(log(folder)) as read:
        frames = [read.frame(index) for index in range(read.count)]
    commits = [frame.index for frame in frames if frame.commit]
    counted = read_count(folder)
    assert counted is not None
    torn = next(index for index in range(commits[-2] + 1, commits[-1]))
    flip(log(folder), HEADER + torn * (FRAME_HEADER + PAGE) + FRAME_HEADER + 100)
    counter = Counter(folder, counted[0])
    counter.note(Count(counted[0].commits - 1, JOBS - 3, counted[0].at))
    counter.close()
    assert recovery.check(folder) == ""
    setup = start(folder)
    assert len(setup.broker.jobs) == JOBS - 3
    assert log(folder).stat().st_size == 0, "what it left cannot be taken for damage later"
    setup.enqueue(b"more")
    setup.settle()
    again = copied(folder, tmp_path / "again")
    setup.close()
    assert recovery.check(again) == ""


def test_power_cut_leaves_nothing_that_looks_like_damage(tmp_path: Path) -> None:
    """R102: with any part of the last transaction, and the newest possible count."""
    disk = Disk("power for the count")
    (tmp_path / "live").mkdir()
    count = tmp_path / "live" / "commits"
    left = disk.after_power_cut
    try:
        disk.after_power_cut = lambda random: {  # type: ignore[method-assign]
            **left(random),
            "commits": count.read_bytes() if count.exists() else b"",
        }
        images = live(tmp_path / "live", disk, Random("power cut and count"), 60)
    finally:
        disk.unregister()
    for number, (files, accepted, _) in enumerate(images):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in files.items():
            if name:
                (folder / name).write_bytes(content)
        if "store.db" not in files or not files["store.db"]:
            continue
        setup = Setup(folder, BUSY, seed="again")
        setup.load()
        assert set(accepted) <= set(setup.broker.jobs)
        setup.close()
        assert recovery.check(folder) == ""


def test_restored_backup_starts_when_it_was_accepted(tmp_path: Path) -> None:
    """An older store in a folder that knows of more, and the newer epoch with it."""
    folder = tmp_path / "data"
    folder.mkdir()
    setup = start(folder, "first")
    old = setup.enqueue(b"old")
    setup.settle()
    setup.close()
    backup = (folder / "store.db").read_bytes()
    setup = start(folder)
    for _ in range(5):
        setup.enqueue()
        setup.settle()
    setup.close()
    (folder / "store.db").write_bytes(backup)
    with pytest.raises(StoreError, match=r"5 jobs that .*or `dragoman store accept` if you have restored a backup"):
        start(folder)
    recovery.accept(folder)
    setup = start(folder)
    assert list(setup.broker.jobs) == [old.id]
    assert int((folder / "epoch").read_text()) >= 2
    setup.close()


def test_empty_folder_of_earlier_brokers_is_accepted_as_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "epoch").write_text("7\n")
    with pytest.raises(StoreError, match="but brokers have used it"):
        start(tmp_path)
    recovery.accept(tmp_path)
    start(tmp_path).close()
    assert (tmp_path / "epoch").read_text() == "8\n"


def test_what_is_damaged_in_itself_is_not_accepted(tmp_path: Path, killed: tuple[Path, list[bytes]]) -> None:
    folder = copied(killed[0], tmp_path / "data")
    flip(log(folder), in_frame(log(folder), 0.25))
    with pytest.raises(StoreError, match=r"its log is damaged at .* run `dragoman store recover`"):
        recovery.accept(folder)
    assert (folder / "commits").exists()


def test_log_without_a_file_is_kept_even_if_nothing_else_is_there(
    tmp_path: Path, killed: tuple[Path, list[bytes]]
) -> None:
    """SQLite removes the log of a file that is empty, and a first start makes such a file."""
    shutil.copy(log(killed[0]), log(tmp_path))
    with pytest.raises(StoreError, match="the file is gone or empty, but its log is there"):
        start(tmp_path)
    made = recovery.recover(tmp_path)
    assert made is not None
    assert made.jobs == JOBS


def test_first_start_that_was_killed_before_it_had_a_store_is_no_loss(tmp_path: Path) -> None:
    """The store is made before the epoch: killed in between, the next start is a first one again."""
    make_store(tmp_path)
    start(tmp_path).close()
    (tmp_path / "epoch").unlink()
    start(tmp_path).close()


# -------------------------------------------------------------------- bytes of the file


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, bytes]]:
    """A closed store, most of it payloads; and these by id."""
    folder = tmp_path_factory.mktemp("merged") / "data"
    folder.mkdir()
    make_store(folder)
    setup = Setup(folder, BUSY)
    random = Random("payloads")
    sizes = (100, 2_000, 9_000)
    payloads = {setup.enqueue(body).id: body for each in range(60) if (body := random.randbytes(sizes[each % 3]))}
    setup.runner.store_access.note("pause/s", "ann")
    setup.settle()
    setup.close()
    return folder, dict(payloads)


def test_no_flipped_byte_of_the_file_reaches_a_worker(tmp_path: Path, merged: tuple[Path, dict[bytes, bytes]]) -> None:
    """Each is refused, at the start or when it is read, or changes nothing. 16 of 21 changed a payload before."""
    image, payloads = merged
    size = store(image).stat().st_size
    random = Random("flips")
    places = [*range(0, 100, 3), *(random.randrange(100, size) for _ in range(60))]
    refused = 0
    for number, place in enumerate(places):
        folder = copied(image, tmp_path / str(number))
        flip(store(folder), place)
        is_refused = refuses(folder, payloads)
        found = recovery_says(folder)
        assert is_refused <= bool(found), (place, found)
        refused += is_refused
        shutil.rmtree(folder)
    assert refused > 50


def refuses(folder: Path, payloads: dict[bytes, bytes]) -> bool:
    try:
        setup = Setup(folder, BUSY)
    except StoreError:
        return True
    try:
        setup.restoring.start()
        setup.loop.run_until(lambda: setup.is_loaded or setup.failures)
        if setup.failures:
            assert "run `dragoman store recover`" in setup.failures[0]
            return True
        assert set(setup.broker.jobs) == set(payloads)
        assert setup.notes == {"pause/s": "ann"}
        for job in list(setup.broker.jobs.values()):
            found = fetched(setup, job)
            if found != payloads[job.id]:
                assert found == b"refused"
                assert f"the payload of job {job.id.hex()} does not match its checksum" in setup.failures[0]
                return True
        return False
    finally:
        setup.close()


def recovery_says(folder: Path) -> str:
    try:
        return recovery.check(folder)
    except StoreError as error:
        return str(error)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 7, 200, 1 << 24])
def test_damaged_version_is_refused_and_recovered(
    tmp_path: Path, merged: tuple[Path, dict[bytes, bytes]], version: int
) -> None:
    """It was a KeyError."""
    folder = copied(merged[0], tmp_path / "data")
    with open(store(folder), "r+b") as file:
        file.seek(60)
        file.write(version.to_bytes(4, "big"))
    with pytest.raises(StoreError, match=rf"its header says format {version}, its table note says 6\): run"):
        Setup(folder)
    made = recovery.recover(folder)
    assert made is not None
    assert made.jobs == len(merged[1])
    Setup(folder).close()


def test_damaged_payload_is_left_out_and_named(tmp_path: Path, merged: tuple[Path, dict[bytes, bytes]]) -> None:
    image, payloads = merged
    folder = copied(image, tmp_path / "data")
    id, body = next((id, body) for id, body in payloads.items() if len(body) == 2_000)
    content = store(folder).read_bytes()
    for match in re.finditer(re.escape(body[:50]), content):  # pages that were split have old copies
        flip(store(folder), match.start() + 10)
    found = recovery.examine(folder)
    assert (found.sentence, found.jobs) == ("1 jobs cannot be read", [f"job {id.hex()}: it cannot be read"])
    made = recovery.recover(folder)
    assert made is not None
    assert (made.jobs, made.left_out, made.missing) == (len(payloads) - 1, 1, [f"job {id.hex()}: left out"])


HEADS = [
    *(("job", column) for column in JOB_COLUMNS if column != "payload"),
    *(("fate", column) for column in STATUS_COLUMNS if column not in ("number", "result")),
    ("note", "value"),
]


def test_every_changed_column_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """Any change is detected, however plausible the new value is."""
    image = tmp_path / "image"
    image.mkdir()
    setup = Setup(image)
    setup.worker()
    setup.enqueue(attempts=1)
    setup.runner.store_access.note("pause/s", "ann")
    setup.settle()
    setup.broker.fail(setup.given()[0].attempt, "no", setup.now)
    setup.settle()
    setup.close()

    def check(table: str, column: str) -> None:
        folder = copied(image, tmp_path / f"{table} {column}")
        change(folder, table, column)
        with pytest.raises(StoreError, match="does not match its checksum"):
            start_and_read(folder)
        assert recovery.check(folder)

    check_every_row(check, HEADS)


def change(folder: Path, table: str, column: str) -> None:
    """Another value of the same kind, without its checksum."""
    file = apsw.Connection(str(store(folder)))
    row = "key = 'pause/s'" if table == "note" else "true"
    (value,) = file.execute(f"SELECT {column} FROM {table} WHERE {row}").fetchone()
    if isinstance(value, bytes):
        value = bytes([value[0] ^ 1]) + value[1:]
    elif isinstance(value, str):
        value = {"failed": "done"}.get(value, value.replace("no", "yes") + " ")
    elif column in ("token", "digest", "retry_of"):
        value = bytes(16)
    else:
        value = (value or 0) + 1
    file.execute(f"UPDATE {table} SET {column} = ? WHERE {row}", (value,))
    if (table, column) == ("job", "number"):
        file.execute("UPDATE fate SET number = ?", (value,))
    file.close()


def start_and_read(folder: Path) -> None:
    """Raises DiaryError, as the broker would end with it."""
    setup = Setup(folder, BUSY)
    try:
        setup.restoring.start()
        setup.loop.run_until(lambda: setup.is_loaded or setup.failures)
        if setup.failures:
            raise StoreError(setup.failures[0])
    finally:
        setup.close()


def test_damaged_result_is_not_told(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.worker()
    setup.enqueue()
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"the right result", setup.now)
    setup.settle()
    setup.close()
    content = store(tmp_path).read_bytes()
    flip(store(tmp_path), content.index(b"right"))
    assert recovery.check(tmp_path) == "1 job statuses cannot be read"
    again = Setup(tmp_path)
    again.load()
    [job] = again.broker.jobs.values()
    assert fetched(again, job) == b"refused"
    assert f"the result of job {job.id.hex()} does not match its checksum" in again.failures[0]
    again.close()


def test_payload_that_is_dropped_keeps_a_checksum(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.worker()
    setup.enqueue(b"x" * 10_000)
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"", setup.now)
    setup.settle()
    setup.close()
    file = apsw.Connection(str(store(tmp_path)))
    assert file.execute("SELECT length(payload) FROM job").get == 0
    file.close()
    assert recovery.check(tmp_path) == ""

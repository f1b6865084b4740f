"""Checks of damaged stores, and their recovery."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from dragoman.core.states import Outcome
from dragoman.server.datadir import DataFolder
from dragoman.store import recovery
from dragoman.store.checksums import sealed_job
from dragoman.store.errors import StoreError
from dragoman.store.rows import JOB_COLUMNS
from dragoman.store.schema import make_store
from dragoman.store.statements import ADD_JOBS

from .damage import damage, filled, raw, reseal
from .world import Setup


def spoil(folder: Path, statement: str) -> None:
    """As if these bytes had been written."""
    file = raw(folder)
    file.execute(statement)
    file.close()


def ended(folder: Path) -> list[bytes]:
    """A store with one job that is done, one that has failed, and one that waits. Returns their ids."""
    setup = Setup(folder)
    worker = setup.worker()
    ids = []
    for number in range(2):
        job = setup.enqueue(b"%d" % number, attempts=1)
        setup.settle()
        attempt = setup.given()[-1].attempt
        if number == 0:
            setup.broker.succeed(attempt, b"result", setup.now)
        else:
            setup.broker.fail(attempt, "it broke", setup.now)
        setup.broker.idle(worker, setup.now)
        ids.append(job.id)
    ids.append(setup.enqueue(b"2", delay=1_000.0).id)
    setup.settle()
    setup.close()
    return list(ids)


def leaves(folder: Path) -> list[tuple[int, int]]:
    """The pages that jobs are in, and how many are in each."""
    file = raw(folder)
    query = "SELECT pageno, ncell FROM dbstat WHERE name = 'job' AND pagetype = 'leaf' ORDER BY path"
    pages = [(page, cells) for page, cells in file.execute(query)]
    file.close()
    return pages


def files(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if "damaged" not in each.name}


@pytest.mark.parametrize("page", [10, 40, 57])
def test_recovery_brings_what_can_be_read(tmp_path: Path, page: int) -> None:
    ids = filled(tmp_path)
    damage(tmp_path, page)
    assert recovery.check(tmp_path) != ""
    found = recovery.recover(tmp_path)
    assert found is not None
    assert found.damaged.exists()
    assert found.places > 0
    assert recovery.check(tmp_path) == ""
    again = Setup(tmp_path)
    again.load()
    assert len(again.broker.jobs) == found.jobs
    assert set(again.broker.jobs) <= set(ids)
    assert len(ids) * 0.8 < found.jobs < len(ids)
    assert again.notes == {"pause/s": "ann"}
    again.close()


def test_recovery_of_a_whole_file_loses_nothing(tmp_path: Path) -> None:
    ids = filled(tmp_path, 20)
    found = recovery.recover(tmp_path, force=True)
    assert found is not None
    assert (found.jobs, found.left_out, found.places) == (20, 0, 0)
    again = Setup(tmp_path)
    again.load()
    assert list(again.broker.jobs) == ids
    again.close()


BAD_TEXT = "CAST(x'61ff62' AS TEXT)"


@pytest.mark.parametrize(
    "change",
    [
        f"job SET service = {BAD_TEXT}",
        f"job SET key = {BAD_TEXT}",
        'job SET wishes = \'{"attempts": "three"}\'',
        "job SET wishes = '{\"priority\": 77}'",
        "job SET wishes = '{\"job_timeout\": NaN}'",
        "job SET wishes = '[' || replace(hex(zeroblob(100000)), '0', '[')",
        "job SET wishes = '{}}'",
        "job SET wishes = '{\"colour\": 1}'",
        "job SET id = x'00'",
        "job SET created = 9e999",
        f"job SET owner = {BAD_TEXT}",
        "job SET owner = ''",
    ],
)
def test_a_job_that_makes_no_sense_is_found_and_left_out(tmp_path: Path, change: str) -> None:
    """One byte that SQLite does not mind was in order for the check, and the end of every broker."""
    ids = filled(tmp_path, 20)
    spoil(tmp_path, f"UPDATE {change} WHERE number = (SELECT min(number) + 3 FROM job)")
    assert recovery.check(tmp_path) == "1 jobs cannot be read"
    setup = Setup(tmp_path)
    setup.restoring.start()
    setup.loop.run_until(lambda: setup.failures)
    assert setup.failures[0].startswith("the store is damaged (")
    assert setup.failures[0].endswith(": run `dragoman store recover` on its folder")
    setup.close()
    found = recovery.recover(tmp_path)
    assert found is not None
    assert (found.jobs, found.left_out, found.places) == (19, 1, 0)
    assert files(tmp_path) <= {"store.db", "ballast"}
    assert recovery.check(tmp_path) == ""
    again = Setup(tmp_path)
    again.load()
    assert set(again.broker.jobs) == {*ids[:3], *ids[4:]}
    again.close()


@pytest.mark.parametrize(
    "change",
    ["outcome = 'perhaps'", f"outcome = {BAD_TEXT}", "spent = -1", "token = x'00', given = NULL, outcome = NULL"],
)
def test_a_job_whose_fate_makes_no_sense_is_as_it_was_submitted(tmp_path: Path, change: str) -> None:
    done, failed, waiting = ended(tmp_path)
    spoil(tmp_path, f"UPDATE fate SET {change} WHERE outcome = 'done'")
    assert recovery.check(tmp_path) == "1 job statuses cannot be read"
    found = recovery.recover(tmp_path)
    assert found is not None
    assert (found.jobs, found.as_submitted, found.untold, found.left_out) == (3, 1, 0, 0)
    again = Setup(tmp_path)
    again.load()
    jobs = again.broker.jobs
    assert {id: job.outcome for id, job in jobs.items()} == {done: None, failed: Outcome.FAILED, waiting: None}
    assert jobs[done].spent == 0
    again.close()


@pytest.mark.parametrize("change", [f"reason = {BAD_TEXT}", f"history = {BAD_TEXT}", "history = '[[1]]'"])
def test_a_fate_that_cannot_be_told_still_counts(tmp_path: Path, change: str) -> None:
    """A job that has ended does not run again because its reason cannot be read."""
    failed = ended(tmp_path)[1]
    spoil(tmp_path, f"UPDATE fate SET {change} WHERE outcome = 'failed'")
    assert recovery.check(tmp_path) == "1 job statuses cannot be read"
    found = recovery.recover(tmp_path)
    assert found is not None
    assert (found.jobs, found.as_submitted, found.untold) == (3, 0, 1)
    again = Setup(tmp_path)
    again.load()
    assert again.broker.jobs[failed].outcome is Outcome.FAILED
    assert again.broker.jobs[failed].quarantined
    again.close()


def test_a_note_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    spoil(tmp_path, f"INSERT INTO note(key, value) VALUES ('pause/t', {BAD_TEXT})")
    assert recovery.check(tmp_path) == "1 notes cannot be read"
    with pytest.raises(StoreError, match="dragoman store recover"):
        Setup(tmp_path)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert (found.jobs, found.notes, found.left_out) == (1, 1, 1)
    again = Setup(tmp_path)
    assert again.notes == {"pause/s": "ann"}
    again.close()


@pytest.mark.parametrize("left", [0.9, 0.5, 0.2])
def test_a_file_that_was_cut_off_gives_what_it_has(tmp_path: Path, left: float) -> None:
    """SQLite rejects a file that is shorter than its header says."""
    ids = filled(tmp_path)
    pages = (tmp_path / "store.db").stat().st_size // 4096
    kept = int(pages * left)
    expected = sum(cells for page, cells in leaves(tmp_path) if page <= kept)
    os.truncate(tmp_path / "store.db", kept * 4096 + 100)
    assert recovery.check(tmp_path) != ""
    with pytest.raises(StoreError, match="dragoman store recover"):
        Setup(tmp_path)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert found.places > 0
    assert 0 < found.jobs == expected < len(ids)
    again = Setup(tmp_path)
    again.load()
    assert len(again.broker.jobs) == expected
    assert set(again.broker.jobs) <= set(ids)
    again.close()


def test_everything_around_many_bad_places_is_found_however_far_apart_the_numbers_are(tmp_path: Path) -> None:
    """The search for the next readable row stopped after a fixed number of unreadable ones."""
    filled(tmp_path, 300)
    spoil(tmp_path, "UPDATE job SET number = number * 1000000000")
    reseal(tmp_path)
    found_there = leaves(tmp_path)
    good, bad = found_there[::2], found_there[1::2]
    assert len(bad) > 30
    for page, _ in bad:
        damage(tmp_path, page - 1)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert found.jobs == sum(cells for _, cells in good)
    assert found.places == len(bad)


def test_rows_that_only_the_log_has_are_found(tmp_path: Path) -> None:
    """A row whose page is in the log is searched there."""
    filled(tmp_path, 100)
    file = raw(tmp_path)
    file.pragma("wal_autocheckpoint", 0)
    file.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    rows = file.execute(f"SELECT number + 1000, {', '.join(JOB_COLUMNS[1:])} FROM job").fetchall()
    with file:
        file.executemany(ADD_JOBS[1], [sealed_job(row) for row in rows])
    file.close()
    assert (tmp_path / "store.db-wal").stat().st_size > 0
    damage(tmp_path, 10)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert 180 < found.jobs < 200


def test_a_whole_store_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    before = (tmp_path / "store.db").read_bytes()
    assert recovery.recover(tmp_path) is None
    assert (tmp_path / "store.db").read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))


def test_a_new_store_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 30)
    damage(tmp_path, 10)
    before = files(tmp_path)

    def full(_: apsw.Connection, author: str = "") -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(recovery, "bring_up_to_date", full)
    with pytest.raises(StoreError, match=r"a new store cannot be written in .*: the disk is full"):
        recovery.recover(tmp_path)
    assert files(tmp_path) == before | {"store.db-wal"}, "an empty one, of the look at it"
    assert not list(tmp_path.glob("*damaged*"))


def test_a_file_of_another_program_is_not_recovered(tmp_path: Path) -> None:
    spoil(tmp_path, "CREATE TABLE theirs(x)")
    for force in (False, True):
        with pytest.raises(StoreError):
            recovery.recover(tmp_path, force=force)
    assert files(tmp_path) == {"store.db"}


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"x"])
def test_a_file_whose_tables_cannot_be_found_is_left_as_it_is(tmp_path: Path, byte: bytes) -> None:
    """Without the names of the columns nothing can be recovered: that is an error, and nothing is invented."""
    filled(tmp_path, 3)
    path = tmp_path / "store.db"
    path.write_bytes(path.read_bytes().replace(b"payload BLOB", byte + b"ayload BLOB"))
    before = path.read_bytes()
    assert recovery.check(tmp_path) != ""
    with pytest.raises(StoreError, match=r"nothing of .* can be read \(the table job has no .*payload.*\): restore a"):
        recovery.recover(tmp_path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.new*"))


@pytest.mark.parametrize("damage", [b"seven\n", b"", b"\xff\xfe", b"-3\n"])
def test_a_damaged_epoch_is_replaced_by_one_above_those_of_all_earlier_runs(tmp_path: Path, damage: bytes) -> None:
    """R85: recover said "recovered", and left the epoch as it was: the broker ended with 74."""
    DataFolder(tmp_path, make_store).close()
    ids = ended(tmp_path)
    (tmp_path / "epoch").write_bytes(damage)
    assert "epoch does not contain a number" in recovery.check(tmp_path)
    with pytest.raises(OSError, match="dragoman store recover"):
        DataFolder(tmp_path)
    found = recovery.recover(tmp_path)
    assert found is not None
    assert found.jobs == len(ids)
    assert found.epoch is not None
    assert found.epoch > 1_000_000
    folder = DataFolder(tmp_path)
    assert folder.epoch == found.epoch + 1
    folder.close()
    assert recovery.recover(tmp_path) is None

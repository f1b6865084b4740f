"""Files of other versions, of other programs, and damaged ones."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw
import pytest

from dragoman.store import recovery, schema
from dragoman.store.errors import StoreError, StoreInUse, temporary_error
from dragoman.store.limits import StoreLimits

from .damage import damage, filled, make_older, raw
from .world import LIMITS, Setup


def test_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    file = raw(tmp_path)
    file.pragma("user_version", schema.VERSION + 1)
    file.execute("UPDATE note SET value = '9.1' WHERE key = 'author'")
    file.execute("UPDATE note SET value = ? WHERE key = 'format'", (str(schema.VERSION + 1),))
    file.close()
    with pytest.raises(
        StoreError, match=r"was written by Dragoman 9\.1 \(format 7; this one reads up to 6\): use that"
    ):
        Setup(tmp_path)


def test_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """Version 1 did not store whether a worker can resume."""
    setup = Setup(tmp_path)
    setup.worker()
    job = setup.enqueue(b"old")
    setup.settle()
    setup.close()
    make_older(tmp_path, 1)
    again = Setup(tmp_path)
    again.load()
    assert again.broker.jobs[job.id].spent == 1, "it cannot come back, so the attempt is lost"
    again.close()
    file = raw(tmp_path)
    assert file.pragma("user_version") == schema.VERSION
    file.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_file_of_a_version_with_checksums_keeps_its_rows(tmp_path: Path, version: int) -> None:
    """Version 3 has no times in the history, and version 4 has no owners, and version 5 has no extras. Their rows
    have checksums, which are not written again: they do not change for jobs of `local` without extras (R141)."""
    setup = Setup(tmp_path)
    job = setup.enqueue(b"old", key="k")
    setup.settle()
    setup.close()
    make_older(tmp_path, version)
    file = raw(tmp_path)
    before = file.execute("SELECT * FROM job").fetchall()
    new = (None,) * (1 + (version < 5))  # extras and, before format 5, owner
    file.close()
    assert recovery.check(tmp_path) == ""
    again = Setup(tmp_path)
    again.load()
    assert [(each.id, each.principal.name) for each in again.broker.jobs.values()] == [(job.id, "local")]
    again.close()
    file = raw(tmp_path)
    rows = file.execute("SELECT * FROM job").fetchall()
    assert (file.pragma("user_version"), rows) == (6, [(*row, *new) for row in before])
    assert schema.noted_version(file) == 6
    file.close()


def test_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    file = raw(tmp_path)
    file.execute("CREATE TABLE theirs(x)")
    file.close()
    with pytest.raises(StoreError, match="not a store of Dragoman"):
        Setup(tmp_path)


def test_file_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """R105: by any program, even without the lock of the folder."""
    setup = Setup(tmp_path)
    with pytest.raises(StoreInUse, match="in use by another program"):
        schema.open_file(tmp_path / "store.db")
    setup.close()


def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R106."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"SQLite 3\.51\.2 may damage the store.*3\.51\.3"):
        Setup(tmp_path)


def test_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """R109: no empty file is created in its place."""
    filled(tmp_path)
    damage(tmp_path, 40)
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreError, match=r"is damaged .*: run `dragoman store recover` on its folder"):
        Setup(tmp_path)
    assert (tmp_path / "store.db").read_bytes() == before


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"something else entirely" * 400)
    with pytest.raises(StoreError, match="is damaged"):
        Setup(tmp_path)
    with pytest.raises(StoreError, match="can be read"):
        recovery.recover(tmp_path, force=True)


def test_damage_is_found_later_if_there_was_no_time_at_the_start(tmp_path: Path) -> None:
    """R109: postponed until the store is idle."""
    filled(tmp_path)
    damage(tmp_path, 40)
    setup = Setup(tmp_path, StoreLimits(ballast=0, check_budget=-1.0, idle=0.001))
    setup.loop.run_until(lambda: setup.failures)
    assert "dragoman store recover" in setup.failures[0]
    setup.close()


def test_nothing_is_erased_before_the_check(tmp_path: Path) -> None:
    """R109."""
    filled(tmp_path, 3)
    setup = Setup(tmp_path, StoreLimits(ballast=0, check_budget=-1.0, idle=3_600.0), outcome_retention=1.0)
    setup.load()
    for job in list(setup.broker.jobs.values()):
        setup.broker.withdraw(job, setup.now)
    setup.settle()
    setup.now += 2.0
    setup.settle()
    assert setup.broker.jobs == {}
    setup.close()
    again = Setup(tmp_path, LIMITS)
    assert again.store.last_number > 0
    again.load()
    again.now += 10.0
    again.settle()
    again.close()
    last = Setup(tmp_path, LIMITS)
    assert last.store.last_number == 0, "found in order, and erased"
    last.close()


@pytest.mark.parametrize(
    ("code", "number", "passes"),
    [
        (apsw.SQLITE_FULL, 0, True),
        (apsw.SQLITE_READONLY, 0, True),
        (apsw.SQLITE_IOERR_WRITE, errno.EDQUOT, True),
        (apsw.SQLITE_IOERR_WRITE, errno.EROFS, True),
        (apsw.SQLITE_IOERR_WRITE, errno.EIO, False),
        (apsw.SQLITE_IOERR_FSYNC, errno.ENOSPC, False),  # data that it had to write is lost, for any reason
        (apsw.SQLITE_CORRUPT, 0, False),
    ],
)
def test_what_passes_and_what_does_not(code: int, number: int, passes: bool) -> None:
    assert (temporary_error(apsw.exception_for(code), number) is not None) == passes

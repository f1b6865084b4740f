"""R130: files that disappear while the broker runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.core.interim_effects import Acknowledge
from dragoman.core.states import Outcome, RefusalReason
from dragoman.store import recovery
from dragoman.store.limits import StoreLimits
from dragoman.store.presence import Presence

from .world import LIMITS, Setup, until

SLOW = StoreLimits(ballast=64 * 1024, idle=3_600.0, retry=3_600.0)  # nothing is looked at between commits


def replace_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    shutil.copytree(folder.with_name("elsewhere"), folder)


WAYS: dict[str, Callable[[Path], object]] = {
    "file removed": lambda folder: (folder / "store.db").unlink(),
    "log removed": lambda folder: (folder / "store.db-wal").unlink(),
    "folder removed": lambda folder: shutil.rmtree(folder),
    "folder moved away": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "folder replaced": replace_folder,
}


def test_nothing_is_acknowledged_after_the_log_was_cut(tmp_path: Path) -> None:
    """A bug: a log that was emptied in place went unnoticed, and so did all that was acknowledged afterwards."""
    setup = Setup(tmp_path, SLOW)
    first = setup.enqueue()
    setup.settle()
    with open(tmp_path / "store.db-wal", "r+b") as log:
        log.truncate(0)
    setup.enqueue()
    setup.settle()
    assert setup.accepted() == [first.id]
    assert setup.store.problem is not None
    assert "store.db-wal was cut to " in setup.store.problem
    setup.close()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_acknowledged_after_the_files_are_gone(tmp_path: Path, way: str) -> None:
    """It was acknowledged, and could never have been found again."""
    folder = tmp_path / "data"
    folder.mkdir()
    setup = Setup(folder, SLOW)
    said: list[str] = []
    setup.store.when_lost(said.append)
    setup.worker(capacity=5)
    first = setup.enqueue()
    setup.settle()
    WAYS[way](folder)
    setup.enqueue()
    setup.settle()
    setup.enqueue()
    setup.settle()
    assert setup.accepted() == [first.id]
    assert [each.refusal for each in setup.answers()] == [RefusalReason.STORE_UNAVAILABLE] * 2
    assert setup.store.problem is not None
    assert setup.store.problem.endswith("save it with `dragoman store rescue` before you stop the broker")
    assert setup.answers()[0].reason == f"store unavailable: {setup.store.problem}"
    assert said == [setup.store.problem], "once"
    assert setup.failures == []
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    assert setup.answers()[-1].outcome is Outcome.DONE, "as on a full disk: it is told, and kept"
    assert setup.store.close() == setup.store.problem, "what was told is nowhere that somebody would look"


def test_what_the_files_have_is_right_when_they_come_back(tmp_path: Path) -> None:
    """The job that was refused is not in them, and the outcome is."""
    folder = tmp_path / "data"
    folder.mkdir()
    setup = Setup(folder, LIMITS)
    setup.worker()
    first = setup.enqueue()
    setup.settle()
    folder.rename(tmp_path / "elsewhere")
    refused = setup.enqueue()
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    (tmp_path / "elsewhere").rename(folder)
    until(lambda: setup.store.problem is None)
    later = setup.enqueue()
    setup.settle()
    assert [each.job.id for each in setup.caller.of(Acknowledge)] == [first.id, later.id]
    setup.close()
    assert recovery.check(folder) == ""
    again = Setup(folder, LIMITS, seed="again")
    again.load()
    assert refused.id not in again.broker.jobs
    assert (again.broker.jobs[first.id].outcome, later.id in again.broker.jobs) == (Outcome.DONE, True)
    again.close()


def test_it_is_noticed_when_nobody_wants_anything(tmp_path: Path) -> None:
    setup = Setup(tmp_path, LIMITS)
    (tmp_path / "store.db").unlink()
    until(lambda: setup.store.problem is not None)
    setup.close()


def test_a_file_that_comes_later_becomes_known(tmp_path: Path) -> None:
    path = tmp_path / "log"
    presence = Presence(path)
    assert presence.missing_file() is None
    path.touch()
    assert presence.missing_file() is None
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(path)
    assert "was replaced by another file" in (presence.missing_file() or "")

"""Data folders of older formats: those of the release before row checksums, `tests/fixtures/store-2885e3f`, and others
that are made from a present one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from dragoman.core.failure import Failure
from dragoman.core.model import Job, JobId
from dragoman.core.states import JobState, Outcome
from dragoman.store import recovery, row_counter, schema, sealing
from dragoman.store.file_names import adopt_older
from dragoman.store.limits import StoreLimits
from dragoman.store.sqlite import SqliteStore
from dragoman.store.statements import write_note

from .damage import make_older, raw
from .disk import Disk, Platter
from .test_losses import copied
from .world import Setup

FIXTURES = Path(__file__).parents[2] / "fixtures" / "store-2885e3f"
KINDS = ("stopped", "killed")  # the second one has a log that was not merged
WRITTEN = 1_794_782_955.0  # wall clock time, a few minutes after they were written


def taken(kind: str, target: Path) -> tuple[Path, dict[str, list[str]]]:
    """A copy of the folder, and the ids of the jobs in it by what had become of them."""
    shutil.copytree(FIXTURES / kind, target)
    ids: dict[str, list[str]] = json.loads((target / "ids.json").read_text())
    (target / "ids.json").unlink()
    adopt_older(target)
    return target, ids


def body(setup: Setup, job: Job) -> tuple[bytes, bytes, Failure | None]:
    brought: list[tuple[bytes, bytes, Failure | None]] = []
    setup.store.fetch(job, lambda payload, result, failure: brought.append((bytes(payload), bytes(result), failure)))
    setup.loop.run_until(lambda: brought)
    return brought[0]


def check_all(folder: Path, ids: dict[str, list[str]]) -> None:
    """Check that everything is there and unchanged."""
    setup = Setup(folder, offset=WRITTEN - 100.0, seed="upgraded")
    setup.load()
    jobs = {job.id.hex(): job for job in setup.broker.jobs.values()}
    assert {*jobs} == {id for some in ids.values() for id in some}
    assert {jobs[id].state for id in ids["waiting"]} == {JobState.WAITING}
    assert [body(setup, jobs[id])[0] for id in ids["waiting"][:2]] == ["waits 0 é".encode(), "waits 1 é".encode()]
    assert body(setup, jobs[ids["waiting"][5]])[0] == b"long " + b"y" * 9_000
    assert (jobs[ids["waiting"][6]].service.name, jobs[ids["waiting"][6]].key) == ("paused", "k1")
    assert setup.broker.worker_registry.services["paused"].paused
    assert [jobs[id].state for id in ids["delayed"]] == [JobState.DELAYED]
    assert [(jobs[id].outcome, body(setup, jobs[id])[1]) for id in ids["done"][:4]] == [
        (Outcome.DONE, b"DONE %d" % number) for number in range(4)
    ]
    assert body(setup, jobs[ids["done"][4]]) == (b"", b"LARGE " + b"X" * 6_000, None)
    assert [(jobs[id].outcome, jobs[id].quarantined) for id in ids["quarantined"]] == [(Outcome.FAILED, True)] * 2
    failure = Failure("subprocess.CalledProcessError", "false ended with exit code 1: it said nothing")
    assert body(setup, jobs[ids["quarantined"][0]]) == (b"fails 0", b"", failure)
    # That build stored no times of attempts and ends.
    assert [job.ended for job in jobs.values()] == [None] * len(jobs)
    records = [each for id in ids["done"] + ids["quarantined"] for each in jobs[id].history or ()]
    assert len(records) >= len(ids["done"] + ids["quarantined"])
    assert {(each.started, each.ended) for each in records} == {(None, None)}
    assert [jobs[id].spent for id in ids["running"]] in ([0], [1])
    assert [key for key in setup.notes if key.startswith("cron/")] == ["cron/nightly"]
    assert {job.principal.name for job in jobs.values()} == {"local"}  # that build had no other principals (R141)
    again = setup.enqueue(body(setup, jobs[ids["waiting"][6]])[0], key="k1", service="paused")
    assert again is jobs[ids["waiting"][6]]
    setup.close()


@pytest.mark.parametrize("kind", KINDS)
def test_folder_of_the_release_before_is_brought_up_to_date(tmp_path: Path, kind: str) -> None:
    folder, ids = taken(kind, tmp_path / "data")
    assert recovery.check(folder) == ""
    check_all(folder, ids)
    assert recovery.check(folder) == ""
    file = apsw.Connection(str(folder / "store.db"))
    assert file.pragma("user_version") == schema.VERSION
    for table in ("job", "fate"):
        assert file.execute(f"SELECT count(*) FROM {table} WHERE head_sum IS NULL OR body_sum IS NULL").get == 0
    file.close()
    check_all(folder, ids)


@pytest.mark.parametrize("kind", KINDS)
def test_upgrade_that_is_killed_goes_on(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every instant between two commits of it."""
    folder, ids = taken(kind, tmp_path / "data")
    images: list[Path] = []
    real_write, real_migrate = sealing._write, schema._migrate

    def write(*facts: Any) -> None:
        images.append(copied(folder, tmp_path / f"image-{len(images)}"))
        real_write(*facts)

    def migrate(*facts: Any) -> None:
        images.append(copied(folder, tmp_path / f"image-{len(images)}"))
        real_migrate(*facts)

    monkeypatch.setattr(sealing, "ROWS", 4)
    monkeypatch.setattr(sealing, "_write", write)
    monkeypatch.setattr(schema, "_migrate", migrate)
    heard: list[tuple[int, int]] = []
    monkeypatch.setattr(sealing, "REPORT", 0.0)
    progress = lambda done, total: heard.append((done, total))  # noqa: E731
    SqliteStore(folder, lambda call: None, lambda: 0.0, progress=progress).close()
    monkeypatch.undo()
    assert len(images) > 5
    assert heard[-1][0] == heard[-1][1] == max(done for done, _ in heard)
    for image in images:
        assert recovery.check(image) == ""
        check_all(image, ids)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("upgraded")
    yield disk
    disk.unregister()


def upgrade(folder: Path, disk: Disk, target: Path) -> list[Path]:
    """Upgrade a store. Returns two images of the folder for each of its writes: those that a kill and a power cut leave
    at this instant."""
    images: list[Path] = []
    random = Random("upgrade")
    for path in folder.glob("store.db*"):
        disk.platters[path.name] = Platter()
        disk.platters[path.name].safe += path.read_bytes()

    def look() -> None:
        images.append(copied(folder, target / f"image-{len(images)}"))
        images.append(copied(folder, target / f"image-{len(images)}"))
        for name, left in disk.after_power_cut(random).items():
            if name:
                (images[-1] / name).write_bytes(left)

    disk.before_write = look
    SqliteStore(folder, lambda call: None, lambda: 0.0, StoreLimits(ballast=0), vfs=disk.name).close()
    disk.before_write = lambda: None
    return images


@pytest.mark.parametrize("kind", KINDS)
def test_upgrade_is_safe_at_every_write(tmp_path: Path, kind: str, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R141: nothing is lost by a kill or a power cut."""
    folder, ids = taken(kind, tmp_path / "data")
    monkeypatch.setattr(sealing, "ROWS", 20)
    images = upgrade(folder, disk, tmp_path)
    assert {version_of(image) for image in images} == {2, schema.VERSION}
    for image in images:
        assert recovery.check(image) == ""
    for image in images[::5]:  # of both kinds
        check_all(image, ids)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_upgrade_of_each_format_is_safe_at_every_write(tmp_path: Path, version: int, disk: Disk) -> None:
    """R141: a store is as before or upgraded, and all jobs are those of `local` with their keys."""
    folder = tmp_path / "data"
    folder.mkdir()
    setup = Setup(folder)
    setup.worker()
    payloads = {setup.enqueue(b"%d" % each * 500, key=f"key {each}").id: b"%d" % each * 500 for each in range(6)}
    setup.settle()
    setup.broker.succeed(setup.given()[0].attempt, b"result", setup.now)
    setup.settle()
    setup.close()
    make_older(folder, version)
    images = upgrade(folder, disk, tmp_path)
    assert {version_of(image) for image in images} == {version, schema.VERSION}
    for image in images:
        assert recovery.check(image) == ""
        again = Setup(image, seed="again", now=setup.now)
        again.load()
        assert {job.id: job.principal.name for job in again.broker.jobs.values()} == dict.fromkeys(payloads, "local")
        found = [again.enqueue(payload, key=f"key {each}").id for each, payload in enumerate(payloads.values())]
        assert found == [*payloads]
        again.close()


def version_of(folder: Path) -> int:
    """Return the format that a broker would find."""
    image = apsw.Connection(str(copied(folder, folder.with_name(f"{folder.name}-read")) / "store.db"))
    version: int = image.pragma("user_version")
    image.close()
    return version


def test_upgrade_that_an_older_build_began_goes_on(tmp_path: Path) -> None:
    """Format 4 with rows that have no checksums yet: its build was killed while it added them."""
    setup = Setup(tmp_path)
    ids = [setup.enqueue(b"%d" % each).id for each in range(6)]
    setup.settle()
    setup.close()
    make_older(tmp_path, 4)
    file = raw(tmp_path)
    write_note(file, "unsealed", "job 3")
    file.execute("UPDATE job SET head_sum = NULL, body_sum = NULL WHERE number > 3")
    file.close()
    assert recovery.check(tmp_path) == ""
    again = Setup(tmp_path)
    again.load()
    assert [*again.broker.jobs] == ids
    again.close()
    file = raw(tmp_path)
    assert file.execute("SELECT count(*) FROM job WHERE head_sum IS NULL").get == 0
    assert file.execute("SELECT count(*) FROM note WHERE key = 'unsealed'").get == 0
    file.close()


def test_jobs_of_new_principals_are_stored_in_an_upgraded_folder(tmp_path: Path) -> None:
    """Its new column is behind the checksums."""
    folder, ids = taken("stopped", tmp_path / "data")
    setup = Setup(folder, offset=WRITTEN - 100.0)
    setup.load()
    job = setup.enqueue(b"new", key="k1", service="paused", principal="web")
    setup.settle()
    setup.close()
    assert recovery.check(folder) == ""
    again = Setup(folder, offset=WRITTEN - 100.0, seed="again")
    again.load()
    assert again.broker.jobs[job.id].principal.name == "web"
    assert again.broker.jobs[JobId(bytes.fromhex(ids["waiting"][6]))].key == "k1"
    again.close()


@pytest.mark.parametrize("kind", KINDS)
def test_folder_of_the_release_before_is_recovered(tmp_path: Path, kind: str) -> None:
    folder, ids = taken(kind, tmp_path / "data")
    made = recovery.recover(folder, force=True)
    assert made is not None
    assert (made.left_out, made.places, made.missing) == (0, 0, [])
    check_all(folder, ids)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_folder_of_each_format_is_recovered(tmp_path: Path, version: int) -> None:
    """R141: its jobs belong to `local` then."""
    setup = Setup(tmp_path)
    ids = [setup.enqueue(b"%d" % each, key=f"key {each}").id for each in range(6)]
    setup.settle()
    setup.close()
    make_older(tmp_path, version)
    made = recovery.recover(tmp_path, force=True)
    assert made is not None
    assert (made.jobs, made.left_out, made.missing) == (6, 0, [])
    again = Setup(tmp_path, seed="again")
    again.load()
    assert {job.id: job.principal.name for job in again.broker.jobs.values()} == dict.fromkeys(ids, "local")
    assert again.enqueue(b"3", key="key 3").id == ids[3]
    again.close()


@pytest.mark.parametrize("kind", KINDS)
def test_check_and_recovery_report_how_far_they_are(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, ids = taken(kind, tmp_path / "data")
    monkeypatch.setattr(row_counter, "EVERY", 4)
    seen: list[tuple[int, int]] = []
    assert recovery.examine(folder, lambda done, total: seen.append((done, total))).sentence == ""
    count = sum(map(len, ids.values()))
    assert seen[-1][0] == seen[-1][1] > count
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > count // 4
    checked, seen = seen, []
    recovery.recover(folder, force=True, progress=lambda done, total: seen.append((done, total)))
    assert seen == checked

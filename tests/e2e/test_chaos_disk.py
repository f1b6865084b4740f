"""Real disks that are full or read-only, under real brokers (R101, R104, R110)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos_services import result_of
from small_disk import NAMESPACES, OnSmallDisk, SmallDisk
from survivor import Survivor
from workforce import Workforce

from dragoman import Client, JobRefused
from programs import Programs, until

LARGE = "x" * 100_000


@pytest.fixture
def disk(programs: Programs) -> SmallDisk:
    """A disk with room for the ballast file, twice (it is created only if as much remains free), and a little more."""
    if programs.start("unshare", *NAMESPACES, "true").ends() != 0:
        pytest.skip("nobody may mount anything here, not even in a namespace of their own")
    return SmallDisk(programs, "40m")


def submit_until_full(setup: Survivor) -> tuple[list[str], dict[str, Any]]:
    """Enqueue until the disk is full. Returns the acknowledged jobs, and the first error."""
    accepted: list[str] = []

    def is_refused() -> dict[str, Any] | None:
        status, view = setup.say("POST", "/v1/jobs", service="later", payload=LARGE)
        if status == 202:
            accepted.append(view["id"])
            return None
        assert status == 507, view
        problem: dict[str, Any] = view
        return problem

    return accepted, until(is_refused, "the disk is full") or {}


def test_a_full_disk_refuses_new_jobs_and_nothing_else(programs: Programs, disk: SmallDisk) -> None:
    setup = OnSmallDisk(programs, disk)
    workforce = Workforce(programs, setup, processes=2, concurrency=2)
    gate = programs.folder / "gate"
    payload = f"until {gate}"
    waiting, running = setup.enqueue("later", "w"), setup.enqueue("tasks", payload)
    until(lambda: running in workforce.executions.read_text(), "it has begun")
    with Client(setup.native) as client:
        disk.fill()
        accepted, problem = submit_until_full(setup)
        assert problem["type"] == "urn:dragoman:store-unavailable"
        assert problem["detail"] == "store unavailable: the disk is full"
        with pytest.raises(JobRefused, match="the disk is full"):
            client.enqueue("later", LARGE.encode())
        status, _, body = setup.ask("GET", "/readyz")
        assert status == 503
        assert b"the store cannot write: the disk is full" in body
        assert setup.numbers()["dragoman_store_unavailable"] == 1

        assert len(client.call("tasks", b"a call goes on")) == 32
        gate.touch()
        assert setup.becomes(running, "done")["result"] == result_of(running, payload.encode()).decode()
        assert client.cancel(waiting)

        disk.clear()
        until(lambda: setup.ask("GET", "/readyz")[0] == 200, "there is room again")
        accepted.append(client.enqueue("later", b"small"))
    assert (disk.seen / "data" / "ballast").stat().st_size == 16 << 20, "room is kept back for the next time"
    setup.kill_and_start()
    assert {view["id"] for view in setup.jobs()} == {waiting, running, *accepted}
    assert [setup.job(each)["outcome"] for each in (waiting, running)] == ["cancelled", "done"]


def test_what_ends_on_a_full_disk_has_ended_after_a_kill(programs: Programs, disk: SmallDisk) -> None:
    """The ballast was given up for it."""
    setup = OnSmallDisk(programs, disk)
    workforce = Workforce(programs, setup, processes=2, concurrency=2)
    gate = programs.folder / "gate"
    running = setup.enqueue("tasks", f"until {gate}")
    until(lambda: running in workforce.executions.read_text(), "it has begun")
    disk.fill()
    accepted, _ = submit_until_full(setup)
    gate.touch()
    setup.becomes(running, "done")
    assert not (disk.seen / "data" / "ballast").exists()
    setup.kill_and_start()
    assert {view["id"] for view in setup.jobs()} == {running, *accepted}
    assert setup.job(running)["outcome"] == "done"
    assert len(workforce.executions.read_text().splitlines()) == 1


def test_a_disk_that_may_not_be_written_to_is_no_place_to_start(programs: Programs, disk: SmallDisk) -> None:
    setup = OnSmallDisk(programs, disk)
    job = setup.enqueue("later", "x")
    setup.kill()
    disk.remount("ro")
    refused = setup.try_to_start()
    assert refused.ends() == 74
    assert "Read-only file system" in refused.err
    assert "Traceback" not in refused.err
    disk.remount("rw")
    setup.start()
    assert setup.job(job)["state"] == "waiting"


def test_a_broker_starts_on_a_full_disk_in_the_room_of_the_ballast(programs: Programs, disk: SmallDisk) -> None:
    """It serves calls, and reports that the store cannot write."""
    setup = OnSmallDisk(programs, disk)
    workforce = Workforce(programs, setup, processes=2, concurrency=2)
    job = setup.enqueue("later", "x")
    setup.kill()
    disk.fill()
    setup.start()
    assert not (disk.seen / "data" / "epoch.new").exists()
    status, _, body = setup.ask("GET", "/readyz")
    assert status == 503
    assert b"the store cannot write: the disk is full" in body
    status, problem = setup.say("POST", "/v1/jobs", service="later", payload="small")
    assert (status, problem["detail"]) == (507, "store unavailable: the disk is full")
    with Client(setup.native) as client:
        assert len(client.call("tasks", b"a call", timeout=60, wait_for_worker=True)) == 32
    assert setup.job(job)["state"] == "waiting"
    setup.kill_and_start()
    assert setup.job(job)["state"] == "waiting", "once more, without a ballast"

    disk.clear()
    until(lambda: setup.ask("GET", "/readyz")[0] == 200, "there is room again")
    setup.enqueue("later", "small")
    assert (disk.seen / "data" / "ballast").stat().st_size == 16 << 20
    assert workforce.executions.read_text().count("\n") == 1


def test_a_disk_without_any_room_and_without_ballast_is_no_place_to_start(programs: Programs, disk: SmallDisk) -> None:
    setup = OnSmallDisk(programs, disk)
    job = setup.enqueue("later", "x")
    setup.kill()
    (disk.seen / "data" / "ballast").unlink()
    disk.fill()
    refused = setup.try_to_start()
    assert refused.ends() == 74
    assert f"No space left on device ({setup.data})" in refused.err
    assert "Traceback" not in refused.err
    assert not (disk.seen / "data" / "epoch.new").exists()
    checked = setup.launch("store", "check", setup.data)
    assert (checked.ends(), checked.out) == (0, "in order\n"), checked.err
    recovered = setup.launch("store", "recover", "--force", setup.data)
    assert recovered.ends() == 74
    assert re.search(r"^dragoman: .*full", recovered.err), recovered.err
    assert "Traceback" not in recovered.err
    assert not list((disk.seen / "data").glob("*.new*"))
    disk.clear()
    setup.start()
    assert setup.job(job)["state"] == "waiting"


def test_a_store_of_its_largest_size_refuses_new_jobs_until_something_is_erased(programs: Programs) -> None:
    setup = Survivor(programs, "--set", "max_store_size=6MiB")
    accepted, problem = submit_until_full(setup)
    assert problem["detail"] == "store unavailable: the store takes 6291456 bytes, the maximum (max_store_size)"
    assert len(accepted) * len(LARGE) > 4 << 20
    assert setup.say("POST", "/v1/services/later/purge")[1]["purged"] == len(accepted)
    until(lambda: setup.ask("GET", "/readyz")[0] == 200, "there is room again")
    setup.enqueue("later", LARGE)

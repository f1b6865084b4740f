"""Brokers with a store, as processes: killed and restarted, on a folder that is locked, damaged, or too new."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path
from random import Random

import apsw
import pytest

from dragoman.core.effects import Effect
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.log import make_log
from dragoman.server.serve import Server
from dragoman.store.sqlite import SqliteStore
from owners import LOCAL_OWNER
from programs import Programs, until

DRIVER = str(Path(__file__).with_name("store_driver.py"))
LISTEN = "native+tcp://127.0.0.1:0"
ROUNDS = 5
JOBS = 2_000


def test_kill_at_any_instant_loses_no_acknowledged_job(programs: Programs, tmp_path: Path) -> None:
    """N4 in small; I3, R107, R108, R141."""
    random = Random("kill")
    folder = tmp_path / "data"
    accepted: set[tuple[str, str]] = set()  # ids and principals
    for _ in range(ROUNDS):
        driver = programs.start(sys.executable, DRIVER, str(folder), str(JOBS))
        driver.prints("ready")
        check_all_here(driver.out, accepted)
        wanted = random.randrange(1, 300)
        until(lambda driver=driver, wanted=wanted: driver.out.count("accepted") >= wanted, "jobs to be accepted")
        driver.signal(signal.SIGKILL)
        driver.ends()
        accepted |= set(re.findall(r"^accepted (\w{32}) (\w+)\n", driver.out, re.MULTILINE))
    last = programs.start(sys.executable, DRIVER, str(folder), "0")
    assert last.ends() == 0
    check_all_here(last.out, accepted)
    file = apsw.Connection(str(folder / "store.db"))
    jobs, ids, spent = file.execute(
        "SELECT count(*), count(DISTINCT id), max(spent) FROM job LEFT JOIN fate USING (number)"
    ).fetchall()[0]
    file.close()
    assert jobs == ids >= len(accepted) > ROUNDS
    assert {principal for _, principal in accepted} == {"local", "web", "batch"}
    assert 0 < spent <= 3


def check_all_here(said: str, accepted: set[tuple[str, str]]) -> None:
    here = re.findall(r"^here (\w{32}) (\d+) (\w+)$", said, re.MULTILINE)
    ids = [id for id, _, _ in here]
    assert len(ids) == len(set(ids))
    assert accepted <= {(id, principal) for id, _, principal in here}
    assert max((int(spent) for _, spent, _ in here), default=0) <= 3


def test_broker_logs_where_its_store_is(programs: Programs, tmp_path: Path) -> None:
    broker = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    broker.prints(f"background jobs are kept in {re.escape(str(tmp_path / 'data'))}")
    broker.prints("jobs restored")
    broker.signal(signal.SIGTERM)
    assert broker.ends() == 0


def test_second_broker_on_a_folder_ends_and_names_the_first(programs: Programs, tmp_path: Path) -> None:
    """R105."""
    first = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    first.prints("is listening")
    second = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    assert second.ends() == 73
    assert str(first.pid) in second.err


def test_a_folder_that_lost_its_lock_file_is_still_in_use(programs: Programs, tmp_path: Path) -> None:
    """R105. The store's own lock kept the second broker out, which ended with 74, as if the disk had failed."""
    first = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    first.prints("is listening")
    (tmp_path / "data" / "lock").unlink()
    second = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    assert second.ends() == 73
    assert f"store.db is in use by the process with id {first.pid}" in second.err
    (tmp_path / "data" / "lock").unlink()
    checked = programs.run("store", "check", tmp_path / "data")
    assert checked.ends() == 73
    assert str(first.pid) in checked.err


def made(programs: Programs, folder: Path) -> None:
    """Create a store with some jobs."""
    assert programs.start(sys.executable, DRIVER, str(folder), "200").ends() == 0


def test_damaged_store_is_refused_and_recovered(programs: Programs, tmp_path: Path) -> None:
    """R109."""
    folder = tmp_path / "data"
    made(programs, folder)
    sound = programs.dragoman("store", "check", str(folder))
    assert (sound.ends(), sound.out) == (0, "in order\n")
    with open(folder / "store.db", "r+b") as file:
        file.seek(10 * 4096)
        file.write(b"\xff" * 4096)
    broken = programs.dragoman("store", "check", str(folder))
    assert broken.ends() == 74
    broker = programs.dragoman("serve", LISTEN, "--data", str(folder))
    assert broker.ends() == 74
    assert "dragoman store recover" in broker.err
    recovery = programs.dragoman("store", "recover", str(folder))
    assert recovery.ends() == 0
    jobs = int(recovery.prints(r"recovered: (\d+) jobs"))
    assert 100 < jobs <= 200
    again = programs.start(sys.executable, DRIVER, str(folder), "0")
    assert again.ends() == 0
    assert len(re.findall("^here", again.out, re.MULTILINE)) == jobs


def test_store_with_a_bad_byte_is_refused_and_recovered(programs: Programs, tmp_path: Path) -> None:
    """The file was whole for SQLite: the check found nothing, and recovery ended in a traceback."""
    folder = tmp_path / "data"
    made(programs, folder)
    file = apsw.Connection(str(folder / "store.db"))
    file.execute("UPDATE job SET service = CAST(x'61ff' AS TEXT) WHERE number = (SELECT max(number) FROM job)")
    file.close()
    broken = programs.dragoman("store", "check", str(folder))
    assert broken.ends() == 74
    assert "1 jobs cannot be read" in broken.err
    broker = programs.dragoman("serve", LISTEN, "--data", str(folder))
    assert broker.ends() == 74
    assert "dragoman store recover" in broker.err
    recovery = programs.dragoman("store", "recover", str(folder))
    assert recovery.ends() == 0
    assert "left out: 1 jobs or values that cannot be read" in recovery.out
    again = programs.dragoman("serve", LISTEN, "--data", str(folder))
    again.prints("jobs restored")
    assert not list(folder.glob("*.new*"))
    assert "Traceback" not in broken.err + broker.err + recovery.err


def test_store_in_order_is_recovered_only_by_force(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    made(programs, folder)
    epoch = (folder / "epoch").read_text()
    left = programs.dragoman("store", "recover", str(folder))
    assert (left.ends(), left.out) == (0, "in order: there is nothing to recover\n")
    assert not list(folder.glob("*damaged*"))
    forced = programs.dragoman("store", "recover", str(folder), "--force")
    assert forced.ends() == 0
    assert "recovered: 200 jobs" in forced.out
    assert list(folder.glob("store.db.damaged-*"))
    assert (folder / "epoch").read_text() == epoch, "it is no run of a broker"


@pytest.mark.parametrize("command", ["check", "recover"])
def test_folders_without_a_store_are_usage_errors(programs: Programs, tmp_path: Path, command: str) -> None:
    none = programs.dragoman("store", command, str(tmp_path / "none"))
    assert none.ends() == 2
    assert none.err == f"dragoman: folder {tmp_path / 'none'} does not exist; pass the data folder of a broker\n"
    (tmp_path / "empty").mkdir()
    empty = programs.dragoman("store", command, str(tmp_path / "empty"))
    assert empty.ends() == 2
    assert empty.err == f"dragoman: there is no store in {tmp_path / 'empty'}; pass the data folder of a broker\n"
    assert not list((tmp_path / "empty").iterdir())


def test_store_of_a_newer_release_is_refused(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    made(programs, folder)
    file = apsw.Connection(str(folder / "store.db"))
    file.pragma("user_version", 99)
    file.execute("UPDATE note SET value = '99' WHERE key = 'format'")
    file.close()
    broker = programs.dragoman("serve", LISTEN, "--data", str(folder))
    assert broker.ends() == 74
    assert "name another folder (--data)" in broker.err


@pytest.mark.parametrize("command", ["check", "recover"])
def test_store_of_a_running_broker_is_locked(programs: Programs, tmp_path: Path, command: str) -> None:
    broker = programs.dragoman("serve", LISTEN, "--data", str(tmp_path / "data"))
    broker.prints("is listening")
    refused = programs.dragoman("store", command, str(tmp_path / "data"))
    assert refused.ends() == 73
    assert f"in use by the broker with process id {broker.pid}: stop it first" in refused.err


def test_disk_that_fails_ends_the_broker_with_its_own_code(tmp_path: Path) -> None:
    """R104."""

    async def live() -> int:
        config = Config(listen=(LISTEN,))
        server = Server(asyncio.get_running_loop(), config, 1, make_log("json", "error"), folder=tmp_path)
        try:
            server.listen()
            assert isinstance(server.store, SqliteStore)
            server.store.failed("the store failed (a disk)")
            return await asyncio.wait_for(server.stopped, 10)
        finally:
            server.close()

    assert asyncio.run(live()) == 74


def test_draining_waits_for_the_store(tmp_path: Path) -> None:
    """R103: a job that was enqueued just before is acknowledged."""

    async def live() -> list[Effect]:
        config = Config(listen=(LISTEN,))
        server = Server(asyncio.get_running_loop(), config, 1, make_log("json", "error"), folder=tmp_path)
        caller = Listening()
        try:
            server.listen()
            server.broker.submit("s", b"x", caller, JobOptions(durable=True, waits=True), clock.now())
            server.drain()
            assert await asyncio.wait_for(server.stopped, 10) == 0
        finally:
            server.close()
        return caller.heard

    assert [type(each) for each in asyncio.run(live())] == [Acknowledge]


class Listening(Caller):
    def __init__(self) -> None:
        super().__init__(self, LOCAL_OWNER)
        self.heard: list[Effect] = []

    def execute(self, effect: Effect, now: float) -> None:
        self.heard.append(effect)

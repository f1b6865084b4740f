"""Export and import: a data folder, a cluster and back, with everything that a store has. Nothing is lost silently."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_members import HANDLERS, PATIENCE, Member, initialise, start_members, start_nats, wait_for_owners

from case_tables import check_every_row
from dragoman import Client
from dragoman.operations.schemas import EnqueueRequest
from dragoman.operations.table import ENQUEUE
from exported_jobs import made_file
from nats_servers import NatsServer
from programs import Programs, until

DRIVER = Path(__file__).with_name("import_driver.py")
LISTENERS = ("tcp://127.0.0.1:0",)
TIMES = ("created", "start_at", "given", "keep_until")
DRIFT = 30.0  # seconds: times pass through the log as durations, and machines may be slow


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def filled(programs: Programs, folder: Path, runs: Path) -> dict[str, str]:
    """Make a store with jobs in every state, and kill its broker while one of them runs. Returns ids by names."""
    programs.environment["PYTHONPATH"] = HANDLERS
    broker = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", folder)
    url = "native+" + broker.prints(r"native +(tcp://\S+) +both")
    runs.mkdir()
    ids: dict[str, str] = {}
    with closing(Client(url)) as client:
        for word, service in (("upper", "upper"), ("fails", "fails"), ("waits", "waits")):
            programs.dragoman("worker", f"cluster_handlers:{word}", "--service", service, "--connect", url)
        ids["done"] = client.enqueue("upper", b"hello", key="same", keep="forever")
        client.result(ids["done"], PATIENCE)
        ids["quarantined"] = client.enqueue("fails", b"\xff\x00", attempts=1, key="broken")
        until(lambda: client.job(ids["quarantined"]).quarantined, "it is in quarantine", PATIENCE)
        ids["running"] = client.enqueue("waits", str(runs).encode(), attempts=3)
        until(lambda: (runs / "started").exists(), "it runs", PATIENCE)
        for number in range(30):
            ids[f"keyed {number}"] = client.enqueue("later", f"{runs}/{number}".encode(), key=f"k{number}")
        for number in range(30):
            view = client.operation(ENQUEUE, EnqueueRequest(service="later"), f"{runs}/free {number}".encode())
            ids[f"free {number}"] = view.id
        ids["group"] = client.enqueue_group("later", [f"{runs}/member {number}".encode() for number in range(3)])
        ids["last"] = client.enqueue("later", f"{runs}/last".encode(), after=[ids["group"]])
        ids["delayed"] = client.enqueue("later", b"x", delay=3_600.0, priority=9, tenant="acme")
        client.set_schedule("nightly", "report", b"all", cron="0 3 * * *")
        client.pause("stopped", "tests")
        client.limit("later", max_running=2)
    broker.kill()
    broker.ends()
    return ids


def export(programs: Programs, path: Path, *words: object) -> list[dict[str, Any]]:
    """Export to a file. Returns its lines."""
    done = programs.run("export", *words)
    assert done.ends(PATIENCE) == 0, done.err
    path.write_bytes(done.out_bytes)
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(lines: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the jobs and the values of an export; times are compared apart."""
    jobs = {line["job"]: line for line in lines if "job" in line}
    return jobs, {line["value"]: line["text"] for line in lines if "value" in line}


def without_times(job: dict[str, Any]) -> dict[str, Any]:
    status = {name: value for name, value in job.get("status", {}).items() if name not in TIMES}
    status["history"] = [each[:4] + each[6:] for each in status.get("history", [])]
    return {name: value for name, value in job.items() if name not in (*TIMES, "status")} | {"status": status}


def times(job: dict[str, Any]) -> list[float]:
    status = job.get("status", {})
    history = [time / 1_000.0 for each in status.get("history", []) for time in each[4:6]]
    return [job["created"], *[status[name] for name in TIMES if name in status], *history]


def check_equal(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    jobs, values = contents(first)
    others, same = contents(second)
    assert values == same
    assert {id: without_times(job) for id, job in jobs.items()} == {
        id: without_times(job) for id, job in others.items()
    }
    for id, job in jobs.items():
        assert times(job) == pytest.approx(times(others[id]), abs=DRIFT)
    assert first[-1]["end"] == second[-1]["end"]


def test_jobs_go_into_a_cluster_and_back(programs: Programs, nats: NatsServer, tmp_path: Path) -> None:
    """Also: their ids are known at every broker, keys stay unique, and a second import is refused."""
    runs = tmp_path / "runs"
    ids = filled(programs, tmp_path / "data", runs)
    first = export(programs, tmp_path / "one", "--data", tmp_path / "data")
    counts = {"jobs": 68, "groups": 1, "schedules": 1, "pauses": 1, "times of pauses": 1, "limits": 1}
    assert first[-1]["end"] == counts
    initialise(programs, nats.url)
    done = programs.run("import", tmp_path / "one", "--cluster", nats.url)
    assert done.ends(PATIENCE) == 0, done.err
    assert done.out.startswith("imported: 68 jobs, 1 groups")
    second = export(programs, tmp_path / "two", "--cluster", nats.url)
    check_equal(first, second)
    again = programs.run("import", tmp_path / "one", "--cluster", nats.url)
    assert (again.ends(PATIENCE), again.out) == (1, "")
    assert "this file was imported into this cluster before" in again.err
    other = programs.run("import", tmp_path / "two", "--cluster", nats.url)
    assert other.ends(PATIENCE) == 1
    assert re.search("the cluster has job [0-9a-f]{32} already", other.err)
    back = programs.run("import", tmp_path / "two", "--data", tmp_path / "back")
    assert back.ends(PATIENCE) == 0, back.err
    third = export(programs, tmp_path / "three", "--data", tmp_path / "back")
    check_equal(first, third)
    full = programs.run("import", tmp_path / "two", "--data", tmp_path / "back")
    assert full.ends(PATIENCE) == 1
    assert "has 68 jobs" in full.err
    members = start_members(programs, nats, ("eu1", "eu2"), listeners=LISTENERS)
    wait_for_owners(members)
    check_cluster(members, ids, runs)
    with closing(Client(members[0].url)) as client:
        until(lambda: all(each.clock is not None for each in client.cluster().members), "clocks are known", PATIENCE)
        assert [abs(each.clock or 0.0) < 5.0 for each in client.cluster().members] == [True, True]
    live = programs.run("export", "--cluster", nats.url)
    assert live.ends(PATIENCE) == 73
    assert re.search("broker eu[12] runs in this cluster; stop all of its brokers first", live.err)


def check_cluster(members: list[Member], ids: dict[str, str], runs: Path) -> None:
    """Check the imported jobs in a running cluster."""
    jobs = {name: id for name, id in ids.items() if name != "group"}
    for member in members:
        with closing(Client(member.url)) as client:
            views = {name: client.job(id) for name, id in jobs.items()}
            assert client.result(ids["done"], 1.0) == b"HELLO"
            assert views["quarantined"].quarantined
            assert client.group(ids["group"]).size == 3
            assert client.enqueue("later", f"{runs}/7".encode(), key="k7") == ids["keyed 7"]
            assert [each.name for each in client.schedules()] == ["nightly"]
            assert client.service("stopped").paused
            after = client.enqueue("later", f"{runs}/after {member.name}".encode(), after=[ids["keyed 3"]])
            jobs[f"after {member.name}"] = after
    with closing(Client(members[0].url)) as client:
        again = client.retry(ids["quarantined"])
        assert client.job(again).retry_of == ids["quarantined"]
    members[0].worker("writes", "later")
    (runs / "go").touch()
    members[1].worker("waits", "waits")
    with closing(Client(members[1].url)) as client:
        wanted = [id for name, id in jobs.items() if name not in ("quarantined", "delayed")]
        until(lambda: all(client.job(id).outcome == "done" for id in wanted), "all are done", PATIENCE)
        assert client.job(ids["running"]).attempts[0].outcome == "lost"
    files = [each for each in runs.iterdir() if each.name not in ("go", "started", "cancelled")]
    assert len(files) == 66
    assert {each.read_text() for each in files} == {"run\n"}


def test_an_import_that_was_killed_is_finished_by_the_next_one(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """No broker takes a shard of it before that: nothing runs until everything is there."""
    made_file(tmp_path / "file", 2_000)
    initialise(programs, nats.url, 2)
    killed = programs.start(sys.executable, DRIVER, tmp_path / "file", "cluster", nats.url, 1_500)
    assert killed.ends(PATIENCE) == -signal.SIGKILL
    early = programs.run("export", "--cluster", nats.url)
    assert early.ends(PATIENCE) == 1
    assert "was interrupted; finish it first" in early.err
    broker = programs.dragoman("serve", *LISTENERS, "--data", "memory", "--cluster", nats.url, "--broker-name", "eu1")
    broker.prints("was interrupted; run `dragoman import` again.*shard log unusable")
    broker.signal(signal.SIGTERM)
    assert broker.ends(PATIENCE) == 0
    made_file(tmp_path / "other", 1)
    other = programs.run("import", tmp_path / "other", "--cluster", nats.url)
    assert other.ends(PATIENCE) == 1
    assert "the import of another file" in other.err
    done = programs.run("import", tmp_path / "file", "--cluster", nats.url)
    assert (done.ends(PATIENCE), done.out) == (0, "imported: 2000 jobs\n"), done.err
    lines = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    check_equal(lines, export(programs, tmp_path / "again", "--cluster", nats.url))


def test_an_import_into_a_folder_that_was_killed_leaves_nothing(programs: Programs, tmp_path: Path) -> None:
    made_file(tmp_path / "file", 2_000)
    folder = tmp_path / "data"
    killed = programs.start(sys.executable, DRIVER, tmp_path / "file", "folder", folder, 1_500)
    assert killed.ends(PATIENCE) == -signal.SIGKILL
    assert export(programs, tmp_path / "none", "--data", folder)[-1]["end"]["jobs"] == 0
    done = programs.run("import", tmp_path / "file", "--data", folder)
    assert (done.ends(PATIENCE), done.out) == (0, "imported: 2000 jobs\n"), done.err
    lines = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    again = export(programs, tmp_path / "again", "--data", folder)
    assert again[1:-1] == lines[1:-1]
    checked = programs.run("store", "check", folder)
    assert (checked.ends(PATIENCE), checked.out) == (0, "in order\n"), checked.err


def test_refusals_name_the_reason(programs: Programs, tmp_path: Path) -> None:
    made_file(tmp_path / "file", 3)
    broker = programs.dragoman("serve", *LISTENERS, "--data", tmp_path / "data")
    broker.prints("native +tcp://")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("dear")
    (tmp_path / "cut").write_bytes((tmp_path / "file").read_bytes()[:-10])
    none = "nats://127.0.0.1:1"
    cases: list[tuple[tuple[object, ...], int, str]] = [
        (("export",), 2, "name either a data folder (--data) or a cluster (--cluster)"),
        (("export", "--data", tmp_path, "--cluster", none), 2, "name either"),
        (("export", "--data", tmp_path / "data"), 73, f"process id {broker.pid}: stop it first"),
        (("export", "--data", tmp_path / "missing"), 1, "there is no store in"),
        (("export", "--cluster", none), 3, "no NATS server admits this program"),
        (("import", tmp_path / "file"), 2, "name either"),
        (("import", tmp_path / "none", "--data", tmp_path / "new"), 2, "none is no file"),
        (("import", tmp_path / "file", "--data", tmp_path / "data"), 73, "stop it first"),
        (("import", tmp_path / "file", "--data", tmp_path / "other"), 1, "is not empty, and no data folder"),
        (("import", tmp_path / "cut", "--data", tmp_path / "new"), 2, "the file is cut off"),
        (("import", tmp_path / "file", "--cluster", none), 3, "no NATS server admits this program"),
    ]

    def check(words: tuple[object, ...], code: int, told: str) -> None:
        done = programs.run(*words)
        assert done.ends(PATIENCE) == code, done.err
        assert told in done.err

    check_every_row(check, cases)
    assert not (tmp_path / "new").exists()

"""Export and import: a data folder, a cluster and back, with everything that a store has. Nothing is lost silently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_members import HERE, PATIENCE, Member, initialise, start_members, start_nats, wait_for_owners

from dragoman import Client
from dragoman.operations.schemas import EnqueueRequest
from dragoman.operations.table import ENQUEUE
from nats_servers import NatsServer
from programs import Programs, until

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
    programs.environment["PYTHONPATH"] = str(HERE)
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
    status["history"] = [each[:4] for each in status.get("history", [])]
    return {name: value for name, value in job.items() if name not in (*TIMES, "status")} | {"status": status}


def times(job: dict[str, Any]) -> list[float]:
    status = job.get("status", {})
    history = [time / 1_000.0 for each in status.get("history", []) for time in each[4:]]
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
            assert client.group(ids["group"]).total == 3
            assert client.enqueue("later", f"{runs}/7".encode(), key="k7") == ids["keyed 7"]
            assert [each.name for each in client.schedules()] == ["nightly"]
            assert client.service("stopped").paused
            after = client.enqueue("later", f"{runs}/after {member.name}".encode(), after=[ids["keyed 3"]])
            jobs[f"after {member.name}"] = after
            again = client.retry(ids["quarantined"]) if member is members[0] else None
            assert again is None or client.job(again.id).retry_of == ids["quarantined"]
    members[0].worker("writes", "later")
    (runs / "go").touch()
    members[1].worker("waits", "waits")
    with closing(Client(members[1].url)) as client:
        wanted = [id for name, id in jobs.items() if name not in ("quarantined", "delayed")]
        until(lambda: all(client.job(id).outcome == "done" for id in wanted), "all are done", PATIENCE)
        assert client.job(ids["running"]).attempts[0].outcome == "lost"
    files = [each for each in runs.iterdir() if each.name not in ("go", "started")]
    assert len(files) == 66
    assert {each.read_text() for each in files} == {"run\n"}

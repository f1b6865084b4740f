"""Dashboards of a cluster: the stream of snapshots, the overview and `dragoman top` show all brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cluster_members import PATIENCE, Member, enqueue_at, initialise, start_members, start_nats, wait_for_balance

from dragoman import Client
from nats_servers import NatsServer
from programs import Program, Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    made = start_members(programs, nats, ("eu1", "eu2"), listeners=LISTENERS)
    wait_for_balance(made)
    return made


def latest(top: Program) -> dict[str, Any]:
    """Return the last snapshot that `dragoman top --json` has printed."""
    lines = [line for line in top.out.split("\n")[:-1] if line]
    return dict(json.loads(lines[-1])) if lines else {}


def is_running(snapshot: dict[str, Any]) -> bool:
    """True if the snapshot has one running job, and the service of it, which the next sample finds."""
    return bool(snapshot["totals"]["running"] == 1 and [each for each in snapshot["services"] if each["slots"]])


def watch(programs: Programs, member: Member) -> Program:
    top = programs.dragoman("top", "--json", "--connect", member.urls["http"])
    top.prints('"seq"')
    return top


def test_any_broker_streams_the_snapshots_of_all_and_names_those_that_are_missing(
    programs: Programs, nats: NatsServer, members: list[Member], tmp_path: Path
) -> None:
    first, second = members
    second.worker("waits", "waits", threads=3)
    until(lambda: first.offers("waits"), "the service is offered", PATIENCE)
    job = enqueue_at(first, "waits", str(tmp_path).encode())  # it runs at the other broker
    for member in members:
        top = watch(programs, member)
        until(lambda top=top: is_running(latest(top)), "the job is shown", PATIENCE)
        snapshot = latest(top)
        assert [each["name"] for each in snapshot["brokers"]] == ["eu1", "eu2"]
        assert [each["here"] for each in snapshot["brokers"]] == [member is first, member is second]
        assert [each["running"] for each in snapshot["brokers"]] == [1, 0], "its own broker counts it"
        assert [each["shards"] for each in snapshot["brokers"]] == [2, 2]
        [row] = [each for each in snapshot["services"] if each["name"] == "waits"]
        assert (row["running"], row["workers"], row["slots"]) == (1, 1, 3)
        assert snapshot["unanswered"] == []
    (tmp_path / "go").touch()
    with closing(Client(first.url)) as client:
        assert client.result(job, PATIENCE) == b"went"
    top = watch(programs, first)
    second.program.kill()
    until(lambda: latest(top)["unanswered"] == ["eu2"], "the broker is missing", PATIENCE)
    assert [each["name"] for each in latest(top)["brokers"]] == ["eu1"]
    assert latest(top)["totals"]["workers"] == {}
    until(lambda: latest(top)["unanswered"] == [], "the broker is gone", PATIENCE)
    until(lambda: "broker eu2 left the cluster" in json.dumps(latest(top)["changes"]), "that is a change", PATIENCE)


def test_without_nats_a_broker_streams_its_own_snapshots(
    programs: Programs, nats: NatsServer, members: list[Member]
) -> None:
    first, _ = members
    top = watch(programs, first)
    until(lambda: len(latest(top)["brokers"]) == 2, "both brokers are shown", PATIENCE)
    nats.kill()
    until(lambda: latest(top)["unanswered"] == ["eu2"], "the other broker is missing", PATIENCE)
    seen = latest(top)["seq"]
    until(lambda: latest(top)["seq"] > seen + 2, "snapshots go on", PATIENCE)
    assert latest(top)["unanswered"] == ["eu2"]


def test_a_job_page_streams_the_why_and_the_messages_of_another_broker(members: list[Member]) -> None:
    first, second = members
    job = enqueue_at(second, "nobody", b"x")
    found: dict[str, Any] = {}
    url = f"{first.urls['http']}/v1/live?page=job/{job}"
    with httpx2.Client(timeout=PATIENCE) as client, client.stream("GET", url) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found = json.loads(line.removeprefix("data: "))["page"]
                break
    assert (found["job"]["id"], found["job"]["broker"]) == (job, "eu2")
    assert found["why"]["why"] == "It waits: no worker offers 'nobody'."
    assert "waits in the queue" in [each.get("note") for each in found["ladder"]["messages"]]


def test_top_and_the_history_of_a_service_are_those_of_the_cluster(programs: Programs, members: list[Member]) -> None:
    first, second = members
    second.worker("upper", "upper")
    until(lambda: first.offers("upper"), "the service is offered", PATIENCE)
    with closing(Client(first.url)) as client:
        for _ in range(5):
            assert client.call("upper", b"x") == b"X"

        def ended() -> float:
            series = client.service_series("upper")
            assert series.unanswered == []
            return sum(each or 0.0 for each in series.done) * series.step

        until(lambda: ended() > 4.9, "the history has them", PATIENCE)
        assert ended() == pytest.approx(5.0, abs=0.1), "each counts once, though two brokers had it"
    shown = programs.run("top", "--connect", first.urls["http"])
    assert "2 brokers" in shown.out
    assert "BROKER" in shown.out
    assert any(line.startswith("upper") and "eu2" in line for line in shown.out.splitlines())
    listed = programs.run("listeners", "--broker", "eu2", "--connect", first.url)
    assert second.urls["http"].rsplit(":", 1)[1] in listed.out

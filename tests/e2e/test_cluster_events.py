"""Events and metrics of a cluster, asked at any broker, with real processes and a real NATS server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cluster_members import (
    PATIENCE,
    Member,
    enqueue_at,
    initialise,
    start_members,
    start_nats,
    wait_for_balance,
)
from prometheus_client.parser import text_string_to_metric_families

from dragoman import Client
from dragoman.cli.broker_http import BrokerHttp
from dragoman.sdk.errors import DragomanError
from nats_servers import NatsServer
from programs import Programs, until

NAMES = ("eu1", "eu2")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    made = start_members(programs, nats, NAMES)
    wait_for_balance(made)
    return made


class Stream:
    """An event stream, read in a thread."""

    def __init__(self, member: Member, path: str, **query: object) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.is_open = False
        self.is_over = False
        self._requests = BrokerHttp(member.urls["http"])
        self._thread = Thread(target=self._read, args=(path, query), daemon=True)
        self._thread.start()
        until(lambda: self.is_open or self.is_over, "the stream is open", PATIENCE)

    def _read(self, path: str, query: dict[str, object]) -> None:
        try:
            for event in self._requests.events(path, **query):
                self.is_open = True
                if event.data:
                    self.events.append((event.name, json.loads(event.data)))
        except DragomanError:
            pass  # the broker was killed
        self.is_over = True

    def outline(self, *names: str) -> list[tuple[Any, ...]]:
        return [(event, *(fields.get(name) for name in names)) for event, fields in list(self.events)]


def watches(stream: Stream, member: Member) -> None:
    """Wait until the stream has events of a broker: those before it is watched are not repeated."""

    def is_heard() -> bool:
        try:
            with closing(Client(member.url, wait_for_broker=False)) as client:
                client.enqueue("nobody", b"x")
        except DragomanError:
            return False  # NATS is not reached yet
        return member.name in [fields.get("broker") for _, fields in list(stream.events)]

    until(is_heard, f"the stream has events of {member.name}", PATIENCE)


def test_tail_at_one_broker_prints_the_events_of_all(members: list[Member], programs: Programs) -> None:
    first, second = members
    second.worker("upper", "upper")
    until(lambda: first.offers("upper"), "the service is offered", PATIENCE)
    tail = programs.dragoman("tail", "--all", "--service", "upper", "--connect", first.urls["http"])
    with closing(Client(second.url)) as far, closing(Client(first.url)) as near:
        until(lambda: far.call("upper", b"x") and " eu2 " in tail.out, "events of eu2 are printed", PATIENCE)
        id = enqueue_at(first, "upper", b"y")
        assert near.result(id, PATIENCE) == b"Y"
    tail.prints(rf"eu1  {id[:12]}  upper  done       after ")
    lines = [line.split(None, 3) for line in tail.out.splitlines() if id[:12] in line]
    assert {line[1] for line in lines} == {"eu1"}  # the events of its owner, though it ran at eu2
    assert [line for line in lines if "at eu2 (cluster)" in line[3]]


def test_a_ladder_of_a_job_at_another_broker_is_followed(
    members: list[Member], programs: Programs, tmp_path: Path
) -> None:
    first, second = members
    second.worker("waits", "waits")
    until(lambda: second.offers("waits"), "the service is offered", PATIENCE)
    id = enqueue_at(second, "waits", str(tmp_path).encode())
    tail = programs.dragoman("tail", "--ladder", id, "--connect", first.url)
    tail.prints("enqueue")
    (tmp_path / "go").touch()
    assert tail.ends(PATIENCE) == 0
    shown = programs.dragoman("ladder", id, "--connect", first.url)
    assert shown.ends(PATIENCE) == 0
    assert "--- RESULT --> broker" in shown.out


def test_the_events_of_a_job_go_on_when_its_broker_is_killed(members: list[Member], tmp_path: Path) -> None:
    first, second = members
    first.worker("waits", "waits")
    until(lambda: second.offers("waits"), "the service is offered", PATIENCE)
    id = enqueue_at(second, "waits", str(tmp_path).encode(), attempts=3)
    stream = Stream(first, f"/v1/jobs/{id}/events")
    until(lambda: ("running", "eu2") in stream.outline("broker"), "it runs at eu1, for eu2", PATIENCE)
    second.program.kill()
    until(lambda: "eu1" in [broker for _, broker in stream.outline("broker")], "eu1 has adopted it", PATIENCE)
    assert not stream.is_over
    (tmp_path / "go").touch()
    until(lambda: stream.is_over, "the stream has ended", PATIENCE)
    assert stream.outline("broker", "outcome")[-1] == ("ended", "eu1", "done")
    assert {fields["id"] for _, fields in stream.events} == {id}


def test_the_events_of_a_job_go_on_when_its_broker_hands_it_over(members: list[Member]) -> None:
    first, second = members
    id = enqueue_at(first, "later", b"x")
    stream = Stream(first, f"/v1/jobs/{id}/events")
    until(lambda: stream.outline("broker") == [("waiting", "eu1")], "its state is there", PATIENCE)
    with closing(Client(second.url)) as client:
        client.release_shards("eu1")
    until(lambda: ("waiting", "eu2") in stream.outline("broker"), "eu2 has it", PATIENCE)
    second.worker("upper", "later")
    until(lambda: stream.is_over, "the stream has ended", PATIENCE)
    assert stream.outline("broker", "outcome")[-1] == ("ended", "eu2", "done")


def test_events_go_on_when_nats_and_a_broker_were_restarted(
    members: list[Member], programs: Programs, nats: NatsServer
) -> None:
    first, second = members
    stream = Stream(first, "/v1/events")
    watches(stream, second)
    nats.kill()
    nats.start()
    wait_for_balance(members)
    stream.events.clear()
    watches(stream, second)
    second.program.kill()
    again = Member(programs, nats, "eu2")
    again.wait()
    until(lambda: len(again.knows()) == 2, "it knows the other", PATIENCE)
    wait_for_balance([first, again])
    stream.events.clear()
    watches(stream, again)
    assert not stream.is_over


def scrape(member: Member, query: str = "?brokers=all") -> dict[str, float]:
    with urllib.request.urlopen(f"{member.urls['http']}/metrics{query}", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    if "openmetrics" in answer.headers["content-type"]:
        text = text.removesuffix("# EOF\n")
    found = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in each.labels.items())
            assert f"{each.name}{{{labels}}}" not in found
            found[f"{each.name}{{{labels}}}"] = each.value
    return found


def test_one_scrape_has_all_brokers_and_names_those_that_do_not_answer(members: list[Member]) -> None:
    first, second = members
    second.worker("upper", "upper")
    until(lambda: first.offers("upper"), "the service is offered", PATIENCE)
    with closing(Client(first.url)) as client:
        assert client.call("upper", b"x") == b"X"
    numbers = scrape(first)
    assert [numbers[f"dragoman_broker_up{{broker={name}}}"] for name in NAMES] == [1, 1]
    assert numbers["dragoman_cluster_gives_total{broker=eu1,result=done}"] == 1
    assert numbers["dragoman_cluster_taken_jobs_total{broker=eu2,service=upper,outcome=done}"] == 1
    assert [numbers[f"process_open_fds{{broker={name}}}"] > 0 for name in NAMES] == [True, True]
    assert numbers["dragoman_cluster_shards_owned{broker=eu2}"] == scrape(second, "")["dragoman_cluster_shards_owned{}"]
    second.program.stop()
    numbers = scrape(first)
    assert [numbers[f"dragoman_broker_up{{broker={name}}}"] for name in NAMES] == [1, 0]
    second.program.go_on()
    until(lambda: scrape(first)["dragoman_broker_up{broker=eu2}"] == 1, "it answers again", PATIENCE)

"""The operations `listeners` and `broker` of a running broker, and the commands of lists."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from command_runner import command_runner
from dragoman import LocalBroker
from dragoman.cli import dragoman
from dragoman.operations.list_schemas import BrokerView, ListenerView


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(
        "tcp://127.0.0.1:0", "http://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0&edition=package"
    ) as broker:
        yield broker


def by_dialect(broker: LocalBroker) -> dict[str, ListenerView]:
    with broker.client() as client:
        return {each.dialect: each for each in client.listeners()}


def run(broker: LocalBroker, *words: str) -> str:
    ran = command_runner().invoke(dragoman, [*words, "--connect", broker.urls["native"]])
    assert ran.exit_code == 0, ran.output
    return ran.output


def run_json(broker: LocalBroker, *words: str) -> list[Any]:
    return [json.loads(line) for line in run(broker, *words, "--json").splitlines()]


def test_listeners_are_listed_with_their_traffic(broker: LocalBroker) -> None:
    found = by_dialect(broker)
    assert list(found) == ["native", "http", "pingpong"]
    native, http, pingpong = found.values()
    assert f"native+{native.url}" == broker.urls["native"]
    assert (native.roles, native.frontend, native.edition, native.insecure) == (["worker", "caller"], None, None, False)
    assert native.peers >= 1  # an earlier client's end may not have been noticed
    assert native.received > 0 < native.sent
    assert http.url == broker.urls["http"]
    assert http.roles == ["worker", "caller"]
    assert (pingpong.roles, pingpong.edition) == (["worker", "caller"], "package")
    assert pingpong.url.startswith("pingpong+tcp://127.0.0.1:")
    assert pingpong.frontend is not None
    assert pingpong.frontend not in (pingpong.url, None)


def test_bad_messages_are_counted_for_their_listener(broker: LocalBroker) -> None:
    for dialect in ("http", "pingpong"):
        url = by_dialect(broker)[dialect].url
        host, _, port = url.partition("://")[2].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(b"\x01 is neither HTTP nor ZMTP\r\n\r\n" * 4)
            while client.recv(4096):
                pass
    found = by_dialect(broker)
    assert found["native"].bad == 0
    for dialect in ("http", "pingpong"):
        assert found[dialect].bad == sum(found[dialect].bad_reasons.values()) == 1
        assert found[dialect].received > 0, "bytes of ended connections count"


def test_the_broker_shows_itself(broker: LocalBroker) -> None:
    with broker.client() as client:
        view = client.broker()
        assert isinstance(view, BrokerView)
        again = client.broker()
    assert (len(view.instance), view.instance) == (16, again.instance)
    limits = {each.name: each for each in view.limits}
    assert list(limits) == [
        "max_jobs",
        "max_memory",
        "max_services",
        "max_outcome_bytes",
        "max_kept_forever",
        "max_connections",
    ]
    assert (limits["max_jobs"].used, limits["max_jobs"].of) == (0, 1_000_000)
    assert 1 <= limits["max_connections"].used < limits["max_connections"].of
    assert view.store_size is None


def test_commands_of_lists_and_facts(broker: LocalBroker) -> None:
    with broker.client() as client:
        client.enqueue("ocr", b"x", key="invoice-42")
        client.enqueue("ocr", b"y")
        client.enqueue("embed", b"z", delay=60.0)
    assert [each["name"] for each in run_json(broker, "services", "--sort", "waiting")] == ["ocr", "embed"]
    assert [each["name"] for each in run_json(broker, "services", "--text", "EMB", "--limit", "1")] == ["embed"]
    (job,) = run_json(broker, "jobs", "--kind", "background", "--text", "invoice")
    assert job["key"] == "invoice-42"
    assert run_json(broker, "jobs", "--undone") == []
    (counts,) = run_json(broker, "jobs", "--counts")
    assert counts == {
        "waiting": 2,
        "delayed": 1,
        "dependent": 0,
        "running": 0,
        "done": 0,
        "undone": 0,
        "quarantined": 0,
    }
    assert "not done     0" in run(broker, "jobs", "--counts", "--service", "ocr")
    assert run_json(broker, "workers", "--state", "idle", "--sort", "need") == []
    assert run_json(broker, "workers", "--fleet") == [{"each": 1, "states": "", "first": None, "ids": []}]
    assert "pingpong package" in run(broker, "listeners")
    assert "max_jobs           3 of 1,000,000 (0 %)" in run(broker, "broker")


def test_a_worker_has_the_address_of_its_listener(broker: LocalBroker) -> None:
    request = urllib.request.Request(f"{broker.urls['http']}/v1/workers", b'{"services": ["listened"]}')
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        joined = json.load(answer)
    with broker.client() as client:
        assert client.worker(joined["id"]).listener == broker.urls["http"], "with its port"
    left = urllib.request.Request(f"{broker.urls['http']}/v1/workers/{joined['id']}", method="DELETE")
    left.add_header("Dragoman-Worker-Token", joined["token"])
    urllib.request.urlopen(left, timeout=30).close()

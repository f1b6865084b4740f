"""Limits and tenants through all doors: tasks, workers, clients, commands, HTTP, and a restart (R182 to R186)."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from limited_tasks import alone, fair

from dragoman import AsyncClient, Client, LocalBroker, using
from programs import Program, Programs, until

HERE = Path(__file__).parent
DECLARED = "declared by its workers"


@pytest.fixture(params=["native", "http"])
def broker(request: pytest.FixtureRequest, programs: Programs) -> Iterator[LocalBroker]:
    """A broker with a worker of limited tasks, and a client that tasks use, both in this dialect."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        url = broker.urls[request.param]
        with Client(url) as client, using(client):
            programs.environment["PYTHONPATH"] = str(HERE)
            worker = programs.dragoman("worker", "limited_tasks", "--connect", url, "--threads", "4")
            worker.prints("connected to")
            yield broker


def test_limits_of_a_task_hold_and_are_shown(broker: LocalBroker) -> None:
    with Client(broker.urls["native"]) as client:
        shown = client.service("alone").limits
        assert shown is not None
        assert (shown.max_running, shown.rate, shown.authors) == (1, None, {"max_running": DECLARED})
        shown = client.service("fair").limits
        assert shown is not None
        assert (shown.max_running_per_tenant, shown.rate) == (1, "1000/s")
        assert list(alone.map([0.02] * 8)) == [1] * 8
        client.limit("alone", max_running=4)
        seen = [job.result(timeout=60) for job in [alone.enqueue(0.3) for _ in range(8)]]
        assert 1 < max(seen) <= 4, "an operator beats the task"


def test_job_of_a_tenant_is_not_delayed_by_those_of_another(broker: LocalBroker) -> None:
    """R186: the 100 jobs of one were there first."""
    with Client(broker.urls["native"]) as client:
        client.pause("fair")
        flood = [fair.with_options(tenant="flood").enqueue() for _ in range(100)]
        other = fair.with_options(tenant="other").enqueue()
        assert client.job(other.id).tenant == "other"
        client.resume("fair")
        assert other.result(timeout=60) <= 3
        assert max(job.result(timeout=60) for job in flood) == 101


def test_calls_of_all_clients_have_a_tenant() -> None:
    """Also by a header of HTTP."""

    def tenants(client: Client[bytes]) -> list[str | None]:
        return sorted(each.tenant or "" for each in client.jobs(service="s"))

    async def call_and_wait(url: str, client: Client[bytes]) -> None:
        async with AsyncClient(url) as asynchronous:
            job = asynchronous.submit("s", b"", tenant="c", wait_for_worker=True)
            await asyncio.to_thread(until, lambda: "c" in tenants(client), "the call waits")
            job.cancel()

    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker, Client(broker.url) as client:
        client.pause("s")
        asyncio.run(call_and_wait(broker.url, client))
        with Client(broker.urls["http"]) as over_http:
            jobs = [
                each.submit("s", b"", tenant=tenant, wait_for_worker=True)
                for each, tenant in ((client, "a"), (over_http, "b"))
            ]
            by_hand = connection(broker)
            headers = {"Dragoman-Tenant": "dö".encode(), "Dragoman-Wait-For-Worker": "true"}
            by_hand.request("POST", "/v1/call/s", b"", headers)
            until(lambda: tenants(client) == ["a", "b", "dö"], "the calls wait")
            by_hand.close()
            for job in jobs:
                job.cancel()


def connection(broker: LocalBroker) -> http.client.HTTPConnection:
    place = urlsplit(broker.urls["http"])
    return http.client.HTTPConnection(place.hostname or "", place.port)


def test_tenant_that_is_no_name_is_refused_by_every_door() -> None:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        for url in broker.urls.values():
            with Client(url) as client:
                for tenant in ("", "ü" * 65, "a\nb"):
                    with pytest.raises(ValueError, match="1 to 128"):
                        client.call("s", tenant=tenant)
        by_hand = connection(broker)
        by_hand.request("POST", "/v1/call/s", b"", {"Dragoman-Tenant": ("ü" * 65).encode()})
        answer = by_hand.getresponse()
        assert (answer.status, json.loads(answer.read())["type"]) == (422, "urn:dragoman:invalid")
        by_hand.close()


def test_limits_of_an_operator_survive_the_death_of_the_broker(programs: Programs, tmp_path: Path) -> None:
    """R183."""
    folder = tmp_path / "data"

    def serve() -> tuple[Program, str]:
        broker = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", str(folder), "--strict")
        return broker, broker.prints(r"native +(tcp://\S+)")

    broker, url = serve()
    said = programs.run("limit", "mail", "--max-running", 3, "--rate", "50/s", "--connect", url)
    assert (said.ends(), said.out) == (
        0,
        "mail: max_running 3 (set by an operator), rate 50/s (set by an operator); waiting: 0, running: 0\n",
    )
    programs.run("limit", "mail", "--rate", "none", "--connect", url)
    broker.kill()
    _, url = serve()
    shown = programs.run("limit", "mail", "--connect", url)
    assert shown.out == "mail: max_running 3 (set by an operator); waiting: 0, running: 0\n"
    with Client(url) as client:
        view = client.limit("mail", max_running=0, max_running_per_tenant=2)
        assert view.limits is not None
        assert (view.limits.max_running, view.limits.max_running_per_tenant) == (None, 2)
        assert client.limit("mail", reset=True).limits is None
    asked = programs.run("limit", "mail", "--rate", "5/x", "--connect", url)
    assert asked.ends() != 0
    assert "rate '5/x' is not a rate; write a number from 1 to 1000000" in asked.err


def test_commands_take_a_tenant(programs: Programs) -> None:
    with LocalBroker() as broker, Client(broker.url) as client:
        enqueued = programs.run("enqueue", "mail", "hello", "--tenant", "acme", "--connect", broker.url)
        id = enqueued.out.strip()
        assert client.job(id).tenant == "acme"
        assert "tenant     acme" in programs.run("job", id, "--connect", broker.url).out
        worker = programs.dragoman("worker", "--exec", "cat", "--service", "mail", "--connect", broker.url)
        until(lambda: client.job(id).state == "ended", "the job is done")
        called = programs.run("call", "mail", "hello", "--tenant", "acme", "--connect", broker.url)
        assert (called.ends(), called.out) == (0, "hello")
        worker.terminate()

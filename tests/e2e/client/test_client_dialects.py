"""Clients of all dialects with callers, and the examples of their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from client_broker import OTHERS, Broker
from native_worker import HandWorker

from dragoman import Client, JobTimeout, Unsupported
from dragoman.sdk.address import AddressError
from programs import PATIENCE, Programs

# -------------------------------------------------------------------- other dialects


@pytest.mark.parametrize("dialect", [*OTHERS, "http"])
def test_every_dialect_with_callers_is_spoken(broker: Broker, worker: HandWorker, dialect: str) -> None:
    url = getattr(broker, dialect)
    with Client(url, connections=4) as client:
        assert client.call("echo", b"hello", timeout=10) == b"hello"
        payloads = [b"%d" % number for number in range(60)]
        assert list(client.map("echo", payloads, window=20)) == payloads
        jobs = [client.submit("echo", b"hold %d" % number) for number in range(3)]
        for _ in jobs:
            payload, token = worker.held.get(timeout=PATIENCE)
            worker.release(token, payload.upper())
        assert [job.result(PATIENCE) for job in jobs] == [b"HOLD 0", b"HOLD 1", b"HOLD 2"]
        assert client.call("echo", [1], codec="json") == [1]


@pytest.mark.parametrize("dialect", OTHERS)
def test_what_a_wire_has_no_word_for_is_unsupported(broker: Broker, worker: HandWorker, dialect: str) -> None:
    with Client(getattr(broker, dialect)) as client:
        for option in ({"priority": 9}, {"attempts": 2}, {"queue_timeout": 1.0}, {"wait_for_worker": True}):
            with pytest.raises(Unsupported, match=f"{dialect} does not support {next(iter(option))}"):
                client.call("echo", b"", **option)  # type: ignore[arg-type]
        job = client.submit("echo", b"hold")
        _, token = worker.held.get(timeout=PATIENCE)
        assert not job.cancel()
        for word in ("id", "progress"):
            with pytest.raises(Unsupported, match=word):
                getattr(job, word)
        if dialect != "majordomo":
            with pytest.raises(Unsupported, match="parts"):
                job.parts()
        worker.release(token, b"r")
        assert job.result(PATIENCE) == b"r"


def test_a_pool_opens_no_more_connections_than_it_may(broker: Broker, worker: HandWorker) -> None:
    with Client(broker.pingpong, connections=2) as client:
        jobs = [client.submit("echo", b"hold %d" % number) for number in range(5)]
        for number in range(5):
            payload, token = worker.held.get(timeout=PATIENCE)
            if number == 0:
                assert sum(worker.seen.values()) <= 2
            worker.release(token, payload)
        assert {job.result(PATIENCE) for job in jobs} == {b"hold %d" % number for number in range(5)}
        waiting = [client.submit("echo", b"hold") for _ in range(3)]
        held = [worker.held.get(timeout=PATIENCE) for _ in range(2)]
        cancelled = [job for job in waiting if job.cancel()]
        assert len(cancelled) == 1
        for _, token in held:
            worker.release(token, b"")
        for job in waiting:
            if job not in cancelled:
                assert job.result(PATIENCE) == b""


@pytest.mark.parametrize("dialect", ["pingpong", "majordomo"])
def test_a_timeout_where_the_wire_has_none_is_kept_here(broker: Broker, worker: HandWorker, dialect: str) -> None:
    with Client(getattr(broker, dialect), connections=1) as client:
        with pytest.raises(JobTimeout, match=r"no answer within 0\.2 s"):
            client.call("echo", b"hold", timeout=0.2)
        assert client.call("echo", b"next", timeout=10) == b"next"


def test_a_service_that_cannot_be_there_is_an_address_error(broker: Broker) -> None:
    with Client(broker.pingpong) as client, pytest.raises(AddressError, match="service=resize"):
        client.call("resize", b"")
    with pytest.raises(AddressError, match="has workers but no callers"):
        Client("controller+unix:///run/controller")


# -------------------------------------------------------------------- the page


def test_the_examples_of_the_page_do_what_they_say(
    programs: Programs, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    calling = re.split(r"^## ", page, flags=re.MULTILINE)[1]
    assert calling.startswith("Calling")
    examples = re.findall(r"^```python\n(.*?)^```$", calling, re.MULTILINE | re.DOTALL)
    assert len(examples) == 10
    python = ("dragoman.sdk.pickled_calls:run", "--service", "python", "--connect", broker.url)
    programs.dragoman("worker", *python).prints("connected")
    worker = HandWorker(broker.url, "resize", "describe", "render")
    try:
        for example in examples:
            names = {"big": b"big", "images": [b"1", b"22"], "scenes": [b"a", b"b"], "pictures": [b"1", b"2"]}
            exec(example.replace("tcp://127.0.0.1:7400", broker.url), names)
    finally:
        worker.stop()
    said = capsys.readouterr().out
    for each in ("b'big'", "{'picture': 42}", "b'scene 1'", "[32, 9]", "[1, 2]"):
        assert each in said

"""Health and metrics of a running broker, as a probe and a scraper read them."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from programs import DRAGOMAN, PATIENCE, Program, Programs, until


def serve(programs: Programs) -> tuple[Program, str, str]:
    """Start a broker. Returns its HTTP and native addresses."""
    broker = programs.start(DRAGOMAN, "serve", "http://127.0.0.1:0", "tcp://127.0.0.1:0", "--data", "memory")
    return broker, broker.prints(r"(http://\S+) +both"), broker.prints(r" (tcp://\S+) +both")


def get(url: str) -> tuple[int, str]:
    asked = Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
    try:
        with urlopen(asked, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def numbers(url: str) -> dict[tuple[str, str], float]:
    """Return the samples by name and, if any, service."""
    status, text = get(f"{url}/metrics")
    assert status == 200
    return {
        (each.name, each.labels.get("service", "")): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_a_running_broker_is_alive_and_ready_and_tells_its_numbers(programs: Programs) -> None:
    broker, http, _ = serve(programs)
    assert get(f"{http}/livez")[0] == 200
    assert get(f"{http}/readyz")[0] == 200
    status, text = get(f"{http}/v1/health")
    assert (status, json.loads(text)["ready"]) == (200, True)
    _, text = get(f"{http}/metrics")
    received = re.search(r'^dragoman_received_bytes_total\{dialect="http"\} (\d+)', text, re.MULTILINE)
    sent = re.search(r'^dragoman_sent_bytes_total\{dialect="http"\} (\d+)', text, re.MULTILINE)
    assert received is not None
    assert sent is not None
    assert (int(received[1]) > 300, int(sent[1]) > 300) == (True, True), "four requests, three answers"
    told = numbers(http)
    assert told["dragoman_ready", ""] == 1
    assert told["process_resident_memory_bytes", ""] > 0
    broker.terminate()
    assert broker.ends() == 0


def test_one_that_drains_is_alive_but_not_ready(programs: Programs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    broker, http, native = serve(programs)
    programs.dragoman("worker", "--exec", f"cat {gate}", "--service", "wait", "--connect", native)
    broker.prints("worker joined")
    call = programs.dragoman("call", "wait", "x", "--connect", native)
    until(lambda: numbers(http).get(("dragoman_jobs_running", "wait")) == 1, "the job runs")
    broker.terminate()
    until(lambda: get(f"{http}/readyz")[0] == 503, "it is not ready any more")
    assert "about to stop" in get(f"{http}/readyz")[1]
    assert get(f"{http}/livez")[0] == 200
    gate.write_text("done")
    assert (call.ends(), call.out.strip()) == (0, "done")
    assert broker.ends() == 0


def test_who_waits_for_an_outcome_is_told_how_it_stands_when_the_broker_stops(programs: Programs) -> None:
    """R128. They were cut off, and held up the end."""
    broker, http, _ = serve(programs)
    with urlopen(Request(f"{http}/v1/jobs?service=s", data=b"x"), timeout=PATIENCE) as answer:
        name = json.load(answer)["id"]
    place = urlsplit(http)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as caller:
        caller.sendall(f"GET /v1/jobs/{name}/result?wait=600 HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        for _ in range(2):  # then that has been read, too
            assert get(f"{http}/livez")[0] == 200
        broker.terminate()
        told = b"".join(iter(lambda: caller.recv(4096), b""))
    assert told.startswith(b"HTTP/1.1 202 ")
    assert b'"state":"waiting"' in told
    assert broker.ends() == 0


def test_health_is_answered_while_other_connections_take_every_place(programs: Programs) -> None:
    """R127. A bug: while there were 1,300 idle connections, /livez was reset for 9.6 s."""
    listener = "http://127.0.0.1:0?max_connections=1&idle_timeout=600"
    broker = programs.start(DRAGOMAN, "serve", listener, "--data", "memory")
    http = broker.prints(r"(http://\S+) +both")
    place = urlsplit(http)
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")  # it stays open
        assert get(f"{http}/metrics")[0] == 503
        for url in (f"{http}/livez", f"{http}/readyz", f"{http}/v1/health"):
            until(lambda url=url: get(url)[0] == 200, url)  # 503 if this process took more than a second to ask

"""A worker in shell and curl, written from the page about HTTP alone, with a whole broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from programs import DRAGOMAN, STRANGERS, Program, Programs, until

UPPER = ("tr", "a-z", "A-Z")
LEASE = 1.0


class Broker:
    """A `dragoman serve` that can be restarted at the same address."""

    def __init__(self, programs: Programs, client: httpx2.Client) -> None:
        self._programs = programs
        self._client = client
        self._folder = programs.folder / "data"
        self._serve(0)

    def restart(self) -> None:
        self._program.kill()
        self._serve(int(self.url.rpartition(":")[2]))

    def ask(self, method: str, path: str, **facts: Any) -> httpx2.Response:
        return self._client.request(method, self.url + path, **facts)

    def worker(self) -> dict[str, Any]:
        """Return the only worker, once it has joined."""
        (found,) = until(lambda: self.ask("GET", "/v1/workers").json()["workers"], "a worker")
        return dict(found)

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/v1/jobs/{name}").json())

    def enqueue(self, body: bytes) -> str:
        accepted = self.ask("POST", "/v1/jobs?service=upper&timeout=600", content=body)
        assert accepted.status_code == 202, accepted.text
        return str(accepted.json()["id"])

    def ended(self, name: str) -> dict[str, Any]:
        until(lambda: self.job(name)["state"] == "ended", "the job's end")
        return self.job(name)

    def _serve(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}"
        self._program = self._programs.start(DRAGOMAN, "serve", url, "--data", self._folder, "--strict")
        self.url = self._program.prints(r"(http://127\.0\.0\.1:\d+) +both")


@pytest.fixture
def broker(programs: Programs) -> Iterator[Broker]:
    with httpx2.Client(timeout=30, trust_env=False) as client:
        yield Broker(programs, client)


Start = Callable[..., Program]


@pytest.fixture
def start(programs: Programs, broker: Broker) -> Start:
    def start(*command: str) -> Program:
        worker = programs.start("sh", STRANGERS / "http_worker.sh", broker.url, "upper", LEASE, *command)
        worker.prints("joined")
        return worker

    return start


def gated_command(folder: Path) -> tuple[str, ...]:
    """Return a command that starts, and ends when the file `go` exists."""
    script = f"touch {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.05; done; tr a-z A-Z"
    return ("sh", "-c", script)


def test_shell_worker_is_short() -> None:
    assert len((STRANGERS / "http_worker.sh").read_text().splitlines()) <= 80


def test_shell_worker_answers_calls(broker: Broker, start: Start) -> None:
    start(*UPPER)
    for body in (b"bonjour", b"", bytes(range(128))):
        answer = broker.ask("POST", "/v1/call/upper", content=body)
        assert (answer.status_code, answer.content) == (200, body.upper())


def test_shell_worker_s_failure_is_told_in_its_words(broker: Broker, start: Start) -> None:
    start("sh", "-c", "echo it will not do >&2; exit 3")
    answer = broker.ask("POST", "/v1/call/upper", content=b"x")
    assert (answer.status_code, answer.json()["type"]) == (502, "urn:dragoman:failed")
    assert answer.json()["detail"].strip() == "it will not do"


def test_shell_worker_gives_signs_of_life_while_it_works(broker: Broker, start: Start, tmp_path: Path) -> None:
    start(*gated_command(tmp_path))
    name = broker.enqueue(b"slow")
    until((tmp_path / "begun").exists, "the job is under way")
    since = time.monotonic()
    while time.monotonic() < since + 2 * LEASE:  # without a sign it would be given up by then
        assert broker.worker()["running"] == [name]
    (tmp_path / "go").touch()
    assert broker.ended(name)["result"] == "SLOW"


def test_shell_worker_stops_a_job_that_nobody_waits_for(broker: Broker, start: Start, tmp_path: Path) -> None:
    worker = start(*gated_command(tmp_path))
    name = broker.enqueue(b"slow")
    until((tmp_path / "begun").exists, "the job is under way")
    assert broker.ask("DELETE", f"/v1/jobs/{name}").status_code == 200
    worker.prints("delivered .*: 409")
    (tmp_path / "go").touch()
    assert broker.ended(broker.enqueue(b"next"))["result"] == "NEXT"


def test_shell_worker_brings_its_result_to_a_broker_that_was_killed_meanwhile(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    """R107: the attempt goes on, and is the only one."""
    worker = start(*gated_command(tmp_path))
    name = broker.enqueue(b"slow")
    until((tmp_path / "begun").exists, "the job is under way")
    broker.restart()
    (tmp_path / "go").touch()
    worker.prints("delivered .*: 204")
    job = broker.ended(name)
    assert (job["outcome"], job["result"]) == ("done", "SLOW")
    assert [each["outcome"] for each in job["attempts"]] == ["done"]  # none ended otherwise
    worker.prints("joined", times=2)
    assert broker.ended(broker.enqueue(b"next"))["result"] == "NEXT"


def raw(broker: Broker, target: str, body: bytes = b"", headers: str = "") -> socket.socket:
    """Send a request without reading its response."""
    host, _, port = broker.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    connection.sendall(head.encode() + body)
    return connection


def test_call_whose_connection_breaks_is_withdrawn(broker: Broker) -> None:
    """R122, with real sockets."""
    joined = broker.ask("POST", "/v1/workers", json={"services": ["upper"]}).json()
    connection = raw(broker, "/v1/call/upper", b"x")
    until(lambda: broker.ask("GET", "/v1/services/upper").json()["waiting"] == 1, "the call waits")
    connection.close()
    until(lambda: broker.ask("GET", "/v1/services/upper").json()["ended"] == {"cancelled": 1}, "it is withdrawn")
    headers = {"Dragoman-Worker-Token": joined["token"]}
    assert broker.ask("POST", f"/v1/workers/{joined['id']}/next?wait=0", headers=headers).status_code == 204


def test_ask_whose_connection_breaks_takes_no_job(broker: Broker) -> None:
    """R124, with real sockets."""
    joined = broker.ask("POST", "/v1/workers", json={"services": ["upper"]}).json()
    path, headers = f"/v1/workers/{joined['id']}", {"Dragoman-Worker-Token": joined["token"]}
    connection = raw(broker, f"{path}/next", headers=f"Dragoman-Worker-Token: {joined['token']}\r\n")
    until(lambda: broker.worker()["state"] == "idle", "it asks")
    connection.close()
    until(lambda: broker.worker()["state"] == "detached", "it does not ask any more")
    name = broker.enqueue(b"x")
    assert broker.job(name)["state"] == "waiting"
    given = broker.ask("POST", f"{path}/next", headers=headers)
    assert (given.content, given.headers["dragoman-job"]) == (b"x", name)

"""Messages of `dragoman serve` to its supervisor, over systemd's socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import DRAGOMAN, PATIENCE, Program, Programs, until

URL = "pingpong+tcp://127.0.0.1:0?frontend=0"


class Supervisor:
    def __init__(self, place: str) -> None:
        self.place = place.replace("\0", "@")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(place)
        self._socket.settimeout(PATIENCE)

    def hears(self) -> dict[str, str]:
        """Return the next message."""
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def hears_until(self, word: str) -> list[dict[str, str]]:
        """Return all messages up to this one."""
        heard = [self.hears()]
        while word not in heard[-1]:
            heard.append(self.hears())
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    place = str(tmp_path / "notify") if request.param == "file" else f"\0dragoman-test-{os.getpid()}"
    supervisor = Supervisor(place)
    yield supervisor
    supervisor.close()


def serve(programs: Programs, supervisor: Supervisor, **environment: str) -> Program:
    words = (DRAGOMAN, "serve", URL, "--data", "memory")
    return programs.start(*words, NOTIFY_SOCKET=supervisor.place, **environment)


def test_it_says_when_it_is_ready_and_when_it_stops(programs: Programs, supervisor: Supervisor) -> None:
    broker = serve(programs, supervisor)
    first = supervisor.hears()
    assert (first["READY"], first["STATUS"]) == ("1", "serving: 0 jobs, 0 workers, 0 peers")
    assert "is listening" in broker.out, "ready means that peers may come"
    broker.terminate()
    assert supervisor.hears() == {"STOPPING": "1", "STATUS": "draining"}
    assert broker.ends() == 0


def test_signs_of_life_go_on_until_it_stops(programs: Programs, supervisor: Supervisor) -> None:
    broker = serve(programs, supervisor, WATCHDOG_USEC="40000")
    assert "READY" in supervisor.hears()
    for _ in range(3):
        assert supervisor.hears()["WATCHDOG"] == "1"
    broker.terminate()
    assert all("WATCHDOG" in each for each in supervisor.hears_until("STOPPING")[:-1])
    assert broker.ends() == 0


def test_who_is_not_the_watched_process_gives_no_signs(programs: Programs, supervisor: Supervisor) -> None:
    """A shell between the supervisor and us is what it watches then."""
    broker = serve(programs, supervisor, WATCHDOG_USEC="1000", WATCHDOG_PID="1")
    assert "READY" in supervisor.hears()
    broker.terminate()
    assert "STOPPING" in supervisor.hears()


@pytest.mark.parametrize("place", ["/nowhere/notify", "@nobody-is-there", "", "x" * 200])
def test_a_supervisor_that_does_not_listen_is_no_obstacle(programs: Programs, place: str) -> None:
    broker = programs.start(DRAGOMAN, "serve", URL, "--data", "memory", NOTIFY_SOCKET=place, WATCHDOG_USEC="1000")
    broker.prints("is listening")
    until(lambda: broker.process.poll() is None, "it runs")
    broker.signal(signal.SIGTERM)
    assert broker.ends() == 0
    assert "error" not in broker.err

"""Commands with an HTTP address, and the address in the environment."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest

from dragoman import Client
from programs import PATIENCE, Program, Programs, until

SERVICES = Path(__file__).parents[1] / "services.py"


class Setup:
    """A broker with a data folder and two listeners, whose ports stay the same after a restart."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self.native, self.http = (f"{scheme}://127.0.0.1:{_free_port()}" for scheme in ("tcp", "http"))
        self.broker = self.start()

    def start(self) -> Program:
        self.broker = self._programs.dragoman("serve", self.native, self.http, "--data", self._data, "--strict")
        self.broker.prints(r"http +(http://\S+)")
        return self.broker


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def setup(programs: Programs, tmp_path: Path) -> Setup:
    shutil.copy(SERVICES, tmp_path / "services.py")
    return Setup(programs, tmp_path)


def test_worker_and_call_take_an_http_address(programs: Programs, setup: Setup) -> None:
    worker = programs.dragoman(
        "worker", "services:worker", "--connect", setup.http, "--service", "upper", "--service", "raises"
    )
    worker.prints("connected to")
    called = programs.run("call", "upper", "hello", "--connect", setup.http, "--timeout", PATIENCE)
    assert (called.ends(), called.out) == (0, "HELLO")
    failed = programs.run("call", "raises", "it", "--connect", setup.http, "--timeout", PATIENCE)
    assert (failed.ends(), "Trouble: cannot do it" in failed.err) == (1, True)
    nobody = programs.run("call", "nobody", "--connect", setup.http)
    assert (nobody.ends(), "no worker offers 'nobody'" in nobody.err) == (1, True)
    worker.terminate()
    assert worker.ends() == 0


def test_a_program_works_by_http(programs: Programs, setup: Setup) -> None:
    worker = programs.dragoman("worker", "--exec", "tr a-z A-Z", "--service", "shout", "--connect", setup.http)
    worker.prints("connected to")
    called = programs.run("call", "shout", "hello", "--connect", setup.http, "--timeout", PATIENCE)
    assert (called.ends(), called.out) == (0, "HELLO")


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_the_address_in_the_environment_is_the_default(programs: Programs, setup: Setup, dialect: str) -> None:
    url = getattr(setup, dialect)
    worker = programs.dragoman("worker", "--exec", "cat", "--service", "echo", DRAGOMAN_URL=url)
    worker.prints(f"connected to {re.escape(url.rpartition('/')[2])}")
    called = programs.run("call", "echo", "hello", "--timeout", PATIENCE, DRAGOMAN_URL=url)
    assert (called.ends(), called.out) == (0, "hello")
    elsewhere = programs.run("call", "echo", "hello", "--connect", "tcp://127.0.0.1:1", DRAGOMAN_URL=url)
    assert elsewhere.ends() == 3  # what is said goes before it


def test_serve_is_not_confused_by_the_address_in_the_environment(programs: Programs) -> None:
    broker = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", "memory", DRAGOMAN_URL="http://127.0.0.1:7480")
    broker.prints(r"native +(tcp://\S+)")
    assert "DRAGOMAN_URL" not in broker.out + broker.err
    config = programs.run("config", DRAGOMAN_URL="http://127.0.0.1:7480")
    assert (config.ends(), "DRAGOMAN_URL" in config.out + config.err) == (0, False)


def test_the_result_of_a_background_job_is_taken_after_a_restart_of_the_broker(
    programs: Programs, setup: Setup, tmp_path: Path
) -> None:
    """kill -9 of the broker while the job runs in a worker that came by HTTP: it runs once, and its result counts."""
    worker = programs.dragoman("worker", "services:worker", "--connect", setup.http, "--service", "waits")
    worker.prints("connected to")
    with Client(setup.http) as client:
        job = client.enqueue("waits", b"go", attempts=1)
        worker.prints("working go")
    setup.broker.kill()
    setup.start()
    (tmp_path / "go").touch()
    with Client(setup.http) as client:
        assert client.result(job, timeout=PATIENCE) == b"go"
        assert len(client.job(job).attempts) == 1
        until(lambda: "http" in [view.dialect for view in client.workers()], "the worker has joined again")
        assert client.result(client.enqueue("waits", b"go"), timeout=PATIENCE) == b"go"
    worker.terminate()
    assert worker.ends() == 0


def test_a_second_signal_stops_at_once(programs: Programs, setup: Setup) -> None:
    worker = programs.dragoman("worker", "services:worker", "--connect", setup.http, "--service", "waits")
    worker.prints("connected to")
    with Client(setup.native) as client:
        job = client.submit("waits", b"never")
        worker.prints("working never")
        worker.terminate()
        worker.prints("stopping when the running jobs have ended")
        worker.terminate()
        assert worker.ends() == 0
        with pytest.raises(Exception, match="lost"):
            job.result(PATIENCE)

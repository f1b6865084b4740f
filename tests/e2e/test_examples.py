"""The programs in examples/, as people run them: a broker, workers and callers, each a process of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Client, JobFailed, JobTimeout
from programs import PATIENCE, Program, Programs

EXAMPLES = Path(__file__).parents[2] / "examples"


class House(Programs):
    """Programs that are started in an example's folder, as its header says."""

    url: str

    def serve(self, options: str = "", *flags: object) -> None:
        words = ("serve", f"tcp://127.0.0.1:0{options}", "--data", "memory", "--strict", *flags)
        self.url = self.dragoman(*words).prints(r"native +(tcp://\S+)")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.end_all()


# -------------------------------------------------------------------- a worker in C


@pytest.fixture(scope="session")
def primes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker in C, built with the command in its header."""
    source = EXAMPLES / "c_worker" / "primes.c"
    command = re.search(r"^ \* +(gcc .*?-o) primes (.*?) +\(", source.read_text(), re.MULTILINE)
    assert command is not None
    program = tmp_path_factory.mktemp("c") / "primes"
    words = [*command[1].split(), str(program), *command[2].split()]
    built = subprocess.run(words, cwd=source.parent, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, f"Debian: apt-get install gcc libc6-dev libzmq3-dev\n{built.stderr}"
    assert built.stderr == ""
    return program


def start(house: House, primes: Path) -> Program:
    worker = house.start(primes, house.url)
    worker.prints("connected")
    return worker


ENDLESS = b"1000000000000"


def test_the_c_worker_counts_primes_in_batches(house: House, primes: Path) -> None:
    house.serve()
    start(house, primes)
    with Client(house.url) as client:
        numbers = [10, 100, 1000, 2, 1, 0] * 20
        counted = client.map("primes", [str(number) for number in numbers], timeout=PATIENCE)
        assert list(counted) == [b"4", b"25", b"168", b"1", b"0", b"0"] * 20
        with pytest.raises(JobFailed) as failed:
            client.call("primes", b"many", timeout=PATIENCE)
        assert (failed.value.remote_type, failed.value.remote_message) == ("NotANumber", "many")
        with pytest.raises(JobFailed, match="NotANumber"):
            client.call("primes", b"1" * 10_000, timeout=PATIENCE)
    assert house.run("call", "primes", "1000000", "--connect", house.url).out == "78498"


def test_the_c_worker_stops_what_is_recalled(house: House, primes: Path) -> None:
    """One job runs and three lie ready in the worker; when all are recalled, it is there for others."""
    house.serve()
    start(house, primes)
    with Client(house.url) as client:
        jobs = [client.submit("primes", ENDLESS, timeout=0.5) for _ in range(6)]
        for job in jobs:
            with pytest.raises(JobTimeout):
                job.result(PATIENCE)
        assert client.call("primes", b"10", timeout=PATIENCE) == b"4"


def test_the_c_worker_lives_as_long_as_its_job_takes(house: House, primes: Path) -> None:
    house.serve("?lease=1.5&heartbeat=0.1")
    start(house, primes)
    with Client(house.url) as client:
        with pytest.raises(JobTimeout):  # not JobLost
            client.call("primes", ENDLESS, timeout=3)
        assert client.call("primes", b"10", timeout=PATIENCE) == b"4"


def test_the_c_worker_gives_back_what_it_has_not_begun(house: House, primes: Path) -> None:
    house.serve()
    first = start(house, primes)
    with Client(house.url) as client:
        running = client.submit("primes", ENDLESS)
        first.prints(f"counting primes up to {ENDLESS.decode()}")
        waiting = [client.submit("primes", b"100") for _ in range(6)]
        start(house, primes)
        first.terminate()
        assert [job.result(PATIENCE) for job in waiting] == [b"25"] * 6
        assert not running.done()
        running.cancel()
        assert first.ends() == 0
        assert running.cancelled()


def test_the_c_worker_ends_with_its_broker(house: House, primes: Path) -> None:
    house.serve("?lease=1&heartbeat=0.1")
    worker = start(house, primes)
    house.started[0].kill()
    assert worker.ends() == 1
    assert "the broker is silent" in worker.err

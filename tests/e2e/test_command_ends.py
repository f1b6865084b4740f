"""Exits of commands: output that cannot be written, interrupts, and invalid responses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from native_worker import HandWorker

from dragoman import Client, LocalBroker
from programs import DRAGOMAN, PATIENCE, Programs

ADDRESSES = ["native", "http"]


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


@pytest.mark.parametrize("dialect", ADDRESSES)
def test_output_that_cannot_be_written_ends_with_one_line(broker: LocalBroker, dialect: str) -> None:
    with Client(broker.urls["native"]) as client:
        client.enqueue("nobody")
    for words in (["jobs"], ["jobs", "--json"], ["services"], ["health"]):
        with open("/dev/full", "wb") as full:
            asked = subprocess.run(
                [DRAGOMAN, *words, "--connect", broker.urls[dialect]],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=PATIENCE,
                check=False,
            )
        assert (asked.returncode, asked.stderr) == (
            1,
            b"dragoman: cannot write to standard output: No space left on device\n",
        )


@pytest.mark.parametrize("dialect", ADDRESSES)
def test_a_reader_that_has_gone_ends_a_command_in_silence(broker: LocalBroker, dialect: str) -> None:
    with Client(broker.urls["native"]) as client:
        client.enqueue("nobody")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        asked = subprocess.run(
            [DRAGOMAN, "jobs", "--json", "--connect", broker.urls[dialect]],
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert asked.returncode == 1
    assert asked.stderr.count(b"\n") <= 1


@pytest.mark.parametrize("dialect", ADDRESSES)
@pytest.mark.parametrize("words", [["call", "echo", "hold"], ["enqueue", "echo", "hold", "--wait", "60"]])
def test_ctrl_c_ends_a_command_that_waits(
    programs: Programs, broker: LocalBroker, dialect: str, words: list[str]
) -> None:
    worker = HandWorker(broker.urls["native"].removeprefix("native+"), "echo")
    try:
        asked = programs.dragoman(*words, "--connect", broker.urls[dialect])
        worker.held.get(timeout=PATIENCE)  # the job runs, and nobody ends it
        asked.signal(signal.SIGINT)
        assert asked.ends() == 130
    finally:
        worker.stop()
    assert (asked.out, asked.err.count("\n") <= 1, "Traceback" in asked.err) == ("", True, False)


def test_an_answer_that_cannot_be_read_ends_with_one_line() -> None:
    """Answers are read as the views that they should be."""
    alive = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nalive\n"
    nonsense = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"jobs": 42'
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            stranger, _ = listening.accept()
            with stranger:
                for each in (alive, nonsense):
                    stranger.recv(65536)
                    stranger.sendall(each)

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        asked = subprocess.run(
            [DRAGOMAN, "jobs", "--connect", url], capture_output=True, timeout=PATIENCE, check=False, text=True
        )
        answering.join()
    assert (asked.returncode, asked.stdout, asked.stderr.count("\n")) == (1, "", 1)
    assert asked.stderr.startswith("dragoman: failed: invalid response from the broker: ")

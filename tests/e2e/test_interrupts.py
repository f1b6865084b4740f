"""Ctrl-C and output that cannot be written: a command ends with one line at most, and never with a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from terminals import TerminalProgram

from dragoman import Client, LocalBroker
from programs import DRAGOMAN, PATIENCE, Programs, until

WHILE_LOADING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "dragoman.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from dragoman.__main__ import main
main()
"""
# Python imports it when it starts, also in the fork server.
SITE = """
import os, signal, sys
if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIGINT)
"""
MASKED = """
import signal
def masked(payload):
    return repr(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])).encode()
"""
CONTINUES = r"job ([0-9a-f]{32}) continues; `dragoman result \1 --wait 60` prints its result"  # if it was acknowledged
FULL = "dragoman: cannot write to standard output: No space left on device\n"


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


def test_ctrl_c_while_modules_are_loaded_ends_without_a_traceback() -> None:
    """A bug: the first third of a second of every command."""
    done = subprocess.run([sys.executable, "-c", WHILE_LOADING, "--version"], capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_while_the_fork_server_starts_is_not_for_it(
    programs: Programs, broker: LocalBroker, tmp_path: Path
) -> None:
    """A bug: Ctrl-C while a worker starts ended its fork server with a traceback on the terminal."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    (tmp_path / "masks.py").write_text(MASKED)
    url = broker.urls["native"]
    words = ("worker", "masks:masked", "--processes", "1", "--service", "s", "--connect", url)
    worker = programs.dragoman(*words, PYTHONPATH=str(tmp_path / "site"))
    with Client(url) as client:
        blocked = client.result(client.enqueue("s"), timeout=PATIENCE)
    assert blocked == b"False", "a handler may be interrupted"
    worker.terminate()
    assert worker.ends() == 0
    assert "Traceback" not in worker.err


@pytest.mark.parametrize(
    "words", [["call", "nobody", "x"], ["result", "JOB", "--wait", "60"], ["enqueue", "s", "--wait", "60"]]
)
def test_ctrl_c_on_a_terminal_ends_a_command_that_waits(broker: LocalBroker, words: list[str]) -> None:
    with Client(broker.urls["native"]) as client:
        job = client.enqueue("s")
    join_worker(broker, "nobody")
    waits = TerminalProgram(*(job if word == "JOB" else word for word in words), "--connect", broker.urls["native"])
    wait_for_connection(broker)
    waits.interrupt()
    assert waits.ends() == 130
    shown = " ".join(waits.shown.replace("^C", "").split())
    assert shown == "" or (words[0] == "enqueue" and re.fullmatch(CONTINUES, shown))


def join_worker(broker: LocalBroker, service: str) -> None:
    """Let a worker join that never asks for a job: calls of its service wait."""
    request = Request(f"{broker.urls['http']}/v1/workers", json.dumps({"services": [service]}).encode())
    request.add_header("Content-Type", "application/json")
    urlopen(request, timeout=PATIENCE).close()


def wait_for_connection(broker: LocalBroker) -> None:
    """Wait until a command has connected to the broker: from then on it is past its start."""
    with Client(broker.urls["http"]) as client:
        until(lambda: client.health().peers >= 2, "the command is connected")


@pytest.mark.parametrize(
    "words", [["serve", "tcp://127.0.0.1:0", "--data", "memory"], ["config"], ["--help"], ["schedule", "--help"]]
)
def test_full_disk_ends_commands_without_a_broker_with_one_line(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([DRAGOMAN, *words], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    lines = [line for line in done.stderr.decode().splitlines(keepends=True) if not line.startswith("{")]
    assert (done.returncode, lines) == (1, [FULL])


def test_every_command_ends_with_one_line_if_its_output_cannot_be_written(broker: LocalBroker) -> None:
    url = broker.urls["native"]
    with Client(url) as client:
        jobs = [client.enqueue("s", b"x") for _ in range(3)]
    commands = [
        ["job", jobs[0]],
        ["job", jobs[0], "--payload"],
        ["why", jobs[0]],
        ["workers", "--json"],
        ["show-service", "s"],
        ["cancel", *jobs],
        ["pause", "s"],
        ["schedule", "set", "n", "s", "--every", "60"],
    ]
    expected = {" ".join(words): (1, FULL) for words in commands}
    expected["workers --json"] = (0, "")  # there are none: nothing is written
    found = {}
    for words in commands:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [DRAGOMAN, *words, "--connect", url], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False
            )
        found[" ".join(words)] = (done.returncode, done.stderr.decode())
    assert found == expected


def test_reader_that_stops_after_the_first_line_ends_a_list_in_silence(broker: LocalBroker) -> None:
    url = broker.urls["native"]
    with Client(url) as client:
        for _ in range(1_500):  # more than a pipe holds
            client.enqueue("s", b"x")
    reading, writing = os.pipe()
    with open(reading, "rb") as lines, open(writing, "wb") as pipe:
        listed = subprocess.Popen([DRAGOMAN, "jobs", "--json", "--connect", url], stdout=pipe, stderr=subprocess.PIPE)
        pipe.close()
        assert lines.readline().startswith(b'{"id":')
        lines.close()
        _, err = listed.communicate(timeout=PATIENCE)
    assert (listed.returncode, err) == (1, b"")

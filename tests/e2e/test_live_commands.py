"""Commands that show a broker while it runs, on a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from native_worker import HandWorker
from terminals import TerminalProgram

from dragoman import BrokerUnavailable, Client, DragomanError, LocalBroker, NotFound
from dragoman.cli.broker_http import BrokerHttp
from programs import DRAGOMAN, PATIENCE


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def worker(broker: LocalBroker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.urls["native"].removeprefix("native+"), "echo")
    yield worker
    worker.stop()


def test_tail_prints_events_until_it_is_interrupted(broker: LocalBroker, worker: HandWorker) -> None:
    tail = TerminalProgram("tail", "--all", "--service", "echo", "--connect", broker.urls["http"])
    with Client(broker.urls["native"]) as client:
        while "running" not in tail.shown:  # events before the stream is open are not repeated
            assert tail.process.poll() is None, tail.shown
            client.call("echo", b"hello", timeout=10)
    tail.shows("done       after ")
    assert "\x1b[36mrunning" in tail.raw
    tail.interrupt()
    assert tail.ends() == 130


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_errors_of_requests_have_the_broker_s_sentence(kind: str, tmp_path: Path) -> None:
    place = f"http+unix://{tmp_path}/http.sock" if kind == "unix" else "http://127.0.0.1:0"
    with LocalBroker(place) as broker:
        requests = BrokerHttp(place if kind == "unix" else broker.url)
        assert requests.get("/v1/health")["ready"] is True
        with pytest.raises(NotFound, match="no job has id 0000"):
            requests.get(f"/v1/jobs/{'0' * 32}")
        with pytest.raises(DragomanError, match="id"):
            requests.get("/v1/jobs/0")
        assert requests.post("/v1/services/ocr/pause", by="a test")["paused_by"] == "a test"
    with pytest.raises(BrokerUnavailable, match="no broker answers at"):
        requests.get("/v1/health")


def test_top_shows_services_and_pauses_one_by_keyboard(broker: LocalBroker, worker: HandWorker) -> None:
    top = TerminalProgram("top", "--connect", broker.urls["http"], COLUMNS="130", LINES="30")
    top.shows("WAIT P50/P95")
    top.shows("\necho  ")
    top.press("p")
    top.shows("Pause echo? 0 jobs wait and are not dispatched until it is resumed. [y/N]")
    top.press("y")
    top.shows("echo is paused.")
    with Client(broker.urls["native"]) as client:
        assert client.service("echo").paused_by == "dragoman top"
    top.press("w")
    top.shows("SILENT")
    top.press("q")
    assert top.ends() == 0
    assert top.raw.rstrip().endswith("\x1b[?1049l")  # the screen of before


def test_top_without_a_terminal_prints_one_frame_or_snapshots(broker: LocalBroker, worker: HandWorker) -> None:
    url = broker.urls["http"]
    shown = subprocess.run([DRAGOMAN, "top", "--connect", url], capture_output=True, timeout=PATIENCE, check=True)
    assert b" ready " in shown.stdout.splitlines()[0]
    stream = subprocess.Popen([DRAGOMAN, "top", "--json", "--connect", url], stdout=subprocess.PIPE)
    assert stream.stdout is not None
    with stream, stream.stdout:
        assert json.loads(stream.stdout.readline())["ready"] is True
        stream.send_signal(signal.SIGINT)
    assert stream.returncode == 130

"""Many large calls at once, with the defaults of broker, worker and client."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dragoman import Client, LocalBroker
from programs import HANDLERS, PATIENCE, Programs

LARGE = b"large567" * (1 << 20)  # 8 MiB
AT_ONCE = 20


@pytest.mark.parametrize("caller", ["native", "http"])
def test_large_calls_at_once_are_all_done(programs: Programs, tmp_path: Path, caller: str) -> None:
    """A bug: the broker sent the worker a job for each of its slots at once, and then closed its connection because too
    much was unsent. The jobs were lost, and the next connection ended like the first."""
    shutil.copy(HANDLERS, tmp_path / "handlers.py")
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        programs.environment |= {"DRAGOMAN_URL": broker.urls["native"]}
        worker = programs.dragoman("worker", "handlers:upper", "--concurrency", "32")
        broker.wait_for_workers(timeout=PATIENCE)
        with Client(broker.urls[caller], connections=AT_ONCE) as client:
            calls = [client.submit("default", LARGE, timeout=60) for _ in range(AT_ONCE)]
            assert all(each.result() == LARGE.upper() for each in calls)
        assert "connection lost" not in worker.err
        assert broker.workers_of("default") == 1

"""Ctrl-C while `enqueue --wait` waits: the id of the job is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from command_runner import command_runner
from dragoman.cli import enqueue

JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"


class InterruptedClient:
    """Its job was acknowledged, then Ctrl-C came."""

    def enqueue(self, service: str, payload: bytes, **options: Any) -> str:
        return JOB

    def result(self, job: str, timeout: float) -> bytes:
        raise KeyboardInterrupt


@contextmanager
def connected(url: str | None) -> Iterator[InterruptedClient]:
    yield InterruptedClient()


def test_ctrl_c_tells_how_to_get_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "connected", connected)
    done = command_runner().invoke(enqueue.enqueue, ["resize", "x", "--wait", "5"])
    assert done.exit_code == 130
    assert done.stderr == f"job {JOB} continues; `dragoman result {JOB} --wait 60` prints its result\n"

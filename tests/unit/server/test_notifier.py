"""Watchdog messages are sent by the event loop only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.server.sd_notify import SdNotifier


class Loop:
    """Calls back when the test requests it."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[..., None], *words: Any) -> None:
        self.calls.append((delay, lambda: call(*words)))

    def run_once(self) -> float:
        """Make the next call. Returns its delay."""
        delay, call = self.calls.pop(0)
        call()
        return delay


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(listening: socket.socket) -> list[str]:
    found: list[str] = []
    try:
        while True:
            found.append(listening.recv(4096).decode())
    except BlockingIOError:
        return found


def notifier(listening: socket.socket, **environment: str) -> SdNotifier:
    return SdNotifier({"NOTIFY_SOCKET": listening.getsockname(), **environment})


def test_a_sign_of_life_comes_with_a_turn_of_the_loop_at_half_of_the_time(listening: socket.socket) -> None:
    loop = Loop()
    status = iter(("fine", "still fine"))
    told = notifier(listening, WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
    told.ready(loop, lambda: next(status))  # type: ignore[arg-type]
    assert heard(listening) == ["READY=1\nSTATUS=fine"]
    assert loop.run_once() == 1.5
    assert heard(listening) == ["WATCHDOG=1\nSTATUS=still fine"]
    told.stopping()
    assert heard(listening) == ["STOPPING=1\nSTATUS=draining"]
    assert loop.run_once() == 1.5
    assert heard(listening) == ["WATCHDOG=1\nSTATUS=draining"]
    told.close()
    loop.run_once()
    assert (heard(listening), loop.calls) == ([], [])


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}]
)
def test_nobody_who_did_not_ask_gets_signs_of_life(listening: socket.socket, environment: dict[str, str]) -> None:
    loop = Loop()
    told = notifier(listening, **environment)
    told.ready(loop, lambda: "fine")  # type: ignore[arg-type]
    assert (heard(listening), loop.calls) == (["READY=1\nSTATUS=fine"], [])
    told.close()


def test_without_a_supervisor_nothing_is_said() -> None:
    loop = Loop()
    told = SdNotifier({"WATCHDOG_USEC": "1000000"})
    told.ready(loop, lambda: "fine")  # type: ignore[arg-type]
    told.stopping()
    told.close()
    assert loop.calls == []

"""Connecting to a place, and how long to wait before trying again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from dragoman.streams.sockets import tcp_target, tune

FULL_QUEUE = 0.01  # seconds until it is tried again
SPREAD = 0.5  # the part by which a waiting time is longer or shorter, by chance


class Tcp(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Unix(Protocol):
    @property
    def path(self) -> str: ...


async def connect(loop: asyncio.AbstractEventLoop, place: Tcp | Unix, timeout: float) -> socket.socket:
    """A connected, tuned socket. Raises OSError; a time-out is one too."""
    path = getattr(place, "path", None)
    if path is not None:
        target, address = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path
    else:
        target, address = tcp_target(place.host, place.port)  # type: ignore[union-attr]
    target.setblocking(False)
    try:
        async with asyncio.timeout(timeout):
            if path is not None:
                await _connect_unix(target, path)
            else:
                await loop.sock_connect(target, address)
        tune(target)
    except BaseException:
        target.close()
        raise
    return target


async def _connect_unix(target: socket.socket, path: str) -> None:
    """It is done at once, unless the queue of those who wait to be accepted is full: the kernel keeps no place in it,
    and an event loop that asks whether the socket is writable by now would take the answer for a connection."""
    while True:
        try:
            target.connect(path)
        except BlockingIOError:
            await asyncio.sleep(FULL_QUEUE)
        else:
            return


class BackOff:
    """Waiting times between attempts to connect: doubling, and spread so that no crowd comes at once (R23). None is
    longer than `cap`."""

    def __init__(self, uniform: Callable[[float, float], float], first: float = 0.1, cap: float = 30.0) -> None:
        self._uniform = uniform
        self._first = first
        self._cap = cap
        self._tries = 0

    def next(self) -> float:
        delay = min(self._cap / (1.0 + SPREAD), self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return delay * self._uniform(1.0 - SPREAD, 1.0 + SPREAD)

    def reset(self) -> None:
        """A connection came to life: the next trouble is a new one."""
        self._tries = 0

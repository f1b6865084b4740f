"""Opens outgoing connections, and computes the delay before the next try."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import Protocol

from dragoman.streams.sockets import tcp_target, tune, unix_socket

FULL_QUEUE = 0.01  # seconds until the next try while the listen queue of a Unix socket is full
SPREAD = 0.5  # random fraction added to or subtracted from a delay


class Tcp(Protocol):
    """Host and port to connect to."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Unix(Protocol):
    """Socket file to connect to."""

    @property
    def path(self) -> str: ...


async def look_up(loop: asyncio.AbstractEventLoop, host: str, timeout: float) -> str:
    """Return an IP address of a host. A name is looked up in another thread: the event loop does not wait for it.
    Raises OSError, also on a time-out."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        async with asyncio.timeout(timeout):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"cannot resolve {host!r} within {timeout:g} s") from None
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that is not a valid host name
        problem = getattr(error, "strerror", None) or error
        raise OSError(getattr(error, "errno", None) or 0, f"cannot resolve {host!r}: {problem}") from error
    return str(found[0][4][0])


async def connect(
    loop: asyncio.AbstractEventLoop,
    place: Tcp | Unix,
    timeout: float,
    opened: Callable[[socket.socket], None] = lambda _: None,
) -> socket.socket:
    """Return a connected, tuned socket. Raises OSError, also on a time-out. `opened` gets the socket before it
    connects: the other end may accept it before this function returns."""
    path = getattr(place, "path", None)
    if path is not None:
        target, address = unix_socket(), path
    else:
        target, address = tcp_target(place.host, place.port)  # type: ignore[union-attr]
    target.setblocking(False)
    opened(target)
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
    """Connect at once, or retry while the listen queue is full. The kernel then keeps no place in the queue for this
    socket, and an event loop that waits until it is writable would take it for connected."""
    while True:
        try:
            target.connect(path)
        except BlockingIOError:
            await asyncio.sleep(FULL_QUEUE)
        else:
            return


class BackOff:
    """Delays between attempts to connect: doubling up to `cap`, with jitter to keep clients from reconnecting all at
    once (R23)."""

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
        """Start again with the shortest delay, because a connection succeeded."""
        self._tries = 0

"""The client that tasks use: the one of a `with using(client)` block, else one of this process."""

from __future__ import annotations

import atexit
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dragoman.sdk.async_client import AsyncClient
    from dragoman.sdk.client import Client

    AnyClient = Client[Any] | AsyncClient[Any]

_chosen: ContextVar[AnyClient | None] = ContextVar("dragoman_client", default=None)
_everywhere: AnyClient | None = None  # the one of a `using_everywhere` block
_lock = threading.Lock()
_default: Client[Any] | None = None
_default_url: str | Sequence[str] | None = None
_process = 0  # in which `_default` was created; it does not survive a fork


@contextmanager
def using(client: AnyClient) -> Iterator[None]:
    """Let all tasks within this block, in this thread or asyncio task, use a client.

        with Client("tcp://broker:7400") as client, using(client):
            add.call(1, 2)

    An AsyncClient serves the methods that are awaited, such as `acall`; a Client serves all.
    """
    token = _chosen.set(client)
    try:
        yield
    finally:
        _chosen.reset(token)


@contextmanager
def using_everywhere(client: AnyClient) -> Iterator[None]:
    """Let all tasks of this process use a client within this block, also in threads that run already, such as those of
    a worker. For tests."""
    global _everywhere
    before, _everywhere = _everywhere, client
    try:
        yield
    finally:
        _everywhere = before


def current_client() -> Client[Any]:
    """Return the client for methods that block. Raises RuntimeError if the chosen one is an AsyncClient."""
    chosen = _chosen.get() or _everywhere
    if chosen is None:
        return default_client()
    if inspect.iscoroutinefunction(chosen.enqueue):
        raise RuntimeError("this block uses an AsyncClient: await acall, asubmit, aenqueue or amap, or use a Client")
    return cast("Client[Any]", chosen)


def current_async_client() -> AnyClient:
    """Return the client for methods that are awaited. Outside of a `using` block it is a Client with its own thread."""
    chosen = _chosen.get() or _everywhere
    return default_client() if chosen is None else chosen


def default_client() -> Client[Any]:
    """Return the client of this process, with the address of DRAGOMAN_URL. It is closed when the process ends."""
    global _default, _process
    if _default is not None and _process == os.getpid():
        return _default
    from dragoman.sdk.client import Client

    with _lock:
        if _default is None or _process != os.getpid():
            if _default is None:
                atexit.register(_close)
            _default, _process = Client(_default_url), os.getpid()
        return _default


def set_default_url(url: str | Sequence[str]) -> None:
    """Set the address of the client of this process, in place of DRAGOMAN_URL. Call it before the first job."""
    global _default_url
    _default_url = url


def _close() -> None:
    if _default is not None and _process == os.getpid():
        _default.close()

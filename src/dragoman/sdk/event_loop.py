"""Event loops of clients and workers: made, tested for what they can do, and stopped by signals."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# Ctrl-Break is what Windows has in place of SIGTERM, which no process receives there.
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGBREAK")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop loop if uvloop is installed, else an asyncio loop."""
    try:
        import uvloop
    except ImportError:
        return new_asyncio_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def new_asyncio_loop() -> asyncio.AbstractEventLoop:
    """Return an asyncio loop that watches sockets. The default loop of Windows does not; the one that does starts no
    programs."""
    return asyncio.SelectorEventLoop() if hasattr(asyncio, "ProactorEventLoop") else asyncio.new_event_loop()


def check_watches_sockets(loop: asyncio.AbstractEventLoop) -> None:
    """Raise RuntimeError for the default loop of Windows. `loop`: the loop of a user's program."""
    if type(loop).add_reader is asyncio.AbstractEventLoop.add_reader:
        raise RuntimeError(
            f"this event loop ({type(loop).__name__}, the default of Windows) cannot watch sockets; run the program "
            "with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop), or use dragoman.Client"
        )


@contextmanager
def stopped_by_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the loop at SIGTERM and SIGINT. Call it in the main thread."""
    numbers = [getattr(signal, name) for name in STOP_SIGNALS if hasattr(signal, name)]
    try:
        for each in numbers:
            loop.add_signal_handler(each, stop)
    except NotImplementedError:  # Windows
        with _noticed_by_waking(loop, stop, numbers):
            yield
    else:
        yield  # the loop removes its handlers when it is closed


@contextmanager
def _noticed_by_waking(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], numbers: list[signal.Signals]
) -> Iterator[None]:
    """As `stopped_by_signals`, for a loop without handlers of signals. Python calls a handler between two instructions,
    so the loop must wake up: a signal writes a byte to a socket that the loop watches."""
    woken, waking = socket.socketpair()
    woken.setblocking(False)
    waking.setblocking(False)

    def read() -> None:
        with suppress(BlockingIOError):
            woken.recv(4096)

    loop.add_reader(woken, read)
    before_fd = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    before = {each: signal.signal(each, lambda *_: loop.call_soon_threadsafe(stop)) for each in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        loop.remove_reader(woken)
        woken.close()
        waking.close()

"""A broker inside another program: on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.datadir import first_id_without_folder
from dragoman.server.event_loop import loop_factory
from dragoman.server.serve import SHUTDOWN_GRACE, Server
from dragoman.server.wiring import Listener

T = TypeVar("T")


class ThreadedServer:
    """A broker in a thread. It listens until `close`. Raises an error if it cannot listen."""

    def __init__(
        self, urls: Sequence[str], logger: logging.Logger, name: str, now: Callable[[], float] = clock.now
    ) -> None:
        self._config = Config(listen=tuple(urls), data="memory")
        self._logger = logger
        self._name = name
        self._now = now
        self._lock = threading.Lock()
        self._is_closed = False
        self._begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()  # done for any reason
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        try:
            self._begun.result()
        except BaseException:
            self._thread.join()
            raise
        atexit.register(self.close)  # otherwise a socket file would stay

    opened: list[tuple[Listener, list[tuple[str, str]]]]  # every listener, with (role, address) of its sockets
    server: Server  # use it on its own thread only

    def post(self, call: Callable[[], object]) -> bool:
        """Call this on the broker's thread. False if the thread has ended."""
        with self._lock:
            if self._is_closed:
                return False
            self._loop.call_soon_threadsafe(call)
            return True

    def run(self, call: Callable[[], T]) -> T:
        """Call this on the broker's thread and return its result. Raises RuntimeError once the broker is closed."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def act() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        if not self.post(act):
            raise RuntimeError(f"the {self._name} is closed")
        return future.result()

    def close(self) -> None:
        """Stop listening, end every connection and the thread. Running jobs end with an error."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._close_requested.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.close)

    # ---------------------------------------------------------------- the thread

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
                runner.run(self._run())
        except BaseException as error:
            if self._begun.done():
                self._logger.error("the %s has ended", self._name, exc_info=error)
            else:
                self._begun.set_exception(error)
        finally:
            self.ended.set_result(None)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._close_requested = asyncio.Event()
        log = StdlibLog(self._logger)
        server = self.server = Server(self._loop, self._config, first_id_without_folder(), log, self._now)
        try:
            self.opened = server.listen()
            self._begun.set_result(None)
            ways: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._close_requested.wait()), server.stopped]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not server.stopped.done():  # otherwise an invariant is broken, and the state of jobs is unknown
                server.broker.operator.close(self._now())
                server.broker.operator.abort(self._now())
                server.runner.run_once()
        finally:
            await server.close_http(SHUTDOWN_GRACE)
            server.host.close()
            with self._lock:
                self._is_closed = True  # the loop must not be used any more


class StdlibLog:
    """Writes the broker's log events, followed by their fields, to the standard library's `logging`."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            error = fields.pop("exception", None)
            facts = "".join(f" {name}={value!r}" for name, value in fields.items())
            self._logger.log(level, "%s%s", event, facts, exc_info=error if isinstance(error, BaseException) else None)

"""Running workers: whose life it is in which dialect, and what signals do to it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Protocol

from dragoman.sdk.controller_worker import ControllerWorker
from dragoman.sdk.peoples import Target
from dragoman.sdk.powerhose_worker import PowerhoseWorker
from dragoman.sdk.worker import Handler, WorkerProcess


class Life(Protocol):
    """One worker's life, from its first connection to its last."""

    async def live(self) -> int:
        """Serve until told to stop; then finish what is in hand, and leave. Returns the exit code."""

    def stop(self) -> None:
        """Once: finish what is in hand. Twice: do not wait for it."""


# Workers that dial their broker, and answer on that connection, are the rule; these are called back instead.
CALLED_BACK: Mapping[str, Callable[[Target, Handler], Life]] = {
    "controller": ControllerWorker,
    "powerhose": PowerhoseWorker,
}


def run_worker(target: Target, handler: Handler, concurrency: int = 1) -> int:
    """Blocks until told to stop, by a signal or the broker. Where workers cannot share a connection, each has one."""

    async def main() -> int:
        lives: list[Life]
        if target.dialect in CALLED_BACK:
            lives = [CALLED_BACK[target.dialect](target, handler) for _ in range(concurrency)]
        elif target.people.shares_connections:
            lives = [WorkerProcess(target, handler, concurrency)]
        else:
            lives = [WorkerProcess(target, handler) for _ in range(concurrency)]

        def stop() -> None:
            for each in lives:
                each.stop()

        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, stop)
        try:
            return max(await asyncio.gather(*(each.live() for each in lives)))
        finally:
            handler.stop()  # before the loop cancels what is left: whoever is cancelled forgets its processes

    try:
        return asyncio.run(main())
    finally:
        handler.stop()  # also if nobody has come to life

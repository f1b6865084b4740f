"""A broker with a store that enqueues background jobs itself and prints their acknowledgements, until it is killed.

Run as `store_driver.py FOLDER NUMBER`: restores the jobs, prints that, and then enqueues NUMBER jobs of several
principals, a few at a time. Its own worker finishes some of them, fails some, and never ends others.
"""

from __future__ import annotations

import asyncio
import sys
from math import inf
from pathlib import Path

from dragoman.core.effects import Effect, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.model import Attempt, Caller
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.rights import ALL_RIGHTS
from dragoman.server import clock
from dragoman.server.config import Config
from dragoman.server.datadir import DataFolder
from dragoman.server.event_loop import loop_factory
from dragoman.server.log import make_log
from dragoman.server.serve import Server

WISHES = JobOptions(durable=True, waits=True, attempts=3, retry_first=0.01)
AT_ONCE = 20
PRINCIPALS = ("local", "web", "batch")


def owner_of(server: Server, name: str) -> Owner:
    principal = server.broker.principals.named(name)
    principal.rights = ALL_RIGHTS
    return Owner(principal, is_limited=False)


class Driver(Caller):
    """A broker side of one caller and one worker."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(self, owner_of(server, PRINCIPALS[0]))
        self.server = server
        self.callers = [Caller(self, owner_of(server, name)) for name in PRINCIPALS]
        self.left = number
        self.under_way = 0
        self.is_over = asyncio.Event()

    def tick(self, now: float) -> float:
        return inf

    def execute(self, effect: Effect, now: float) -> None:
        if isinstance(effect, Acknowledge):
            print("accepted", effect.job.id.hex(), effect.job.principal.name, flush=True)
            self.under_way -= 1
            self.hand_in()
        elif isinstance(effect, SendJob):
            asyncio.get_running_loop().call_later(0.002, self.do, effect.attempt)

    def do(self, attempt: Attempt) -> None:
        kind = attempt.job.id[-1] % 4
        if kind == 0:
            self.server.broker.fail(attempt, "no", clock.now())
        elif kind < 3:
            self.server.broker.succeed(attempt, attempt.job.payload, clock.now())
        self.server.runner.run_once()

    def hand_in(self) -> None:
        while self.under_way < AT_ONCE and self.left:
            self.left -= 1
            self.under_way += 1
            caller = self.callers[self.left % len(self.callers)]
            self.server.broker.submit("s", b"payload" * 20, caller, WISHES, clock.now())
        self.server.runner.connections.call_before_write(lambda now: None)
        if not self.left and not self.under_way:
            self.is_over.set()


async def main(folder: Path, number: int) -> None:
    held = DataFolder(folder)
    config = Config(listen=("native+tcp://127.0.0.1:0",), strict=False)
    server = Server(asyncio.get_running_loop(), config, held.first_id, make_log("json", "info"), folder=folder)
    server.listen()
    while server.is_loading:
        await asyncio.sleep(0.001)
    for job in server.broker.jobs.values():
        print("here", job.id.hex(), job.spent, job.principal.name, flush=True)
    print("ready", flush=True)
    driver = Driver(server, number)
    worker = server.broker.join(driver, None, "driver", ("s",), WorkerProfile(capacity=50), clock.now(), driver.owner)
    assert worker is not None
    server.broker.idle(worker, clock.now())
    driver.hand_in()
    if number:
        await driver.is_over.wait()
    server.close()
    held.close()
    print("over", flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
        runner.run(main(Path(sys.argv[1]), int(sys.argv[2])))

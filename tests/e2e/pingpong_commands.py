"""Workers and calls by the commands, at a PingPong broker."""

from __future__ import annotations

import re

from programs import Broker, Program, Programs, until

MIB = 1 << 20


def worker_url(broker: Broker, options: str = "") -> str:
    return f"pingpong+{broker.workers}{'?' if options else ''}{options}"


def caller_url(broker: Broker, options: str = "") -> str:
    return f"pingpong+{broker.callers}{'?' if options else ''}{options}"


def start_worker(programs: Programs, broker: Broker, *words: object, options: str = "ping_every=0.2") -> Program:
    """Start a worker, and wait until it has joined."""
    known = broker.err.count("worker joined")
    worker = programs.dragoman("worker", "--concurrency", 1, *words, "--connect", worker_url(broker, options))
    until(lambda: broker.err.count("worker joined") > known or worker.process.poll() is not None, "it has joined")
    assert worker.process.poll() is None, worker.err
    return worker


def call(programs: Programs, broker: Broker, *words: object, given: bytes = b"") -> Program:
    """Run a call to its end."""
    return programs.run("call", "default", *words, "--connect", caller_url(broker), given=given)


def assert_rested_between_connections(worker: Program, rests: int) -> None:
    """Assert from the log that every connection but the first follows a delay."""
    lines = re.findall(r"\d\d:(\d\d):(\d\d)\.(\d{3})\S* .*(connected to|trying again in)", worker.err)
    assert [what for *_, what in lines][: 2 * rests + 1] == ["connected to", "trying again in"] * rests + [
        "connected to"
    ]
    times = [60 * int(minute) + int(second) + int(thousandth) / 1_000 for minute, second, thousandth, _ in lines]
    for number in range(1, 2 * rests, 2):
        rested = (times[number + 1] - times[number]) % 3_600
        assert rested > 0.04, worker.err  # the first rest is 50 ms at least

"""Module of a worker under test; a copy of this file is put beside it.

A sleep or a busy loop is the duration of a job; no test waits for another event by it.
"""

import asyncio
import os
import time

from dragoman import Context, Worker

worker = Worker("tcp://127.0.0.1:1")
naps = Worker("tcp://127.0.0.1:1")
kept = []


class Trouble(Exception):
    pass


@worker.service("upper")
def upper(payload: bytes) -> bytes:
    return payload.upper()


@worker.service("pid")
def pid(payload):
    return str(os.getpid())


@worker.service("raises")
def raises(payload):
    raise Trouble(f"cannot do {payload.decode()}")


@worker.service("dies")
def dies(payload):
    os._exit(7)


@worker.service("add", codec="json")
def add(numbers, ctx: Context):
    return {"sum": sum(numbers), "service": ctx.service, "id": ctx.job_id, "try": ctx.attempt, "left": ctx.deadline}


@worker.service("a set", codec="json")
def a_set(_):
    return {1, 2}


@worker.service("waits")
def waits(payload):
    """Wait until a file with the payload's name exists."""
    print("working", payload.decode(), os.getpid(), flush=True)
    while not os.path.exists(payload):
        time.sleep(0.005)
    return payload


@worker.service("stubborn")
def stubborn(payload):
    """Print the process id, and never end by itself."""
    print("stubborn", os.getpid(), flush=True)
    while True:
        time.sleep(60)


@worker.service("notices")
def notices(payload, ctx: Context):
    print("notices", flush=True)
    while not ctx.cancelled:
        time.sleep(0.005)
    print("noticed", flush=True)
    return b"too late"


@worker.service("spins")
def spins(payload):
    """Hold the interpreter lock for this many seconds, except where Python releases it."""
    end = time.monotonic() + float(payload)
    while time.monotonic() < end:
        sum(range(100_000))
    return b"span"


@worker.service("grows")
def grows(payload):
    """Keep this many MiB."""
    kept.append(b"x" * (int(payload) << 20))
    return str(os.getpid())


@worker.service("reports")
def reports(payload, ctx: Context):
    ctx.progress(1, 2, "half way")
    ctx.emit(b"first ")
    ctx.emit(b"second ")
    return b"third"


worker.offer_python_calls("python")


waiting: list[Context] = []
all_are_here = asyncio.Event()


@naps.service("meet", codec="json")
async def meet(count, ctx: Context):
    """End when this many jobs run at once."""
    waiting.append(ctx)
    if len(waiting) == count:
        all_are_here.set()
    await all_are_here.wait()
    return ctx.cancelled


@naps.service("sleepless", codec="json")
async def sleepless(_, ctx: Context):
    print("sleepless", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("put to bed, cancelled:", ctx.cancelled, flush=True)

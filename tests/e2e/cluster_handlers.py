"""Handlers of workers in a cluster."""

import time
from pathlib import Path
from uuid import uuid4

from dragoman import Context


def upper(payload: bytes) -> bytes:
    return payload.upper()


def reports(payload: bytes, ctx: Context) -> bytes:
    ctx.progress(1, 2, "half")
    return payload


def waits(payload: bytes, ctx: Context) -> bytes:
    """Write a line when it starts, and end when a file appears or the job is cancelled."""
    folder = Path(payload.decode())
    with open(folder / "started", "a") as file:
        file.write("x")
    deadline = time.monotonic() + 60.0
    while not (folder / "go").exists():
        if ctx.cancelled:
            (folder / "cancelled").touch()
            return b"cancelled"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return b"went"


def fails(payload: bytes) -> bytes:
    raise ValueError("it fails")


def writes(payload: bytes) -> bytes:
    """Write a line to a file for each run."""
    with open(payload.decode(), "a") as file:
        file.write("run\n")
    return payload


def counts(payload: bytes) -> bytes:
    """Return the number of calls that run at this moment, in all processes, once a file has appeared."""
    folder = Path(payload.decode())
    mine = folder / f"run-{uuid4().hex}"
    mine.touch()
    try:
        deadline = time.monotonic() + 60.0
        while not (folder / "go").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        most = 0
        for _ in range(5):
            most = max(most, len(list(folder.glob("run-*"))))
            time.sleep(0.01)
        return b"%d" % most
    finally:
        mine.unlink()

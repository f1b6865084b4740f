"""Handlers of workers under test; a copy of this file is put beside them.

A sleep is the duration of a job; no test waits for another event by it.
"""

import os
import time


def upper(payload):
    return payload.upper()


def slow(payload):
    """Sleep for as many seconds as the payload says."""
    print("working", payload.decode(), flush=True)
    time.sleep(float(payload.split()[0]))
    return b"slept " + payload


def waits(payload):
    """Wait until a file with the payload's name exists."""
    print("working", payload.decode(), flush=True)
    while not os.path.exists(payload):
        time.sleep(0.005)
    return payload.upper()


def meets(payload):
    """Wait until as many jobs as the payload says run at once."""
    open(f"here-{os.getpid()}", "w").close()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        here = [each for each in os.listdir() if each.startswith("here-")]
        if len(here) >= int(payload):
            return b"met %d" % len(here)
        time.sleep(0.01)
    return b"alone"


def raises(payload):
    if payload == b"bad":
        raise ValueError("this payload is bad")
    return b"good"


def always_raises(payload):
    raise ValueError("this payload is bad")


def raises_its_payload(payload):
    raise ValueError(payload.decode())


def dies(payload):
    if payload == b"die":
        os._exit(7)
    return b"alive"


def tells_its_pid(payload):
    print("pid", os.getpid(), flush=True)
    if payload == b"wait":
        time.sleep(60)
    return b"done"


def says(payload):
    return {b"none": None, b"text": "grüß", b"number": 5, b"word": b"PONG"}[payload]


def large(payload):
    """Return this many bytes, after a moment in which the worker can be stopped."""
    print("working", flush=True)
    time.sleep(0.5)
    return b"x" * int(payload)


not_callable = 5

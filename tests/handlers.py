"""What workers under test do with their jobs: a copy of this file is put beside them.

Where one sleeps, that is how long its job takes; nobody waits for something else by it.
"""

import os
import time


def upper(payload):
    return payload.upper()


def slow(payload):
    """As many seconds as its payload says."""
    print("working", payload.decode(), flush=True)
    time.sleep(float(payload.split()[0]))
    return b"slept " + payload


def waits(payload):
    """Until there is a file of its payload's name."""
    print("working", payload.decode(), flush=True)
    while not os.path.exists(payload):
        time.sleep(0.005)
    return payload.upper()


def meets(payload):
    """Until as many as its payload says are here at once."""
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
    """So many bytes, after a moment in which it can be told to stop."""
    print("working", flush=True)
    time.sleep(0.5)
    return b"x" * int(payload)


not_callable = 5

"""Handlers of the demo's workers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

SLOW = 60.0  # seconds that `hold` takes: its worker is killed long before
FAILING = 0.07  # fraction of the jobs of `work_or_fail` that fail: about 2 % of all jobs of `--stay`
PROBLEMS = ("page {number} cannot be read", "address {number} does not exist", "file {number} has no pictures")


def reverse(payload: bytes) -> bytes:
    """Return the payload backwards: the caller can tell a result from an echo of its own message."""
    return payload[::-1]


def hold(payload: bytes) -> bytes:
    """Take so long that the worker can be killed in the middle of the job."""
    time.sleep(SLOW)
    return payload[::-1]


def fail(payload: bytes) -> bytes:
    """Fail always, as a handler with a bug does."""
    raise ValueError(f"no tax rate for {payload.decode()!r}")


def work(payload: bytes) -> bytes:
    """Take the time that the payload names, in seconds, give or take a half."""
    time.sleep(float(payload) * random.uniform(0.5, 1.5))  # noqa: S311
    return payload


def work_or_fail(payload: bytes) -> bytes:
    """Work, and fail sometimes. For dialects in which a worker can report a failure and stay."""
    work(payload)
    if random.random() < FAILING:  # noqa: S311
        raise RuntimeError(random.choice(PROBLEMS).format(number=random.randint(1, 99)))  # noqa: S311
    return payload


Handler = Callable[[bytes], bytes]
HANDLERS: dict[str, Handler] = {each.__name__: each for each in (reverse, hold, fail, work, work_or_fail)}

"""Handlers of Dragoman's workers: `dragoman worker bench.queues.our_workers:on_a_loop` or `:elsewhere`."""

from __future__ import annotations

import os

from bench.queues.echo import WHO


async def on_a_loop(payload: bytes) -> bytes:
    """Return the payload, or the process id, from a coroutine."""
    return elsewhere(payload)


def elsewhere(payload: bytes) -> bytes:
    """Return the same from a thread or a child process."""
    return payload if payload != WHO.encode() else str(os.getpid()).encode()

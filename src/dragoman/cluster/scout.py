"""Finds logs that nobody owns, when a broker has started: nobody needs to be waited for.

A log is unowned if it is empty, if it ends with a release, or if an earlier run of this broker owned it last. Whatever
is found here only decides when to claim: the log decides who owns it.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.jetstream import ApiError, StoredMessage, StreamState
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.log_records import Claim, Commit, Release, read_record


def scout(io: LogIO, broker: str, unowned: Callable[[float], None], heard: Callable[[int], None], now: float) -> None:
    """Look at the end of a log. `heard` receives its last sequence. Nothing follows if it cannot be read now."""

    def inspected(found: StreamState | ApiError, then: float) -> None:
        if isinstance(found, ApiError):
            return
        heard(found.last)
        if not found.messages:
            unowned(then)
        else:
            io.get(found.last, read, then)

    def read(message: StoredMessage | ApiError | None, then: float) -> None:
        if not isinstance(message, StoredMessage):
            return
        try:
            record = read_record(message.payload)
        except Malformed:
            return  # the claim will say so
        if isinstance(record, Release) or (isinstance(record, Claim) and record.broker == broker):
            unowned(then)
        elif isinstance(record, Commit):
            io.get(record.epoch, read, then)

    io.inspect(inspected, now)

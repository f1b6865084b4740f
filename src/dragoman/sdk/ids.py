"""Ids: those that clients create (job ids in UUIDv7 layout, keys, session secrets), and those of handles."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.sdk.job_names import JobNames

POOL = 512  # ids whose random bytes are read at once: one system call per id would dominate the cost
WINDOW = 4_000  # numbers that a client uses from the lowest one on that has no answer; a broker allows 4,095
MOST_SHARDS = 250  # of a cluster
RANDOM_BYTES = 10  # random bytes of an id; six of their bits are fixed by the UUIDv7 layout

_DRAWN = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * POOL)
_LAYOUT = int.from_bytes(bytes.fromhex("70008000000000000000") * POOL)
_pool: deque[bytes] = deque()
_batch_byte = bytes((secrets.randbelow(MOST_SHARDS),))


def new_job_id() -> bytes:
    """Return 48 bits of milliseconds, then random bits except six fixed ones. May be called from any thread."""
    try:
        random_bytes = _pool.pop()
    except IndexError:
        random_bytes = _draw()
    return (time.time_ns() // 1_000_000).to_bytes(6) + random_bytes


def new_batch_id() -> bytes:
    """Return an id for a job or a group of a batch. All that this process makes end with the same byte: in a cluster,
    that byte is their shard, and a batch is accepted as a whole because it is in one shard."""
    return new_job_id()[:-1] + _batch_byte


class RequestNumber:
    """The id of one request: its copies have the same client and number, so that a broker carries it out once."""

    __slots__ = ("_first", "_millisecond", "_number", "_numbers")

    def __init__(self, numbers: RequestNumbers, number: int) -> None:
        self._numbers = numbers
        self._number = number
        self._millisecond = time.time_ns() // 1_000_000
        self._first = 0.0  # time at which it was sent first; 0: it was not sent

    def text(self) -> str:
        """Return the id for the next copy. It says how long ago the first one was sent."""
        numbers = self._numbers
        text = f"{numbers.client}/{self._number}/{numbers.oldest(self._number)}/{self._millisecond}"
        now = _clock()
        if self._first:
            return f"{text}/{max(0.001, now - self._first):.3f}"
        self._first = now
        return text

    def end(self) -> None:
        """There is an answer, or nobody waits for one: the request is not sent again."""
        self._numbers.end(self._number)


class RequestNumbers:
    """Numbers the requests of one client of the broker: of this process. May be used from any thread."""

    def __init__(self) -> None:
        self.client = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._last = 0
        self._open: dict[int, None] = {}  # numbers without an answer, the lowest first

    @property
    def has_room(self) -> bool:
        """True if the next number is not too far from the lowest one without an answer."""
        with self._lock:
            return not self._open or self._last - next(iter(self._open)) < WINDOW

    def next(self) -> RequestNumber:
        with self._lock:
            self._last += 1
            self._open[self._last] = None
            return RequestNumber(self, self._last)

    def oldest(self, number: int) -> int:
        """Return the lowest number without an answer. `number`: one of them."""
        with self._lock:
            return min(number, next(iter(self._open), number))

    def end(self, number: int) -> None:
        with self._lock:
            self._open.pop(number, None)


_numbers = RequestNumbers()


def new_request() -> RequestNumber:
    """Return the number of a new request. It must end, whether it has an answer or not."""
    global _numbers
    if not _numbers.has_room:  # a request has no answer for long: the others go on as those of another client
        _numbers = RequestNumbers()
    return _numbers.next()


def _clock() -> float:
    """Return seconds that count while the machine sleeps, too, so that no request seems younger than it is."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time()  # a clock that is set back makes a request younger; one that is set forward only refuses it


def ids_of(names: JobNames) -> tuple[str, ...]:
    """Return the ids of jobs and groups. Raises TypeError for a single one in place of a list."""
    if isinstance(names, str):
        raise TypeError(f"after={names!r}: must be a list of job ids or handles; write after=[{names!r}]")
    return tuple([name if isinstance(name, str) else name.id for name in names])


def new_session() -> str:
    return secrets.token_hex(16)


def _draw() -> bytes:
    drawn = (int.from_bytes(os.urandom(RANDOM_BYTES * POOL)) & _DRAWN | _LAYOUT).to_bytes(RANDOM_BYTES * POOL)
    pieces = [drawn[at : at + RANDOM_BYTES] for at in range(0, len(drawn), RANDOM_BYTES)]
    _pool.extend(pieces[1:])
    return pieces[0]


def _forked() -> None:
    """A child that used its parent's pool or numbers would make the same ids."""
    global _numbers
    _pool.clear()
    _numbers = RequestNumbers()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)

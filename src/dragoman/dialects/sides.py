"""The other sides of the conversations: a worker's and a client's, as whoever runs them sees it.

Each dialect's `peer.py` has one of each: pure, like its session. They say what they want done through a port, they are
told what came of it, and a `ticket` is what a job is called meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is told of a job besides its payload, as far as its wire says."""

    service: str = ""
    job_id: str = ""  # 32 hex digits
    attempt: int = 1
    timeout: float = inf  # seconds that it may run


NOTHING_SAID: Final = Assignment()


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's own account of why it could not do a job."""

    type: str  # such as ValueError
    message: str
    detail: str = ""  # such as a traceback


class WorkerPort(Protocol):
    """What a worker's conversation asks for."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def run(self, ticket: Hashable, payload: Frame, assignment: Assignment = NOTHING_SAID) -> None:
        """Start the job. `finished`, `failed` or `returned` follows with the same ticket."""

    def recall(self, ticket: Hashable, reason: str) -> None:
        """Nobody waits for this job any more: stop it if that can be done. What follows is as if it had not been."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and say `opened` again."""

    def leave(self, reason: str) -> None:
        """The broker wants us gone: stop for good."""


class WorkerSide(Protocol):
    """A worker's side, for as many connections as it takes."""

    @property
    def is_busy(self) -> bool:
        """Whether it has a job in hand, or a last word to say, that a stop should wait for."""

    def opened(self, now: float) -> None: ...

    def lost(self) -> None: ...

    def hear(self, message: Message | TooLarge, now: float) -> None: ...

    def finished(self, ticket: Hashable, result: Frame, now: float) -> None: ...

    def failed(self, ticket: Hashable, reason: str, now: float, failure: Failure | None = None) -> None:
        """`reason` is a sentence for wires that have room for no more."""

    def stop(self) -> None:
        """Take no more jobs, and say goodbye as far as the wire has a word for it."""

    def tick(self, now: float) -> float:
        """Do what is due, and say when to come again."""


class ClientPort(Protocol):
    """What a client's conversation asks for."""

    def send(self, frames: Sequence[Frame]) -> None: ...

    def answered(self, ticket: Hashable, result: Frame, reason: str | None, failure: Failure | None = None) -> None:
        """The result; or, with a reason, `<outcome>: <sentence>` instead of one, and what its worker says of it."""

    def reported(self, ticket: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        """What a running job says of itself, or a part of its result."""

    def reconnect(self, reason: str) -> None:
        """Close, open a new connection, and say `opened` again."""


class ClientSide(Protocol):
    """A client's side."""

    outlives_connections: bool  # whether calls go on when the connection is replaced by another
    patience: float  # how long to wait for an answer if the caller has not said
    hint: str  # what else there is to say about an answer that did not come

    def opened(self, now: float) -> None:
        """A connection is there: calls under way are asked for again."""

    def lost(self) -> None:
        """It is gone."""

    def call(self, ticket: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None: ...

    def hear(self, message: Message | TooLarge, now: float) -> None:
        """Raises Malformed if it cannot be understood."""

    def tick(self, now: float) -> float: ...

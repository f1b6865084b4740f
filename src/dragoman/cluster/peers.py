"""Other brokers of the cluster, as this one knows them.

live      its gossip arrives
silent    no gossip for `SILENT_AFTER`, or NATS is away: it gets no jobs; jobs that it has may still finish
gone      no gossip for `GONE_AFTER`, or another run of it is heard: its attempts are lost, its jobs have no caller
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from dragoman.cluster.gossip import Gossip
from dragoman.cluster.link import Link
from dragoman.core.model import Attempt, Caller, Token, Worker
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient, RemoteWorker

SILENT_AFTER: Final = 3.0  # seconds
GONE_AFTER: Final = 10.0


@final
class RemoteService(RemoteWorker):
    """The workers of one service at one other broker: one worker for the core."""

    __slots__ = ("in_flight", "peer", "service", "worker")

    def __init__(self, peer: Peer, service: str) -> None:
        self.peer = peer
        self.service = service
        self.worker: Worker | None = None  # None: it does not offer the service now
        self.in_flight: deque[int] = deque()  # packets with jobs that its free slots do not count yet: one entry a job


@final
class TakenJob(Caller):
    """A job of another broker that a worker of this one runs. For the core it is a caller."""

    __slots__ = ("is_leaving", "peer", "service", "token")

    def __init__(self, recipient: Recipient, owner: Owner, peer: Peer, token: Token, service: str) -> None:
        super().__init__(recipient, owner)
        self.peer = peer
        self.token = token
        self.service = service
        self.is_leaving = False  # if the connection of its worker ends, that goes on with it at another broker


@final
class Peer:
    """One run of another broker."""

    __slots__ = (
        "attempts",
        "freed",
        "gone_after",
        "gossip",
        "heard",
        "incarnation",
        "is_silent",
        "link",
        "name",
        "services",
        "tables",
        "taken",
    )

    def __init__(self, name: str, incarnation: str, link: Link, now: float, gone_after: float = GONE_AFTER) -> None:
        self.gone_after = gone_after
        self.name = name
        self.incarnation = incarnation
        self.link = link
        self.heard = now
        self.is_silent = False
        self.gossip: Gossip | None = None
        self.services: dict[str, RemoteService] = {}
        self.tables = ("", "")  # digests of this broker's access table and its own, when they were last compared
        self.attempts: dict[Token, Attempt] = {}  # sent to it, and without an answer
        self.taken: dict[Token, TakenJob] = {}  # its jobs that run here
        self.freed: dict[str, None] = {}  # services of its jobs that have ended here, since the last packet

    def due(self) -> float:
        """Time at which it becomes silent or gone."""
        gone_after = self.gone_after
        return self.heard + (gone_after if self.is_silent else min(SILENT_AFTER, 0.5 * gone_after))

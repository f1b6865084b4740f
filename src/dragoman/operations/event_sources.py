"""Events of the other brokers of a cluster, for the event streams of this one: an interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman.core.events import JobEvent, WorkerEvent
from dragoman.core.model import JobId
from dragoman.core.owners import Owner
from dragoman.operations.schemas import JobView

# The name of the broker, its events, and the number of events that it has left out.
ReceiveEvents = Callable[[str, list[JobEvent | WorkerEvent], int], None]
ReceiveState = Callable[[JobView | None], None]  # None: no broker has the job any more


class EventSources(Protocol):
    """The other brokers of the cluster. `name`: of this one."""

    @property
    def name(self) -> str: ...

    def watch(self, query: bytes, principal: str, receive: ReceiveEvents) -> object:
        """Receive events of all other brokers until `leave`. `query`: the filters of the stream, as JSON."""

    def follow(self, id: JobId, owner: Owner, receive: ReceiveEvents, show: ReceiveState) -> object:
        """Receive the events of a job at other brokers until `leave`. `show` is called with its state: at first, when
        its shard has moved, and from time to time."""

    def leave(self, watch: object) -> None:
        """End a watch, which `watch` or `follow` has returned."""

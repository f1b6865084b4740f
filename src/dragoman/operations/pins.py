"""Pins the predecessors of new jobs that are in other shards of the cluster, before the jobs are accepted.

The owner of a predecessor's shard is asked, by an operation that only brokers use. It checks that the predecessor
exists and that the principal may name it, as for one in the same shard, and keeps its outcome from then on
(`cluster/watched_jobs.py`). If the job is refused after all, the pin is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from dragoman.core.job_extras import JobInput
from dragoman.core.model import JobId, Payload
from dragoman.operations.operation import Operation
from dragoman.operations.passing_responders import PartResponder
from dragoman.operations.placement import Placement
from dragoman.operations.responders import PendingRequest, Responder
from dragoman.operations.schemas import ErrorView, JobIdText, OperationRequest, View


class PinRequest(OperationRequest):
    """A job or group that jobs of another shard come after. `shard`, `epoch`: of those jobs."""

    id: JobIdText
    shard: int
    epoch: int
    input: str


class PinView(View):
    """The predecessor is pinned, and that is committed."""


PIN: Final = Operation(
    name="pin",
    request=PinRequest,
    view=PinView,
    summary="Keep the outcome of a job for jobs of another shard.",
    right="call",
    target="none",
    method="POST",
    path="/v1/internal/pins",
    answered_by="predecessor owner",  # it may be repeated, so it counts as one that only reads
)

Wanted = Mapping[tuple[JobId, JobInput], int]  # predecessors, and the index of the first job that names each
Done = Callable[[ErrorView | None, int], None]  # the problem, and the index of the job that it is about


class Brokers(Protocol):
    """Passes operations to other brokers."""

    def ask(
        self, row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None: ...


class Pins:
    """The pins of one request."""

    def __init__(self, placement: Placement, shard: int, wanted: Wanted, done: Done) -> None:
        """`shard`: of the new jobs. `done` is called once, when all predecessors are pinned, or with a problem."""
        self._placement = placement
        self._shard = shard
        self._wanted = wanted
        self._done = done
        self._left = len(wanted)
        self._problem: tuple[ErrorView, int] | None = None

    def begin(self, brokers: Brokers, responder: Responder, now: float) -> None:
        for (id, input), index in self._wanted.items():
            epoch = self._placement.expect(self._shard, id)
            request = PinRequest(id=id.hex(), shard=self._shard, epoch=epoch, input=input.value)
            brokers.ask(PIN, request, b"", PartResponder(responder, partial(self._answered, index)), now)

    def _answered(self, index: int, found: View | ErrorView) -> None:
        if isinstance(found, ErrorView) and (self._problem is None or index < self._problem[1]):
            self._problem = found, index
        self._left -= 1
        if self._left:
            return
        problem, index = self._problem or (None, 0)
        self._done(problem, index)
        for id, _ in self._wanted:
            self._placement.settled(self._shard, id)

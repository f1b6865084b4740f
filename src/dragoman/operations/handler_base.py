"""Base class of the handlers of operations: the broker, its clocks, and responses that wait for a commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from dragoman.core.broker import Broker
from dragoman.core.eviction import is_fate_unknown
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.model import Job, Payload
from dragoman.core.names import is_name
from dragoman.operations.dashboard_handlers import DashboardHandlers
from dragoman.operations.job_list import JobList
from dragoman.operations.operation import Operation
from dragoman.operations.placement import Placement
from dragoman.operations.repeated_requests import answer_text, request_id_of
from dragoman.operations.responders import PendingRequest, Responder
from dragoman.operations.schemas import (
    Durability,
    ErrorKind,
    ErrorView,
    JobAct,
    OperationError,
    ScheduleAct,
    View,
)
from dragoman.operations.service_views import OtherBrokers
from dragoman.operations.targets import LOADING


class StoreAccess(Protocol):
    """Access to the store: writes values, reports commits, fetches payloads."""

    def note(self, key: str, value: str | None) -> None: ...

    def when_saved(
        self, call: Callable[[str | None], None], shards: Collection[int] | None = None, *, is_answer: bool = False
    ) -> None: ...

    def refuse_answers(self, problem: str) -> None: ...

    def wake(self) -> None: ...

    def fetch(
        self,
        job: Job,
        done: Callable[[Payload, Payload, Failure | None], None],
        lost: Callable[[str], None] | None = None,
    ) -> None: ...


class ClusterRouter(OtherBrokers, Protocol):
    """The cluster of the broker: passes operations to other brokers. `job_list`: the list of the jobs of this one."""

    @property
    def job_list(self) -> type[JobList]: ...

    def ask(
        self, row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        """Execute an operation at the brokers that its row names."""

    def leave(self, pending: PendingRequest, now: float) -> None:
        """Drop a request that other brokers execute, because its client has disconnected."""


class HandlerBase(DashboardHandlers):
    """State and methods that all handlers share."""

    def __init__(self, broker: Broker, store_access: StoreAccess, offset: Callable[[], float]) -> None:
        super().__init__()
        self.broker = broker
        self._store_access = store_access
        self.brokers: ClusterRouter | None = None  # the server sets it
        self.durability: Callable[[], Durability] = lambda: "memory"  # the server sets it
        self.placement: Placement | None = None  # of a broker in a cluster; the server sets it
        self._offset = offset  # seconds that the wall clock is ahead of `now`
        self._next_tick = -inf  # earliest time at which something may be due
        self._sweep_at = -inf  # time of the next look at reserved keys

    @property
    def is_loading(self) -> bool:
        """True while jobs of an earlier run are being loaded; until then, not every job is known."""
        return self.broker.job_registry.is_loading

    def _refuse_while_loading(self) -> None:
        """Raise OperationError while jobs are being loaded: in an incomplete list, jobs would seem lost."""
        if self.is_loading:
            raise OperationError("loading", LOADING)

    def _check_service_name(self, name: str) -> None:
        """Raise OperationError if no service can have this name."""
        most = self.broker.policy.max_service_bytes
        if not is_name(name, most):
            raise OperationError("invalid", f"service name {name!r}: 1 to {most} bytes of visible text are allowed")

    def _too_many_services(self) -> OperationError:
        known = len(self.broker.worker_registry.services)
        return OperationError("busy", f"{known} services are known, the maximum (max_services)")

    def _shards(self, *ids: bytes) -> tuple[int, ...]:
        """Return the shards of jobs and groups."""
        return tuple({self.broker.job_registry.pending_commits.shard(id): None for id in ids})

    def _answer_act(
        self,
        row: Operation[Any, Any],
        request: JobAct | ScheduleAct,
        view: View,
        responder: Responder,
        shards: Sequence[int],
        now: float,
    ) -> None:
        """Answer an act that is carried out once. Its answer is remembered in the first shard, in the same commit."""
        asked, remembered = request_id_of(request.request_id), self.broker.job_registry.remembered
        if asked is None:
            self._answer_when_saved(responder, lambda: view, shards)
            return
        accepted = remembered.accept(
            asked, responder.owner.principal.name, shards[0], now, answer_text(row, request, view)
        )
        undo = partial(remembered.undo, accepted, asked.number)
        self._answer_when_saved(responder, lambda: view, shards, undo)

    def _answer_when_saved(
        self,
        responder: Responder,
        view: Callable[[], View],
        shards: Collection[int],
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Answer when everything decided so far in these shards is committed. `undo`: called if it cannot be."""

        def saved(problem: str | None) -> None:
            if problem is None:
                responder.answer(view())
            else:
                if undo is not None:
                    undo()
                kind: ErrorKind = "partitioned" if is_fate_unknown(problem) else "store unavailable"
                responder.refuse(ErrorView(kind=kind, detail=problem))

        self._store_access.when_saved(saved, shards, is_answer=True)

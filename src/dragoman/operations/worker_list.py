"""The list of workers: filters, order, pages, counts; and the fleet, one letter for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dragoman.core.model import Worker
from dragoman.core.recipients import dialect_of
from dragoman.core.rights import SEE, Principal
from dragoman.core.states import BACKING_OFF, BUSY, DETACHED, DRAINING, GONE, IDLE, STARTING, STUCK, WorkerState
from dragoman.operations.list_schemas import FleetView, ListWorkersRequest, WorkerCountsView, WorkersView
from dragoman.operations.ranking import FirstRows, Rank, read_cursor
from dragoman.operations.schemas import WorkerView
from dragoman.operations.service_views import CLUSTER
from dragoman.operations.slices import RowReader
from dragoman.operations.views import worker_pace
from dragoman.operations.visibility import may_see_all, owns_worker, sees_worker
from dragoman.operations.worker_need import silent_share, worker_need

MOST_SQUARES: Final = 2_000

LETTERS: Final[dict[WorkerState, str]] = {
    IDLE: "i",
    BUSY: "b",
    STUCK: "s",
    DETACHED: "d",
    DRAINING: "r",
    STARTING: "t",
    BACKING_OFF: "o",
}
WORST_FIRST: Final = "sdortbi"  # of several workers in one square, the first of these letters is shown
PLACES: Final = {state: WORST_FIRST.index(letter) for state, letter in LETTERS.items()}


class WorkerList:
    """Makes one page of the list, in slices."""

    def __init__(
        self,
        workers: Iterable[Worker],
        request: ListWorkersRequest,
        principal: Principal,
        view: Callable[[Worker, Principal, float], WorkerView],
        now: float,
    ) -> None:
        """`view` makes the view of a worker for a principal. Raises OperationError if `after` is not valid."""
        self._workers = RowReader(enumerate(workers))
        self._request = request
        self._view = view
        self._principal = principal
        self._sort = worker_order(request)
        self._cursor = read_cursor(request.after, now, has_text_keys=self._sort == "name", has_numbers=True)
        self._rows: FirstRows[Worker] = FirstRows(request.limit, self._cursor)
        self._text = request.text.casefold() if request.text is not None else None
        self._is_first = True
        self._page: RowReader[Worker] | None = None  # rows of the page, once all workers have been looked at
        self._next: str | None = None  # cursor of the next page
        self._views: list[WorkerView] = []
        self._states: dict[str, int] = {}
        self._dialects: dict[str, int] = {}

    def step(self, now: float) -> WorkersView | None:
        """Look at the next workers, then make the next views. Returns None if there are more."""
        if self._page is None:
            is_first, self._is_first = self._is_first, False
            if not self._read() or not is_first:  # else the views would be a second slice
                return None
        assert self._page is not None
        for worker in self._page.slice():
            self._views.append(self._view(worker, self._principal, now))
        if not self._page.is_over:
            return None
        sees_all = may_see_all(self._principal)
        counts = WorkerCountsView(state=self._states, dialect=self._dialects) if sees_all else None
        return WorkersView(workers=self._views, counts=counts, after=self._next)

    def _read(self) -> bool:
        """Look at the next workers. Returns whether these were the last: then the page is known."""
        sees_all = may_see_all(self._principal)
        for position, worker in self._workers.slice():
            if worker.state is GONE:  # it left between two slices
                continue
            if sees_all or sees_worker(self._principal, worker):
                state, dialect = worker.state._value_, dialect_of(worker.recipient)
                if dialect == CLUSTER and self._request.dialect != CLUSTER:
                    continue  # it is listed by its own broker
                self._states[state] = self._states.get(state, 0) + 1
                self._dialects[dialect] = self._dialects.get(dialect, 0) + 1
                if self._matches(worker, state, dialect):
                    self._rows.offer(self._rank(worker, position), worker)
        if not self._workers.is_over:
            return False
        page, self._next = self._rows.page()
        self._page = RowReader(page)
        return True

    def _matches(self, worker: Worker, state: str, dialect: str) -> bool:
        request = self._request
        if request.state is not None and state != request.state:
            return False
        if request.dialect is not None and dialect != request.dialect:
            return False
        if request.service is None and self._text is None:
            return True
        services = self._visible_services(worker)
        if request.service is not None and request.service not in services:
            return False
        text = self._text
        return (
            text is None
            or text in worker.name.casefold()
            or any(text in each.casefold() for each in services)
            or str(worker.id).endswith(text)
        )

    def _visible_services(self, worker: Worker) -> list[str]:
        principal = self._principal
        names = [each.name for each in worker.services]
        if may_see_all(principal) or owns_worker(principal, worker):
            return names
        return [each for each in names if principal.may(SEE, each)]

    def _rank(self, worker: Worker, position: int) -> Rank:
        at = self._cursor.at
        match self._sort:
            case "need":
                return -worker_need(worker, at), worker.id
            case "slow":
                return -(worker_pace(worker) or 0.0), worker.id
            case "silent":
                return -silent_share(worker, at), worker.id
            case "name":
                return worker.name, worker.id
            case "number":
                return 0.0, worker.id
        return 0.0, position


def worker_order(request: ListWorkersRequest) -> str:
    """Return the order of the list: a field, or `joined`: as the workers joined."""
    is_paged = request.limit is not None or request.after is not None
    return request.sort or ("number" if is_paged else "joined")


class Fleet:
    """Makes the view of the fleet, in slices."""

    def __init__(self, workers: Iterable[Worker], principal: Principal) -> None:
        self._workers = RowReader(workers)
        self._principal = principal
        self._seen: list[tuple[int, int]] = []  # place in WORST_FIRST and number of each worker

    def step(self, now: float) -> FleetView | None:
        """Look at the next workers. Returns None if there are more."""
        for worker in self._workers.slice():
            is_own = dialect_of(worker.recipient) != CLUSTER
            if is_own and worker.state is not GONE and sees_worker(self._principal, worker):
                self._seen.append((PLACES[worker.state], worker.id))
        if not self._workers.is_over:
            return None
        each = max(1, -(-len(self._seen) // MOST_SQUARES))
        squares = [min(self._seen[start : start + each]) for start in range(0, len(self._seen), each)]
        return FleetView(
            each=each,
            states="".join([WORST_FIRST[place] for place, _ in squares]),
            first=self._seen[0][1] if self._seen else None,
            ids=[id for _, id in squares],
        )

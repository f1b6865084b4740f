"""Operations with which brokers of a cluster reserve the keys of a batch, and find the jobs of reserved keys."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from dragoman.core.bulk import NewJob
from dragoman.core.kept_jobs import digest
from dragoman.core.model import JobId
from dragoman.operations.operation import Operation
from dragoman.operations.passing_responders import PartResponder
from dragoman.operations.pins import Brokers
from dragoman.operations.placement import Placement
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, JobIdText, OperationError, OperationRequest, View


class KeyItem(Struct):
    """The key of a job of a batch."""

    service: str
    key: str
    id: JobIdText
    digest: str


class ReserveRequest(OperationRequest):
    """Keys of one shard, for jobs of another one. `epoch`: of the shard of the jobs. `request`: id of this request.
    `principal`: of the jobs. `is_undone`: its jobs were not accepted, and the keys are not reserved any more.
    `is_retry`: the jobs have had their keys before, so that another payload is no conflict."""

    home: int
    shard: int
    epoch: int
    request: str
    items: list[KeyItem]
    principal: str
    is_undone: bool = False
    is_retry: bool = False


class ReserveView(View):
    """For each key, the job that has it already; empty: it is reserved. `conflict`: the first key that another job has
    with another payload; then nothing is reserved."""

    taken: tuple[str, ...] = ()
    conflict: int | None = None
    detail: str = ""


class HolderItem(Struct):
    """A reserved key."""

    principal: str
    service: str
    key: str
    id: JobIdText


class HoldersRequest(OperationRequest):
    """Reserved keys whose jobs are in one shard."""

    shard: int
    items: list[HolderItem]


class HolderView(Struct):
    """The latest job with a key in a shard. `held`: a submit returns it; `kept`: it has given the key up; `free`: there
    is none, and the job of the reservation never will be."""

    state: Literal["held", "kept", "free"]
    id: str = ""
    digest: str = ""


class HoldersView(View):
    epoch: int
    holders: list[HolderView]


RESERVE: Final = Operation(
    name="reserve",
    request=ReserveRequest,
    view=ReserveView,
    summary="Reserve keys of a shard for jobs of another one.",
    right="call",
    target="none",
    method="POST",
    path="/v1/internal/keys",
    answered_by="named shard",  # it may be repeated, so it counts as one that only reads
)
HOLDERS: Final = Operation(
    name="holders",
    request=HoldersRequest,
    view=HoldersView,
    summary="Find the jobs of reserved keys.",
    right="see",
    target="none",
    method="POST",
    path="/v1/internal/holders",
    answered_by="named shard",
)


def keys_of(orders: Sequence[NewJob]) -> dict[int, KeyItem]:
    """Return the keys of the jobs of a batch, by index."""
    return {
        index: KeyItem(order.service, order.key, order.id.hex(), digest(order.payload).hex())
        for index, order in enumerate(orders)
        if order.key is not None
    }


def _id(item: KeyItem) -> JobId:
    return JobId(bytes.fromhex(item.id))


Done = Callable[[ErrorView | None, int | None, dict[int, str]], None]


class Reserving:
    """Reserves the keys of one batch, or of one retry. `done`: a problem, and the index of its job if it is about one;
    and the jobs that have keys of the batch already, by index."""

    def __init__(
        self,
        placement: Placement,
        shard: int,
        principal: str,
        items: dict[int, KeyItem],
        responder: Responder,
        *,
        is_retry: bool = False,
    ) -> None:
        """`principal`: of the jobs. `items`: those that have keys, by index."""
        self._placement = placement
        self._shard = shard
        self._responder = responder
        self._epoch = placement.epoch(shard)  # the keys are reserved for jobs of this epoch
        self._id = placement.request_id()
        self._by_home: dict[int, list[int]] = {}  # indexes of the jobs, by the shard of their key
        self._principal = principal
        self._items = items
        self._is_retry = is_retry
        self._left = 0
        self._problem: tuple[ErrorView, int | None] | None = None
        self._taken: dict[int, str] = {}
        for index, item in items.items():
            home = placement.key_shard(principal, item.service, item.key)
            self._by_home.setdefault(home, []).append(index)

    def begin(self, brokers: Brokers, done: Done, now: float) -> None:
        self._left = len(self._by_home)
        for home, indexes in self._by_home.items():
            answered = partial(self._answered, indexes, done)
            brokers.ask(RESERVE, self._request(home, indexes), b"", PartResponder(self._responder, answered), now)

    def check(self) -> None:
        """Raise OperationError if the shard of the batch has moved since: another owner may have given keys away."""
        reason = self._placement.elsewhere(self._shard)
        if reason is None and self._placement.epoch(self._shard) != self._epoch:
            reason = f"shard {self._shard} of the cluster has moved; retry in a moment"
        if reason is not None:
            raise OperationError("partitioned", reason)

    def settle(self) -> None:
        """It is decided about the batch. Its jobs have the keys of their own shard without reservations."""
        for index in self._by_home.get(self._shard, ()):
            item = self._items[index]
            if not self._placement.keys.is_accepting(_id(item)):  # else the same batch was sent twice
                self._placement.keys.drop((self._principal, item.service, item.key), _id(item))

    def undo(self, brokers: Brokers, jobs: Container[JobId], now: float) -> None:
        """Give the keys up: the batch was not accepted. `jobs`: all of this broker, in case the same batch was sent
        twice. What gets lost here is found when a key is used."""
        for home, indexes in self._by_home.items():
            ids = [(index, _id(self._items[index])) for index in indexes]
            free = [index for index, id in ids if id not in jobs and not self._placement.keys.is_accepting(id)]
            if free and home != self._shard:
                request = self._request(home, free, is_undone=True)
                brokers.ask(RESERVE, request, b"", PartResponder(self._responder, lambda view: None), now)

    def _request(self, home: int, indexes: list[int], is_undone: bool = False) -> ReserveRequest:
        return ReserveRequest(
            home=home,
            shard=self._shard,
            epoch=self._epoch,
            request=self._id,
            items=[self._items[index] for index in indexes],
            principal=self._principal,
            is_undone=is_undone,
            is_retry=self._is_retry,
        )

    def _answered(self, indexes: list[int], done: Done, view: View) -> None:
        if isinstance(view, ErrorView):
            self._problem = self._problem or (view, None)
        elif isinstance(view, ReserveView) and view.conflict is not None:
            index = indexes[view.conflict]
            if self._problem is None or self._problem[1] is None or index < self._problem[1]:
                self._problem = ErrorView(kind="key reused", detail=view.detail), index
        elif isinstance(view, ReserveView):
            self._taken |= {index: id for index, id in zip(indexes, view.taken, strict=True) if id}
        self._left -= 1
        if not self._left:
            problem, at = self._problem or (None, None)
            done(problem, at, self._taken)

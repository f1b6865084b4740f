"""Handles keys that are reserved for jobs of other shards of the cluster (`cluster/reservations.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.job_keys import Place, holds_key
from dragoman.core.model import Job, JobId, Payload
from dragoman.operations.limit_handlers import LimitHandlers
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.passing_responders import PartResponder
from dragoman.operations.placement import Placement, Reserved
from dragoman.operations.reserved_keys import (
    HOLDERS,
    HolderItem,
    HoldersRequest,
    HoldersView,
    HolderView,
    KeyItem,
    ReserveRequest,
    ReserveView,
)
from dragoman.operations.responders import OwnResponder, Responder
from dragoman.operations.schemas import ErrorView, JobRef, OperationError, View
from dragoman.operations.table import JOB

SWEEP_EVERY: Final = 10.0  # seconds between two looks for reservations of jobs that are gone
SWEPT_AT_ONCE: Final = 1_000  # reservations
RETRY: Final = "another request with this key is being decided; retry in a moment"

Holders = Mapping[Place, HolderView]


class KeyHandlers(LimitHandlers):
    """The operations `reserve` and `holders`, which only brokers use; and questions about reserved keys."""

    def reserve(self, request: ReserveRequest, payload: Payload, responder: Responder, now: float) -> None:
        """Reserve keys for jobs of another shard: all of them, or none."""
        placement = self._placement()
        places = [(request.principal, item.service, item.key) for item in request.items]
        if request.is_undone:
            for place in places:
                placement.keys.undo(place, request.request)
            self._answer_when_saved(responder, ReserveView, (request.home,))
            return
        unclear: dict[Place, Reserved] = {}
        for place, item in zip(places, request.items, strict=True):
            reserved = placement.keys.find(place)
            if reserved is not None and reserved.id.hex() != item.id and self._holder(place) is None:
                unclear[place] = reserved

        def known(holders: Holders | ErrorView) -> None:
            try:
                if isinstance(holders, ErrorView):
                    raise OperationError(holders.kind, holders.detail)
                reason = placement.elsewhere(request.home)
                if reason is not None:
                    raise OperationError("partitioned", reason)
                for place, each in unclear.items():
                    if placement.keys.find(place) is not each:
                        raise OperationError("partitioned", RETRY)  # another request was faster
                view = self._reserved(placement, request, places, holders)
            except OperationError as error:
                responder.refuse(error.problem)
            else:
                self._answer_when_saved(responder, lambda: view, (request.home,))

        self._find_holders(unclear, responder, known, now)

    def _reserved(
        self, placement: Placement, request: ReserveRequest, places: list[Place], holders: Holders
    ) -> ReserveView:
        """Reserve the keys that are free, unless one has been used with another payload."""
        taken: list[str] = []
        free: dict[Place, KeyItem] = {}
        for index, (place, item) in enumerate(zip(places, request.items, strict=True)):
            found = self._taken(placement, place, item, holders)
            if place in free or found is None:
                free.setdefault(place, item)  # a second job of the batch with the same key joins the first
                taken.append("")
                continue
            id, digest = found
            if digest != item.digest and not request.is_retry:
                how = "a call" if digest == "call" else "another payload"
                return ReserveView(conflict=index, detail=f"'{item.key}' came with {how} before")
            taken.append(id)
        for place in free:
            reserved = placement.keys.find(place)
            if reserved is not None and reserved.shard == request.shard and reserved.epoch > request.epoch:
                raise OperationError("partitioned", RETRY)  # its sender has lost the shard, and does not know it yet
        for place, item in free.items():
            job = JobId(bytes.fromhex(item.id))
            placement.keys.reserve(place, request.home, job, request.shard, request.epoch, item.digest, request.request)
        return ReserveView(taken=tuple(taken))

    def _taken(self, placement: Placement, place: Place, item: KeyItem, holders: Holders) -> tuple[str, str] | None:
        """Return the id and the digest of another job that holds a key."""
        job = self._holder(place)
        if job is not None:
            digest = job.digest.hex() if job.options.durable else "call"
            return (job.id.hex(), digest) if job.id.hex() != item.id else None
        reserved = placement.keys.find(place)
        if reserved is None or reserved.id.hex() == item.id:
            return None
        holder = holders.get(place)
        if holder is None:  # it was reserved while others were looked for
            raise OperationError("partitioned", RETRY)
        return (holder.id, holder.digest) if holder.state == "held" else None

    def _holder(self, place: Place) -> Job | None:
        """Return the job of this broker that holds a key."""
        latest = self.broker.job_registry.kept.keys.find(*place)
        return latest if latest is not None and holds_key(latest) else None

    def holders(self, request: HoldersRequest, payload: Payload, responder: Responder, now: float) -> None:
        """Find the jobs of reserved keys in a shard of this broker, when it is decided about them."""
        placement = self._placement()
        for item in request.items:
            again = partial(self._holders_again, request, responder)
            if placement.keys.when_accepted(JobId(bytes.fromhex(item.id)), again):
                return

        def view() -> HoldersView:
            found = [self._holder_view(placement, request.shard, item) for item in request.items]
            return HoldersView(epoch=placement.epoch(request.shard), holders=found)

        self._answer_when_saved(responder, view, (request.shard,))

    def _holders_again(self, request: HoldersRequest, responder: Responder) -> None:
        placement = self._placement()
        reason = placement.elsewhere(request.shard)
        if reason is not None:
            responder.refuse(ErrorView(kind="partitioned", detail=reason))
        else:
            self.holders(request, b"", responder, placement.now())

    def _holder_view(self, placement: Placement, shard: int, item: HolderItem) -> HolderView:
        jobs = self.broker.job_registry.kept.keys.jobs_of((item.principal, item.service, item.key))
        here = [job for job in jobs if job.options.durable and placement.shard_of(job.id) == shard]
        if not here:
            return HolderView("free")
        latest = here[-1]
        return HolderView("held" if holds_key(latest) else "kept", latest.id.hex(), latest.digest.hex())

    def _finds_elsewhere(self, request: FindJobRequest, responder: Responder, now: float) -> bool:
        """Show the job of a reserved key. False: the key is not reserved, or a job of this broker has it."""
        owner = request.owner if request.owner is not None else responder.owner.principal.name
        place = owner, request.service, request.key
        reserved = self.placement.keys.find(place) if self.placement is not None else None
        if reserved is None or self.broker.job_registry.kept.keys.find(*place) is not None:
            return False
        brokers = self.brokers
        assert brokers is not None

        def known(holders: Holders | ErrorView) -> None:
            if isinstance(holders, ErrorView):
                responder.refuse(holders)
            elif holders[place].state == "free":
                responder.refuse(self.targets.missing_key(*place).problem)
            else:
                brokers.ask(JOB, JobRef(id=holders[place].id), b"", responder, self._placement().now())

        self._find_holders({place: reserved}, responder, known, now)
        return True

    # ---------------------------------------------------------------- questions to the owners of the jobs

    def _find_holders(
        self,
        reserved: Mapping[Place, Reserved],
        responder: Responder,
        done: Callable[[Holders | ErrorView], None],
        now: float,
    ) -> None:
        """Find the jobs of reserved keys. `done` is called once, with the first error if there is one."""
        by_shard: dict[int, dict[Place, Reserved]] = {}
        for place, each in reserved.items():
            by_shard.setdefault(each.shard, {})[place] = each
        holders: dict[Place, HolderView] = {}
        problems: list[ErrorView] = []
        left = len(by_shard)
        if not left:
            done(holders)
            return

        def answered(asked: Mapping[Place, Reserved], view: View) -> None:
            nonlocal left
            if isinstance(view, HoldersView):
                for (place, each), holder in zip(asked.items(), view.holders, strict=True):
                    holders[place] = holder
                    if view.epoch < each.epoch:  # an owner that has lost the shard, and does not know it yet
                        problems.append(ErrorView(kind="partitioned", detail=RETRY))
            elif isinstance(view, ErrorView):
                problems.append(view)
            left -= 1
            if not left:
                done(problems[0] if problems else holders)

        assert self.brokers is not None
        for shard, asked in by_shard.items():
            items = [HolderItem(*place, each.id.hex()) for place, each in asked.items()]
            question = HoldersRequest(shard=shard, items=items)
            self.brokers.ask(HOLDERS, question, b"", PartResponder(responder, partial(answered, asked)), now)

    def _sweep_keys(self, now: float) -> float:
        """Drop reservations whose jobs are gone. Returns the time of the next call."""
        if self.placement is None or now < self._sweep_at:
            return self._sweep_at if self.placement is not None else inf
        self._sweep_at = now + SWEEP_EVERY
        keys = self.placement.keys
        found = dict(keys.due(SWEPT_AT_ONCE, now)) if keys else {}
        if found:
            self._find_holders(found, self._own_responder(), partial(self._drop_free, found), now)
        return self._sweep_at

    def _drop_free(self, reserved: Mapping[Place, Reserved], holders: Holders | ErrorView) -> None:
        if isinstance(holders, ErrorView):
            return  # the next time
        keys = self._placement().keys
        for place, each in reserved.items():
            if holders[place].state == "free" and keys.find(place) is each:
                keys.drop(place, each.id)

    def _own_responder(self) -> Responder:
        return OwnResponder(self.broker.owners.of_stored(self.broker.principals.local))

    def _placement(self) -> Placement:
        if self.placement is None:
            raise OperationError("conflict", "this broker is in no cluster; start it with --cluster nats://HOST")
        return self.placement

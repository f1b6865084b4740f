"""Decides which broker of the cluster executes an operation, from the row of the table and the request.

The row says how: by the id of a job, by an idempotency key, at the owner of shard 0, at all brokers. A new operation
cannot forget it, because `answered_by` has no default. The number of shards, and which broker has one, come from
`ShardOwners`. While there are no shards, each broker keeps the background jobs that it accepted: then a job is looked
for at all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from dragoman.cluster.placement import common_shard, named_shard, shard_of_request
from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.shard_bytes import shard_in
from dragoman.core.model import Job, JobId, Payload, WorkerId
from dragoman.core.packed_jobs import NO_ID, unpack_jobs
from dragoman.operations.group_schemas import MOST_JOBS, EnqueueManyRequest
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.operation import Operation
from dragoman.operations.repeated_requests import request_id_of
from dragoman.operations.schemas import EnqueueRequest, OperationError
from dragoman.operations.service_views import CLUSTER

SHARD_OF_NOTES: Final = 0  # schedules, pauses and limits
BY_ID: Final = ("job owner", "group owner", "predecessor owner")  # operations on something that its id names
ONE_SHARD: Final = (
    "in a cluster, the ids of all jobs and groups of a batch must end with the same byte, below fa, so that one broker "
    "has them; choose such ids, or none"
)

Confirmed = Callable[[Sequence[int], dict[int, str]], None]  # shards that are here; the others, with the reason


class ShardOwners(Protocol):
    """The shards of the cluster and their owners."""

    @property
    def count(self) -> int:
        """Number of shards; 0: each broker keeps the jobs that it accepted."""

    def owner(self, shard: int) -> str:
        """Return the broker that has a shard; empty: nobody that is known."""

    def is_ready(self, shard: int) -> bool:
        """True if this broker has the shard and has read all its jobs."""

    def unusable(self, shard: int) -> str:
        """Return a sentence if no broker can use the log of a shard; empty: one can, as far as is known."""

    def doubt(self) -> str:
        """Return the reason why this broker can deny nothing now: it does not know the others. Empty: it does."""

    @property
    def has_imports(self) -> bool:
        """True if jobs were imported, as far as is known here: one may be in another shard than its id says."""

    def confirm(self, shards: Iterable[int], done: Confirmed, within: float) -> None:
        """Prove that shards are at this broker now. `done` is called once, now or later."""


class NoShards:
    """Background jobs without shards."""

    count = 0
    has_imports = False

    def doubt(self) -> str:
        return ""

    def confirm(self, shards: Iterable[int], done: Confirmed, within: float) -> None:
        done([], {})

    def owner(self, shard: int) -> str:
        return ""

    def is_ready(self, shard: int) -> bool:
        return True

    def unusable(self, shard: int) -> str:
        return ""


class Place(NamedTuple):
    """`here`: at this broker; `shard`: at its owner; `search`: at the broker that has it; `all`: at each broker;
    `broker`: at that of a name."""

    kind: Literal["here", "shard", "search", "all", "broker"]
    shard: int | None = None
    broker: str = ""


HERE: Final = Place("here")
SEARCH: Final = Place("search")
ALL: Final = Place("all")


class Places:
    """Decides for one broker."""

    def __init__(self, handlers: OperationHandlers, name: str, shards: ShardOwners) -> None:
        self._handlers = handlers
        self._broker = handlers.broker
        self._name = name
        self.shards = shards
        self._turn = 0  # of the owners of jobs without a key, if this broker has no shard

    def of(self, row: Operation[Any, Any], request: Any, payload: Payload, principal: str) -> Place:
        """Return the place. Raises OperationError."""
        first = row.request.__struct_fields__[0] if row.request.__struct_fields__ else ""
        match row.answered_by:
            case "all":
                # The workers of this dialect are other brokers, as this one sees them.
                return HERE if getattr(request, "dialect", None) == CLUSTER else ALL
            case "job owner":
                return self._of_id(getattr(request, first), is_group=False)
            case "group owner":
                return self._of_id(getattr(request, first), is_group=True)
            case "predecessor owner":
                return self._of_predecessor(getattr(request, first))
            case "named shard":
                return Place("shard", getattr(request, first)) if self.shards.count else HERE
            case "key owner":
                return self._of_key(request, principal)
            case "batch owner":
                return self._of_batch(request, payload, principal)
            case "shard 0":
                return Place("shard", SHARD_OF_NOTES) if self.shards.count else HERE
            case "schedule":
                if self._handlers.targets.has_schedule(getattr(request, first)):
                    return HERE
                return Place("shard", SHARD_OF_NOTES) if self.shards.count else SEARCH
            case "worker":
                is_here = WorkerId(getattr(request, first)) in self._broker.worker_registry.workers
                return HERE if is_here else SEARCH
            case "named broker":
                name = getattr(request, first)
                return HERE if name in (None, self._name) else Place("broker", broker=name)
        return HERE

    def owner_of(self, id: JobId) -> str:
        """Return the broker that owns the shard of a job; empty: nobody, or the id names no shard."""
        if not self.shards.count:
            return ""
        home = self._broker.dispatch.home_bytes.get(id)  # of an imported job that is here
        shard = home[0] if home is not None else shard_in(id, self.shards.count)
        return self.shards.owner(shard) if shard >= 0 else ""

    def denied_by(self, row: Operation[Any, Any], request: Any, shard: int | None) -> list[int]:
        """Return the shards of this broker that must be proved to be here, before it says that something is not: that
        of an id, a key or a schedule; or all, if the id of an imported job may name another one. `shard`: that the
        operation belongs to, if any."""
        shards = self.shards
        if not shards.count:
            return []
        if row.answered_by in BY_ID and not shards.has_imports:
            shard = shard_in(bytes.fromhex(getattr(request, row.request.__struct_fields__[0])), shards.count)
            if shard < 0:  # only an imported job could have this id: any shard proves that there is none
                return [each for each in range(shards.count) if shards.is_ready(each)][:1]
        elif row.answered_by == "schedule":
            shard = SHARD_OF_NOTES
        elif row.answered_by == "all" or row.answered_by in BY_ID:
            return [each for each in self.listed(row) if shards.is_ready(each)]
        return [shard] if shard is not None and shard >= 0 and shards.is_ready(shard) else []

    def listed(self, row: Operation[Any, Any]) -> Sequence[int]:
        """Return the shards that have what an operation of all brokers is about."""
        return range(self.shards.count) if row.name != "schedules" else range(min(1, self.shards.count))

    def is_copy(self, row: Operation[Any, Any], request: Any) -> bool:
        """True if the operation is about a job that runs here for another broker: that one answers."""
        if row.answered_by not in ("job owner", "predecessor owner"):
            return False
        job = self._job(getattr(request, row.request.__struct_fields__[0]))
        return job is not None and job.caller_dialect == CLUSTER

    def _job(self, id: str) -> Job | None:
        return self._broker.jobs.get(JobId(bytes.fromhex(id)))

    def _of_id(self, id: str, is_group: bool) -> Place:
        key = JobId(bytes.fromhex(id))
        shard = shard_in(key, self.shards.count) if self.shards.count else -1
        if is_group:
            is_here = key in self._broker.job_registry.groups.by_id
        else:
            job = self._job(id)
            is_here = job is not None and job.caller_dialect != CLUSTER
            if job is None and shard < 0:  # a call may have ended, and its messages be kept
                is_here = self._broker.job_registry.conversations.find(key) is not None
        if is_here:
            return HERE
        if shard >= 0 and self.shards.is_ready(shard):
            return SEARCH  # a client has chosen the id of a call; and what was imported has kept its id
        return SEARCH if shard < 0 else Place("shard", shard)

    def _of_key(self, request: EnqueueRequest | FindJobRequest, principal: str) -> Place:
        if not self.shards.count:
            return HERE
        if isinstance(request, FindJobRequest):
            owner = request.owner or principal
            return Place("shard", shard_of_key(owner, request.service, request.key, self.shards.count))
        after = [bytes.fromhex(each) for each in request.after]
        asked = request_id_of(request.request_id)
        shard = named_shard(principal, request.service, request.key, after, asked, self.shards.count)
        return self._of_any() if shard is None else Place("shard", shard)

    def _of_predecessor(self, id: str) -> Place:
        """Return the place of a job or a group."""
        is_group = JobId(bytes.fromhex(id)) in self._broker.job_registry.groups.by_id
        return self._of_id(id, is_group)

    def _of_batch(self, request: EnqueueManyRequest, payload: Payload, principal: str) -> Place:
        if not self.shards.count:
            return HERE
        ids = [] if request.group_id is None else [bytes.fromhex(request.group_id)]
        before: list[bytes] = []
        for form in request.jobs:
            ids += [bytes.fromhex(each) for each in (form.id, form.group) if each is not None]
            before += [bytes.fromhex(each) for each in form.after if isinstance(each, str)]
        if payload:
            _read_ids(payload, ids, before)
        shard = common_shard(ids or before, self.shards.count)
        if ids and shard is None:
            raise OperationError("invalid", ONE_SHARD)
        asked = request_id_of(request.request_id)
        if shard is None and asked is not None:
            shard = shard_of_request(principal, asked, self.shards.count)
        return self._of_any() if shard is None else Place("shard", shard)

    def _of_any(self) -> Place:
        """Return a shard of this broker, or any that has an owner, or else one that gets one."""
        shards = self.shards
        count = shards.count
        self._turn += 1
        known = free = None
        for number in range(count):
            shard = (self._turn + number) % count
            if shards.owner(shard) == self._name:
                if shards.is_ready(shard):
                    return HERE
            elif known is None and shards.owner(shard):
                known = shard
            elif free is None and not shards.unusable(shard):
                free = shard
        found = free if known is None else known
        return Place("shard", self._turn % count if found is None else found)


def _read_ids(payload: Payload, ids: list[bytes], before: list[bytes]) -> None:
    """Append the ids of packed jobs and of their groups, and the ids of those that they come after."""
    try:
        packed = unpack_jobs(payload, MOST_JOBS)
    except ValueError:
        return  # the broker that executes the operation says what is wrong
    ids += [id for id, _, _ in packed if id != NO_ID]
    for _, fields, _ in packed:
        if b'"after"' in fields or b'"group"' in fields:
            try:
                named = msgspec.json.decode(fields, type=_Named)
                ids += [] if named.group is None else [bytes.fromhex(named.group)]
                before += [bytes.fromhex(each) for each in named.after if isinstance(each, str)]
            except (msgspec.MsgspecError, ValueError):
                continue


class _Named(msgspec.Struct):
    after: list[str | int] = []
    group: str | None = None

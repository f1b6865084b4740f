"""The shard of a new background job, and the reason why it cannot be enqueued at this broker.

    with a key           the shard of the key, the same at every broker: one core checks it (C6)
    after other jobs     the shard that their ids name, if it is the same
    with a request id    the shard of that: one core knows whether the request is repeated
    a batch              one shard for all of its jobs and groups: it is accepted in one batch of the log
    all others           one of the shards that this broker owns, in turn

A shard that another broker owns is not served here: `elsewhere` has the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.cluster.broker_side import NO_LAYOUT
from dragoman.cluster.layout import Durability
from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.reservations import Reservations
from dragoman.cluster.shard_bytes import MOST_SHARDS, shard_in, with_shard
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.store import NOTES, ShardStore
from dragoman.cluster.watches import Watches
from dragoman.core.broker import Broker
from dragoman.core.commits import PendingCommits
from dragoman.core.model import JobId
from dragoman.core.remembered import RequestId

OTHER_IDS: Final = f"in a cluster, ids of one batch end with the same byte, which is below {MOST_SHARDS}"

NO_KEYS: Final = Reservations(PendingCommits([]))  # until the layout of the cluster is known


def named_shard(
    owner: str, service: str, key: str | None, after: Sequence[bytes], asked: RequestId | None, shards: int
) -> int | None:
    """Return the shard of a new job, the same at every broker and for each repetition of the request; None: any."""
    if key is not None:
        return shard_of_key(owner, service, key, shards)
    common = common_shard(after, shards) if after else None
    if common is not None:
        return common
    return None if asked is None else shard_of_request(owner, asked, shards)


def shard_of_request(owner: str, asked: RequestId, shards: int) -> int:
    """Return the shard of a request whose jobs belong to none otherwise."""
    return shard_of_key(owner, "", asked.name, shards)


def common_shard(ids: Sequence[bytes], shards: int) -> int | None:
    """Return the shard that all these ids name; None: there are several, or none."""
    found = {shard_in(id, shards): None for id in ids}
    shard = next(iter(found), -1)
    return shard if len(found) == 1 and shard >= 0 else None


class Placement:
    """Chooses shards for one broker."""

    def __init__(self, broker: Broker, store: ShardStore) -> None:
        self.keeper: ShardKeeper | None = None  # until the layout of the cluster is known
        self.durability: Durability = "single"
        self._broker = broker
        self._store = store
        self._turn = 0

    # ---------------------------------------------------------------- questions

    def unwritable(self, shard: int) -> str | None:
        """Return the reason why a new job of a shard cannot be enqueued here now; None: it can."""
        unusable = "" if self.keeper is None else self.keeper.signs.unusable(shard)
        return self.elsewhere(shard) or unusable or self._store.problem_of(shard)

    def problem_of(self, id: bytes) -> str | None:
        """Return the reason why nothing about a job can be written now."""
        return self._store.problem_of(self._store.shard_of(id))

    def elsewhere(self, shard: int) -> str | None:
        """Return the reason why this broker does not serve a shard; None: it does."""
        keeper = self.keeper
        if keeper is None:
            return self._store.problem or NO_LAYOUT
        if keeper.owns(shard):
            return None
        unusable = keeper.signs.unusable(shard)
        if unusable:
            return unusable
        owner = keeper.shards.owner(shard, 0.0)
        if owner == self.name:
            return f"shard {shard} of the cluster is being read; retry in a moment"
        if not owner:
            return f"shard {shard} of the cluster has no owner now; retry in a moment"
        return f"it belongs to shard {shard} of the cluster, which broker {owner} has; ask there"

    @property
    def name(self) -> str:
        return "" if self.keeper is None else self.keeper.broker_name

    def job_elsewhere(self, id: bytes) -> str | None:
        """Return the reason why a job with this id cannot be found here; None: it would be here."""
        shard = -1 if self.keeper is None else self.keeper.shard_of(id)
        return None if shard < 0 else self.elsewhere(shard)

    def notes_elsewhere(self) -> str | None:
        """Return the reason why pauses, limits and schedules cannot be changed here; None: they can."""
        return self._store.outage() or self.unwritable(NOTES)

    # ---------------------------------------------------------------- new jobs

    def shard_for(
        self, owner: str, service: str, key: str | None, after: Sequence[bytes], asked: RequestId | None
    ) -> int | str:
        """Return the shard of a new job, wherever it is; or the reason to refuse it."""
        keeper = self.keeper
        problem = self._store.outage()
        if problem is not None or keeper is None:
            return problem or NO_LAYOUT
        shard = named_shard(owner, service, key, after, asked, len(keeper.kept))
        if shard is not None:
            return shard
        owned = keeper.owned()
        owned = [each for each in owned if self._store.problem_of(each) is None] or owned
        if not owned:
            return "this broker has no shard of the cluster yet; retry in a moment"
        self._turn += 1
        return owned[self._turn % len(owned)]

    def job_id(
        self, owner: str, service: str, key: str | None, after: Sequence[bytes], asked: RequestId | None = None
    ) -> JobId | str:
        """Return the id for a new job; or the reason why this broker does not take it."""
        shard = self.shard_for(owner, service, key, after, asked)
        if isinstance(shard, str):
            return shard
        return self.unwritable(shard) or self.id_in(shard)

    def id_in(self, shard: int) -> JobId:
        return self.in_shard(self._broker.entropy.job_id(), shard)

    def in_shard(self, id: JobId, shard: int) -> JobId:
        """Return the id in a shard."""
        return JobId(with_shard(id, shard))

    def run_id(self) -> JobId | None:
        """Return the id of a run of a schedule: they are in the shard of the schedules. None: it is not here."""
        return None if self.notes_elsewhere() is not None else self.id_in(NOTES)

    def batch_shard(
        self, owner: str, ids: Sequence[bytes], after: Sequence[bytes], asked: RequestId | None = None
    ) -> int | str:
        """Return the shard of a batch; or the reason to refuse it. `ids`: that the client has chosen, of jobs and
        groups. `after`: jobs and groups of earlier requests."""
        keeper = self.keeper
        if keeper is None:
            return self._store.outage() or NO_LAYOUT
        shards = {keeper.shard_of(id): None for id in ids}
        if len(shards) > 1 or -1 in shards:
            return OTHER_IDS
        chosen = next(iter(shards)) if shards else common_shard(after, len(keeper.kept))
        if chosen is None:
            return self.shard_for(owner, "", None, (), asked)
        return self._store.problem_of(chosen) or chosen

    # ---------------------------------------------------------------- predecessors in other shards

    def shard_of(self, id: bytes) -> int:
        """Return the shard of a job, as far as it is known here."""
        return self._store.shard_of(id)

    def is_foreign(self, shard: int, predecessor: JobId) -> bool:
        """True if a predecessor of a new job of this shard is not in the same one, at this broker."""
        return self._watches.is_foreign_to(shard, predecessor)

    def expect(self, shard: int, predecessor: JobId) -> int:
        """A new job of this shard is going to wait for a predecessor in another one. Returns the epoch of the shard."""
        return self._watches.expect(shard, predecessor)

    def settled(self, shard: int, predecessor: JobId) -> None:
        """Undo `expect`: the new job waits now, or was not accepted."""
        self._watches.settled(shard, predecessor)

    def pin(self, predecessor: JobId, shard: int, epoch: int) -> bool:
        """Keep a job or group of this broker for jobs of another shard. False: it is not here."""
        return self._watches.jobs.pin(predecessor, shard, epoch)

    def now(self) -> float:
        return self._store.now()

    # ---------------------------------------------------------------- keys of jobs in other shards

    def key_shard(self, owner: str, service: str, key: str) -> int:
        """Return the shard that decides about a key."""
        assert self.keeper is not None
        return shard_of_key(owner, service, key, len(self.keeper.kept))

    def epoch(self, shard: int) -> int:
        """Return the epoch of a shard of this broker."""
        assert self.keeper is not None
        return self.keeper.shards[shard].epoch

    def request_id(self) -> str:
        """Return an id for one request to other brokers."""
        return self._broker.entropy.token().hex()

    @property
    def keys(self) -> Reservations:
        return NO_KEYS if self.keeper is None else self.keeper.keys

    @property
    def _watches(self) -> Watches:
        assert self.keeper is not None
        return self.keeper.watches

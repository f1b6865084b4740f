"""The shard of a new background job, and the reason why it cannot be enqueued at this broker.

    with a key           the shard of the key, the same at every broker: one core checks it (C6)
    after other jobs     the shard of those
    a batch              one shard for all of its jobs and groups: it is accepted in one batch of the log
    all others           one of the shards that this broker owns, in turn

A shard that another broker owns is not served here: `elsewhere` has the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.cluster.layout import Durability
from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.shard_bytes import MOST_SHARDS, with_shard
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.store import NOTES, ShardStore
from dragoman.core.broker import Broker
from dragoman.core.model import JobId

AUTOMATIC_KEY: Final = "auto-"  # of a client that may repeat its request; the request has the same `after` then
KEYS_IN_BATCHES: Final = "jobs of a batch have no keys in a cluster: they share one shard, and a key has its own"
SEVERAL_SHARDS: Final = "the jobs that it names are in several shards of the cluster; name jobs of one batch"
OTHER_IDS: Final = f"in a cluster, ids of one batch end with the same byte, which is below {MOST_SHARDS}"


class Placement:
    """Chooses shards for one broker."""

    def __init__(self, broker: Broker, store: ShardStore) -> None:
        self.keeper: ShardKeeper | None = None  # until the layout of the cluster is known
        self.durability: Durability = "single"
        self._broker = broker
        self._store = store
        self._turn = 0

    # ---------------------------------------------------------------- questions

    def unavailable(self) -> str | None:
        """Return the reason why no background job can be enqueued here now."""
        return self._store.problem

    def elsewhere(self, shard: int) -> str | None:
        """Return the reason why this broker does not serve a shard; None: it does."""
        keeper = self.keeper
        if keeper is None:
            return self._store.problem or "the layout of the cluster is not known yet"
        if keeper.owns(shard):
            return None
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
        return self.unavailable() or self.elsewhere(NOTES)

    # ---------------------------------------------------------------- new jobs

    def shard_for(self, owner: str, service: str, key: str | None, after: Sequence[bytes]) -> int | str:
        """Return the shard of a new job, wherever it is; or the reason to refuse it."""
        keeper = self.keeper
        problem = self.unavailable()
        if problem is not None or keeper is None:
            return problem or "the layout of the cluster is not known yet"
        shards = {keeper.shard_of(id): None for id in after}
        if key is not None and not (after and key.startswith(AUTOMATIC_KEY)):
            shards[shard_of_key(owner, service, key, len(keeper.kept))] = None
        if len(shards) > 1:
            return SEVERAL_SHARDS
        if shards:
            return next(iter(shards))
        owned = keeper.owned()
        if not owned:
            return "this broker has no shard of the cluster yet; retry in a moment"
        self._turn += 1
        return owned[self._turn % len(owned)]

    def job_id(self, owner: str, service: str, key: str | None, after: Sequence[bytes]) -> JobId | str:
        """Return the id for a new job; or the reason why this broker does not take it."""
        shard = self.shard_for(owner, service, key, after)
        if isinstance(shard, str):
            return shard
        return self.elsewhere(shard) or self.id_in(shard)

    def id_in(self, shard: int) -> JobId:
        return JobId(with_shard(self._broker.entropy.job_id(), shard))

    def run_id(self) -> JobId | None:
        """Return the id of a run of a schedule: they are in the shard of the schedules. None: it is not here."""
        return None if self.elsewhere(NOTES) is not None else self.id_in(NOTES)

    def batch_shard(self, ids: Sequence[bytes], after: Sequence[bytes], has_keys: bool) -> int | str:
        """Return the shard of a batch; or the reason to refuse it. `ids`: that the client has chosen, of jobs and
        groups. `after`: jobs and groups of earlier requests."""
        keeper = self.keeper
        if keeper is None or has_keys:
            return KEYS_IN_BATCHES if has_keys else self.unavailable() or ""
        shards = {keeper.shard_of(id): None for id in ids}
        if len(shards) > 1 or -1 in shards:
            return OTHER_IDS
        named = {keeper.shard_of(id): None for id in after}
        if len(named | shards) > 1:
            return SEVERAL_SHARDS
        chosen = next(iter(named | shards), None)
        if chosen is None:
            return self.shard_for("", "", None, ())
        return self.unavailable() or chosen

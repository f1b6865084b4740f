"""Likely bugs of brokers with shards, planted on purpose: the oracle of `shard_oracle.py` finds each of them.

Each replaces a method for one run; nothing in `src` is changed. Bugs of the logs alone are in tests/sim/log_planted.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from dragoman.cluster.held_outcomes import HeldOutcome, HeldOutcomes
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.store import ShardStore
from dragoman.core.commits import AfterCommit, PendingCommits
from dragoman.core.effects import SendJob
from dragoman.core.model import JobId, Token
from dragoman.core.states import DONE

from .shard_oracle import Broken
from .shard_world import SHARDS, ShardWorld
from .test_shard_jobs import enqueue, owner_of, world_with_workers

# ---------------------------------------------------------------- bugs

_save = PendingCommits.save
_apply = ShardStore.apply
_outcome = ShardKeeper.outcome


def give_before_commit(self: PendingCommits, job: Any, after: AfterCommit = AfterCommit.NOTHING, *rest: Any) -> None:
    """An attempt is sent, and its save is not waited for."""
    if after is AfterCommit.SEND:
        _save(self, job, AfterCommit.NOTHING, *rest)
        self._effects.append(SendJob(job.attempt))
    else:
        _save(self, job, after, *rest)


def accept_before_commit(self: ShardStore, entries: list[Any], done: Any) -> None:
    """Saves are reported when they are sent."""
    _apply(self, entries, lambda number, problem, shard: None)
    for entry in entries:
        if entry.number:
            done(entry.number, None, entry.shard)


def acknowledge_on_receipt(self: ShardKeeper, peer: Any, record: Any, attempt: Any, now: float) -> bool:
    """A result is acknowledged when it arrives (the prototype ran jobs again after every failover)."""
    taken = _outcome(self, peer, record, attempt, now)
    if taken and self.acks.is_ending(Token(record.token)):
        self.acks.safe(self.shard_of(Token(record.token)), 1 << 60)
    return taken


def send_once(self: HeldOutcomes, held: HeldOutcome, now: float) -> None:
    """An outcome that was sent to one owner is not sent to the next."""
    owner = self._owners.owner_of(held.record.token)
    if owner is not None and held.sent_to is None:
        held.sent_to = owner
        self._owners.send_outcome(owner, held.record, now)


def forget_nothing(self: PendingCommits, ids: Any) -> None:
    """Effects that wait for a commit stay when their job is evicted."""


# ---------------------------------------------------------------- stories


def run_at_home() -> None:
    world = world_with_workers("a", "b")
    for node in world.all_nodes:
        node.worker("s")
    enqueue(world, b"x", attempts=1)
    world.run_until(lambda: world.runs)


def run_one_job() -> None:
    world = world_with_workers("a", "b")
    id = enqueue(world, b"x", attempts=1)
    other = next(each for each in world.all_nodes if each is not owner_of(world, id))
    other.worker("s")
    world.run_until(lambda: other.local.sent)
    world.work()
    world.run_until(lambda: getattr(world.find(id), "outcome", None) is DONE)
    world.run(1.0)


def finish_while_the_shard_moves() -> None:
    """The outcome goes to a broker that is alive, and has just given the shard up: nobody is gone."""
    world = world_with_workers("a", "b", "c")
    id = enqueue(world, b"x", attempts=1)
    owner = owner_of(world, id)
    number = owner.keeper.shard_of(id)
    worker = next(each for each in world.all_nodes if each is not owner)
    worker.worker("s")
    world.run_until(lambda: worker.local.sent)
    owner.keeper.shards.rest(world.now, 60.0)
    world.run_until(lambda: JobId(id) not in owner.broker.jobs)
    assert worker.keeper.shards.owner(number, world.now) == owner.name  # it has not heard of it yet
    world.work()
    try:
        world.run_until(lambda: getattr(world.find(id), "outcome", None) is not None)
    except AssertionError as error:
        raise Broken(f"C5: the outcome does not reach the next owner: {error}") from None
    job = world.find(id)
    assert job is not None
    assert (job.outcome, job.spent, world.runs) == (DONE, 0, {b"x": 1})


def freeze_while_a_job_ends() -> None:
    """A broker wakes when others have its shards: it decides nothing more about a job that it had not committed."""
    world: ShardWorld = world_with_workers("a", "b")
    node = world.node("a")
    world.run_until(lambda: node.owned)
    job = node.enqueue(b"y", attempts=1, keep=0.0)
    assert job is not None
    node.worker("s")
    world.run_until(lambda: node.local.sent)
    world.work()
    world.freeze("a")
    world.run_until(lambda: len(world.node("b").owned) == SHARDS)
    world.nodes["a"] = node
    world.run_until(lambda: not node.owned)
    world.run(1.0)
    assert not node.broker.jobs


Story = Callable[[], None]
BUGS: tuple[tuple[type, str, Callable[..., Any], Story, str], ...] = (
    (PendingCommits, "save", give_before_commit, run_at_home, "C3"),
    (ShardStore, "apply", accept_before_commit, run_one_job, "C2"),
    (ShardKeeper, "outcome", acknowledge_on_receipt, run_one_job, "C5"),
    (HeldOutcomes, "_send", send_once, finish_while_the_shard_moves, "C5"),
    (PendingCommits, "forget", forget_nothing, freeze_while_a_job_ends, ""),
)


@pytest.mark.parametrize(("place", "name", "bug", "story", "letters"), BUGS, ids=[each[2].__name__ for each in BUGS])
def test_planted_shard_bug_is_found(
    place: type, name: str, bug: Callable[..., Any], story: Story, letters: str
) -> None:
    """`letters`: of the rule that is broken; empty: the core notices it first."""
    error, pattern = (Broken, f"^{letters}: ") if letters else (KeyError, ".")
    with patch.object(place, name, bug), pytest.raises(error, match=pattern):
        story()


@pytest.mark.parametrize("story", sorted({each[3] for each in BUGS}, key=lambda story: story.__name__))
def test_stories_without_a_bug_come_to_a_good_end(story: Story) -> None:
    story()

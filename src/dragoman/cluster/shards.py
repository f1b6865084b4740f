"""Ownership of shards at one broker: which to claim, to give up, and to let go. Pure, with the time as an argument.

Nothing here is needed for safety: the log decides who owns a shard, whatever two brokers believe (R114). This decides
when to try, from gossip:

    ELSEWHERE    another broker has it, or nobody
    CLAIMING     our claim is on its way
    READING      our claim is in the log, and we read what was before it
    OWNED        we write
    RELEASING    we give it up: nothing more of it is handed out, and the release follows what still runs
    ALARMED      the log cannot be trusted; it is looked at again after a while

A shard is *free* when its owner says that it no longer has it, when a new run of its owner is heard, or when its owner
has not been heard for `adopt_after`. Then the brokers take it in turns (`ranks.py`): the first at once, each further
one `turn` seconds later, if it is still free. While this broker is deaf (`hearing.py`), it takes nobody for silent, and
begins no claim; it withdraws each of which nothing was sent to the log. A broker that shows an older epoch than another
one did is no owner: it does not know yet that it lost the shard.

A broker that stops, or *rests* because an operator wants its shards elsewhere, gives them to brokers that take shards.
If it hears none of these, it goes on with what would stay without an owner. One that rests keeps its shards, and takes
free ones, a `turn` later than usual. One that stops keeps, and takes back, shards *in use*: an attempt of theirs runs,
or an outcome of theirs is held here, which nobody else will put into the log.

The broker with the most shards gives one up when another has at least two fewer, the one with the fewest jobs first.
One with few jobs follows as soon as the last one has an owner; one with many jobs at most every `balance_every`,
because its next owner reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.cluster.hearing import Hearing
from dragoman.cluster.ranks import order
from dragoman.core.infinity import inf

SCHEDULES: Final = 0  # the shard of everything that belongs to no job
FEW: Final = 1000  # jobs, which an owner reads within milliseconds


class ShardPhase(Enum):
    """State of a shard at this broker."""

    ELSEWHERE = auto()
    CLAIMING = auto()
    READING = auto()
    OWNED = auto()
    RELEASING = auto()
    ALARMED = auto()


HELD: Final = (ShardPhase.CLAIMING, ShardPhase.READING, ShardPhase.OWNED, ShardPhase.RELEASING)


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Times in seconds."""

    adopt_after: float = 10.0  # silence of an owner
    turn: float = 1.0  # between two brokers that would take the same shard
    silent_after: float = 3.0  # a broker that was not heard for so long takes no turn
    again_after: float = 2.0  # a claim that was refused
    alarm_every: float = 30.0  # a log that cannot be trusted is looked at again
    balance_every: float = 10.0  # two shards with many jobs are given up
    look_every: float = 1.0  # the numbers of shards are compared

    def __post_init__(self) -> None:
        if min(self.adopt_after, self.turn, self.silent_after, self.again_after, self.alarm_every) <= 0.0:
            raise ValueError(f"each time must be above 0: {self}")


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardActions:
    """Carries out decisions about shards. The calls of `Shards` in parentheses follow."""

    def claim(self, shard: int, now: float) -> None:
        """Claim the log (`claimed`, then `owned`; or `refused` or `alarmed`)."""
        raise NotImplementedError

    def withdraw(self, shard: int) -> bool:
        """Give up a claim of which nothing was sent to the log. False: it may be in the log, and goes on."""
        raise NotImplementedError

    def release(self, shard: int, now: float) -> None:
        """Hand out nothing more of the shard, wait for what runs, and release the log (`released`)."""
        raise NotImplementedError

    def evict(self, shard: int, reason: str, now: float) -> None:
        """Drop the shard's jobs without ending them, and abandon its log. Nothing follows."""
        raise NotImplementedError


@final
class Neighbour:
    """Another broker, as its gossip shows it."""

    __slots__ = ("heard_at", "incarnation", "is_draining", "is_resting", "shards")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.heard_at = -inf
        self.is_draining = False
        self.is_resting = False
        self.shards: dict[int, int] = {}  # epoch of each that it has


@final
class Shard:
    """A shard at this broker."""

    __slots__ = ("alarm", "epoch", "free_at", "newest", "newest_at", "phase", "try_at")

    def __init__(self, free_at: float) -> None:
        self.phase = ShardPhase.ELSEWHERE
        self.epoch = 0  # ours, while we have it
        self.newest = 0  # the newest epoch that was heard of
        self.newest_at = -inf  # time at which it was heard of first
        self.free_at = free_at  # time from which it may be claimed, unless its owner is heard
        self.try_at = -inf  # not claimed before, because a claim was refused
        self.alarm = ""  # the reason why its log cannot be trusted, until it has an owner


class Shards:
    """All shards of a cluster, at the broker `name` in its run `incarnation`."""

    def __init__(
        self,
        cluster: str,
        name: str,
        incarnation: str,
        count: int,
        actions: ShardActions,
        now: float,
        settings: ShardSettings | None = None,
        load: Callable[[int], int] | None = None,
        in_use: Callable[[], Collection[int]] | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        """`load`: the number of jobs of a shard that we own; the one with the fewest is given up first. `in_use`: the
        shards of which an attempt runs here, or at another broker for us, or an outcome is held here. `hearing`: of
        this broker."""
        self.settings = settings or ShardSettings()
        self.is_draining = False
        self.has_wrong_clock = False  # then it does not own shard 0, which has the schedules
        self._cluster = cluster
        self._name = name
        self._incarnation = incarnation
        self._actions = actions
        self._load = load
        self._in_use = in_use
        self._shards = [Shard(now + self.settings.adopt_after) for _ in range(count)]
        self._neighbours: dict[str, Neighbour] = {}
        self._hearing = hearing or Hearing(now)
        self._balance_at = now + self.settings.balance_every
        self._heavy_at = now  # time from which a shard with many jobs may be given up
        self._rests_until = self._out_until = -inf  # it leaves shards to others, and has none at all, until then
        self._gives_up = False  # it stops, and waits no longer for what is in use

    def __getitem__(self, shard: int) -> Shard:
        return self._shards[shard]

    def __len__(self) -> int:
        return len(self._shards)

    # ---------------------------------------------------------------- for gossip and views

    @property
    def epochs(self) -> dict[int, int]:
        """The shards that we have, with their epochs: for our gossip."""
        return {number: each.epoch for number, each in enumerate(self._shards) if each.epoch}

    def owner(self, shard: int, now: float) -> str:
        """Return the broker that has a shard; empty: nobody that is known."""
        if self._shards[shard].epoch:
            return self._name
        found = self._owner(shard)
        return "" if found is None else found

    def unusable(self, shard: int) -> str:
        """Return the reason why the log of a shard cannot be used, also while it is looked at again. Empty: it can, or
        another broker has it, or this one has not looked."""
        return self._shards[shard].alarm if self._owner(shard) is None else ""

    def run_of(self, shard: int) -> tuple[str, str, int] | None:
        """Return the broker that has a shard, its run, and the epoch; None: nobody that is known."""
        state = self._shards[shard]
        if state.epoch:
            return self._name, self._incarnation, state.epoch
        found = self._owner(shard)
        return None if found is None else (found, self._neighbours[found].incarnation, state.newest)

    # ---------------------------------------------------------------- from gossip

    def heard_again(self, gap: float, now: float) -> None:
        """Our own gossip has returned after `gap` seconds. Nobody could be heard meanwhile: that is no silence of
        others. Shards that we have stay ours until the log says otherwise."""
        self._withdraw_claims(now)
        wait = self.settings.adopt_after
        for neighbour in self._neighbours.values():
            neighbour.heard_at = self._hearing.moved(neighbour.heard_at, gap, wait, now)
        for shard in self._shards:
            if shard.free_at < inf:
                shard.free_at = self._hearing.moved(shard.free_at - wait, gap, wait, now) + wait

    def heard(
        self,
        broker: str,
        incarnation: str,
        shards: Mapping[int, int],
        is_draining: bool,
        now: float,
        *,
        is_resting: bool = False,
    ) -> None:
        """Take the gossip of another broker. `shards`: those that it has, with their epochs."""
        if broker == self._name:
            return
        known = self._neighbours.get(broker)
        before = {} if known is None else known.shards
        if known is None or known.incarnation != incarnation:
            known = self._neighbours[broker] = Neighbour(incarnation)
        known.heard_at = now
        known.is_draining, known.is_resting = is_draining, is_resting
        known.shards = {number: epoch for number, epoch in shards.items() if 0 <= number < len(self._shards)}
        for number, epoch in known.shards.items():
            self._has(number, epoch, broker, now)
        for number in before:
            if number not in known.shards:
                self._free(number, now)

    def gone(self, broker: str, now: float) -> None:
        """Forget a broker that has said goodbye."""
        known = self._neighbours.pop(broker, None)
        for number in known.shards if known is not None else ():
            self._free(number, now)

    def unowned(self, shard: int, now: float) -> None:
        """Note that the log of a shard ends with a release, or has no claim: nobody needs to be waited for."""
        if self._owner(shard) is None:
            self._free(shard, now)

    def _has(self, number: int, epoch: int, broker: str, now: float) -> None:
        shard = self._shards[number]
        if shard.epoch and epoch > shard.epoch:
            self._evict(number, f"{broker} has it since {epoch}", now)
        if epoch > shard.newest:
            shard.newest_at = now
        elif epoch == shard.newest and now - shard.newest_at >= self.settings.adopt_after:
            shard.alarm = ""  # it is not only looked at there
        if epoch >= shard.newest:
            shard.newest = epoch
            shard.free_at = inf
            self._withdraw(number, now)

    def _free(self, number: int, now: float) -> None:
        """A broker no longer has a shard. It is free, unless another one has it."""
        if self._owner(number) is None:
            self._shards[number].free_at = min(self._shards[number].free_at, now)

    def _owner(self, number: int) -> str | None:
        """Return the neighbour that has the newest epoch of a shard that was ever heard of; None: it is gone."""
        newest = self._shards[number].newest
        for name, neighbour in self._neighbours.items():
            if newest and neighbour.shards.get(number) == newest:
                return name
        return None

    # ---------------------------------------------------------------- from the logs

    def claimed(self, number: int, epoch: int, now: float) -> None:
        """Our claim is in the log; also when it was renewed."""
        shard = self._shards[number]
        shard.epoch = epoch
        shard.newest = max(shard.newest, epoch)
        if shard.phase is ShardPhase.CLAIMING:
            shard.phase = ShardPhase.READING

    def owned(self, number: int, now: float) -> None:
        """Everything is read."""
        self._shards[number].phase = ShardPhase.OWNED
        self._shards[number].alarm = ""
        if not self.takes_shards(now):
            self._step_aside(now)

    def refused(self, number: int, now: float) -> None:
        """The claim was not accepted, or the shard was lost to another broker. It has been evicted."""
        self._let_go(number, now + self.settings.again_after)
        self._shards[number].free_at = now + self.settings.adopt_after

    def released(self, number: int, now: float) -> None:
        self._let_go(number, now if self.is_draining else now + self.settings.again_after)
        self._shards[number].free_at = now

    def alarmed(self, number: int, reason: str, now: float) -> None:
        """The log cannot be trusted."""
        self._let_go(number, now + self.settings.alarm_every)
        shard = self._shards[number]
        shard.phase = ShardPhase.ALARMED
        shard.alarm = reason

    def _let_go(self, number: int, try_at: float) -> None:
        shard = self._shards[number]
        shard.phase = ShardPhase.ELSEWHERE
        shard.epoch = 0
        shard.try_at = try_at

    def _evict(self, number: int, reason: str, now: float) -> None:
        self._let_go(number, now + self.settings.again_after)
        self._actions.evict(number, reason, now)

    # ---------------------------------------------------------------- decisions

    def _withdraw(self, number: int, now: float) -> None:
        if self._shards[number].phase is ShardPhase.CLAIMING and self._actions.withdraw(number):
            self._let_go(number, now)

    def _withdraw_claims(self, now: float) -> None:
        for number in range(len(self._shards)):
            self._withdraw(number, now)

    def release(self, number: int, now: float) -> None:
        """Give a shard up in order."""
        shard = self._shards[number]
        if shard.phase is ShardPhase.OWNED:
            shard.phase = ShardPhase.RELEASING
            self._actions.release(number, now)

    def rest(self, now: float, seconds: float) -> None:
        """Give all shards to other brokers, and leave free ones to them for a while."""
        self._rests_until = max(self._rests_until, now + seconds)
        self._step_aside(now)

    def stay_out(self, now: float, seconds: float) -> None:
        """Give all shards up, also if no other broker takes them, and take none for a while."""
        self._out_until = now + seconds
        self.rest(now, seconds)

    def is_resting(self, now: float) -> bool:
        return now < self._rests_until

    def takes_shards(self, now: float) -> bool:
        """True if it takes shards of others."""
        return not self.is_draining and not self.is_resting(now)

    def drain(self, now: float) -> None:
        """Give all shards up, and take none but those that are in use: this broker stops."""
        self.is_draining = True
        self._step_aside(now)

    def give_up(self, now: float) -> None:
        """Give all shards up, also those in use: the time to stop has passed."""
        self.is_draining = self._gives_up = True
        self._step_aside(now)

    @property
    def is_drained(self) -> bool:
        return not any(each.phase in HELD for each in self._shards)

    def tick(self, now: float) -> float:
        """Decide what is due. Returns the time of the next call."""
        if self._hearing.is_deaf(now):
            self._withdraw_claims(now)
            return inf
        due = min(self._notice_silence(now), self._hearing.deaf_at)
        if not self.takes_shards(now):
            return min(due, self._step_aside(now))
        if self.has_wrong_clock:
            self.release(SCHEDULES, now)
        for number, shard in enumerate(self._shards):
            if shard.phase in (ShardPhase.ELSEWHERE, ShardPhase.ALARMED):
                due = min(due, self._consider(number, shard, now))
        return min(due, self._balance(now))

    def _step_aside(self, now: float) -> float:
        """Give all shards to brokers that take them. Without these, keep and take what nobody else will: while this
        broker stops, and no other one stays, what is in use. Returns the time of the next call."""
        others = self._others(now)
        wanted: Collection[int] = ()
        wait = 0.0
        if now >= self._out_until and all(each.is_resting for each in others.values()):
            if not self.is_draining:
                wanted, wait = range(len(self._shards)), self.settings.turn
            elif not others and not self._gives_up and self._in_use is not None:
                wanted = self._in_use()
        due = self._rests_until if self.is_resting(now) else inf
        for number, shard in enumerate(self._shards):
            if number not in wanted:
                self.release(number, now)
            elif not self._hearing.is_deaf(now) and shard.phase in (ShardPhase.ELSEWHERE, ShardPhase.ALARMED):
                due = min(due, self._consider(number, shard, now, wait))
        return due

    def _notice_silence(self, now: float) -> float:
        """Free the shards of brokers that were not heard for `adopt_after`."""
        due = inf
        for name, neighbour in list(self._neighbours.items()):
            ends = neighbour.heard_at + self.settings.adopt_after
            if ends > now:
                due = min(due, ends)
                continue
            del self._neighbours[name]
            for number in neighbour.shards:
                self._free(number, now)
        return due

    def _consider(self, number: int, shard: Shard, now: float, wait: float = 0.0) -> float:
        """Claim a shard if it has been free for `wait` seconds and our turn has come. Returns the time at which that
        may be."""
        if shard.free_at == inf or (self.has_wrong_clock and number == SCHEDULES):
            return inf
        counts = self._counts(now)
        turn = order(self._cluster, number, counts).index(self._name)
        ready = max(shard.free_at + wait + turn * self.settings.turn, shard.try_at)
        if ready > now:
            return ready
        shard.phase = ShardPhase.CLAIMING
        self._actions.claim(number, now)
        return inf

    def _others(self, now: float) -> dict[str, Neighbour]:
        """Return the other brokers that are heard and stay."""
        since = now - self.settings.silent_after
        return {name: each for name, each in self._neighbours.items() if not each.is_draining and each.heard_at > since}

    def _counts(self, now: float) -> dict[str, int]:
        """Return the number of shards of each broker that takes part, with ourselves. While we rest, all others that
        stay rest, too, or else we take none."""
        is_resting = self.is_resting(now)
        others = self._others(now).items()
        counts = {name: len(each.shards) for name, each in others if is_resting or not each.is_resting}
        counts[self._name] = len([each for each in self._shards if each.phase in HELD])
        return counts

    def _balance(self, now: float) -> float:
        """Give one shard up if another broker has at least two fewer than we, and nobody has more than we."""
        if now < self._balance_at:
            return self._balance_at
        self._balance_at = now + self.settings.look_every
        counts = self._counts(now)
        ours = counts[self._name]
        most = sorted(counts, key=lambda name: (-counts[name], name))[0]
        is_free = any(each.free_at < inf and each.phase is ShardPhase.ELSEWHERE for each in self._shards)
        owned = [number for number, each in enumerate(self._shards) if each.phase is ShardPhase.OWNED]
        if most != self._name or ours - min(counts.values()) < 2 or is_free or not owned:
            return self._balance_at
        lightest = min(owned, key=lambda number: (self._jobs(number), number))
        if self._jobs(lightest) <= FEW or now >= self._heavy_at:
            self._heavy_at = now + self.settings.balance_every
            self.release(lightest, now)
        return self._balance_at

    def _jobs(self, number: int) -> int:
        return 0 if self._load is None else self._load(number)

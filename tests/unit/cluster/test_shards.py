"""Ownership of shards: who claims when, releases, evictions, alarms and balance. Time is an argument."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from case_tables import check_every_row
from dragoman.cluster.hearing import Hearing
from dragoman.cluster.ranks import order, shard_of_key
from dragoman.cluster.shards import ShardActions, ShardPhase, Shards, ShardSettings
from dragoman.core.infinity import inf

NAMES = ("a", "b", "c")


def hears_always() -> Hearing:
    """Return the hearing of a broker whose gossip has returned and will, while no test says otherwise."""
    hearing = Hearing(0.0, inf)
    hearing.echoed(0.0)
    return hearing


class Broker(ShardActions):
    """A broker that notes what its `Shards` decides."""

    def __init__(self, name: str = "a", count: int = 4, now: float = 0.0, **settings: float) -> None:
        self.name = name
        self.acts: list[tuple[object, ...]] = []
        self.loads: dict[int, int] = {}
        self.in_use: list[int] = []
        self.sent: set[int] = set()  # shards whose claim was sent to the log
        self.hearing = hears_always()
        made = (count, self, now, ShardSettings(**settings))
        known = (lambda shard: self.loads.get(shard, 0), lambda: self.in_use, self.hearing)
        self.shards = Shards("c", name, f"{name}1", *made, *known)

    def claim(self, shard: int, now: float) -> None:
        self.acts.append(("claim", shard, now))

    def withdraw(self, shard: int) -> bool:
        if shard in self.sent:
            return False
        self.acts.append(("withdraw", shard))
        return True

    def release(self, shard: int, now: float) -> None:
        self.acts.append(("release", shard, now))

    def evict(self, shard: int, reason: str, now: float) -> None:
        self.acts.append(("evict", shard, reason))

    def take(self) -> list[tuple[object, ...]]:
        acts, self.acts = self.acts, []
        return acts

    def claims(self) -> list[int]:
        return [shard for kind, shard, *_ in self.take() if kind == "claim"]  # type: ignore[misc]

    def own(self, shard: int, epoch: int, now: float) -> None:
        self.shards[shard].phase = ShardPhase.CLAIMING
        self.shards.claimed(shard, epoch, now)
        self.shards.owned(shard, now)


def alone(count: int = 4, **settings: float) -> Broker:
    return Broker(count=count, **settings)


# ---------------------------------------------------------------- ranks


def test_rank_is_the_same_everywhere() -> None:
    counts = {"a": 2, "b": 2, "c": 1, "d": 2}
    for shard in range(50):
        expected = order("prod", shard, counts)
        assert expected[0] == "c"  # it has the fewest
        for names in itertools.permutations(counts):
            assert order("prod", shard, {name: counts[name] for name in names}) == expected


def test_shards_spread_over_equal_brokers_and_clusters_differ() -> None:
    counts = dict.fromkeys(("a", "b", "c", "d"), 0)
    first = Counter(order("prod", shard, counts)[0] for shard in range(1000))
    assert all(200 < each < 300 for each in first.values())
    assert [order("prod", shard, counts) for shard in range(20)] != [
        order("test", shard, counts) for shard in range(20)
    ]


def test_a_key_has_one_shard_and_its_parts_do_not_run_together() -> None:
    assert shard_of_key("o", "s", "k", 12) == shard_of_key("o", "s", "k", 12)
    assert 0 <= shard_of_key("ü", "\ud800", "", 250) < 250
    spread = Counter(shard_of_key("o", "s", str(number), 12) for number in range(12_000))
    assert all(800 < each < 1200 for each in spread.values())
    apart = {shard_of_key(*parts, 1 << 62) for parts in (("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"))}
    assert len(apart) == 3


# ---------------------------------------------------------------- adoption


def test_a_broker_that_hears_nobody_claims_everything_after_a_while() -> None:
    broker = alone()
    assert broker.shards.tick(0.0) == 10.0
    broker.shards.tick(9.9)
    assert broker.claims() == []
    broker.shards.tick(10.0)
    assert broker.claims() == [0, 1, 2, 3]
    broker.shards.claimed(0, 17, 10.1)
    assert (broker.shards[0].phase, broker.shards.epochs) == (ShardPhase.READING, {0: 17})
    broker.shards.owned(0, 10.2)
    assert broker.shards[0].phase is ShardPhase.OWNED
    assert broker.shards.owner(0, 10.2) == "a"


def test_a_log_that_was_released_is_claimed_at_once() -> None:
    broker = alone()
    broker.shards.unowned(2, 1.0)
    broker.shards.tick(1.0)
    assert broker.claims() == [2]
    broker.shards.heard("b", "b1", {1: 5}, False, 2.0)
    broker.shards.unowned(1, 2.0)  # an older look at the log
    broker.shards.tick(2.0)
    assert broker.claims() == []


def test_nothing_is_claimed_while_the_owner_is_heard() -> None:
    broker = alone()
    for second in range(100):
        broker.shards.heard("b", "b1", {0: 5, 1: 6, 2: 7, 3: 8}, False, float(second))
        broker.shards.tick(float(second))
    assert broker.take() == []
    assert broker.shards.owner(1, 99.0) == "b"


def test_the_shards_of_a_silent_broker_are_adopted() -> None:
    broker = alone()
    broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, 20.0)
    broker.shards.heard("c", "c1", {2: 7, 3: 8}, False, 20.0)
    for second in range(21, 30):
        broker.shards.heard("c", "c1", {2: 7, 3: 8}, False, float(second))
        assert broker.shards.tick(float(second)) <= 30.0
    assert broker.claims() == []
    broker.shards.tick(30.0)
    assert broker.claims() == [0, 1]


def test_brokers_take_turns_and_the_first_one_is_first() -> None:
    """Each broker claims alone; the others follow only if the shard is still free."""
    brokers = {name: Broker(name, 12) for name in NAMES}
    claimed: dict[int, list[tuple[float, str]]] = {shard: [] for shard in range(12)}
    for each in brokers.values():
        each.shards.heard("dead", "d1", dict.fromkeys(range(12), 9), False, 0.0)
    for step in range(2000):
        now = step / 100
        for name, each in brokers.items():
            if step % 50 == 0:
                for other, shards in brokers.items():
                    each.shards.heard(other, f"{other}1", shards.shards.epochs, False, now)
            each.shards.tick(now)
            for kind, shard, when in each.take():
                assert kind == "claim"
                claimed[shard].append((when, name))  # type: ignore[index, arg-type]
                if len(claimed[shard]) == 1:  # type: ignore[index]
                    each.shards.claimed(shard, 100, now)  # type: ignore[arg-type]
                    each.shards.owned(shard, now)  # type: ignore[arg-type]
                else:
                    each.shards.refused(shard, now)  # type: ignore[arg-type]
    assert all(len(each) == 1 for each in claimed.values()), claimed
    assert all(10.0 <= each[0][0] <= 14.0 for each in claimed.values())
    assert sorted(len(each.shards.epochs) for each in brokers.values()) == [4, 4, 4]


def test_a_shard_that_its_owner_gave_up_is_free_at_once() -> None:
    broker = alone()
    broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, 1.0)
    broker.shards.heard("b", "b1", {1: 6}, True, 2.0)
    broker.shards.tick(2.0)
    assert broker.claims() == [0]


def test_a_new_run_of_its_owner_frees_all_its_shards() -> None:
    broker = alone()
    broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, 1.0)
    broker.shards.heard("b", "b2", {}, True, 2.0)
    broker.shards.tick(2.0)
    assert sorted(broker.claims()) == [0, 1]


def test_a_broker_that_said_goodbye_is_not_waited_for() -> None:
    broker = alone()
    broker.shards.heard("b", "b1", {3: 5}, False, 1.0)
    broker.shards.gone("b", 2.0)
    broker.shards.gone("unknown", 2.0)
    broker.shards.tick(2.0)
    assert broker.claims() == [3]


def return_gossip(broker: Broker, now: float) -> None:
    """Let a broker hear its own gossip."""
    gap = broker.hearing.echoed(now)
    if gap:
        broker.shards.heard_again(gap, now)


def test_time_without_nats_is_no_silence_of_others() -> None:
    broker = alone()
    broker.hearing.deaf_after = 3.0
    broker.shards.heard("b", "b1", {0: 5}, False, 5.0)
    return_gossip(broker, 2.0)
    return_gossip(broker, 4.0)
    return_gossip(broker, 6.0)
    broker.hearing.away()
    assert broker.shards.tick(60.0) == inf
    return_gossip(broker, 60.0)
    broker.shards.tick(60.1)
    assert broker.claims() == []
    for tenth in (620, 639):
        return_gossip(broker, 0.1 * tenth)
        broker.shards.tick(0.1 * tenth)
    assert broker.claims() == []
    broker.shards.tick(64.0)  # of 10 s to wait, 6 had passed
    assert broker.claims() == [1, 2, 3]
    for second in range(65, 70):
        return_gossip(broker, float(second))
        broker.shards.tick(float(second))
    assert broker.claims() == [0]


def deaf_broker() -> Broker:
    """Return a broker that has heard itself and two owners at 9.0, and becomes deaf at 12.0."""
    broker = alone()
    broker.hearing.deaf_after = 3.0
    for second in range(10):
        return_gossip(broker, float(second))
        broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, float(second))
        broker.shards.heard("c", "c1", {2: 7, 3: 8}, False, float(second))
    return broker


def test_a_broker_whose_own_gossip_does_not_return_declares_nobody_gone() -> None:
    """A NATS server that was frozen did not end its connections. After ten seconds its brokers took the others for
    gone, and when it woke, their claims took shards from living owners."""
    broker = deaf_broker()
    assert broker.shards.tick(11.9) == 12.0
    for second in range(12, 40):
        assert broker.shards.tick(float(second)) == inf
    return_gossip(broker, 40.0)  # it has woken: our gossip of meanwhile is faster than that of others
    broker.shards.tick(40.0)
    return_gossip(broker, 42.9)
    broker.shards.tick(42.9)
    assert (broker.take(), broker.shards.owner(0, 42.9)) == ([], "b")
    broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, 42.9)
    for second in range(43, 51):
        return_gossip(broker, float(second))
        broker.shards.tick(float(second))
    assert broker.claims() == [2, 3]  # c is gone: of its ten seconds, three had passed when we became deaf
    assert broker.shards.owner(0, 50.0) == "b"


def test_a_broker_that_was_nearly_gone_has_time_to_speak_when_nats_is_back() -> None:
    broker = deaf_broker()
    for second in range(10, 19):
        return_gossip(broker, float(second))
        broker.shards.tick(float(second))
    broker.hearing.away()  # b and c were silent for 9.5 of 10 seconds
    return_gossip(broker, 20.0)
    broker.shards.tick(20.0)
    broker.shards.tick(22.9)
    assert broker.claims() == []
    return_gossip(broker, 22.9)
    broker.shards.tick(23.0)
    assert broker.claims() == [0, 1, 2, 3]


def test_the_last_living_broker_hears_itself_and_adopts() -> None:
    broker = deaf_broker()
    for second in range(10, 20):
        return_gossip(broker, float(second))
        broker.shards.tick(float(second))
    assert broker.claims() == [0, 1, 2, 3]


def test_a_claim_that_was_not_sent_is_withdrawn_when_the_broker_becomes_deaf() -> None:
    """A question about the log waited in a server that was frozen; its answer led to a claim many seconds later."""
    broker = deaf_broker()
    for second in range(10, 20):
        return_gossip(broker, float(second))
        broker.shards.tick(float(second))
    assert broker.claims() == [0, 1, 2, 3]
    broker.sent = {1}
    broker.shards.tick(22.0)
    assert broker.take() == [("withdraw", 0), ("withdraw", 2), ("withdraw", 3)]
    assert [broker.shards[number].phase for number in (0, 1)] == [ShardPhase.ELSEWHERE, ShardPhase.CLAIMING]
    broker.shards.claimed(1, 9, 30.0)  # it was in the log
    broker.shards.owned(1, 30.0)
    return_gossip(broker, 30.0)
    broker.shards.heard("b", "b1", {0: 5}, False, 30.0)
    broker.shards.tick(30.0)
    assert (broker.take(), broker.shards.owner(0, 30.0)) == ([], "b")


def test_a_claim_that_was_not_sent_is_withdrawn_when_an_owner_is_heard() -> None:
    broker = deaf_broker()
    broker.hearing.deaf_after = inf
    broker.shards.tick(19.0)
    assert broker.claims() == [0, 1, 2, 3]
    broker.sent = {1}
    broker.shards.heard("b", "b1", {0: 5, 1: 6}, False, 19.5)
    assert broker.take() == [("withdraw", 0)]
    broker.shards.tick(25.0)
    assert (broker.take(), broker.shards.owner(0, 25.0)) == ([], "b")


def test_a_broker_that_shows_an_older_epoch_is_no_owner() -> None:
    """It lost the shard to a broker that is dead now, and does not know it."""
    broker = alone()
    broker.shards.heard("b", "b1", {0: 5}, False, 1.0)
    broker.shards.heard("c", "c1", {0: 9}, False, 2.0)
    for second in range(3, 16):
        broker.shards.heard("b", "b1", {0: 5}, False, float(second))
        broker.shards.tick(float(second))
    assert 0 in broker.claims()


def test_a_refused_claim_is_tried_again_later() -> None:
    broker = alone(count=1)
    broker.shards.tick(10.0)
    assert broker.claims() == [0]
    broker.shards.refused(0, 10.5)
    assert broker.shards.tick(10.5) == 11.0  # the numbers of shards are compared
    broker.shards.tick(20.5)
    assert broker.claims() == [0]
    broker.shards.refused(0, 21.0)
    broker.shards.heard("b", "b1", {0: 7}, False, 21.5)
    broker.shards.heard("b", "b1", {}, True, 21.6)
    broker.shards.tick(21.6)
    assert broker.claims() == []  # again_after
    broker.shards.tick(23.0)
    assert broker.claims() == [0]


# ---------------------------------------------------------------- eviction, alarm, release


def test_a_newer_epoch_in_gossip_evicts() -> None:
    broker = alone()
    broker.own(1, 50, 1.0)
    broker.shards.heard("b", "b1", {1: 49}, False, 2.0)
    assert broker.take() == []
    broker.shards.heard("b", "b1", {1: 51}, False, 3.0)
    assert broker.take() == [("evict", 1, "b has it since 51")]
    assert (broker.shards[1].phase, broker.shards.epochs) == (ShardPhase.ELSEWHERE, {})


def test_an_untrusted_log_is_looked_at_again_after_a_while() -> None:
    broker = alone(count=1)
    broker.shards.tick(10.0)
    broker.shards.alarmed(0, "it has lost messages", 10.0)
    broker.take()
    assert (broker.shards[0].phase, broker.shards[0].alarm) == (ShardPhase.ALARMED, "it has lost messages")
    for second in range(11, 40):
        broker.shards.tick(float(second))
    assert broker.claims() == []
    broker.shards.tick(40.0)
    assert broker.claims() == [0]
    assert broker.shards.unusable(0) == "it has lost messages"
    broker.shards.claimed(0, 7, 40.0)
    assert broker.shards.unusable(0) == "it has lost messages"
    broker.shards.owned(0, 41.0)
    assert broker.shards.unusable(0) == ""


def test_an_untrusted_log_has_an_owner_only_when_it_keeps_it() -> None:
    """A broker that looks at it again shows the shard as its own for a moment."""
    broker = alone(count=1)
    broker.shards.tick(10.0)
    broker.shards.alarmed(0, "it has lost messages", 10.0)
    broker.shards.heard("b", "b1", {0: 7}, False, 11.0)
    assert broker.shards.unusable(0) == ""
    broker.shards.heard("b", "b1", {}, False, 12.0)
    assert broker.shards.unusable(0) == "it has lost messages"
    for second in range(13, 24):
        broker.shards.heard("b", "b1", {0: 8}, False, float(second))
    broker.shards.heard("b", "b1", {}, False, 24.0)
    assert broker.shards.unusable(0) == ""


def test_a_released_shard_is_not_taken_back_at_once() -> None:
    broker = alone()
    broker.own(0, 5, 1.0)
    broker.shards.release(0, 2.0)
    broker.shards.release(0, 2.0)
    assert broker.take() == [("release", 0, 2.0)]
    assert broker.shards.epochs == {0: 5}  # until the release is in the log
    broker.shards.released(0, 3.0)
    assert broker.shards.epochs == {}
    broker.shards.tick(3.0)
    assert broker.claims() == []
    broker.shards.tick(5.0)
    assert broker.claims() == [0]


def test_a_broker_that_stops_gives_everything_up_and_takes_nothing() -> None:
    broker = alone()
    broker.own(0, 5, 1.0)
    broker.own(1, 6, 1.0)
    broker.shards[2].phase = ShardPhase.CLAIMING
    broker.shards.drain(2.0)
    assert broker.take() == [("release", 0, 2.0), ("release", 1, 2.0)]
    broker.shards.released(0, 3.0)
    broker.shards.released(1, 3.0)
    assert not broker.shards.is_drained
    broker.shards.claimed(2, 9, 4.0)
    broker.shards.owned(2, 4.0)
    assert broker.take() == [("release", 2, 4.0)]
    broker.shards.released(2, 5.0)
    assert broker.shards.is_drained
    broker.shards.tick(100.0)
    assert broker.take() == []


# ---------------------------------------------------------------- nobody else takes shards


def test_the_last_broker_that_stops_keeps_what_is_in_use_and_takes_it_back() -> None:
    """Nobody else will put the outcomes of running jobs into the log."""
    broker = alone()
    broker.own(0, 5, 1.0)
    broker.own(1, 6, 1.0)
    broker.shards.heard("b", "b1", {2: 7}, True, 1.0)
    broker.in_use = [1, 2]
    broker.shards.drain(2.0)
    assert broker.take() == [("release", 0, 2.0)]
    broker.shards.heard("b", "b1", {}, True, 3.0)
    broker.shards.tick(3.0)
    assert broker.take() == [("claim", 2, 3.0)]
    broker.in_use = []
    broker.shards.tick(4.0)
    assert broker.take() == [("release", 1, 4.0)]
    broker.shards.claimed(2, 9, 4.0)
    broker.shards.owned(2, 4.0)
    assert broker.take() == [("release", 2, 4.0)]


def test_a_broker_that_stops_gives_what_is_in_use_to_one_that_stays_even_if_it_rests() -> None:
    for is_resting in (False, True):
        broker = alone()
        broker.own(0, 5, 1.0)
        broker.in_use = [0, 1]
        broker.shards.heard("b", "b1", {}, False, 1.0, is_resting=is_resting)
        broker.shards.drain(2.0)
        broker.shards.unowned(1, 2.0)
        broker.shards.tick(2.0)
        assert broker.take() == [("release", 0, 2.0)]


def test_the_last_broker_gives_up_what_is_in_use_when_its_time_has_passed() -> None:
    broker = alone()
    broker.own(0, 5, 1.0)
    broker.in_use = [0, 1]
    broker.shards.drain(2.0)
    assert broker.take() == []
    broker.shards.give_up(32.0)
    broker.shards.unowned(1, 32.0)
    broker.shards.tick(32.0)
    assert broker.take() == [("release", 0, 32.0)]


def test_a_broker_that_rests_keeps_its_shards_until_another_one_takes_them() -> None:
    """All brokers were released within a minute, and no shard had an owner until the first one took shards again."""
    broker = alone()
    broker.own(0, 5, 1.0)
    broker.shards.heard("b", "b1", {}, False, 1.0, is_resting=True)
    broker.shards.rest(2.0, 60.0)
    assert (broker.take(), broker.shards.takes_shards(2.0)) == ([], False)
    broker.shards.heard("b", "b1", {}, False, 3.0)
    broker.shards.tick(3.0)
    assert broker.take() == [("release", 0, 3.0)]


def test_brokers_that_rest_take_a_free_shard_in_turns_if_nobody_else_does() -> None:
    brokers = [alone() for _ in NAMES]
    for broker, name in zip(brokers, NAMES, strict=True):
        broker.shards = Shards("c", name, f"{name}1", 4, broker, 0.0, hearing=broker.hearing)
    claims: list[tuple[float, str]] = []
    for tenth in range(10, 60):
        now = 0.1 * tenth
        for broker in brokers:
            for other in NAMES:
                broker.shards.heard(other, f"{other}1", {}, False, now, is_resting=True)
            if tenth == 10:
                broker.shards.rest(now, 60.0)
                broker.shards.unowned(3, now)
            broker.shards.tick(now)
        claims += [(round(now, 1), name) for broker, name in zip(brokers, NAMES, strict=True) if broker.claims()]
    turns = order("c", 3, dict.fromkeys(NAMES, 0))
    assert claims == [(2.0, turns[0]), (3.0, turns[1]), (4.0, turns[2])]


def test_a_broker_that_rests_leaves_free_shards_to_others_and_has_no_turn_before_them() -> None:
    for shard in range(4):
        resting, other = alone(), alone()
        other.shards = Shards("c", "b", "b1", 4, other, 0.0, hearing=other.hearing)
        resting.shards.rest(1.0, 60.0)
        resting.shards.heard("b", "b1", {}, False, 1.0)
        other.shards.heard("a", "a1", {}, False, 1.0, is_resting=True)
        for each in (resting, other):
            each.shards.unowned(shard, 1.0)
            each.shards.tick(1.0)
        assert (resting.claims(), other.claims()) == ([], [shard])


def test_nothing_is_given_up_for_the_balance_to_a_broker_that_rests() -> None:
    """Its shards went around: the one with the most gave one up each second, and another one took it."""
    broker = alone(count=4)
    for shard in range(4):
        broker.own(shard, shard + 1, 0.0)
    for second in range(5, 30):
        broker.shards.heard("b", "b1", {}, False, float(second), is_resting=True)
        broker.shards.tick(float(second))
    assert broker.take() == []


# ---------------------------------------------------------------- balance


def test_the_broker_with_the_most_gives_up_its_emptiest_shard_to_one_with_two_fewer() -> None:
    broker = alone(count=6)
    for shard in range(5):
        broker.own(shard, shard + 1, 0.0)
    broker.loads = {0: 9, 1: 3, 2: 0, 3: 0, 4: 7}

    def hear(now: float, b: dict[int, int], c: dict[int, int]) -> None:
        broker.shards.heard("b", "b1", b, False, now)
        broker.shards.heard("c", "c1", c, False, now)

    hear(9.0, {5: 9}, {})
    broker.shards.tick(9.0)
    assert broker.take() == []
    hear(10.0, {5: 9}, {})
    broker.shards.tick(10.0)
    assert broker.take() == [("release", 2, 10.0)]
    broker.shards.released(2, 10.5)
    hear(10.5, {5: 9}, {2: 10})
    hear(20.0, {5: 9}, {2: 10})
    broker.shards.tick(20.0)
    assert broker.take() == [("release", 3, 20.0)]
    broker.shards.released(3, 20.5)
    hear(20.5, {5: 9, 3: 11}, {2: 10})
    hear(30.0, {5: 9, 3: 11}, {2: 10})
    broker.shards.tick(30.0)
    assert broker.take() == [("release", 1, 30.0)]
    broker.shards.released(1, 30.5)
    hear(31.0, {5: 9, 3: 11}, {2: 10, 1: 12})
    for second in range(31, 60):
        hear(float(second), {5: 9, 3: 11}, {2: 10, 1: 12})
        broker.shards.tick(float(second))
    assert broker.take() == []


def test_shards_with_few_jobs_follow_each_other_and_those_with_many_wait() -> None:
    """A first broker with twelve empty shards took 80 seconds to share them out."""

    def check(jobs: int, releases: list[float]) -> None:
        broker = alone(count=6)
        for shard in range(6):
            broker.own(shard, shard + 1, 0.0)
        broker.loads = dict.fromkeys(range(6), jobs)
        theirs: dict[int, int] = {}
        found = []
        for second in range(1, 40):
            now = float(second)
            broker.shards.heard("b", "b1", theirs, False, now)
            broker.shards.tick(now)
            for _, shard, at in broker.take():
                found.append(at)
                assert isinstance(shard, int)
                broker.shards.released(shard, now)
                theirs = theirs | {shard: 10 + shard}  # heard a second later
        assert found == releases

    check_every_row(check, [(0, [10.0, 11.0, 12.0]), (1000, [10.0, 11.0, 12.0]), (1001, [10.0, 20.0, 30.0])])


def test_a_broker_with_a_wrong_clock_does_not_own_the_shard_of_the_schedules() -> None:
    broker = alone(count=2)
    for shard in range(2):
        broker.own(shard, shard + 1, 0.0)
    broker.shards.has_wrong_clock = True
    broker.shards.tick(1.0)
    assert broker.take() == [("release", 0, 1.0)]
    broker.shards.released(0, 1.5)
    broker.shards.tick(50.0)
    assert broker.take() == [], "nobody has it, but it waits for its clock"
    broker.shards.has_wrong_clock = False
    broker.shards.tick(51.0)
    assert broker.claims() == [0]


def test_nothing_is_given_up_to_a_broker_that_stops_or_is_silent() -> None:
    broker = alone(count=4)
    for shard in range(4):
        broker.own(shard, shard + 1, 0.0)
    broker.shards.heard("silent", "s1", {}, False, 1.0)
    for second in range(5, 30):
        broker.shards.heard("stops", "s1", {}, True, float(second))
        broker.shards.tick(float(second))
    assert broker.take() == []


def test_settings_have_limits() -> None:
    with pytest.raises(ValueError, match="above 0"):
        ShardSettings(turn=0.0)

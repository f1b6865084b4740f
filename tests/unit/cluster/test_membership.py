"""Brokers that do not belong to the cluster: those with the logs of another one, and those whose name is taken."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.cluster.gossip import Gossip, encode_gossip
from dragoman.cluster.jetstream import ApiError, StreamState
from dragoman.cluster.log import Expected
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.membership import MAX_STRANGERS, REMIND_EVERY, STRANGER_FOR
from dragoman.cluster.names import Subjects
from dragoman.cluster.records import VERSION, Ask, Packet, encode_packet, encode_records, read_packet
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.store import ShardStore

from .shard_world import SHARDS, TIMES, ShardNode, ShardWorld
from .world import Node, World

GOSSIP = Subjects("test").gossip


class SilentLog(LogIO):
    """A log that does not answer."""

    def inspect(self, done: Callable[[StreamState | ApiError, float], None], now: float) -> None:
        pass


def learn(node: Node, identity: str) -> None:
    """Let a broker know the layout of its logs."""
    facts = (node.broker, node.side.hub, ShardStore(lambda: node.world.now), "test", "1", Expected(identity, 1))
    keeper = ShardKeeper(*facts, [SilentLog()], TIMES, node.world.now)
    node.side.keep_shards(keeper, node.world.now)


class Recorded(World):
    """`sent`: messages of each run, and their subjects."""

    def __init__(self, *names: str) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        super().__init__(*names)

    def publish(self, subject: bytes, payload: bytes) -> None:
        self.sent.append((subject, payload))
        super().publish(subject, payload)


def joined(*names: str) -> World:
    world = World(*names)
    world.run(1.5)
    return world


# -------------------------------------------------------------------- the logs of another cluster


def test_brokers_of_two_clusters_with_one_name_ignore_each_other() -> None:
    """They took each other's jobs, answered each other's questions and counted as peers."""
    world = World("a", "b", "old")
    a, b, old = (world.nodes[name] for name in ("a", "b", "old"))
    for node, identity in ((a, "new"), (b, "new"), (old, "former")):
        learn(node, identity)
    old.worker("s")
    world.run(3.0)
    assert [list(node.side.peers) for node in (a, b, old)] == [["b"], ["a"], []]
    assert "s" not in a.broker.worker_registry.services
    assert [node.remarks.count("broker ignored") for node in (a, b, old)] == [1, 1, 2]
    [problem] = a.side.membership.problems(world.now)
    assert problem.startswith("broker old is ignored: ")
    assert "(former; here new)" in problem
    b.worker("s")
    world.run()
    a.call()
    world.run()
    assert (len(b.local.sent), len(old.local.sent)) == (1, 0)


def test_a_broker_that_does_not_know_the_layout_takes_calls() -> None:
    world = World("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    learn(a, "new")
    b.worker("s")
    world.run(2.0)
    a.call()
    world.run()
    assert len(b.local.sent) == 1


def test_a_peer_is_dropped_when_its_layout_turns_out_to_be_another_one() -> None:
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker("s")
    learn(a, "new")
    world.run(1.5)
    a.call()
    world.run()
    assert len(b.local.sent) == 1
    learn(b, "former")
    world.run(1.5)
    assert not a.side.peers
    assert not b.side.peers
    assert "s" not in a.broker.worker_registry.services or not a.broker.worker_registry.services["s"].workers
    assert "broker left" in a.remarks


def test_links_carry_the_identity_and_those_of_another_cluster_are_ignored() -> None:
    """Nothing but packets of this broker is heard: its gossip was lost."""
    world = joined("a", "b")
    a, b = world.nodes["a"], world.nodes["b"]
    for node in (a, b):
        learn(node, "new")
    world.run(1.5)
    a.side.peers["b"].link.add(Ask(1, "health", b"{}", "local"))
    [packet] = a.side.peers["b"].link.flush(world.now)
    assert read_packet(packet).identity == "new"
    for broker, identity in (("c", "former"), ("d", "new"), ("e", "")):
        own = Packet(VERSION, broker, "run", 1, 0, True, encode_records([Ask(1, "health", b"{}", "local")]), 1)
        world.publish(Subjects("test").broker("a", a.side.incarnation), encode_packet(replace(own, identity=identity)))
    world.run()
    assert sorted(a.side.peers) == ["b", "d", "e"]


def test_strangers_are_forgotten_when_they_are_silent_and_bounded() -> None:
    world = joined("a")
    a = world.nodes["a"]
    learn(a, "new")
    for number in range(MAX_STRANGERS + 10):
        world.publish(GOSSIP, encode_gossip(Gossip(VERSION, f"old{number}", "run", identity="x" * 10_000)))
    world.run()
    found = a.side.membership.strangers(world.now)
    assert len(found) == MAX_STRANGERS
    assert len(found[0].identity) == 64
    world.run(STRANGER_FOR)
    assert a.side.membership.problems(world.now) == []


def test_a_broker_of_another_cluster_does_not_take_the_name_of_one() -> None:
    """Brokers of a former cluster still run when the new one starts, with the same names."""
    world = joined("a")
    old = world.nodes["a"]
    learn(old, "former")
    world.run(2.0)
    new = world.start("a", key="new a")
    world.run(2.0)
    assert new.side.membership.refusal()
    learn(new, "new")
    world.run(1.5)
    assert not new.side.membership.refusal()
    assert new.published
    assert not old.side.membership.refusal()


# -------------------------------------------------------------------- a name that is taken


def test_a_broker_with_the_name_of_another_stays_out_until_that_is_gone() -> None:
    world = Recorded("a", "b")
    world.run(3.0)
    a, b = world.nodes["a"], world.nodes["b"]
    rival = world.start("b", key="another b")
    rival.worker("s")
    world.run(5.0)
    assert a.side.peers["b"].incarnation == b.side.incarnation
    assert "is named b and was started before this one" in rival.side.membership.refusal()
    assert rival.side.membership.problems(world.now) == [rival.side.membership.refusal()]
    assert not rival.published
    assert "s" not in a.broker.worker_registry.services
    assert not b.side.membership.refusal()
    world.freeze("b")
    world.run(6.0)
    assert a.side.peers["b"].incarnation == rival.side.incarnation
    assert not rival.side.membership.refusal()
    assert "broker name freed" in rival.remarks
    a.call()
    world.run()
    assert len(rival.local.sent) == 1


def test_a_taken_name_is_logged_once_in_a_while() -> None:
    """It was logged for each gossip of the older broker, up to 50 times a second."""
    world = joined("b")
    older = world.nodes["b"]
    rival = world.start("b", key="another b")
    for _ in range(20):
        older.worker("s")
        world.run(0.5)
    assert rival.remarks.count("broker name taken") == 1
    world.run(REMIND_EVERY)
    assert rival.remarks.count("broker name taken") == 2


def test_time_without_nats_is_not_taken_for_the_end_of_the_older_broker() -> None:
    world = joined("b")
    rival = world.start("b", key="another b")
    world.run(3.0)
    rival.cut()
    world.cut("b")
    older = world.freeze("b")
    world.run(5.0)
    world.heal("b")
    world.run(2.0)
    assert rival.side.shares.granter.listens_from > world.now, "it grants no shares before it has heard the others"
    world.nodes["b"] = older
    world.run(2.0)
    assert rival.side.membership.refusal()
    assert not rival.published


def test_a_broker_that_was_killed_and_starts_again_does_not_wait() -> None:
    world = joined("a", "b")
    world.run(3.0)
    world.freeze("b")
    again = world.start("b")
    world.run(1.5)
    assert world.nodes["a"].side.peers["b"].incarnation == again.side.incarnation
    assert "broker name taken" not in again.remarks


def replaced(*names: str) -> tuple[ShardWorld, ShardNode, ShardNode]:
    """Return a world in which b was frozen, the older run of b, and the younger run, which has shards."""
    world = ShardWorld(*names)
    world.wait_for_owners()
    world.run(20.0)
    older = world.freeze("b")
    assert isinstance(older, ShardNode)
    younger = world.start("b")
    world.run_until(lambda: younger.owned)
    return world, older, younger


def test_a_broker_gives_its_shards_up_when_an_older_one_of_its_name_is_back() -> None:
    world, older, younger = replaced("b")
    world.wait_for_owners()
    world.nodes["older b"] = older
    world.run(4.0)
    assert not younger.owned
    assert not younger.keeper.shards.epochs
    assert younger.side.membership.refusal()


def test_shards_have_owners_while_two_brokers_have_one_name() -> None:
    world, older, younger = replaced("a", "b")
    world.nodes["older b"] = older
    world.run_until(lambda: not younger.owned)
    world.run_until(lambda: len(world.node("a").owned) + len(older.owned) == SHARDS)
    world.run(10.0)
    assert not younger.owned
    del world.nodes["older b"]
    world.run_until(lambda: younger.owned)

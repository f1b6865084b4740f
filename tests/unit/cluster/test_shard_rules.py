"""C9 and C10, and other attacks on shards: logs that someone has damaged, another cluster, one name twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from case_tables import check_every_row
from dragoman.carriers.carrier import Frame
from dragoman.cluster.shards import ShardPhase
from log_model import ModelLog

from .shard_world import SHARDS, TIMES, ShardNode, ShardWorld
from .test_shard_jobs import enqueue, world_with_workers
from .world import STEP

# ---------------------------------------------------------------- C9: a log that cannot be trusted is never claimed


def remove_a_message(log: ModelLog) -> None:
    del log.messages[log.last - 1]


def purge_everything(log: ModelLog) -> None:
    log.purge(log.last + 1)


def restore_an_older_copy(log: ModelLog) -> None:
    for sequence in range(log.last - 2, log.last + 1):
        del log.messages[sequence]
    log.last -= 3


def make_anew(log: ModelLog) -> None:
    """The stream was deleted, and made again by `cluster init`."""
    log.messages.clear()
    log.first, log.last, log.identity = 1, 0, "another"


def make_empty(log: ModelLog) -> None:
    """The stream was deleted, and made again with its old identity."""
    log.messages.clear()
    log.first, log.last = 1, 0


def write_nonsense(log: ModelLog) -> None:
    log.messages[log.last - 1] = (b"nonsense", 0)


def lose_copies(log: ModelLog) -> None:
    log.replicas = 1


DAMAGES: tuple[Callable[[ModelLog], None], ...] = (
    remove_a_message, purge_everything, restore_an_older_copy, make_anew, make_empty, write_nonsense, lose_copies,
)  # fmt: skip


def test_a_damaged_log_is_never_claimed_and_the_others_are() -> None:
    """C9: the owner is gone, and the log was damaged meanwhile. The broker that is left says so, and has the others."""

    def check(damage: Callable[[ModelLog], None]) -> None:
        world = world_with_workers("a", "b")
        ids = [enqueue(world, b"job %d" % number) for number in range(12)]
        (left,) = [each for each in world.all_nodes if each.name == "b"]
        victim = world.node("a").owned[0]
        world.run(2.0)  # its gossip and its look at the log have told how far the log had come
        world.freeze("a")
        damage(world.logs[victim])
        world.run(40.0)
        phases = [left.keeper.shards[number].phase for number in range(SHARDS)]
        expected = [ShardPhase.ALARMED if number == victim else ShardPhase.OWNED for number in range(SHARDS)]
        assert phases == expected, phases
        assert left.keeper.shards[victim].alarm
        assert "shard log unusable" in left.remarks
        assert all(world.find(id) is not None for id in ids if left.keeper.shard_of(id) != victim)

    check_every_row(check, [(each,) for each in DAMAGES])


def test_a_log_that_was_purged_up_to_a_later_claim_is_not_claimed() -> None:
    """C9: it begins with a claim, as after a cleaning, so it looked whole, and its jobs had never existed."""
    world = world_with_workers("a", "b")
    for number in range(12):
        enqueue(world, b"job %d" % number)
    left = world.node("b")
    victim = world.node("a").owned[0]
    world.freeze("a")
    world.run_until(lambda: len(left.owned) == SHARDS, 60.0)
    claim = left.keeper.shards[victim].epoch
    assert claim > 1
    world.freeze("b")
    world.logs[victim].purge(claim)
    third = world.start("c")
    world.run_until(lambda: len(third.owned) == SHARDS - 1, 90.0)
    assert third.keeper.shards[victim].phase is ShardPhase.ALARMED
    assert f"the log begins with {claim}, and was cleaned up to 1" in third.keeper.shards[victim].alarm


# ---------------------------------------------------------------- C10: the number of messages


def messages(workers: int, seconds: float = 30.0) -> int:
    """Return the messages of two brokers in a while without jobs."""
    world = world_with_workers("a", "b")
    for _ in range(workers):
        world.node("a").worker("s")
    world.run(15.0)
    before = sum(each.published for each in world.all_nodes)
    world.run(seconds)
    return sum(each.published for each in world.all_nodes) - before


def test_the_number_of_messages_does_not_grow_with_workers() -> None:
    """C10"""
    assert abs(messages(200) - messages(1)) <= 4


def test_the_number_of_messages_of_a_job_does_not_grow_with_its_length() -> None:
    """C10: heartbeats of workers, and the time that a job runs, stay at their broker."""

    def run(seconds: float) -> int:
        world: ShardWorld = world_with_workers("a", "b")
        other = world.node("b")
        other.worker("s", capacity=20)
        for number in range(10):
            enqueue(world, b"job %d" % number)
        world.run(seconds)
        before = sum(each.published for each in world.all_nodes)
        world.work()
        world.run(5.0)
        return sum(each.published for each in world.all_nodes) - before

    assert abs(run(1.0) - run(31.0)) <= 4


# ---------------------------------------------------------------- one name twice


def test_a_second_broker_of_one_name_claims_nothing_and_runs_nothing() -> None:
    world = world_with_workers("a", "b")
    owned = [each.owned for each in world.all_nodes]
    twin = world.start("a", key="twin")
    twin.worker("s", capacity=5)
    world.run(30.0)
    assert [each.owned for each in world.all_nodes] == [*owned, []]
    assert twin.enqueue(b"x") is None
    assert enqueue(world, b"y")
    world.run(2.0)
    assert not world.runs


class SilentServer:
    """A NATS server that stands still for one broker: what the broker sends waits in it, and what it should get, too.

    Requests end with their time-out meanwhile, and are executed when the server goes on."""

    def __init__(self, node: ShardNode) -> None:
        self._node = node
        self._world = node.shard_world
        self._arriving: list[tuple[bytes, bytes]] = []
        self._requests: list[tuple[float, Callable[[], Callable[[], None]], Callable[[], None] | None]] = []
        self._sent: list[Sequence[Frame]] = []
        self._send, node.client._send = node.client._send, self._sent.append

    def run(self, seconds: float) -> None:
        until = self._world.now + seconds
        while self._world.now < until:
            node, now = self._node, self._world.now
            self._requests += [(now, execute, fail) for execute, fail in node.requests]
            self._arriving += node.inbox
            node.requests, node.inbox = [], []
            for index, (made, execute, fail) in enumerate(self._requests):
                if fail is not None and now >= made + 1.0:
                    self._requests[index] = made, execute, None
                    fail()
            self._world.run(STEP)

    def go_on(self) -> None:
        """Deliver everything."""
        self._node.client._send = self._send
        for frames in self._sent:
            self._send(frames)
        for _, execute, fail in self._requests:
            answer = execute()
            if fail is not None:
                self._node.answers.append(answer)
        self._node.inbox = self._arriving + self._node.inbox


def test_a_broker_behind_a_silent_nats_server_takes_no_shard_of_a_living_broker() -> None:
    """R247: after ten seconds it took all others for gone. When the server went on, its claims waited there, and took
    their shards."""
    world = ShardWorld("a", "b", "c")
    world.run_until(lambda: [len(each.owned) for each in world.nodes.values()] == [1, 1, 1], 60.0)
    world.run(2.0)
    a, b, c = (world.node(name) for name in "abc")
    server = SilentServer(a)
    server.run(5.0 * TIMES.adopt_after)
    assert "broker left" not in a.remarks
    server.go_on()
    world.run(2.0 * TIMES.adopt_after)
    assert "shard lost" in a.remarks  # the others had to adopt it
    assert "shard lost" not in b.remarks + c.remarks
    assert a.keeper.claims.get("won") == 2  # at the start, and when one was given back to it

"""Keys of batches in a cluster: one key of one owner, one job, whatever is killed (C6)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from shard_operations_world import SHARDS, ShardNode, ShardWorld

from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.reservations import LOOK_EVERY
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView


def error(view: Any) -> tuple[str, str]:
    assert isinstance(view, ErrorView), view
    return view.kind, view.detail


def two(*more: str) -> tuple[ShardWorld, ShardNode, ShardNode]:
    world = ShardWorld("a", "b", *more)
    return world, world.nodes["a"], world.nodes["b"]


def shard_of(id: str) -> int:
    return int(id[-2:], 16)


def key_of(shard: int, service: str = "s") -> str:
    return next(key for key in map(str, range(999)) if shard_of_key("local", service, key, SHARDS) == shard)


def id_in(shard: int, number: int = 1) -> str:
    return f"{number:02x}" * 15 + f"{shard:02x}"


def batch(node: ShardNode, *keys: str | None, shard: int, first: int = 1, **fields: Any) -> Any:
    """Enqueue a batch in a shard, with jobs of these keys."""
    jobs = [
        BatchJob(id=id_in(shard, first + place), key=key, payload=f"payload {key}") for place, key in enumerate(keys)
    ]
    return node.ask("enqueue many", service="s", jobs=tuple(jobs), **fields)


def jobs_with(world: ShardWorld, key: str) -> list[str]:
    """Return the jobs with a key in the whole cluster."""
    return [
        job.id.hex()
        for node in world.nodes.values()
        for job in node.broker.jobs.values()
        if job.options.durable and job.key == key
    ]


def test_keys_of_a_batch_are_unique_in_the_cluster() -> None:
    world, a, b = two()
    shard = a.owned()[0]
    keys = [key_of(number) for number in range(SHARDS)]
    ids = batch(a, *keys, None, shard=shard).jobs
    assert [shard_of(id) for id in ids] == [shard] * (SHARDS + 1)
    assert len(world.notes("key/")) == SHARDS - 1
    for node in (a, b):
        for key, id in zip(keys, ids, strict=False):
            assert node.enqueue(body=f"payload {key}".encode(), key=key) == id
            assert error(node.ask("enqueue", b"other", service="s", key=key))[0] == "key reused"
            found = node.ask("find job", service="s", key=key)
            assert (found.id, found.key, found.broker) == (id, key, "a")
    assert batch(b, *keys, None, shard=shard).jobs == ids, "the same batch was sent again"
    again = batch(b, *keys, shard=b.owned()[0], first=50)
    assert again.jobs == ids[:-1], "another batch returns the first jobs"
    assert sum(len(jobs_with(world, key)) for key in keys) == SHARDS


def test_a_batch_is_refused_as_a_whole_if_a_key_came_with_another_payload() -> None:
    world, a, b = two()
    shard, other = a.owned()[0], b.owned()
    keys = [key_of(a.owned()[1]), key_of(other[0]), key_of(other[1])]
    first = b.enqueue(body=b"another", key=keys[2])
    kind, detail = error(batch(a, *keys, shard=shard))
    assert (kind, detail) == ("key reused", f"jobs[2]: '{keys[2]}' came with another payload before")
    world.run(1.0)
    assert world.notes("key/") == [], "the other keys are free again"
    assert [jobs_with(world, key) for key in keys] == [[], [], [first]]
    assert b.enqueue(body=b"new", key=keys[0]) != b.enqueue(body=b"new", key=keys[1])


def test_a_job_that_has_a_key_of_a_batch_takes_the_place_of_the_new_one() -> None:
    world, a, b = two()
    keys = [key_of(number) for number in range(SHARDS)]
    first = b.enqueue(body=f"payload {keys[2]}".encode(), key=keys[2])
    ids = batch(a, *keys, shard=a.owned()[0]).jobs
    assert ids[2] == first
    assert all(jobs_with(world, key) == [id] for key, id in zip(keys, ids, strict=True))
    kind, detail = error(batch(a, *keys, shard=a.owned()[0], first=20, group=True))
    assert (kind, "a job of a group must be a new one" in detail) == ("key reused", True)


def test_two_jobs_of_a_batch_with_one_key_are_one_job() -> None:
    world, a, b = two()
    key = key_of(b.owned()[0])
    ids = batch(a, key, key, shard=a.owned()[0]).jobs
    assert ids == [ids[0]] * 2
    assert jobs_with(world, key) == ids[:1]


def test_jobs_of_a_group_have_keys() -> None:
    world, a, b = two()
    b.worker("s")
    keys = [key_of(number) for number in range(SHARDS)]
    view = batch(a, *keys, shard=a.owned()[0], group=True)
    world.work_until(lambda: b.ask("group", id=view.group).done == SHARDS)
    assert b.enqueue(body=f"payload {keys[2]}".encode(), key=keys[2]) == view.jobs[2]
    assert b.payload == f"PAYLOAD {keys[2]}".encode(), "it has ended, so its result is returned"


def test_a_key_is_free_when_its_job_is_deleted() -> None:
    world, a, b = two()
    b.worker("s")
    key = key_of(b.owned()[0])
    [id] = batch(a, key, shard=a.owned()[0]).jobs
    world.work_until(lambda: world.outcome(id))
    a.ask("delete", id=id)
    assert error(b.ask("find job", service="s", key=key))[0] == "not found"
    again = b.enqueue(body=b"another", key=key)
    assert shard_of(again) == b.owned()[0]
    world.run(1.0)
    assert world.notes("key/") == []


def test_reservations_of_jobs_that_are_gone_do_not_pile_up() -> None:
    world, a, b = two()
    b.worker("s")
    gone, stays = key_of(b.owned()[0]), key_of(b.owned()[1])
    ids = batch(a, gone, stays, shard=a.owned()[0]).jobs
    world.work_until(lambda: all(map(world.outcome, ids)))
    a.ask("delete", id=ids[0])
    assert len(world.notes("key/")) == 2
    world.run(12.0)
    assert len(world.notes("key/")) == 2
    for key in (gone, stays):
        reserved = b.keeper.keys.find(("local", "s", key))
        assert reserved is not None
        assert world.now < reserved.look_at <= world.now + LOOK_EVERY
        reserved.look_at = world.now
    world.run(12.0)
    [left] = world.notes("key/")
    assert f'"{stays}"' in left


def test_the_retry_of_a_job_of_a_batch_has_its_key() -> None:
    world, a, b = two()
    b.worker("s")
    key = key_of(b.owned()[0])
    [id] = batch(a, key, shard=a.owned()[0], attempts=1).jobs
    world.work_until(lambda: a.job(id).quarantined, fails=True)
    again = b.ask("retry", id=id).id
    assert b.enqueue(body=f"payload {key}".encode(), key=key) == again


# -------------------------------------------------------------------- brokers that are killed


class Killed:
    """A batch of a, with a key of a shard of b, while c looks on. A broker is killed when it has done a part."""

    def __init__(self) -> None:
        self.world = ShardWorld("a", "b", "c")
        self.a, self.b, self.c = (self.world.nodes[name] for name in "abc")
        self.shard, self.home = self.a.owned()[0], self.b.owned()[0]
        self.key = key_of(self.home)
        self.id = id_in(self.shard)
        self.job = BatchJob(id=self.id, key=self.key, payload="payload")

    def begin(self) -> Any:
        return self.a.begin("enqueue many", service="s", jobs=(self.job,))

    def kill(self, name: str) -> None:
        self.world.freeze(name)
        self.world.wait_for_owners()

    def only_job(self) -> str:
        """Enqueue a job with the key. Returns the only job that has it."""
        id = self.c.enqueue(body=b"payload", key=self.key)
        self.world.run(1.0)
        assert jobs_with(self.world, self.key) == [id]
        assert self.c.enqueue(body=b"payload", key=self.key) == id
        return id


def test_a_key_is_free_if_the_broker_of_the_batch_dies_before_the_commit() -> None:
    test = Killed()
    test.world.block(test.shard)
    answer = test.begin()
    test.world.run_until(lambda: test.world.blocked[test.shard])
    assert len(test.world.notes("key/")) == 1
    test.world.freeze("a")
    test.world.unblock(test.shard)
    test.world.wait_for_owners()
    assert answer.responses == []
    assert test.only_job() != test.id
    assert test.world.notes("key/") == []


def test_a_key_belongs_to_the_batch_if_its_broker_dies_after_the_commit() -> None:
    test = Killed()
    answer = test.begin()
    log = test.world.logs[test.shard]
    before = log.last
    test.world.run_until(lambda: log.last > before)
    assert answer.responses == []
    test.kill("a")
    assert test.only_job() == test.id


def test_a_batch_can_be_repeated_if_the_owner_of_its_key_dies_before_it_answers() -> None:
    test = Killed()
    answer = test.begin()
    log = test.world.logs[test.home]
    before = log.last
    test.world.run_until(lambda: log.last > before)
    test.kill("b")
    test.world.run_until(lambda: answer.responses)
    assert error(answer.responses[0])[0] == "partitioned"
    assert len(test.world.notes("key/")) <= 1
    assert test.c.ask("enqueue many", service="s", jobs=(test.job,)).jobs == [test.id]
    assert test.only_job() == test.id


def test_a_reservation_survives_the_owner_of_the_key() -> None:
    test = Killed()
    answer = test.begin()
    test.world.run_until(lambda: answer.responses)
    test.kill("b")
    assert test.only_job() == test.id
    test.world.start("b")
    test.world.wait_for_balance()
    test.kill("a")
    assert test.only_job() == test.id


def test_a_request_with_the_key_waits_while_the_batch_is_accepted() -> None:
    test = Killed()
    test.world.block(test.shard)
    answer = test.begin()
    test.world.run_until(lambda: test.world.notes("key/"))
    second = test.c.begin("enqueue", b"payload", service="s", key=test.key)
    test.world.run(1.0)
    assert not answer.responses
    assert not second.responses
    test.world.unblock(test.shard)
    test.world.run_until(lambda: answer.responses and second.responses)
    assert [answer.responses[0].jobs, second.responses[0].id] == [[test.id], test.id]


def test_an_owner_of_an_older_epoch_does_not_free_a_key() -> None:
    """It has lost the shard of the batch, and does not know that yet."""
    test = Killed()
    answer = test.begin()
    test.world.run_until(lambda: answer.responses)
    test.a.worker("s")
    test.world.work_until(lambda: test.world.outcome(test.id))
    test.a.ask("delete", id=test.id)
    reserved = test.b.keeper.keys.find(("local", "s", test.key))
    assert reserved is not None
    reserved.epoch += 1  # as if a later owner had accepted the job
    assert error(test.b.ask("enqueue", b"payload", service="s", key=test.key))[0] == "partitioned"
    assert len(test.world.notes("key/")) == 1


def test_a_batch_is_refused_if_its_shard_has_moved_while_its_keys_were_reserved() -> None:
    """Another owner may have answered that there is no such job, also if the first one has the shard again."""
    test = Killed()
    test.world.block(test.home)
    answer = test.begin()
    test.world.run_until(lambda: test.world.blocked[test.home])
    test.a.keeper.shards[test.shard].epoch += 1
    test.world.unblock(test.home)
    test.world.run_until(lambda: answer.responses)
    assert error(answer.responses[0])[0] == "partitioned"
    test.world.run(1.0)
    assert test.world.notes("key/") == []


def test_a_key_of_the_shard_of_the_batch_is_held_while_others_are_reserved() -> None:
    """Another batch got the key while the first one waited for the owner of another key."""
    test = Killed()
    own = key_of(test.shard)
    jobs = (test.job, BatchJob(id=id_in(test.shard, 2), key=own, payload="own"))
    test.world.block(test.home)
    answer = test.a.begin("enqueue many", service="s", jobs=jobs)
    test.world.run_until(lambda: test.world.blocked[test.home])
    other = BatchJob(id=id_in(test.c.owned()[0], 3), key=own, payload="own")
    second = test.c.begin("enqueue many", service="s", jobs=(other,))
    test.world.run(1.0)
    assert not second.responses
    test.world.unblock(test.home)
    test.world.run_until(lambda: answer.responses and second.responses)
    assert answer.responses[0].jobs == [test.id, id_in(test.shard, 2)]
    assert second.responses[0].jobs == [id_in(test.shard, 2)]
    assert jobs_with(test.world, own) == [id_in(test.shard, 2)]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 103, 126, 174])
def test_one_key_has_one_job_whatever_is_killed_or_frozen(seed: int) -> None:
    random = Random(seed)
    world = ShardWorld("a", "b", "c")
    keys = [key_of(shard) for shard in range(SHARDS)] + ["more", "and more"]
    asked: list[tuple[list[str | None], Any]] = []
    frozen: list[tuple[str, ShardNode]] = []
    for number in range(1, 60):
        node = random.choice(list(world.nodes.values()))
        chosen = random.sample(keys, random.randint(1, 3))
        if random.random() < 0.5:
            shard = random.randrange(SHARDS)
            jobs = [
                BatchJob(id=f"{number:02x}{place:02x}" * 7 + f"00{shard:02x}", key=key, payload=key)
                for place, key in enumerate(chosen)
            ]
            for _ in range(random.choice((1, 1, 2))):
                asked.append((list(chosen), node.begin("enqueue many", service="s", jobs=tuple(jobs))))
        else:
            asked.append((chosen[:1], node.begin("enqueue", chosen[0].encode(), service="s", key=chosen[0])))
        world.run(random.choice((0.0, 0.02, 0.05, 0.2, 1.0)))
        fate = random.random()
        if fate < 0.08 and len(world.nodes) > 2:
            name = random.choice(list(world.nodes))
            frozen.append((name, world.freeze(name)))
        elif fate < 0.16 and frozen:
            name, old = frozen.pop(0)
            if random.random() < 0.5:
                world.nodes[name] = old
            else:
                world.start(name)
            world.run(random.choice((0.1, 3.0, 8.0)))
    for name, old in frozen:
        world.nodes[name] = old
    world.wait_for_balance()
    world.run(15.0)
    first: dict[str, str] = {}
    for chosen, responder in asked:
        for view in responder.responses:
            if not isinstance(view, ErrorView):
                ids = view.jobs if hasattr(view, "jobs") else [view.id]
                for key, id in zip(chosen, ids, strict=True):
                    assert first.setdefault(key, id) == id, f"{key} has two jobs"
    for key in keys:
        id = world.nodes["a"].enqueue(body=key.encode(), key=key)
        assert first.setdefault(key, id) == id
        assert jobs_with(world, key) == [id]
    assert len(first) == len(keys)

"""Jobs that come after jobs of other shards, and keys of batches, on real NATS servers: whichever broker is killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import (
    PATIENCE,
    Member,
    enqueue_at,
    initialise,
    start_members,
    start_nats,
    view_of,
    wait_for_balance,
    wait_for_owners,
)

from dragoman import BrokerUnavailable, Client, JobCancelled, JobRefused, NewJob
from dragoman.sdk.errors import OperationError
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0",)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
def members(programs: Programs, nats: NatsServer) -> list[Member]:
    initialise(programs, nats.url)
    made = start_members(programs, nats, listeners=LISTENERS)
    wait_for_balance(made)
    return made


def test_a_job_comes_after_jobs_of_several_brokers(members: list[Member]) -> None:
    first, second, third = members
    one, other = enqueue_at(first, "upper", b"one"), enqueue_at(second, "upper", b"other")
    failing = enqueue_at(second, "fails", b"x", attempts=1)
    with closing(Client(third.url)) as client:
        group = client.enqueue_group("upper", [b"a", b"b"])
        after = client.enqueue("upper", b"", after=[one, other, group], key="chosen", input="results")
        chained = client.enqueue("upper", after=[one], key="chained", input="result")
        cancelled = client.enqueue("upper", b"never", after=[failing, one], key="cancelled")
        assert "in shard" in client.why(after)
        assert client.job(after).state == "dependent"
        first.worker("upper", "upper")
        first.worker("fails", "fails")
        assert client.result(chained, PATIENCE) == b"ONE"
        result = client.result(after, PATIENCE)
        assert all(each in result for each in (b"ONE", b"OTHER", b"A", b"B"))
        with pytest.raises(JobCancelled, match="which it comes after, ended failed"):
            client.result(cancelled, PATIENCE)


def test_a_job_waits_on_when_the_brokers_of_both_shards_are_killed(
    programs: Programs, nats: NatsServer, members: list[Member], tmp_path: Path
) -> None:
    """First the broker dies that has a predecessor that has ended, then the one that has adopted the waiting job."""
    folder = tmp_path / "waits"
    folder.mkdir()
    before = enqueue_at(members[0], "upper", b"before")
    open_one = enqueue_at(members[1], "waits", str(folder).encode(), attempts=20)
    with closing(Client(members[2].url)) as client:
        after = client.enqueue("upper", after=[before, open_one], key="chosen", input="results", attempts=20)
    members[2].worker("upper", "upper")
    until(lambda: (view := view_of(members, before)) is not None and view.outcome == "done", "it is done", PATIENCE)
    members[0].program.kill()
    left = members[1:]
    wait_for_owners(left)
    owner = next(each for each in left if (view := view_of(left, after)) is not None and view.broker == each.name)
    [more] = start_members(programs, nats, ("eu4",), listeners=LISTENERS, known=3)
    wait_for_balance([*left, more])
    owner.program.kill()
    left = [each for each in (*left, more) if each is not owner]
    wait_for_owners(left)
    more.worker("upper", "upper")
    more.worker("waits", "waits")
    (folder / "go").touch()
    until(lambda: (view := view_of(left, after)) is not None and view.outcome == "done", "it is done", PATIENCE)
    with closing(Client(more.url)) as client:
        result = client.result(after, PATIENCE)
    assert b"BEFORE" in result
    assert b"WENT" in result


def test_keys_of_a_batch_have_one_job_each_when_brokers_are_killed(members: list[Member]) -> None:
    """First the broker dies that has the batch, while keys of it belong to shards of others; then one of these."""
    keys = [f"k{number}" for number in range(20)]
    with closing(Client(members[0].url)) as client:
        made = client.enqueue_jobs([NewJob("nobody", key.encode(), key=key) for key in keys])
        ids = dict(zip(keys, made, strict=True))
        owner = client.job(made[0]).broker
        assert {client.job(id).broker for id in made} == {owner}
    left = list(members)
    for name in (owner, None):
        dead = next(each for each in left if name is None or each.name == name)
        dead.program.kill()
        left.remove(dead)
        wait_for_owners(left)
        for member in left:
            with closing(Client(member.url)) as client:
                for key, id in ids.items():
                    assert client.enqueue("nobody", key.encode(), key=key) == id
                    assert client.find_job("nobody", key).id == id
                assert client.enqueue_jobs([NewJob("nobody", key.encode(), key=key) for key in keys]) == made
                assert len(client.jobs(service="nobody")) == len(keys)
                with pytest.raises((JobRefused, OperationError), match="another payload"):
                    client.enqueue("nobody", b"another payload", key=keys[0])


def test_a_broker_is_killed_while_batches_with_keys_are_accepted(members: list[Member]) -> None:
    """Whatever was acknowledged stays the only job with its key, and a batch is there as a whole or not at all."""
    acknowledged: dict[str, str] = {}
    stop = threading.Event()
    counter = itertools.count()

    def submit(member: Member) -> None:
        with closing(Client(member.url, wait_for_broker=False)) as client:
            while not stop.is_set():
                number = next(counter)
                keys = [f"b{number}-{place}" for place in range(6)]
                try:
                    ids = client.enqueue_jobs([NewJob("nobody", key.encode(), key=key) for key in keys])
                except (JobRefused, BrokerUnavailable, OperationError):
                    continue
                acknowledged.update(zip(keys, ids, strict=True))

    threads = [threading.Thread(target=submit, args=(member,)) for member in members[:2] for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 120, "batches are accepted", PATIENCE)
    members[2].program.kill()
    before = len(acknowledged)
    left = members[:2]
    wait_for_owners(left)
    until(lambda: len(acknowledged) > before + 120, "batches are accepted again", PATIENCE)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    with closing(Client(left[0].url)) as client:
        for key, id in acknowledged.items():
            assert client.enqueue("nobody", key.encode(), key=key) == id
        count = client.job_counts().waiting
        assert count % 6 == 0, "a batch is there in part, or a key has two jobs"
        assert count >= len(acknowledged)

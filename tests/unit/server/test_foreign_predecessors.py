"""Jobs that come after jobs and groups of other shards of the cluster."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from cluster_world import may
from shard_operations_world import SHARDS, ShardNode, ShardWorld

from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.records import Watch
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Caller, JobId
from dragoman.core.options import JobOptions
from dragoman.core.results_payload import unpack_results
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.json_api import call_json
from dragoman.operations.schemas import ErrorView
from owners import LOCAL_OWNER
from unit.operations.world import RecordingResponder


def error(view: Any) -> tuple[str, str]:
    assert isinstance(view, ErrorView), view
    return view.kind, view.detail


def two() -> tuple[ShardWorld, ShardNode, ShardNode]:
    world = ShardWorld("a", "b")
    return world, world.nodes["a"], world.nodes["b"]


def shard_of(id: str) -> int:
    return int(id[-2:], 16)


def key_of(shard: int, principal: str = "local", service: str = "s") -> str:
    return next(key for key in map(str, range(999)) if shard_of_key(principal, service, key, SHARDS) == shard)


def test_a_job_comes_after_jobs_of_several_shards() -> None:
    world, a, b = two()
    first, second = a.enqueue(body=b"first"), b.enqueue(body=b"second")
    after = a.enqueue(body=b"third", after=(first, second), input="results")
    assert world.owner(after).job(after).state == "dependent"
    assert len(world.pins()) == 2 - (shard_of(after) == shard_of(first))
    b.worker("s")
    world.work_until(lambda: world.outcome(second))
    world.run(1.0)
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"third", [b"FIRST", b"SECOND"])
    world.run(1.0)
    assert world.pins() == []


def dependent(world: ShardWorld, owner: ShardNode, *before: str, asked: ShardNode | None = None, **fields: Any) -> str:
    """Enqueue a job in a shard of this broker, by its key, after jobs of other shards."""
    shard = next(shard for shard in owner.owned() if shard not in map(shard_of, before))
    key = key_of(shard, service=fields.get("service", "s"))
    id = (asked or owner).enqueue(after=before, key=key, **fields)
    assert world.owner(id) is owner
    assert owner.job(id).state == "dependent"
    return id


def test_a_key_decides_about_the_shard_of_a_job_that_comes_after_others() -> None:
    world, a, b = two()
    before = b.enqueue(body=b"before")
    for shard in range(SHARDS):
        id = b.enqueue(body=b"after", after=(before,), key=key_of(shard), input="payload")
        assert shard_of(id) == shard
        assert a.enqueue(body=b"after", after=(before,), key=key_of(shard)) == id
    assert len(world.pins()) == SHARDS - 1


def test_a_request_that_is_repeated_makes_one_job() -> None:
    """The key of a client that may repeat its request does not decide about the shard, if its predecessors do."""
    _, a, b = two()
    one, other = a.enqueue(), b.enqueue()
    for before in ((other,), (one, other)):
        ids = {node.enqueue(after=before, request_id=f"r {before}"[:99]) for node in (a, b, a)}
        assert len(ids) == 1
    assert shard_of(b.enqueue(after=(other,), request_id="q")) == shard_of(other)


def test_a_job_in_another_shard_of_the_same_broker_counts_when_it_is_committed() -> None:
    world = ShardWorld("a")
    a = world.nodes["a"]
    before = a.enqueue_in(0, body=b"before")
    after = dependent(world, a, before)
    a.worker("s")
    attempts: list[Attempt] = []
    world.run_until(lambda: attempts.extend(a.taken()) or attempts)
    blocked = world.block(0)
    a.broker.succeed(attempts[0], b"done", world.now)
    world.run(2.0)
    shard = shard_of(after)
    a.keeper.watches.jobs.take(Watch(shard, a.keeper.shards[shard].epoch, bytes.fromhex(before)), world.now)  # again
    world.run(2.0)
    assert blocked
    assert a.job(before).state == "ended"
    assert a.job(after).state == "dependent"
    world.unblock(0)
    world.work_until(lambda: world.outcome(after))


@pytest.mark.parametrize("asked_at", ["a", "b"])
def test_the_result_of_a_job_in_another_shard_is_the_input(asked_at: str) -> None:
    world, a, b = two()
    before = b.enqueue(body=b"before")
    after = dependent(world, a, before, asked=world.nodes[asked_at], body=b"", input="result")
    b.worker("s")
    world.work_until(lambda: world.outcome(after))
    assert world.ran == [b"before", b"BEFORE"]
    assert a.ask("result", id=after).outcome == "done"
    world.run(1.0)
    assert world.pins() == []


def test_a_job_that_has_ended_in_another_shard_is_no_obstacle() -> None:
    world, a, b = two()
    b.worker("s")
    before = b.enqueue(body=b"before")
    world.work_until(lambda: world.outcome(before))
    after = dependent(world, a, before, body=b"", input="result")
    world.work_until(lambda: world.outcome(after))
    assert world.ran == [b"before", b"BEFORE"]


def test_the_failure_of_a_job_in_another_shard_cancels_those_after_it() -> None:
    world, a, b = two()
    before, never = b.enqueue(attempts=1), b.enqueue("nobody")
    after = dependent(world, a, before, never)
    last = a.enqueue(after=(after,))
    runs = dependent(world, a, before, body=b"runs", after_failure="run", service="t")
    b.worker("s")
    world.work_until(lambda: world.outcome(last), fails=True)
    assert world.outcome(after) == world.outcome(last) == "cancelled"
    assert a.job(after).reason == f"job {before}, which it comes after, ended failed: it fails"
    world.run_until(lambda: a.job(runs).state == "waiting")


def test_a_job_comes_after_a_group_of_another_shard() -> None:
    world, a, b = two()
    group = b.ask("enqueue many", service="s", jobs=(BatchJob(payload="x"), BatchJob(payload="y")), group=True).group
    after = dependent(world, a, group, body=b"own", input="results")
    assert "waits for one job" in a.ask("why", id=after).why
    b.worker("s")
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"own", [[b"X", b"Y"]])


def test_the_first_failure_in_a_group_of_another_shard_cancels_those_after_it() -> None:
    world, a, b = two()
    jobs = (BatchJob(attempts=1), BatchJob(service="nobody"))
    group = b.ask("enqueue many", service="s", jobs=jobs, group=True).group
    after = dependent(world, a, group)
    b.worker("s")
    world.work_until(lambda: world.outcome(after), fails=True)
    assert f"of group {group}, which it comes after, ended failed" in a.job(after).reason


def test_jobs_of_a_batch_come_after_jobs_of_other_shards() -> None:
    world, a, b = two()
    one, other = a.enqueue(body=b"one"), b.enqueue(body=b"other")
    jobs = (BatchJob(payload="p", after=(one, other), input="results"), BatchJob(after=(0,), input="result"))
    ids = b.ask("enqueue many", service="s", jobs=jobs).jobs
    assert [world.owner(id).job(id).state for id in ids] == ["dependent"] * 2
    missing = (BatchJob(), BatchJob(after=("01" * 15 + f"0{shard_of(one)}",)))
    kind, detail = error(b.ask("enqueue many", service="s", jobs=missing))
    assert (kind, detail.partition(" no job")[0]) == ("not found", "jobs[1]: after:")
    b.worker("s")
    world.work_until(lambda: world.outcome(ids[1]))
    assert unpack_results(world.ran[-2]) == (b"p", [b"ONE", b"OTHER"])


# -------------------------------------------------------------------- refusals


def test_predecessors_that_cannot_be_named_are_refused() -> None:
    rights = {"ann": may(call=("*",)), "bob": may(call=("*",)), "eve": may(call=("*",), see=("*",))}
    world = ShardWorld("a", "b", access=rights)
    a, b = world.nodes["a"], world.nodes["b"]
    of_ann = b.ask("enqueue", b"x", "ann", service="s").id
    key = key_of(a.owned()[0], "bob")
    before = a.enqueue(), "01" * 15 + f"0{b.owned()[0]}"
    kind, detail = error(a.ask("enqueue", service="s", after=before))
    assert (kind, detail) == (
        "not found",
        f"after: no job or group has id {before[1]}: it never existed, or its outcome was deleted",
    )
    kind, detail = error(a.ask("enqueue", b"", "bob", service="s", after=(of_ann,), key=key))
    assert (kind, f"no job or group has id {of_ann}" in detail) == ("not found", True)
    by_eve = a.ask("enqueue", b"", "eve", service="s", after=(of_ann,), key=key_of(a.owned()[0], "eve"), input="result")
    assert error(by_eve)[0] == "forbidden"
    call = b.call(service="s", waits=True)
    assert call is not None
    kind, detail = error(a.ask("enqueue", service="s", after=(call.id.hex(),)))
    assert (kind, "is a call" in detail) == ("invalid", True)
    world.run(1.0)
    assert world.pins() == []


def test_no_client_can_ask_for_a_pin() -> None:
    world, _, b = two()
    before = b.enqueue()
    responder = RecordingResponder()
    request = b'{"id":"%s","shard":0,"epoch":1,"input":"payload"}' % before.encode()
    call_json(b.operations, "pin", request, b"", responder, world.now)
    kind, detail = error(responder.responses[0])
    assert (kind, "unknown operation 'pin'" in detail) == ("invalid", True)


# -------------------------------------------------------------------- pins


def test_an_outcome_is_kept_while_a_job_of_another_shard_needs_it() -> None:
    world = ShardWorld("a", "b", outcome_retention=5.0)
    a, b = world.nodes["a"], world.nodes["b"]
    before, open_one = b.enqueue(body=b"before"), b.enqueue("t", body=b"open")
    after = dependent(world, a, before, open_one, body=b"own", input="results")
    b.worker("s")
    world.work_until(lambda: world.outcome(before))
    kind, detail = error(a.ask("delete", id=before))
    assert (kind, "wait for its outcome" in detail) == ("conflict", True)
    world.run(100.0)
    assert b.has(before)
    b.worker("t")
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"own", [b"BEFORE", b"OPEN"])
    world.run(70.0)
    assert not b.has(before)
    assert world.pins() == []


def test_a_pin_survives_the_owner_of_the_predecessor() -> None:
    """The outcome was to be deleted long before another broker adopts its shard."""
    world = ShardWorld("a", "b", outcome_retention=5.0)
    a, b = world.nodes["a"], world.nodes["b"]
    before, open_one = b.enqueue(body=b"before"), a.enqueue("t", body=b"open")
    after = dependent(world, a, before, open_one, body=b"own", input="results")
    b.worker("s")
    world.work_until(lambda: world.outcome(before))
    world.run(10.0)
    world.freeze("b")
    world.wait_for_owners()
    world.run(70.0)
    assert a.has(before)
    a.worker("t")
    a.worker("s")
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"own", [b"BEFORE", b"OPEN"])
    world.run(70.0)
    assert (a.has(before), world.pins()) == (False, [])


def test_a_pin_of_a_job_that_was_never_accepted_is_removed() -> None:
    world, a, b = two()
    before = b.enqueue()
    accepted = a.begin("enqueue", service="s", after=(before,), key=key_of(a.owned()[0]))
    world.run_until(world.pins)
    world.freeze("a")
    assert accepted.responses == []
    world.wait_for_owners()
    world.run(5.0)
    assert len(world.pins()) == 1
    b.worker("s")
    world.work_until(lambda: world.outcome(before))
    world.run(5.0)
    assert world.pins() == []


def test_a_broker_that_lost_the_waiting_job_removes_no_pin() -> None:
    world, a, b = two()
    before = b.enqueue()
    after = dependent(world, a, before)
    shard, epoch = shard_of(after), a.keeper.shards[shard_of(after)].epoch
    world.freeze("a")
    world.wait_for_owners()
    world.run(5.0)
    b.keeper.watches.jobs.take(Watch(shard, epoch, bytes.fromhex(before), is_waiting=False), world.now)
    world.run()
    assert len(world.pins()) == 1


# -------------------------------------------------------------------- shards that move


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_job_waits_on_when_a_shard_moves(killed: str, has_ended: bool) -> None:
    world = ShardWorld("a", "b", "c")
    a, b, c = (world.nodes[name] for name in "abc")
    before, open_one = b.enqueue(body=b"before", attempts=5), c.enqueue("t", body=b"open")
    after = dependent(world, a, before, open_one, body=b"own", input="results")
    if has_ended:
        c.worker("s")
        world.work_until(lambda: world.outcome(before))
        world.run(1.0)
    world.freeze(killed)
    world.wait_for_owners()
    world.run(1.0)
    assert world.owner(after).job(after).state == "dependent"
    c.worker("t")
    if not has_ended:
        c.worker("s")
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"own", [b"BEFORE", b"OPEN"])
    world.run(70.0)
    assert world.pins() == []


def test_the_next_owner_of_a_predecessor_is_asked() -> None:
    """It does not report by itself what it has read, as if it did not know yet which broker has the job that waits."""
    world = ShardWorld("a", "b", "c")
    a, b, c = (world.nodes[name] for name in "abc")
    before = b.enqueue(body=b"before")
    after = dependent(world, a, before, body=b"own")
    c.worker("s")
    world.run_until(lambda: c.has(before))
    world.run(1.0)
    for node in (a, c):
        node.keeper.watches.jobs.restored = lambda home: None  # type: ignore[method-assign]
    world.cut("a")
    world.work_until(lambda: world.outcome(before))
    world.freeze("b")
    world.heal("a")
    world.wait_for_owners()
    world.work_until(lambda: world.outcome(after), 20.0)


def test_a_job_is_told_of_an_end_that_it_missed() -> None:
    """Both brokers are cut off one after the other, and the end is reported while the other one is away."""
    world = ShardWorld("a", "b", "c")
    a, b, c = (world.nodes[name] for name in "abc")
    before = b.enqueue(body=b"before")
    after = dependent(world, a, before, body=b"own")
    c.worker("s")
    world.run_until(lambda: c.has(before))
    world.cut("a")
    world.work_until(lambda: world.outcome(before))
    world.cut("b")
    world.wait_for_owners_of(c)
    world.heal("a")
    world.heal("b")
    world.work_until(lambda: world.outcome(after))
    assert world.ran.count(b"own") == 1


def test_a_job_whose_predecessor_has_vanished_is_cancelled() -> None:
    world, a, b = two()
    b.worker("s")
    before, open_one = b.enqueue(), b.enqueue("nobody")
    world.work_until(lambda: world.outcome(before))
    after = dependent(world, a, before, open_one)
    b.broker.job_registry.kept.erase(b.job(before))
    world.run()
    world.freeze("a")
    world.wait_for_owners()
    world.run_until(lambda: world.outcome(after))
    assert b.job(after).reason == f"job {before}, which it comes after, is not in the store any more"
    world.run(70.0)
    assert len(world.pins()) == 0


def test_a_job_comes_after_one_that_is_not_where_its_id_says() -> None:
    """It was imported, and only the broker that has it knows its shard."""
    world, a, b = two()
    shard, named = b.owned()[0], a.owned()[0]
    id = bytes.fromhex("01" * 15 + f"0{named}")
    b.shards.note_home(id, shard)
    options = JobOptions(durable=True, waits=True)
    b.broker.submit("s", b"x", Caller(b.local, LOCAL_OWNER), options, world.now, id=JobId(id))
    world.run()
    after = b.enqueue(after=(id.hex(),), request_id="r")
    assert b.enqueue(after=(id.hex(),), request_id="r") == a.enqueue(after=(id.hex(),), request_id="r") == after
    assert shard_of(after) == named
    world.freeze("a")
    world.wait_for_owners()
    world.run(1.0)
    assert b.job(after).state == "dependent"
    b.worker("s")
    world.work_until(lambda: world.outcome(after))


# -------------------------------------------------------------------- views, retry and release


def test_why_names_the_shard_and_the_broker_of_what_a_job_waits_for() -> None:
    world, a, b = two()
    one, other = b.enqueue(), a.enqueue()
    after = dependent(world, a, one, other)
    world.run(1.0)
    why = b.ask("why", id=after).why
    assert why.startswith("It waits for 2 of 2 jobs: ")
    assert f"{one} (in shard {shard_of(one)} of broker b)" in why
    assert f"{other} (in shard {shard_of(other)} of broker a)" in why
    view = b.ask("job", id=after)
    assert (view.state, view.after, view.broker) == ("dependent", [one, other], "a")


def test_a_job_waits_again_for_one_that_is_released_from_quarantine() -> None:
    world, a, b = two()
    world.oracle.look = lambda log: None  # type: ignore[method-assign]  # a released job ends again
    before, open_one = b.enqueue(attempts=1, body=b"before"), b.enqueue("t", body=b"open")
    after = dependent(world, a, before, open_one, body=b"own", after_failure="run", input="results")
    b.worker("s")
    world.work_until(lambda: b.job(before).quarantined, fails=True)
    world.run(1.0)
    assert before not in a.ask("why", id=after).why
    assert b.broker.operator.release(b.job(before), world.now)
    world.run(1.0)
    assert before in a.ask("why", id=after).why
    b.worker("t")
    world.work_until(lambda: world.outcome(after))
    assert unpack_results(world.ran[-1]) == (b"own", [b"BEFORE", b"OPEN"])


def test_an_end_that_is_reported_again_changes_nothing() -> None:
    """The second report came before the job was decided, and set its timer later: a strict broker stopped (I25)."""
    world = ShardWorld("a")
    a = world.nodes["a"]
    before = a.enqueue_in(0)
    after = dependent(world, a, before)
    entry = a.broker.job_registry.links.dependent[JobId(bytes.fromhex(after))]
    for later in (0.0, 0.01):
        a.broker.job_registry.links.report(entry, JobId(bytes.fromhex(before)), True, "", world.now + later)
    check(a.broker)


@pytest.mark.parametrize("seed", [0, 1, 2, 313])
def test_jobs_start_after_those_of_other_shards_whatever_is_killed_or_frozen(seed: int) -> None:
    random = Random(seed)
    world = ShardWorld("a", "b", "c", outcome_retention=20.0)
    asked: dict[bytes, tuple[list[str], RecordingResponder]] = {}  # by payload
    ended: dict[str, bytes] = {}  # payloads of jobs whose end a worker has reported
    frozen: list[tuple[str, ShardNode]] = []
    ids: list[str] = []

    def work() -> None:
        for node in world.nodes.values():
            for attempt in node.taken():
                payload = bytes(attempt.job.payload)
                before = asked[payload][0]
                assert all(id in ended for id in before), f"{payload!r} has started too early"
                if random.random() < 0.7 and node.broker.succeed(attempt, payload, world.now):
                    ended[attempt.job.id.hex()] = payload

    def step(seconds: float) -> None:
        until = world.now + seconds
        while world.now < until:
            world.run(0.1)
            work()

    for node in world.nodes.values():
        node.worker("s", 1_000)
    options: dict[str, Any] = {"attempts": 100, "retry_first": 0.1, "retry_cap": 0.2, "keep": 20.0, "timeout": 3.0}
    for number in range(60):
        node = random.choice(list(world.nodes.values()))
        before = random.sample(ids, min(len(ids), random.choice((0, 1, 2, 3))))
        payload = f"job {number}".encode()
        fields = dict(options, service="s", key=f"key {number}", after=tuple(before))
        asked[payload] = before, node.begin("enqueue", payload, "local", **fields)
        step(random.choice((0.1, 0.1, 0.2, 1.0)))
        views = [each.responses[0] for _, each in asked.values() if each.responses]
        ids = [view.id for view in views if not isinstance(view, ErrorView)][-12:]
        fate = random.random()
        if fate < 0.08 and len(world.nodes) > 2:
            name = random.choice(list(world.nodes))
            frozen.append((name, world.freeze(name)))
        elif fate < 0.16 and frozen:
            name, old = frozen.pop(0)
            if random.random() < 0.5:
                world.nodes[name] = old
            else:
                world.start(name).worker("s", 1_000)
            step(random.choice((0.1, 3.0, 8.0)))
    for name, old in frozen:
        world.nodes[name] = old
    accepted = [
        (payload, each.responses[0].id)
        for payload, (_, each) in asked.items()
        if each.responses and not isinstance(each.responses[0], ErrorView)
    ]
    assert len(accepted) > 20
    late = world.now + 100.0
    while any(id not in ended for _, id in accepted):
        assert world.now < late, [payload for payload, id in accepted if id not in ended]
        step(1.0)
    late = world.now + 150.0
    while world.pins():
        assert world.now < late, world.pins()
        step(1.0)


def test_a_predecessor_of_another_shard_is_not_shown_to_those_who_may_not_see_it() -> None:
    """R147. The reason comes with the report of the other shard, where the predecessor's service is known."""
    rights = {"guest": may(see=("open",)), "operator": may(administer=("open",)), "scraper": may(see=("*",))}
    world = ShardWorld("a", "b", access=rights)
    a, b = world.nodes["a"], world.nodes["b"]
    before = b.enqueue("secret", attempts=1)
    after = dependent(world, a, before, service="open")
    hidden: dict[str, bool] = {}

    def look() -> None:
        for node in (a, b):
            for name in rights:
                for operation, fields in (("job", {"id": after}), ("why", {"id": after}), ("jobs", {})):
                    text = msgspec.json.encode(node.ask(operation, b"", name, **fields)).decode()
                    hidden[f"{name} {operation} {node is a}"] = before not in text and "it fails" not in text

    look()
    assert {name for name, is_hidden in hidden.items() if is_hidden and not name.startswith("scraper")} == {
        name for name in hidden if not name.startswith("scraper")
    }
    b.worker("secret")
    world.work_until(lambda: world.outcome(after), fails=True)
    look()
    assert {name.split()[0] for name, is_hidden in hidden.items() if not is_hidden} == {"scraper"}
    assert a.ask("job", b"", "guest", id=after).reason == "a job that it comes after ended failed"
    whole = f"job {before}, which it comes after, ended failed: it fails"
    assert {b.ask("job", b"", name, id=after).reason for name in ("scraper", "local")} == {whole}

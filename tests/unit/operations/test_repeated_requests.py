"""Requests that a client repeats because their answer was lost: each is carried out once (R234 to R238)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.packed_jobs import NO_ID, pack_jobs
from dragoman.core.remembered import CLIENT, FORGOTTEN, RememberedRequests, older
from dragoman.core.rights import ALL_RIGHTS, PrincipalLimits
from dragoman.core.states import JobState
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView

from .world import WALL, World

ONE, OTHER = "1" * 32, "2" * 32  # clients
A, B = "a" * 32, "b" * 32  # ids of jobs


def numbered(number: int, oldest: int | None = None, client: str = ONE, age: float | None = None) -> str:
    text = f"{client}/{number}/{oldest or number}/1700000000000"
    return text if age is None else f"{text}/{age:.3f}"


def finish(world: World) -> int:
    """Let a worker run all jobs. Returns their number."""
    worker = world.worker(capacity=10)
    count = 0
    while worker.running:
        for attempt in list(worker.running.values()):
            world.broker.succeed(attempt, b"r", world.now)
            count += 1
        world.runner.run_once()
        world.runner.run_once()
    world.broker.leave(worker, world.now, "bye")
    world.runner.run_once()
    return count


def restarted(world: World, **policy: Any) -> World:
    """Return a broker that has what the store of another one has, besides jobs."""
    again = World(**policy)
    again.now = world.now
    again.store.notes = dict(world.store.notes)
    again.broker.job_registry.remembered.restore(again.store.notes, again.now)
    return again


def remembered_by(world: World) -> RememberedRequests:
    return world.broker.job_registry.remembered


# -------------------------------------------------------------------- one job


@pytest.mark.parametrize("text", [numbered(1), "order-17"])
def test_job_that_ended_and_is_forgotten_does_not_run_again(world: World, text: str) -> None:
    """R234: with `keep=0` the job is gone when its repetition arrives. The idempotency key that the client made went
    with it, and the repetition was a new job."""
    first = world.enqueue(keep=0.0, request_id=text)
    assert finish(world) == 1
    assert world.broker.jobs == {}
    again = world.ask("enqueue", b"x", service="s", keep=0.0, request_id=text)
    assert (again.id, again.state, again.outcome) == (first, "ended", None)
    assert "accepted before" in again.reason
    assert finish(world) == 0


@pytest.mark.parametrize("text", [numbered(1), "order-17"])
def test_restart_remembers_what_was_accepted(world: World, text: str) -> None:
    """R235: what is remembered is in the commit of the job."""
    first = world.enqueue(keep=0.0, request_id=text)
    finish(world)
    again = restarted(world)
    assert again.enqueue(keep=0.0, request_id=text) == first
    assert finish(again) == 0


def test_repetition_is_acknowledged_with_the_commit_of_the_first(world: World) -> None:
    world.store.is_slow = True
    first = world.begin("enqueue", b"x", service="s", request_id=numbered(1))
    again = world.begin("enqueue", b"x", service="s", request_id=numbered(1, age=0.5))
    assert first.responses == again.responses == []
    world.store.write()
    world.runner.run_once()
    assert first.responses[0].id == again.responses[0].id
    assert len(world.broker.jobs) == 1


def test_requests_of_one_client_arrive_in_any_order(world: World) -> None:
    names = {number: world.enqueue(keep=0.0, request_id=numbered(number, 1)) for number in (3, 1, 4)}
    assert len(set(names.values())) == 3
    finish(world)
    assert {number: world.enqueue(keep=0.0, request_id=numbered(number, 1, age=1.0)) for number in names} == names
    assert world.enqueue(keep=0.0, request_id=numbered(2, 1)) not in names.values(), "it is new"
    assert finish(world) == 1


def test_request_that_was_refused_may_come_again(world: World) -> None:
    world = World(max_jobs=1)
    blocking = world.enqueue()
    assert world.ask("enqueue", b"x", service="s", request_id=numbered(1)).kind == "busy"
    world.ask("cancel", id=blocking)
    assert world.job(world.enqueue(request_id=numbered(1, age=1.0))).state is JobState.WAITING


def test_full_disk_forgets_the_request_with_its_job(world: World) -> None:
    """The number would else be answered with the id of a job that was refused: it would be lost."""
    world.store.problem = "disk full"
    assert world.ask("enqueue", b"x", service="s", request_id=numbered(1)).kind == "store unavailable"
    assert remembered_by(world).unsaved == {}
    world.store.problem = None
    assert world.job(world.enqueue(request_id=numbered(1, age=1.0))).state is JobState.WAITING


def test_request_that_the_client_has_finished_is_refused(world: World) -> None:
    """A late copy on an old connection, after the client has gone on."""
    world.enqueue(request_id=numbered(5))
    late = world.ask("enqueue", b"x", service="s", request_id=numbered(4))
    assert late.kind == "conflict"
    assert "would not send request 4 again, and now waits for 5" in late.detail
    assert len(world.broker.jobs) == 1


def test_client_belongs_to_its_principal(world: World) -> None:
    """R236: another principal that names the same client and number has a job of its own."""
    world.broker.principals.apply({"ann": (ALL_RIGHTS, PrincipalLimits())})
    first = world.enqueue(request_id=numbered(1))
    world.act_as("ann")
    other = world.enqueue(request_id=numbered(1))
    assert other != first
    assert world.job(other).principal.name == "ann"


def test_free_id_with_another_job_is_refused(world: World) -> None:
    first = world.enqueue(request_id="r", keep=0.0)
    finish(world)
    assert world.ask("enqueue", b"other", service="s", request_id="r").kind == "key reused"
    assert world.ask("enqueue", b"x", service="t", request_id="r").kind == "key reused"
    assert world.enqueue(request_id="r") == first


def test_request_that_joined_an_earlier_job_still_returns_it_when_that_is_forgotten(world: World) -> None:
    holder = world.enqueue(key="k", keep=0.0)
    assert world.enqueue(key="k", keep=0.0, request_id=numbered(1)) == holder
    finish(world)
    assert world.enqueue(key="k", keep=0.0, request_id=numbered(1, age=1.0)) == holder
    assert finish(world) == 0
    assert world.enqueue(key="k", keep=0.0, request_id=numbered(2)) != holder


def test_joined_job_is_answered_when_it_is_stored_that_it_was(world: World) -> None:
    holder = world.enqueue(key="k")
    world.store.is_slow = True
    responder = world.begin("enqueue", b"x", service="s", key="k", request_id=numbered(1))
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert responder.responses[0].id == holder


@pytest.mark.parametrize("act", ["cancel", "delete"])
def test_job_that_is_cancelled_or_deleted_in_between_stays_so(world: World, act: str) -> None:
    name = world.enqueue(request_id=numbered(1))
    world.ask("cancel", id=name)
    if act == "delete":
        world.ask("delete", id=name)
    again = world.ask("enqueue", b"x", service="s", request_id=numbered(1, age=1.0))
    assert (again.id, again.state) == (name, "ended")
    assert finish(world) == 0


def test_repetition_waits_while_jobs_are_read(world: World) -> None:
    world.broker.job_registry.is_loading = True
    assert world.ask("enqueue", b"x", service="s", request_id=numbered(1)).kind == "loading"


def test_ids_are_in_the_layout_of_all_ids_and_have_the_time_of_the_request(world: World) -> None:
    name = world.enqueue(request_id=numbered(1))
    assert int(name[:12], 16) == 1_700_000_000_000
    assert (name[12], name[16] in "89ab") == ("7", True)


@pytest.mark.parametrize(
    "text", [f"{ONE}/0/0/0", f"{ONE}/4097/1/0", f"{ONE}/1/2/0", f"{ONE}/1/1/0/-1", f"{ONE}/1/1/{1 << 48}"]
)
def test_number_outside_its_window_is_invalid(world: World, text: str) -> None:
    error = world.ask("enqueue", b"x", service="s", request_id=text)
    assert error.kind == "invalid"
    assert error.detail.startswith(f"request_id {text!r}: client/number/oldest/millisecond/age must have")


# -------------------------------------------------------------------- what is stored, and its bounds


def test_what_is_stored_does_not_grow_with_the_jobs(world: World) -> None:
    """R235: one value a client, as small after 1,000 jobs as after one."""
    for number in range(1, 1_001):
        world.enqueue(keep=0.0, request_id=numbered(number))
    (key,) = [each for each in world.store.notes if each.startswith(CLIENT)]
    assert world.store.notes[key] == '[1000,"1",{}]'
    assert len(remembered_by(world)) == 1


def test_value_of_a_client_is_written_once_for_all_jobs_of_an_iteration(world: World) -> None:
    written: list[str] = []
    apply = world.store.apply

    def count(entries: list[Any], done: Any) -> None:
        written.extend(type(each).__name__ for each in entries)
        apply(entries, done)

    world.store.apply = count  # type: ignore[method-assign]
    from dragoman.operations.table import OPERATIONS

    from .world import RecordingResponder

    for number in range(1, 11):
        request = OPERATIONS["enqueue"].request(service="s", request_id=numbered(number, 1))
        world.operations.ask("enqueue", request, b"x", RecordingResponder(), world.now)
    world.runner.run_once()
    assert (written.count("StoreJob"), written.count("StoreValue")) == (10, 1)


def test_client_is_forgotten_after_its_last_request(world: World) -> None:
    """R235: a repetition that is older than what is remembered is refused, and does not run twice."""
    world.enqueue(keep=0.0, request_id=numbered(1))
    finish(world)
    world.wait(620.0)
    assert len(remembered_by(world)) == 0
    assert not [each for each in world.store.notes if each.startswith(CLIENT)]
    late = world.ask("enqueue", b"x", service="s", request_id=numbered(1, age=620.0))
    assert late.kind == "conflict"
    assert "it may have been carried out" in late.detail
    assert world.broker.jobs == {}
    world.enqueue(request_id=numbered(2))


def crowd(world: World, clients: int) -> None:
    for number in range(clients):
        world.enqueue(keep=0.0, request_id=numbered(1, client=f"{number:032x}"))
    finish(world)


def test_too_many_clients_push_out_those_of_the_principal_that_has_the_most() -> None:
    """R236."""
    world = World(max_remembered_requests=5)
    world.broker.principals.apply({"ann": (ALL_RIGHTS, PrincipalLimits())})
    world.act_as("ann")
    first = world.enqueue(keep=0.0, request_id=numbered(1))
    finish(world)
    world.owner = World().owner
    crowd(world, 20)
    assert len(remembered_by(world)) == 5
    world.act_as("ann")
    assert world.enqueue(keep=0.0, request_id=numbered(1, age=1.0)) == first
    assert finish(world) == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_repetition_of_a_client_that_was_pushed_out_is_refused(is_restarted: bool) -> None:
    """R235, also if the broker was restarted in between: then it does not know any more when that was."""
    world = World(max_remembered_requests=5)
    crowd(world, 1)
    world.now += 10.0
    crowd_of_others = [numbered(1, client=f"{number:032x}") for number in range(100, 110)]
    for each in crowd_of_others:
        world.enqueue(keep=0.0, request_id=each)
        world.now += 1.0
    finish(world)
    if is_restarted:
        world = restarted(world, max_remembered_requests=5)
    late = world.ask("enqueue", b"x", service="s", request_id=numbered(1, client="0" * 32, age=21.0))
    assert isinstance(late, ErrorView), late
    assert late.kind == "conflict"
    fresh = numbered(1, client=OTHER, age=0.5)
    if not is_restarted:
        assert world.job(world.enqueue(request_id=fresh)).state is JobState.WAITING, "it was never accepted"
    world.wait(700.0)
    assert not [each for each in world.store.notes if each.startswith(FORGOTTEN)]


def test_answers_of_one_client_are_bounded(world: World) -> None:
    for number in range(1, 301):
        name = world.enqueue()
        world.ask("cancel", id=name)
        world.ask("delete", id=name, request_id=numbered(number, 1))
    (row,) = remembered_by(world)._rows.values()
    assert len(row.answers) == 256
    lost = world.ask("delete", id=name, request_id=numbered(1, 1, age=1.0))
    assert lost.kind == "conflict"
    assert "its answer is not remembered any more" in lost.detail


def test_request_that_a_broker_repeats_is_older() -> None:
    assert older(numbered(1), 2.5) == numbered(1, age=2.5)
    assert older(numbered(1, age=1.0), 2.5) == numbered(1, age=3.5)
    assert older("order-17", 2.5) == "order-17"


# -------------------------------------------------------------------- acts


def test_schedule_runs_once_for_a_repeated_request(world: World) -> None:
    """R237: the repetition has made a second job."""
    world.ask("set schedule", name="n", service="s", every=3600.0, overlap=True)
    first = world.ask("run schedule", name="n", request_id=numbered(1))
    again = world.ask("run schedule", name="n", request_id=numbered(1, age=1.0))
    assert again == first
    assert len(world.broker.jobs) == 1
    other = world.ask("run schedule", name="n", request_id=numbered(2))
    assert other.last_job != first.last_job


@pytest.mark.parametrize("is_restarted", [False, True])
def test_deleted_schedule_may_be_deleted_again_by_the_same_request(world: World, is_restarted: bool) -> None:
    """R237: the repetition was told that there is no such schedule."""
    world.ask("set schedule", name="n", service="s", every=3600.0)
    first = world.ask("delete schedule", name="n", request_id=numbered(1))
    if is_restarted:
        world = restarted(world)
    again = world.ask("delete schedule", name="n", request_id=numbered(1, age=1.0))
    assert (first.name, again.name, again.service) == ("n", "n", "s")
    assert world.ask("delete schedule", name="n", request_id=numbered(2)).kind == "not found"


def test_deleted_job_may_be_deleted_again_by_the_same_request(world: World) -> None:
    name = world.enqueue()
    world.ask("cancel", id=name)
    assert world.ask("delete", id=name, request_id="d").id == name
    assert world.ask("delete", id=name, request_id="d").id == name
    assert world.ask("delete", id=name, request_id="e").kind == "not found"
    assert world.ask("delete", id=name).kind == "not found"


def test_retry_is_the_same_when_both_jobs_are_forgotten(world: World) -> None:
    name = world.enqueue(attempts=1, keep=0.0)
    world.worker()
    world.broker.fail(world.attempt(name), "poison", world.now)
    world.runner.run_once()
    first = world.ask("retry", id=name, request_id=numbered(1))
    world.ask("cancel", id=first.id)
    world.ask("delete", id=first.id)
    again = world.ask("retry", id=name, request_id=numbered(1, age=1.0))
    assert again.id == first.id


@pytest.mark.parametrize("is_restarted", [False, True])
def test_repeated_purge_returns_the_first_count(world: World, is_restarted: bool) -> None:
    """R237: it was 0."""
    for _ in range(3):
        world.enqueue()
    assert world.ask("purge", name="s", request_id=numbered(1)).purged == 3
    world.enqueue()
    if is_restarted:
        world = restarted(world)
        world.enqueue()
    assert world.ask("purge", name="s", request_id=numbered(1, age=1.0)).purged == 3
    assert len(world.broker.jobs) >= 1
    assert world.ask("purge", name="s", request_id=numbered(2)).purged == 1


def test_purge_that_is_repeated_while_it_goes_on_is_one_purge(world: World) -> None:
    for _ in range(120):
        world.enqueue()
    world.store.is_slow = True
    first = world.begin("purge", name="s", request_id=numbered(1))
    again = world.begin("purge", name="s", request_id=numbered(1, age=0.5))
    assert first.responses == again.responses == []
    world.store.is_slow = False
    world.store.write()
    world.wait(1.0)
    assert [first.responses[0].purged, again.responses[0].purged] == [120, 120]


# -------------------------------------------------------------------- batches


def batch(world: World, payloads: str, text: str | None = None, **fields: Any) -> Any:
    jobs = tuple(BatchJob(payload=each) for each in payloads)
    return world.ask("enqueue many", service="s", jobs=jobs, keep=0.0, request_id=text, **fields)


@pytest.mark.parametrize("text", [numbered(1), "batch-1"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_batch_that_ended_and_is_forgotten_does_not_run_again(world: World, text: str, is_restarted: bool) -> None:
    """R238."""
    first = batch(world, "xyz", text)
    assert finish(world) == 3
    if is_restarted:
        world = restarted(world)
    assert batch(world, "xyz", text).jobs == first.jobs
    assert finish(world) == 0


@pytest.mark.parametrize("text", [numbered(1), "batch-1", None])
def test_batch_with_other_jobs_is_refused(world: World, text: str | None) -> None:
    """R238: it was answered with the ids of the first one, and the other jobs were lost."""
    ids = {"id": A} if text is None else {}
    first = world.ask("enqueue many", service="s", jobs=(BatchJob(payload="x", **ids),), request_id=text)
    for payload, service in (("y", "s"), ("x", "t")):
        other = world.ask("enqueue many", service=service, jobs=(BatchJob(payload=payload, **ids),), request_id=text)
        assert other.kind == "conflict"
        assert "accepted before, with other jobs" in other.detail
    again = world.ask("enqueue many", service="s", jobs=(BatchJob(payload="x", **ids),), request_id=text)
    assert again.jobs == first.jobs


def test_batch_of_chosen_ids_is_remembered_without_a_request_id(world: World) -> None:
    packed = pack_jobs([(bytes.fromhex(A), b"", b"one"), (bytes.fromhex(B), b"", b"two")])
    first = world.ask("enqueue many", packed, service="s", keep=0.0)
    assert finish(world) == 2
    assert world.ask("enqueue many", packed, service="s", keep=0.0).jobs == first.jobs == [A, B]
    assert finish(world) == 0


def test_batch_without_ids_is_new_each_time(world: World) -> None:
    packed = pack_jobs([(NO_ID, b"", b"one")])
    assert world.ask("enqueue many", packed, service="s").jobs != world.ask("enqueue many", packed, service="s").jobs


def test_other_jobs_under_ids_that_are_not_remembered_any_more_are_refused(world: World) -> None:
    job = BatchJob(payload="x", id=A)
    world.ask("enqueue many", service="s", jobs=(job,))
    world.wait(700.0)
    assert world.ask("enqueue many", service="s", jobs=(job,)).jobs == [A]
    world.wait(700.0)
    other = world.ask("enqueue many", service="s", jobs=(BatchJob(payload="y", id=A),))
    assert (other.kind, "it is another one" in other.detail) == ("invalid", True)


def test_group_is_the_same_and_another_one_with_its_id_is_refused(world: World) -> None:
    first = batch(world, "xy", group_id=B)
    assert batch(world, "xy", group_id=B) == first
    assert batch(world, "xyz", group_id=B).kind == "conflict"
    named = batch(world, "xy", "g", group=True)
    assert batch(world, "xy", "g", group=True) == named
    assert named.group is not None


def test_job_of_a_batch_that_joined_an_earlier_one_is_named_again(world: World) -> None:
    holder = world.enqueue(key="k", keep=0.0)
    jobs = (BatchJob(payload="x"), BatchJob(payload="x", key="k"))
    first = world.ask("enqueue many", service="s", jobs=jobs, keep=0.0, request_id=numbered(1))
    assert first.jobs[1] == holder
    finish(world)
    again = world.ask("enqueue many", service="s", jobs=jobs, keep=0.0, request_id=numbered(1, age=1.0))
    assert again.jobs == first.jobs
    assert finish(world) == 0


def test_full_disk_forgets_the_batch(world: World) -> None:
    world.store.problem = "disk full"
    assert batch(world, "xy", numbered(1)).kind == "store unavailable"
    world.store.problem = None
    assert len(batch(world, "xy", numbered(1, age=1.0)).jobs) == 2
    assert finish(world) == 2


def test_value_of_a_client_that_cannot_be_read_is_an_error() -> None:
    remembered = RememberedRequests(World().broker.policy, World().broker.job_registry.pending_commits)
    for text in ("", "[]", '[1,"x",{}]', '[1,"1",[]]', "{}"):
        with pytest.raises(ValueError):  # noqa: PT011
            remembered.restore({f'{CLIENT}0/["p","c"]': text}, WALL)


def test_a_free_id_that_came_with_another_act_is_refused() -> None:
    """A bug: the answer of the other act was sent, and this one was not carried out; or it could not be read."""
    world = World()
    world.ask("set schedule", name="nightly", service="s", every=3_600.0)
    first = world.ask("run schedule", name="nightly", request_id="mine")
    assert not isinstance(first, ErrorView)
    refused = world.ask("delete schedule", name="nightly", request_id="mine")
    assert isinstance(refused, ErrorView)
    assert refused.kind == "conflict"
    assert world.ask("run schedule", name="nightly", request_id="mine") == first

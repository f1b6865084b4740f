"""Retries in a cluster of jobs that have given their key up: another shard may have a job that holds it (C6)."""

from __future__ import annotations

from typing import Any

import pytest
from shard_operations_world import ShardNode, ShardWorld
from test_reserved_keys import error, id_in, key_of

from case_tables import check_every_row
from dragoman.core.job_keys import holds_key
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView


class Failed:
    """A job of a, which is in quarantine and has given its key up. The shard of the key is one of b, or the same."""

    def __init__(self, is_home: bool = False, *more: str, **fields: Any) -> None:
        self.world = ShardWorld("a", "b", *more, **fields)
        self.a, self.b = self.world.nodes["a"], self.world.nodes["b"]
        self.a.worker("s")
        self.shard = self.a.owned()[0]
        self.home = self.shard if is_home else self.b.owned()[0]
        self.key = key_of(self.home)
        self.id = self.fail(1)

    def fail(self, number: int, principal: str = "local") -> str:
        """Return a job of the shard that has failed."""
        id = self.batch(self.a, self.shard, number, payload="first", principal=principal)
        self.world.work_until(lambda: self.a.job(id).quarantined, fails=True)
        return id

    def batch(self, node: ShardNode, shard: int, number: int, payload: str, principal: str = "local") -> str:
        jobs = (BatchJob(id=id_in(shard, number), key=self.key, unique="unfinished", attempts=1, payload=payload),)
        view = node.ask("enqueue many", principal=principal, service="s", jobs=jobs)
        assert not isinstance(view, ErrorView), view
        return str(view.jobs[0])

    def enqueue(self, payload: str) -> str:
        return self.b.enqueue(body=payload.encode(), key=self.key, unique="unfinished")

    def holders(self) -> list[str]:
        """Return the jobs that hold the key, in the whole cluster."""
        jobs = [job for node in self.world.nodes.values() for job in node.broker.jobs.values()]
        return [job.id.hex() for job in jobs if job.options.durable and job.key == self.key and holds_key(job)]

    def elsewhere(self, payload: str = "later") -> str:
        """Enqueue a job with the key in a shard of b."""
        return self.batch(self.b, self.b.owned()[1], 50, payload)


@pytest.mark.parametrize("payload", ["first", "another"])
def test_a_job_is_not_retried_while_a_job_of_another_shard_holds_its_key(payload: str) -> None:
    """Both held the key, because the holder was looked for in the shard of the job only."""
    test = Failed()
    later = test.enqueue(payload)
    kind, detail = error(test.b.ask("retry", id=test.id))
    assert (kind, f"that job {later} of another shard of the cluster holds" in detail) == ("conflict", True)
    assert test.holders() == [later]
    test.world.work_until(lambda: test.world.outcome(later))
    again = test.b.ask("retry", id=test.id).id
    assert test.b.ask("retry", id=test.id).id == again, "the request is repeated"
    assert test.enqueue("first") == again
    assert test.holders() == [again]


def test_the_holder_may_be_in_any_shard_when_the_job_is_in_that_of_its_key() -> None:
    test = Failed(is_home=True)
    later = test.elsewhere()
    kind, detail = error(test.a.ask("retry", id=test.id))
    assert (kind, later in detail) == ("conflict", True)
    test.b.ask("cancel", id=later)
    again = test.a.ask("retry", id=test.id).id
    assert test.enqueue("first") == again
    test.world.run(1.0)
    assert test.world.notes("key/") == []
    assert test.a.keeper.keys.find(("local", "s", test.key)) is None, "it has the key of its own shard by itself"


def test_a_holder_of_the_same_shard_is_named_as_with_one_broker() -> None:
    test = Failed(is_home=True)
    later = test.enqueue("first")
    assert f"that job {later} holds until it has ended" in error(test.a.ask("retry", id=test.id))[1]


def test_a_request_that_is_sent_twice_makes_one_job() -> None:
    test = Failed()
    answers = [test.a.begin("retry", id=test.id), test.b.begin("retry", id=test.id)]
    test.world.run_until(lambda: all(each.responses for each in answers))
    assert [each.responses[0].id for each in answers] == test.holders() * 2


def test_a_retry_is_refused_if_its_shard_has_moved_while_the_key_was_reserved() -> None:
    """Another owner may have retried the job."""
    test = Failed()
    test.world.block(test.home)
    answer = test.a.begin("retry", id=test.id)
    test.world.run_until(lambda: test.world.blocked[test.home])
    test.a.keeper.shards[test.shard].epoch += 1
    test.world.unblock(test.home)
    test.world.run_until(lambda: answer.responses)
    assert error(answer.responses[0])[0] == "partitioned"
    assert test.holders() == []


def test_a_new_job_waits_while_it_is_decided_about_a_retry() -> None:
    """The owner of the key has reserved it, and its answer has not arrived."""
    test = Failed()
    test.world.block(test.home)
    retry = test.a.begin("retry", id=test.id)
    test.world.run_until(lambda: test.world.blocked[test.home])
    submit = test.b.begin("enqueue", b"first", service="s", key=test.key, unique="unfinished")
    test.world.run(1.0)
    assert not test.holders()
    test.world.unblock(test.home)
    test.world.run_until(lambda: retry.responses)
    assert test.holders() == [retry.responses[0].id]
    test.world.work_until(lambda: submit.responses)
    assert submit.responses[0].id == retry.responses[0].id


def test_one_of_two_failed_jobs_with_one_key_is_retried() -> None:
    test = Failed()
    second = test.fail(2)
    answers = [test.a.begin("retry", id=test.id), test.b.begin("retry", id=second)]
    test.world.run_until(lambda: all(each.responses for each in answers))
    [again] = test.holders()
    assert [each.responses[0].id for each in answers if not isinstance(each.responses[0], ErrorView)] == [again]


def test_a_retry_and_a_new_job_with_the_key_never_hold_it_both() -> None:
    def check(steps: int) -> None:
        test = Failed()
        retry = test.a.begin("retry", id=test.id)
        test.world.run(0.01 * steps)
        submit = test.b.begin("enqueue", b"first", service="s", key=test.key, unique="unfinished")
        test.world.run_until(lambda: retry.responses and (submit.responses or test.holders()))
        test.world.run(1.0)
        assert len(test.holders()) == 1

    check_every_row(check, ((steps,) for steps in range(12)))


def test_a_job_stays_in_quarantine_while_the_shard_of_its_key_has_no_owner() -> None:
    test = Failed()
    test.world.freeze("b")
    assert error(test.a.ask("retry", id=test.id))[0] == "partitioned"
    assert test.a.job(test.id).quarantined
    test.world.wait_for_owners()
    assert test.a.ask("retry", id=test.id).retry_of == test.id


def test_a_retry_that_was_refused_leaves_the_key_free() -> None:
    test = Failed()
    test.a.broker.dispatch.is_draining = True
    assert error(test.a.ask("retry", id=test.id))[0] == "busy"
    test.a.broker.dispatch.is_draining = False
    assert test.enqueue("another") != test.id
    assert len(test.holders()) == 1


def test_acts_on_many_jobs_leave_those_out_whose_key_another_shard_holds() -> None:
    test = Failed()
    free = test.a.ask("enqueue many", service="s", jobs=(BatchJob(id=id_in(test.shard, 9), attempts=1, payload="x"),))
    test.world.work_until(lambda: test.a.job(free.jobs[0]).quarantined, fails=True)
    later = test.enqueue("first")
    view = test.a.ask("retry jobs", service="s")
    test.world.run_until(lambda: test.a.ask("bulk act", id=view.id).over)
    view = test.a.ask("bulk act", id=view.id)
    assert (view.done, view.left_out) == (1, 1)
    assert later in view.left_out_reason
    assert test.holders() == [later]


def test_a_group_of_the_quarantine_is_retried_with_its_keys() -> None:
    test = Failed()
    group = test.a.ask("quarantine").groups[0].group
    test.a.ask("retry group", group=group, rate=100.0)
    test.world.run_until(test.holders)
    [again] = test.holders()
    assert test.a.job(again).retry_of == test.a.job(test.id).id
    assert test.enqueue("first") == again


def test_the_key_is_that_of_the_principal_of_the_job() -> None:
    """The one that retries it may be another one."""
    test = Failed(access={"web": (ALL_RIGHTS, NO_LIMITS)})
    of_local = test.enqueue("first")
    id = test.fail(7, principal="web")
    again = test.b.ask("retry", id=id).id
    assert sorted(test.holders()) == sorted([of_local, again])
    view = test.b.ask("enqueue", b"first", principal="web", service="s", key=test.key, unique="unfinished")
    assert view.id == again

"""Chaos: SIGKILL of brokers and workers while jobs arrive, run and end; then every table is checked (N1, N4, N19)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from chaos_oracle import executions, judge_attempts, judge_counters, judge_executions, judge_jobs, judge_results
from http_hand import HttpWorker
from submitters import Submitters
from survivor import Survivor
from workforce import Workforce

from dragoman import Client
from programs import PATIENCE, Programs, until

LONG = 60.0  # what takes a few seconds on a machine of our own may take longer beside others


@pytest.mark.parametrize("seed", [2026])
def test_ten_thousand_jobs_survive_kills(programs: Programs, seed: int) -> None:
    count = 10_000
    chance = random.Random(seed)
    # What our kills cost shall not end a job; and who does not come back is not waited for.
    setup = Survivor(programs, "--set", "max_worker_deaths=100", "--set", "worker_resume_timeout=1")
    workforce = Workforce(programs, setup, workers=2, processes=2, concurrency=4)
    remote = HttpWorker(setup.place, workforce.executions)
    submitters = Submitters(setup, count)
    victims = ["broker"] * 5 + ["worker"] * 10
    chance.shuffle(victims)
    instants = sorted(chance.randrange(200, int(1.8 * count)) for _ in victims)  # each job is two events: in and begun
    for victim, instant in zip(victims, instants, strict=True):

        def is_time(instant: int = instant) -> bool:
            return len(submitters.ids) + workforce.executed() >= instant

        until(is_time, f"{instant} jobs were acknowledged or begun", LONG)
        if victim == "worker":
            workforce.kill_one(chance)
        else:
            setup.kill()
            setup.start(until="is listening")  # the next death may come while it reads its store
    until(submitters.are_done, "all jobs are acknowledged", LONG)
    until(setup.has_ended_all, "all jobs have ended", LONG)
    remote.stop()
    submitters.close()

    jobs = {id: b"%d" % number for number, id in submitters.ids.items()}
    assert len(jobs) == count
    views = judge_jobs(setup, jobs)
    judge_results(setup, jobs)
    judge_executions(views, executions(workforce.executions), setup.kills)
    judge_attempts(views, len(setup.kills) * (workforce.slots + 1) + workforce.deaths * workforce.concurrency)
    judge_counters(setup, kept=count)


def test_poison_takes_three_workers_and_nobody_else_with_it(programs: Programs) -> None:
    """One job that kills its worker each time, among a thousand good ones (N19)."""
    count = 1_000
    setup = Survivor(programs)
    submitters = Submitters(setup, count)
    until(lambda: len(submitters.ids) > count / 4, "there are good jobs before it", LONG)
    poison = setup.enqueue("tasks", "poison", retry_first=0.1)
    workforce = Workforce(programs, setup, workers=4)
    until(submitters.are_done, "all jobs are acknowledged", LONG)
    until(setup.has_ended_all, "all jobs have ended", LONG)
    submitters.close()

    view = setup.job(poison)
    assert (view["outcome"], view["quarantined"]) == ("lost", True)
    told = [(each["number"], each["outcome"], each["reason"]) for each in view["attempts"]]
    assert told == [(number, "lost", "its worker's connection ended") for number in (1, 2, 3)]
    assert len({each["worker"] for each in view["attempts"]}) == 3
    assert "in quarantine" in setup.why(poison)
    assert sorted(each.process.poll() or 0 for each in workforce.workers) == [-9, -9, -9, 0]
    jobs = {id: b"%d" % number for number, id in submitters.ids.items()}
    views = judge_jobs(setup, jobs, poison=(poison,))
    judge_results(setup, jobs)
    seen = executions(workforce.executions)
    assert [len(seen.pop((poison, number))) for number in (1, 2, 3)] == [1, 1, 1]
    judge_executions(views, seen, setup.kills)
    judge_attempts(views, 0)
    assert judge_counters(setup, kept=count + 1)["dragoman_jobs_dispatched_total"] == count + 3


# -------------------------------------------------------------------- between submit and acknowledgement


def never_read(setup: Survivor, submit: Callable[[], None]) -> None:
    """Submit while the broker is frozen, so that the request stays in the kernel until the broker is killed."""
    setup.broker.stop()
    submit()


def at_once(setup: Survivor, submit: Callable[[], None]) -> None:
    """Submit. When the broker is killed, the request may have been read or not."""
    submit()


def written(setup: Survivor, submit: Callable[[], None]) -> None:
    """Submit, and wait until the store's log changes."""
    log = setup.data / "store.db-wal"
    before = log.stat().st_mtime_ns
    submit()
    until(lambda: log.stat().st_mtime_ns != before, "something is written")


@pytest.mark.parametrize("moment", [never_read, at_once, written])
def test_a_submit_that_was_not_answered_can_be_said_again(
    programs: Programs, moment: Callable[[Survivor, Callable[[], None]], None]
) -> None:
    """The broker dies between submit and acknowledgement: the same key afterwards gives one job (R24, R103)."""
    setup = Survivor(programs)
    before = setup.enqueue("tasks", "the one before")
    body = json.dumps({"service": "tasks", "payload": "x", "key": "once"}).encode()
    listener = setup.listener()
    listener.connect()
    moment(setup, lambda: listener.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"}))
    setup.kill()
    listener.close()
    setup.start()
    ids = {setup.enqueue("tasks", "x", key="once") for _ in range(2)}
    assert {view["id"] for view in setup.jobs()} == {before, *ids}
    assert len(ids) == 1
    told = setup.numbers()
    assert told["dragoman_jobs_accepted_total"] + told["dragoman_jobs_restored_total"] == 2


def test_a_client_says_again_what_was_not_answered(programs: Programs) -> None:
    """The SDK repeats requests: its caller notices only the delay."""
    setup = Survivor(programs)
    with Client(setup.native) as client, ThreadPoolExecutor(8) as threads:
        first = client.enqueue("tasks", b"the one before")
        setup.broker.stop()
        waiting = [threads.submit(client.enqueue, "tasks", b"x") for _ in range(8)]
        setup.kill_and_start()
        ids = {each.result(PATIENCE) for each in waiting}
        assert len(ids) == 8
        assert {view["id"] for view in setup.jobs()} == {first, *ids}

"""Groups and chains of jobs while brokers and workers are killed: each job runs after those that it names, with their
results, and a batch is there whole or not at all (R190 to R194)."""

from __future__ import annotations

import random
import threading
from typing import Any

from chaos_oracle import executions
from chaos_services import result_of
from survivor import Survivor
from workforce import Workforce

from dragoman import Client, NewJob
from dragoman.core.results_payload import Entry, pack_results
from programs import Programs, until

LONG = 120.0  # what takes a few seconds on a machine of our own may take longer beside others
MEMBERS = 12
KEPT = {"attempts": 50, "retry_first": 0.05, "retry_cap": 0.2}  # no job shall run out of attempts by our kills


class Batch:
    """A group, a job that takes its results, and a chain of two behind that. In some, a job of the group fails; then
    one more job runs after the group in spite of it."""

    def __init__(self, number: int) -> None:
        self.fails = number % 5 == 4
        self.group = NewJob("").id  # any new id
        options: dict[str, Any] = {"group": self.group, **KEPT}
        self.members = [NewJob("tasks", b"%d/%d" % (number, each), **options) for each in range(MEMBERS)]
        if self.fails:
            self.members[number % MEMBERS] = NewJob("tasks", b"fail", group=self.group, attempts=1)
        self.all = NewJob("tasks", b"own", after=[self.group], input="results", **KEPT)  # type: ignore[arg-type]
        self.next = NewJob("tasks", after=[self.all], input="result", **KEPT)  # type: ignore[arg-type]
        self.last = NewJob("tasks", b"last", after=[self.next, self.all], input="results", **KEPT)  # type: ignore[arg-type]
        self.anyway = NewJob(
            "tasks",
            b"",
            after=[self.group],
            after_failure="run",
            input="results",
            **KEPT,  # type: ignore[arg-type]
        )

    @property
    def jobs(self) -> list[NewJob]:
        return [self.last, self.next, *self.members, self.all, self.anyway]


class Enqueuers:
    """Threads that enqueue batches. Their client repeats requests that were not answered."""

    def __init__(self, setup: Survivor, batches: list[Batch], threads: int = 3) -> None:
        self.done: list[Batch] = []
        self._troubles: list[str] = []
        self._client = Client(setup.native, connect_timeout=LONG)
        shares = [batches[first::threads] for first in range(threads)]
        self._threads = [threading.Thread(target=self._work, args=(share,), daemon=True) for share in shares]
        for each in self._threads:
            each.start()

    def are_done(self) -> bool:
        assert not self._troubles, self._troubles
        return not any(each.is_alive() for each in self._threads)

    def close(self) -> None:
        self._client.close()

    def _work(self, batches: list[Batch]) -> None:
        try:
            for batch in batches:
                self._client.enqueue_jobs(batch.jobs)
                self.done.append(batch)
        except Exception as error:
            self._troubles.append(repr(error))


def test_groups_and_chains_survive_kills(programs: Programs) -> None:
    chance = random.Random(17)
    batches = [Batch(number) for number in range(60)]
    jobs = sum(len(batch.jobs) for batch in batches)
    setup = Survivor(programs, "--set", "max_worker_deaths=100", "--set", "worker_resume_timeout=1")
    workforce = Workforce(programs, setup, workers=2, processes=2, concurrency=4)
    enqueuers = Enqueuers(setup, batches)
    victims = ["broker"] * 6 + ["worker"] * 5
    chance.shuffle(victims)
    instants = sorted(chance.randrange(40, int(0.8 * jobs)) for _ in victims)
    for victim, instant in zip(victims, instants, strict=True):
        until(lambda instant=instant: workforce.executed() >= instant, f"{instant} jobs were begun", LONG)
        if victim == "worker":
            workforce.kill_one(chance)
        else:
            setup.kill()
            setup.start(until="is listening")  # the next death may come while it reads its store
    until(enqueuers.are_done, "all batches are acknowledged", LONG)
    until(setup.has_ended_all, "all jobs have ended", LONG)
    enqueuers.close()
    views = {view["id"]: view for view in setup.jobs()}
    assert len(views) == jobs, "each job is there once"
    assert not list(setup.jobs(state="dependent"))
    seen: dict[str, list[float]] = {}
    for (job, _), times in executions(workforce.executions).items():
        seen.setdefault(job, []).extend(times)
    with Client(setup.native) as client:
        for batch in batches:
            judge(client, batch, views, seen)


def judge(client: Client, batch: Batch, views: dict[str, dict[str, Any]], seen: dict[str, list[float]]) -> None:
    """Check a batch: outcomes, inputs by the results that were made from them, and the order of executions."""
    group = client.group(batch.group)
    assert (group.size, group.open, group.undone) == (MEMBERS, 0, int(batch.fails))
    results: list[bytes | None] = [
        None if each.payload == b"fail" else result_of(each.id, each.payload) for each in batch.members
    ]
    found = client.group_results(batch.group, errors="return")
    assert [None if isinstance(each, Exception) else each for each in found] == results
    entry: list[Entry] = [list(results)]
    expected = {batch.anyway: result_of(batch.anyway.id, pack_results(b"", entry))}
    if batch.fails:
        for job in (batch.all, batch.next, batch.last):
            view = views[job.id]
            assert view["outcome"] == "cancelled", view
            assert "which it comes after, ended" in view["reason"]
            assert job.id not in seen, "it was cancelled, and ran"
    else:
        first = expected[batch.all] = result_of(batch.all.id, pack_results(b"own", entry))
        second = expected[batch.next] = result_of(batch.next.id, first)
        expected[batch.last] = result_of(batch.last.id, pack_results(b"last", [second, first]))
    for job, result in expected.items():
        assert views[job.id]["outcome"] == "done", views[job.id]
        assert client.result(job.id) == result, "it was made from another input"
    began = max(min(seen[each.id]) for each in batch.members if each.id in seen)
    assert all(min(seen[job.id]) > began for job in expected), "a job ran before those that it comes after"

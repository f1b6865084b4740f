"""The broker's work for a job, in calls of its functions: a ceiling for each dialect.

A figure that rises says that somebody added work to every job. If it is worth it, raise the ceiling and say why in the
commit. It counts the sources; compiled functions are not seen.
"""

from __future__ import annotations

import pytest

from call_counts import counting
from dragoman.core.states import Outcome
from pairs.asgi import one_world
from pairs.participants import Caller, Participants, Worker
from pairs.test_pairs import CALLERS

JOBS = 20

# Calls of one job, each alone in its turns: what was counted, and a twentieth more.
CEILINGS = {
    "native": 115 * 1.05,
    "http": 545 * 1.05,
    "pingpong": 97 * 1.05,
    "pingpong-package": 102 * 1.05,
    "powerhose": 138 * 1.05,
    "memodb": 108 * 1.05,
    "majordomo": 106 * 1.05,
    "majordomo-0.2": 107 * 1.05,
    "majordomo-field": 107 * 1.05,
}


def do_job(caller: Caller, worker: Worker) -> None:
    caller.submit(b"bonjour")
    assert worker.jobs() == [b"bonjour"]
    worker.finish(b"hello")
    assert caller.told() == [(Outcome.DONE, b"hello")]


@pytest.mark.parametrize("participants", CALLERS, ids=str)
def test_calls_of_a_job(participants: Participants) -> None:
    with one_world(strict=False) as world:
        worker, caller = participants.worker(world), participants.call(world)
        for _ in range(3):
            do_job(caller, worker)
        with counting() as calls:
            for _ in range(JOBS):
                do_job(caller, worker)
    a_job = sum(calls.values()) / JOBS
    most = ", ".join(f"{module}:{name} {count / JOBS:g}" for (module, name), count in calls.most_common(60))
    assert a_job <= CEILINGS[participants.name], f"{a_job} calls: {most}"

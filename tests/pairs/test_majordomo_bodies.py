"""Bodies of several frames and results in parts, which only Majordomo has, with every other dialect."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from dragoman.core.states import Outcome
from pairs import native
from pairs.asgi import one_world
from pairs.majordomo import FIELD, RFC7, RFC18, Rfc7Caller, Rfc7Worker, Rfc18Worker
from pairs.participants import Participants
from pairs.test_pairs import CALLERS, PARTICIPANTS
from pairs.world import World

OWN = [RFC7, RFC18, FIELD]
BODY = [b"first", b"", bytes(range(256)), b"x" * 50_000]


@pytest.mark.parametrize("callers", OWN, ids=str)
def test_the_frames_of_a_job_are_kept_for_majordomos_workers_and_joined_for_all_others(callers: Participants) -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            caller, worker = callers.call(world), workers.worker(world)
            assert isinstance(caller, Rfc7Caller)
            caller.submit(*BODY)
            assert worker.jobs() == [b"".join(BODY)]
            if isinstance(worker, Rfc7Worker):
                assert worker.body == BODY
            worker.finish(b"done")
            assert caller.told() == [(Outcome.DONE, b"done")]

    check_every_row(check, [(workers,) for workers in PARTICIPANTS])


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_the_frames_of_a_result_are_kept_for_majordomos_callers_and_joined_for_all_others(
    callers: Participants,
) -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            caller, worker = callers.call(world), workers.worker(world)
            assert isinstance(worker, Rfc7Worker)
            caller.submit(b"job")
            worker.jobs()
            worker.finish(*BODY)
            if isinstance(caller, Rfc7Caller):
                assert caller.bodies() == [BODY]
            else:
                assert caller.told() == [(Outcome.DONE, b"".join(BODY))]

    check_every_row(check, [(workers,) for workers in OWN])


@pytest.mark.parametrize("callers", [each for each in CALLERS if each not in (RFC18, FIELD, native.NATIVE)], ids=str)
def test_parts_that_a_caller_has_no_word_for_come_in_front_of_the_rest(callers: Participants) -> None:
    world = World()
    caller, worker = callers.call(world), RFC18.worker(world)
    assert isinstance(worker, Rfc18Worker)
    caller.submit(b"job")
    worker.jobs()
    worker.part(b"one")
    worker.part(b"two", b"frames")
    assert caller.told() == []
    worker.finish(b"rest")
    assert caller.told() == [(Outcome.DONE, b"onetwoframesrest")]
    assert world.counters.dropped_parts == 0

"""Jobs of native workers: JOB, RETURN, RECALL, and jobs of a lost worker."""

from __future__ import annotations

import pytest

from dragoman.core.policy import Policy

from .world import A, End, World, failed, hello, names, new_id, report, result, submit

KIB_64 = 65_536


def recalled(world: World, worker: End, client: End) -> tuple[bytes, bytes]:
    """Return token and id of an ended job that the worker still holds."""
    token, id = world.running(worker, client)
    assert [said[1] for said in client.say(*names("CANCEL", id))] == ["cancelled"]
    assert [said[0] for said in worker.told()] == ["RECALL"]
    assert world.state(worker) == ("stuck" if world.broker.worker_registry.workers else "gone")
    return token, id


# -------------------------------------------------------------------- Work


def test_results_come_in_whatever_order() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client()
    jobs = [world.running(worker, client) for _ in range(3)]
    for token, id in reversed(jobs):
        worker.say(*result((token, id)))
        assert client.told() == [("RESULT", id, id)]


def test_many_results_in_one_message() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client()
    jobs = [world.running(worker, client) for _ in range(3)]
    worker.say(*result(*jobs))
    assert client.told() == [("RESULT", id, id) for _, id in jobs]


def test_one_message_of_results_may_have_some_that_are_late() -> None:
    world = World()
    worker, client = world.worker(capacity=2), world.client()
    token, id = world.running(worker, client)
    worker.say(*result((A, b"nobody's"), (token, b"DONE"), (token, b"again")))
    assert client.told() == [("RESULT", id, b"DONE")]
    assert world.counters.late_results == 2


def test_a_failure_is_told_as_the_worker_tells_it() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*failed(token, "ValueError", "not a picture", "Traceback …\nline 2"))
    assert client.told() == [("FAILED", "failed", id, "ValueError", "not a picture", "Traceback …\nline 2")]


def test_a_worker_may_say_that_a_job_was_lost_and_lives_on() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*failed(token, "", "its process died", "", outcome=3))
    assert client.told() == [("FAILED", "lost", id, "", "its process died", "")]
    token, id = world.running(worker, client)
    worker.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


@pytest.mark.parametrize(
    ("type", "message", "detail"),
    [("", "", ""), ("", "only this", ""), ("T", "", "\0\0\0"), ("ü", "ö", "ä" * 1000)],
)
def test_a_failure_may_say_little_or_strange_things(type: str, message: str, detail: str) -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*failed(token, type, message, detail))
    assert client.told() == [("FAILED", "failed", id, type, message, detail)]


def test_what_stands_between_the_fields_of_a_failure_is_taken_out_of_them() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*failed(token, "a\0b", "c\0d", "e\0f"))
    assert client.told() == [("FAILED", "failed", id, "ab", "cd", "e\0f")]


def test_a_worker_decides_about_retries_if_both_sides_know_it() -> None:
    """R181."""
    world = World()
    for about in ({}, {"retries": True}):
        end = world.connect()
        ((word, _, welcome),) = end.say(*hello(2, {"services": ["other"], **about}))
        assert (word, welcome.get("retries")) == ("WELCOME", about.get("retries"))
    worker, client = world.worker(), world.client()
    (id,) = world.submit(client, b"x", attempts=3)
    token = worker.told()[0][1]
    (again,) = worker.say(*failed(token), b"0")
    assert (again[0], again[2]) == ("JOB", id)
    worker.say(*failed(again[1]), b"never")
    assert client.told() == [("FAILED", "failed", id, "ValueError", "not so", "")]


def test_a_decision_that_cannot_be_read_is_malformed() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    worker.receive([*failed(token), b"soon"])
    world.run_once()
    assert worker.told() == [("ERROR", "FAILED", "malformed")]


def test_texts_of_a_failure_are_cut_at_64_kib() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    worker.receive([b"\x21\x01" + token, b"T", b"\xff" * 30_000, b"d" * 70_000])
    world.run_once()
    ((_, _, _, type, message, detail),) = client.told()
    assert type == "T"
    assert KIB_64 - 3 < len(message.encode()) <= KIB_64
    assert detail == "d" * KIB_64


def test_progress_and_parts_are_passed_on_with_the_attempt_s_number() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client, attempts=2)
    worker.receive(report("PROGRESS", token, b"1"))
    worker.receive(report("PART", token, b"2"))
    worker.say(*report("PROGRESS", token, b""))
    assert client.told() == [("PROGRESS", id, 1, b"1"), ("PART", id, 1, b"2"), ("PROGRESS", id, 1, b"")]
    worker.say(*failed(token))
    world.wait(5, worker)
    ((_, again, _, number, _, _, _),) = worker.told()
    worker.say(*report("PART", again, b"anew"))
    assert (number, client.told()) == (2, [("PART", id, 2, b"anew")])


def test_a_part_leaves_before_the_result_that_completes_it() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.receive(report("PART", token, b"1"))
    worker.receive(result((token, b"2")))
    world.run_once()
    assert client.told() == [("PART", id, 1, b"1"), ("RESULT", id, b"2")]


def test_a_client_that_wants_a_result_whole_gets_its_parts_in_front_of_it() -> None:
    """Flag 8. No part is missing, whichever connections break meanwhile."""
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client, flags=8)
    worker.receive(report("PART", token, b"1"))
    worker.receive(report("PROGRESS", token, b"half"))
    worker.receive(report("PART", token, b"2"))
    worker.receive(result((token, b"3")))
    world.run_once()
    assert client.told() == [("PROGRESS", id, 1, b"half"), ("RESULT", id, b"123")]


def test_progress_of_an_attempt_that_is_over_reaches_nobody_and_frees_no_slot() -> None:
    """It crossed the RECALL: its worker is still at it."""
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = recalled(world, worker, client)
    for word in ("PROGRESS", "PART"):
        assert worker.say(*report(word, token, b"half")) == []
    assert client.told() == []
    assert world.state(worker) == "stuck"


def test_another_worker_s_token_is_not_answered() -> None:
    """A token belongs to a connection (T8)."""
    world = World()
    first, client = world.worker(), world.client()
    token, id = world.running(first, client)
    second = world.worker()
    for frames in (result((token, b"forged")), failed(token), report("PART", token, b""), names("RETURN", token)):
        assert second.say(*frames) == []
    assert client.told() == []
    first.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


# -------------------------------------------------------------------- RECALL and what it is answered with


@pytest.mark.parametrize("answer", ["RETURN", "RESULT", "FAILED"])
def test_whatever_answers_a_recall_is_the_last_of_the_attempt_and_frees_the_slot(answer: str) -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = recalled(world, worker, client)
    (waiting,) = world.submit(client, b"next")
    assert worker.told() == []
    frames = {"RETURN": names("RETURN", token), "RESULT": result((token, b"")), "FAILED": failed(token)}[answer]
    ((word, _, id, *_),) = worker.say(*frames)
    assert (word, id) == ("JOB", waiting)
    assert client.told() == []
    assert world.counters.late_results == (answer != "RETURN")


def test_a_second_answer_to_a_recall_is_late_and_frees_nothing() -> None:
    world = World()
    worker, client = world.worker(capacity=2), world.client()
    token, _ = recalled_of_two(world, worker, client)
    worker.say(*result((token, b"")))
    for frames in (result((token, b"")), failed(token), names("RETURN", token)):
        assert worker.say(*frames) == []
    assert world.counters.late_results == 3
    (known,) = world.broker.worker_registry.workers.values()
    assert known.free == 1


def recalled_of_two(world: World, worker: End, client: End) -> tuple[bytes, bytes]:
    token, id = world.running(worker, client)
    world.running(worker, client)
    client.say(*names("CANCEL", id))
    worker.told()
    return token, id


def test_while_a_recall_is_not_answered_only_the_other_slots_are_used() -> None:
    world = World()
    worker, client = world.worker(capacity=2), world.client()
    token, id = world.running(worker, client)
    client.say(*names("CANCEL", id))
    worker.told()
    second, _ = world.running(worker, client)
    world.submit(client, b"third")
    assert worker.told() == []
    assert [said[0] for said in worker.say(*names("RETURN", token))] == ["JOB"]
    assert worker.say(*result((second, b""))) == []


@pytest.mark.parametrize("why", ["deadline", "job time-out"])
def test_a_job_is_recalled_when_its_time_is_over(why: str) -> None:
    world = World()
    worker, client = world.worker(), world.client()
    times = {"deadline": {"deadline": 2_000}, "job time-out": {"job_timeout": 2_000}}[why]
    token, id = world.running(worker, client, **times)
    world.wait(2.0)
    assert [said[1:3] for said in client.told()] == [("timed out", id)]
    assert [said[:2] for said in worker.told()] == [("RECALL", token)]


def test_a_recalled_job_with_attempts_left_goes_to_another_worker_and_its_first_result_is_late() -> None:
    world = World()
    first, client = world.worker(), world.client()
    token, id = world.running(first, client, job_timeout=2_000, attempts=2)
    second = world.worker()
    world.wait(4, first, second)
    ((_, again, same, number, _, _, _),) = second.told()
    assert (same, number) == (id, 2)
    first.say(*result((token, b"too late")))
    assert client.told() == []
    second.say(*result((again, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


def test_a_worker_that_never_answers_a_recall_is_dismissed_after_stuck_limit() -> None:
    world = World(stuck_timeout=50.0)
    worker, client = world.worker(), world.client()
    recalled(world, worker, client)
    world.wait(49, worker)
    assert not worker.is_over
    world.wait(2, worker)
    assert worker.told() == [("BYE", 0, "its worker was stuck for 50 s")]
    assert worker.is_over


# -------------------------------------------------------------------- Return


def test_a_returned_job_goes_to_another_worker_and_no_attempt_is_spent() -> None:
    world = World()
    first, client = world.worker(), world.client()
    token, id = world.running(first, client, attempts=1)
    second = world.worker()
    assert first.say(*names("RETURN", token)) == []
    ((_, _, given, number, _, _, _),) = second.told()
    assert (given, number) == (id, 1)
    assert world.state(first) == "idle"


def test_many_jobs_are_returned_at_once_and_keep_their_places() -> None:
    world = World()
    first, client = world.worker(capacity=3), world.client()
    jobs = [world.running(first, client) for _ in range(3)]
    world.submit(client, b"a later one")
    first.receive([b"\x05"])
    first.say(*names("RETURN", *(token for token, _ in jobs)))
    second = world.worker(capacity=9)
    assert [said[2] for said in second.told()][:3] == [id for _, id in jobs]


def test_tokens_that_are_returned_twice_or_were_never_given_are_passed_over() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    ((word, _, again, *_),) = worker.say(*names("RETURN", A, token, token, new_id(9)))
    assert (word, again) == ("JOB", id)


def test_a_job_that_everybody_returns_rests_now_and_then() -> None:
    """R8: it is not handed out for ever in one turn."""
    world = World(policy=Policy(max_undelivered=3))
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    for _ in range(2):
        ((_, token, *_),) = worker.say(*names("RETURN", token))
    assert worker.say(*names("RETURN", token)) == []
    world.wait(0.2)
    assert [said[2] for said in worker.told()] == [id]


def test_a_job_that_is_returned_after_its_client_has_gone_is_not_given_again() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    client.cut()
    assert worker.say(*names("RETURN", token)) == []
    assert world.present == 0


# -------------------------------------------------------------------- D8: a worker is lost


def test_a_job_that_its_worker_may_have_seen_is_lost_with_it() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    _, id = world.running(worker, client)
    worker.cut()
    assert client.told() == [("FAILED", "lost", id, "", "its worker's connection ended", "")]


def test_a_job_that_never_left_goes_to_another_worker_and_no_attempt_is_spent() -> None:
    world = World()
    first, client = world.worker(capacity=2), world.client()
    _, seen = world.running(first, client)
    first.stop_reading()
    (unseen,) = world.submit(client, b"never leaves", attempts=1)
    first.cut()
    assert [said[1:3] for said in client.told()] == [("lost", seen)]
    second = world.worker()
    assert [(said[2], said[3]) for said in second.told()] == [(unseen, 1)]


def test_of_a_message_that_left_in_part_nothing_was_seen() -> None:
    world = World()
    first, client = world.worker(capacity=3), world.client()
    first.stream.room = 20
    client.say(*submit([(A, b"one"), (new_id(1), b"two")], attempts=1))
    first.cut()
    second = world.worker(capacity=3)
    assert [(said[2], said[3]) for said in second.told()] == [(A, 1), (new_id(1), 1)]
    assert client.told() == []


def test_a_job_given_in_the_turn_in_which_its_worker_is_lost_was_seen_by_nobody() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    client.receive(submit([(A, b"job")], attempts=1))
    worker.cut()
    assert [(said[2], said[3]) for said in world.worker().told()] == [(A, 1)]
    assert client.told() == []


def test_with_attempts_left_a_lost_job_goes_to_another_worker_after_a_rest() -> None:
    world = World()
    first, client = world.worker(), world.client()
    _, id = world.running(first, client, attempts=2)
    second = world.worker()
    first.cut()
    world.wait(0.2, second)
    assert [(said[2], said[3]) for said in second.told()] == [(id, 2)]


def test_a_recalled_job_of_a_lost_worker_ends_nothing_twice() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    recalled(world, worker, client)
    worker.cut()
    assert client.told() == []
    assert world.ended == {"cancelled": 1}


def test_a_worker_that_comes_back_is_another_worker() -> None:
    """A worker does not resume: its attempt ended with its connection."""
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    worker.cut()
    client.told()
    again = world.worker()
    again.say(*result((token, b"late")))
    assert client.told() == []
    assert world.counters.late_results == 1


# -------------------------------------------------------------------- clients that go


def test_without_a_session_waiting_jobs_end_with_the_connection_and_running_ones_may_end() -> None:
    """They waited thirty seconds for a client that could not come back, and were dispatched meanwhile."""
    world = World()
    worker, client = world.worker(), world.client()
    token, _ = world.running(worker, client)
    world.submit(client, b"waits")
    client.cut()
    assert world.ended == {"cancelled": 1}
    assert worker.say(*result((token, b"DONE"))) == []
    assert world.counters.unclaimed_results == 1


def test_a_client_that_reads_nothing_is_closed_after_a_while() -> None:
    """R17, also if it sends more and more calls."""
    world = World()
    worker, client = world.worker(), world.client()
    client.stop_reading()
    for number in range(400):
        client.receive(submit([(new_id(number), b"")]))
        world.run_once()
        ((_, token, *_),) = worker.told()
        worker.receive(result((token, bytes(99_000))))
        world.run_once()
    assert not client.is_over
    for _ in range(17):
        world.now += 1.0
        if not client.is_over:
            client.receive([b"\x04"])
        worker.receive([b"\x04"])
        world.run_once()
    assert client.is_over
    assert world.counters.connections_closed_slow == 1


def test_a_job_that_its_worker_stopped_at_its_time_limit_is_timed_out() -> None:
    """R220. The worker had only *failed* for it: 30 of 65 jobs of a busy machine."""
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*failed(token, "TimeoutError", "stopped after 60 s, the attempt's time-out", outcome=2))
    [(_, outcome, told, *_)] = client.told()
    assert (outcome, told) == ("timed out", id)
    assert world.state(worker) == "idle"

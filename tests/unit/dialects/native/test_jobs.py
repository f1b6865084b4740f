"""Jobs of native clients: submit, window, cancel, and the other messages of a client."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.counters import UNNAMED
from dragoman.core.options import JobOptions
from dragoman.core.policy import Policy
from dragoman.core.states import RefusalReason
from dragoman.dialects.native.clients import LONGEST_PARSED, MOST_PARSED

from .world import (
    MAX_PAYLOAD,
    SECRET,
    A,
    B,
    C,
    D,
    Other,
    World,
    failed,
    names,
    new_id,
    report,
    result,
    submit,
)

WAIT, BACKGROUND, ACCEPT = 1, 2, 4


def refused(id: bytes, type: str, *sentence: str) -> tuple[object, ...]:
    return ("FAILED", "refused", id, type, *sentence)


# -------------------------------------------------------------------- Submit


def test_a_job_s_way_there_and_back_byte_for_byte() -> None:
    """The page's examples."""
    world = World()
    worker, client = world.worker(capacity=16), world.client()
    head = bytes.fromhex("10 00 ff 00 00001388 00000000 00000000 6563686f")
    client.say(head, A, b"hello")
    ((job, record, payload),) = worker.inbox
    token = record[:16]
    assert (job, payload) == (bytes.fromhex("30 6563686f"), b"hello")
    assert record == token + A + bytes.fromhex("0001 00001388")
    worker.inbox.clear()
    worker.receive([b"\x20" + token, b"HELLO"])
    world.run_once()
    assert client.inbox == [[b"\x20" + A, b"HELLO"]]


def test_what_one_turn_gives_or_tells_leaves_in_one_message() -> None:
    world = World()
    worker, client = world.worker(capacity=2), world.client()
    client.receive(submit([(A, b"one"), (B, b"two")], job_timeout=5_000))
    world.run_once()
    ((job, records, *payloads),) = worker.inbox
    assert (job, payloads) == (b"\x30echo", [b"one", b"two"])
    first, second = records[:16], records[38:54]
    assert records == first + A + bytes.fromhex("0001 00001388") + second + B + bytes.fromhex("0001 00001388")
    worker.receive([b"\x20" + second + first, b"TWO", b"ONE"])
    world.run_once()
    assert client.inbox == [[b"\x20" + B + A, b"TWO", b"ONE"]]


def test_jobs_of_two_services_are_two_messages() -> None:
    world = World()
    worker, client = world.worker("one", "two", capacity=4), world.client()
    for number, service in enumerate(("one", "two", "one")):
        client.receive(submit([(new_id(number), service.encode())], service=service))
    world.run_once()
    assert [(message[0], len(message)) for message in worker.inbox] == [(b"\x30one", 4), (b"\x30two", 3)]
    assert [said[5].encode() == said[6] for said in worker.told()] == [True] * 3


def test_large_jobs_and_large_results_go_one_by_one() -> None:
    """More than a mebibyte in a message would be over what the other side may take."""
    world = World()
    worker, client = world.worker(capacity=20), world.client()
    for number in range(12):
        client.receive(submit([(new_id(number), bytes(99_000))]))
    world.run_once()
    assert [len(message) for message in worker.inbox] == [3] * 12
    jobs = worker.told()
    for job in jobs:
        worker.receive(result((job[1], bytes(99_000))))
    world.run_once()
    assert [len(message) for message in client.inbox] == [2] * 12
    assert {said[1] for said in client.told()} == {new_id(number) for number in range(12)}


@pytest.mark.parametrize("count", [1, 2, 100, 1023, 1024])
def test_batches_of_1_to_1024_jobs(count: int) -> None:
    world = World(window=2000, strict=False)
    worker, client = world.worker(capacity=1024), world.client()
    ids = [new_id(number) for number in range(count)]
    client.receive(submit([(id, id[-3:]) for id in ids]))
    world.run_once()
    jobs = worker.told()
    assert [(said[2], said[6]) for said in jobs] == [(id, id[-3:]) for id in ids]
    worker.say(*result(*((said[1], b"did " + said[6]) for said in jobs)))
    assert client.told() == [("RESULT", id, b"did " + id[-3:]) for id in ids]


def test_more_frames_than_the_largest_submit_has_end_the_connection() -> None:
    world = World(window=2000, strict=False)
    client = world.client()
    answers = client.say(*submit([(new_id(number), b"") for number in range(1025)]))
    assert answers == [("ERROR", "SUBMIT", "malformed")]
    client.say(*submit([(new_id(number), b"") for number in range(1026)]))
    assert client.is_over
    assert world.counters.accepted == 0


@pytest.mark.parametrize(
    "frames",
    [
        [submit([(A, b"")])[0]],
        [submit([(A, b"")])[0], A],
        [submit([(A, b"")])[0], A, b"one", b"two"],
        [submit([(A, b"")])[0], A + B, b"one"],
        [submit([(A, b"")])[0], A[:-1], b"one"],
        [submit([(A, b"")])[0], b"", b"one"],
        [submit([(A, b"")])[0], b"", b""],
        [submit([(A, b"")])[0][:15], A, b"one"],
        [b"\x10", A, b"one"],
        [submit([], service=b"\xff")[0], A, b"one"],
        [submit([], priority=10)[0], A, b"one"],
        [submit([], attempts=101)[0], A, b"one"],
    ],
    ids=range(12),
)
def test_a_submit_that_cannot_be_read_is_an_error_and_no_job(frames: list[bytes]) -> None:
    world = World()
    client = world.client()
    assert client.say(*frames) == [("ERROR", "SUBMIT", "malformed")]
    assert world.counters.accepted + world.counters.refused == 0


def test_silence_is_consent_and_accepted_is_said_to_those_who_ask() -> None:
    world = World()
    client = world.client()
    assert client.say(*submit([(A, b""), (B, b"")], flags=WAIT)) == []
    assert client.say(*submit([(C, b""), (D, b"")], flags=WAIT | ACCEPT)) == [("ACCEPTED", C), ("ACCEPTED", D)]


def test_jobs_nobody_offers_are_refused_unless_they_wait() -> None:
    world = World()
    client = world.client()
    told = client.say(*submit([(A, b""), (B, b"")], flags=ACCEPT))
    assert told == [refused(id, "no such service", "no such service: no worker offers 'echo'", "") for id in (A, B)]
    client.say(*submit([(A, b"one")], flags=WAIT))
    assert [said[6] for said in world.worker().told()] == [b"one"]


def test_a_service_that_was_offered_once_is_waited_for() -> None:
    world = World()
    world.worker().cut()
    client = world.client()
    assert client.say(*submit([(A, b"")])) == []


@pytest.mark.parametrize("name", ["", "n" * 129, "é" * 65, "a\0", "a\x9f", "n" * 60_000])
def test_a_service_that_has_no_name_is_refused(name: str) -> None:
    world = World()
    ((_, outcome, id, type, _, _),) = world.client().say(*submit([(A, b"")], service=name, flags=WAIT))
    assert (outcome, id, type) == ("refused", A, "invalid")


def test_background_jobs_are_refused() -> None:
    world = World()
    client = world.client()
    for flags in (BACKGROUND, BACKGROUND | WAIT, BACKGROUND | ACCEPT):
        told = client.say(*submit([(A, b""), (B, b"")], flags=flags))
        assert [said[:4] for said in told] == [refused(A, "invalid"), refused(B, "invalid")]
    assert world.counters.refused == 6


def test_an_id_of_a_present_job_is_refused_and_the_first_goes_on() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    client.say(*submit([(A, b"first")]))
    ((_, token, *_),) = worker.told()
    told = client.say(*submit([(A, b"second")]))
    assert [said[:4] for said in told] == [refused(A, "invalid")]
    worker.say(*result((token, b"FIRST")))
    assert client.told() == [("RESULT", A, b"FIRST")]


def test_an_id_of_another_client_s_present_job_is_refused() -> None:
    world = World()
    first, second = world.client(), world.client()
    first.say(*submit([(A, b"first")], flags=WAIT))
    assert [said[:4] for said in second.say(*submit([(A, b"second")], flags=WAIT))] == [refused(A, "invalid")]
    assert second.say(*names("CANCEL", A)) == []
    assert world.present == 1


def test_an_id_may_be_used_again_when_its_job_has_ended() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    for payload in (b"one", b"two", b"three"):
        client.say(*submit([(A, payload)]))
        ((_, token, *_),) = worker.told()
        worker.say(*result((token, payload.upper())))
        assert client.told() == [("RESULT", A, payload.upper())]


def test_an_id_that_is_used_again_before_its_outcome_was_told_is_a_job_of_its_own() -> None:
    """The first one's outcome took the second off the books: it could not be cancelled, and did not count."""
    world = World()
    client = world.client(SECRET)
    client.say(*submit([(A, b"first")], flags=WAIT))
    client.receive(names("CANCEL", A))
    assert [said[1] for said in client.say(*submit([(A, b"second")], flags=WAIT))] == ["cancelled"]
    assert world.job().payload == b"second"
    client.cut()
    again, _ = world.resumed()
    assert again.say(*names("RESUME", A)) == []
    assert [said[1] for said in again.say(*names("CANCEL", A))] == ["cancelled"]


def test_one_message_may_be_taken_in_part() -> None:
    """An id that is present, and one that comes twice in the message: ACCEPTED names each job that was taken, once."""
    world = World()
    client = world.client()
    client.say(*submit([(A, b"")], flags=WAIT))
    told = client.say(*submit([(A, b""), (B, b"first"), (B, b"second"), (C, b"")], flags=WAIT | ACCEPT))
    assert sorted(said[:4] for said in told) == [
        ("ACCEPTED", B),
        ("ACCEPTED", C),
        ("FAILED", "refused", A, "invalid"),
        ("FAILED", "refused", B, "invalid"),
    ]
    assert [job.payload for job in world.broker.jobs.values()] == [b"", b"first", b""]


def test_accepted_is_not_said_of_a_job_that_is_refused() -> None:
    """An id that was refused because a job of it was present was named in ACCEPTED, too."""
    world = World()
    client = world.client()
    client.say(*submit([(A, b"")], flags=WAIT))
    assert [said[0] for said in client.say(*submit([(A, b"")], flags=WAIT | ACCEPT))] == ["FAILED"]


def test_a_refusal_of_a_second_job_is_not_kept_as_the_outcome_of_the_first() -> None:
    """A client that reconnected and resumed the first one, still running, received it again."""
    world = World()
    client = world.client(SECRET)
    client.say(*submit([(A, b"first")], flags=WAIT))
    client.say(*submit([(A, b"second")], flags=WAIT))
    client.say(*submit([(A, bytes(MAX_PAYLOAD)), (B, bytes(MAX_PAYLOAD))], flags=WAIT))
    client.cut()
    again, _ = world.resumed()
    assert again.say(*names("RESUME", A)) == []
    assert [said[:4] for said in again.say(*names("RESUME", B))] == [refused(B, "too large")]


def test_priorities_are_kept_and_255_is_5() -> None:
    world = World()
    client = world.client()
    for payload, priority in ((b"0", 0), (b"unsaid", 255), (b"5", 5), (b"9", 9)):
        world.submit(client, payload, priority=priority, flags=WAIT)
    worker = world.worker(capacity=4)
    assert [said[6] for said in worker.told()] == [b"9", b"unsaid", b"5", b"0"]


def test_a_deadline_is_over_everything() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, first = world.running(worker, client, deadline=5_000)
    (second,) = world.submit(client, b"waits", deadline=5_000)
    world.wait(4.99)
    assert client.told() == []
    world.wait(0.02)
    told = [("FAILED", "timed out", id, "", "its deadline passed", "") for id in (first, second)]
    assert client.told() == told
    assert worker.told() == [("RECALL", token, "its deadline passed")]


def test_a_job_that_runs_for_too_long_is_recalled() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client, job_timeout=3_000)
    world.wait(3.01)
    assert client.told() == [("FAILED", "timed out", id, "", "no result within 3 s", "")]
    assert worker.told() == [("RECALL", token, "no result within 3 s")]
    assert world.state(worker) == "stuck"


def test_a_broker_that_is_full_refuses_as_busy() -> None:
    world = World(policy=Policy(max_jobs=2))
    client = world.client()
    told = client.say(*submit([(A, b""), (B, b""), (C, b"")], flags=WAIT | ACCEPT))
    assert [said[:4] for said in told] == [("ACCEPTED", A), ("ACCEPTED", B), refused(C, "busy")]


def test_a_broker_that_drains_refuses_what_comes_and_what_waits() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, runs = world.running(worker, client)
    client.say(*submit([(A, b"waits")]))
    world.broker.operator.close(world.now)
    world.run_once()
    assert [said[:4] for said in client.told()] == [refused(A, "draining")]
    assert [said[:4] for said in client.say(*submit([(B, b"")]))] == [refused(B, "draining")]
    worker.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", runs, b"DONE")]


def test_plans_are_bounded_in_number_and_in_size() -> None:
    """Heads of any length were remembered, a thousand of them: a service's name of a mebibyte each was a gibibyte."""
    world = World()
    client = world.client()
    for number in range(MOST_PARSED + 10):
        client.receive(submit([(new_id(number), b"")], service=f"s{number}"))
    client.receive(submit([(A, b"")], service="n" * 90_000))
    world.run_once()
    assert all(len(head) <= LONGEST_PARSED for head in world.session._clients._parsed)
    assert len(client.told()) == MOST_PARSED + 11


def test_the_same_head_means_the_same_for_every_client() -> None:
    world = World()
    worker = world.worker(capacity=4)
    for _ in range(2):
        assert world.running(worker, world.client(), deadline=9_000)


# -------------------------------------------------------------------- Credit


def test_jobs_beyond_the_window_are_refused_with_all_of_their_message() -> None:
    world = World()
    client = world.client(window=3)
    assert client.say(*submit([(A, b""), (B, b"")], flags=WAIT)) == []
    told = client.say(*submit([(C, b""), (D, b"")], flags=WAIT | ACCEPT))
    assert [said[:4] for said in told] == [refused(C, "busy"), refused(D, "busy")]
    assert client.say(*submit([(C, b"")], flags=WAIT)) == []
    assert [said[:4] for said in client.say(*submit([(D, b"")], flags=WAIT))] == [refused(D, "busy")]
    dropped = world.broker.counters.dropped["echo"]  # for the warning `jobs dropped`; the first two have left one
    assert dropped.causes == {RefusalReason.BUSY: 1}
    assert dropped.reason == "the client has 3 of 3 jobs in progress (window)"
    client.say(*submit([(D, b"")], "made up", flags=WAIT))  # names that are no services share a warning
    assert world.broker.counters.dropped.keys() == {"echo", UNNAMED}


@pytest.mark.parametrize("how", ["RESULT", "FAILED", "CANCEL", "deadline"])
def test_every_outcome_makes_room_in_the_window(how: str) -> None:
    world = World()
    worker, client = world.worker(), world.client(window=1)
    token, id = world.running(worker, client, deadline=2_000)
    assert [said[3] for said in client.say(*submit([(A, b"")]))] == ["busy"]
    if how == "RESULT":
        worker.say(*result((token, b"")))
    elif how == "FAILED":
        worker.say(*failed(token))
    elif how == "CANCEL":
        client.say(*names("CANCEL", id))
    else:
        world.wait(2)
    client.told()
    assert client.say(*submit([(A, b"")])) == []


def test_a_refusal_takes_no_room_in_the_window() -> None:
    world = World()
    client = world.client(window=1)
    for _ in range(3):
        assert [said[3] for said in client.say(*submit([(A, b"")]))] == ["no such service"]
    assert client.say(*submit([(A, b"")], flags=WAIT)) == []


def test_windows_are_one_a_client() -> None:
    world = World(window=1)
    for id in (A, B):
        assert world.client().say(*submit([(id, b"")], flags=WAIT)) == []


@pytest.mark.parametrize("capacity", [1, 2, 5, 1024])
def test_a_worker_is_given_as_many_jobs_as_it_says_and_no_more(capacity: int) -> None:
    world = World(window=2000, strict=False)
    worker, client = world.worker(capacity=capacity), world.client()
    for number in range(capacity + 3):
        client.receive(submit([(new_id(number), b"")]))
    world.run_once()
    jobs = worker.told()
    assert [said[2] for said in jobs] == [new_id(number) for number in range(capacity)]
    worker.say(*result((jobs[-1][1], b"")))
    assert client.told() == [("RESULT", jobs[-1][2], b"")]
    assert world.present == capacity + 2


@pytest.mark.parametrize("how", ["RESULT", "FAILED", "RETURN"])
def test_every_answer_of_a_worker_makes_room_for_another_job(how: str) -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    (second,) = world.submit(client, b"second")
    frames = {"RESULT": result((token, b"")), "FAILED": failed(token), "RETURN": names("RETURN", token)}[how]
    ((word, _, given, *_),) = worker.say(*frames)
    assert word == "JOB"
    assert given == (id if how == "RETURN" else second)  # it keeps its place


def test_the_longest_idle_worker_goes_first() -> None:
    world = World()
    workers = [world.worker() for _ in range(3)]
    client = world.client()
    for worker in workers:
        world.running(worker, client)


# -------------------------------------------------------------------- Cancel


def test_a_waiting_job_is_cancelled() -> None:
    world = World()
    client = world.client()
    (id,) = world.submit(client, b"job", flags=WAIT)
    told = [("FAILED", "cancelled", id, "", "cancelled by its caller", "")]
    assert client.say(*names("CANCEL", id)) == told
    assert world.present == 0


def test_a_running_job_is_cancelled_and_its_worker_is_told() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    assert [said[1] for said in client.say(*names("CANCEL", id))] == ["cancelled"]
    assert worker.told() == [("RECALL", token, "cancelled by its caller")]


def test_a_job_that_rests_between_two_attempts_is_cancelled() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client, attempts=2)
    worker.say(*failed(token))
    assert str(world.job().state) == "delayed"
    assert [said[1] for said in client.say(*names("CANCEL", id))] == ["cancelled"]
    world.wait(5, worker)
    assert worker.told() == []


def test_a_job_that_has_ended_cannot_be_cancelled() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.say(*result((token, b"DONE")))
    assert client.say(*names("CANCEL", id)) == [("RESULT", id, b"DONE")]
    assert client.say(*names("CANCEL", id, A)) == []


def test_the_result_that_crosses_cancel_is_what_comes() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    worker.receive(result((token, b"DONE")))
    assert client.say(*names("CANCEL", id)) == [("RESULT", id, b"DONE")]
    assert worker.told() == []


def test_a_job_is_cancelled_once_however_often_it_is_said() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    _, id = world.running(worker, client)
    client.receive(names("CANCEL", id, id))
    assert [said[0] for said in client.say(*names("CANCEL", id))] == ["FAILED"]
    assert [said[0] for said in worker.told()] == ["RECALL"]


def test_many_jobs_are_cancelled_at_once() -> None:
    world = World(window=2000, strict=False)
    client = world.client()
    ids = [new_id(number) for number in range(1024)]
    client.say(*submit([(id, b"") for id in ids], flags=WAIT))
    assert [said[1:3] for said in client.say(*names("CANCEL", *ids))] == [("cancelled", id) for id in ids]


def test_a_job_that_is_cancelled_in_the_turn_in_which_it_came_is_seen_by_nobody() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    client.receive(submit([(A, b"job")]))
    assert [said[1] for said in client.say(*names("CANCEL", A))] == ["cancelled"]
    assert worker.told() == []
    assert world.state(worker) == "idle"


def test_a_job_that_ends_in_the_turn_in_which_it_leaves_is_not_sent() -> None:
    """It was sent without its payload, for that was gone with the job, and a worker ran it."""
    world = World()
    worker, client = world.worker(), world.client()
    client.receive(submit([(A, b"job")], deadline=100))
    world.now += 0.2  # the loop comes late: what was decided goes out first, then the deadline is judged
    world.run_once()
    assert [said[1] for said in client.told()] == ["timed out"]
    assert worker.told() == []
    assert world.state(worker) == "idle"
    assert world.running(worker, client)


# -------------------------------------------------------------------- other dialects' workers and callers


def test_a_worker_of_another_dialect_fails_without_a_type() -> None:
    world = World()
    client = world.client()
    client.say(*submit([(A, b"job")], flags=WAIT))
    job = world.job()
    world.broker.withdraw(job, world.now, "an operator wants it so")
    world.run_once()
    assert client.told() == [("FAILED", "cancelled", A, "", "an operator wants it so", "")]


def test_a_caller_of_another_dialect_is_told_type_and_message_in_one_sentence() -> None:
    world = World()
    worker, other = world.worker(), Other()
    world.broker.submit("echo", b"job", other, JobOptions(), world.now)
    world.run_once()
    ((_, token, _, number, milliseconds, service, payload),) = worker.told()
    assert (number, milliseconds, service, payload) == (1, 60_000, "echo", b"job")
    worker.say(*report("PART", token, b"half"))
    worker.say(*failed(token, "ValueError", "not a picture", "Traceback"))
    (answer,) = other.told
    assert answer.reason == "ValueError: not a picture"  # type: ignore[attr-defined]


def test_no_limit_can_be_said() -> None:
    """Nothing said is the listener's 60 seconds, which is what came of saying none, too."""
    for asked, limit in ((0, 60.0), (0xFFFFFFFF, inf)):
        world = World()
        world.submit(world.client(), b"job", flags=1, job_timeout=asked)
        assert world.job().options.job_timeout == limit
    world = World()
    world.submit(world.client(), b"job", flags=1, deadline=0xFFFFFFFF)
    assert (world.job().deadline, world.job().options.job_timeout) == (inf, inf)

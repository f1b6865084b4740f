"""Start and end of a native connection: HELLO, WELCOME, heartbeats, BYE, and options."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.policy import Policy
from dragoman.dialects.native.options import ClientOptions, ListenerOptions, WorkerOptions
from dragoman.server.admission import AdmissionLimits

from .world import MAX_PAYLOAD, SECRET, A, World, hello, names, result, submit

OPTIONS = {"broker": "test", "heartbeat": 2.5, "lease": 10.0, "max_payload": MAX_PAYLOAD}


# -------------------------------------------------------------------- Hello


def test_a_worker_is_told_what_holds() -> None:
    world = World()
    assert world.connect().say(*hello(2, {"services": ["echo"]})) == [("WELCOME", 1, OPTIONS)]
    assert world.workers == 1
    (line,) = world.remarked("worker joined")
    assert (line["worker"], line["services"], line["peer"]) == ("peer-1", ["echo"], "peer-1")


def test_a_client_is_told_its_window_and_whether_it_may_come_back() -> None:
    world = World()
    more = {"window": 1000, "resume": 30.0, "resumed": False}
    assert world.connect().say(*hello(1, {})) == [("WELCOME", 1, OPTIONS | more)]


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (1, 1), (99, 99), (100, 100), (101, 100), (4_000_000_000, 100)])
def test_a_client_gets_the_window_it_wants_up_to_the_listener_s(asked: int, given: int) -> None:
    world = World(window=100)
    ((_, _, about),) = world.connect().say(*hello(1, {"window": asked}))
    assert about["window"] == given


@pytest.mark.parametrize("version", [1, 2, 255])
def test_the_lower_of_two_versions_is_spoken(version: int) -> None:
    ((word, spoken, _),) = World().connect().say(*hello(1, {}, version))
    assert (word, spoken) == ("WELCOME", 1)


def test_version_0_is_hung_up_on() -> None:
    world = World()
    end = world.connect()
    assert end.say(*hello(1, {}, 0)) == [("ERROR", "HELLO", "version")]
    assert end.is_over


@pytest.mark.parametrize("names", [["a"] * 65, [""], ["n" * 129], ["é" * 65], ["a\n"], ["\x7f"], ["a", "\ud800"]])
def test_services_that_cannot_be_offered_are_hung_up_on(names: list[str]) -> None:
    world = World()
    end = world.connect()
    assert end.say(*hello(2, {"services": names})) == [("ERROR", "HELLO", "malformed")]
    assert end.is_over
    assert world.workers == 0
    assert world.broker.worker_registry.services == {}


def test_64_services_of_128_bytes_are_offered() -> None:
    world = World()
    services = [f"{number:02}" + "é" * 63 for number in range(64)]
    worker = world.worker(*services)
    for service in services:
        assert world.submit(world.client(), b"job", service=service)
        ((word, token, _, _, _, named, _),) = worker.told()
        assert (word, named) == ("JOB", service)
        worker.say(*result((token, b"")))


def test_a_service_named_twice_is_offered_once() -> None:
    world = World()
    world.worker("echo", "echo")
    assert list(world.broker.worker_registry.services) == ["echo"]


def test_a_worker_with_one_name_too_many_for_the_broker_is_hung_up_on() -> None:
    world = World(policy=Policy(max_services=2))
    world.worker("a", "b")
    end = world.connect()
    assert end.say(*hello(2, {"services": ["c"]})) == [("ERROR", "HELLO", "malformed")]
    assert end.is_over


def test_a_worker_is_called_by_its_name_in_logs() -> None:
    world = World()
    world.connect().say(*hello(2, {"services": ["echo"], "name": "Anna"}))
    assert world.remarked("worker joined")[0]["worker"] == "Anna"


def test_twenty_errors_within_ten_seconds_close_the_connection() -> None:
    world = World()
    end = world.client()
    for _ in range(19):
        assert end.say(b"\x77") == [("ERROR", 0x77, "unknown word")]
    assert not end.is_over
    assert end.say(b"\x77") == [("ERROR", 0x77, "unknown word")]
    assert end.is_over
    assert world.bad == {"unknown word": 20}


def test_errors_now_and_then_are_borne() -> None:
    world = World(limits=AdmissionLimits(bad_messages=3))
    end = world.client()
    for _ in range(9):
        assert end.say(b"\x77") == [("ERROR", 0x77, "unknown word")]
        world.wait(6.0)
    assert not end.is_over


def test_an_error_ends_nothing_that_is_under_way() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    assert client.say(b"\x20" + A, b"") == [("ERROR", "RESULT", "role")]
    assert worker.say(b"\x20", b"") == [("ERROR", "RESULT", "malformed")]
    worker.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


# -------------------------------------------------------------------- Life


def test_every_heartbeat_is_answered_also_a_client_s() -> None:
    world = World()
    for end in (world.worker(), world.client()):
        for _ in range(5):
            assert end.say(b"\x04") == [("HEARTBEAT",)]
        assert end.say(b"\x04 and more, for later versions") == [("HEARTBEAT",)]


def test_a_worker_that_is_silent_for_its_lease_is_dismissed() -> None:
    world = World()
    worker = world.worker()
    world.wait(9.99)
    assert world.state(worker) == "idle"
    world.wait(0.02)
    assert worker.told() == [("BYE", 0, "its worker was silent for 10 s")]
    assert worker.is_over
    assert world.counters.expired_workers == 1


def test_what_a_silent_worker_held_is_lost() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    _, id = world.running(worker, client)
    world.wait(10.1)
    assert client.told() == [("FAILED", "lost", id, "", "its worker was silent for 10 s", "")]


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x04"],
        [b"\x22" + A, b"half"],
        [b"\x77"],
        [b"\x20"],
        [b"\x22" + A, bytes(MAX_PAYLOAD + 65_537)],
        [b"\x20" + A, bytes(MAX_PAYLOAD + 65_537)],
    ],
    ids=["HEARTBEAT", "PROGRESS", "unknown", "malformed", "too large", "too large RESULT"],
)
def test_any_message_is_a_life_sign(frames: list[bytes]) -> None:
    """A message that was too large was none."""
    world = World()
    worker = world.worker()
    world.wait(9.0)
    worker.say(*frames)
    world.wait(9.0)
    assert world.state(worker) == "idle"


def test_a_worker_that_goes_on_saying_heartbeat_while_it_works_keeps_its_job() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client, job_timeout=100_000)
    world.wait(60, worker)
    worker.say(*result((token, b"DONE")))
    assert client.told() == [("RESULT", id, b"DONE")]


def test_clients_may_be_silent() -> None:
    world = World()
    client = world.client()
    world.wait(100)
    assert client.say(b"\x04") == [("HEARTBEAT",)]


def test_our_own_pause_dismisses_nobody() -> None:
    world = World()
    worker = world.worker()
    world.now += 100
    world.run_once()
    assert world.state(worker) == "idle"


# -------------------------------------------------------------------- Leave


def test_a_worker_that_holds_nothing_and_says_drain_hears_bye() -> None:
    world = World()
    worker = world.worker()
    assert worker.say(b"\x05") == [("BYE", 1, "drained")]
    assert worker.is_over
    assert world.workers == 0


def test_a_worker_that_holds_jobs_and_says_drain_ends_them_and_is_given_nothing_more() -> None:
    world = World()
    worker, client = world.worker(capacity=3), world.client()
    tokens = [world.running(worker, client)[0] for _ in range(2)]
    assert worker.say(b"\x05") == []
    (waiting,) = world.submit(client, b"for another")
    assert worker.say(b"\x05") == []
    assert worker.say(*result((tokens[0], b"1"))) == []
    assert worker.say(*result((tokens[1], b"2"))) == [("BYE", 1, "drained")]
    assert worker.is_over
    other = world.worker()
    assert [said[2] for said in other.told()] == [waiting]


def test_a_worker_that_drains_gives_back_what_it_has_not_begun() -> None:
    world = World()
    worker, client = world.worker(capacity=2), world.client()
    (first, _), (second, second_id) = (world.running(worker, client, attempts=1) for _ in range(2))
    worker.receive([b"\x05"])
    assert worker.say(*names("RETURN", second)) == []
    assert worker.say(*result((first, b"1"))) == [("BYE", 1, "drained")]
    other = world.worker()
    ((_, _, id, number, _, _, _),) = other.told()
    assert (id, number) == (second_id, 1)


def test_a_recalled_job_is_waited_for_before_bye() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    token, id = world.running(worker, client)
    client.say(*names("CANCEL", id))
    assert [said[0] for said in worker.say(b"\x05")] == ["RECALL"]
    assert worker.say(*names("RETURN", token)) == [("BYE", 1, "drained")]


def test_bye_of_a_worker_closes_and_what_it_held_is_lost() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    _, id = world.running(worker, client)
    worker.say(b"\x06\x01", b"enough")
    assert worker.is_over
    assert client.told() == [("FAILED", "lost", id, "", "its worker sent BYE", "")]


@pytest.mark.parametrize("secret", ["", SECRET])
def test_bye_of_a_client_closes_and_its_waiting_jobs_are_withdrawn_at_once(secret: str) -> None:
    """They waited for as long as for a client that may come back, and a worker that came meanwhile was given them."""
    world = World()
    client = world.client(secret)
    world.submit(client, b"one", b"two", flags=1)
    client.say(b"\x06")
    assert client.is_over
    assert world.ended == {"cancelled": 2}
    assert world.worker().told() == []


def test_bye_of_a_client_lets_its_running_jobs_end() -> None:
    world = World()
    worker, client = world.worker(), world.client(SECRET)
    token, _ = world.running(worker, client)
    client.say(b"\x06")
    assert world.present == 1
    worker.say(*result((token, b"DONE")))
    assert (world.present, world.counters.unclaimed_results) == (0, 1)


def test_what_a_peer_says_behind_its_bye_is_not_heard() -> None:
    world = World()
    client = world.client()
    client.feed(b"".join([*client.carrier.encode([b"\x06"]), *client.carrier.encode(submit([(A, b"job")], flags=1))]))
    world.run_once()
    assert world.counters.accepted == 0


def test_an_operator_s_kill_is_a_bye_for_good_and_its_jobs_are_lost() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    world.running(worker, client)
    (known,) = world.broker.worker_registry.workers.values()
    world.broker.availability.drain(known, world.now, at_once=True)
    world.run_once()
    assert worker.told() == [("BYE", 1, "killed by an operator")]
    assert [said[1] for said in client.told()] == ["lost"]


# -------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "options",
    [{"heartbeat": 10.0}, {"heartbeat": 11.0}, {"lease": 2.5}, {"heartbeat": 3.0, "lease": 1.0}],
    ids=repr,
)
def test_a_heartbeat_must_be_shorter_than_the_lease(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="every worker would count as dead"):
        ListenerOptions(**options)  # type: ignore[arg-type]


def test_defaults_are_those_of_the_page() -> None:
    options = ListenerOptions()
    assert (options.heartbeat, options.lease, options.job_timeout, options.queue_timeout) == (2.5, 10, 60, 0)
    assert (options.attempts, options.window, options.client_resume_timeout) == (None, 1000, 30)
    assert (options.max_kept_bytes, options.max_sessions, options.stuck_timeout) == (16 << 20, 10_000, 3600)
    assert WorkerOptions() == WorkerOptions("default", 0)
    assert ClientOptions() == ClientOptions("default", 256, True)


def test_heartbeat_and_lease_are_told_as_the_listener_has_them() -> None:
    world = World(heartbeat=0.5, lease=2.0)
    end = world.connect()
    ((_, _, about),) = end.say(*hello(2, {"services": ["echo"]}))
    assert (about["heartbeat"], about["lease"]) == (0.5, 2.0)
    world.wait(2.1)
    assert [said[0] for said in end.told()] == ["BYE"]


@pytest.mark.parametrize(
    ("options", "asked", "milliseconds"),
    [
        ({}, {}, 60_000),
        ({"job_timeout": 7.0}, {}, 7_000),
        ({"job_timeout": 0.0}, {}, 0),
        ({}, {"job_timeout": 3_000}, 3_000),
        ({}, {"job_timeout": 3_000, "deadline": 2_000}, 2_000),
        ({}, {"job_timeout": 3_000, "deadline": 4_000}, 3_000),
        ({}, {"deadline": 90_000}, 90_000),
        ({"job_timeout": 0.0}, {"deadline": 90_000}, 90_000),
    ],
    ids=repr,
)
def test_the_time_a_job_may_run(options: dict[str, Any], asked: dict[str, int], milliseconds: int) -> None:
    """Deadline, job time-out, `job_timeout`: the first that was said; a deadline bounds all of it."""
    world = World(**options)
    worker, client = world.worker(), world.client()
    world.submit(client, b"job", **asked)
    ((_, _, _, _, told, _, _),) = worker.told()
    assert told == milliseconds


@pytest.mark.parametrize(
    ("options", "asked", "seconds"),
    [({"queue_timeout": 2.0}, 0, 2.0), ({}, 3_000, 3.0), ({"queue_timeout": 2.0}, 3_000, 3.0)],
)
def test_how_long_a_job_may_wait(options: dict[str, Any], asked: int, seconds: float) -> None:
    world = World(**options)
    client = world.client()
    (id,) = world.submit(client, b"job", flags=1, queue_timeout=asked)
    world.wait(seconds - 0.01)
    assert client.told() == []
    world.wait(0.02)
    assert client.told() == [("FAILED", "timed out", id, "", f"no worker was free within {seconds:g} s", "")]


def test_without_a_queue_timeout_a_job_waits_for_as_long_as_it_takes() -> None:
    world = World()
    world.submit(world.client(), b"job", flags=1)
    world.wait(500)
    assert world.present == 1


@pytest.mark.parametrize(("option", "asked", "tries"), [(None, 0, 1), (3, 0, 3), (None, 2, 2), (3, 2, 2), (2, 100, 3)])
def test_how_often_a_job_is_handed_out(option: int | None, asked: int, tries: int) -> None:
    """Its own number, or the listener's, or once; and a job that kills three workers is not given to a fourth."""
    world = World(attempts=option)
    client = world.client()
    world.submit(client, b"job", flags=1, attempts=asked)
    numbers = []
    for _ in range(tries):
        worker = world.worker()
        world.wait(5, worker)
        numbers += [said[3] for said in worker.told() if said[0] == "JOB"]
        worker.cut()
    assert numbers == list(range(1, tries + 1))
    assert [said[1] for said in client.told()] == ["lost"]


# -------------------------------------------------------------------- limits of services


def test_limits_that_a_worker_declares_hold_while_it_is_connected() -> None:
    """R183."""
    world = World()
    limits = {"echo": {"max_running": 4, "max_running_per_tenant": 2, "rate": "100/min", "colour": "blue"}, "other": {}}
    worker = world.connect()
    ((word, _, welcome),) = worker.say(*hello(2, {"services": ["echo"], "limits": limits}))
    assert (word, welcome["limits"]) == ("WELCOME", True)
    service = world.broker.worker_registry.services["echo"]
    assert service.limits is not None
    assert str(service.limits.setting) == "max_running 4, max_running_per_tenant 2, rate 100/min"
    worker.cut()
    world.run_once()
    assert str(service.limits.setting) == "no limits"


def test_worker_without_limits_is_not_told_of_them() -> None:
    world = World()
    ((_, _, welcome),) = world.connect().say(*hello(2, {"services": ["echo"]}))
    assert "limits" not in welcome


@pytest.mark.parametrize(
    "limits",
    [5, [], {"echo": 5}, {"echo": {"max_running": 0}}, {"echo": {"max_running": "4"}}, {"echo": {"max_running": True}}]
    + [{"echo": {"rate": each}} for each in (5, "5", "0/s", ["5/s"])],
)
def test_limits_that_cannot_be_read_are_hung_up_on(limits: object) -> None:
    world = World()
    worker = world.connect()
    assert worker.say(*hello(2, {"services": ["echo"], "limits": limits})) == [("ERROR", "HELLO", "malformed")]
    assert worker.is_over

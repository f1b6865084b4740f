"""The scheduler: runs that are made, skipped and refused, and changes of schedules."""

from __future__ import annotations

from datetime import datetime
from math import inf

import pytest

from dragoman.core.model import JobId
from dragoman.operations import scheduler
from dragoman.operations.scheduler import MAX_PAYLOAD, MAX_RUNS_PER_TICK, MAX_SCHEDULES, Scheduler, ScheduleState
from dragoman.operations.schemas import OperationError, ScheduleRequest

from .two_clocks import DAY, HOUR, NOON, STARTED, World, clock

# ---------------------------------------------------------------- runs


def test_runs_are_made_when_they_are_due() -> None:
    world = World()
    view = world.put(overlap=True)
    assert clock(view.next) == "2024-05-15T13:00:00+00:00"
    world.advance(HOUR - 1)
    assert world.moments() == []
    world.advance(2 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00", "2024-05-15T14:00:00"]


def test_a_run_has_the_request_the_payload_and_a_key_with_its_time() -> None:
    world = World()
    submitted: list[tuple[ScheduleRequest, bytes, str, float, str]] = []

    def submit(state: ScheduleState, payload: bytes, key: str, now: float) -> JobId:
        submitted.append((state.request, payload, key, now, state.owner))
        return JobId(b"j" * 16)

    world.scheduler = Scheduler(submit, lambda key, value: None, lambda job: True, lambda owner, service: None)
    request = ScheduleRequest(name="report", service="s", cron="0 * * * *", payload_base64="AP8=", priority=7)
    world.scheduler.put(request, STARTED, NOON, "web")
    world.scheduler.tick(STARTED, NOON + HOUR)
    assert submitted == [(request, b"\x00\xff", "cron/report/2024-05-15T13:00:00+00:00", STARTED, "web")]


def test_view_tells_what_was_and_what_will_be() -> None:
    world = World()
    world.put(timezone="Europe/Berlin")
    world.advance(HOUR)
    view = world.scheduler.get("report")
    assert (clock(view.last), clock(view.next)) == ("2024-05-15T15:00:00+02:00", "2024-05-15T16:00:00+02:00")
    assert view.last_job == JobId((1).to_bytes(16)).hex()
    assert (view.name, view.service, view.cron, view.every) == ("report", "s", "0 * * * *", None)
    assert (view.timezone, view.paused, view.overlap, view.runs, view.skipped) == ("Europe/Berlin", False, False, 1, 0)


def test_moments_are_those_of_the_zone() -> None:
    world = World()
    world.put(cron="30 2 * * *", timezone="America/New_York")
    world.advance(DAY)
    assert world.moments() == ["2024-05-16T06:30:00"]


def test_interval_keeps_to_its_grid_however_late_the_ticks_are() -> None:
    world = World()
    world.put(every=90.0, overlap=True)
    world.wall += 95.0
    world.tick()
    world.wall += 88.5
    world.tick()
    world.wall += 86.5
    world.tick()
    assert world.moments() == ["2024-05-15T12:01:30", "2024-05-15T12:03:00", "2024-05-15T12:04:30"]


def test_interval_of_odd_length_from_an_odd_moment_never_drifts() -> None:
    world = World()
    world.wall = start = NOON + 0.123457
    world.put(every=1.1, overlap=True)
    world.advance(1100.5)
    made = [datetime.fromisoformat(moment + "+00:00").timestamp() for moment in world.moments()]
    assert made == pytest.approx([start + 1.1 * number for number in range(1, 1001)], abs=1e-5)


def test_tick_says_when_the_next_is_due_but_never_more_than_a_minute_ahead() -> None:
    world = World()
    assert world.tick() == inf
    world.put(every=90.0)
    assert world.tick() == STARTED + 60.0
    world.now, world.wall = world.now + 60.0, world.wall + 60.0
    assert world.tick() == STARTED + 90.0


def test_a_crowd_is_made_a_few_at_a_time() -> None:
    world = World()
    for number in range(MAX_RUNS_PER_TICK * 2 + 1):
        world.put(f"n{number}")
    world.wall += HOUR
    assert world.tick() == world.now
    assert len(world.moments()) == MAX_RUNS_PER_TICK
    assert world.tick() == world.now
    assert world.tick() == world.now + 60.0
    assert len(world.moments()) == MAX_RUNS_PER_TICK + 1


def test_list_is_in_the_order_of_names() -> None:
    world = World()
    for name in ("b", "c", "a"):
        world.put(name)
    assert [view.name for view in world.scheduler.list()] == ["a", "b", "c"]


def test_removed_one_runs_no_more_and_leaves_no_note() -> None:
    world = World()
    world.put()
    world.scheduler.remove("report")
    world.commit()
    assert world.tick() == inf
    world.advance(2 * HOUR)
    assert (world.moments(), world.notes, world.scheduler.list()) == ([], {}, [])


# ---------------------------------------------------------------- overlap


def test_run_is_skipped_while_the_last_one_has_not_ended() -> None:
    world = World()
    world.put()
    world.advance(3 * HOUR)
    assert world.moments() == ["2024-05-15T13:00:00"]
    view = world.scheduler.get("report")
    assert (view.runs, view.skipped, clock(view.last)) == (1, 2, "2024-05-15T13:00:00+00:00")
    world.finish_all()
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T16:00:00"]


def test_a_skipped_run_is_not_made_later() -> None:
    world = World()
    world.put()
    world.advance(2 * HOUR)
    world.finish_all()
    world.moments()
    world.advance(HOUR / 2)
    world.crash()
    world.tick()
    assert world.moments() == []
    assert world.scheduler.get("report").skipped == 1


def test_with_overlap_it_is_made_anyway() -> None:
    world = World()
    world.put(overlap=True)
    world.advance(3 * HOUR)
    assert len(world.moments()) == 3
    assert world.scheduler.get("report").skipped == 0


def test_a_new_schedule_knows_the_job_of_the_old_one() -> None:
    world = World()
    world.put()
    world.advance(HOUR)
    view = world.put(cron="*/30 * * * *")
    assert view.runs == 0
    world.moments()
    world.advance(HOUR / 2)
    assert world.moments() == []
    assert world.scheduler.get("report").skipped == 1


# ---------------------------------------------------------------- changing a definition


def test_same_schedule_keeps_grid_and_counts() -> None:
    world = World()
    world.put(every=600.0, overlap=True)
    world.advance(900.0)
    view = world.put(every=600.0, overlap=True, payload="other")
    assert (view.runs, clock(view.next)) == (1, "2024-05-15T12:20:00+00:00")
    world.advance(300.0)
    assert [payload for _, payload in world.made] == [b"", b"other"]


def test_another_schedule_begins_anew() -> None:
    world = World()
    world.put(every=600.0, overlap=True)
    world.advance(900.0)
    view = world.put(every=1200.0, overlap=True)
    assert (view.runs, clock(view.next)) == (0, "2024-05-15T12:35:00+00:00")


def test_run_that_is_due_outlives_a_new_definition() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    world.put(overlap=True, payload="other")
    world.tick()
    assert world.made == [("cron/report/2024-05-15T13:00:00+00:00", b"other")]


def test_definition_that_is_refused_leaves_the_old_one_alone() -> None:
    world = World()
    world.put(overlap=True)
    with pytest.raises(OperationError):
        world.put(overlap=True, cron="61 * * * *")
    world.advance(HOUR)
    assert len(world.moments()) == 1


# ---------------------------------------------------------------- pausing


def test_paused_one_makes_nothing_and_catches_up_on_nothing() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1  # one is due
    view = world.scheduler.pause("report", world.now, world.wall)
    world.commit()
    assert (view.paused, view.next) == (True, None)
    assert world.tick() == inf
    world.advance(3 * HOUR)
    world.crash(down=HOUR / 4)
    assert world.scheduler.get("report").paused
    view = world.scheduler.resume("report", world.now, world.wall)
    world.commit()
    assert (view.paused, clock(view.next)) == (False, "2024-05-15T17:00:00+00:00")
    world.tick()
    assert world.moments() == []
    world.crash()
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T17:00:00"]


def test_pausing_and_resuming_twice_changes_nothing() -> None:
    world = World()
    world.put(overlap=True)
    world.wall += HOUR + 1
    assert not world.scheduler.resume("report", world.now, world.wall).paused
    world.tick()
    assert len(world.moments()) == 1  # what was due when it was resumed for nothing
    world.scheduler.pause("report", world.now, world.wall)
    assert world.scheduler.pause("report", world.now, world.wall).paused


def test_it_may_be_put_paused_and_put_to_go_on() -> None:
    world = World()
    world.put(overlap=True, paused=True)
    world.advance(2 * HOUR + 1)
    assert world.moments() == []
    assert clock(world.put(overlap=True).next) == "2024-05-15T15:00:00+00:00"
    world.advance(HOUR)
    assert world.moments() == ["2024-05-15T15:00:00"]


def test_resumed_interval_is_on_its_old_grid() -> None:
    world = World()
    world.put(every=600.0)
    world.scheduler.pause("report", world.now, world.wall)
    world.advance(1700.0)
    assert clock(world.scheduler.resume("report", world.now, world.wall).next) == "2024-05-15T12:30:00+00:00"


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"cron": None}, "set exactly one of cron and every"),
        ({"cron": "* * * * *", "every": 5.0}, "set exactly one of cron and every"),
        ({"cron": "61 * * * *"}, '"61" is not a number from 0 to 59'),
        ({"cron": "0 0 30 2 *"}, 'cron expression "0 0 30 2 *" never matches'),
        ({"timezone": "Mars/Olympus"}, 'unknown time zone "Mars/Olympus"'),
        ({"every": 5.0, "timezone": "Mars/Olympus"}, 'unknown time zone "Mars/Olympus"'),
        ({"payload": "x", "payload_base64": "eA=="}, "set only one of payload, payload_base64 and the body"),
        ({"payload_base64": "e"}, "payload_base64 is not valid base64"),
        ({"payload_base64": "e A=="}, "payload_base64 is not valid base64"),
        ({"payload_base64": "é"}, "payload_base64 is not valid base64"),
        (
            {"payload": "x" * (MAX_PAYLOAD + 1)},
            "the payload has 65537 bytes; a schedule's payload may have at most 65536",
        ),
        ({"name": "a\nb"}, r"schedule name 'a\nb': 1 to 128 bytes of visible text are allowed"),
        ({"name": "é" * 65}, "é': 1 to 128 bytes"),
    ],
)
def test_invalid_request_is_refused(request_fields: dict[str, object], message: str) -> None:
    world = World()
    with pytest.raises(OperationError) as caught:
        world.put(**request_fields)  # type: ignore[arg-type]
    assert caught.value.problem.kind == "invalid"
    assert message in caught.value.problem.detail
    assert (world.scheduler.list(), world.notes) == ([], {})


def test_service_name_is_checked_when_a_schedule_is_set() -> None:
    with pytest.raises(OperationError, match=r"service name 'a.x00': 1 to 128 bytes"):
        World().scheduler.put(ScheduleRequest(name="a", service="a\0", every=5.0), STARTED, NOON)


@pytest.mark.parametrize("method", ["get", "remove", "pause", "resume"])
def test_unknown_name_is_not_found(method: str) -> None:
    world = World()
    arguments = ("nobody", STARTED, NOON) if method in ("pause", "resume") else ("nobody",)
    with pytest.raises(OperationError, match='no schedule is named "nobody"') as caught:
        getattr(world.scheduler, method)(*arguments)
    assert caught.value.problem.kind == "not found"


def test_number_of_schedules_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SCHEDULES == 10_000
    monkeypatch.setattr(scheduler, "MAX_SCHEDULES", 3)
    world = World()
    for number in range(3):
        world.put(f"n{number}")
    with pytest.raises(OperationError, match="there are 3 schedules, the maximum; delete one first") as caught:
        world.put("n3")
    assert caught.value.problem.kind == "busy"
    world.put("n1", payload="changed")
    world.scheduler.remove("n0")
    world.put("n3")

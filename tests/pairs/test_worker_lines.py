"""Log lines about workers: the same lines with the same fields in every dialect."""

from __future__ import annotations

from typing import Any

from case_tables import check_every_row
from dragoman.core.states import Outcome
from dragoman.server.event_log import EventLog
from pairs import native
from pairs.asgi import one_world, settle
from pairs.participants import Participants
from pairs.test_pairs import PARTICIPANTS
from pairs.world import SERVICE, World

ABOUT = {"worker", "id", "dialect", "services", "capacity", "peer"}
ROWS = [(each,) for each in PARTICIPANTS]


class Lines:
    """The lines of a world's log, in order."""

    def __init__(self, world: World) -> None:
        self._lines: list[tuple[str, dict[str, Any]]] = []
        EventLog(world.broker.events, self._write, drain_timeout=30.0)

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self._lines = self._lines, []
        return taken

    def _write(self, level: str, event: str, **fields: Any) -> None:
        assert level == "info"
        self._lines.append((event, fields))


def join(world: World, lines: Lines, workers: Participants) -> tuple[Any, dict[str, Any]]:
    """Return a worker that has joined, and the fields of its one log line."""
    worker = workers.worker(world)
    ((event, about),) = lines.take()
    (known,) = world.broker.worker_registry.workers.values()
    assert event == "worker joined"
    assert set(about) == ABOUT
    assert (about["worker"], about["id"], about["dialect"]) == (known.name, known.id, workers.dialect)
    assert (about["services"], about["capacity"]) == ([each.name for each in known.services], known.profile.capacity)
    assert SERVICE in about["services"]
    assert about["peer"]
    return worker, about


def test_a_worker_that_joins_and_vanishes_with_its_job_has_two_lines() -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            lines = Lines(world)
            worker, about = join(world, lines, workers)
            native.NATIVE.call(world).submit(b"bonjour")
            assert worker.jobs() == [b"bonjour"]
            worker.vanish()
            event, fields = lines.take()[0]  # one that was only out of step joins again
            assert event == "worker left"
            assert fields == about | {"held": 1, "reason": fields["reason"]}
            assert fields["reason"]

    check_every_row(check, [row for row in ROWS if Outcome.LOST not in row[0].impossible])


def test_a_worker_that_is_drained_has_a_line_for_that_and_one_for_its_end() -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            lines = Lines(world)
            worker, about = join(world, lines, workers)
            native.NATIVE.call(world).submit(b"bonjour")
            assert worker.jobs() == [b"bonjour"]
            (known,) = world.broker.worker_registry.workers.values()
            world.broker.availability.drain(known, world.now)
            world.runner.run_once()
            assert lines.take() == [("worker draining", about)]
            worker.finish(b"good day")
            settle(world)
            assert lines.take() == [("worker left", about | {"reason": "drained", "held": 0})]

    check_every_row(check, ROWS)


def test_a_worker_that_an_operator_kills_has_one_line() -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            lines = Lines(world)
            _, about = join(world, lines, workers)
            (known,) = world.broker.worker_registry.workers.values()
            world.broker.availability.drain(known, world.now, at_once=True)
            settle(world)
            reason = "its worker was killed by an operator"
            assert lines.take() == [("worker left", about | {"reason": reason, "held": 0})]

    check_every_row(check, ROWS)

"""The operations `job` and `payload`: times, attempts, payload, progress and error of one job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dragoman.core.attempts import PROGRESS_KEPT
from dragoman.core.failure import Failure
from dragoman.core.restore import restore
from dragoman.operations.job_details import payload_view
from dragoman.operations.schemas import ErrorView, PayloadView

from .world import WALL, World, ended_job, quarantined_job


def at(time: float) -> datetime:
    return datetime.fromtimestamp(WALL + time, UTC)


def test_failed_job_tells_its_story() -> None:
    world = World()
    first = world.worker(name="first")
    name = world.enqueue(body=b'{"page": 1}', attempts=2, retry_first=5.0, retry_jitter=0.0)
    world.now = 1_001.0
    world.broker.fail(world.attempt(name), "no", world.now)
    world.broker.leave(first, world.now, "gone")
    world.now = 1_002.0
    world.worker(name="second")
    world.wait(4.0)  # its retry delay ends
    failure = Failure("ValueError", "still no", "Traceback …")
    world.broker.attempts.progress(world.attempt(name), b"half", world.now)
    world.now += 2.5
    world.broker.fail(world.attempt(name), failure.sentence, world.now, failure)
    world.runner.run_once()
    view = world.ask("job", id=name)
    assert (view.created, view.started, view.ended) == (at(1_000.0), at(1_000.0), at(1_008.5))
    assert [(each.number, each.worker, each.outcome, each.started, each.ended) for each in view.attempts] == [
        (1, "first", "failed", at(1_000.0), at(1_001.0)),
        (2, "second", "failed", at(1_006.0), at(1_008.5)),
    ]
    assert (view.error.type, view.error.message, view.error.detail) == ("ValueError", "still no", "Traceback …")
    assert view.payload == PayloadView(size=11, kind="JSON", text='{"page": 1}')
    assert view.progress == PayloadView(size=4, kind="text", text="half")


def test_running_job_shows_its_attempt_its_payload_and_its_last_progress() -> None:
    world = World()
    name = world.enqueue(body=b"x" * 300)
    waiting = world.ask("job", id=name)
    assert (waiting.started, waiting.ended, waiting.attempts, waiting.progress) == (None, None, [], None)
    assert waiting.payload == PayloadView(size=300, kind="text", text="x" * 256)
    world.now += 1.0
    world.worker()
    for report in (b"first", b"\xff", b"p" * (PROGRESS_KEPT + 1)):  # the last one is delivered, but too long to keep
        assert world.broker.attempts.progress(world.attempt(name), report, world.now)
    view = world.ask("job", id=name)
    assert (view.state, view.started, view.ended) == ("running", at(1_001.0), None)
    assert [(each.started, each.ended, each.outcome) for each in view.attempts] == [(at(1_001.0), None, None)]
    assert view.progress == PayloadView(size=1, kind="bytes", base64="/w==")
    assert world.broker.attempts.progress(world.attempt(name), b"part", world.now, is_part=True)
    assert world.ask("job", id=name).progress.size == 1
    assert world.ask("jobs").jobs[0].progress is None, "lists leave the details out"


def test_payload_is_returned_while_it_is_kept() -> None:
    world = World()
    name = world.enqueue(body=b"whole \xff")
    asked = world.begin("payload", id=name)
    assert (asked.responses[0].id, asked.payload) == (name, b"whole \xff")
    world.worker()
    world.broker.succeed(world.attempt(name), b"result", world.now)
    world.runner.run_once()
    view = world.ask("job", id=name)
    assert (view.payload, view.result, view.ended) == (None, "result", at(1_000.0))
    refused = world.ask("payload", id=name)
    assert refused == ErrorView(
        kind="conflict",
        detail=f"the payload of job {name} is not kept: the job ended done; a payload is kept until its job ends, and "
        "while the job is in quarantine",
    )


def test_payload_of_a_job_in_quarantine_is_kept_also_after_its_retry() -> None:
    world = World()
    world.worker()
    name = quarantined_job(world)
    assert world.begin("payload", id=name).payload == b"x"
    world.ask("retry", id=name)
    assert world.begin("payload", id=name).payload == b"x"


def test_payload_of_an_earlier_run_comes_from_the_store() -> None:
    world = World()
    name = restored_job(world)
    world.store.bodies[bytes.fromhex(name)] = (b"from the store", b"")
    asked, shown = world.begin("payload", id=name), world.begin("job", id=name)
    assert (asked.responses, shown.responses) == ([], [])
    world.store.bring()
    assert asked.payload == b"from the store"
    assert shown.responses[0].payload == PayloadView(size=14, kind="text", text="from the store")


def test_job_that_ends_while_the_store_reads_is_shown_as_it_ended() -> None:
    world = World()
    name = restored_job(world)
    world.store.bodies[bytes.fromhex(name)] = (b"x", b"")
    shown = world.begin("job", id=name)
    world.ask("cancel", id=name)
    world.store.bring()
    assert [(view.state, view.outcome) for view in shown.responses] == [("ended", "cancelled")]


def restored_job(world: World) -> str:
    """A waiting job of an earlier run: only the store has its payload. Returns its id."""
    kept = ended_job(world)
    kept.outcome = None
    return restore(world.broker, kept, world.now, world.workers).id.hex()


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b"", "text", ""),
        (b"hello", "text", "hello"),
        ("é".encode() * 3, "text", "éé"),  # a character is not cut in two
        (b"[1]", "JSON", "[1]"),
        (b"[1", "text", "[1"),
        (b"\x80\x05N.", "pickle", None),
        (b"\x80\x05N", "bytes", None),
        (b"\xff", "bytes", None),
    ],
)
def test_kind_of_a_payload_is_told_from_its_bytes(payload: bytes, kind: str, text: str | None) -> None:
    view = payload_view(payload, 5)
    assert (view.size, view.kind, view.text) == (len(payload), kind, text)
    assert (view.base64 is None) == (text is not None)

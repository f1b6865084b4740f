"""OpenTelemetry: spans of submits, waits and runs are in one trace, over native and HTTP (R202)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from traced_tasks import FileExporter, again, branch, count, in_a_thread, leaf, plain

from dragoman import Client, JobFailed, LocalBroker, NoSuchJob, Worker, group, using
from dragoman.integrations.opentelemetry import stop_tracing, trace_jobs
from programs import PATIENCE, Programs, until

HERE = Path(__file__).parent
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Spans = Callable[[int], dict[str, dict[str, Any]]]


@pytest.fixture(params=["native", "http"])
def spans(request: pytest.FixtureRequest, programs: Programs, tmp_path: Path) -> Iterator[Spans]:
    """A broker, a worker and a client with spans. Returns a function that waits for a number of spans, and returns them
    by name; the caller's own span is `work`."""
    path = tmp_path / "spans"
    path.touch()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter(path)))

    def ended(count: int) -> dict[str, dict[str, Any]]:
        found = until(lambda: lines if len(lines := path.read_text().splitlines()) >= count else None, "spans")
        read = [json.loads(each) for each in found]
        assert len({each["trace"] for each in read}) == 1, read
        return {_key(each): each for each in read}

    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        programs.environment |= {
            "PYTHONPATH": str(HERE),
            "DRAGOMAN_URL": broker.urls[request.param],
            "SPANS": str(path),
        }
        programs.dragoman("worker", "traced_tasks", "--processes", "2")
        broker.wait_for_workers(service="leaf", timeout=PATIENCE)
        trace_jobs(provider)
        try:
            work = provider.get_tracer("test").start_as_current_span("work")
            with Client(broker.urls[request.param]) as client, using(client), work:
                yield ended
        finally:
            stop_tracing()


def _key(span: dict[str, Any]) -> str:
    attempt = span["attributes"].get("dragoman.attempt", 1)
    return span["name"] if attempt == 1 else f"{span['name']} {attempt}"


def tree(found: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    """Names of spans, and of their parents."""
    names = {each["id"]: name for name, each in found.items()}
    return {name: names.get(each["parent"]) for name, each in found.items()}


def test_call_within_a_call_is_one_trace(spans: Spans) -> None:
    assert branch.call("word") == "word"
    found = spans(6)
    assert tree(found) == {
        "submit branch": None,  # `work`, which is still open
        "wait branch": "submit branch",
        "run branch": "submit branch",
        "submit leaf": "run branch",
        "wait leaf": "submit leaf",
        "run leaf": "submit leaf",
    }
    assert found["submit branch"]["parent"] is not None
    kinds = {name: each["kind"] for name, each in found.items()}
    assert (kinds["submit leaf"], kinds["wait leaf"], kinds["run leaf"]) == ("CLIENT", "INTERNAL", "CONSUMER")
    assert found["submit branch"]["seconds"] >= found["run branch"]["seconds"] > found["run leaf"]["seconds"]
    assert found["run leaf"]["attributes"]["messaging.destination.name"] == "leaf"
    assert found["run leaf"]["attributes"]["messaging.message.id"]


def test_background_job_and_its_retry_are_in_the_trace_of_the_submit(spans: Spans) -> None:
    job = again.enqueue()
    assert job.result(timeout=60) == 2
    found = spans(4)
    assert tree(found) == {
        "submit again": None,
        "wait again": "submit again",
        "run again": "submit again",
        "run again 2": "submit again",
    }
    assert (found["submit again"]["kind"], found["submit again"]["attributes"]["messaging.message.id"]) == (
        "PRODUCER",
        job.id,
    )
    assert (found["run again"]["status"], found["run again"]["events"]) == ("UNSET", ["retry"]), "it is no error"


def test_batch_is_one_submit_and_all_its_jobs_are_below_it(spans: Spans) -> None:
    jobs = leaf.enqueue_many(["a", "b"])
    assert [job.result(timeout=60) for job in jobs] == ["a", "b"]
    found = spans(5)
    assert tree(found) == {"submit leaf": None, "wait leaf": "submit leaf", "run leaf": "submit leaf"}
    assert (found["submit leaf"]["kind"], found["submit leaf"]["parent"] is None) == ("PRODUCER", False)
    assert found["submit leaf"]["attributes"]["messaging.batch.message_count"] == 2


def test_group_and_the_job_after_it_are_below_one_submit(spans: Spans) -> None:
    last = group([leaf.prepare("a"), leaf.prepare("b")]).then(count).enqueue()
    assert last.result(timeout=60) == 2
    several = "submit several services"
    below = ["wait leaf", "run leaf", "wait count", "run count"]
    assert tree(spans(7)) == {several: None, **dict.fromkeys(below, several)}


def test_batch_that_is_refused_is_an_error_of_its_submit(spans: Spans) -> None:
    with pytest.raises(NoSuchJob):
        leaf.with_options(after=["f" * 32]).prepare("a").enqueue()
    assert spans(1)["submit leaf"]["status"] == "ERROR"


def test_error_is_recorded_where_it_was_raised_and_where_it_arrived(spans: Spans) -> None:
    with pytest.raises(JobFailed):
        leaf.call("wrong")
    found = spans(3)
    for name in ("submit leaf", "run leaf"):
        assert (found[name]["status"], found[name]["events"]) == ("ERROR", ["exception"])


def test_call_from_a_thread_of_a_handler_is_in_its_trace(spans: Spans) -> None:
    assert in_a_thread.call("word") == "word"
    assert tree(spans(6))["submit leaf"] == "submit in_a_thread"


def test_trace_passes_through_programs_without_the_package() -> None:
    """The worker has no tracer here: its handlers see the trace, and their jobs carry it on."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker, Client(broker.urls["native"]) as client:
        worker = Worker(broker.urls["native"], threads=2)
        worker.include(plain)

        @worker.service("outer")
        def outer(_: bytes) -> str:
            with using(client):
                return plain.call()

        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            broker.wait_for_workers(service="outer", timeout=PATIENCE)
            request = urllib.request.Request(
                f"{broker.urls['http']}/v1/call/outer", b"", {"traceparent": TRACE}, method="POST"
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                assert response.read().decode() == TRACE
        finally:
            worker.stop()
            thread.join()


def test_package_is_not_loaded_without_the_integration() -> None:
    script = "import sys; from dragoman import Client, Worker, task; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"

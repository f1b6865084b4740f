"""Tasks with spans, as a module that `dragoman worker` runs. Each process appends its ended spans to a file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from dragoman import Context, Retry, task
from dragoman.integrations.opentelemetry import trace_jobs


class FileExporter(SpanExporter):
    """Appends a line for each span."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            for span in spans:
                assert span.context is not None
                facts = {
                    "name": span.name,
                    "kind": span.kind.name,
                    "trace": f"{span.context.trace_id:032x}",
                    "id": f"{span.context.span_id:016x}",
                    "parent": f"{span.parent.span_id:016x}" if span.parent is not None else None,
                    "status": span.status.status_code.name,
                    "events": [each.name for each in span.events],
                    "attributes": dict(span.attributes or {}),
                    "seconds": ((span.end_time or 0) - (span.start_time or 0)) / 1e9,
                }
                file.write(json.dumps(facts) + "\n")
        return SpanExportResult.SUCCESS


if "SPANS" in os.environ:  # in the worker
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter(Path(os.environ["SPANS"]))))
    trace_jobs(provider)


@task
def leaf(word: str) -> str:
    if word == "wrong":
        raise ValueError(word)
    return word


@task
def count(words: list[str]) -> int:
    return len(words)


@task
def branch(word: str) -> str:
    return leaf.call(word)


@task
def in_a_thread(word: str) -> str:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(leaf.call(word)))
    thread.start()
    thread.join()
    return found[0]


@task(attempts=2)
def again(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise Retry(0, "not yet")
    return ctx.attempt


@task
async def plain(ctx: Context) -> str:
    """Return the trace that came with the job."""
    return ctx.traceparent

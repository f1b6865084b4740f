"""Whoever watches the broker over HTTP, and what each of them hears. While nobody does, no news is made."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from dragoman.core.effects import Effect, News
from dragoman.core.ledger import Ledger
from dragoman.core.model import Job, JobId, Payload, Worker
from dragoman.core.recipients import Recipient
from dragoman.desk.forms import Ending, JobName, State, View
from dragoman.desk.views import dialect_of
from dragoman.http.sse import EventStream, Streams


class JobNews(View, omit_defaults=True):
    """What a job's event says. `progress` where its bytes are UTF-8, else `progress_base64`."""

    id: JobName
    service: str
    state: State
    outcome: Ending | None = None
    reason: str = ""
    background: bool = False
    quarantined: bool = False
    attempt: int | None = None
    worker: str | None = None
    progress: str | None = None
    progress_base64: str | None = None


class WorkerNews(View):
    """What a worker's event says."""

    id: int
    name: str
    dialect: str
    services: list[str]


class Listeners(Recipient):
    """All of a broker's, whichever door they came in by."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._to_all: dict[EventStream, None] = {}
        self._to_job: dict[JobId, dict[EventStream, None]] = {}

    def listen(self, streams: Streams, job: Job | None = None) -> EventStream:
        """A stream of what happens: to this job, beginning with how it is now, or to all."""
        stream = EventStream(streams, lambda: self._leave(stream, job))
        if job is None:
            self._to_all[stream] = None
        else:
            self._to_job.setdefault(job.id, {})[stream] = None
            if job.outcome is None or job.is_told:  # else that is news when the diary has it (R103)
                stream.publish(job.state.value, _encode(job_news(job, job.state.value)))
            if job.is_told:
                stream.end()
        self._ledger.is_watched = True
        return stream

    def execute(self, news: Effect, now: float) -> None:
        assert isinstance(news, News)
        job, worker = news.job, news.worker
        if job is not None:
            own = self._to_job.get(job.id, ())
            if not own and not self._to_all:
                return
            data = _encode(job_news(job, news.event, news.payload))
            for stream in (*self._to_all, *own):
                stream.publish(news.event, data)
            if news.event == "ended":
                for stream in own:
                    stream.end()
        elif worker is not None and self._to_all:
            data = _encode(worker_news(worker))
            for stream in self._to_all:
                stream.publish(news.event, data)

    def _leave(self, stream: EventStream, job: Job | None) -> None:
        if job is None:
            self._to_all.pop(stream, None)
        else:
            others = self._to_job.get(job.id, {})
            others.pop(stream, None)
            if not others:
                self._to_job.pop(job.id, None)
        if not self._to_all and not self._to_job:
            self._ledger.is_watched = False


def job_news(job: Job, event: str, progress: Payload = b"") -> JobNews:
    attempt = job.attempt
    state: Any = "running" if event == "progress" else event  # it may have moved on since
    news = JobNews(
        id=job.id.hex(),
        service=job.service.name,
        state=state,
        outcome=job.outcome.value if job.outcome is not None and event == "ended" else None,
        reason=job.reason if event == "ended" else "",
        background=job.wishes.durable,
        quarantined=job.quarantined and event == "ended",
        attempt=attempt.number if attempt is not None else None,
        worker=attempt.worker.name if attempt is not None else None,
    )
    if event == "progress":
        try:
            news.progress = bytes(progress).decode()
        except UnicodeDecodeError:
            news.progress_base64 = b64encode(progress).decode()
    return news


def worker_news(worker: Worker) -> WorkerNews:
    services = [service.name for service in worker.services]
    return WorkerNews(id=worker.id, name=worker.name, dialect=dialect_of(worker), services=services)


def _encode(news: View) -> bytes:
    return msgspec.json.encode(news)

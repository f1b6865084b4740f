"""A broker without sockets whose metrics are scraped, and its samples as a scraper parses them."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core import model
from dragoman.core.broker import Broker
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.http.admission import ADMITTED, Admission
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext
from dragoman.http.metrics import metrics
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

PATIENT = JobOptions(waits=True)


class Dialect:
    def __init__(self, name: str) -> None:
        self.dialect = name

    def execute(self, effect: Any, now: float) -> None: ...


class Caller(model.Caller):
    def __init__(self) -> None:
        super().__init__(Dialect("native"), LOCAL_OWNER)


class Scraped:
    def __init__(self) -> None:
        self.now = 1000.0
        self.broker = Broker(Policy(max_services=20_000), SeededEntropy())
        self.store = NullStore()
        self.runner = Runner(self.broker, self.store, lambda: self.now, lambda *_, **__: None, AdmissionLimits())
        self.operations = OperationHandlers(
            self.broker, self.runner.store_access, self.store, lambda: 0.0, self._health
        )
        self.problems: list[str] = []
        self.connections = 0  # of the listener's own
        self.listener = AppContext(
            broker=self.broker,
            operations=self.operations,
            session=HttpBrokerSide.__new__(HttpBrokerSide),
            runner=self.runner,
            now=lambda: self.now,
            health=self._health,
            max_payload=1 << 20,
        )

    def _health(self) -> HealthView:
        return HealthView(
            ready=not self.problems,
            problems=self.problems,
            version="1.2",
            jobs=0,
            workers=0,
            peers=len(self.runner.connections.peers) + self.connections,
            draining=False,
            loading=False,
        )

    def worker(self, *services: str, dialect: str = "memodb", capacity: int = 1) -> Worker:
        """Add an idle worker."""
        profile = WorkerProfile(capacity=capacity)
        worker = self.broker.join(Dialect(dialect), object(), "worker", services, profile, self.now, LOCAL_OWNER)
        assert worker is not None
        self.broker.idle(worker, self.now)
        return worker

    def job(self, service: str, job_options: JobOptions = PATIENT) -> Job:
        job = self.broker.submit(service, b"x", Caller(), job_options, self.now)
        assert job is not None
        self.runner.run_once()
        return job

    def finish(self, job: Job) -> None:
        self.broker.succeed(attempt_of(job), b"", self.now)
        self.runner.run_once()

    def get(self, accept: str = "application/openmetrics-text", query: str = "") -> Response:
        return asyncio.run(self.ask(accept, query))

    async def ask(self, accept: str = "application/openmetrics-text", query: str = "") -> Response:
        headers = [(b"accept", accept.encode())] if accept else []
        extensions = {ADMITTED: Admission(self.broker.principals.local)}
        scope = {"type": "http", "headers": headers, "extensions": extensions, "query_string": query.encode()}
        return await metrics(self.listener, Request(scope))

    def numbers(self) -> dict[str, float]:
        """Return the value of every sample, by name and labels, as in `dragoman_connections{dialect=native}`."""
        return numbers(self.get())


def numbers(response: Response) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in read(response):
        for each in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in each.labels.items())
            name = f"{each.name}{{{labels}}}" if labels else each.name
            assert name not in found, f"{name} is there twice"
            found[name] = each.value
    return found


def read(response: Response) -> list[Any]:
    text = bytes(response.body).decode()
    is_openmetrics = response.headers["content-type"].startswith("application/openmetrics-text")
    return list((read_openmetrics if is_openmetrics else read_prometheus)(text))


def attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None
    return job.attempt

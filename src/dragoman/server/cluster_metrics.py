"""Metrics of all brokers of a cluster: asks the others for theirs, and answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.questions import Ending
from dragoman.cluster.records import Answer, Ask
from dragoman.core.broker import Broker
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.http.labels import ServiceLabels
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.metric_sources import ReceiveMetrics
from dragoman.operations.schemas import HealthView, OperationError
from dragoman.server.cluster_answers import ClusterAnswers, Respond

METRICS: Final = "metrics"  # name of the question
OPENMETRICS: Final = b"openmetrics"
ANSWER_TIME: Final = 2.0  # seconds
REMEMBERED: Final = 3600.0  # seconds for which a broker that is gone is counted as one that does not answer


@dataclass(slots=True)
class BrokerParts:
    """The parts of this broker that have metrics (http/metrics_snapshot.py)."""

    broker: Broker
    operations: OperationHandlers
    runner: Any
    now: Callable[[], float]
    health: Callable[[], HealthView]
    traffic: Callable[[], tuple[int, int]]
    certificates: Callable[[], list[tuple[str, float]]]
    labels: ServiceLabels = field(default_factory=ServiceLabels)


class Scrape:
    """One request for the metrics of the other brokers."""

    def __init__(self, done: ReceiveMetrics) -> None:
        self.texts: dict[str, Payload | None] = {}
        self.waiting = 0
        self.done = done


class ClusterMetrics:
    """Metrics of the other brokers, for one broker."""

    def __init__(
        self, side: ClusterSide, answers: ClusterAnswers, parts: BrokerParts, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._side = side
        self._parts = parts
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], None] = {}  # the loop itself keeps no tasks
        self._seen: dict[str, float] = {}  # other brokers, and the time at which each was a member last
        answers.others[METRICS] = self._asked

    @property
    def name(self) -> str:
        return self._side.name

    # ---------------------------------------------------------------- metrics of others

    def gather(self, owner: Owner, is_openmetrics: bool, done: ReceiveMetrics) -> None:
        now, side = self._parts.now(), self._side
        scrape = Scrape(done)
        if side.is_connected:
            self._seen.update(dict.fromkeys(side.peers, now))
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen < REMEMBERED}
        scrape.texts = dict.fromkeys(self._seen)
        request = OPENMETRICS if is_openmetrics else b""
        ask = Ask(0, METRICS, request, owner.principal.name, address=owner.address, label=owner.label, dialect="http")
        for name, peer in list(side.peers.items()):
            scrape.texts[name] = None
            if side.is_connected and not peer.is_silent:
                arrived = partial(self._arrived, scrape, name)
                if side.questions.ask(peer, ask, arrived, ANSWER_TIME, now) is not None:
                    scrape.waiting += 1
        if not scrape.waiting:
            done(scrape.texts)

    def _arrived(self, scrape: Scrape, name: str, ending: Ending, answer: Answer | None, now: float) -> None:
        if answer is not None and not answer.kind:
            scrape.texts[name] = answer.payload
        scrape.waiting -= 1
        if not scrape.waiting:
            scrape.done(scrape.texts)

    # ---------------------------------------------------------------- metrics for others

    def _asked(self, question: Ask, owner: Owner, respond: Respond) -> None:
        try:
            self._parts.operations.permissions.require_see_all(owner.principal, question.dialect)
        except OperationError as error:
            respond(Answer(question.number, kind=error.problem.kind, detail=error.problem.detail))
            return
        task = self._loop.create_task(self._answer(question, respond))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _answer(self, question: Ask, respond: Respond) -> None:
        from dragoman.http.metrics import broker_metrics  # a broker may have no listener of HTTP

        text = await broker_metrics(self._parts, self.name, question.request == OPENMETRICS)
        respond(Answer(question.number, payload=text))

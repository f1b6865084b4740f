"""The part of a snapshot for one page: a service with its sentence, a worker, or a job with its `why`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dragoman.core.broker import Broker
from dragoman.core.job_sample import SampledReason
from dragoman.core.model import Job, JobId, WorkerId
from dragoman.core.rights import SEE, Principal
from dragoman.core.states import ENDED
from dragoman.dashboard.says import says
from dragoman.dashboard.snapshot import Snapshots, Sources
from dragoman.dashboard.worker_says import worker_says
from dragoman.operations.dashboard_schemas import PageView, ReasonView
from dragoman.operations.ladder_views import conversation_view
from dragoman.operations.ladder_views import worker_view as worker_ladder
from dragoman.operations.service_views import CLUSTER
from dragoman.operations.views import moment
from dragoman.operations.visibility import may_see_all, sees_job, sees_service, sees_worker
from dragoman.operations.visible_views import visible_job, visible_worker
from dragoman.operations.why import why_view

SUMMARIES: Final = ("overview", "workers")  # pages without a part of their own
JOB: Final = re.compile("[0-9a-f]{32}")
NUMBER: Final = re.compile("[0-9]{1,16}")
PAGES: Final = "overview, workers, service/NAME, worker/ID and job/ID"


class Page(NamedTuple):
    """A page: its kind, and the name or id of its subject."""

    kind: str
    subject: str = ""

    @property
    def text(self) -> str:
        """The name of the page, as `page_of` parses it."""
        return f"{self.kind}/{self.subject}" if self.subject else self.kind

    @property
    def service(self) -> str | None:
        """The only service that a snapshot for this page includes."""
        return self.subject if self.kind == "service" else None


def page_of(text: str) -> Page:
    """Parse the name of a page. Raises ValueError with a sentence."""
    kind, _, subject = text.partition("/")
    is_known = (
        (kind == "service" and subject)
        or (kind == "worker" and NUMBER.fullmatch(subject))
        or (kind == "job" and JOB.fullmatch(subject))
    )
    if text not in SUMMARIES and not is_known:
        raise ValueError(f"unknown page {text[:64]!r}; pages are {PAGES}")
    return Page(kind, subject)


class Pages:
    """Makes the parts of pages. None: there is no such service, worker or job, or the principal may not see it."""

    def __init__(self, sources: Sources, snapshots: Snapshots) -> None:
        self._sources = sources
        self._snapshots = snapshots
        self._broker: Broker = sources.broker

    def view(self, page: Page, principal: Principal, now: float) -> PageView | None:
        if page.kind == "service":
            return self._service(page.subject, principal, now)
        if page.kind == "worker":
            return self._worker(WorkerId(int(page.subject)), principal, now)
        if page.kind == "job":
            return self._job(JobId(bytes.fromhex(page.subject)), principal, now)
        return PageView()

    def _service(self, name: str, principal: Principal, now: float) -> PageView | None:
        rows = self._snapshots.rows(principal, now, name)
        if not rows:
            return None
        service = self._broker.worker_registry.services[name]
        states = self._sources.sampler.census.states_of.get(service, {})
        view = PageView(says=says(rows[0], states), service=rows[0])
        if self._snapshots.cluster is not None:
            view.states = states
        if service.sample is not None and (may_see_all(principal) or principal.may(SEE, name)):
            view.callers = dict(service.sample.callers)
            view.reasons = [self._reason(each) for each in service.sample.reasons(now)]
        return view

    def _reason(self, sampled: SampledReason) -> ReasonView:
        return ReasonView(
            outcome=sampled.outcome.value,
            reason=sampled.reason,
            count=sampled.count,
            last=moment(sampled.last + self._sources.offset()),
            job=self._shown_job(sampled.job),
        )

    def _shown_job(self, id: JobId | None) -> str | None:
        """Return the id of a job that is there, or whose messages are."""
        if id is None or (id not in self._broker.jobs and self._broker.job_registry.conversations.find(id) is None):
            return None
        return id.hex()

    def _worker(self, id: WorkerId, principal: Principal, now: float) -> PageView | None:
        worker = self._broker.worker_registry.workers.get(id)
        if worker is None or not sees_worker(principal, worker):
            return None
        sources = self._sources
        view = visible_worker(worker, principal, now, sources.offset(), sources.listeners)
        if (cluster := self._snapshots.cluster) is not None:
            view.broker = cluster.name
        page = PageView(says=worker_says(view), worker=view)
        recorded = self._broker.job_registry.conversations.watch_worker(worker, now)
        if recorded is not None:
            page.ladder = worker_ladder(worker, recorded, principal, sources.offset())
        return page

    def _is_copy(self, job: Job) -> bool:
        """True if the job runs here for another broker of the cluster: that one shows it."""
        return self._snapshots.cluster is not None and job.caller_dialect == CLUSTER

    def _job(self, id: JobId, principal: Principal, now: float) -> PageView | None:
        job = self._broker.jobs.get(id)
        if job is None or not sees_job(principal, job) or self._is_copy(job):
            return None
        is_queue_seen = sees_service(principal, job.service.name)
        rates = self._sources.sampler.service_rates
        why = why_view(job, self._broker, now, self._sources.problem(), rates, is_queue_seen, principal)
        offset = self._sources.offset()
        view = visible_job(job, principal, self._broker, offset)
        if (cluster := self._snapshots.cluster) is not None:
            view.broker = cluster.name
        page = PageView(job=view, why=why)
        if job.state is not ENDED:
            recorded = self._broker.job_registry.conversations.watch_job(job, now)
            page.ladder = conversation_view(recorded, offset, principal, self._broker) if recorded is not None else None
        return page

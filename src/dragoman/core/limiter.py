"""Authors of the limits of services: operators, and the workers that are connected (R183)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dragoman.core.events import SERVICE_LIMITS_DIFFER
from dragoman.core.infinity import inf
from dragoman.core.limit_values import LimitValues, combine
from dragoman.core.model import Service, Worker
from dragoman.core.owners import Owner
from dragoman.core.service_limits import LimitShare, ServiceLimits
from dragoman.core.shared_state import SharedState
from dragoman.core.task_parameters import ServiceParameters


class Limiter:
    """Sets the limits of services."""

    __slots__ = ("_events", "_job_registry", "_worker_registry", "began", "is_shared", "limited")

    def __init__(self, state: SharedState) -> None:
        self.began = -inf  # time at which the broker was started: no rate has saved up starts before
        self.is_shared = False  # limits hold for all brokers of a cluster together
        self.limited: dict[str, Service] = {}  # services that have, or had, limits
        self._events = state.events
        self._job_registry = state.job_registry
        self._worker_registry = state.worker_registry

    # ---------------------------------------------------------------- authors

    def set_by_operator(
        self, name: str, values: LimitValues, author: str, now: float, owner: Owner | None = None
    ) -> Service | None:
        """Replace the limits that an operator has set. None: there are too many services. `owner`: of the request."""
        service = self._worker_registry.names.service(name, owner)
        if service is not None and (service.limits is not None or not values.is_empty):
            limits = self._limits_of(service)
            limits.by_operator, limits.operator = values, author
            self._apply(service, limits, now)
        return service

    def declare(self, worker: Worker, declared: Mapping[str, LimitValues], now: float) -> None:
        """Add the limits that a worker has declared for services that it offers."""
        for service in worker.services:
            values = declared.get(service.name)
            if values is not None and not values.is_empty:
                limits = self._limits_of(service)
                limits.declared[worker.id] = values
                self._apply(service, limits, now)

    def declare_parameters(self, worker: Worker, declared: Mapping[str, dict[str, Any]]) -> None:
        """Add the parameters that a worker has declared for services that it offers: JSON Schema objects (R267)."""
        for service in worker.services:
            schema = declared.get(service.name)
            if schema is not None:
                if service.parameters is None:
                    service.parameters = ServiceParameters()
                service.parameters.declare(worker.id, schema)

    def undeclare(self, worker: Worker, service: Service, now: float) -> None:
        """Forget the limits that a worker has declared: it no longer offers the service."""
        limits = service.limits
        if limits is not None and limits.declared.pop(worker.id, None) is not None:
            self._apply(service, limits, now)

    def declare_elsewhere(self, broker: str, declared: Mapping[str, LimitValues], now: float) -> None:
        """Replace the limits that workers of another broker have declared."""
        for service in list(self.limited.values()):
            limits = service.limits
            if limits is not None and broker in limits.declared_elsewhere and service.name not in declared:
                del limits.declared_elsewhere[broker]
                self._apply(service, limits, now)
        for name, values in declared.items():
            service_or_none = self._worker_registry.names.service(name, None)
            if service_or_none is None:
                continue
            limits = self._limits_of(service_or_none)
            if limits.declared_elsewhere.get(broker) != values:
                limits.declared_elsewhere[broker] = values
                self._apply(service_or_none, limits, now)

    def grant(self, service: Service, slots: int, tenants: dict[tuple[str, str], int], tokens: int, now: float) -> None:
        """Replace this broker's share of the limits, and dispatch what it allows."""
        assert service.limits is not None
        service.limits.grant(slots, tenants, tokens, now)
        self._job_registry.unblocker.reopen(service, now)

    def not_started(self, service: Service, now: float) -> None:
        """Return the token of a job that another broker did not start."""
        if service.limits is not None:
            service.limits.not_started(now)
            service.update_closed()

    def loaded(self, now: float) -> None:
        """Let services with limits start jobs: all jobs of the earlier run that run are counted."""
        for service in list(self._worker_registry.services.values()):
            limits = service.limits
            if limits is not None and limits.is_loading:
                limits.is_loading = False
                self._job_registry.unblocker.reopen(service, now)

    # ---------------------------------------------------------------- limits

    def _limits_of(self, service: Service) -> ServiceLimits:
        """Return the limits of a service; the first time with the counts of its running jobs."""
        limits = service.limits
        if limits is None:
            share = LimitShare() if self.is_shared else None
            limits = service.limits = ServiceLimits(service.name, self.began, share)
            self.limited[service.name] = service
            for worker in self._worker_registry.workers.values():
                for attempt in worker.running.values():
                    job = attempt.job
                    if job.service is service:
                        count = limits.count if job.options.is_limited else limits.count_taken
                        count(job.principal.name, job.tenant, 1)
        return limits

    def _apply(self, service: Service, limits: ServiceLimits, now: float) -> None:
        """Set the limits that follow from what operator and workers have set."""
        setting, is_disputed = combine(
            limits.by_operator, limits.operator, [*limits.declared.values(), *limits.declared_elsewhere.values()]
        )
        if is_disputed and not limits.is_disputed and self._events.wanted & SERVICE_LIMITS_DIFFER:
            self._events.limits_differ(service.name, str(setting))
        limits.is_disputed = is_disputed
        if setting != limits.setting:
            limits.set(setting, now)
            limits.is_loading = self._job_registry.is_loading and setting.limits_running
            service.queue.limit_tenants(limits)
            self._job_registry.unblocker.reopen(service, now)

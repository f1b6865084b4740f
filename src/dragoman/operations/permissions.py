"""Decides whether a principal may execute an operation (R146 to R150), and records acts of administrators (R151).

The row of an operation declares a right and the kind of its target. The owner of a job, worker or schedule may do with
it what the rights `call` and `see` allow; `administer` over its service allows the same for those of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import Any

from dragoman.core.broker import Broker
from dragoman.core.events import ADMINISTERED
from dragoman.core.model import Job, JobId
from dragoman.core.rights import ADMINISTER, CALL, SEE, WORK, Principal, Right
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.operation import Operation
from dragoman.operations.quarantine_groups import may_use, sees_part
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import OperationError
from dragoman.operations.targets import Targets
from dragoman.operations.visibility import (
    ALL_SERVICES,
    may_see_all,
    owns_job,
    owns_worker,
    reads_job,
    sees_group,
    sees_job,
    sees_schedule,
    sees_service,
    sees_worker,
)


class Permissions:
    """The only place where operations check rights."""

    def __init__(self, broker: Broker, targets: Targets) -> None:
        self._broker = broker
        self._targets = targets

    def check(self, row: Operation[Any, Any], request: Any, responder: Responder) -> str | None:
        """Raise OperationError unless the principal may execute the operation. Returns the target if that is an act of
        an administrator, for `record`; else None."""
        kind = row.target
        if kind == "list" or kind == "none":
            return None
        right = Right(row.right)
        if kind == "broker":
            self._require(responder, right, ALL_SERVICES)
            return "" if right is ADMINISTER else None
        name = getattr(request, row.request.__struct_fields__[0])
        if kind == "service":
            if name is None:  # the operation is about all services
                self._require(responder, right, ALL_SERVICES)
            elif not (row.for_any_right and sees_service(responder.owner.principal, name)):
                self._require(responder, right, name)
            is_act = right is ADMINISTER
        elif kind == "job":
            is_act = self._check_job(row, right, name, responder)
        elif kind == "group":
            is_act = self._check_group(right, name, responder)
        elif kind == "quarantine group":
            is_act = self._check_quarantine_group(right, name, responder)
        elif kind == "conversation":
            is_act = self._check_conversation(row, right, name, responder)
        elif kind == "worker":
            is_act = self._check_worker(right, name, responder)
        else:
            is_act = self._check_schedule(right, name, getattr(request, "service", None), responder)
        return str(name) if is_act else None

    def record(self, row: Operation[Any, Any], target: str, responder: Responder) -> None:
        """Publish an act of an administrator."""
        if self._broker.events.wanted & ADMINISTERED:
            self._broker.events.administered(responder.owner.principal, row.name, target, responder.origin)

    def require_see_all(self, principal: Principal, dialect: str) -> None:
        """Raise OperationError unless the principal may see all services: for facts that are no operation."""
        if not may_see_all(principal):
            raise self._refuse(principal, SEE, (ALL_SERVICES,), dialect)

    def visible_job(self, id: str, principal: Principal, dialect: str) -> Job:
        """Return a job that the principal may see, for requests that are no operation. Raises OperationError."""
        job = self._targets.job(id)
        if not sees_job(principal, job):
            self._refuse(principal, SEE, (job.service.name,), dialect)
            raise self._targets.missing_job(id)
        return job

    def job_with_key(self, request: FindJobRequest, responder: Responder) -> Job:
        """Return the job with a key, which only its readers may know (R147). Raises OperationError."""
        principal = responder.owner.principal
        owner = request.owner if request.owner is not None else principal.name
        job = self._targets.find_job(owner, request.service, request.key)
        if job is None or not reads_job(principal, job):
            if job is not None:
                self._missing(responder, ADMINISTER, (request.service,))
            raise self._targets.missing_key(owner, request.service, request.key)
        return job

    # ---------------------------------------------------------------- kinds of targets

    def _check_job(self, row: Operation[Any, Any], right: Right, id: str, responder: Responder) -> bool:
        job = self._targets.job(id)
        principal, service = responder.owner.principal, job.service.name
        if owns_job(principal, job) and right in (SEE, CALL):
            if row.creates_job:
                self._require(responder, CALL, service)
            return False
        needed = SEE if right is SEE else ADMINISTER
        if not principal.may(needed, service):
            error = self._missing(responder, needed, (service,))
            raise error if sees_job(principal, job) else self._targets.missing_job(id)
        return needed is ADMINISTER

    def _check_group(self, right: Right, id: str, responder: Responder) -> bool:
        """Check that the principal owns the group, or has the right over all its services."""
        group = self._targets.group(id)
        principal = responder.owner.principal
        if group.owner == principal.name and right in (SEE, CALL):
            return False
        needed = SEE if right is SEE else ADMINISTER
        lacking = [each for each in group.services if not principal.may(needed, each)]
        if lacking:
            error = self._missing(responder, needed, lacking)
            raise error if sees_group(principal, group) else self._targets.missing_group(id)
        return needed is ADMINISTER

    def _check_quarantine_group(self, right: Right, group: str, responder: Responder) -> bool:
        """Check that the principal has the right over jobs of the group; the handler leaves out the others."""
        principal = responder.owner.principal
        seen = [each for each in self._targets.quarantine_group(group) if sees_part(principal, each)]
        allowed = [each for each in seen if may_use(principal, right, each)]
        if not allowed:
            services = [each.service for each in self._targets.quarantine_group(group)][:1]
            error = self._missing(responder, right if right is SEE else ADMINISTER, services)
            raise error if seen else self._targets.missing_quarantine_group(group)
        return right is not SEE and any(each.owner != principal.name for each in allowed)

    def _check_conversation(self, row: Operation[Any, Any], right: Right, id: str, responder: Responder) -> bool:
        """Check the right to a job, or to a call that has ended and whose messages are kept."""
        key = JobId(bytes.fromhex(id))
        conversation = self._broker.job_registry.conversations.find(key)
        if conversation is None or key in self._broker.jobs:
            return self._check_job(row, right, id, responder)
        principal, service = responder.owner.principal, conversation.service
        if conversation.owner == principal.name and right in (SEE, CALL):
            return False
        needed = SEE if right is SEE else ADMINISTER
        if not principal.may(needed, service):
            error = self._missing(responder, needed, (service,))
            is_seen = conversation.owner == principal.name or principal.may(SEE, service)
            raise error if is_seen else self._targets.missing_job(id)
        return needed is ADMINISTER

    def _check_worker(self, right: Right, id: int, responder: Responder) -> bool:
        worker = self._targets.worker(id)
        principal = responder.owner.principal
        is_allowed = owns_worker(principal, worker) or (right is SEE and sees_worker(principal, worker))
        if not is_allowed:
            services = [each.name for each in worker.services] or [ALL_SERVICES]
            missing = [each for each in services if not principal.may(right, each)]
            if missing:
                self._missing(responder, right, missing)
                if not sees_worker(principal, worker):
                    raise self._targets.missing_worker(id)
                # The worker may offer services that the principal may not see: only the log names them.
                sentence = f"{principal.name} may not {right} all services of worker {id}; the broker's log names them"
                raise OperationError("forbidden", sentence)
        return right is ADMINISTER

    def _check_schedule(self, right: Right, name: str, new_service: str | None, responder: Responder) -> bool:
        """`new_service`: the service of a schedule that is set; None if the operation does not set it."""
        principal = responder.owner.principal
        is_set = new_service is not None
        is_foreign = False
        if new_service is not None and not principal.may(ADMINISTER, new_service):
            self._require(responder, CALL, new_service)  # first: else the answer would tell whether the name is in use
        if not is_set or self._targets.has_schedule(name):
            state = self._targets.schedule(name).stored
            service = state.request.service
            is_foreign = not (state.owner == principal.name and right in (SEE, CALL))
            needed = SEE if right is SEE else ADMINISTER
            if is_foreign and not principal.may(needed, service):
                error = self._missing(responder, needed, (service,))
                if is_set:  # names belong to the whole broker, so this one cannot be given twice (R149)
                    raise OperationError("conflict", f'schedule name "{name}" is in use; choose another name')
                is_seen = sees_schedule(principal, state.owner, service)
                raise error if is_seen else self._targets.missing_schedule(name)
        if new_service is not None and not (is_foreign and principal.may(ADMINISTER, new_service)):
            self._require(responder, CALL, new_service)
        return is_foreign and right is not SEE

    def _missing(self, responder: Responder, right: Right, services: Iterable[str]) -> OperationError:
        return self._refuse(responder.owner.principal, right, services, responder.dialect)

    def _refuse(self, principal: Principal, right: Right, services: Iterable[str], dialect: str) -> OperationError:
        """Record a missing right, and return the error."""
        names = tuple(services)
        self._broker.refused_rights.note(principal, right, names, dialect)
        return OperationError("forbidden", forbidden_sentence(principal, right, names))

    def _require(self, responder: Responder, right: Right, service: str) -> None:
        if not responder.owner.principal.may(right, service):
            raise self._missing(responder, right, (service,))


def forbidden_sentence(principal: Principal, right: Right, services: Iterable[str]) -> str:
    """Return the error for a missing right, with the command that gives it."""
    names = list(services)
    objects = "all services" if names == [ALL_SERVICES] else ", ".join(f"'{each}'" for each in names)
    options = " ".join(f"--{right} {quote(each)}" for each in names)
    verb = "work for" if right is WORK else right
    return (
        f"{principal.name} may not {verb} {objects}; an administrator of the broker gives the right with: "
        f"dragoman access allow {principal.name} {options}"
    )

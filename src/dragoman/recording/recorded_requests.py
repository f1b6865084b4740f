"""Requests of HTTP to a broker that is recorded: parsed, and without credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from dragoman.core.extras_text import extras_text
from dragoman.core.failure import Failure
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues
from dragoman.core.model import Attempt, Job, Payload, Token
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.dialects.hidden_fields import hide_batch, hide_request
from dragoman.dialects.native.limit_fields import write_limits
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.remote_worker import PendingCall, PendingPoll, RemoteHttpWorker
from dragoman.operations.group_table import ENQUEUE_MANY
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.responders import PendingRequest, Responder
from dragoman.recording.items import ASK, HTTP, LEAVE
from dragoman.recording.recorded_streams import Items


def owner_facts(owner: Owner) -> tuple[str, str]:
    return owner.principal.name, owner.label


class RecordedHttpSide:
    """The broker side of HTTP, as request handlers use it. Calls that change nothing are passed on."""

    def __init__(self, items: Items, side: HttpBrokerSide) -> None:
        self._items = items
        self._side = side
        self._numbers = 0  # of calls and of requests for a job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side, name)

    def __len__(self) -> int:
        return len(self._side)

    def call(
        self,
        service: str,
        payload: Payload,
        job_options: JobOptions,
        answer: Any,
        now: float,
        *,
        deadline: float,
        key: str | None,
        owner: Owner,
        extras: JobExtras | None = None,
    ) -> PendingCall:
        number = self._new_number()
        hidden = self._items.hide(payload)
        given = extras_text(extras) if extras is not None else None
        self._add("call", number, service, hidden, asdict(job_options), now, deadline, key, owner_facts(owner), given)
        call = self._side.call(
            service, payload, job_options, answer, now, deadline=deadline, key=key, owner=owner, extras=extras
        )
        call.number = number
        return call

    def caller_left(self, call: PendingCall, now: float) -> None:
        self._add("caller_left", call.number, now)
        self._side.caller_left(call, now)

    def join(
        self,
        name: str,
        services: Collection[str],
        capacity: int,
        lease: float,
        owner: Owner,
        origin: str,
        now: float,
        limits: Mapping[str, LimitValues] | None = None,
        parameters: Mapping[str, dict[str, Any]] | None = None,
    ) -> RemoteHttpWorker | None:
        declared, known = write_limits(limits or {}), dict(parameters or {})
        self._add("join", name, list(services), capacity, lease, owner_facts(owner), origin, now, declared, known)
        self._items.hides_tokens = True  # with this token the worker proves who it is; the broker decides nothing by it
        try:
            return self._side.join(name, services, capacity, lease, owner, origin, now, limits, parameters)
        finally:
            self._items.hides_tokens = False

    def seen(self, remote: RemoteHttpWorker, now: float) -> None:
        self._add("seen", remote.worker.id, now)
        self._side.seen(remote, now)

    def attempt(self, remote: RemoteHttpWorker, token: Token) -> Attempt | None:
        self._add("attempt", remote.worker.id, token)
        return self._side.attempt(remote, token)

    def leave(self, remote: RemoteHttpWorker, now: float, reason: str = "it has left") -> None:
        self._add("leave", remote.worker.id, now, reason)
        self._side.leave(remote, now, reason)

    def end_revoked(self, now: float) -> int:
        self._add("end_revoked", now)
        return self._side.end_revoked(now)

    def poll(
        self, remote: RemoteHttpWorker, wait: float, held: Collection[str] | None, answer: Any, now: float
    ) -> PendingPoll:
        number = self._new_number()
        self._add("poll", number, remote.worker.id, wait, None if held is None else sorted(held), now)
        poll = self._side.poll(remote, wait, held, answer, now)
        poll.number = number
        return poll

    def drop(self, poll: PendingPoll, now: float) -> None:
        self._add("drop", poll.number, poll.is_read, now)
        self._side.drop(poll, now)

    def succeed(self, remote: RemoteHttpWorker, attempt: Attempt, result: Payload, now: float) -> bool:
        self._add("succeed", remote.worker.id, attempt.token, self._items.hide(result), now)
        return self._side.succeed(remote, attempt, result, now)

    def fail(
        self,
        remote: RemoteHttpWorker,
        attempt: Attempt,
        reason: str,
        failure: Failure | None,
        now: float,
        *,
        is_stopped: bool = False,
    ) -> bool:
        self._add("fail", remote.worker.id, attempt.token, *self._failed(reason, failure), is_stopped, now)
        return self._side.fail(remote, attempt, reason, failure, now, is_stopped=is_stopped)

    def succeed_resumed(self, token: Token, principal: Principal, result: Payload, now: float) -> tuple[Job, bool]:
        self._add("succeed_resumed", token, principal.name, self._items.hide(result), now)
        return self._side.succeed_resumed(token, principal, result, now)

    def fail_resumed(
        self,
        token: Token,
        principal: Principal,
        reason: str,
        failure: Failure | None,
        now: float,
        *,
        is_stopped: bool = False,
    ) -> tuple[Job, bool] | None:
        self._add("fail_resumed", token, principal.name, *self._failed(reason, failure), is_stopped, now)
        return self._side.fail_resumed(token, principal, reason, failure, now, is_stopped=is_stopped)

    def progress(self, attempt: Attempt, payload: Payload, now: float) -> bool:
        self._add("progress", attempt.worker.id, attempt.token, self._items.hide(payload), now)
        return self._side.progress(attempt, payload, now)

    def close(self) -> None:
        self._add("close")
        self._side.close()

    def _failed(self, reason: str, failure: Failure | None) -> tuple[str, Any]:
        """Return the reason and the failure. The reason of a failure is its sentence."""
        hide = self._items.hide
        facts = hide.failure(failure)
        return (hide.text(reason) if facts is None else Failure(*facts).sentence), facts

    def _new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _add(self, method: str, *facts: Any) -> None:
        self._items.add(HTTP, self._items.side_number(self._side), method, *facts)


class RecordedOperations:
    """The operations, as request handlers of HTTP use them."""

    def __init__(self, items: Items, operations: OperationHandlers) -> None:
        self._items = items
        self._operations = operations
        self._pending: dict[PendingRequest, int] = {}
        self._requests = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def ask(
        self, operation: str, request: Any, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        items = self._items
        self._requests += 1
        facts = msgspec.to_builtins(request)
        if not items.hide.is_off:
            facts = hide_request(operation, facts, items.hide)
        owner = owner_facts(responder.owner)
        is_batch = operation == ENQUEUE_MANY.name and not items.hide.is_off
        hidden = hide_batch(payload, items.hide) if is_batch else items.hide(payload)
        items.add(ASK, self._requests, operation, facts, hidden, owner, responder.dialect, now)
        number = self._requests
        pending = self._operations.ask(operation, request, payload, responder, now)
        if pending is not None:
            self._pending[pending] = number
        return pending

    def leave(self, pending: PendingRequest, now: float) -> None:
        self._items.add(LEAVE, self._pending.pop(pending), now)
        self._operations.leave(pending, now)

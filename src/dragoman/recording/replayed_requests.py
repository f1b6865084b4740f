"""Requests of HTTP in a replay."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.extras_text import extras_of
from dragoman.core.failure import Failure
from dragoman.core.model import Token
from dragoman.core.options import options_from
from dragoman.core.owners import Owner
from dragoman.dialects.native.limit_fields import read_limits
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.remote_worker import PendingCall, PendingPoll, RemoteHttpWorker
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import ErrorView, View
from dragoman.operations.table import OPERATIONS

OF_ADDRESS = "address "  # a label that Owners makes


class NullAnswer:
    """Stands for the future of a request; nothing waits for it."""

    def __init__(self) -> None:
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: object) -> None:
        self._is_done = True


class NullResponder:
    """Stands for the client of an operation."""

    def __init__(self, owner: Owner, dialect: str) -> None:
        self.owner = owner
        self.dialect = dialect
        self.origin = "recorded"

    def answer(self, view: View, payload: object = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        pass


def owner_of(broker: Broker, facts: Any) -> Owner:
    """Return the owner of a request, as http/context.py finds it."""
    name, label = facts
    address = label.removeprefix(OF_ADDRESS) if label.startswith(OF_ADDRESS) else ""
    return broker.owners.at(address, broker.principals.named(name), label)


class ReplayedRequests:
    """Calls one broker side of HTTP as it was called: each method has the name of the one it calls."""

    def __init__(self, broker: Broker, side: HttpBrokerSide) -> None:
        self._broker = broker
        self._side = side
        self._calls: dict[int, PendingCall] = {}
        self._polls: dict[int, PendingPoll] = {}
        self._remotes: dict[int, RemoteHttpWorker] = {}  # a worker that was removed may still be named by a request

    def handle(self, method: str, *facts: Any) -> None:
        getattr(self, method)(*facts)

    def call(
        self,
        number: int,
        service: str,
        payload: bytes,
        options: Any,
        now: float,
        deadline: float,
        key: Any,
        owner: Any,
        extras: str | None,
    ) -> None:
        answer: Any = NullAnswer()
        self._calls[number] = self._side.call(
            service,
            payload,
            options_from(options),
            answer,
            now,
            deadline=deadline,
            key=key,
            owner=owner_of(self._broker, owner),
            extras=extras_of(extras) if extras is not None else None,
        )

    def caller_left(self, number: int, now: float) -> None:
        self._side.caller_left(self._calls.pop(number), now)

    def join(
        self,
        name: str,
        services: list[str],
        capacity: int,
        lease: float,
        owner: Any,
        origin: str,
        now: float,
        limits: dict[str, Any],
        parameters: dict[str, Any],
    ) -> None:
        declared = read_limits(limits)
        remote = self._side.join(
            name, services, capacity, lease, owner_of(self._broker, owner), origin, now, declared, parameters
        )
        if remote is not None:
            self._remotes[remote.worker.id] = remote

    def seen(self, worker: int, now: float) -> None:
        self._side.seen(self._remotes[worker], now)

    def attempt(self, worker: int, token: bytes) -> None:
        self._side.attempt(self._remotes[worker], Token(token))

    def leave(self, worker: int, now: float, reason: str) -> None:
        self._side.leave(self._remotes[worker], now, reason)

    def end_revoked(self, now: float) -> None:
        self._side.end_revoked(now)

    def poll(self, number: int, worker: int, wait: float, held: list[str] | None, now: float) -> None:
        answer: Any = NullAnswer()
        self._polls[number] = self._side.poll(self._remotes[worker], wait, held, answer, now)

    def drop(self, number: int, is_read: bool, now: float) -> None:
        poll = self._polls.pop(number)
        poll.is_read = is_read
        self._side.drop(poll, now)

    def succeed(self, worker: int, token: bytes, result: bytes, now: float) -> None:
        remote = self._remotes[worker]
        attempt = remote.worker.find(Token(token))
        assert attempt is not None
        self._side.succeed(remote, attempt, result, now)

    def fail(self, worker: int, token: bytes, reason: str, failure: Any, is_stopped: bool, now: float) -> None:
        remote = self._remotes[worker]
        attempt = remote.worker.find(Token(token))
        assert attempt is not None
        self._side.fail(remote, attempt, reason, _failure_of(failure), now, is_stopped=is_stopped)

    def succeed_resumed(self, token: bytes, principal: str, result: bytes, now: float) -> None:
        self._side.succeed_resumed(Token(token), self._broker.principals.named(principal), result, now)

    def fail_resumed(
        self, token: bytes, principal: str, reason: str, failure: Any, is_stopped: bool, now: float
    ) -> None:
        named = self._broker.principals.named(principal)
        self._side.fail_resumed(Token(token), named, reason, _failure_of(failure), now, is_stopped=is_stopped)

    def progress(self, worker: int, token: bytes, payload: bytes, now: float) -> None:
        attempt = self._remotes[worker].worker.find(Token(token))
        assert attempt is not None
        self._side.progress(attempt, payload, now)

    def close(self) -> None:
        self._side.close()


class ReplayedOperations:
    """Operations that were requested over HTTP."""

    def __init__(self, broker: Broker, operations: OperationHandlers) -> None:
        self._broker = broker
        self._operations = operations
        self._pending: dict[int, PendingRequest] = {}

    def ask(
        self, number: int, operation: str, facts: Any, payload: bytes, owner: Any, dialect: str, now: float
    ) -> None:
        request = msgspec.convert(facts, OPERATIONS[operation].request)
        responder = NullResponder(owner_of(self._broker, owner), dialect)
        pending = self._operations.ask(operation, request, payload, responder, now)
        if pending is not None:
            self._pending[number] = pending

    def leave(self, number: int, now: float) -> None:
        self._operations.leave(self._pending.pop(number), now)


def _failure_of(facts: Any) -> Failure | None:
    return Failure(*facts) if facts is not None else None

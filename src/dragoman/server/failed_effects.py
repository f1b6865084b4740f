"""Handles effects whose recipient raised an exception."""

from __future__ import annotations

from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.errors import InvariantBroken
from dragoman.core.states import FAILED, RemovalReason
from dragoman.server.connection import StreamConnection
from dragoman.server.connections import Connections
from dragoman.server.reports import Reports

INTERNAL_ERROR: Final = "an internal error of the broker"


class FailedEffects:
    """Limits an exception in a recipient to one worker or one caller.

    A worker that could not be sent its job is removed, so that the job is not lost. A caller gets an internal error
    instead of its outcome; if that fails too, its connection is closed.
    """

    def __init__(self, broker: Broker, connections: Connections, reports: Reports) -> None:
        self._broker = broker
        self._connections = connections
        self._reports = reports

    def handle(self, effect: Effect, error: Exception, now: float) -> None:
        self._reports.internal_error(error, effect=type(effect).__name__)
        if isinstance(effect, SendJob):
            worker = effect.attempt.worker
            self._broker.effects.append(RemoveWorker(worker, RemovalReason.EXPIRED, INTERNAL_ERROR))
            self._broker.leave(worker, now, INTERNAL_ERROR)
        elif isinstance(effect, DeliverOutcome) and effect.reason is not INTERNAL_ERROR:
            failure = DeliverOutcome(effect.caller, effect.job, FAILED, b"", INTERNAL_ERROR)
            try:
                effect.caller.recipient.execute(failure, now)
            except InvariantBroken:
                raise
            except Exception as second:
                self.handle(failure, second, now)
        elif isinstance(effect, DeliverOutcome) and isinstance(effect.caller, StreamConnection):
            self._connections.close(effect.caller, INTERNAL_ERROR)

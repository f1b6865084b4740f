"""The broker's side of single-frame calls: the callers of a listener without service names on the wire."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.options import JobOptions
from dragoman.core.oversize import over_max_payload
from dragoman.core.recording import submitted, to_caller
from dragoman.core.states import DONE, REFUSED, RefusalReason
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.single_frame_calls import read_call, write_error

FRONTEND: Final = "frontend"


class Frontend:
    """Submits the calls of a listener and sends their outcomes. Each connection is one caller."""

    def __init__(self, broker: Broker, io: BrokerIO, service: str, job_options: JobOptions, max_payload: int) -> None:
        self._broker = broker
        self._io = io
        self._service = service
        self._job_options = job_options
        self._max_payload = max_payload

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        """Submit the call in a message. Raises Malformed."""
        if type(message) is TooLarge:
            self._refuse_large(peer, message.size)
            return
        payload = read_call(message)
        if len(payload) > self._max_payload:
            self._refuse_large(peer, len(payload))
        else:
            job = self._broker.submit(self._service, payload, peer, self._job_options, now)
            if job is not None and job.conversation is not None:
                submitted(job, peer, "job", len(payload), now)

    def answer(self, effect: DeliverOutcome, now: float) -> None:
        peer: Connection = effect.caller  # type: ignore[assignment]
        peer.remove_job(effect.job)
        if effect.job is not None and effect.job.conversation is not None:
            to_caller(effect.job, peer, "result" if effect.outcome is DONE else "ERROR", len(effect.result), now)
        if effect.outcome is DONE:
            self._io.send(peer, [b"", effect.result])
        else:
            self._io.send(peer, write_error(effect.outcome, effect.reason))

    def lost(self, peer: Connection, now: float) -> None:
        self._broker.caller_gone(peer, now)

    def _refuse_large(self, peer: Connection, size: int) -> None:
        reason = over_max_payload("payload", size, self._max_payload)
        self._broker.counters.refuse(self._service, RefusalReason.INVALID, reason)
        self._io.send(peer, write_error(REFUSED, reason))

"""Message types of Majordomo. Frames are shown without the routing id, which the carrier keeps."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.carriers.carrier import Frame


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: connected, free, and offers this service."""

    service: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From worker and broker: heartbeat."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """From a worker: leaving. From the broker: start again on a new connection."""


class WorkerReply:
    """From a worker: the result of a request, or a part of it. `client` is the frame that came with the request."""

    __slots__ = ("body", "client", "is_final")

    def __init__(self, client: Frame, body: Frame, is_final: bool) -> None:
        self.client = client
        self.body = body
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """From the broker to a worker: a job, and a frame to return with its result."""

    client: Frame
    body: Frame


class ClientRequest:
    """From a client: a job for a service."""

    __slots__ = ("body", "service")

    def __init__(self, service: str, body: Frame) -> None:
        self.service = service
        self.body = body


@dataclass(frozen=True, slots=True)
class ClientReply:
    """From the broker to a client: the result, or a part of it. `service` is None in editions without it."""

    service: str | None
    body: Frame
    is_final: bool


WorkerMessage = Ready | WorkerReply | Heartbeat | Disconnect
BrokerMessage = WorkerRequest | Heartbeat | Disconnect

"""The words of Majordomo. Frames are written here without the routing id, which the carrier keeps."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.carriers.carrier import Frame


@dataclass(frozen=True, slots=True)
class Ready:
    """worker: I am here, free, and offer this service."""

    service: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """worker and broker: I live."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """worker: I leave. broker: begin anew, on a new connection."""


class WorkerReply:
    """worker: what became of the request, or a part of it. `client` is the frame that came with the request."""

    __slots__ = ("body", "client", "is_final")

    def __init__(self, client: Frame, body: Frame, is_final: bool) -> None:
        self.client = client
        self.body = body
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """broker to worker: a job, and a frame to send back with its result."""

    client: Frame
    body: Frame


class ClientRequest:
    """client: do this, whoever offers the service."""

    __slots__ = ("body", "service")

    def __init__(self, service: str, body: Frame) -> None:
        self.service = service
        self.body = body


@dataclass(frozen=True, slots=True)
class ClientReply:
    """broker to client: the result, or a part of it. `service` is None in editions that do not name it."""

    service: str | None
    body: Frame
    is_final: bool


WorkerMessage = Ready | WorkerReply | Heartbeat | Disconnect
BrokerMessage = WorkerRequest | Heartbeat | Disconnect

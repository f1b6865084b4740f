"""Factories for the client and worker sides of each dialect. A dialect is imported when it is first used."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.dialects.sides import ClientIO, ClientSide, WorkerIO, WorkerSide
from dragoman.sdk.address import SocketAddress, UnixAddress
from dragoman.sdk.ids import new_session
from dragoman.sdk.proof import Proof

# The broker limits the size of messages (max_payload); clients and workers accept every message that it sends.
HARD_CAP = ZmtpLimits().hard_cap
MOST_FRAMES = 1027


def _absent(*_: object) -> Any:
    raise AssertionError("this dialect has no such side")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Factories of one dialect."""

    check_services: Callable[[Sequence[str]], str | None] = _absent  # checks service names, where the wire has names
    # Not for workers to which the broker connects.
    worker_carrier: Callable[[SocketAddress, Proof], Carrier] = _absent
    worker_side: Callable[[Any, WorkerIO, Sequence[str], int], WorkerSide] = _absent
    client_carrier: Callable[[SocketAddress, Proof], Carrier] = _absent
    client_side: Callable[[Any, ClientIO], ClientSide] = _absent
    takes_key: bool = False  # the wire has CURVE
    takes_token: bool = False
    ignores_token: bool = False  # a listener that requires no token ignores one; others reject it


def native() -> Sides:
    from dragoman.dialects.native import peer

    return Sides(
        check_services=peer.check_services,
        worker_carrier=_zmtp(peer.SOCKET),
        worker_side=peer.WorkerSide,
        client_carrier=_zmtp(peer.SOCKET),
        client_side=lambda options, io: peer.ClientSide(options, io, new_session()),
        takes_key=True,
        takes_token=True,
    )


def pingpong() -> Sides:
    from dragoman.dialects import single_frame_client
    from dragoman.dialects.pingpong import peer

    return Sides(
        worker_carrier=_zmtp(peer.WORKER_SOCKET),
        worker_side=lambda options, io, _, __: peer.WorkerSide(options, io),
        client_carrier=_zmtp(single_frame_client.CLIENT_SOCKET),
        client_side=peer.ClientSide,
        takes_key=True,
    )


def powerhose() -> Sides:
    from dragoman.dialects import single_frame_client
    from dragoman.dialects.powerhose import peer

    return Sides(client_carrier=_zmtp(single_frame_client.CLIENT_SOCKET), client_side=peer.ClientSide, takes_key=True)


def memodb() -> Sides:
    from dragoman.carriers.sp import Sp, SpLimits
    from dragoman.dialects.memodb import peer

    def carrier(place: SocketAddress, _: Proof) -> Carrier:
        return Sp(peer.SOCKET, ipc=isinstance(place, UnixAddress), limits=SpLimits(max_payload=HARD_CAP))

    def first_request() -> int:
        """Return the first request id: random, so that two programs do not use the same ids."""
        return random.getrandbits(31)

    return Sides(
        check_services=peer.check_services,
        worker_carrier=carrier,
        worker_side=lambda options, io, services, concurrency: peer.WorkerSide(
            options, io, services, concurrency, first_request()
        ),
        client_carrier=carrier,
        client_side=lambda options, io: peer.ClientSide(options, io, first_request()),
    )


def controller() -> Sides:
    return Sides()


def majordomo() -> Sides:
    from dragoman.dialects.majordomo import peer

    return Sides(
        check_services=peer.check_services,
        worker_carrier=_zmtp(peer.SOCKET),
        worker_side=lambda options, io, services, _: peer.WorkerSide(options, io, services[0]),
        client_carrier=_zmtp(peer.SOCKET),
        client_side=peer.ClientSide,
        takes_key=True,
    )


def http() -> Sides:
    from dragoman.carriers.http import HttpClient, HttpClientLimits
    from dragoman.dialects.http import peer
    from dragoman.sdk.http_requests import http_request_for

    def carrier(place: SocketAddress, proof: Proof) -> Carrier:
        host = "localhost" if isinstance(place, UnixAddress) else str(place)
        limits = HttpClientLimits(max_payload=HARD_CAP)
        return HttpClient(host, probe=peer.PROBE, alive=peer.ALIVE, fields=proof.authorization, limits=limits)

    return Sides(
        check_services=peer.check_services,
        client_carrier=carrier,
        client_side=lambda _, io: peer.ClientSide(io, http_request_for),
        takes_token=True,
        ignores_token=True,
    )


def _zmtp(socket_type: str) -> Callable[[SocketAddress, Proof], Carrier]:
    limits = ZmtpLimits(max_payload=HARD_CAP, max_frames=MOST_FRAMES)
    return lambda _, proof: dialling_zmtp(socket_type, proof, limits)


def dialling_zmtp(socket_type: str, proof: Proof, limits: ZmtpLimits) -> Zmtp:
    """Return the carrier of a new connection. CURVE is loaded only for a proof by key."""
    if not proof.security.is_encrypted:
        return Zmtp(socket_type, dials=True, limits=limits, security=proof.security)
    from dragoman.carriers.zmtp_curve import zmtp_carrier

    return zmtp_carrier(socket_type, dials=True, limits=limits, security=proof.security)

"""The listener of HTTP."""

from __future__ import annotations

import socket
from functools import partial

from dragoman.http import health
from dragoman.http.app import make_app, make_too_large
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext as HttpDoor
from dragoman.http.limits import HttpLimits
from dragoman.http.options import ListenerOptions as HttpOptions
from dragoman.http.server import HttpServer
from dragoman.http.sse import Streams
from dragoman.sdk.address import address_error
from dragoman.server.asyncio_host import ExternalSocket
from dragoman.server.wiring import Listener, ListenRequest


def listen_http(request: ListenRequest) -> Listener:
    if request.options.frontend is not None:
        raise address_error(request.address.url, "http has no frontend: everybody comes in at the same place")
    door = ExternalSocket(request.address.place, partial(_serve_http, request))
    return Listener(request.address, (("both", door),), ("callers, workers and operators; any service",))


def _serve_http(request: ListenRequest, listening: socket.socket) -> None:
    house, line = request.house, request.line
    assert house is not None, "nobody is served by HTTP without a loop to do it on"
    own: HttpOptions = request.own
    limits: HttpLimits = request.limits
    streams = Streams(limits.max_streams)
    session = HttpBrokerSide(request.broker, line.connections, own, streams)
    line.sessions.append(session)
    door = HttpDoor(request.broker, house.desk, session, line, house.now, house.health, limits.max_payload)
    door.traffic = house.http_traffic
    hosts = [each for each in own.hosts.split(",") if each]

    def refused(reason: str, address: str) -> None:
        request.broker.counters.bad_message("http", reason)
        line.reports.complain("request refused", address=address, reason=reason)

    def failed(error: BaseException) -> None:
        line.reports.internal_error(error)

    too_large = make_too_large(door)
    server = HttpServer(
        house.loop, make_app(door), limits, hosts, refused, failed, session.close, too_large, health.PATHS
    )
    house.http.append((server, session))
    server.listen(listening)

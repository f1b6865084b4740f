"""The listener of HTTP."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from typing import Final

from dragoman.http import health
from dragoman.http.app import make_app, make_too_large
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext as HttpWorld
from dragoman.http.framing import RequestError
from dragoman.http.limits import HttpLimits
from dragoman.http.options import ListenerOptions as HttpOptions
from dragoman.http.server import HttpServer
from dragoman.http.server_state import UserCheck
from dragoman.http.sse import Streams
from dragoman.sdk.address import address_error
from dragoman.server.asyncio_host import ExternalSocket
from dragoman.server.local_peers import LocalPeers, LoopbackRule
from dragoman.server.wiring import Listener, ListenRequest
from dragoman.streams.tls_problems import tls_problem

ANOTHER_USER: Final = "another-user"


def listen_http(request: ListenRequest) -> Listener:
    if request.options.frontend is not None:
        raise address_error(request.address.url, "http has no frontend: callers and workers use the same address")
    listener_socket = ExternalSocket(request.address.place, partial(_serve_http, request))
    notes = ("callers, workers and operators; any service",)
    return Listener(request.address, (("both", listener_socket),), notes)


def _serve_http(request: ListenRequest, listening: socket.socket, local_peers: LocalPeers, rule: LoopbackRule) -> None:
    context, runner = request.context, request.runner
    assert context is not None, "HTTP needs an event loop"
    own: HttpOptions = request.own
    limits: HttpLimits = request.limits
    streams = Streams(limits.max_streams)
    session = HttpBrokerSide(request.broker, runner.connections, own, streams)
    runner.sessions.append(session)
    listener_socket = HttpWorld(
        request.broker, context.operations, session, runner, context.now, context.health, limits.max_payload
    )
    listener_socket.traffic = context.http_traffic
    hosts = [each for each in own.hosts.split(",") if each]

    def refused(reason: str, address: str, detail: str) -> None:
        request.broker.counters.bad_message("http", reason)
        if reason == ANOTHER_USER:
            local_peers.log(detail, address)
            return
        runner.reports.log_limited("request rejected", address=address, reason=reason)

    def handshake_failed(error: ssl.SSLError, address: str) -> None:
        request.broker.counters.bad_message("http", "tls")
        reason = tls_problem(error, b"", is_server=True)
        runner.reports.log_limited("handshake aborted", address=address, reason=reason)

    def failed(error: BaseException) -> None:
        runner.reports.internal_error(error)

    def fault(connected: socket.socket) -> RequestError | None:
        found = local_peers.judge(connected, rule)
        return RequestError(403, ANOTHER_USER, "Another user", found) if isinstance(found, str) else None

    users = UserCheck()
    if rule is not LoopbackRule.ANYONE:
        users = UserCheck(fault, frozenset(path.encode() for path in health.PUBLIC_PATHS), rejects_forwarded=True)
    too_large = make_too_large(listener_socket)
    server = HttpServer(
        context.loop,
        make_app(listener_socket),
        limits,
        hosts,
        refused,
        failed,
        session.close,
        too_large,
        health.PATHS,
        users,
        context.all_bodies,
    )
    context.http.append((server, session))
    tls = request.security.tls
    if tls is None:
        server.listen(listening)
    else:
        server.listen_tls(listening, lambda: tls.role.context, handshake_failed, runner.connections.registry.handshakes)

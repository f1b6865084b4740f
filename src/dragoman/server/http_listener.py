"""The listener of HTTP."""

from __future__ import annotations

import socket
import ssl
from functools import partial

from dragoman.http import health
from dragoman.http.app import make_app, make_too_large
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext as HttpWorld
from dragoman.http.limits import HttpLimits
from dragoman.http.options import ListenerOptions as HttpOptions
from dragoman.http.server import HttpServer
from dragoman.http.sse import Streams
from dragoman.sdk.address import address_error
from dragoman.server.asyncio_host import ExternalSocket
from dragoman.server.http_access import ANOTHER_USER, http_access
from dragoman.server.local_peers import LocalPeers, LoopbackRule
from dragoman.server.wiring import Listener, ListenRequest
from dragoman.streams.tls_problems import tls_problem


def listen_http(request: ListenRequest) -> Listener:
    if request.options.frontend is not None:
        raise address_error(request.address.url, "http has no frontend: callers and workers use the same address")
    limits: HttpLimits = request.limits
    session = HttpBrokerSide(request.broker, request.runner.connections, request.own, Streams(limits.max_streams))
    request.runner.sessions.append(session)
    opened: list[tuple[HttpServer, HttpBrokerSide]] = []
    serve = partial(_serve_http, request, request.taps.http(session), opened)
    listener_socket = ExternalSocket(request.address.place, serve)
    notes = ("callers, workers and operators; any service",)
    return Listener(request.address, (("both", listener_socket),), notes, http=opened)


def _serve_http(
    request: ListenRequest,
    session: HttpBrokerSide,
    opened: list[tuple[HttpServer, HttpBrokerSide]],
    listening: socket.socket,
    local_peers: LocalPeers,
    rule: LoopbackRule,
) -> None:
    """Start the server, and add it to `opened`."""
    context, runner, registry = request.context, request.runner, request.runner.connections.registry
    assert context is not None, "HTTP needs an event loop"
    own: HttpOptions = request.own
    limits: HttpLimits = request.limits
    access = http_access(request, local_peers, rule)

    def refused(reason: str, address: str, detail: str) -> None:
        registry.count_bad(session, reason)
        if reason == ANOTHER_USER:
            local_peers.log(detail, address)
            return
        runner.reports.log_limited("request rejected", address=address, reason=reason)

    def handshake_failed(error: ssl.SSLError, address: str) -> None:
        registry.count_bad(session, "tls")
        reason = tls_problem(error, b"", is_server=True)
        runner.reports.log_limited("handshake aborted", address=address, reason=reason)

    def failed(error: BaseException) -> None:
        runner.reports.internal_error(error)

    tls = request.security.tls
    requests = access.request_access(context.now, tls is not None, refused)
    operations = context.taps.operations(context.operations)
    world = HttpWorld(
        request.broker, operations, session, runner, context.now, context.health, limits.max_payload, requests
    )
    world.dashboard_mode = own.dashboard
    world.shows_payloads = own.payloads
    world.traffic = context.http_traffic
    world.dashboard = context.dashboard
    world.certificates = context.access_control.expiries
    server = HttpServer(
        context.loop,
        make_app(world),
        limits,
        [each for each in own.hosts.split(",") if each],
        refused,
        failed,
        session.close,
        make_too_large(world),
        health.PATHS,
        access.connection_check(requests),
        own.hsts,
        context.all_bodies,
    )
    requests.end_revoked = server.end_revoked

    def end_revoked() -> int:
        """End what belongs to principals without access: sessions, requests, connections and workers."""
        ended = requests.sessions.sweep() if requests.sessions is not None else 0
        return ended + server.end_revoked() + session.end_revoked(context.now())

    context.access_control.watch(end_revoked)
    opened.append((server, session))
    context.http.append((server, session))
    if tls is None:
        server.listen(listening)
    else:
        server.listen_tls(listening, lambda: tls.role.context, handshake_failed, runner.connections.registry.handshakes)

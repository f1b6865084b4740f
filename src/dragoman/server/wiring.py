"""Creates listeners from URLs.

A broker loads the code of a dialect only if it opens such a listener, so that it starts sooner: each function here
imports its dialect itself. Listeners that need more libraries are in `http_listener.py` and `controller_listener.py`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dragoman.carriers.carrier import Carrier
from dragoman.carriers.sp import Sp, SpLimits
from dragoman.carriers.zmtp import Zmtp
from dragoman.carriers.zmtp_limits import ZmtpLimits
from dragoman.core.broker import Broker
from dragoman.core.names import is_name
from dragoman.dashboard.dashboard import Dashboard
from dragoman.dialects import interface
from dragoman.dialects.catalogue import DIALECTS
from dragoman.dialects.frontend import FRONTEND
from dragoman.http.all_bodies import AllBodies
from dragoman.http.limits import HttpLimits
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.json_api import JsonOperations
from dragoman.operations.schemas import HealthView
from dragoman.sdk.address import (
    Address,
    SocketAddress,
    TcpAddress,
    TlsAddress,
    UnixAddress,
    address_error,
    parse,
    parse_frontend,
    read_options,
)
from dragoman.server import clock
from dragoman.server.access_control import AccessControl
from dragoman.server.asyncio_host import ExternalSocket
from dragoman.server.authentication import Authentication, AuthMechanism
from dragoman.server.config import runtime_dir
from dragoman.server.dial_policy import DialPolicy
from dragoman.server.input_taps import NO_TAPS, InputTaps
from dragoman.server.listener_security import ListenerSecurity, security_options
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.local_peers import DEFAULT_ACCESS, LocalAccess
from dragoman.server.runner import Runner
from dragoman.streams.tls_context import ListenerTls

if TYPE_CHECKING:
    from dragoman.dialects.majordomo.options import ListenerOptions as MajordomoOptions
    from dragoman.dialects.memodb.options import ListenerOptions as MemoDbOptions
    from dragoman.dialects.pingpong.options import ListenerOptions as PingPongOptions
    from dragoman.dialects.powerhose.options import ListenerOptions as PowerhoseOptions
    from dragoman.http.broker_side import HttpBrokerSide
    from dragoman.http.server import HttpServer


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Options of every listener's URL."""

    frontend: str | None = None
    insecure: bool = False
    max_payload: int = field(default=64 << 20, metadata={"min": 1, "max": 1 << 30})


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener that is ready to open."""

    address: Address
    sockets: tuple[tuple[str, ListenerSocket | ExternalSocket], ...]  # (role, socket); role: workers, callers, both
    notes: tuple[str, ...]  # information for the operator
    before_open: Callable[[], None] = lambda: None  # called before its sockets are opened; may raise OSError
    when_open: Callable[[], None] = lambda: None  # called when they are open
    say_goodbye: Callable[[str], None] = lambda _: None  # notifies clients that the broker stops, with a reason
    access: LocalAccess = DEFAULT_ACCESS
    tls: ListenerTls | None = None
    is_open_at: Callable[[SocketAddress], bool] = lambda _: False  # peers at this address prove nothing
    edition: str | None = None  # of its dialect; None: the dialect has none, or each worker has its own
    http: Sequence[tuple[HttpServer, HttpBrokerSide]] = ()  # of a listener of HTTP, once it is open


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Parts of a running broker besides its runner."""

    loop: asyncio.AbstractEventLoop
    operations: OperationHandlers
    now: Callable[[], float]
    health: Callable[[], HealthView]
    http: list[tuple[HttpServer, HttpBrokerSide]]  # the open servers
    access_control: AccessControl
    all_bodies: AllBodies | None = None
    dashboard: Dashboard | None = None
    taps: InputTaps = NO_TAPS

    def http_traffic(self) -> tuple[int, int]:
        traffics = [server.traffic for server, _ in self.http]
        return sum(each.received for each in traffics), sum(each.sent for each in traffics)


@dataclass(frozen=True, slots=True)
class ListenRequest:
    """Everything a dialect needs to create its listener."""

    address: Address
    options: ListenerOptions
    own: Any  # the dialect's own options
    limits: Any  # limits of its connections
    broker: Broker
    runner: Runner
    security: ListenerSecurity
    context: ServerContext | None = None  # None: no operations and no HTTP

    @property
    def taps(self) -> InputTaps:
        return self.context.taps if self.context is not None else NO_TAPS

    def socket(
        self, session: interface.BrokerSide, name: str, place: SocketAddress, carrier: Callable[[], Carrier]
    ) -> ListenerSocket:
        tls = self.security.tls if isinstance(place, TlsAddress) else None
        return ListenerSocket(session, name, place, carrier, self.limits, tls=tls, auth=self.security.auth(place))

    def zmtp(self, limits: ZmtpLimits) -> Callable[[], Zmtp]:
        """Return the function that makes the carrier of a new connection. It has the mechanism of the moment."""
        auth = self.security.auth(self.address.place)
        if auth is None or auth.mechanism is AuthMechanism.NONE:
            return partial(Zmtp, "ROUTER", limits=limits)
        from dragoman.carriers.zmtp_curve import zmtp_carrier

        return lambda: zmtp_carrier("ROUTER", limits=limits, security=auth.security())


HEADS = 64 << 10  # bytes of envelopes and words in a message besides its payload


def _zmtp_limits(max_payload: int, heads: int = HEADS) -> ZmtpLimits:
    """Return the limits of a carrier, which counts all frames of a message. The broker side counts the payload."""
    most = max_payload + heads
    return ZmtpLimits(max_payload=most, hard_cap=max(most, ZmtpLimits().hard_cap))


def listen_pingpong(request: ListenRequest) -> Listener:
    from dragoman.dialects.pingpong import broker_side as pingpong

    own: PingPongOptions = request.own
    check_service(request, own.service)
    runner = request.runner
    now = request.taps.clock(clock.now)()
    session = pingpong.PingPongBrokerSide(request.broker, runner.connections, own, request.options.max_payload, now)
    request.runner.sessions.append(session)
    carrier = request.zmtp(_zmtp_limits(request.options.max_payload))
    return _with_frontend(request, session, pingpong.BACKEND, carrier, f", edition {own.edition.value}")


def listen_powerhose(request: ListenRequest) -> Listener:
    from dragoman.dialects.powerhose import broker_side as powerhose

    address = request.address
    own: PowerhoseOptions = request.own
    check_service(request, own.service)
    try:
        reach = DialPolicy(_bases(own, address.place), [each for each in own.dial_allow.split(",") if each])
    except ValueError as error:
        raise address_error(address.url, f"dial_allow: {error}") from None
    max_payload = request.options.max_payload
    limits = _zmtp_limits(max_payload)
    session = powerhose.PowerhoseBrokerSide(
        request.broker,
        request.runner.connections,
        own,
        max_payload,
        request.taps.reach(reach),
        partial(Zmtp, "REQ", dials=True, limits=limits),
        request.limits,
    )
    request.runner.sessions.append(session)
    carrier = request.zmtp(limits)
    return _with_frontend(request, session, powerhose.BACKEND, carrier)


def _bases(own: PowerhoseOptions, place: SocketAddress) -> list[str]:
    """Return the folders in which sockets of workers may be."""
    if own.base:
        return [each for each in own.base.split(":") if each]
    beside = [os.path.dirname(os.path.abspath(place.path))] if isinstance(place, UnixAddress) else []
    return [os.getcwd(), *beside, tempfile.gettempdir(), str(runtime_dir(os.environ))]


def check_service(request: ListenRequest, service: str) -> None:
    if not is_name(service, request.broker.policy.max_service_bytes):
        raise address_error(request.address.url, f"{service!r} is not a service name")


def _with_frontend(
    request: ListenRequest, session: interface.BrokerSide, backend: str, carrier: Callable[[], Zmtp], note: str = ""
) -> Listener:
    """Create a listener with one socket for workers, and another for callers if the URL has a frontend."""
    address = request.address
    sockets = [("workers", request.socket(session, backend, address.place, carrier))]
    notes = [f"service {request.own.service!r}{note}"]
    if request.options.frontend is None:
        example = "PORT" if isinstance(address.place, TcpAddress) else "ipc%3A%2F%2F%2FPATH"
        notes.append(f"accepts workers only: add frontend={example} for callers")
    else:
        frontend = parse_frontend(request.options.frontend, address.place, address.url)
        sockets.append(("callers", request.socket(session, FRONTEND, frontend, carrier)))
    return Listener(address, tuple(sockets), tuple(notes))


def listen_memodb(request: ListenRequest) -> Listener:
    from dragoman.dialects.memodb.broker_side import MemoDbBrokerSide

    own: MemoDbOptions = request.own
    max_payload = request.options.max_payload
    session = MemoDbBrokerSide(request.broker, request.runner.connections, own, max_payload)
    is_ipc = isinstance(request.address.place, UnixAddress)
    carrier = partial(Sp, "REP", ipc=is_ipc, limits=SpLimits(max_payload=max_payload))
    return _single_socket(request, session, carrier)


def listen_majordomo(request: ListenRequest) -> Listener:
    from dragoman.dialects.majordomo.broker_side import MajordomoBrokerSide

    own: MajordomoOptions = request.own
    max_payload = request.options.max_payload
    session = MajordomoBrokerSide(request.broker, request.runner.connections, own, max_payload)
    carrier = request.zmtp(_zmtp_limits(max_payload))
    return _single_socket(request, session, carrier)


def _single_socket(request: ListenRequest, session: interface.BrokerSide, carrier: Callable[[], Carrier]) -> Listener:
    """Create a listener with one socket for workers and callers, which name their services themselves."""
    address = request.address
    if request.options.frontend is not None:
        problem = f"{address.dialect} has no frontend: workers and callers use the same address"
        raise address_error(address.url, problem)
    request.runner.sessions.append(session)
    listener_socket = request.socket(session, "door", address.place, carrier)
    notes = ("workers and callers; any service",)
    return Listener(address, (("both", listener_socket),), notes)


def listen_native(request: ListenRequest) -> Listener:
    from dragoman.dialects.native import messages as native
    from dragoman.dialects.native.broker_side import NativeBrokerSide

    # Outcomes that are sent again after a reconnect must not exceed the send buffer, or the client is disconnected as
    # slow.
    own = replace(request.own, max_kept_bytes=min(request.own.max_kept_bytes, request.limits.max_send_buffer))
    max_payload = request.options.max_payload
    operations = JsonOperations(request.context.operations) if request.context is not None else None
    session = NativeBrokerSide(request.broker, request.runner.connections, own, max_payload, "dragoman", operations)
    limits = replace(_zmtp_limits(max_payload, native.MOST_HEADS), max_frames=native.MOST_FRAMES)
    listener = _single_socket(request, session, request.zmtp(limits))
    return replace(listener, say_goodbye=session.say_goodbye)


WELL_KNOWN_FOLDER = "/run/controller"  # folder of the sockets in Worker-Controller's document


def default_listeners(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the default listeners: on loopback, and on private Unix sockets."""
    urls = []
    for dialect in DIALECTS.values():
        if dialect.port is not None:
            scheme = dialect.schemes[0] if dialect.schemes else f"{dialect.name}+{dialect.transports[0]}"
            frontend = f"?frontend={dialect.frontend_port}" if dialect.has_frontend else ""
            urls.append(f"{scheme}://127.0.0.1:{dialect.port}{frontend}")
    return *urls, *optional_listeners(environment)


def optional_listeners(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the default listeners that may fail to open: their folders may not be usable."""
    folders = [str(runtime_dir(environment))]
    if os.path.isdir(WELL_KNOWN_FOLDER) and os.access(WELL_KNOWN_FOLDER, os.W_OK):
        folders.append(WELL_KNOWN_FOLDER)  # so that unmodified workers find the broker
    return tuple(f"controller+unix://{quote(folder)}" for folder in folders)


def prepare(
    url: str,
    broker: Broker,
    runner: Runner,
    context: ServerContext | None = None,
    authentication: Authentication | None = None,
) -> Listener:
    """Create the listener for this URL. Raises AddressError. Without `authentication` there is no access table."""
    address = parse(url, DIALECTS)
    dialect = DIALECTS[address.dialect]
    kind, limits_kind = resolve_name(f"{dialect.options}:ListenerOptions"), resolve_name(dialect.limits)
    shared = (ListenerOptions, *security_options(dialect))
    known = {each.name for each_kind in (kind, limits_kind, *shared) for each in fields(each_kind)}
    own = read_options(kind, address.options, url, also=known)
    options = read_options(ListenerOptions, address.options, url, also=known)
    limits = read_options(limits_kind, address.options, url, also=known)
    if isinstance(limits, HttpLimits) and "max_memory" not in address.options:
        limits = replace(limits, max_memory=broker.policy.max_memory)
    if context is not None:
        authentication = context.access_control.authentication
    authentication = authentication or Authentication(broker.principals)
    security = ListenerSecurity(address, dialect, authentication, insecure=options.insecure)
    security.auth(address.place)
    request = ListenRequest(address, options, own, limits, broker, runner, security, context)
    known_sides = len(runner.sessions)
    request.taps.listen(url)
    listener: Listener = resolve_name(dialect.listen)(request)
    if context is not None:
        for side in runner.sessions[known_sides:]:
            context.operations.listeners[side] = address.url.partition("?")[0]
    access = security.local_access([each.place for _, each in listener.sockets])
    notes = (*listener.notes, *security.notes)
    edition = getattr(own, "edition", None)
    return replace(
        listener,
        access=access,
        tls=security.tls,
        is_open_at=security.is_open_at,
        notes=notes,
        edition=edition.value if edition is not None else None,
    )

"""The dialects: one row declares each, for the broker, for our clients and workers, and for the docs.

A row names code as `module:name` and imports none of it. The broker and the SDK each resolve what they need, so a
client loads no server, a broker no workers, and a client no dialect but its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    name: str  # in URLs
    title: str  # in text
    carrier: str  # in text
    transports: tuple[str, ...] = ("tcp", "ipc")
    schemes: tuple[str, ...] = ()  # of URLs that mean this dialect without naming it
    port: int | None = None  # on loopback, if nobody says where to listen
    frontend_port: int | None = None  # the same for callers, where they have a place of their own
    editions: tuple[str, ...] = ()

    # The broker: its options, its connections' limits, and how it listens.
    options: str  # the module of ListenerOptions, WorkerOptions and ClientOptions
    limits: str = "dragoman.server.connection_limits:ConnectionLimits"
    listen: str

    # The SDK: how clients and workers speak it, and the class that is one worker's life.
    sides: str | None = None  # none: the SDK does not speak it
    worker: str = "dragoman.sdk.dialling_worker:DiallingWorker"
    has_callers: bool = True
    has_service_names: bool = True  # on the wire
    shares_connections: bool = False  # several workers may use one connection
    reports: bool = False  # workers can report progress, and parts of a result
    calls_at_once: bool = False  # a client may have several calls under way on one connection
    capabilities: frozenset[str] = frozenset()  # options of a call, and requests about it, that the wire can carry

    @property
    def has_frontend(self) -> bool:
        """Whether callers have a place of their own."""
        return self.frontend_port is not None


_ROWS: Final = (
    Dialect(
        name="native",
        title="Native",
        carrier="ZeroMQ",
        schemes=("tcp", "ipc"),
        port=7400,
        options="dragoman.dialects.native.options",
        listen="dragoman.server.wiring:listen_native",
        sides="dragoman.sdk.dialect_sides:native",
        shares_connections=True,
        reports=True,
        calls_at_once=True,
        capabilities=frozenset(
            {
                "timeout",
                "priority",
                "attempts",
                "job_timeout",
                "queue_timeout",
                "wait_for_worker",
                "id",
                "progress",
                "parts",
                "cancel",
                "background jobs",
            }
        ),
    ),
    Dialect(
        name="pingpong",
        title="PingPong",
        carrier="ZeroMQ",
        port=7401,
        frontend_port=7402,
        editions=("plain", "package"),
        options="dragoman.dialects.pingpong.options",
        listen="dragoman.server.wiring:listen_pingpong",
        sides="dragoman.sdk.dialect_sides:pingpong",
        has_service_names=False,
    ),
    Dialect(
        name="powerhose",
        title="Powerhose",
        carrier="ZeroMQ",
        port=7403,
        frontend_port=7404,
        options="dragoman.dialects.powerhose.options",
        listen="dragoman.server.wiring:listen_powerhose",
        sides="dragoman.sdk.dialect_sides:powerhose",
        worker="dragoman.sdk.powerhose_worker:PowerhoseWorker",
        has_service_names=False,
    ),
    Dialect(
        name="memodb",
        title="MemoDB",
        carrier="NNG and nanomsg",
        port=7405,
        options="dragoman.dialects.memodb.options",
        listen="dragoman.server.wiring:listen_memodb",
        sides="dragoman.sdk.dialect_sides:memodb",
        shares_connections=True,
        calls_at_once=True,
        capabilities=frozenset({"job_timeout"}),
    ),
    Dialect(
        name="controller",
        title="Worker-Controller",
        carrier="protobuf",
        transports=("unix",),
        editions=("seed", "shifted"),
        options="dragoman.dialects.controller.options",
        listen="dragoman.server.controller_listener:listen_controller",
        sides="dragoman.sdk.dialect_sides:controller",
        worker="dragoman.sdk.controller_worker:ControllerWorker",
        has_callers=False,
        has_service_names=False,
    ),
    Dialect(
        name="majordomo",
        title="Majordomo",
        carrier="ZeroMQ",
        port=7406,
        editions=("0.1", "0.2", "0.2-delimited", "0.2-field"),
        options="dragoman.dialects.majordomo.options",
        listen="dragoman.server.wiring:listen_majordomo",
        sides="dragoman.sdk.dialect_sides:majordomo",
        capabilities=frozenset({"parts"}),  # none ever come in edition 0.1
    ),
    Dialect(
        name="http",
        title="HTTP",
        carrier="HTTP/1.1",
        transports=("http",),
        schemes=("http",),
        port=7480,
        options="dragoman.http.options",
        limits="dragoman.http.limits:HttpLimits",
        listen="dragoman.server.http_listener:listen_http",
        sides="dragoman.sdk.dialect_sides:http",
        worker="dragoman.sdk.http_worker:HttpWorker",
        shares_connections=True,
        capabilities=frozenset(
            {"timeout", "priority", "attempts", "job_timeout", "wait_for_worker", "cancel", "background jobs"}
        ),
    ),
)
DIALECTS: Final = {row.name: row for row in _ROWS}

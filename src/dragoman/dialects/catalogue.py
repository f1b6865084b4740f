"""Catalogue of the dialects: one row declares each, for the broker, for clients and workers, and for the docs.

A row names code as `module:name` and imports none of it. The broker and the SDK resolve only what they need: a client
loads no server and no dialect but its own, and a broker loads no workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageNames:
    """Names of the messages of one job, as the dialect spells them, for ladders of jobs that were not recorded.

    Those between broker and worker are in order: `>` is sent by the broker, `<` by the worker. Empty: the dialect has
    no such message.
    """

    submit: str
    give: tuple[str, ...]
    result: tuple[str, ...]
    done: str
    undone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Declaration of a dialect: its carrier, ports, options and code, and what its wire can express."""

    name: str  # in URLs
    title: str  # in text
    carrier: str  # in text
    transports: tuple[str, ...] = ("tcp", "ipc")
    schemes: tuple[str, ...] = ()  # of URLs that select this dialect without naming it
    port: int | None = None  # default port on loopback
    frontend_port: int | None = None  # default port for callers, if they have a socket of their own
    editions: tuple[str, ...] = ()
    auth: tuple[str, ...] = ()  # values of the option `auth`: credentials that its clients can show
    auth_by_request: bool = False  # each request shows credentials, not the connection

    # The broker: its options, the limits of its connections, and the function that listens.
    options: str  # the module of ListenerOptions, WorkerOptions and ClientOptions
    limits: str = "dragoman.server.connection_limits:ConnectionLimits"
    listen: str
    hides: str | None = None  # replaces payloads in recordings; None: it has no messages of connections

    # The SDK: the client and worker sides, and the class that runs one worker.
    sides: str | None = None  # None: the SDK does not support it
    worker: str = "dragoman.sdk.dialling_worker:DiallingWorker"
    workers_move: bool = True  # workers can go to another broker when theirs is gone
    workers_keep: bool = False  # they can continue its jobs, and send the outcomes to the other one
    has_callers: bool = True
    has_service_names: bool = True  # on the wire
    shares_connections: bool = False  # several workers may use one connection
    reports: bool = False  # workers can report progress and parts of a result
    knows_parts: bool = False  # workers learn whether the caller of a job takes parts
    carries_limits: bool = False  # workers can declare limits of services
    calls_at_once: bool = False  # a client may have several calls in progress on one connection
    messages: MessageNames
    capabilities: frozenset[str] = frozenset()  # call options and operations that the wire can express

    @property
    def has_frontend(self) -> bool:
        """Tell if callers have a socket of their own."""
        return self.frontend_port is not None


_ROWS: Final = (
    Dialect(
        name="native",
        title="Native",
        carrier="ZeroMQ",
        schemes=("tcp", "ipc"),
        port=7400,
        auth=("curve", "token"),
        options="dragoman.dialects.native.options",
        listen="dragoman.server.wiring:listen_native",
        hides="dragoman.dialects.native.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:native",
        workers_keep=True,
        messages=MessageNames(submit="SUBMIT", give=(">JOB",), result=("<RESULT",), done="RESULT", undone="FAILED"),
        shares_connections=True,
        reports=True,
        knows_parts=True,
        carries_limits=True,
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
                "tenant",
            }
        ),
    ),
    Dialect(
        name="pingpong",
        title="PingPong",
        carrier="ZeroMQ",
        port=7401,
        frontend_port=7402,
        auth=("curve",),
        editions=("plain", "package"),
        options="dragoman.dialects.pingpong.options",
        listen="dragoman.server.wiring:listen_pingpong",
        hides="dragoman.dialects.pingpong.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:pingpong",
        messages=MessageNames(submit="job", give=(">job",), result=("<result",), done="result", undone="ERROR"),
        has_service_names=False,
    ),
    Dialect(
        name="powerhose",
        title="Powerhose",
        carrier="ZeroMQ",
        port=7403,
        frontend_port=7404,
        auth=("curve",),
        options="dragoman.dialects.powerhose.options",
        listen="dragoman.server.wiring:listen_powerhose",
        hides="dragoman.dialects.powerhose.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:powerhose",
        messages=MessageNames(
            submit="job", give=(">WAKE", "<GIVE", ">JOB"), result=("<JOBRES",), done="result", undone="ERROR"
        ),
        worker="dragoman.sdk.powerhose_worker:PowerhoseWorker",
        workers_move=False,
        has_service_names=False,
    ),
    Dialect(
        name="memodb",
        title="MemoDB",
        carrier="NNG and nanomsg",
        port=7405,
        options="dragoman.dialects.memodb.options",
        listen="dragoman.server.wiring:listen_memodb",
        hides="dragoman.dialects.memodb.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:memodb",
        messages=MessageNames(submit="JOB", give=(">JOB",), result=("<RESULT",), done="RESULT", undone=""),
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
        hides="dragoman.dialects.controller.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:controller",
        messages=MessageNames(
            submit="", give=(">SET_TASK", "<OK"), result=("<FETCH_ME", ">FETCH", "<OK"), done="", undone=""
        ),
        worker="dragoman.sdk.controller_worker:ControllerWorker",
        workers_move=False,
        has_callers=False,
        has_service_names=False,
    ),
    Dialect(
        name="majordomo",
        title="Majordomo",
        carrier="ZeroMQ",
        port=7406,
        auth=("curve",),
        editions=("0.1", "0.2", "0.2-delimited", "0.2-field"),
        options="dragoman.dialects.majordomo.options",
        listen="dragoman.server.wiring:listen_majordomo",
        hides="dragoman.dialects.majordomo.payload_hiding:hide_payloads",
        sides="dragoman.sdk.dialect_sides:majordomo",
        messages=MessageNames(submit="REQUEST", give=(">REQUEST",), result=("<REPLY",), done="REPLY", undone=""),
        capabilities=frozenset({"parts"}),  # edition 0.1 never sends any
    ),
    Dialect(
        name="http",
        title="HTTP",
        carrier="HTTP/1.1",
        transports=("http",),
        schemes=("http",),
        port=7480,
        auth=("token",),
        auth_by_request=True,
        options="dragoman.http.options",
        limits="dragoman.http.limits:HttpLimits",
        listen="dragoman.server.http_listener:listen_http",
        sides="dragoman.sdk.dialect_sides:http",
        messages=MessageNames(
            submit="POST /v1/call/…", give=(">200 OK",), result=("<POST …/result",), done="200 OK", undone="problem"
        ),
        worker="dragoman.sdk.http_worker:HttpWorker",
        shares_connections=True,
        carries_limits=True,
        capabilities=frozenset(
            {"timeout", "priority", "attempts", "job_timeout", "wait_for_worker", "cancel", "background jobs", "tenant"}
        ),
    ),
)
DIALECTS: Final = {row.name: row for row in _ROWS}

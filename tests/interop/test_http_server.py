"""The HTTP server on real sockets: hostile and slow clients, disconnects, clients that stop reading, shutdowns."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragoman.http import limited_connection
from dragoman.http.disconnect import HANGUP
from dragoman.http.limits import HttpLimits
from dragoman.http.server import HttpServer
from dragoman.http.sse import EventStream, Streams
from dragoman.server.event_loop import loop_factory
from dragoman.streams.sockets import listen_tcp, listen_unix
from hostile_http import CHUNKED, HOSTILE, LIMITS, RIGHT, echo, get, post
from programs import PATIENCE, until

MIB = 1 << 20
DRAINING = "urn:dragoman:draining"


class HttpSetup:
    """A server on an event loop in a thread of its own, with an app for every test."""

    def __init__(self, loop_name: str, limits: HttpLimits) -> None:
        self.loop = loop_factory(loop_name)()
        self.reports: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()  # what the app tells
        self.complaints: list[dict[str, Any]] = []  # what the loop tells
        self.let_go = asyncio.Event()
        self.streams = Streams(limits.max_streams)
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self.server = HttpServer(
            self.loop,
            self.app,
            limits,
            [],
            lambda reason, address, _: self.reports.append((reason, address)),
            self.errors.append,
            self.streams.end,
            health_paths=["/livez"],
        )
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        listening = listen_tcp("127.0.0.1", 0)
        self.port: int = listening.getsockname()[1]
        self.loop.call_soon_threadsafe(self.server.listen, listening)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        kind = scope["path"].strip("/")
        if kind == "wait":
            await self._wait(scope, receive, send)
        elif kind.startswith("large"):
            size = int(kind.removeprefix("large-")) * MIB
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
            for at in range(0, size, 65536):
                await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": at + 65536 < size})
            self.events.put("sent")
        elif kind == "events":
            stream = EventStream(self.streams)
            stream.publish("hello", "you")
            await stream(scope, receive, send)
            self.events.put("stream over")
        elif kind == "begin":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"o", "more_body": True})
            self.events.put("begun")
            await self.let_go.wait()
            await send({"type": "http.response.body", "body": b"k"})
        elif kind == "hasty":
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        elif kind == "forever":
            try:
                self.events.put("waiting")
                await asyncio.Event().wait()
            finally:
                self.events.put("cancelled")
        elif kind == "broken":
            raise KeyError("secret")
        else:
            await echo(scope, receive, send)

    async def _wait(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        gone = asyncio.Event()

        def hang_up() -> None:
            self.events.put("gone")
            gone.set()

        scope["extensions"][HANGUP].call = hang_up
        self.events.put("waiting")
        waits = {asyncio.ensure_future(each.wait()) for each in (self.let_go, gone)}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if not gone.is_set():
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def call(self, function: Callable[[], Any]) -> None:
        async def work() -> None:
            function()

        self.run(work())

    def visit(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return all bytes until the connection ends."""
        with self.visit() as visitor:
            visitor.sendall(request)
            return read_all(visitor)

    def hears(self, event: str) -> None:
        assert self.events.get(timeout=PATIENCE) == event

    def close(self) -> None:
        self.run(self.server.close_gently(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture
def open_setup(loop_name: str) -> Iterator[Callable[..., HttpSetup]]:
    setups: list[HttpSetup] = []

    def open_(limits: HttpLimits = LIMITS) -> HttpSetup:
        setups.append(HttpSetup(loop_name, limits))
        return setups[-1]

    yield open_
    for setup in setups:
        setup.close()
        assert setup.complaints == []
        assert setup.server.connections == 0


def read_all(visitor: socket.socket) -> bytes:
    said = b""
    while part := visitor.recv(65536):
        said += part
    return said


def read_answer(visitor: socket.socket) -> bytes:
    """Read one response that has a length."""
    said = b""
    while b"\r\n\r\n" not in said:
        part = visitor.recv(65536)
        assert part, f"the connection ended after {said!r}"
        said += part
    head, _, body = said.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    while len(body) < int(found[1]):
        part = visitor.recv(65536)
        assert part, "the connection ended within a body"
        body += part
    return head + b"\r\n\r\n" + body


def reads_nothing(visitor: socket.socket) -> bool:
    try:
        return read_all(visitor) == b""
    except ConnectionResetError:
        return True


def statuses(said: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", said)]


def curl(*words: str, given: bytes = b"") -> bytes:
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", str(PATIENCE), *words]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


# ---------------------------------------------------------------- connections that end


@pytest.mark.parametrize("how", ["close", "reset"])
def test_connections_that_send_eight_bytes_and_end_are_let_go(open_setup: Callable[..., HttpSetup], how: str) -> None:
    """The same as tests/interop/test_dead_connections.py for the listeners that are not HTTP."""
    setup = open_setup(replace(LIMITS, head_timeout=600.0, idle_timeout=600.0))
    visitors = [setup.visit() for _ in range(20)]
    until(lambda: setup.server.connections == 20, "all are connected")

    def say_and_end() -> None:
        for visitor in visitors:
            visitor.sendall(b"GET / HT")
            if how == "reset":
                visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            visitor.close()

    setup.call(say_and_end)  # on the loop's own thread: it cannot read the one without the other
    until(lambda: not setup.server.connections, "all have been let go")


# ---------------------------------------------------------------- what comes in


def test_every_hostile_request_gets_its_status_and_the_end(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    got = {name: statuses(setup.ask(sent)) for name, (sent, _, _) in HOSTILE.items()}
    assert got == {name: [status] for name, (_, status, _) in HOSTILE.items()}
    assert [reason for reason, _ in setup.reports] == [reason for _, _, reason in HOSTILE.values()]
    assert statuses(setup.ask(get(b"Connection: close"))) == [200]


def test_every_right_request_is_served_on_one_connection(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as visitor:
        for name, (sent, said) in RIGHT.items():
            visitor.sendall(sent)
            assert read_answer(visitor).endswith(said), name
    assert setup.reports == []


def test_a_thousand_requests_on_one_connection(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as visitor:
        for number in range(1000):
            visitor.sendall(post(b"Content-Length: 4") + b"%04d" % number)
            assert read_answer(visitor).endswith(b"POST / %04d" % number)
    assert setup.reports == []


def test_pipelined_requests_are_answered_in_order(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    lines = [get(line=b"GET /%d HTTP/1.1" % number) for number in range(500)]
    said = setup.ask(b"".join(lines) + get(b"Connection: close"))
    assert re.findall(rb"GET /(\d+)", said) == [b"%d" % number for number in range(500)]
    assert statuses(said) == [200] * 501


def test_a_refusal_reaches_who_is_still_sending(open_setup: Callable[..., HttpSetup]) -> None:
    """Closing at once would reset the connection, and the answer would be lost with it."""
    setup = open_setup()
    with setup.visit() as visitor:
        visitor.sendall(post(b"Content-Length: %d" % (8 * MIB)) + b"a" * (8 * MIB))
        said = read_all(visitor)
    assert statuses(said) == [413]
    assert json.loads(said.partition(b"\r\n\r\n")[2])["detail"] == "max_payload is 1000 bytes."


@pytest.mark.parametrize("field", [b"Connection: close", b"Connection: keep-alive"])
def test_an_early_answer_reaches_who_is_still_sending(open_setup: Callable[..., HttpSetup], field: bytes) -> None:
    setup = open_setup(HttpLimits())
    with setup.visit() as visitor:
        head = get(field, b"Content-Length: %d" % (8 * MIB), line=b"POST /hasty HTTP/1.1")
        visitor.sendall(head + b"a" * (8 * MIB))
        assert statuses(read_answer(visitor)) == [404]
    assert setup.reports == []


def test_a_large_body_arrives(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(HttpLimits())
    with setup.visit() as visitor:
        visitor.sendall(post(b"Content-Length: %d" % (8 * MIB)) + b"a" * (8 * MIB))
        assert read_answer(visitor).endswith(b"POST / " + b"a" * (8 * MIB))


def test_an_app_that_breaks_tells_us_and_not_the_caller(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    said = setup.ask(get(line=b"GET /broken HTTP/1.1"))
    assert statuses(said) == [500]
    assert b"application/problem+json" in said
    assert b"secret" not in said
    assert [type(error) for error in setup.errors] == [KeyError]


def test_connections_above_the_limit_are_told_so_and_closed(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, max_connections=4))  # half of them for one address (R254)
    with setup.visit() as first, setup.visit() as second:
        for visitor in (first, second):
            visitor.sendall(get())
            assert statuses(read_answer(visitor)) == [200]
        said = setup.ask(b"")
        assert statuses(said) == [503]
        assert b"retry-after: 1\r\n" in said
    until(lambda: setup.server.connections == 0, "they leave")
    assert statuses(setup.ask(get(b"Connection: close"))) == [200]


def test_far_above_the_limit_the_newest_are_told_so(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, max_connections=1))
    visitors = [setup.visit() for _ in range(140)]
    until(lambda: len(setup.reports) == 139, "all are seen")
    for visitor in visitors[12:]:  # on a slow machine those before may have been told so before they were cut
        assert statuses(read_answer(visitor)) == [503]
    for visitor in visitors:
        visitor.close()
    until(lambda: setup.server.connections == 0, "they are gone")


def test_health_is_answered_at_once_while_idle_connections_take_every_place(
    open_setup: Callable[..., HttpSetup],
) -> None:
    """R127. A bug: while there were 1,300 idle connections, /livez was reset for 9.6 s."""
    setup = open_setup(replace(LIMITS, max_connections=100, head_timeout=600.0))
    visitors = [setup.visit() for _ in range(400)]
    until(lambda: len(setup.reports) >= 172, "all are seen")
    for _ in range(20):
        said = setup.ask(get(line=b"GET /livez HTTP/1.1"))
        assert statuses(said) == [200]
        assert b"connection: close\r\n" in said
    assert statuses(setup.ask(get())) == [503]
    for visitor in visitors:
        visitor.close()
    until(lambda: setup.server.connections == 0, "they are gone")


# ---------------------------------------------------------------- strangers


def test_curl(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(HttpLimits())
    url = f"http://127.0.0.1:{setup.port}/x"
    large = b"a" * (2 * MIB)
    assert curl(url).endswith(b"GET /x ")
    assert curl(url, url).count(b"GET /x ") == 2
    assert curl("--http1.0", url).endswith(b"GET /x ")
    assert curl("--http2", "--data", "hallo", url).endswith(b"POST /x hallo")
    assert curl("--data-binary", "@-", "-H", "Expect: 100-continue", url, given=large).endswith(b"POST /x " + large)
    assert curl("--upload-file", "-", url, given=large).endswith(b"PUT /x " + large)  # in chunks
    assert statuses(curl("--head", url)) == [200]
    assert statuses(curl("--form", "a=b", url)) == [415]
    assert statuses(curl("-H", "Origin: http://evil.example", url)) == [403]
    assert [reason for reason, _ in setup.reports] == ["multipart", "foreign-origin"]


def test_curl_on_a_socket_file(open_setup: Callable[..., HttpSetup], free_path: Path) -> None:
    setup = open_setup()
    setup.call(lambda: setup.server.listen(listen_unix(str(free_path))))
    assert curl("--unix-socket", str(free_path), "http://localhost/x").endswith(b"GET /x ")
    assert statuses(curl("--unix-socket", str(free_path), "http://evil.example/x")) == [403]
    assert setup.reports == [("foreign-host", "unix")]


# ---------------------------------------------------------------- slow, silent, gone


def test_slow_heads_and_bodies_are_ended_while_others_are_served(open_setup: Callable[..., HttpSetup]) -> None:
    times = {"head_timeout": 1.2, "body_timeout": 3.0, "body_grace": 1.2, "idle_timeout": 1.2}
    setup = open_setup(replace(LIMITS, **times))
    begins = {
        b"": [],
        b"GET / HTTP/1.1\r\nHost: lo": [408],
        post(b"Content-Length: 900") + b"a": [408],
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nh": [408],
        get(): [200],
    }
    visitors = []
    for begin in begins:
        for _ in range(40):
            visitors.append((setup.visit(), begin))
            visitors[-1][0].sendall(begin)
    assert statuses(setup.ask(get(b"Connection: close"))) == [200]
    for visitor, begin in visitors:
        with closing(visitor):
            assert statuses(read_all(visitor)) == begins[begin], begin
    reasons = [reason for reason, _ in setup.reports]
    assert {reason: reasons.count(reason) for reason in reasons} == {
        "silent-connection": 40,
        "head-timeout": 40,
        "slow-body": 80,
    }


def trickle(visitor: socket.socket) -> None:
    for byte in b"X: a\r\n" * 1000:
        visitor.sendall(bytes([byte]))
        time.sleep(0.02)


def test_a_head_that_trickles_in_is_late_all_the_same(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, head_timeout=1.0))
    with setup.visit() as visitor:
        visitor.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # after a moment in which we only listen
            trickle(visitor)
    assert setup.reports[0][0] == "head-timeout"


def close(visitor: socket.socket) -> None:
    visitor.close()


def half_close(visitor: socket.socket) -> None:
    visitor.shutdown(socket.SHUT_WR)


def reset(visitor: socket.socket) -> None:
    visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    visitor.close()


@pytest.mark.parametrize("go", [close, half_close, reset])
@pytest.mark.parametrize("size", [0, MIB])
def test_a_hang_up_is_heard(
    open_setup: Callable[..., HttpSetup], go: Callable[[socket.socket], None], size: int
) -> None:
    setup = open_setup(HttpLimits())
    with setup.visit() as visitor:
        visitor.sendall(get(b"Content-Length: %d" % size, line=b"POST /wait HTTP/1.1") + b"a" * size)
        setup.hears("waiting")
        go(visitor)
        setup.hears("gone")
    until(lambda: setup.server.connections == 0, "it is gone")
    assert setup.errors == []


def test_a_reader_that_stops_costs_little_and_is_cut(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, body_timeout=0.6))
    with setup.visit() as visitor:
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        visitor.sendall(get(line=b"GET /large-64 HTTP/1.1"))
        until(lambda: setup.reports, "it is cut")
        assert [reason for reason, _ in setup.reports] == ["stalled-reader"]
        until(lambda: setup.server.connections == 0, "it is gone")
        assert len(read_all(visitor)) < 32 * MIB  # what the kernel had taken


def test_a_slow_reader_gets_everything(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, body_timeout=1.5))
    with setup.visit() as visitor:
        visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        visitor.sendall(get(b"Connection: close", line=b"GET /large-32 HTTP/1.1"))
        read = 0
        while part := visitor.recv(MIB):
            read += len(part)
            if read < 8 * MIB:
                time.sleep(0.03)  # longer than body_timeout in all
    assert read > 32 * MIB
    assert setup.reports == []


# ---------------------------------------------------------------- shutting down


def test_at_shutdown_the_idle_are_closed_and_the_running_answered(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as silent, setup.visit() as idle, setup.visit() as half, setup.visit() as running:
        idle.sendall(get())
        read_answer(idle)
        half.sendall(b"GET / HT")
        running.sendall(get(line=b"GET /wait HTTP/1.1"))
        setup.hears("waiting")
        until(lambda: setup.server.connections == 4, "all are here")
        closing_ = asyncio.run_coroutine_threadsafe(setup.server.close_gently(PATIENCE), setup.loop)
        for visitor in (silent, idle, half):
            assert reads_nothing(visitor)
        with pytest.raises(ConnectionRefusedError):
            setup.visit()
        setup.loop.call_soon_threadsafe(setup.let_go.set)
        said = read_all(running)
        assert statuses(said) == [200]
        assert b"connection: close\r\n" in said
        closing_.result(PATIENCE)


def test_at_shutdown_nothing_holds_us_longer_than_the_time_given(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(HttpLimits())
    with setup.visit() as half, setup.visit() as deaf, setup.visit() as waiting:
        half.sendall(post(b"Content-Length: 1000") + b"a")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        deaf.sendall(get(line=b"GET /large-64 HTTP/1.1"))
        waiting.sendall(get(line=b"GET /wait HTTP/1.1"))
        setup.hears("waiting")
        until(lambda: setup.server.connections == 3, "all are here")
        setup.run(setup.server.close_gently(0.2))
        assert setup.server.connections == 0
        setup.hears("gone")
        assert (setup.errors, setup.complaints) == ([], [])


def test_at_shutdown_half_a_body_is_answered_and_nobody_who_is_refused_keeps_us(
    open_setup: Callable[..., HttpSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a body kept us for as long as we had, and who was refused for as long as it was listened to."""
    monkeypatch.setattr(limited_connection, "LINGER", 1000.0)
    setup = open_setup()
    with setup.visit() as half, setup.visit() as chunks, setup.visit() as refused:
        half.sendall(post(b"Content-Length: 1000") + b"a")
        chunks.sendall(CHUNKED + b"5\r\nhal")
        refused.sendall(post(b"Content-Length: 1001") + b"a")
        assert statuses(read_answer(refused)) == [413]
        until(lambda: setup.server._watch.bodies.total == 7, "all are here")
        setup.run(setup.server.close_gently(1000))
        for visitor in (half, chunks):
            said = read_answer(visitor)
            assert (statuses(said), json.loads(said.partition(b"\r\n\r\n")[2])["type"]) == ([503], DRAINING)
    assert (setup.errors, setup.complaints) == ([], [])


def test_at_shutdown_who_is_answered_before_the_body_is_there_does_not_keep_us(
    open_setup: Callable[..., HttpSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_connection, "LINGER", 1000.0)
    setup = open_setup()
    with setup.visit() as early:
        early.sendall(get(b"Content-Length: 1000", line=b"POST /begin HTTP/1.1") + b"a")
        setup.hears("begun")
        closing_ = asyncio.run_coroutine_threadsafe(setup.server.close_gently(1000), setup.loop)
        until(lambda: setup.server._watch.is_closing, "the server closes")
        setup.loop.call_soon_threadsafe(setup.let_go.set)
        assert read_answer(early).endswith(b"ok")
        closing_.result(PATIENCE)


def test_an_app_that_does_not_listen_is_cancelled_at_shutdown(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as visitor:
        visitor.sendall(get(line=b"GET /forever HTTP/1.1"))
        setup.hears("waiting")
        setup.run(setup.server.close_gently(0.1))
        setup.hears("cancelled")
    assert setup.errors == []


def test_event_streams_end_at_shutdown(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup(replace(LIMITS, max_streams=4))  # half of them for one address (R254)
    with setup.visit() as visitor, setup.visit() as other:
        for each in (visitor, other):
            each.sendall(get(line=b"GET /events HTTP/1.1"))
            said = b""
            while b"event: hello\ndata: you\n\n" not in said:
                said += each.recv(65536)
        assert statuses(setup.ask(get(b"Connection: close", line=b"GET /events HTTP/1.1"))) == [429]
        setup.hears("stream over")
        setup.run(setup.server.close_gently(PATIENCE))
        for each in (visitor, other):
            assert read_all(each).endswith(b"0\r\n\r\n")
    setup.hears("stream over")


def test_who_reads_events_may_leave(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as visitor:
        visitor.sendall(get(line=b"GET /events HTTP/1.1"))
        until(lambda: len(setup.streams) == 1, "the stream is open")
    setup.hears("stream over")
    assert len(setup.streams) == 0


def test_an_abort_ends_everything_now(open_setup: Callable[..., HttpSetup]) -> None:
    setup = open_setup()
    with setup.visit() as visitor:
        visitor.sendall(get(line=b"GET /wait HTTP/1.1"))
        setup.hears("waiting")
        setup.call(setup.server.abort)
        with pytest.raises(ConnectionRefusedError):
            setup.visit()
        assert reads_nothing(visitor)

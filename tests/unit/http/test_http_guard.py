"""One HTTP connection without a socket: rejected requests, whole and byte by byte, time-outs and disconnects."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.limits import HttpLimits
from dragoman.http.server import HttpServer
from hostile_http import CHUNKED, HOSTILE, LIMITS, RIGHT, echo, get, post
from http_visits import Visit, World

SECURITY = (b"x-content-type-options", b"content-security-policy", b"referrer-policy")
PATIENT = replace(LIMITS, head_timeout=3_600.0, body_timeout=3_600.0)  # bytes may take long on a busy machine


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def waiting_app(calls: list[DisconnectSignal]) -> Callable[..., Any]:
    """Reads the request, then waits and never responds; appends its disconnect signal."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        calls.append(scope["extensions"][HANGUP])
        await asyncio.Event().wait()

    return app


# ---------------------------------------------------------------- what is refused, and what is not


@pytest.mark.parametrize("size", [0, 1, 7], ids=["whole", "bytewise", "by sevens"])
def test_a_hostile_request_is_refused(size: int) -> None:
    def check(name: str) -> None:
        sent, status, reason = HOSTILE[name]
        with closing(World()) as world:
            world.serve(limits=PATIENT)
            visit = world.visit()
            visit.say(sent, size)
            assert (visit.statuses, world.reasons) == ([status], [reason])
            assert visit.transport.is_finished
            told = json.loads(visit.body)
            assert (told["type"], told["status"]) == (f"urn:dragoman:{reason}", status)
            assert set(told) == {"type", "title", "status", "detail"}

    check_every_row(check, [(name,) for name in HOSTILE])


@pytest.mark.parametrize("size", [0, 1, 7], ids=["whole", "bytewise", "by sevens"])
def test_a_request_that_is_right_is_served_and_the_next_too(size: int) -> None:
    def check(name: str) -> None:
        sent, said = RIGHT[name]
        with closing(World()) as world:
            visit = world.visit()
            visit.say(sent, size)
            assert visit.transport.written.endswith(b"\r\n\r\n" + said)
            visit.say(sent + get(line=b"GET /tail HTTP/1.1"), size)
            assert (visit.statuses, world.reports, world.errors) == ([200, 200, 200], [], [])
            assert visit.body == b"GET /tail "

    check_every_row(check, [(name,) for name in RIGHT])


def test_the_corpus_is_large() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", ["LF in a value", "a foreign Host", "fields after the body", "a tunnel"])
def test_what_follows_a_refused_request_is_never_looked_at(world: World, name: str) -> None:
    visit = world.visit()
    visit.say(HOSTILE[name][0] + get() + get())
    visit.protocol.data_received(get())
    assert len(visit.statuses) == 1


def test_a_refusal_does_not_echo(world: World) -> None:
    visit = world.visit()
    visit.say(b"GET /secret HTTP/1.1\r\nHost: secret.example\r\nX: secret\r\n\r\n")
    assert visit.statuses == [403]
    assert b"secret" not in visit.transport.written


def test_every_response_has_a_date_and_the_security_headers_and_no_more(world: World) -> None:
    """R164. The application adds Cache-Control itself."""
    visit = world.visit()
    visit.say(get() + get(b"Host: twice"))
    assert visit.statuses == [200, 400]
    heads = [each.partition(b"\r\n\r\n")[0] for each in visit.transport.written.split(b"HTTP/1.1 ")[1:]]
    names = [{line.partition(b":")[0] for line in each.split(b"\r\n")[1:]} for each in heads]
    assert names == [
        {*SECURITY, b"date", b"content-length", b"content-type"},
        {*SECURITY, b"date", b"content-length", b"content-type", b"connection", b"cache-control"},
    ]


def test_a_name_that_the_operator_allows_is_answered(world: World) -> None:
    world.server = HttpServer(world.loop, echo, LIMITS, ["Broker.example", "2001:db8::1"], lambda *_: None)
    visit = world.visit()
    for host in (b"broker.example", b"BROKER.example.:80", b"[2001:db8::1]:1"):
        visit.say(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert visit.statuses == [200, 200, 200]


def test_http_1_0_needs_no_host_and_closes(world: World) -> None:
    visit = world.visit()
    visit.say(b"GET / HTTP/1.0\r\n\r\n")
    assert visit.statuses == [200]
    assert visit.transport.is_closed


def test_tiny_chunks_without_end_are_refused(world: World) -> None:
    world.serve(limits=replace(LIMITS, max_payload=1 << 20))
    visit = world.visit()
    visit.say(CHUNKED + b"1\r\na\r\n" * 2000)
    assert (visit.statuses, world.reasons) == ([400], ["tiny-chunks"])


def test_the_limit_is_named(world: World) -> None:
    visit = world.visit()
    visit.say(post(b"Content-Length: 1001"))
    assert json.loads(visit.body)["detail"] == "max_payload is 1000 bytes."


# ---------------------------------------------------------------- one request at a time


def test_pipelined_requests_are_answered_in_order(world: World) -> None:
    visit = world.visit()
    visit.protocol.data_received(b"".join(get(line=b"GET /%d HTTP/1.1" % i) for i in range(100)))
    for _ in range(30):
        world.run_once()
    assert re.findall(rb"GET /(\d+)", visit.transport.written) == [b"%d" % i for i in range(100)]


def test_who_sends_far_ahead_is_not_read(world: World) -> None:
    calls: list[DisconnectSignal] = []
    world.serve(waiting_app(calls))
    visit = world.visit()
    visit.say(get())
    visit.say(get() * 10)
    assert not visit.transport.is_paused
    visit.say(get() * 3000)
    assert visit.transport.is_paused
    assert len(calls) == 1


def test_a_body_that_nobody_reads_is_not_taken_in(world: World) -> None:
    async def idle(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    world.serve(idle, HttpLimits())
    visit = world.visit()
    visit.say(post(b"Content-Length: 1000000") + b"a" * 70_000)
    assert visit.transport.is_paused


# ---------------------------------------------------------------- time


def test_nothing_at_all_is_closed_without_a_word(world: World) -> None:
    visit = world.visit()
    visit.look(9.9)
    assert not visit.transport.is_closed
    visit.look(10.1)
    assert visit.transport.is_closed
    assert (visit.transport.written, world.reasons) == (b"", ["silent-connection"])


def test_a_head_that_is_not_there_in_time_is_told_so(world: World) -> None:
    visit = world.visit()
    visit.say(b"GET / HTT")
    visit.look(9.9)
    assert visit.statuses == []
    visit.look(10.1)
    assert (visit.statuses, world.reasons) == ([408], ["head-timeout"])


def test_a_second_head_has_its_own_time(world: World) -> None:
    visit = world.visit()
    visit.say(get() + b"GET / HTT")
    visit.came = world.loop.time()
    visit.look(9.9)
    assert visit.statuses == [200]
    visit.look(10.1)
    assert visit.statuses == [200, 408]


def test_an_idle_connection_is_closed_without_a_word(world: World) -> None:
    visit = world.visit()
    visit.say(get())
    visit.came = world.loop.time()
    visit.look(14.9)
    assert not visit.transport.is_closed
    visit.look(15.1)
    assert visit.transport.is_closed
    assert (visit.statuses, world.reasons) == ([200], [])


@pytest.mark.parametrize("head", [post(b"Content-Length: 900"), CHUNKED + b"384\r\n"], ids=["length", "chunks"])
def test_a_slow_body_is_refused_after_its_first_seconds(world: World, head: bytes) -> None:
    visit = world.visit()
    visit.say(head + b"a" * 100)
    visit.look(10)
    assert visit.statuses == []
    visit.look(11.5)
    assert (visit.statuses, world.reasons) == ([408], ["slow-body"])


def test_a_body_that_is_quick_enough_has_its_time_and_no_more(world: World) -> None:
    world.serve(limits=HttpLimits(body_timeout=20))
    visit = world.visit()
    visit.say(post(b"Content-Length: 60000") + b"a" * 20_000)
    visit.look(19)
    assert visit.statuses == []
    visit.look(20.1)
    assert (visit.statuses, world.reasons) == ([408], ["body-timeout"])


def test_a_body_that_we_do_not_read_is_not_late(world: World) -> None:
    go = asyncio.Event()

    async def tardy(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        while (await receive())["type"] != "http.disconnect":
            pass

    world.serve(tardy, HttpLimits())
    reading, patient = world.visit(), world.visit()
    reading.say(post(b"Content-Length: 1000000") + b"a" * 70_000)
    patient.say(post(b"Content-Length: 10", b"Expect: 100-continue"))
    for visit in (reading, patient):
        for second in range(200):
            visit.look(second + 1, passed=1)
        assert visit.statuses == []
    go.set()
    world.run_once()
    for visit in (reading, patient):
        visit.look(209)
    assert (reading.statuses, patient.statuses) == ([], [100])
    patient.look(212)
    assert patient.statuses == [100, 408]


def test_a_slow_body_whose_response_has_begun_ends_without_a_word(world: World) -> None:
    async def talker(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    world.serve(talker)
    visit = world.visit()
    visit.say(post(b"Content-Length: 10") + b"a")
    visit.look(12)
    assert (visit.statuses, world.reasons) == ([200], ["slow-body"])
    assert visit.transport.is_aborted


def test_nobody_who_is_refused_is_told_to_continue(world: World) -> None:
    go = asyncio.Event()

    async def tardy(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        assert await receive() == {"type": "http.disconnect"}

    world.serve(tardy)
    visit = world.visit()
    visit.say(post(b"Transfer-Encoding: chunked", b"Expect: 100-continue") + b"x\r\n")
    go.set()
    world.run_once()
    assert (visit.statuses, world.errors) == ([400], [])


def test_a_body_refused_while_the_app_reads_it_is_a_hang_up_for_the_app(world: World) -> None:
    heard: list[str] = []

    async def reader(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][HANGUP].call = lambda: heard.append("hangup")
        while True:
            message = await receive()
            heard.append(message["type"])
            if message["type"] == "http.disconnect":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                return

    world.serve(reader)
    visit = world.visit()
    visit.say(CHUNKED + b"5\r\nhallo\r\n")
    visit.say(b"fff\r\n")
    assert heard == ["http.request", "hangup", "http.disconnect"]
    assert (visit.statuses, world.errors) == ([413], [])


def test_whoever_is_refused_is_listened_to_for_a_moment_only(world: World) -> None:
    visit = world.visit()
    visit.say(b"hello\r\n")
    visit.look(1.9)
    assert not visit.transport.is_closed
    visit.look(2.2)
    assert visit.transport.is_aborted


def test_a_response_that_nobody_reads_is_cut(world: World) -> None:
    visit = world.visit()
    visit.say(get())
    visit.transport.unread = 1000
    visit.look(1)
    visit.transport.unread = 900
    visit.look(14)
    visit.protocol._due = float("inf")  # it is not idleness that is looked at here
    visit.look(133)
    assert not visit.transport.is_aborted
    visit.look(134.1)
    assert visit.transport.is_aborted
    assert world.reasons == ["stalled-reader"]


def test_a_buffer_larger_than_the_largest_message_is_cut_unless_it_is_read(world: World) -> None:
    """A bug: a response over the limit was cut although its client read it as fast as it could."""
    world.serve(limits=HttpLimits(max_send_buffer=1000, max_payload=2000))
    visit = world.visit()
    visit.say(get())
    world.server._watch.stop()  # it is we who look
    visit.protocol._due = float("inf")
    visit.transport.unread = 2000 + (1 << 16)
    visit.look(1)
    visit.look(20)
    assert not visit.transport.is_aborted
    visit.transport.unread = 0
    visit.look(21)
    visit.transport.unread = 2000 + (1 << 16) + 100
    for second in range(22, 100):
        visit.transport.unread -= 1
        visit.look(second)
    assert not visit.transport.is_aborted
    visit.look(108)
    assert not visit.transport.is_aborted
    visit.look(109)
    assert visit.transport.is_aborted
    assert world.reasons == ["send-buffer-full"]


def test_a_reader_who_makes_room_again_and_again_is_not_cut(world: World) -> None:
    """The number of waiting bytes may be the same at every check, although they are different bytes."""
    visit = world.visit()
    visit.say(get(b"Connection: keep-alive"))
    visit.protocol._due = float("inf")
    visit.transport.unread = 1000
    visit.look(1)
    world.server._watch.stop()  # it is we who look
    world.pass_time(100)
    visit.protocol.pause_writing()
    visit.protocol.resume_writing()
    visit.look(150)
    assert not visit.transport.is_aborted
    visit.look(221)
    assert visit.transport.is_aborted


def test_a_sweep_that_comes_late_judges_nobody(world: World) -> None:
    visit = world.visit()
    visit.say(b"GET / HTT")
    world.pass_time(60)
    world.server._watch._sweep()
    assert visit.statuses == []
    for _ in range(9):
        world.pass_time(1)
        world.server._watch._sweep()
    assert visit.statuses == []
    world.pass_time(1.2)
    world.server._watch._sweep()
    assert visit.statuses == [408]


def test_our_own_pause_makes_nobody_late(world: World) -> None:
    visit = world.visit()
    visit.say(b"GET / HTT")
    visit.protocol.forgive(60)
    visit.look(69)
    assert visit.statuses == []
    visit.look(70.1)
    assert visit.statuses == [408]


# ---------------------------------------------------------------- how many


def test_connections_from_one_address_are_bounded(world: World) -> None:
    world.serve(limits=HttpLimits(max_connections=5, max_connections_per_remote_address=2))
    far = [world.visit(("192.0.2.1", port)) for port in (1, 2, 3)]
    near = [world.visit((f"127.0.0.{port}", port)) for port in (1, 2, 3, 4)]
    for visit in (far[2], near[3]):
        visit.say(get())
    assert [visit.statuses for visit in far] == [[], [], [503]]
    assert [visit.statuses for visit in near] == [[], [], [], [503]]
    assert b"\r\nretry-after: 1\r\n" in far[2].transport.written
    assert world.reports == [("too-many-connections", "192.0.2.1:3"), ("too-many-connections", "127.0.0.4:4")]
    assert json.loads(far[2].body)["detail"] == "max_connections_per_remote_address is 2."
    assert json.loads(near[3].body)["detail"] == "max_connections is 5."


def test_who_leaves_makes_room(world: World) -> None:
    world.serve(limits=HttpLimits(max_connections=1))
    world.visit().transport.close()
    world.run_once()
    assert world.server.connections == 0
    visit = world.visit()
    visit.say(get())
    assert visit.statuses == [200]


def test_far_above_the_limit_the_oldest_are_cut(world: World) -> None:
    world.serve(limits=HttpLimits(max_connections=1))
    visits = [world.visit() for _ in range(131)]
    assert [visit.transport.is_aborted for visit in visits] == [False, True, True, *[False] * 128]
    assert world.reports == [("too-many-connections", "127.0.0.1:5")] * 2
    for visit in visits[3:]:
        visit.look(1.1)
    assert [visit.statuses for visit in visits] == [[], [], [], *[[503]] * 128]


HEALTH = b"GET /livez HTTP/1.1"


def test_health_is_answered_when_there_is_no_room(world: World) -> None:
    """R127. A bug: while there were 1,300 idle connections, /livez was reset for 9.6 s."""
    world.serve(limits=HttpLimits(max_connections=1), health_paths=["/livez"])
    idle = [world.visit() for _ in range(200)]
    probe = world.visit()
    probe.say(get(line=HEALTH))
    assert probe.statuses == [200]
    assert b"\r\nconnection: close\r\n" in probe.transport.written
    assert probe.transport.is_closed
    assert not idle[0].transport.is_closed
    assert world.reports == [("too-many-connections", "127.0.0.1:5")] * 72


@pytest.mark.parametrize(
    "said",
    [get(), get(line=b"POST /livez HTTP/1.1"), get(line=b"GET /livezz HTTP/1.1"), get(line=b"GET /x?/livez HTTP/1.1")],
)
def test_reserve_is_for_health_checks_only(world: World, said: bytes) -> None:
    world.serve(limits=HttpLimits(max_connections=1), health_paths=["/livez"])
    world.visit()
    visit = world.visit()
    visit.say(said)
    assert visit.statuses == [503]
    assert json.loads(visit.body)["detail"] == "max_connections is 1."
    assert world.reports == [("too-many-connections", "127.0.0.1:5")]


@pytest.mark.parametrize("said", [b"", b"GET /liv"])
def test_health_check_must_come_at_once(world: World, said: bytes) -> None:
    world.serve(limits=HttpLimits(max_connections=1), health_paths=["/livez"])
    world.visit()
    visit = world.visit()
    visit.say(said)
    visit.look(0.9)
    assert visit.statuses == []
    visit.look(1.1)
    assert visit.statuses == [503]


def test_connections_in_the_reserve_take_no_place_of_others(world: World) -> None:
    world.serve(limits=HttpLimits(max_connections=2, max_connections_per_remote_address=1))
    first, second = (world.visit(("192.0.2.1", port)) for port in (1, 2))
    first.transport.close()
    world.run_once()
    third = world.visit(("192.0.2.1", 3))
    third.say(get())
    assert (second.statuses, third.statuses) == ([], [200])
    second.transport.close()
    third.transport.close()
    world.run_once()
    assert not world.server._watch.reserve
    assert not world.server._watch.by_address


# ---------------------------------------------------------------- hanging up, and our own faults


def lose(visit: Visit) -> None:
    visit.protocol.connection_lost(ConnectionResetError())


def half_close(visit: Visit) -> None:
    visit.protocol.eof_received()
    visit.transport.close()


@pytest.mark.parametrize("go", [lose, half_close])
@pytest.mark.parametrize("size", [5, 200_000])
def test_a_hang_up_is_heard_once_by_an_app_that_waits(world: World, go: Callable[[Visit], None], size: int) -> None:
    calls: list[DisconnectSignal] = []
    world.serve(waiting_app(calls), HttpLimits())
    visit = world.visit()
    visit.say(post(b"Content-Length: %d" % size))
    visit.say(b"a" * size)  # while the app waits for it
    heard: list[str] = []
    calls[0].call = lambda: heard.append("gone")
    assert not visit.transport.is_paused  # or no loop would ever tell
    go(visit)
    world.run_once()
    assert (heard, calls[0].is_gone) == (["gone"], True)


def test_leaving_after_the_response_is_no_hang_up(world: World) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][HANGUP].call = lambda: heard.append("gone")
        await echo(scope, receive, send)

    world.serve(app)
    visit = world.visit()
    visit.say(get())
    half_close(visit)
    world.run_once()
    assert (visit.statuses, heard) == ([200], [])


def test_a_hang_up_before_the_app_began_can_be_seen(world: World) -> None:
    seen: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["extensions"][HANGUP].is_gone)

    world.serve(app)
    visit = world.visit()
    visit.protocol.data_received(get())
    lose(visit)
    world.run_once()
    assert (seen, world.errors) == ([True], [])


def test_an_app_that_breaks_is_a_500_without_a_trace(world: World) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("secret")

    world.serve(broken)
    visit = world.visit()
    visit.say(get())
    assert visit.statuses == [500]
    assert json.loads(visit.body)["type"] == "urn:dragoman:internal-error"
    assert b"secret" not in visit.transport.written
    assert [type(error) for error in world.errors] == [KeyError]
    assert visit.transport.is_closed


def test_an_app_that_breaks_in_the_middle_of_a_response_ends_the_connection(world: World) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        raise KeyError

    world.serve(broken)
    visit = world.visit()
    visit.say(get())
    assert visit.transport.is_closed
    assert visit.transport.written.endswith(b"5\r\nbegun\r\n")  # and not the chunk that would end it


def test_an_app_that_says_nothing_is_a_500(world: World) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None: ...

    world.serve(silent)
    visit = world.visit()
    visit.say(get())
    assert (visit.statuses, len(world.errors)) == ([500], 1)


def test_an_answer_before_the_body_is_there_leaves_the_connection_usable(world: World) -> None:
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    world.serve(hasty)
    visit = world.visit()
    visit.say(post(b"Content-Length: 10") + b"01234")
    assert visit.statuses == [404]
    visit.say(b"56789" + get())
    assert (visit.statuses, world.reports) == ([404, 404], [])


def test_an_early_answer_that_closes_listens_a_moment_longer(world: World) -> None:
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    world.serve(hasty)
    visit = world.visit()
    visit.say(post(b"Connection: close", b"Content-Length: 10") + b"01234")
    assert visit.statuses == [404]
    assert visit.transport.is_finished
    assert not visit.transport.is_closed
    visit.protocol.data_received(b"56789" + get())
    visit.look(2.2)
    assert (visit.statuses, visit.transport.is_aborted) == ([404], True)


def test_an_answer_that_closes_closes_when_the_body_is_there(world: World) -> None:
    visit = world.visit()
    visit.say(post(b"Connection: close", b"Content-Length: 5") + b"hallo")
    assert (visit.statuses, visit.transport.is_closed) == ([200], True)

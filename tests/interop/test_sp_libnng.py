"""SP, tested against libnng, through pynng and nngcat: each side's REP with the other's REQ, on TCP and ipc.

Traps of pynng: contexts must be closed before their socket, and take over its time-outs when they are created; `recv`
of a socket raises after an empty message, and `recv_msg` does not. libnng repeats requests by two options:
`resend_time`, checked every `resend_tick`, one second by default.
"""

from __future__ import annotations

import random
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pynng
import pytest
from broker_setup import MIB, Asker, Echo, Raw, Setup, endpoint
from pynng.nng import MsOption

from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.sp import Sp, SpLimits
from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from dragoman.server.runner import Runner
from programs import PATIENCE, Program, Programs, until

PAYLOADS = [b"", b"x", b"s" * 100, b"m" * 16_384, b"l" * 65_532, b"L" * 65_533, bytes(MIB), bytes(range(256)) * 65_536]
DEFAULTS = {
    "recv_timeout": int(PATIENCE * 1000),
    "send_timeout": int(PATIENCE * 1000),
    "reconnect_time_min": 20,
    "reconnect_time_max": 20,
}
ID = b"\x80\x00\x00\x2a"


class Req(pynng.Req0):
    resend_tick = MsOption("req:resend-tick")


class Nngs:
    """Sockets and contexts of libnng with time-outs. They end with the test, in the order that libnng needs."""

    def __init__(self) -> None:
        self._ends = ExitStack()

    def close(self) -> None:
        self._ends.close()

    def visit(self, kind: Any, where: SocketAddress, **options: Any) -> Any:
        return self._make(kind, options, dial=endpoint(where))

    def receive(self, kind: Any, where: SocketAddress, **options: Any) -> tuple[Any, SocketAddress]:
        made = self._make(kind, options, listen=endpoint(where))
        if isinstance(where, TcpAddress):
            where = TcpAddress(where.host, socket.ntohs(made.listeners[0].local_address.port))
        return made, where

    def contexts(self, made: Any, count: int) -> list[Any]:
        return [self._ends.enter_context(made.new_context()) for _ in range(count)]

    def device(self, front: SocketAddress, back: SocketAddress) -> SocketAddress:
        """Start a device of libnng: it forwards requests from the front to the back, with a hop in front."""
        asking = self._make(pynng.Socket, {"opener": pynng.lib.nng_req0_open_raw}, dial=endpoint(back))
        taking, where = self.receive(pynng.Socket, front, opener=pynng.lib.nng_rep0_open_raw)
        running = threading.Thread(target=pynng.lib.nng_device, args=(taking.socket, asking.socket), name="device")
        running.start()

        def end() -> None:
            taking.close()
            asking.close()
            running.join(PATIENCE)
            assert not running.is_alive()

        self._ends.callback(end)
        return where

    def _make(self, kind: Any, options: dict[str, Any], **ways: Any) -> Any:
        resend_tick = options.pop("resend_tick", None)
        made = kind(**DEFAULTS, **options)
        self._ends.callback(made.close)
        if resend_tick is not None:
            made.resend_tick = resend_tick
        if "dial" in ways:
            made.dial(ways["dial"], block=True)
        else:
            made.listen(ways["listen"])
        return made


class Shuffler(Echo):
    """Answers when this many requests have arrived, in another order."""

    def __init__(self, line: Runner, count: int) -> None:
        super().__init__(line)
        self.count = count
        self.questions: list[tuple[Any, Message]] = []

    def receive(self, peer: Any, message: Message | TooLarge, now: float) -> None:
        assert isinstance(message, list)
        self.questions.append((peer, message))
        if len(self.questions) == self.count:
            for responder, (route, body) in random.Random(3).sample(self.questions, self.count):
                self.runner.connections.send(responder, [route, b"to ", body])


@pytest.fixture
def nngs() -> Iterator[Nngs]:
    nngs = Nngs()
    yield nngs
    nngs.close()


@pytest.fixture(params=["tcp", "tcp6", "ipc"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> SocketAddress:
    where: dict[str, SocketAddress] = {
        "tcp": TcpAddress("127.0.0.1", 0),
        "tcp6": TcpAddress("::1", 0),
        "ipc": UnixAddress(str(tmp_path / "s")),
    }
    return where[request.param]


def open_sp(
    setup: Setup, session: Any, place: SocketAddress, protocol: str = "REP", limits: SpLimits | None = None
) -> SocketAddress:
    ipc = isinstance(place, UnixAddress)
    return setup.open(session, place, carrier=lambda: Sp(protocol, ipc=ipc, limits=limits or SpLimits()))


def dial_sp(setup: Setup, responder: Asker, where: SocketAddress) -> Any:
    peer: Any = setup.dial(responder, where, Sp("REQ", ipc=isinstance(where, UnixAddress)))  # type: ignore[arg-type]
    until(lambda: responder.present == [peer], "it has greeted")
    return peer


# ---- every size, each way


def test_a_req_gets_every_size_of_question_back(setup: Setup, nngs: Nngs, any_place: SocketAddress) -> None:
    responder = nngs.visit(pynng.Req0, open_sp(setup, Echo(setup.runner), any_place))
    for payload in PAYLOADS:
        responder.send(payload)
        assert taken(responder) == payload


def test_a_rep_answers_every_size_of_question_of_our_req(setup: Setup, nngs: Nngs, any_place: SocketAddress) -> None:
    replier, where = nngs.receive(pynng.Rep0, any_place)
    responder = Asker(setup.runner)
    peer = dial_sp(setup, responder, where)
    for payload in PAYLOADS:
        setup.send(peer, [ID, payload[:10], payload[10:]])
        assert taken(replier) == payload
        replier.send(payload)
        assert responder.next() == [ID, payload]


def test_a_rep_that_dials_our_req_answers_it_too(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    """Either side may dial: it does not decide which side sends requests."""
    responder = Asker(setup.runner)
    replier = nngs.visit(pynng.Rep0, open_sp(setup, responder, place, "REQ"))
    peer = until(lambda: responder.present and responder.present[0], "it has greeted")
    for payload in PAYLOADS:
        setup.send(peer, [ID, payload])
        assert taken(replier) == payload
        replier.send(payload)
        assert responder.next() == [ID, payload]


def test_our_rep_dials_a_req(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    responder, where = nngs.receive(pynng.Req0, place)
    echo = Echo(setup.runner)
    setup.dial(echo, where, Sp("REP", ipc=isinstance(where, UnixAddress)))  # type: ignore[arg-type]
    for payload in PAYLOADS:
        responder.send(payload)
        assert taken(responder) == payload


# ---- many at once


def test_fifty_questions_of_one_connection_are_answered_in_another_order(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    session = Shuffler(setup.runner, 50)
    contexts = nngs.contexts(nngs.visit(pynng.Req0, open_sp(setup, session, place)), 50)
    for number, context in enumerate(contexts):
        context.send(b"%d" % number)
    assert [context.recv() for context in contexts] == [b"to %d" % number for number in range(50)]
    assert len({peer for peer, _ in session.questions}) == 1
    assert len({route for _, (route, _) in session.questions}) == 50


def test_our_req_asks_fifty_at_once_and_libnng_answers_backwards(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    replier, where = nngs.receive(pynng.Rep0, place)
    contexts = nngs.contexts(replier, 50)
    responder = Asker(setup.runner)
    peer = dial_sp(setup, responder, where)
    routes = [(1 << 31 | number).to_bytes(4, "big") for number in range(50)]
    setup.run(lambda: [setup.runner.connections.send(peer, [route, b"from ", route]) for route in routes])
    asked = [(context, context.recv()) for context in contexts]
    for context, question in reversed(asked):
        context.send(question)
    answers = [responder.next() for _ in routes]
    assert sorted(answers) == [[route, b"from " + route] for route in routes]
    assert len(responder.present) == 1


def test_large_questions_of_many_contexts_do_not_mix(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    contexts = nngs.contexts(nngs.visit(pynng.Req0, open_sp(setup, Echo(setup.runner), place)), 10)
    payloads = [bytes((number,)) * (number * 70_001) for number in range(10)]
    for context, payload in zip(contexts, payloads, strict=True):
        context.send(payload)
    assert [context.recv() for context in contexts] == payloads


def test_fifty_peers_at_once_each_get_their_own_answers(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    where = open_sp(setup, Echo(setup.runner), place)
    responders = [nngs.visit(pynng.Req0, where) for _ in range(50)]
    for turn in range(3):
        for number, responder in enumerate(responders):
            responder.send(b"%d in turn %d" % (number, turn))
        for number, responder in enumerate(responders):
            assert taken(responder) == b"%d in turn %d" % (number, turn)
    assert len(setup.runner.connections.peers) == 50


# ---- hops


@pytest.mark.parametrize("devices", [1, 2, 7])
def test_a_question_that_comes_by_devices_brings_its_hops_and_is_answered_by_them(
    setup: Setup, nngs: Nngs, tmp_path: Path, devices: int
) -> None:
    session = Shuffler(setup.runner, 1)
    where = open_sp(setup, session, TcpAddress("127.0.0.1", 0))
    for number in range(devices):
        front: SocketAddress = (
            TcpAddress("127.0.0.1", 0) if number % 2 else UnixAddress(str(tmp_path / f"device{number}"))
        )
        where = nngs.device(front, where)
    responder = nngs.visit(pynng.Req0, where)
    responder.send(b"you")
    assert taken(responder) == b"to you"
    ((_, (route, _)),) = session.questions
    assert len(route) == 4 * (devices + 1)
    assert [route[pos] >> 7 for pos in range(0, len(route), 4)] == [0] * devices + [1]


# ---- again


def test_what_is_not_answered_is_sent_again_with_the_same_id(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    visitor = nngs.visit(Req, open_sp(setup, responder, place), resend_time=50, resend_tick=10)
    visitor.send(b"patience")
    first, second, third = responder.next(), responder.next(), responder.next()
    assert first == second == third
    setup.send(responder.present[0], [first[0], b"answer"])
    assert taken(visitor) == b"answer"
    assert len(responder.present) == 1


def test_an_answer_to_a_question_of_long_ago_is_not_taken_for_the_next_one(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    responder = Asker(setup.runner)
    visitor = nngs.visit(pynng.Req0, open_sp(setup, responder, place))
    visitor.send(b"forget it")
    visitor.send(b"better")
    first, second = responder.next(), responder.next()
    assert int.from_bytes(second[0], "big") != int.from_bytes(first[0], "big")
    setup.send(responder.present[0], [first[0], b"late"])
    setup.send(responder.present[0], [second[0], b"in time"])
    assert taken(visitor) == b"in time"


def test_libnng_comes_back_when_we_hang_up_and_asks_again_at_once(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    """No resend timer is due: it asks again because the connection is gone."""
    responder = Asker(setup.runner)
    visitor = nngs.visit(Req, open_sp(setup, responder, place), resend_time=3_600_000)
    for times in range(1, 4):
        visitor.send(b"%d" % times)
        question = responder.next()
        former = responder.present[0]
        setup.run(setup.runner.connections.close, former, "the test wants it")
        until(lambda times=times: len(responder.losses) == times, "the session has heard that it is lost")
        assert responder.next() == question
        (peer,) = responder.present
        assert peer is not former
        setup.send(peer, [question[0], b"answer"])
        assert taken(visitor) == b"answer"


def test_a_question_outlives_the_broker_it_was_asked_in(loop_name: str, nngs: Nngs, place: SocketAddress) -> None:
    former = Setup(loop_name)
    try:
        responder = Asker(former.runner)
        where = open_sp(former, responder, place)
        visitor = nngs.visit(Req, where, resend_time=3_600_000)
        visitor.send(b"anybody?")
        assert responder.next()[1] == b"anybody?"
    finally:
        former.close()
    setup = Setup(loop_name)
    try:
        open_sp(setup, Echo(setup.runner), where)
        assert taken(visitor) == b"anybody?"
        visitor.send(b"after")
        assert taken(visitor) == b"after"
    finally:
        setup.close()


def test_a_rep_that_goes_away_is_a_loss_and_can_be_dialled_again(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    responder = Asker(setup.runner)
    for times in range(1, 4):
        replier, where = nngs.receive(pynng.Rep0, place)
        peer = dial_sp(setup, responder, where)
        setup.send(peer, [ID, b"%d" % times])
        assert taken(replier) == b"%d" % times
        replier.close()
        until(lambda times=times: len(responder.losses) == times, "it is lost")
        assert responder.present == []


# ---- what does not fit

STRANGERS = {
    "REP": (pynng.Rep0, "REP (0x0031)"),
    "PAIR1": (pynng.Pair1, "PAIR1 (0x0011)"),
    "PUB": (pynng.Pub0, "PUB (0x0020)"),
    "PULL": (pynng.Pull0, "PULL (0x0051)"),
    "BUS": (pynng.Bus0, "BUS (0x0070)"),
    "SURVEYOR": (pynng.Surveyor0, "SURVEYOR (0x0062)"),
    "RESPONDENT": (pynng.Respondent0, "RESPONDENT (0x0063)"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_socket_that_does_not_fit_is_refused_by_name(setup: Setup, nngs: Nngs, tmp_path: Path, stranger: str) -> None:
    """libnng hangs up as well when it has read our greeting, but its own is on the way by then."""
    kind, name = STRANGERS[stranger]
    echo = Echo(setup.runner)
    where = open_sp(setup, echo, UnixAddress(str(tmp_path / "s")))
    with kind(**DEFAULTS) as visitor:
        visitor.dial(endpoint(where), block=False)
        until(lambda: setup.counters.bad_messages.get(("echo", "protocol")), "it is counted")
        until(lambda: setup.journal.mentions(f"{name} came to a REP"), "a log line names both")
    assert_served(nngs, where)
    assert echo.losses == []


def test_two_reqs_refuse_each_other(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    where = open_sp(setup, responder, place, "REQ")
    with pynng.Req0(**DEFAULTS) as visitor:
        visitor.dial(endpoint(where), block=False)
        until(lambda: setup.journal.mentions("a REQ (0x0030) came to a REQ"), "a log line names both")
    assert (responder.present, responder.losses) == ([], [])


def test_a_question_over_max_payload_ends_the_connection_at_its_length(
    setup: Setup, nngs: Nngs, place: SocketAddress
) -> None:
    """R80. libnng comes back and asks again, for as long as it lives."""
    echo = Echo(setup.runner)
    where = open_sp(setup, echo, place, limits=SpLimits(max_payload=MIB, max_header=0))
    visitor = nngs.visit(pynng.Req0, where)
    visitor.send(bytes(MIB))
    assert taken(visitor) == bytes(MIB)
    visitor.send(bytes(MIB + 33))
    until(lambda: setup.counters.bad_messages.get(("echo", "over max_payload")), "it is counted")
    until(lambda: setup.journal.mentions(f"{MIB + 37} bytes; max_payload is {MIB}"), "a log line has both numbers")
    visitor.send(b"smaller")
    assert taken(visitor) == b"smaller"


def test_libnng_too_hangs_up_on_what_is_over_its_limit(setup: Setup, nngs: Nngs, place: SocketAddress) -> None:
    """Its documents say that it drops the message; the connection goes with it."""
    _, where = nngs.receive(pynng.Rep0, place, recv_max_size=1000)
    responder = Asker(setup.runner)
    peer = dial_sp(setup, responder, where)
    setup.send(peer, [ID, bytes(2000)])
    until(lambda: responder.losses, "it hangs up")


def test_what_has_no_request_id_is_handed_up_as_nothing_and_the_peer_goes_on(
    setup: Setup, place: SocketAddress
) -> None:
    responder = Asker(setup.runner)
    ipc = isinstance(place, UnixAddress)
    with Raw(open_sp(setup, responder, place)) as raw:
        raw.say(Sp("REQ").outgoing[0])
        assert raw.take(8) == Sp("REP").outgoing[0]
        encode = Sp("REQ", ipc=ipc).encode
        for message in ([b""], [b"\0\0\0\1" * 9], [ID, b"good"]):
            raw.say(b"".join(encode(message)))
        assert [responder.next() for _ in range(3)] == [[b"", b""], [b"", b""], [ID, b"good"]]


def taken(theirs: Any) -> bytes:
    return bytes(theirs.recv_msg().bytes)


def assert_served(nngs: Nngs, where: SocketAddress) -> None:
    responder = nngs.visit(pynng.Req0, where)
    responder.send(b"others")
    assert taken(responder) == b"others"


# ---- nngcat


def nngcat() -> str:
    found = shutil.which("nngcat")
    assert found, "nngcat is needed: it comes with NNG, in Debian as nng-utils"
    return found


def test_nngcat_asks_our_rep(setup: Setup, programs: Programs, any_place: SocketAddress) -> None:
    where = open_sp(setup, Shuffler(setup.runner, 1), any_place)
    responder = programs.start(nngcat(), "--req", "--dial", endpoint(where), "--data", "hello", "--raw")
    assert responder.ends() == 0, responder.err
    assert responder.out == "to hello"


def test_nngcat_asks_a_mebibyte(setup: Setup, programs: Programs, place: SocketAddress, tmp_path: Path) -> None:
    question = random.Random(1).randbytes(MIB)
    (tmp_path / "question").write_bytes(question)
    where = open_sp(setup, Echo(setup.runner), place)
    words = ("--req", "--dial", endpoint(where), "--file", tmp_path / "question", "--raw", "--recv-maxsz", 2 * MIB)
    responder = programs.start(nngcat(), *words)
    assert responder.ends() == 0, responder.err
    assert responder.out_bytes == question


def test_nngcat_answers_our_req(setup: Setup, programs: Programs, any_place: SocketAddress) -> None:
    replier = programs.start(nngcat(), "--rep", "--listen", endpoint(any_place), "--data", "answer", "--quoted")
    responder = Asker(setup.runner)
    peer = dial_sp(setup, responder, listens(replier, any_place))
    for number in range(3):
        setup.send(peer, [ID, b"question %d" % number])
        assert responder.next() == [ID, b"answer"]
    replier.prints(r'"question 2"\n')


def test_nngcat_answers_our_req_that_it_dialled(setup: Setup, programs: Programs, place: SocketAddress) -> None:
    responder = Asker(setup.runner)
    where = open_sp(setup, responder, place, "REQ")
    programs.start(nngcat(), "--rep", "--dial", endpoint(where), "--data", "answer", "--raw")
    peer = until(lambda: responder.present and responder.present[0], "it has greeted")
    setup.send(peer, [ID, b"question"])
    assert responder.next() == [ID, b"answer"]


LISTENING_TCP = "0A"  # a state in /proc/net/tcp
LISTENING_UNIX = "00010000"  # a flag in /proc/net/unix


def listens(program: Program, place: SocketAddress) -> SocketAddress:
    """Wait until it listens. Returns the address, which nngcat does not print."""

    def port() -> int:
        inodes = set()
        for each in Path(f"/proc/{program.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                inodes.add(each.readlink().name)
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING_TCP and f"socket:[{fields[9]}]" in inodes:
                    return int(fields[1].rpartition(":")[2], 16)
        return 0

    def is_there(path: str) -> bool:
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        return any(line[-1] == path and line[3] == LISTENING_UNIX for line in lines)

    if isinstance(place, TcpAddress):
        return TcpAddress(place.host, until(port, "it listens"))
    until(lambda: is_there(place.path), "it listens")
    return place

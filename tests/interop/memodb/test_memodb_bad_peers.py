"""Harmful MemoDB connections."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import cbor2
from broker_setup import MIB
from memodb_peers import DISCONNECT, JOB, READY, RESULT, TCP, Nngs, Plain, Start, job, joined, memo, result_of

from programs import Programs, until


def test_r17_a_peer_that_stops_reading_is_let_go_and_harms_nobody(broker_setup: Start, nngs: Nngs) -> None:
    setup = broker_setup(f"{TCP}?max_send_buffer=1MiB&carrier_ping=14")
    nngs.work(setup.workers, 4)
    joined(setup, 4)
    with Plain(setup.callers, receive_buffer=4096) as deaf:
        deaf.greeted()
        with suppress(ConnectionError):  # it may be let go while it asks
            for _ in range(30):
                deaf.ask(job(b"size %d" % MIB))
        until(lambda: setup.counters.connections_closed_slow == 1, "it is let go")
        honest = nngs.dial(setup.callers)
        honest.send(job(b"size %d" % MIB))
        assert len(result_of(honest.recv())) == MIB


def garbage(where: str) -> Iterator[tuple[str, Plain]]:
    """Connections that have just sent a bad message, and the reason under which it is counted."""
    for reason, said in (
        ("not sp", b"GET / HTTP/1.1\r\n\r\n"),
        ("not sp", b"\xff\0\0\0\0\0\0\0\x01\x7f"),
        ("protocol", b"\0SP\0\0\x31\0\0"),
    ):
        peer = Plain(where)
        peer.say(said)
        yield reason, peer
    peer = Plain(where).greeted()
    peer.say(b"\x01" * len(peer._mark) + b"\x7f" + b"\xff" * 7)
    yield "over max_payload", peer
    for reason, body in (
        ("no request id", b""),
        ("no request id", b"\0\0\0\1" * 20),
        ("truncated header", b"\x80\0\0\1"),
        ("not a memo01 header", b"\x80\0\0\1nonsense"),
        ("not a memo01 header", b"\x80\0\0\1\xff"),
        ("header too long", b"\x80\0\0\1\x85\x66memo01\x02\x5b\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("wrong version", b"\x80\0\0\1" + cbor2.dumps(["memo02", READY, b"", ["a"]])),
        ("unknown type", b"\x80\0\0\1" + memo(6, b"")),
        ("bad service list", b"\x80\0\0\1" + memo(READY, b"", [])),
        ("bad service name", b"\x80\0\0\1" + memo(READY, b"", [""])),
        ("unwanted payload", b"\x80\0\0\1" + memo(READY, b"", ["a"], payload=b"x")),
        ("unwanted id", b"\x80\0\0\1" + memo(JOB, b"x", "a", 1)),
        ("not for us", b"\x80\0\0\1" + memo(DISCONNECT, b"")),
        ("bad timeout", b"\x80\0\0\1" + memo(JOB, b"", "a", -2)),
    ):
        peer = Plain(where).greeted()
        peer.write(body)
        yield reason, peer


def test_d6_whoever_says_something_bad_gets_no_answer_and_harms_nobody(
    broker_setup: Start, nngs: Nngs, url: str
) -> None:
    setup = broker_setup(url)
    job_runner = nngs.work(setup.workers)
    caller = nngs.dial(setup.callers)
    reasons: Counter[str] = Counter()
    for reason, peer in garbage(setup.callers):
        with peer:
            reasons[reason] += 1
            until(
                lambda reason=reason: setup.bad(reason, "memodb") == reasons[reason],
                f"{reason} is counted: {setup.counters.bad_messages}",
            )
            caller.send(job(b"honest"))
            assert result_of(caller.recv()) == b"did honest"
    assert len(job_runner.done) == reasons.total()
    assert sum(setup.counters.bad_messages.values()) == reasons.total()


def test_d6_after_a_bad_message_the_same_peer_is_served(broker_setup: Start, nngs: Nngs, url: str) -> None:
    setup = broker_setup(url)
    nngs.work(setup.workers)
    with Plain(setup.callers) as peer:
        peer.greeted()
        for _ in range(19):
            peer.ask(b"nonsense")
        request = peer.ask(job(b"job"))
        assert peer.answer() == (request, memo(RESULT, b"", payload=b"did job"))


def test_d6_twenty_bad_messages_end_the_connection(broker_setup: Start, nngs: Nngs, url: str) -> None:
    setup = broker_setup(url)
    with Plain(setup.callers) as peer:
        peer.greeted()
        for _ in range(20):
            peer.ask(b"nonsense")
        assert peer.rest() == b""
    nngs.work(setup.workers)
    caller = nngs.dial(setup.callers)
    caller.send(job(b"job"))
    assert result_of(caller.recv()) == b"did job"


def test_r66_a_result_under_an_id_that_nobody_has_gets_disconnect(broker_setup: Start) -> None:
    setup = broker_setup(TCP)
    with Plain(setup.workers) as forger:
        forger.greeted()
        for id in (b"", b"x", bytes(16), bytes(60)):
            request = forger.ask(memo(RESULT, id, payload=b"forged"))
            assert forger.answer() == (request, memo(DISCONNECT, id))


def test_a_job_of_an_nngcat_is_answered(
    broker_setup: Start, programs: Programs, nngs: Nngs, any_url: str, tmp_path: Path
) -> None:
    nngcat = shutil.which("nngcat")
    assert nngcat, "nngcat is needed: it comes with NNG, in Debian as nng-utils"
    setup = broker_setup(any_url)
    nngs.work(setup.workers, services=("echo",))
    (tmp_path / "job").write_bytes(bytes.fromhex("85666d656d6f3031024064 6563686f 191388") + b"hello")
    responder = programs.start(nngcat, "--req0", "--dial", setup.callers, "--file", tmp_path / "job", "--raw")
    assert responder.ends() == 0, responder.err
    assert responder.out_bytes == bytes.fromhex("83666d656d6f30310340") + b"did hello"

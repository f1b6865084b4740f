"""nats-py, a client that others wrote, as the peer of our side of NATS: each reads what the other writes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.errors import NoRespondersError

import nats
from authority import Authority
from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats_connect import KeyCredentials
from dragoman.carriers.nats_headers import read_headers, write_headers
from dragoman.carriers.nats_keys import USER, KeyPair
from dragoman.cluster.jetstream import ApiRequest, AppendOutcome, StreamConfig, append, read_append, stream_create
from dragoman.server.nats_connection import NatsConnection
from nats_servers import NatsServer
from nats_visits import Inbox, run, visit
from programs import PATIENCE

StartNats = Callable[[str], NatsServer]
MEBIBYTE = bytes(range(256)) * 4096


@asynccontextmanager
async def py_visit(server: NatsServer, **options: Any) -> AsyncIterator[nats.NATS]:
    """Connect with nats-py."""
    client = await nats.connect(server.url, allow_reconnect=False, connect_timeout=PATIENCE, **options)
    try:
        yield client
    finally:
        await client.close()


async def settle(client: nats.NATS) -> None:
    """Wait until the server knows the subscriptions of nats-py. Its `flush` writes PING at once, ahead of commands that
    its own task has not written yet, so the first PONG may come before SUB is processed. The second one cannot."""
    await client.flush()
    await client.flush()


async def heard(subscription: Any, count: int) -> list[tuple[str, str, dict[str, str] | None, bytes]]:
    messages = [await subscription.next_msg(timeout=PATIENCE) for _ in range(count)]
    return [(each.subject, each.reply, each.headers, each.data) for each in messages]


def test_nats_py_reads_our_messages(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with py_visit(nats_server) as theirs, visit(nats_server.url) as ours:
            subscription = await theirs.subscribe("from.us.>", pending_bytes_limit=1 << 28)
            await settle(theirs)
            headers = write_headers([(b"Name", b"value"), (b"Number", b"7")])
            ours.client.publish(b"from.us.1", b"hello")
            ours.client.publish(b"from.us.2", b"", b"reply.here")
            ours.client.publish(b"from.us.3", b"\r\n\0\xff", b"", headers)
            ours.client.publish(b"from.us.4", MEBIBYTE)
            ours.client.publish(b"from.us.5", b"last", b"r", headers)
            assert await heard(subscription, 5) == [
                ("from.us.1", "", None, b"hello"),
                ("from.us.2", "reply.here", None, b""),
                ("from.us.3", "", {"Name": "value", "Number": "7"}, b"\r\n\0\xff"),
                ("from.us.4", "", None, MEBIBYTE),
                ("from.us.5", "r", {"Name": "value", "Number": "7"}, b"last"),
            ]

    run(work)


def test_we_read_the_messages_of_nats_py(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with py_visit(nats_server) as theirs, visit(nats_server.url) as ours:
            inbox = Inbox()
            ours.client.subscribe(b"from.them.>", inbox)
            assert await ours.flush()
            await theirs.publish("from.them.1", b"hello")
            await theirs.publish("from.them.2", b"", reply="reply.here")
            await theirs.publish("from.them.3", b"\r\n\0\xff", headers={"Name": "value", "Other": "x y"})
            await theirs.publish("from.them.4", MEBIBYTE)
            got = [await inbox.next() for _ in range(4)]
            assert [(subject, reply, payload) for subject, reply, _, payload in got] == [
                (b"from.them.1", b"", b"hello"),
                (b"from.them.2", b"reply.here", b""),
                (b"from.them.3", b"", b"\r\n\0\xff"),
                (b"from.them.4", b"", MEBIBYTE),
            ]
            assert read_headers(got[2][2]).fields == [(b"Name", b"value"), (b"Other", b"x y")]

    run(work)


def test_requests_are_answered_in_both_directions(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with py_visit(nats_server) as theirs, visit(nats_server.url) as ours:

            async def answer(message: Any) -> None:
                await message.respond(b"them: " + message.data)

            await theirs.subscribe("ask.them", cb=answer)
            await settle(theirs)
            answer_of_ours(ours)
            assert await ours.flush()
            answers = await asyncio.gather(
                *(ours.request(ApiRequest(b"ask.them", b"%d" % n), PATIENCE) for n in range(50))
            )
            assert [bytes(each.payload) for each in answers] == [b"them: %d" % n for n in range(50)]
            told = await asyncio.gather(*(theirs.request("ask.us", b"%d" % n, timeout=PATIENCE) for n in range(50)))
            assert [each.data for each in told] == [b"us: %d" % n for n in range(50)]
            with pytest.raises(NoRespondersError):
                await theirs.request("ask.nobody", b"", timeout=PATIENCE)

    run(work)


def answer_of_ours(ours: NatsConnection) -> None:
    def answer(subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        ours.client.publish(bytes(reply), b"us: " + payload)

    ours.client.subscribe(b"ask.us", answer)


def test_both_share_a_queue_group(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with py_visit(nats_server) as theirs, visit(nats_server.url) as ours, visit(nats_server.url) as sender:
            subscription = await theirs.subscribe("shared", queue="group")
            await settle(theirs)
            inbox = Inbox()
            ours.client.subscribe(b"shared", inbox, b"group")
            assert await ours.flush()
            for number in range(200):
                sender.client.publish(b"shared", b"%d" % number)
            assert await sender.flush()
            assert await ours.flush()
            await settle(theirs)
            at_ours, at_theirs = inbox.queue.qsize(), subscription.pending_msgs
            assert (at_ours + at_theirs, at_ours > 0, at_theirs > 0) == (200, True, True)

    run(work)


def test_nats_py_reads_the_log_that_we_write(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with py_visit(nats_server) as theirs, visit(nats_server.url) as ours:
            asked = stream_create(StreamConfig("SHARED", ("log.shared",)))
            await ours.request(asked, PATIENCE)
            first = await ours.request(append(b"log.shared", b"ours", 0, "SHARED"), PATIENCE)
            assert read_append(first).outcome is AppendOutcome.STORED
            stream = theirs.jetstream(timeout=PATIENCE)
            assert (await stream.get_msg("SHARED", 1)).data == b"ours"
            acknowledged = await stream.publish("log.shared", b"theirs", headers={"Nats-Expected-Last-Sequence": "1"})
            assert acknowledged.seq == 2
            batch = await ours.batch("SHARED", 1, 10, PATIENCE)
            assert [(each.sequence, bytes(each.payload)) for each in batch.messages] == [(1, b"ours"), (2, b"theirs")]

    run(work)


def test_both_speak_through_a_server_with_tls_and_nkeys(start_nats: StartNats, authority: Authority) -> None:
    """With the library of nkeys that nats-py uses: both read the same seed."""
    key, issued = KeyPair(USER, bytes(range(32))), authority.issue()
    server = start_nats(  # the default time-outs of 2 s end handshakes on an overloaded machine
        f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}", timeout: {PATIENCE} }}\n'
        f"authorization {{ timeout: {PATIENCE}, users: [ {{ nkey: {key.public} }} ] }}"
    )

    async def work() -> None:
        context = ssl.create_default_context(cafile=str(authority.cert))
        url = f"tls://127.0.0.1:{server.port}?ca={authority.cert}"
        async with (
            visit(url, KeyCredentials(key)) as ours,
            py_visit(server, tls=context, tls_hostname="localhost", nkeys_seed_str=key.seed) as theirs,
        ):
            inbox = Inbox()
            ours.client.subscribe(b"x", inbox)
            assert await ours.flush()
            await theirs.publish("x", b"of theirs", headers={"A": "b"})
            _, _, headers, payload = await inbox.next()
            assert (payload, read_headers(headers).get(b"A")) == (b"of theirs", b"b")
            subscription = await theirs.subscribe("y")
            await settle(theirs)
            ours.client.publish(b"y", MEBIBYTE)
            assert await heard(subscription, 1) == [("y", "", None, MEBIBYTE)]

    run(work)

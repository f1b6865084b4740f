"""Our side of NATS with a real server: messages, requests, errors, limits and credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from case_tables import check_every_row
from dragoman.carriers.nats_connect import (
    NO_CREDENTIALS,
    Credentials,
    KeyCredentials,
    PasswordCredentials,
    TokenCredentials,
)
from dragoman.carriers.nats_headers import read_headers, write_headers
from dragoman.carriers.nats_keys import ACCOUNT, OPERATOR, USER, KeyPair, read_credentials
from dragoman.carriers.nats_lines import NatsLimits, unsubscribe_line
from dragoman.cluster.jetstream import ApiRequest
from dragoman.cluster.nats_client import Published
from dragoman.cluster.requests import AnswerKind
from dragoman.server.nats_connection import NatsUnavailable
from nats_servers import NatsServer, jwt_of
from nats_visits import Inbox, Notes, run, visit
from programs import PATIENCE, until

MIB = 1 << 20
HEADERS = write_headers([(b"A", b"b"), (b"A", b"c"), (b"Empty", b"")])
StartNats = Callable[[str], NatsServer]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- messages


def test_messages_arrive_with_headers_and_reply(nats_server: NatsServer, loop_name: str) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:
            inbox = Inbox()
            b.client.subscribe(b"m.*.>", inbox)
            assert await b.flush()
            sent = [
                (b"m.1.x", b"", b"", b"hello"),
                (b"m.2.x.y", b"re.1", b"", b""),
                (b"m.3.x", b"re", HEADERS, b"\r\n\0"),
            ]
            for subject, reply, headers, payload in sent:
                assert a.client.publish(subject, payload, reply, headers) is Published.SENT
            assert [await inbox.next() for _ in sent] == sent
            assert read_headers(HEADERS).fields == [(b"A", b"b"), (b"A", b"c"), (b"Empty", b"")]

    run(work, loop_name)


def test_our_own_messages_come_back_only_if_we_ask_for_them(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with visit(nats_server.url, echoes=True) as a, visit(nats_server.url) as b:
            at_a, at_b = Inbox(), Inbox()
            a.client.subscribe(b"echo", at_a)
            b.client.subscribe(b"echo", at_b)
            assert await a.flush()
            assert await b.flush()
            b.client.publish(b"echo", b"of b")
            assert await b.flush()
            a.client.publish(b"echo", b"of a")
            assert [(await at_a.next())[3], (await at_a.next())[3]] == [b"of b", b"of a"]
            assert (await at_b.next())[3] == b"of a"

    run(work)


def test_one_member_of_a_queue_group_gets_each_message(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:
            first, second = Inbox(), Inbox()
            b.client.subscribe(b"work", first, b"group")
            b.client.subscribe(b"work", second, b"group")
            assert await b.flush()
            for number in range(50):
                a.client.publish(b"work", b"%d" % number)
            assert await a.flush()
            await b.flush()
            got = [each.queue.get_nowait()[3] for each in (first, second) for _ in range(each.queue.qsize())]
            assert sorted(got, key=int) == [b"%d" % number for number in range(50)]

    run(work)


def test_nothing_comes_after_the_end_of_a_subscription(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:
            inbox, limited = Inbox(), Inbox()
            subscription = b.client.subscribe(b"end", inbox)
            twice = b.client.subscribe(b"end", limited)
            b.send([unsubscribe_line(twice.sid, 2)])
            assert await b.flush()
            for _ in range(3):
                a.client.publish(b"end", b"x")
            assert await a.flush()
            assert await b.flush()
            assert (inbox.queue.qsize(), limited.queue.qsize()) == (3, 2)
            b.client.unsubscribe(subscription)
            assert await b.flush()
            a.client.publish(b"end", b"x")
            assert await a.flush()
            assert await b.flush()
            assert (inbox.queue.qsize(), b.client.strays) == (3, 0)

    run(work)


def test_a_message_of_a_mebibyte_arrives_both_ways(nats_server: NatsServer, loop_name: str) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:
            payload = bytes(range(256)) * 4096
            inbox = Inbox()
            b.client.subscribe(b"big", inbox)
            assert await b.flush()
            for _ in range(8):
                assert a.client.publish(b"big", payload) is Published.SENT
            assert a.client.publish(b"big", payload[len(HEADERS) :], b"r", HEADERS) is Published.SENT
            for _ in range(8):
                assert (await inbox.next())[3] == payload
            assert (await inbox.next())[2:] == (HEADERS, payload[len(HEADERS) :])
            assert a.client.publish(b"big", payload, b"", HEADERS) is Published.TOO_LARGE
            assert a.client.publish(b"big", payload + b"x") is Published.TOO_LARGE
            assert await a.flush()  # the server has not closed the connection

    run(work, loop_name)


def test_a_message_over_our_own_limits_is_dropped_and_the_connection_stays(nats_server: NatsServer) -> None:
    async def work() -> None:
        limits = NatsLimits(max_payload=1000, max_headers=100)
        async with visit(nats_server.url) as a, visit(nats_server.url, limits=limits) as b:
            inbox = Inbox()
            b.client.subscribe(b"small", inbox)
            assert await b.flush()
            a.client.publish(b"small", b"x" * 200_000)
            a.client.publish(b"small", b"", b"", write_headers([(b"Long", b"h" * 200)]))
            a.client.publish(b"small", b"fits")
            assert (await inbox.next())[3] == b"fits"
            assert b.client.too_large == 2

    run(work)


# ---------------------------------------------------------------- requests


def test_a_request_is_answered(nats_server: NatsServer, loop_name: str) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:

            def answer(subject: object, reply: object, headers: object, payload: object, now: float) -> None:
                b.client.publish(reply, b"re: " + payload, b"", HEADERS)  # type: ignore[arg-type, operator]

            b.client.subscribe(b"ask", answer)  # type: ignore[arg-type]
            assert await b.flush()
            asked = [a.request(ApiRequest(b"ask", b"%d" % number), PATIENCE) for number in range(500)]
            answers = await asyncio.gather(*asked)
            assert [bytes(each.payload) for each in answers] == [b"re: %d" % number for number in range(500)]
            assert answers[0].headers.get(b"A") == b"b"
            assert len(a.client.requests) == 0

    run(work, loop_name)


def test_a_request_that_nobody_listens_to_is_answered_at_once(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a:
            answer = await a.request(ApiRequest(b"nobody"), PATIENCE)
            assert (answer.kind, answer.headers.status) == (AnswerKind.NO_RESPONDERS, 503)

    run(work)


def test_a_request_without_an_answer_times_out_and_a_late_answer_is_dropped(nats_server: NatsServer) -> None:
    async def work() -> None:
        async with visit(nats_server.url) as a, visit(nats_server.url) as b:
            inbox = Inbox()
            b.client.subscribe(b"slow", inbox)
            assert await b.flush()
            answer = await a.request(ApiRequest(b"slow", b"x"), 0.05)
            assert answer.kind is AnswerKind.TIMED_OUT
            _, reply, _, _ = await inbox.next()
            b.client.publish(reply, b"late")
            assert await b.flush()
            assert await a.flush()
            assert a.client.requests.strays == 1

    run(work)


def test_requests_end_with_the_connection(start_nats: StartNats) -> None:
    async def work() -> None:
        server = start_nats("")
        async with visit(server.url) as a, visit(server.url) as b:
            b.client.subscribe(b"silent", Inbox())
            assert await b.flush()
            pending = asyncio.ensure_future(a.request(ApiRequest(b"silent"), PATIENCE))
            await asyncio.sleep(0)
            server.kill()
            assert (await pending).kind is AnswerKind.DISCONNECTED
            assert await a.closed
            assert (await a.request(ApiRequest(b"silent"), PATIENCE)).kind is AnswerKind.NOT_SENT
            assert not await a.flush()
            assert a.client.publish(b"silent", b"") is Published.AWAY

    run(work)


# ---------------------------------------------------------------- errors of the server


def test_an_invalid_subject_is_told_and_the_connection_stays(nats_server: NatsServer) -> None:
    async def work() -> None:
        notes = Notes()
        async with visit(nats_server.url, watcher=notes) as a:
            a.send([b"SUB a..b 77\r\n"])
            assert await notes.errors.get() == "Invalid Subject"
            assert await a.flush()

    run(work)


def test_a_broken_line_is_told_and_ends_the_connection(nats_server: NatsServer) -> None:
    async def work() -> None:
        for line, error in [(b"NONSENSE\r\n", "Unknown Protocol Operation"), (b"PUB a 2000000\r\n", "Maximum Payload")]:
            notes = Notes()
            async with visit(nats_server.url, watcher=notes) as a:
                a.send([line])
                assert (await notes.errors.get()).startswith(error)
                assert await a.closed == "the peer closed the connection"

    run(work)


def test_a_missing_permission_is_told_and_the_connection_stays(start_nats: StartNats) -> None:
    async def work() -> None:
        permissions = '{ publish: "ok.>", subscribe: ["ok.>", "test.>"] }'
        server = start_nats(f"authorization {{ users: [ {{ user: u, password: p, permissions: {permissions} }} ] }}")
        notes = Notes()
        async with visit(server.url, PasswordCredentials("u", "p"), watcher=notes) as a:
            a.client.publish(b"forbidden", b"x")
            assert await notes.errors.get() == 'Permissions Violation for Publish to "forbidden"'
            a.client.subscribe(b"forbidden", Inbox())
            assert (await notes.errors.get()).startswith('Permissions Violation for Subscription to "forbidden"')
            answer = await a.request(ApiRequest(b"ok.nobody"), PATIENCE)
            assert answer.kind is AnswerKind.NO_RESPONDERS

    run(work)


def test_a_server_that_is_full_refuses_with_its_reason(start_nats: StartNats) -> None:
    async def work() -> None:
        server = start_nats("max_connections: 1")
        async with visit(server.url):
            with pytest.raises(NatsUnavailable, match=r"(?i)maximum connections exceeded"):
                async with visit(server.url):
                    pass

    run(work)


def test_a_lower_max_payload_of_the_server_is_known_after_the_next_connect(start_nats: StartNats) -> None:
    """nats-server 2.15.1 does not send INFO after such a reload: the next large message ends the connection."""

    async def work() -> None:
        server = start_nats("max_payload: 2000")
        notes = Notes()
        async with visit(server.url, watcher=notes) as a:
            assert a.client.publish(b"x", b"x" * 2000) is Published.SENT
            assert await a.flush()
            server.configure("max_payload: 1000")
            await asyncio.to_thread(server.reload)
            a.client.publish(b"x", b"x" * 2000)
            assert await notes.errors.get() == "Maximum Payload Violation"
            await a.closed
        async with visit(server.url) as a:
            assert a.client.publish(b"x", b"x" * 2000) is Published.TOO_LARGE
            assert a.client.publish(b"x", b"x" * 1000) is Published.SENT
            assert await a.flush()

    run(work)


def test_a_server_that_stops_soon_says_so(start_nats: StartNats) -> None:
    async def work() -> None:
        server = start_nats('lame_duck_duration: "30s"')
        notes = Notes()
        async with visit(server.url, watcher=notes):
            server.enter_lame_duck_mode()
            async with asyncio.timeout(PATIENCE):
                while not any(each.is_leaving for each in notes.infos):
                    notes.informed_again.clear()
                    await notes.informed_again.wait()

    run(work)


def test_an_idle_connection_answers_the_pings_of_the_server(start_nats: StartNats) -> None:
    async def work() -> None:
        server = start_nats('ping_interval: "100ms"\nping_max: 1')
        async with visit(server.url) as a:
            stream = a._stream
            assert stream is not None
            before = stream.received
            async with asyncio.timeout(PATIENCE):
                while stream.received < before + 5 * len(b"PING\r\n"):
                    await asyncio.sleep(0.02)
            assert await a.flush()

    run(work)


def test_a_connection_that_does_not_read_is_cut_off_and_sees_its_end(start_nats: StartNats) -> None:
    async def work() -> None:
        server = start_nats('max_pending: 1048576\nwrite_deadline: "1s"')
        async with visit(server.url) as a, visit(server.url) as slow:
            inbox = Inbox()
            slow.client.subscribe(b"flood", inbox)
            assert await slow.flush()
            stream = slow._stream
            asyncio.get_running_loop().remove_reader(stream._socket)  # type: ignore[union-attr]
            for _ in range(400):
                a.client.publish(b"flood", bytes(100_000))
                assert await a.flush()
                if "Slow Consumer" in server.log:
                    break
            await asyncio.to_thread(until, lambda: "Slow Consumer" in server.log, "the server cuts it off")
            stream.start(slow._arrived, slow._ended)  # type: ignore[union-attr]
            assert "connection" in await slow.closed
            assert 0 < inbox.queue.qsize() < 400
            assert await a.flush()

    run(work)


# ---------------------------------------------------------------- credentials

KEY = KeyPair(USER, bytes(range(32)))
OTHER_KEY = KeyPair(USER, bytes(32))


def test_credentials_admit_and_wrong_ones_are_refused(start_nats: StartNats, loop_name: str) -> None:
    token = start_nats("authorization { token: s3cret }")
    password = start_nats("authorization { user: me, password: s3cret }")
    nkey = start_nats(f"authorization {{ users: [ {{ nkey: {KEY.public} }} ] }}")
    none = start_nats("")

    def check(server: NatsServer, credentials: Credentials, problem: str) -> None:
        async def work() -> None:
            if not problem:
                async with visit(server.url, credentials) as a:
                    assert await a.flush()
                return
            with pytest.raises(NatsUnavailable, match=problem) as caught:
                async with visit(server.url, credentials):
                    pass
            assert "s3cret" not in str(caught.value)

        run(work, loop_name)

    refused = "Authorization Violation"
    check_every_row(
        check,
        [
            (token, TokenCredentials("s3cret"), ""),
            (token, TokenCredentials("wrong"), refused),
            (token, NO_CREDENTIALS, refused),
            (password, PasswordCredentials("me", "s3cret"), ""),
            (password, PasswordCredentials("me", "wrong"), refused),
            (password, PasswordCredentials("you", "s3cret"), refused),
            (password, TokenCredentials("s3cret"), refused),
            (nkey, KeyCredentials(KEY), ""),
            (nkey, KeyCredentials(OTHER_KEY), refused),
            (nkey, NO_CREDENTIALS, refused),
            (none, TokenCredentials("s3cret"), ""),
            (none, KeyCredentials(KEY), "has no nkeys"),
        ],
    )


def test_a_file_of_credentials_admits_and_a_revoked_one_is_refused(start_nats: StartNats) -> None:
    operator, account = KeyPair(OPERATOR, b"o" * 32), KeyPair(ACCOUNT, b"a" * 32)
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    operator_jwt = jwt_of({"name": "O", "sub": operator.public, "nats": {"type": "operator", "version": 2}}, operator)
    account_claims = {"limits": {**limits, "wildcards": True}, "type": "account", "version": 2}
    account_jwt = jwt_of({"name": "A", "sub": account.public, "nats": account_claims}, operator)
    server = start_nats(
        f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {account.public}: {account_jwt} }}"
    )

    def file_of(issuer: KeyPair, key: KeyPair) -> str:
        user_claims = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
        jwt = jwt_of({"name": "U", "sub": KEY.public, "nats": user_claims}, issuer)
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
        )

    def credentials_of(text: str) -> KeyCredentials:
        jwt, key = read_credentials(text)
        return KeyCredentials(key, jwt)

    async def work() -> None:
        async with visit(server.url, credentials_of(file_of(account, KEY))) as a:
            assert (await a.request(ApiRequest(b"nobody"), PATIENCE)).kind is AnswerKind.NO_RESPONDERS
        for issuer, key in ((account, OTHER_KEY), (KeyPair(ACCOUNT, b"x" * 32), KEY)):
            with pytest.raises(NatsUnavailable, match="Authorization Violation"):
                async with visit(server.url, credentials_of(file_of(issuer, key))):
                    pass

    run(work)


def test_a_secret_is_never_sent_in_plain_to_another_machine() -> None:
    """R112: before anything is dialled."""

    async def work() -> None:
        for credentials in (TokenCredentials("s3cret"), PasswordCredentials("u", "s3cret")):
            with pytest.raises(ValueError, match="without TLS; write tls://") as caught:
                async with visit("nats://192.0.2.1:4222,127.0.0.1:4222", credentials):
                    pass
            assert "s3cret" not in str(caught.value)

    run(work)


def test_a_port_that_is_no_nats_server_is_named(nats_server: NatsServer) -> None:
    async def work() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH\r\n")
            await reader.read()
            writer.close()

        async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        for serve, problem in ((greet, "it began with 53, and not with INFO"), (close, "closed the connection")):
            async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
                port = other.sockets[0].getsockname()[1]
                with pytest.raises(NatsUnavailable, match=problem):
                    async with visit(f"nats://127.0.0.1:{port}"):
                        pass
                async with visit(f"nats://127.0.0.1:{port},127.0.0.1:{nats_server.port}") as a:  # the second server
                    assert await a.flush()

    run(work)

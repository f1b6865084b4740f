"""NATS: the handshake, every verb of the server cut anywhere (I18), every line to it, and violations of the rules."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from cut_streams import KIB, MIB, feed_all, pieces_of, random_pieces, read_into_gap, reason_of

from case_tables import check_every_row
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.nats import Encryption, Nats
from dragoman.carriers.nats_connect import (
    ConnectOptions,
    KeyCredentials,
    PasswordCredentials,
    TokenCredentials,
)
from dragoman.carriers.nats_keys import USER, KeyPair
from dragoman.carriers.nats_lines import FLUSH, NatsLimits, is_filter, is_subject, subscribe_line, unsubscribe_line

# As nats-server 2.15.1 wrote it to a plain socket, with a space before CR LF.
SERVER_INFO = (
    b'INFO {"server_id":"NB543ITT5NSO7YXDTBYW6SBWN56F3TWOCRQOH35YZM2LKDSJAEPR7RZY","server_name":"a",'
    b'"version":"2.15.1","proto":1,"git_commit":"b2fd3ef","go":"go1.27.2","host":"127.0.0.1","port":39297,'
    b'"headers":true,"max_payload":1048576,"jetstream":true,"client_id":5,"client_ip":"127.0.0.1","api_lvl":5,'
    b'"xkey":"XDZCVQG4Z7MNX5MXRJLQ3RLO5HGV6KKBPCM2CISU36D4AEUZ5OIVA76F"} \r\n'
)
SHORT_INFO = b'INFO {"headers":true,"max_payload":100000000}\r\n'
STATUS = b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n"


def started(limits: NatsLimits | None = None) -> Nats:
    """Return a carrier after its handshake."""
    nats = Nats(limits=limits or NatsLimits())
    assert nats.feed(SHORT_INFO + b"PONG\r\n") == []
    assert nats.ready
    nats.outgoing.clear()
    return nats


def connect_of(nats: Nats) -> dict[str, object]:
    """Return the fields of CONNECT, after which PING follows."""
    (written,) = nats.outgoing
    line, rest = written.split(b"\r\n", 1)
    assert rest == b"PING\r\n"
    verb, _, text = line.partition(b" ")
    assert verb == b"CONNECT"
    fields: dict[str, object] = json.loads(text)
    return fields


def msg(subject: bytes, sid: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    words = [b"MSG", subject, sid, *([reply] if reply else []), b"%d" % len(payload)]
    return b" ".join(words) + b"\r\n" + payload + b"\r\n"


def hmsg(subject: bytes, sid: bytes, headers: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    sizes = [b"%d" % len(headers), b"%d" % len(headers + payload)]
    words = [b"HMSG", subject, sid, *([reply] if reply else []), *sizes]
    return b" ".join(words) + b"\r\n" + headers + payload + b"\r\n"


# ---- handshake


def test_nothing_is_sent_before_info_and_the_connection_is_ready_with_the_first_pong() -> None:
    nats = Nats()
    assert (nats.outgoing, nats.ready) == ([], False)
    assert nats.feed(SERVER_INFO) == []
    assert not nats.ready
    assert connect_of(nats) == {
        "verbose": False,
        "pedantic": False,
        "tls_required": False,
        "name": "",
        "lang": "python",
        "version": "",
        "protocol": 1,
        "echo": False,
        "headers": True,
        "no_responders": True,
    }
    assert nats.feed(b"PONG\r\n") == []
    assert (nats.ready, nats.failure, nats.holding) == (True, None, 0)


def test_info_has_the_facts_of_the_server() -> None:
    nats = Nats()
    nats.feed(
        b'INFO {"server_id":"N1","server_name":"a","version":"2.14.0-rc.1","cluster":"c","max_payload":8,'
        b'"headers":true,"jetstream":true,"auth_required":true,"nonce":"x","client_id":7,"client_ip":"::1","ldm":true,'
        b'"connect_urls":["10.0.0.1:4222","[::1]:4222"],"tls_available":true,"something":{"new":[1]}}\r\n'
    )
    info = nats.info
    assert (info.server_id, info.server_name, info.cluster, info.nonce) == ("N1", "a", "c", "x")
    assert (info.version, info.release) == ("2.14.0-rc.1", (2, 14, 0))
    assert (info.max_payload, info.client_id, info.client_ip) == (8, 7, "::1")
    assert (info.has_headers, info.has_jetstream, info.auth_required, info.is_leaving) == (True,) * 4
    assert (info.tls_required, info.tls_available) == (False, True)
    assert info.connect_urls == ("10.0.0.1:4222", "[::1]:4222")


def test_a_version_without_numbers_has_no_release() -> None:
    nats = Nats()
    nats.feed(b'INFO {"version":"main"}\r\n')
    assert nats.info.release == ()


def test_bad_info_ends_the_connection() -> None:
    def check(text: bytes) -> None:
        nats = Nats()
        assert nats.feed(b"INFO " + text + b"\r\n") == []
        assert reason_of(nats) == "bad INFO"
        assert nats.outgoing == []

    wrong = [b"", b"[]", b"7", b"{", b'{"a":1}}', b"[" * 5000, b'{"max_payload":0}', b'{"max_payload":"1"}']
    wrong += [b'{"max_payload":true}', b'{"headers":1}', b'{"nonce":7}', b'{"connect_urls":"a"}', b"\xff\xfe"]
    wrong += [b'{"connect_urls":[1]}', b'{"client_id":-1}', b'{"max_payload":%d}' % (1 << 70), b'{"version":null}']
    check_every_row(check, [(each,) for each in wrong])


def test_another_protocol_is_found_at_its_first_wrong_byte() -> None:
    def check(greeting: bytes) -> None:
        nats = Nats()
        for byte in greeting[:5]:
            nats.feed(bytes([byte]))
        assert reason_of(nats) == "not nats"

    others = [b"HTTP/1.1 400", b"SSH-2.0", b"\xff\0\0\0\0", b"\0SP\0\0", b"\r\n\r\n\r", b"INFX ", b"info ", b"PING\r\n"]
    others += [b"-ERR 'x'", b"\x15\x03\x01\x00\x02"]
    check_every_row(check, [(each,) for each in others])


def test_credentials_are_in_connect() -> None:
    key = KeyPair(USER, bytes(range(32)))

    def check(credentials: object, expected: dict[str, str]) -> None:
        nats = Nats(ConnectOptions("me", "1.2", True, credentials))  # type: ignore[arg-type]
        nats.feed(b'INFO {"headers":true,"nonce":"abc"}\r\n')
        fields = connect_of(nats)
        assert expected.items() <= fields.items()
        assert (fields["name"], fields["version"], fields["echo"]) == ("me", "1.2", True)
        names = {"auth_token", "user", "pass", "nkey", "jwt", "sig"}
        assert set(fields) & names == set(expected) | ({"sig"} if key in (getattr(credentials, "_key", 0),) else set())

    check_every_row(
        check,
        [
            (ConnectOptions().credentials, {}),
            (TokenCredentials("s3cret"), {"auth_token": "s3cret"}),
            (PasswordCredentials("u", 'p"w'), {"user": "u", "pass": 'p"w'}),
            (KeyCredentials(key), {"nkey": key.public}),
            (KeyCredentials(key, "a.b.c"), {"jwt": "a.b.c"}),
        ],
    )


def test_secrets_are_known_as_such_and_never_shown() -> None:
    token, password = TokenCredentials("s3cret"), PasswordCredentials("u", "s3cret")
    key = KeyCredentials(KeyPair(USER, b"s3cret".ljust(32)))
    assert (token.is_secret, password.is_secret, key.is_secret) == (True, True, False)
    assert "s3cret" not in repr([token, password, key, ConnectOptions(credentials=token)])


def test_a_key_needs_a_nonce_of_the_server() -> None:
    nats = Nats(ConnectOptions(credentials=KeyCredentials(KeyPair(USER, bytes(32)))))
    nats.feed(SERVER_INFO)
    assert reason_of(nats) == "no nonce"
    assert nats.outgoing == []


def test_a_server_without_headers_is_told_that_there_are_none() -> None:
    nats = Nats()
    nats.feed(b"INFO {}\r\n")
    fields = connect_of(nats)
    assert (fields["headers"], fields["no_responders"]) == (False, False)


def test_an_error_before_the_connection_is_ready_is_its_failure() -> None:
    nats = Nats()
    nats.feed(SERVER_INFO + b"-ERR 'Authorization Violation'\r\nPONG\r\n")
    assert reason_of(nats) == "refused"
    assert nats.failure is not None
    assert "Authorization Violation" in nats.failure.detail
    assert not nats.ready


def test_info_may_come_again_before_the_connection_is_ready() -> None:
    nats = Nats()
    nats.feed(SERVER_INFO)
    assert nats.feed(b'INFO {"max_payload":77}\r\nPONG\r\n') == []
    assert (nats.info.max_payload, nats.ready, len(nats.outgoing)) == (77, True, 1)


def test_a_message_before_the_connection_is_ready_is_an_error() -> None:
    nats = Nats()
    nats.feed(SERVER_INFO + msg(b"a", b"1", b"x"))
    assert reason_of(nats) == "early message"


# ---- TLS


def test_tls_begins_after_info_and_connect_waits_for_it() -> None:
    nats = Nats(encryption=Encryption.AFTER_INFO)
    assert not nats.begins_tls
    nats.feed(b'INFO {"tls_required":true}\r\n')
    assert nats.begins_tls
    assert connect_of(nats)["tls_required"] is True
    nats.enter_tls()
    nats.feed(b"PONG\r\n")
    assert nats.ready


def test_tls_that_is_available_is_used() -> None:
    nats = Nats(encryption=Encryption.AFTER_INFO)
    nats.feed(b'INFO {"tls_available":true}\r\n')
    assert nats.begins_tls


def test_tls_before_info_begins_at_once() -> None:
    nats = Nats(encryption=Encryption.BEFORE_INFO)
    assert nats.begins_tls
    nats.feed(b'INFO {"tls_required":true}\r\nPONG\r\n')
    assert nats.ready


@pytest.mark.parametrize("cut", [0, 1])
def test_plain_bytes_after_info_are_refused(cut: int) -> None:
    """Otherwise anybody on the way could put lines into the protected connection."""
    nats = Nats(encryption=Encryption.AFTER_INFO)
    stream = b'INFO {"tls_required":true}\r\nPONG\r\n'
    end = stream.index(b"PONG") * cut
    nats.feed(stream[:end])
    nats.feed(stream[end:])
    assert reason_of(nats) == "bytes before TLS"
    assert not nats.ready


def test_tls_is_never_left_out_silently() -> None:
    def check(encryption: Encryption, info: bytes, reason: str) -> None:
        nats = Nats(ConnectOptions(credentials=TokenCredentials("t")), encryption=encryption)
        nats.feed(b"INFO " + info + b"\r\n")
        assert reason_of(nats) == reason
        assert nats.outgoing == []

    check_every_row(
        check,
        [(Encryption.AFTER_INFO, b"{}", "no tls"), (Encryption.NONE, b'{"tls_required":true}', "tls required")],
    )


# ---- messages from the server

TRAFFIC: list[tuple[bytes, list[Message | TooLarge]]] = [
    (b"MSG a.b 1 5\r\nhello\r\n", [[b"1", b"a.b", b"", b"", b"hello"]]),
    (b"MSG a.b 17 re.ply 0\r\n\r\n", [[b"17", b"a.b", b"re.ply", b"", b""]]),
    (b"MSG a 1 9\r\nMSG x 1 1\r\n", [[b"1", b"a", b"", b"", b"MSG x 1 1"]]),
    (b"MSG a 1 4\r\n\r\n\r\n\r\n", [[b"1", b"a", b"", b"", b"\r\n\r\n"]]),
    (hmsg(b"a", b"1", STATUS, b""), [[b"1", b"a", b"", STATUS, b""]]),
    (hmsg(b"a", b"1", STATUS, b"body", b"r"), [[b"1", b"a", b"r", STATUS, b"body"]]),
    (hmsg(b"a", b"1", b"no headers at all", b"body"), [[b"1", b"a", b"", b"no headers at all", b"body"]]),
    (b"HMSG a 1 0 2\r\nhi\r\n", [[b"1", b"a", b"", b"", b"hi"]]),
    (b"msg\ta  1\t 2 \r\nhi\r\nHmSg a 1 2 2\r\nhi\r\n", [[b"1", b"a", b"", b"", b"hi"], [b"1", b"a", b"", b"hi", b""]]),
    (b"+OK\r\n", []),
    (b"PING\r\nping\r\n", []),
    (b"-ERR 'Invalid Subject'\r\n", [[b"-ERR", b"Invalid Subject"]]),
    (b"-ERR\r\n", [[b"-ERR", b""]]),
    (b'INFO {"max_payload":9} \r\n', [[b"INFO", b'{"max_payload":9}']]),
    (b"PONG\r\n", []),
    (b"", []),
]


def copied(messages: list[Message | TooLarge]) -> list[object]:
    return [
        (each.size, [bytes(frame) for frame in each.frames])
        if isinstance(each, TooLarge)
        else [bytes(frame) for frame in each]
        for each in messages
    ]


def test_every_verb_is_read_in_every_cut() -> None:
    def check(stream: bytes, expected: list[Message | TooLarge]) -> None:
        for size in range(1, len(stream) + 1):
            nats = started()
            assert copied(feed_all(nats, pieces_of(stream, size))) == copied(expected)
            assert (nats.failure, nats.holding) == (None, 0)
        for cut in range(len(stream)):
            nats = started()
            assert copied(nats.feed(stream[:cut]) + nats.feed(stream[cut:])) == copied(expected)

    check_every_row(check, TRAFFIC)


def test_a_whole_conversation_is_read_alike_in_random_pieces() -> None:
    rng = random.Random(1)
    large = rng.randbytes(3 * MIB)
    rows = [*TRAFFIC, (msg(b"big", b"2", large), [[b"2", b"big", b"", b"", large]])]
    rows.append((hmsg(b"big", b"2", STATUS, large, b"r"), [[b"2", b"big", b"r", STATUS, large]]))
    for _ in range(5):
        chosen = rng.choices(rows, k=30)
        stream = b"".join(each for each, _ in chosen)
        expected = [message for _, messages in chosen for message in messages]
        nats = started()
        assert copied(feed_all(nats, random_pieces(stream, rng))) == copied(expected)
        assert nats.outgoing == [b"PONG\r\n"] * (2 * [each for each, _ in chosen].count(b"PING\r\nping\r\n"))
        assert copied(read_into_gap(started(), stream, 50_000)) == copied(expected)


def test_a_large_payload_is_read_into_its_own_buffer() -> None:
    nats = started()
    payload = random.Random(2).randbytes(MIB)
    stream = hmsg(b"a", b"1", STATUS, payload)
    assert nats.feed(stream[:1000]) == []
    assert nats.gap is not None
    messages = read_into_gap(nats, stream[1000:], 64 * KIB)
    assert copied(messages) == [[b"1", b"a", b"", STATUS, payload]]
    ((*_, body),) = messages  # type: ignore[misc]
    assert type(body) is bytearray
    body.append(0)  # no memoryview of it exists
    assert nats.gap is None


def test_a_claimed_size_allocates_nothing() -> None:
    nats = started()
    tracemalloc.start()
    nats.feed(b"MSG a 1 60000000\r\nx")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * KIB


def test_the_pong_of_a_flush_is_returned_and_that_of_a_heartbeat_is_not() -> None:
    nats = started()
    assert nats.has_ping
    assert nats.encode(FLUSH) == [b"PING\r\n"]
    assert nats.ping() == b"PING\r\n"
    nats.encode(FLUSH)
    assert nats.feed(b"PONG\r\n") == [[b"PONG"]]
    assert nats.feed(b"PONG\r\n") == []
    assert nats.feed(b"PONG\r\nPONG\r\n") == [[b"PONG"]]


def test_a_carrier_that_is_not_ready_has_no_heartbeat() -> None:
    assert not Nats().has_ping


def test_lame_duck_mode_and_new_servers_are_told() -> None:
    nats = started()
    text = b'{"ldm":true,"connect_urls":["b:1","c:2"]}'
    assert nats.feed(b"INFO " + text + b"\r\n") == [[b"INFO", text]]
    assert nats.info.is_leaving
    assert nats.info.connect_urls == ("b:1", "c:2")


# ---- limits and violations

TINY = NatsLimits(max_line=40, max_info=120, max_headers=20, max_payload=50, hard_cap=500)


def test_a_message_over_a_limit_is_dropped_and_the_next_one_is_read() -> None:
    def check(large: bytes, size: int, cut: int) -> None:
        nats = started(TINY)
        stream = large + msg(b"b", b"2", b"next")
        told = feed_all(nats, pieces_of(stream, cut))
        assert copied(told) == [(size, [b"1", b"a", b"r"]), [b"2", b"b", b"", b"", b"next"]]
        assert nats.holding == 0

    payload, headers = b"p" * 51, b"h" * 21
    streams = [
        (msg(b"a", b"1", payload, b"r"), 51),
        (hmsg(b"a", b"1", headers, b"", b"r"), 21),
        (hmsg(b"a", b"1", headers, payload, b"r"), 72),
    ]
    check_every_row(check, [(stream, size, cut) for stream, size in streams for cut in (1, 3, 30, 1000)])


def test_a_message_at_its_limits_is_read() -> None:
    nats = started(TINY)
    assert nats.feed(hmsg(b"a", b"1", b"h" * 20, b"p" * 50)) == [[b"1", b"a", b"", b"h" * 20, b"p" * 50]]


def test_violations_end_the_connection_alike_in_every_cut() -> None:
    def check(stream: bytes, reason: str) -> None:
        for size in (1, 2, 7, len(stream)):
            nats = started(TINY)
            feed_all(nats, pieces_of(stream, size))
            assert reason_of(nats) == reason
            assert nats.holding == 0
            assert nats.feed(b"MSG a 1 1\r\nx\r\n") == []

    check_every_row(
        check,
        [
            (b"\r\n", "unknown verb"),
            (b"PUB a 1\r\nx\r\n", "unknown verb"),
            (b"MSGa 1 1\r\n", "unknown verb"),
            (b"MSG a 1\r\n", "bad message"),
            (b"MSG a 1 r s 1\r\n", "bad message"),
            (b"MSG\r\n", "bad message"),
            (b"HMSG a 1 1\r\n", "bad message"),
            (b"HMSG a 1 r s 1 1\r\n", "bad message"),
            (b"MSG a 1 -1\r\n", "bad message"),
            (b"MSG a 1 +1\r\n", "bad message"),
            (b"MSG a 1 1_0\r\n", "bad message"),
            (b"MSG a 1 \xb2\r\n", "bad message"),
            (b"MSG a 1 00000000001\r\n", "bad message"),
            (b"HMSG a 1 5 4\r\nxxxx\r\n", "bad size"),
            (b"MSG a 1 501\r\n", "bad size"),
            (b"MSG a 1 3\r\nabcd\r\n", "bad end"),
            (b"MSG a 1 3\r\nabc\n\n", "bad end"),
            (b"MSG a 1 60\r\n" + b"x" * 60 + b"yz", "bad end"),
            (b"MSG " + b"a" * 33 + b" 1 1\r\n", "line too long"),
            (b"x" * 41, "line too long"),
            (b"INFO " + b" " * 116 + b"\r\n", "line too long"),
            (b"INFO {\r\n", "bad INFO"),
        ],
    )


def test_a_line_at_its_limit_is_read() -> None:
    nats = started(TINY)
    subject = b"a" * (40 - len(b"MSG  1 1"))
    assert nats.feed(msg(subject, b"1", b"x")) == [[b"1", subject, b"", b"", b"x"]]


def test_limits_that_make_no_sense_are_refused() -> None:
    def check(**limits: int) -> None:
        with pytest.raises(ValueError, match="must be"):
            NatsLimits(**limits)

    for each in ({"max_line": 0}, {"max_info": 0}, {"max_headers": 0}, {"max_payload": 0}, {"hard_cap": 1}):
        check(**each)


def test_nothing_is_kept_after_the_end() -> None:
    nats = started()
    nats.feed(b"MSG a 1 1000000\r\n" + b"x" * 100_000)
    assert nats.holding > 0
    nats.release()
    assert (nats.holding, nats.gap) == (0, None)
    assert nats.feed(b"PING\r\n") == []


# ---- lines to the server


def test_every_line_to_the_server() -> None:
    nats = started()

    def check(frames: Message, expected: bytes) -> None:
        assert b"".join(nats.encode(frames)) == expected

    large = b"x" * (16 * KIB)
    check_every_row(
        check,
        [
            ([b"a.b", b"", b"", b"hello"], b"PUB a.b 5\r\nhello\r\n"),
            ([b"a.b", b"", b"", b""], b"PUB a.b 0\r\n\r\n"),
            ([b"a.b", b"r.1", b"", b"hello"], b"PUB a.b r.1 5\r\nhello\r\n"),
            ([b"a", b"", b"NATS/1.0\r\n\r\n", b"hi"], b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
            ([b"a", b"r", b"NATS/1.0\r\n\r\n", bytearray(b"hi")], b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
            ([b"a", b"r", b"", large], b"PUB a r 16384\r\n" + large + b"\r\n"),
            ([subscribe_line(b"1", b"a.*.>")], b"SUB a.*.> 1\r\n"),
            ([subscribe_line(b"22", b"a", b"group")], b"SUB a group 22\r\n"),
            ([unsubscribe_line(b"22")], b"UNSUB 22\r\n"),
            ([unsubscribe_line(b"22", 7)], b"UNSUB 22 7\r\n"),
        ],
    )
    assert nats.encode([b"a", b"r", b"", large])[1] is large  # not copied


def test_a_line_that_would_be_read_as_another_is_never_written() -> None:
    nats = started()

    def check(*frames: bytes) -> None:
        with pytest.raises(AssertionError):
            nats.encode(frames)

    wrong = (b"", b"a b", b"a\r\nPUB b", b" a", b"a ", b"\ta", b"a\n")
    check_every_row(check, [(each, b"", b"", b"x") for each in wrong])
    check_every_row(check, [(b"a", each, b"", b"x") for each in wrong if each])


def test_a_message_that_the_server_would_not_accept_is_never_written() -> None:
    """The server closes the connection after a message over its max_payload."""
    nats = Nats()
    nats.feed(b'INFO {"max_payload":20,"headers":true}\r\nPONG\r\n')
    assert nats.encode([b"a", b"", b"h" * 12, b"p" * 8])
    with pytest.raises(AssertionError, match="21 bytes; the server accepts 20"):
        nats.encode([b"a", b"", b"h" * 12, b"p" * 9])


def test_subjects_and_filters() -> None:
    def check(text: bytes, subject: bool, for_subscriptions: bool) -> None:
        assert (is_subject(text), is_filter(text)) == (subject, for_subscriptions)

    check_every_row(
        check,
        [
            (b"a", True, True),
            (b"a.b_-c.9", True, True),
            ("ü.x".encode(), True, True),
            (b"a.*", False, True),
            (b"*.b", False, True),
            (b">", False, True),
            (b"a.>", False, True),
            (b">.a", False, False),
            (b"a*", False, False),
            (b"", False, False),
            (b"a..b", False, False),
            (b".a", False, False),
            (b"a.", False, False),
            (b"a b", False, False),
            (b"a\n", False, False),
        ],
    )


def test_wrong_subscriptions_are_refused() -> None:
    def check(sid: bytes, subject: bytes, queue: bytes) -> None:
        with pytest.raises(ValueError, match="is not a"):
            subscribe_line(sid, subject, queue)

    wrong_sids = [(each, b"a", b"") for each in (b"", b"0", b"x", b"1 2", b"-1", b"1" * 20)]
    check_every_row(check, [*wrong_sids, (b"1", b"a b", b""), (b"1", b"", b""), (b"1", b"a", b"x y")])
    with pytest.raises(ValueError, match="is not a"):
        unsubscribe_line(b"x")
    with pytest.raises(ValueError, match="after=-1"):
        unsubscribe_line(b"1", -1)

"""Payloads in recordings: replaced at equal length, while everything else of a message stays."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pkgutil import resolve_name

from dragoman.carriers.carrier import Message
from dragoman.core.failure import Failure
from dragoman.core.kept_jobs import digest
from dragoman.core.states import Outcome
from dragoman.dialects.catalogue import DIALECTS
from dragoman.dialects.hidden_fields import Hide, hide_fields
from dragoman.dialects.majordomo import codec as majordomo
from dragoman.dialects.majordomo.editions import WIRES
from dragoman.dialects.memodb import codec as memodb
from dragoman.dialects.native import codec as native
from dragoman.dialects.native.messages import Hello, Role, SubmitHeader
from dragoman.dialects.pingpong import codec as pingpong
from dragoman.dialects.powerhose import codec as powerhose
from dragoman.recording.hidden_payloads import HiddenPayloads

SECRET = b"\x00a secret payload\xff"
TOKEN = bytes(range(16))


def hider(key: bytes | None = b"key") -> HiddenPayloads:
    return HiddenPayloads(key, lambda recorded, hidden: None)


def hidden(dialect: str, message: Message, socket_name: str = "door") -> Message:
    name = DIALECTS[dialect].hides
    assert name is not None
    hide: Callable[[str, Message, Hide], Message] = resolve_name(name)
    return hide(socket_name, list(message), hider())


def check(dialect: str, message: Message, payloads: int, socket_name: str = "door") -> Message:
    """Check that this number of payloads is replaced, at equal length and by equal bytes, and that the rest stays."""
    replaced = hider()(SECRET)
    result = hidden(dialect, message, socket_name)
    assert [len(frame) for frame in result] == [len(frame) for frame in message]
    assert [bytes(frame).replace(replaced, SECRET) for frame in result] == [bytes(frame) for frame in message]
    assert b"".join(result).count(replaced) == payloads
    assert SECRET not in b"".join(result) or not payloads
    return result


def test_every_dialect_with_connections_hides_its_payloads() -> None:
    assert [name for name, row in DIALECTS.items() if row.hides is None] == ["http"]


def test_pingpong() -> None:
    check("pingpong", [b"", SECRET], 1, "frontend")
    check("pingpong", [b"", SECRET], 1)
    check("pingpong", pingpong.write_result(SECRET, TOKEN), 1)
    for word in (b"READY", b"PING", b"PONG", b"EXIT", b"DISCONNECT"):
        check("pingpong", [b"", word], 0)


def test_majordomo() -> None:
    for wire in WIRES.values():
        check("majordomo", majordomo.write_client_request(wire, "work", SECRET), 1)
        check("majordomo", [*majordomo.write_client_request(wire, "work", SECRET), SECRET], 2)
        check("majordomo", majordomo.write_worker_reply(wire, TOKEN, SECRET), 1)
        check("majordomo", majordomo.write_ready(wire, "work"), 0)
        check("majordomo", majordomo.write_heartbeat(wire), 0)


def test_memodb() -> None:
    route = b"\x80\x00\x00\x01"
    check("memodb", [route, memodb.write_job(b"", "work", 1000) + SECRET], 1)
    check("memodb", [route, memodb.write_result(TOKEN, is_leaving=True) + SECRET], 1)
    check("memodb", [route, bytearray(memodb.write_result(TOKEN) + SECRET)], 1)
    check("memodb", [route, memodb.write_ready(["work"])], 0)


def test_powerhose() -> None:
    check("powerhose", [b"", SECRET], 1, "frontend")
    check("powerhose", powerhose.write_result(TOKEN.hex().encode(), SECRET), 1)
    check("powerhose", [b"", b"JOBRES:::" + SECRET], 1)
    check("powerhose", powerhose.write_ping("tcp://127.0.0.1:5000"), 0)
    check("powerhose", [b"", b"GIVE"], 0)


def test_controller() -> None:
    check("controller", [b"head", SECRET], 1)
    check("controller", [b"head", b""], 0)


def test_native() -> None:
    order = native.write_order(SubmitHeader("work", deadline=1.0))
    check("native", [order, TOKEN * 2, SECRET, SECRET], 2)
    extras = b'{"parent": "' + TOKEN.hex().encode() + b'"}'
    with_extras = [order[:1] + b"\x10" + order[2:], TOKEN * 2, extras, SECRET, SECRET]
    assert hidden("native", with_extras)[:3] == with_extras[:3]
    check("native", with_extras, 2)
    check("native", [*with_extras[:2], SECRET, SECRET, SECRET], 3)  # it may be anything
    check("native", [*with_extras[:2], SECRET, SECRET], 2)  # of a client that knows no extras
    check("native", native.write_result([TOKEN], [SECRET]), 1)
    check("native", native.write_report(TOKEN, SECRET, is_part=True), 1)
    check("native", native.write_ask(bytes(8), "enqueue", b'{"service":"work"}', SECRET), 1)
    check("native", native.write_hello(Hello(Role.WORKER, services=("work",))), 0)
    failed = hidden("native", native.write_failed(Outcome.FAILED, TOKEN, "ValueError", "it is 42", "line 42"))
    read = native.read_failed(failed)
    assert (read.type, len(read.message), len(read.detail)) == ("ValueError", 8, 7)
    assert "42" not in (read.message, read.detail)


def test_payloads_in_json_stay_valid() -> None:
    text, encoded = "Grüße", b64encode(b"12345").decode()
    fields = {"service": "work", "payload": text, "jobs": [{"payload_base64": encoded}], "payload_size": 3}
    result = hide_fields(fields, hider())
    assert len(result["payload"].encode()) == len(text.encode())
    assert len(b64decode(result["jobs"][0]["payload_base64"], validate=True)) == 5
    assert encoded != result["jobs"][0]["payload_base64"]
    assert (result["service"], result["payload_size"]) == ("work", 3)
    escaped = rb'{"\u0070ayload": "secret"}'
    asked = hidden("native", native.write_ask(bytes(8), "enqueue", escaped, b""))
    assert json.loads(asked[1])["payload"] != "secret"


def test_messages_that_cannot_be_read_are_replaced_completely() -> None:
    for dialect, row in DIALECTS.items():
        if row.hides is not None and dialect not in ("controller", "powerhose"):  # their heads are never payloads
            for message in ([SECRET], [SECRET, SECRET], [b"", SECRET, SECRET, SECRET]):
                result = hidden(dialect, message)
                start = 1 if dialect == "memodb" else 0  # the carrier's own frame
                assert SECRET not in b"".join(result[start:]), (dialect, message)


def test_equal_payloads_stay_equal_under_one_key_only() -> None:
    assert hider()(SECRET) == hider()(bytearray(SECRET)) != hider(b"other")(SECRET)
    assert hider()(SECRET) != hider()(SECRET[:-1] + b"\xfe")
    assert hider()(b"") == b""
    assert hider(None)(SECRET) == SECRET
    assert hider(None).failure(Failure("A", "b")) == ("A", "b", "", None, (), ())


def test_a_stored_payload_that_occurs_again_is_reported_once() -> None:
    found: list[tuple[bytes, bytes]] = []
    hide = HiddenPayloads(b"key", lambda recorded, hidden: found.append((recorded, hidden)))
    recorded = hide.stored_digest(digest(SECRET))
    assert recorded != digest(SECRET)
    assert hide(SECRET) == hide(SECRET)
    assert found == [(recorded, digest(hide(SECRET)))]

"""JSON of a request with a key that an object has twice: it is refused, whatever the spelling."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from case_tables import check_every_row
from dragoman.operations import validation
from dragoman.operations.json_api import JsonOperations
from dragoman.operations.schemas import ErrorView
from dragoman.operations.validation import decode

from .world import World

ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any)

REPEATED = [
    b'{"a":1,"a":2}',
    b'{"a" :1,"a" :2}',
    b'{ "a": 1, "b": 2,\n "a": 3 }',
    b'{"a":1,"\\u0061":2}',
    b'{"x":{"a":1,"a":1}}',
    b'[{"a":1},{"a":1,"a":1}]',
    b'{":a":":",":a":2}',
    b'{"":1,"":2}',
    b'{"v":"q",":x":1,":x":2}',
    '{"é":1,"é":2}'.encode(),
]
DISTINCT = [
    b"{}",
    b'{"a":1}',
    b'{"a":1,"b":2}',
    b'{"a": "b: c: d", "b": ":", "c": ":"}',
    b'{"a":"\\":","b":"\\":"}',
    b'[{"a":1},{"a":2}]',
    b'{"a":{"a":{"a":1}}}',
    b'{"a":":x","b":":y"}',
    b'{"a":"2030-01-01T08:00:00","b":"09:00:00"}',
]


def test_json_with_a_repeated_key_is_an_error_and_all_other_json_is_read() -> None:
    """msgspec takes the last of two without a word; another reader on the way may have checked the first."""

    def check(body: bytes, is_repeated: bool) -> None:
        if is_repeated:
            with pytest.raises(msgspec.ValidationError, match="is repeated; an object has each key once"):
                decode(ANYTHING, body)
        else:
            assert decode(ANYTHING, body) == json.loads(body)

    check_every_row(check, [*[(body, True) for body in REPEATED], *[(body, False) for body in DISTINCT]])


@pytest.mark.parametrize("body", [b'{"a":1,"a":2', b'{"a":1,,"b":2}', b'{"\xff":1,"a":2}', b'{"a":1,"b":2}}', b"::"])
def test_what_is_no_json_is_reported_as_such(body: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as caught:
        decode(ANYTHING, body)
    assert "repeated" not in str(caught.value)


def test_the_quick_look_never_misses_a_repeated_key() -> None:
    draw = random.Random(7)
    parts = ['"a"', '"b"', '":"', '":a"', ":", ":", ",", "{", "}", " ", '"\\""', "1", '""']
    for _ in range(20_000):
        text = "".join(draw.choice(parts) for _ in range(draw.randrange(3, 14)))
        body = ("{" + text + "}").encode()
        repeated = []

        def hook(pairs: list[tuple[str, Any]], repeated: list[object] = repeated) -> dict[str, Any]:
            if len(dict(pairs)) < len(pairs):
                repeated.append(pairs)
            return dict(pairs)

        try:
            json.loads(body, object_pairs_hook=hook)
        except ValueError:
            continue
        if repeated:
            assert validation._may_repeat(body), body


def test_an_operation_with_a_repeated_key_is_refused_with_a_sentence() -> None:
    world, said = World(), []

    class Responder:
        owner, dialect, origin, edition = world.owner, "native", "", 99

        def tell(self, *_: object) -> None:
            raise AssertionError("it was executed")

        def object(self, kind: str, detail: str) -> None:
            said.append(ErrorView(kind=kind, detail=detail))  # type: ignore[arg-type]

    responder: Any = Responder()
    JsonOperations(world.operations).ask("enqueue", b'{"service":"a","service":"b"}', b"", responder, world.now)
    [error] = said
    assert (error.kind, error.detail) == (
        "invalid",
        "enqueue: the key 'service' is repeated; an object has each key once",
    )
    assert not world.broker.jobs

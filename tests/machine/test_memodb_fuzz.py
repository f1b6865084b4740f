"""Any bytes are a message of MemoDB or malformed; another CBOR library checks both directions.

An accepted message must mean the same to the other library. A rejected one must not be a message that it finds valid
and deterministically encoded. Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import cbor2

from fuzz.memodb import checked

INPUTS = 20_000
MEMO01 = b"\x66memo01"


def judge_all(make: Callable[[random.Random], bytes], count: int, start: str) -> dict[str, int]:
    rng = random.Random(start)
    counts: dict[str, int] = {}
    for _ in range(count):
        told = checked(make(rng))
        counts[told] = counts.get(told, 0) + 1
    return counts


# -------------------------------------------------------------------- the inputs


def noise(rng: random.Random) -> bytes:
    """Random bytes, most of them behind a beginning that leads into the reader."""
    rest = rng.randbytes(rng.randrange(40))
    begin = bytes([0x80 | rng.randrange(3, 6)]) + MEMO01
    return (
        rng.choice([b"", begin, begin + bytes([rng.randrange(7)]), begin + bytes([rng.randrange(1, 6), 0x40])]) + rest
    )


def a_valid_message(rng: random.Random) -> bytes:
    id = rng.choice([b"", rng.randbytes(16), rng.randbytes(rng.randrange(40))])
    payload = rng.randbytes(rng.choice([0, 1, 5, 30]))
    names = ["".join(rng.choices("abcö€", k=rng.randrange(1, 30))) for _ in range(rng.choice([1, 1, 2, 64]))]
    timeout = rng.choice([-1, 0, 23, 24, 5000, 86_400_000, 2**32, 2**64 - 1])
    items, tail = rng.choice(
        [
            ([1, id, names], b""),
            ([2, id, names[0], timeout], payload),
            ([2, b"", "echo", timeout], payload),
            ([3, id], payload),
            ([3, id, rng.random() < 0.5], payload),
            ([4, id], b""),
            ([5, id], b""),
        ]
    )
    return cbor2.dumps(["memo01", *items], canonical=True) + tail


def mutated(rng: random.Random) -> bytes:
    body = bytearray(a_valid_message(rng))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(min(len(body), 40)) if body else 0
        match rng.randrange(5):
            case 0 if body:
                body[at] ^= 1 << rng.randrange(8)
            case 1 if body:
                body[at] = rng.randrange(256)
            case 2:
                body[at:at] = rng.randbytes(rng.randrange(1, 4))
            case 3:
                del body[at : at + rng.randrange(1, 4)]
            case 4:
                del body[rng.randrange(len(body) + 1) :]
    return bytes(body)


def hostile_item(rng: random.Random) -> bytes:
    """Sizes that no message has, nests, tags, floats, endless strings, and now and then something good."""
    length = rng.choice([1, 2, 4, 8])
    claim = bytes([rng.randrange(8) << 5 | 23 + length.bit_length()]) + rng.randbytes(length)
    depth = rng.choice([1, 2, 3, 50, 5000])
    return rng.choice(
        [
            claim,
            claim + rng.randbytes(10),
            bytes([rng.randrange(8) << 5 | rng.randrange(28, 32)]) + b"\x41a\xff",
            b"\x81" * depth + b"\x00",
            b"\x9f" * depth,
            b"\xa1" * depth,
            b"\xc6" * depth + b"\x01",
            bytes([0xC0 | rng.randrange(24)]) + b"\x42\x01\x02",
            b"\xd8" + bytes([rng.choice([28, 29, 30, 35, 36, 37])]) + b"\x61a",
            b"\xc4\x82\x1a\x3b\x9a\xca\x00\x01",
            b"\xf9" + rng.randbytes(2),
            b"\xfb" + rng.randbytes(8),
            bytes([0xE0 | rng.randrange(32)]),
            b"\x40",
            b"\x50" + rng.randbytes(16),
            b"\x58\x01a",
            b"\x64echo",
            b"\x78\x04echo",
            b"\x62\xc3" + rng.randbytes(1),
            b"\x81\x64echo",
            b"\x19\x13\x88",
            b"\x1b" + b"\0" * 7 + b"\x05",
            b"\x20",
            b"\x38\x00",
            b"\xf5",
        ]
    )


def hostile(rng: random.Random) -> bytes:
    count = rng.choice([3, 3, 4, 4, 5, 5, 0, 9])
    kind = rng.choice([1, 2, 3, 3, 4, 5, 6])
    id = rng.choice([b"\x40", b"\x50" + bytes(16), hostile_item(rng)])
    begin = rng.choice([MEMO01, MEMO01, MEMO01, b"\x78\x06memo01", hostile_item(rng)])
    items = [bytes([kind]), id, *(hostile_item(rng) for _ in range(rng.choice([max(0, count - 3), rng.randrange(4)])))]
    array = rng.choice([bytes([0x80 | count])] * 6 + [b"\x98" + bytes([count]), hostile_item(rng)])
    return array + begin + b"".join(items)


# -------------------------------------------------------------------- the tests

WORDS = {"Ready", "Job", "Result", "Heartbeat", "Disconnect"}


def test_noise_is_a_word_or_malformed() -> None:
    counts = judge_all(noise, INPUTS // 4, "noise")
    assert counts.keys() >= {
        "Result",
        "Heartbeat",
        "not a memo01 header",
        "truncated header",
        "wrong field",
        "extra field",
    }


def test_a_valid_message_is_accepted() -> None:
    counts = judge_all(a_valid_message, INPUTS // 8, "valid")
    assert counts.keys() == WORDS


def test_a_changed_message_is_a_word_or_malformed() -> None:
    counts = judge_all(mutated, INPUTS * 3 // 8, "mutated")
    assert counts.keys() >= WORDS | {"wrong version", "unknown type", "bad service name", "bad timeout"}
    assert counts.keys() >= {"missing field", "extra field", "unwanted payload", "header too long", "truncated header"}


def test_hostile_cbor_is_malformed_and_harms_nobody() -> None:
    counts = judge_all(hostile, INPUTS // 4, "hostile")
    assert counts.keys() >= WORDS | {"bad timeout", "bad service list", "bad service name", "header too long"}

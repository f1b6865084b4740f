"""I18 for NATS: any bytes, cut anywhere, give the same messages or the same one failure, and never an exception.

The carrier's thresholds (64 KiB, 1 MiB) are tiny here, so that short inputs reach every step; limits are tiny, too.
Random inputs come from fixed seeds: a failure prints the input and can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers import nats as carrier
from dragoman.carriers.carrier import TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats import Nats
from dragoman.carriers.nats_headers import read_headers, write_headers
from dragoman.carriers.nats_lines import FLUSH, NatsLimits

TINY = NatsLimits(max_line=60, max_info=90, max_headers=40, max_payload=80, hard_cap=300)
MOST = 2 + 90 + 60 + 40 + 80
INPUTS = 10_000
GREETING = b'INFO {"headers":true}\r\nPONG\r\n'
WORD = st.from_regex(r"[a-z0-9.]{1,8}", fullmatch=True).map(str.encode)

Outcome = tuple[list[object], str, bool, int, bytes]


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier, "LARGE_FRAME", 24)
        patch.setattr(carrier, "MIB", 40)
        patch.setattr(carrier, "PASSED_THROUGH", 30)
        yield


def run(stream: bytes, sizes: Iterator[int], use_gap: bool = False) -> Outcome:
    """Feed the whole stream in pieces of the given sizes, and return everything observable."""
    nats = Nats(limits=TINY)
    nats.encode(FLUSH)
    nats.ping()
    nats.encode(FLUSH)
    messages: list[object] = []
    pos = 0
    while pos < len(stream):
        count = next(sizes)
        gap = nats.gap
        if use_gap and gap is not None:
            piece = stream[pos : pos + min(count, len(gap))]
            gap[: len(piece)] = piece
            heard = nats.fill(len(piece))
        else:
            piece = stream[pos : pos + count]
            heard = nats.feed(piece)
        pos += len(piece)
        for message in heard:
            frames = message.frames if isinstance(message, TooLarge) else message
            size = message.size if isinstance(message, TooLarge) else 0
            messages.append((size, [bytes(frame) for frame in frames]))
            assert all(type(frame) is bytes for frame in frames[:-1])
            body = frames[-1]
            assert not isinstance(body, bytearray) or body.append(0) is None  # no memoryview of it exists
        assert nats.holding <= MOST, f"holds {nats.holding} bytes"
        assert nats.gap is None or len(nats.gap) > 0
    assert nats.failure is None or isinstance(nats.failure, Malformed)
    return messages, str(nats.failure or ""), nats.ready, bool(nats.holding), b"".join(nats.outgoing)


def assert_cuts_do_not_matter(stream: bytes, rng: random.Random) -> Outcome:
    whole = run(stream, repeat(len(stream)))
    assert run(stream, repeat(1)) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 30), k=11))) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 12), k=11)), use_gap=True) == whole, stream
    assert run(stream, cycle(rng.choices(range(1, 90), k=11)), use_gap=True) == whole, stream
    return whole


def random_line(rng: random.Random) -> bytes:
    """One of the lines of a server, with its payload; sometimes over a limit."""
    kind = rng.randrange(12)
    if kind == 0:
        return rng.choice((b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"pong\r\n"))
    if kind == 1:
        return b"-ERR '" + rng.choice((b"Invalid Subject", b"", b"Slow Consumer")) + b"'\r\n"
    if kind == 2:
        return (
            b"INFO "
            + rng.choice((b"{}", b'{"ldm":true}', b'{"max_payload":7} ', b'{"connect_urls":["a:1"]}'))
            + b"\r\n"
        )
    payload = rng.randbytes(rng.choice((0, 1, 5, 20, 22, 24, 26, 41, 70, 80, 81, 100)))
    headers = rng.choice((b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", rng.randbytes(40), rng.randbytes(41)))
    words = [rng.choice((b"a", b"a.b", b"x" * 30)), b"%d" % rng.randrange(1, 99)]
    words += rng.choice(([], [b"re.1"], [b"y" * 20]))
    sizes = [len(headers), len(headers + payload)] if headers or rng.random() < 0.1 else [len(payload)]
    verb = b"HMSG" if len(sizes) == 2 else b"MSG"
    space = b" " if rng.random() < 0.9 else b"\t "
    return space.join([verb, *words, *(b"%d" % each for each in sizes)]) + b"\r\n" + headers + payload + b"\r\n"


def random_conversation(rng: random.Random) -> bytes:
    return GREETING + b"".join(random_line(rng) for _ in range(rng.randint(0, 5)))


def mutate(stream: bytes, rng: random.Random) -> bytes:
    pos = rng.randrange(len(stream))
    kind = rng.randrange(4)
    if kind == 0:
        return stream[:pos] + bytes([rng.choice((13, 10, 32, 48, 57, rng.randrange(256)))]) + stream[pos + 1 :]
    if kind == 1:
        return stream[:pos] + bytes([stream[pos] ^ 1 << rng.randrange(8)]) + stream[pos + 1 :]
    if kind == 2:
        return stream[:pos] + rng.choice((b"\r\n", b"\r", b"\n", b" ", rng.randbytes(9))) + stream[pos:]
    return stream[:pos] + stream[pos + rng.randint(1, 9) :]


@pytest.mark.parametrize("seed", range(4))
def test_a_valid_conversation_with_something_wrong_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"mutated {seed}")
    for _ in range(INPUTS // 8):
        stream = mutate(random_conversation(rng), rng)
        assert_cuts_do_not_matter(stream[: rng.randint(0, 3 * len(stream))], rng)


@pytest.mark.parametrize("seed", range(2))
def test_a_valid_conversation_is_heard_alike_in_all_cuts(seed: int) -> None:
    rng = random.Random(f"valid {seed}")
    for _ in range(INPUTS // 8):
        _, failure, is_ready, is_holding, _ = assert_cuts_do_not_matter(random_conversation(rng), rng)
        assert (failure.partition(":")[0] in ("", "line too long"), is_ready, is_holding) == (True, True, False)


def test_the_conversations_reach_every_kind_of_end() -> None:
    """Else the tests above would prove little."""
    rng = random.Random("reach")
    ends = [run(mutate(random_conversation(rng), rng), repeat(10_000)) for _ in range(4000)]
    reasons = {failure.partition(":")[0] for _, failure, _, _, _ in ends}
    expected = {"", "not nats", "unknown verb", "bad message", "bad size", "bad end", "line too long", "bad INFO"}
    assert expected <= reasons
    sizes = {(size > 0, len(frames)) for told, _, _, _, _ in ends for size, frames in told}  # type: ignore[misc]
    assert {(False, 5), (True, 3), (False, 2), (False, 1)} <= sizes


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 1 << 32))
def test_any_bytes_give_the_same_end_in_all_cuts(stream: bytes, seed: int) -> None:
    rng = random.Random(seed)
    assert_cuts_do_not_matter(stream, rng)
    assert_cuts_do_not_matter(GREETING + stream, rng)
    assert_cuts_do_not_matter(GREETING + b"MSG " + stream, rng)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(WORD, st.sampled_from([b"", b"r.1"]), st.binary(max_size=40), st.binary(max_size=80)), max_size=5
    ),
    st.integers(0, 1 << 32),
)
def test_what_we_publish_is_what_a_server_reads(messages: list[tuple[bytes, ...]], seed: int) -> None:
    """PUB and HPUB are MSG and HMSG without a number: the same parser reads them back, if it is put in."""
    nats = Nats(limits=TINY)
    nats.feed(GREETING)
    stream, expected = GREETING, []
    for subject, reply, headers, payload in messages:
        line, _, rest = b"".join(nats.encode([subject, reply, headers, payload])).partition(b"\r\n")
        verb, _, words = line.partition(b" ")
        told = verb.replace(b"PUB", b"MSG") + b" " + subject + b" 7" + words.removeprefix(subject)
        stream += told + b"\r\n" + rest
        expected.append((0, [b"7", subject, reply, headers, payload]))
    assert assert_cuts_do_not_matter(stream, random.Random(seed))[:3] == (expected, "", True)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_any_block_of_headers_is_read_or_malformed(block: bytes) -> None:
    for each in (block, b"NATS/1.0\r\n" + block + b"\r\n\r\n", b"NATS/1.0 " + block + b"\r\n\r\n"):
        try:
            headers = read_headers(each)
        except Malformed:
            continue
        if each:
            again = read_headers(write_headers(headers.fields, headers.status, headers.description))
            assert (again.status, again.description, again.fields) == (
                headers.status,
                headers.description,
                headers.fields,
            )

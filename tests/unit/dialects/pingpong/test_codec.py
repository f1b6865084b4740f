"""Codec of PingPong: every row of the page's table, and every shape that is in none of its rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome
from dragoman.dialects import single_frame_calls, single_frame_client
from dragoman.dialects.pingpong import codec
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import Disconnect, Exit, Job, Ping, Pong, Ready, Result
from dragoman.dialects.single_frame_client import Ended

PLAIN, PACKAGE = Edition.PLAIN, Edition.PACKAGE
both = pytest.mark.parametrize("edition", [PLAIN, PACKAGE])


def reason_of(read: object, *arguments: object) -> str:
    with pytest.raises(Malformed) as caught:
        read(*arguments)  # type: ignore[operator]
    assert caught.value.detail
    return caught.value.reason


# -------------------------------------------------------------------- worker to broker


@both
@pytest.mark.parametrize(
    ("word", "meaning"),
    [(b"READY", Ready()), (b"PING", Ping()), (b"PONG", Pong()), (b"EXIT", Exit()), (b"DISCONNECT", Disconnect())],
)
def test_control_words_are_read_in_both_editions(edition: Edition, word: bytes, meaning: object) -> None:
    assert codec.read_worker([b"", word], edition) == meaning
    assert codec.read_worker([bytearray(), bytearray(word)], edition) == meaning


@both
@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        ([b"1"], (b"1",)),
        ([b"1", b"2"], (b"1", b"2")),
        ([b"1", b"2", b"3"], (b"1", b"2")),
        ([b"x" * 32], (b"x" * 32,)),
        ([b"x" * 33], ()),
        ([b"x" * 33, b"2"], (b"2",)),
        ([b""], (b"",)),
        ([b"1"] * 6, (b"1", b"1")),
    ],
)
def test_r47_of_a_pings_counts_at_most_two_of_32_bytes_are_kept(
    edition: Edition, sent: list[bytes], echoed: tuple[bytes, ...]
) -> None:
    assert codec.read_worker([b"", b"PING", *sent], edition) == Ping(echoed)


@pytest.mark.parametrize(
    "payload",
    [b"", b"result", b"ready", b"ping", b"pong", b"READY ", b"READY\0", b"JOB COMPLETE", b"\0", b"P" * 100, b"PING\n"],
)
def test_in_plain_any_other_second_frame_is_a_result(payload: bytes) -> None:
    """Words are case-sensitive and have no terminator; `['ping', count]` of the second text's sketch is not spoken."""
    read = codec.read_worker([b"", payload], PLAIN)
    assert isinstance(read, Result)
    assert (read.payload, read.token) == (payload, None)


@pytest.mark.parametrize("payload", [b"", b"result", b"READY", b"PONG"])
def test_in_package_a_result_stands_behind_its_envelope(payload: bytes) -> None:
    read = codec.read_worker([b"", b"JOB COMPLETE", b"t" * 16, b"", payload], PACKAGE)
    assert isinstance(read, Result)
    assert (read.payload, read.token) == (payload, b"t" * 16)


@both
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ([], "too few frames"),
        ([b""], "too few frames"),
        ([b"PING"], "too few frames"),
        ([b"x", b"PING"], "no delimiter"),
        ([b"PING", b""], "no delimiter"),
        ([b"", b"READY", b""], "unexpected frames"),
        ([b"", b"PONG", b"1"], "unexpected frames"),
        ([b"", b"EXIT", b"1"], "unexpected frames"),
        ([b"", b"DISCONNECT", b""], "unexpected frames"),
        ([b"", b"a", b"b"], "unexpected frames"),
        ([b"", b"JOB COMPLETE", b"t", b"x", b"r"], "unexpected frames"),
        ([b"", b"JOB COMPLETE", b"t", b""], "unexpected frames"),
        ([b"", b"JOB COMPLETE", b"t", b"", b"r", b""], "unexpected frames"),
        ([b"", b"PING", *[b"1"] * 7], "too many frames"),
        ([b""] * 9, "too many frames"),
    ],
)
def test_r48_other_shapes_from_a_worker_are_malformed(edition: Edition, message: list[bytes], reason: str) -> None:
    assert reason_of(codec.read_worker, message, edition) == reason


def test_the_envelope_of_package_is_malformed_in_plain_and_a_bare_result_in_package() -> None:
    assert reason_of(codec.read_worker, [b"", b"JOB COMPLETE", b"t", b"", b"r"], PLAIN) == "unexpected frames"
    assert reason_of(codec.read_worker, [b"", b"result"], PACKAGE) == "unexpected frames"


def test_a_payload_is_never_shown_in_the_detail() -> None:
    with pytest.raises(Malformed) as caught:
        codec.read_worker([b"", b"secret", b"frames"], PLAIN)
    assert "secret" not in str(caught.value)
    with pytest.raises(Malformed) as caught:
        codec.read_worker([b"", b"READY", b"secret"], PLAIN)
    assert "READY" in str(caught.value)
    assert "secret" not in str(caught.value)


# -------------------------------------------------------------------- client to broker


@pytest.mark.parametrize("payload", [b"", b"job", b"READY", b"PONG"])
def test_a_clients_job_is_the_frame_behind_the_delimiter(payload: bytes) -> None:
    assert single_frame_calls.read_call([b"", payload]) == payload


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ([], "too few frames"),
        ([b""], "too few frames"),
        ([b"job"], "too few frames"),
        ([b"x", b"job"], "no delimiter"),
        ([b"x", b"job", b"more"], "no delimiter"),
        ([b"", b"a", b"b"], "unexpected frames"),
        ([b""] * 9, "unexpected frames"),
    ],
)
def test_r48_other_shapes_from_a_client_are_malformed(message: list[bytes], reason: str) -> None:
    assert reason_of(single_frame_calls.read_call, message) == reason


# -------------------------------------------------------------------- broker to worker


@both
def test_a_worker_reads_pong_with_and_without_counts_and_exit(edition: Edition) -> None:
    assert codec.read_broker([b"", b"PONG"], edition) == Pong()
    assert codec.read_broker([b"", b"PONG", b"7"], edition) == Pong()
    assert codec.read_broker([b"", b"EXIT"], edition) == Exit()


@pytest.mark.parametrize("payload", [b"", b"job", b"READY", b"PING"])
def test_a_plain_worker_takes_all_else_for_a_job(payload: bytes) -> None:
    assert codec.read_broker(codec.write_job(payload, None), PLAIN) == Job(payload)


@pytest.mark.parametrize("payload", [b"", b"job", b"PONG", b"EXIT"])
def test_a_package_job_may_be_any_word_at_all(payload: bytes) -> None:
    frames = codec.write_job(payload, b"t" * 16)
    assert frames == [b"", payload, b"t" * 16, b"", b""]
    assert codec.read_broker(frames, PACKAGE) == Job(payload, b"t" * 16)


@pytest.mark.parametrize(
    ("edition", "message"),
    [
        (PLAIN, []),
        (PLAIN, [b""]),
        (PLAIN, [b"x", b"job"]),
        (PLAIN, [b"", b"EXIT", b"x"]),
        (PLAIN, [b"", b"job", b"x"]),
        (PLAIN, [b"", b"job", b"t", b"", b""]),
        (PACKAGE, [b"", b"job"]),
        (PACKAGE, [b"", b"job", b"t", b""]),
    ],
)
def test_other_shapes_from_a_broker_are_malformed(edition: Edition, message: list[bytes]) -> None:
    assert reason_of(codec.read_broker, message, edition)


# -------------------------------------------------------------------- broker to client


@pytest.mark.parametrize("payload", [b"", b"result", b"ERROR"])
def test_a_client_reads_a_result(payload: bytes) -> None:
    assert single_frame_client.read_answer([b"", payload]) == payload


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.DONE])
@pytest.mark.parametrize("reason", ["its worker's connection ended", "kein Öl", "ValueError: no", ""])
def test_a_client_reads_an_error_with_its_outcome_and_its_reason(outcome: Outcome, reason: str) -> None:
    frames = single_frame_calls.write_error(outcome, reason)
    assert frames == [b"", b"", b"ERROR", f"{outcome}: {reason}".encode()]
    read = single_frame_client.read_answer(frames)
    assert isinstance(read, Ended)
    assert (read.outcome, read.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("reason", "refusal"),
    [
        ("busy: 5 jobs are present", "busy"),
        ("no such service: 'x'", "no such service"),
        (single_frame_client.too_large(20, 10), "too large"),
        ("", ""),
    ],
)
def test_a_client_reads_the_kind_of_a_refusal(reason: str, refusal: str) -> None:
    frames = single_frame_calls.write_error(Outcome.REFUSED, reason)
    assert single_frame_client.read_answer(frames) == Ended(Outcome.REFUSED, reason, refusal)


@pytest.mark.parametrize("text", ["", "out of order", "done: or not", "unavailable: x", "Lost: x"])
def test_an_error_without_an_outcome_that_is_known_is_a_reason(text: str) -> None:
    assert single_frame_client.read_answer([b"", b"", b"ERROR", text.encode()]) == Ended(None, text)


def test_a_reason_that_is_not_utf8_is_still_read() -> None:
    assert single_frame_client.read_answer([b"", b"", b"ERROR", b"lost: \xff"]) == Ended(Outcome.LOST, "\ufffd")


@pytest.mark.parametrize(
    "message", [[], [b""], [b"x", b"y"], [b"", b"a", b"b"], [b"", b"", b"error", b"x"], [b"", b"x", b"ERROR", b"r"]]
)
def test_other_shapes_to_a_client_are_malformed(message: list[bytes]) -> None:
    assert reason_of(single_frame_client.read_answer, message)


# -------------------------------------------------------------------- both ways


def test_what_a_worker_writes_a_broker_reads() -> None:
    plain = codec.read_worker(codec.write_result(b"r", None), PLAIN)
    package = codec.read_worker(codec.write_result(b"r", b"t"), PACKAGE)
    assert isinstance(plain, Result)
    assert isinstance(package, Result)
    assert (plain.payload, plain.token) == (b"r", None)
    assert (package.payload, package.token) == (b"r", b"t")


WORDS = [b"", b"READY", b"PING", b"PONG", b"EXIT", b"DISCONNECT", b"JOB COMPLETE", b"ERROR"]
frame = st.sampled_from(WORDS) | st.binary(max_size=40)


@both
@settings(max_examples=100, deadline=None)
@given(message=st.lists(frame, max_size=10))
def test_any_frames_are_a_word_or_malformed(edition: Edition, message: list[bytes]) -> None:
    for read, arguments in (
        (codec.read_worker, (message, edition)),
        (codec.read_broker, (message, edition)),
        (single_frame_calls.read_call, (message,)),
        (single_frame_client.read_answer, (message,)),
    ):
        try:
            read(*arguments)  # type: ignore[operator]
        except Malformed:
            pass

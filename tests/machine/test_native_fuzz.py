"""Any frames are a message of the native dialect or malformed, for every reader, and what is decoded can be encoded.

Random inputs come from fixed seeds: a failure prints the input and can be repeated. Broker sides are tested with
hostile connections in tests/unit/dialects/native/test_machine.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from time import process_time
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import JobId
from dragoman.dialects.native import codec
from dragoman.dialects.native.extras import OF_SUBMIT, read_extras, submit_with, write_extras
from dragoman.dialects.native.messages import ACK, OUTCOMES, Failed, Flag, Hello, Role, SubmitHeader, Welcome

INPUTS = 20_000
Frames = list[Frame]


def hello_again(hello: Hello) -> Frames:
    return codec.write_hello(hello)


def failed_again(said: Failed) -> Frames:
    return codec.write_failed(said.outcome, said.name, said.type, said.message, said.detail)


def extras_again(read: JobExtras | None) -> bytes:
    return write_extras(read, OF_SUBMIT) if read is not None else b"{}"


def order_again(order: SubmitHeader) -> Frames:
    return [codec.write_order(order)]


# A reader, and a function that encodes what it has decoded, so that it decodes to the same. None: not all is known.
READERS: dict[str, tuple[Callable[[Frames], Any], Callable[[Any], Frames] | None]] = {
    "HELLO": (codec.read_hello, hello_again),
    "WELCOME": (codec.read_welcome, lambda welcome: codec.write_welcome(welcome, Role.CLIENT)),
    "ERROR": (codec.read_error, lambda said: codec.write_error(*said)),
    "BYE": (codec.read_bye, lambda said: codec.write_bye(said[1], is_final=said[0])),
    "SUBMIT": (lambda frames: codec.read_order(frames[0]), order_again),
    "extras": (lambda frames: read_extras(frames[-1]), lambda read: [extras_again(read)]),
    "JOB": (codec.read_jobs, None),
    "RECALL": (codec.read_recall, lambda said: codec.write_recall(*said)),
    "RESULT": (codec.read_result, lambda names: codec.write_result(names, [b""] * len(names))),
    "FAILED": (codec.read_failed, failed_again),
    "report": (codec.read_report, lambda said: codec.write_report(*said, is_part=True)),
    "number": (lambda frames: codec.read_report_number(frames[0]), None),
    "ASK": (codec.read_ask, lambda said: codec.write_ask(*said)),
    "TELL": (codec.read_tell, lambda said: codec.write_tell(*said)),
    "OBJECT": (codec.read_object, lambda said: codec.write_object(*said)),
    "list": (codec.read_list, lambda names: codec.write_list(ACK, names)),
}


def outcome(read: Callable[[Frames], Any], frames: Frames) -> Any:
    try:
        return read(frames)
    except Malformed as error:
        return error


def judge(frames: Frames) -> set[str]:
    """Reads it in every way; which of them understood it."""
    understood = set()
    for name, (read, write) in READERS.items():
        said = outcome(read, frames)
        if isinstance(said, Malformed):
            assert said.reason in ("malformed", "version"), frames
            assert len(said.detail) < 200, frames
            continue
        understood.add(name)
        assert read([bytearray(frame) for frame in frames]) == said, frames
        if write is not None and sum(map(len, frames)) < 20_000:  # of longer texts a part is cut off
            assert read(write(said)) == said, frames
    return understood


def judge_all(make: Callable[[random.Random], Frames], count: int, start: str) -> set[str]:
    rng = random.Random(start)
    understood: set[str] = set()
    begin = process_time()
    for _ in range(count):
        frames = make(rng)
        if frames[0]:  # the broker side checks the first byte before any reader
            understood |= judge(frames)
    assert process_time() - begin < count * 0.005
    return understood


# -------------------------------------------------------------------- the inputs


def noise(rng: random.Random) -> Frames:
    sizes = (0, 1, 2, 3, 16, 17, 18, 19, 32, 38, 76, 200)
    return [rng.randbytes(rng.choice(sizes)) for _ in range(rng.randrange(1, 6))]


def name(rng: random.Random) -> bytes:
    return rng.randbytes(16)


def text(rng: random.Random) -> str:
    return "".join(rng.choices("abcö€\0\ud800 ", k=rng.randrange(30)))


def some_extras(rng: random.Random) -> JobExtras:
    return JobExtras(JobId(name(rng)), rng.choice(("", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")))


def a_valid_message(rng: random.Random) -> Frames:
    names = [name(rng) for _ in range(rng.choice((1, 1, 2, 1024)))]
    payloads: Frames = [rng.randbytes(rng.randrange(9)) for _ in names]
    seconds = rng.choice((0.0, 0.001, 5.0, 1e9))
    services = tuple(text(rng).replace("\ud800", "") for _ in range(rng.choice((1, 2, 64))))
    return rng.choice(
        [
            codec.write_hello(Hello(Role.WORKER, rng.randrange(1, 256), text(rng), services, rng.randrange(1, 1025))),
            codec.write_hello(Hello(Role.CLIENT, session=name(rng).hex(), window=rng.randrange(1, 1 << 32))),
            codec.write_welcome(Welcome(seconds, seconds, 1 << 30, 5, seconds, True, "e", text(rng)), Role.CLIENT),
            codec.write_error(rng.randrange(256), "role", text(rng)),
            codec.write_bye(text(rng), is_final=rng.random() < 0.5),
            [
                codec.write_order(SubmitHeader(services[0], Flag(rng.randrange(8)), rng.randrange(10), 7, seconds)),
                *names,
            ],
            codec.write_jobs("echo", [codec.write_record(each, each, 1, seconds) for each in names], payloads),
            [*submit_with([codec.write_order(SubmitHeader("s")), *names[:1], b"x"], some_extras(rng), OF_SUBMIT)],
            [*codec.write_jobs("s", [codec.write_record(name(rng), name(rng), 1, 1.0)], [b"x"]), b'[{"waited": 1}]'],
            codec.write_recall(name(rng), text(rng)),
            codec.write_result(names, payloads),
            codec.write_failed(OUTCOMES[rng.randrange(1, 6)], name(rng), text(rng), text(rng), text(rng)),
            codec.write_report(name(rng), b"x", is_part=True, attempt=rng.choice((None, 3))),
            codec.write_list(ACK, names),
            codec.write_ask(name(rng)[:8], services[0], b"{}", rng.choice((b"", b"x"))),
            codec.write_tell(name(rng)[:8], b"{}", b"x"),
            codec.write_object(name(rng)[:8], "busy", text(rng)),
        ]
    )


def mutated(rng: random.Random) -> Frames:
    frames = [bytearray(frame) for frame in a_valid_message(rng)]
    for _ in range(rng.randrange(1, 4)):
        frame = rng.choice(frames[:3])
        at = rng.randrange(min(len(frame), 60) + 1)
        match rng.randrange(6):
            case 0 if frame:
                frame[at % len(frame)] ^= 1 << rng.randrange(8)
            case 1:
                frame[at:at] = rng.randbytes(rng.choice((1, 2, 16)))
            case 2:
                del frame[at : at + rng.choice((1, 2, 16))]
            case 3:
                frames.insert(rng.randrange(len(frames) + 1), bytearray(rng.randbytes(rng.randrange(20))))
            case 4 if len(frames) > 1:
                del frames[rng.randrange(1, len(frames))]
            case 5:
                del frame[at:]
    return [bytes(frame) for frame in frames]


def hostile_json(rng: random.Random) -> Frames:
    """Anything that JSON has, where HELLO and WELCOME want something else."""
    values: list[Any] = [None, True, 0, -1, 1, 1025, 2**63, 10**400, 1.5, -0.0, float("inf"), "", "x" * 200, "\ud800"]
    values += [[], ["echo"], ["echo", 1], [["echo"]], {}, {"a": {}}, "AB" * 16, ["n" * 200] * 65, [""] * 64]
    keys = [
        "services",
        "capacity",
        "name",
        "session",
        "window",
        "heartbeat",
        "lease",
        "max_payload",
        "resumed",
        "later",
    ]
    about = {key: rng.choice(values) for key in rng.choices(keys, k=rng.randrange(5))} | {"services": ["echo"]}
    encoded = json.dumps(about, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    encoded = rng.choice([encoded, encoded, encoded, b"[" * rng.choice((1, 60_000)), encoded[:-1], encoded * 2])
    return [bytes((rng.choice((1, 2)), rng.randrange(3), rng.randrange(4))), encoded]


# -------------------------------------------------------------------- the tests


def test_noise_is_a_word_or_malformed() -> None:
    assert judge_all(noise, INPUTS // 4, "noise") >= {"BYE", "ERROR", "SUBMIT", "RECALL", "RESULT", "report", "list"}


def test_a_valid_message_is_understood() -> None:
    assert judge_all(a_valid_message, INPUTS // 40, "valid") == set(READERS)


def test_a_changed_message_is_a_word_or_malformed() -> None:
    assert judge_all(mutated, INPUTS // 8, "mutated") == set(READERS)


def test_hostile_json_is_a_word_or_malformed() -> None:
    assert judge_all(hostile_json, INPUTS // 8, "json") >= {"HELLO", "WELCOME"}

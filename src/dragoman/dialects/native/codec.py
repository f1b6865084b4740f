"""Codec of the native dialect: frames to messages and back, without state. Readers raise Malformed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import MOST_DECISION, Failure, pack_failure, read_decision
from dragoman.core.infinity import inf
from dragoman.core.states import Outcome
from dragoman.dialects.native.job_extras import with_job_extras
from dragoman.dialects.native.json_fields import (
    count_field,
    names_in,
    parameters_field,
    read_json,
    seconds_field,
    services_field,
    session_field,
    text_field,
)
from dragoman.dialects.native.limit_fields import read_limits, write_limits
from dragoman.dialects.native.messages import (
    ACCEPTED,
    ACK,
    ASK,
    BYE,
    CANCEL,
    ERROR,
    FAILED,
    HELLO,
    JOB,
    MISSING,
    MOST_NAMES,
    MOST_TEXT,
    MOVE,
    NAME,
    NUMBER,
    OBJECT,
    OUTCOME_NUMBERS,
    OUTCOMES,
    PART,
    PROGRESS,
    RECALL,
    RESULT,
    RESUME,
    RETURN,
    SUBMIT,
    TELL,
    VERSION,
    WELCOME,
    Failed,
    Flag,
    Hello,
    Job,
    Role,
    SubmitHeader,
    Welcome,
)
from dragoman.dialects.native.running_fields import read_running, read_tokens, write_running, write_tokens

_SUBMIT: Final = Struct(">BBBBIII")
_RECORD: Final = Struct(">16s16sHI")
_REPORT: Final = Struct(">B16sH")
LONGEST: Final = 0xFFFFFFFF  # milliseconds: 49 days
MAX_CAPACITY: Final = 1024

RESULT_BYTE: Final = bytes((RESULT,))
JOB_BYTE: Final = bytes((JOB,))
TELL_BYTE: Final = bytes((TELL,))


# -------------------------------------------------------------------- names


def read_names(frame: Frame, start: int = 0) -> list[bytes]:
    """Return the names in a frame, from `start` on."""
    data = bytes(frame)
    count, rest = divmod(len(data) - start, NAME)
    if rest or not 0 < count <= MOST_NAMES:
        raise Malformed("malformed", f"{len(data) - start} bytes; 1 to {MOST_NAMES} names of {NAME} bytes are required")
    return [data[at : at + NAME] for at in range(start, len(data), NAME)]


def read_list(message: Message) -> list[bytes]:
    """Return the names of ACK, CANCEL, RESUME, RETURN, ACCEPTED, MISSING."""
    if len(message) != 2:
        raise Malformed("malformed", f"{len(message)} frames; a head and names are required")
    return read_names(message[1])


def write_list(kind: int, names: Sequence[bytes]) -> list[Frame]:
    assert kind in (ACK, CANCEL, RESUME, RETURN, ACCEPTED, MISSING)
    return [bytes((kind,)), b"".join(names)]


# -------------------------------------------------------------------- start and end of a connection


def read_hello(message: Message) -> Hello:
    head, about = message[0], read_json(message)
    if len(head) < 3:
        raise Malformed("malformed", f"a HELLO of {len(head)} bytes; 3 are required")
    if head[1] < 1:
        raise Malformed("version", f"version {head[1]} is not supported; 1 to {VERSION} are")
    if head[2] not in tuple(Role):
        raise Malformed("malformed", f"role {head[2]} is unknown; 1 is a client, 2 a worker")
    role = Role(head[2])
    is_worker = role is Role.WORKER
    return Hello(
        role,
        head[1],
        name=text_field(about, "name", ""),
        services=services_field(about) if is_worker else (),
        capacity=count_field(about, "capacity", 1, MAX_CAPACITY) if is_worker else 1,
        returns=is_worker and about.get("returns") is True,
        retries=is_worker and about.get("retries") is True,
        moves=is_worker and about.get("moves") is True,
        running=read_running(about.get("running")) if is_worker else None,
        session="" if is_worker else session_field(about),
        epoch="" if is_worker else text_field(about, "epoch", ""),
        window=0 if is_worker else count_field(about, "window", 0, LONGEST),
        edition=1 if is_worker else count_field(about, "edition", 1, LONGEST),
        extras=about.get("extras") is True,
        parts=tuple(names_in(about.get("parts"))) if is_worker else (),
        limits=read_limits(about.get("limits")) if is_worker else None,
        parameters=parameters_field(about) if is_worker else None,
    )


def write_hello(hello: Hello) -> list[Frame]:
    about: dict[str, Any] = {"name": hello.name} if hello.name else {}
    if hello.role is Role.WORKER:
        about |= {"services": list(hello.services), "capacity": hello.capacity}
    about |= {key: True for key in ("returns", "retries", "moves", "extras") if getattr(hello, key)}
    if hello.parts:
        about["parts"] = list(hello.parts)
    if hello.limits:
        about["limits"] = write_limits(hello.limits)
    if hello.parameters:
        about["parameters"] = dict(hello.parameters)
    if hello.running:
        about["running"] = write_running(hello.running)
    if hello.session:
        about["session"] = hello.session
    if hello.epoch:
        about["epoch"] = hello.epoch
    if hello.window:
        about["window"] = hello.window
    if hello.edition > 1:
        about["edition"] = hello.edition
    return [bytes((HELLO, hello.version, hello.role)), json.dumps(about).encode()]


def read_welcome(message: Message) -> Welcome:
    head, about = message[0], read_json(message)
    if len(head) < 2 or head[1] != VERSION:
        raise Malformed("version", f"the broker chose version {head[1] if len(head) > 1 else 'none'}, not {VERSION}")
    return Welcome(
        heartbeat=seconds_field(about, "heartbeat", 2.5),
        lease=seconds_field(about, "lease", 10.0),
        max_payload=count_field(about, "max_payload", 64 << 20, 1 << 40),
        window=count_field(about, "window", 1, LONGEST),
        resume=seconds_field(about, "resume", 0.0),
        resumed=about.get("resumed") is True,
        epoch=text_field(about, "epoch", ""),
        broker=text_field(about, "broker", ""),
        retries=about.get("retries") is True,
        extras=tuple(names_in(about.get("extras", []))),
        limits=about.get("limits") is True,
        parameters=about.get("parameters") is True,
        running=read_tokens(about.get("running", "")),
    )


def write_welcome(welcome: Welcome, role: Role) -> list[Frame]:
    about: dict[str, Any] = {
        "broker": welcome.broker,
        "heartbeat": welcome.heartbeat,
        "lease": welcome.lease,
        "max_payload": welcome.max_payload,
    }
    if role is Role.CLIENT:
        about |= {"window": welcome.window, "resume": welcome.resume, "resumed": welcome.resumed}
        if welcome.epoch:
            about["epoch"] = welcome.epoch
    about |= {key: True for key in ("retries", "limits", "parameters") if getattr(welcome, key)}
    if welcome.extras:
        about["extras"] = list(welcome.extras)
    if welcome.running:
        about["running"] = write_tokens(welcome.running)
    return [bytes((WELCOME, VERSION)), json.dumps(about).encode()]


def read_error(message: Message) -> tuple[int, str, str]:
    """Return the message type that was wrong, the code and the sentence."""
    if len(message) < 3 or len(message[0]) < 2:
        raise Malformed("malformed", "an ERROR needs a code and a sentence")
    return message[0][1], _decode(message[1]), _decode(message[2])


def write_error(kind: int, code: str, sentence: str) -> list[Frame]:
    return [bytes((ERROR, kind)), code.encode(), _encode(sentence)]


def read_bye(message: Message) -> tuple[bool, str]:
    """Return whether it is for good, and the reason."""
    return len(message[0]) > 1 and message[0][1] == 1, _decode(message[1]) if len(message) > 1 else ""


def write_bye(sentence: str, *, is_final: bool) -> list[Frame]:
    return [bytes((BYE, is_final)), _encode(sentence)]


def write_move(sentence: str) -> list[Frame]:
    return [bytes((MOVE,)), _encode(sentence)]


def expect_frames(message: Message, most: int) -> None:
    if len(message) > most:
        raise Malformed("malformed", f"{len(message)} frames; at most {most} are allowed")


# -------------------------------------------------------------------- jobs


def read_order(head: Frame) -> SubmitHeader:
    """Parse the head of SUBMIT."""
    if len(head) < _SUBMIT.size:
        raise Malformed("malformed", f"a SUBMIT of {len(head)} bytes; {_SUBMIT.size} and a service are required")
    _, flags, priority, attempts, deadline, job_timeout, queue_timeout = _SUBMIT.unpack_from(head)
    if priority > 9 and priority != 255:
        raise Malformed("malformed", f"priority {priority}: 0 to 9 are allowed, or 255 for the default")
    if attempts > 100:
        raise Malformed("malformed", f"attempts {attempts}: 1 to 100 are allowed, or 0 for the default")
    try:
        service = bytes(head[_SUBMIT.size :]).decode()
    except UnicodeDecodeError:
        raise Malformed("malformed", "the service's name is not UTF-8") from None
    return SubmitHeader(
        service, Flag(flags & 31), priority, attempts, _time(deadline), _time(job_timeout), _time(queue_timeout)
    )


def write_order(order: SubmitHeader) -> bytes:
    return (
        _SUBMIT.pack(
            SUBMIT,
            order.flags,
            order.priority,
            order.attempts,
            _milliseconds(order.deadline),
            _milliseconds(order.job_timeout),
            _milliseconds(order.queue_timeout),
        )
        + order.service.encode()
    )


def write_record(token: bytes, id: bytes, attempt: int, timeout: float) -> bytes:
    """Encode the record of one job in a JOB. An expired timeout is encoded as 1 ms; inf: no limit."""
    return _RECORD.pack(token, id, attempt, 0 if timeout == inf else min(max(int(timeout * 1000), 1), LONGEST))


def write_jobs(service: str, records: Sequence[bytes], payloads: Sequence[Frame]) -> list[Frame]:
    return [JOB_BYTE + service.encode(), b"".join(records), *payloads]


def read_jobs(message: Message) -> list[Job]:
    """Return the jobs of a JOB, in the order of its payloads."""
    records = message[1] if len(message) > 1 else b""
    count, rest = divmod(len(records), _RECORD.size)
    payloads = len(message) - 2
    if rest or not 0 < count <= MOST_NAMES or not count <= payloads <= count + 1:
        raise Malformed("malformed", f"a JOB has {len(records)} bytes of records for {payloads} payloads")
    service = _decode(message[0][1:])
    jobs = [
        Job(token, id, attempt, timeout / 1000, service) for token, id, attempt, timeout in _RECORD.iter_unpack(records)
    ]
    return jobs if payloads == count else with_job_extras(jobs, message[-1])


def write_recall(token: bytes, reason: str) -> list[Frame]:
    return [bytes((RECALL,)) + token, _encode(reason)]


def read_recall(message: Message) -> tuple[bytes, str]:
    return read_name(message[0]), _decode(message[1]) if len(message) > 1 else ""


def _milliseconds(seconds: float) -> int:
    """Convert a time: 0 only for 0, which means not set; inf has a value, too."""
    if seconds == inf:
        return LONGEST
    return min(max(round(seconds * 1000), 1), LONGEST) if seconds > 0 else 0


def _time(milliseconds: int) -> float:
    return inf if milliseconds == LONGEST else milliseconds / 1000


# -------------------------------------------------------------------- results


def read_result(message: Message) -> list[bytes]:
    """Return the names of a RESULT, in the order of its payloads."""
    names = read_names(message[0], 1)
    if len(names) != len(message) - 1:
        raise Malformed("malformed", f"{len(names)} names for {len(message) - 1} payloads")
    return names


def write_result(names: Sequence[bytes], payloads: Sequence[Frame]) -> list[Frame]:
    return [RESULT_BYTE + b"".join(names), *payloads]


def read_failed(message: Message) -> Failed:
    head = message[0]
    if len(head) < 2 + NAME or not 4 <= len(message) <= 5:
        raise Malformed("malformed", f"FAILED of {len(message)} frames; head, type, message and detail are required")
    if head[1] not in OUTCOMES:
        raise Malformed("malformed", f"outcome {head[1]}: 1 to {max(OUTCOMES)} are allowed")
    type, text, detail = (_decode(frame[:MOST_TEXT]) for frame in message[1:4])
    is_decided = len(message) > 4
    decision = _decode(message[4]) if is_decided and len(message[4]) <= MOST_DECISION else ""
    retry_in, (unknown, known) = read_decision(decision)
    if is_decided and retry_in is None:
        raise Malformed(
            "malformed", 'the last frame of FAILED must be seconds, such as "10", or "never"; or "unknown" with names'
        )
    return Failed(OUTCOMES[head[1]], read_name(head, 2), type, text, detail, retry_in, unknown, known)


def write_failed(
    outcome: Outcome, name: bytes, type: str, message: str, detail: str = "", decision: str = ""
) -> list[Frame]:
    """`decision`: of a worker, about retries; empty: it has made none."""
    frames: list[Frame] = [bytes((FAILED, OUTCOME_NUMBERS[outcome])) + name]
    frames += [_encode(type), _encode(message), _encode(detail)]
    return [*frames, decision.encode()] if decision else frames


def read_name(head: Frame, start: int = 1) -> bytes:
    """Return the name in PROGRESS, PART, RECALL and, at position 2, in FAILED."""
    if len(head) < start + NAME:
        raise Malformed("malformed", f"a head of {len(head)} bytes has no name")
    return bytes(head[start : start + NAME])


def read_report(message: Message) -> tuple[bytes, Frame]:
    """Return name and payload of PROGRESS or PART."""
    if len(message) != 2:
        raise Malformed("malformed", f"{len(message)} frames; a head and a payload are required")
    return read_name(message[0]), message[1]


def read_report_number(head: Frame) -> int:
    """Return the attempt number of a PROGRESS or PART to a client."""
    if len(head) < _REPORT.size:
        raise Malformed("malformed", f"a head of {len(head)} bytes; {_REPORT.size} are required")
    number: int = _REPORT.unpack_from(head)[2]
    return number


def write_report(name: bytes, payload: Frame, *, is_part: bool, attempt: int | None = None) -> list[Frame]:
    kind = PART if is_part else PROGRESS
    if attempt is None:
        return [bytes((kind,)) + name, payload]
    return [_REPORT.pack(kind, name, attempt), payload]


# -------------------------------------------------------------------- operations


def read_ask_number(head: Frame) -> bytes:
    """Return the request number of ASK, TELL or OBJECT."""
    if len(head) < 1 + NUMBER:
        raise Malformed("malformed", f"a head of {len(head)} bytes has no request number")
    return _as_bytes(head[1 : 1 + NUMBER])


def _as_bytes(frame: Frame) -> bytes:
    """Return the frame as bytes, without a copy if it is."""
    return frame if type(frame) is bytes else bytes(frame)


def read_ask(message: Message) -> tuple[bytes, str, bytes, Frame]:
    """Return the request number, the operation, its request (JSON, not parsed here) and the payload."""
    number = read_ask_number(message[0])
    if not 2 <= len(message) <= 3 or len(message[1]) > MOST_TEXT:
        raise Malformed("malformed", f"a head, at most {MOST_TEXT} bytes of JSON and an optional payload are required")
    try:
        operation = _as_bytes(message[0][1 + NUMBER :]).decode()
    except UnicodeDecodeError:
        raise Malformed("malformed", "the operation is not UTF-8") from None
    return number, operation, _as_bytes(message[1]), message[2] if len(message) > 2 else b""


def write_ask(number: bytes, operation: str, request: bytes, payload: Frame) -> list[Frame]:
    head = bytes((ASK,)) + number + operation.encode()
    return [head, request, payload] if payload else [head, request]


def read_tell(message: Message) -> tuple[bytes, bytes, Frame]:
    """Return the request number, the view (JSON) and the payload."""
    if len(message) != 3:
        raise Malformed("malformed", f"a TELL of {len(message)} frames; a head, JSON and a payload are required")
    return read_ask_number(message[0]), _as_bytes(message[1]), message[2]


def write_tell(number: bytes, view: bytes, payload: Frame, failure: Failure | None = None) -> list[Frame]:
    """Encode a response. A failure replaces the payload."""
    return [TELL_BYTE + number, view, payload if failure is None else pack_failure(failure)]


def read_object(message: Message) -> tuple[bytes, str, str]:
    """Return the request number, the kind of the error, and the sentence."""
    if len(message) != 3:
        raise Malformed("malformed", f"an OBJECT of {len(message)} frames; a head, a kind and a sentence are required")
    return read_ask_number(message[0]), _decode(message[1]), _decode(message[2])


def write_object(number: bytes, kind: str, detail: str) -> list[Frame]:
    return [bytes((OBJECT,)) + number, _encode(kind), _encode(detail)]


def _decode(frame: Frame) -> str:
    return bytes(frame).decode("utf-8", "replace")


def _encode(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return data if len(data) <= MOST_TEXT else data[:MOST_TEXT].decode("utf-8", "ignore").encode()

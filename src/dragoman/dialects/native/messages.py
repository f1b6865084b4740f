"""Message types of the native dialect: a message's first frame is its head, whose first byte is the type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Final

from dragoman.core.limit_values import LimitValues
from dragoman.core.states import Outcome

VERSION: Final = 1
EDITION: Final = 3  # of operations and their views, as our clients use them
NAME: Final = 16  # bytes of a job's id, and of an attempt's token
NUMBER: Final = 8  # bytes of a request's number
MOST_NAMES: Final = 1024  # in one message
MOST_FRAMES: Final = MOST_NAMES + 3  # head, names, extras and a payload for each name
MOST_TEXT: Final = 65_536  # bytes of JSON, of a failure's message, of its traceback
MOST_HEADS: Final = 131_072  # bytes of head, names and JSON in a message besides its payloads
UNSAID_PRIORITY: Final = 255
BATCH_BYTES: Final = 1 << 20  # bytes of payloads or results sent in one message; larger ones are sent one by one

HELLO: Final = 0x01
WELCOME: Final = 0x02
ERROR: Final = 0x03
HEARTBEAT: Final = 0x04
DRAIN: Final = 0x05
BYE: Final = 0x06
SUBMIT: Final = 0x10
ACCEPTED: Final = 0x11
CANCEL: Final = 0x12
ACK: Final = 0x13
RESUME: Final = 0x14
MISSING: Final = 0x15
RESULT: Final = 0x20
FAILED: Final = 0x21
PROGRESS: Final = 0x22
PART: Final = 0x23
JOB: Final = 0x30
RECALL: Final = 0x31
RETURN: Final = 0x32
MOVE: Final = 0x33
ASK: Final = 0x40
TELL: Final = 0x41
OBJECT: Final = 0x42

MESSAGE_NAMES: Final = {
    HELLO: "HELLO",
    WELCOME: "WELCOME",
    ERROR: "ERROR",
    HEARTBEAT: "HEARTBEAT",
    DRAIN: "DRAIN",
    BYE: "BYE",
    SUBMIT: "SUBMIT",
    ACCEPTED: "ACCEPTED",
    CANCEL: "CANCEL",
    ACK: "ACK",
    RESUME: "RESUME",
    MISSING: "MISSING",
    RESULT: "RESULT",
    FAILED: "FAILED",
    PROGRESS: "PROGRESS",
    PART: "PART",
    JOB: "JOB",
    RECALL: "RECALL",
    RETURN: "RETURN",
    MOVE: "MOVE",
    ASK: "ASK",
    TELL: "TELL",
    OBJECT: "OBJECT",
}


def name_of(kind: int) -> str:
    """Return the name of a message type, for texts."""
    return MESSAGE_NAMES.get(kind, f"{kind:02x}")


class Role(IntEnum):
    """Role of a connection, as in HELLO."""

    CLIENT = 1
    WORKER = 2


class Flag(IntFlag):
    """Flags of SUBMIT."""

    WAIT = 1  # wait for a worker even if none offers the service
    BACKGROUND = 2
    ACCEPT = 4  # send ACCEPTED
    WHOLE = 8  # no PART: RESULT has the whole result
    EXTRAS = 16  # a frame after the ids has extras of the jobs, if WELCOME has `extras`


NO_FLAGS: Final = Flag(0)

# The outcomes of FAILED, by their numbers.
OUTCOMES: Final = {
    1: Outcome.FAILED,
    2: Outcome.TIMED_OUT,
    3: Outcome.LOST,
    4: Outcome.CANCELLED,
    5: Outcome.REFUSED,
}
OUTCOME_NUMBERS: Final = {outcome: number for number, outcome in OUTCOMES.items()}
TOO_LARGE: Final = "too large"  # type of a refusal that only the carrier detects


@dataclass(frozen=True, slots=True)
class Hello:
    """From client or worker: its role, and what it offers or requests."""

    role: Role
    version: int = VERSION
    name: str = ""
    services: tuple[str, ...] = ()
    capacity: int = 1
    returns: bool = False  # a worker that can deliver results to a restarted broker (R107)
    retries: bool = False  # a worker that decides about retries in FAILED (R181)
    moves: bool = False  # a worker that takes its running jobs to another broker after MOVE (R119)
    running: Mapping[str, tuple[bytes, ...]] | None = None  # tokens of jobs that a worker brings, by service
    session: str = ""
    epoch: str = ""  # from the last WELCOME of this session
    window: int = 0  # 0: not set
    edition: int = 1  # a client: of operations and their views
    extras: bool = False  # it sends or reads extras of jobs
    parts: tuple[str, ...] = ()  # services of a worker whose callers must take parts
    limits: Mapping[str, LimitValues] | None = None  # that a worker declares, by service
    parameters: Mapping[str, dict[str, Any]] | None = None  # of its services: JSON Schema objects (R267)


@dataclass(frozen=True, slots=True)
class Welcome:
    """From the broker: the parameters of the connection, in seconds and bytes."""

    heartbeat: float
    lease: float
    max_payload: int
    window: int = 0
    resume: float = 0.0
    resumed: bool = False
    epoch: str = ""
    broker: str = ""
    retries: bool = False  # a worker may decide about retries in FAILED
    extras: tuple[str, ...] = ()  # names of the extras that the broker understands, or sends
    limits: bool = False  # limits that a worker declares hold
    parameters: bool = False  # a worker may refuse jobs with parameters that it does not know
    running: tuple[bytes, ...] = ()  # tokens of those jobs of `running` in HELLO that run on this connection now


@dataclass(frozen=True, slots=True)
class SubmitHeader:
    """Options of the jobs of one SUBMIT. Seconds; 0 = not set."""

    service: str
    flags: Flag = NO_FLAGS
    priority: int = UNSAID_PRIORITY
    attempts: int = 0
    deadline: float = 0.0
    job_timeout: float = 0.0
    queue_timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """From the broker to a worker: one job of a JOB. `timeout` 0: no limit."""

    token: bytes
    id: bytes
    attempt: int
    timeout: float
    service: str
    traceparent: str = ""
    waited: float | None = None  # seconds in the queue before this attempt, for a job with a traceparent
    takes_parts: bool = True  # False only for a service in `parts` of HELLO


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a job or attempt without a result. `type` of a refusal is its kind."""

    outcome: Outcome
    name: bytes
    type: str
    message: str
    detail: str
    retry_in: float | None = None  # from a worker: seconds, inf for never; None: it has not decided
    unknown: tuple[str, ...] = ()  # from a worker: parameters that it does not know, and those that it knows
    known: tuple[str, ...] = ()

"""Requests to JetStream, the log of NATS, and their answers: a request is a value, an answer is read by a function.

Subjects begin with `$JS.API`, bodies are JSON. A message is appended by publishing it to a subject of the stream with a
subject for the reply. `Nats-Expected-Last-Sequence` makes the server refuse it unless it is the next one.

    request                     answer is read by      errors of the server come as
    stream_create, stream_info  read_stream            ApiError
    stream_purge                read_purged            ApiError
    append                      read_append            Append, with the kind of outcome
    message_get                 read_message           ApiError; None: no such message
    direct_get, direct_batch    DirectBatch            its `problem`
    account_info                read_account           ApiError

An answer that is none (`Answer.kind`) is an ApiError without a code, whose `is_unknown` says if the request may have
been processed. DIRECT.GET is answered by any replica, perhaps one that lags behind; MSG.GET by the leader. Facts found
with nats-server 2.15.1: a batch ignores `up_to_seq`, unless it asks for the last messages of subjects (`multi_last`);
each message of a batch names the sequence of the one before it, 0 for the first, so that a lost one is detected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats_headers import write_headers
from dragoman.cluster.requests import Answer, AnswerKind

API: Final = b"$JS.API."
EXPECTED_LAST: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"

# Error codes of the server (`err_code`).
WRONG_LAST_SEQUENCE: Final = (10071, 10164)  # with the last sequence in the description; without it
STREAM_NOT_FOUND: Final = 10059
STREAM_EXISTS: Final = 10058  # with other settings
NO_MESSAGE: Final = 10037
STORE_FAILED: Final = 10077  # the log is full
NO_SPACE: Final = 10023  # the disk of the leader is full; its JetStream ends, and must be started again
NOT_AVAILABLE: Final = (10005, 10008)  # a server is away that must have a replica; JetStream has no leader


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request: arguments of `NatsClient.request`."""

    subject: bytes
    payload: bytes = b""
    headers: bytes = b""


@dataclass(frozen=True, slots=True)
class ApiError:
    """A request that failed. `code` and `err_code` are 0 if the server did not answer."""

    code: int
    err_code: int
    description: str
    is_unknown: bool = False  # it may have been processed or not

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed soon: there is no answer, or no leader at the moment."""
        return not self.err_code or self.err_code in NOT_AVAILABLE

    @property
    def is_full(self) -> bool:
        """True if the log cannot take more: it has reached `max_bytes`, or its server has no space."""
        return self.err_code in (STORE_FAILED, NO_SPACE)


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Settings of a stream that is a log: it keeps everything until it is purged, and refuses more when it is full."""

    name: str
    subjects: tuple[str, ...]
    replicas: int = 1
    max_bytes: int = -1
    metadata: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "subjects": list(self.subjects),
            "num_replicas": self.replicas,
            "max_bytes": self.max_bytes,
            "metadata": dict(self.metadata),
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_age": 0,
            "allow_direct": True,
            "deny_delete": True,
            "deny_purge": False,
        }


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a stream, as another one sees it; or as it sees itself, if there is no leader."""

    name: str  # of its server
    id: str  # of its server, which stays the same
    is_current: bool
    is_offline: bool
    silence: float  # seconds since it was heard; of an answer without a leader, 0 if that is not known


@dataclass(frozen=True, slots=True)
class StreamState:
    """State and settings of a stream, as its leader reports them."""

    name: str
    subjects: tuple[str, ...]
    replicas: int  # configured
    metadata: dict[str, str]
    first: int  # sequence of the first message that is kept; last + 1 if there is none
    last: int  # sequence of the last message, also if it has been purged
    messages: int
    size: int  # bytes
    leader: str  # name of the server; empty during an election
    current: int  # replicas that have everything, with the leader
    allows_direct: bool
    denies_delete: bool
    others: tuple[Replica, ...] = ()  # replicas besides the leader; without a leader, all
    time: int = 0  # of the answer, nanoseconds since 1970 by the clock of the server; 0: not told


@final
class StoredMessage:
    """A message of a stream."""

    __slots__ = ("payload", "sequence", "subject", "time")

    def __init__(self, sequence: int, subject: str, time: int, payload: Frame) -> None:
        self.sequence = sequence
        self.subject = subject
        self.time = time  # nanoseconds since 1970, by the clock of the server
        self.payload = payload

    def __repr__(self) -> str:
        return f"StoredMessage({self.sequence}, {self.subject}, {len(self.payload)} bytes)"


class AppendOutcome(Enum):
    """The result of an append."""

    STORED = auto()
    WRONG_SEQUENCE = auto()  # the log has another last sequence; not stored by this request
    NOT_STORED = auto()  # it did not reach the log
    UNKNOWN = auto()  # no answer: stored, or not, or stored later
    REFUSED = auto()  # an error of the server, which may persist


@dataclass(frozen=True, slots=True)
class Append:
    """The answer to an append."""

    outcome: AppendOutcome
    sequence: int = 0  # STORED: of the message; WRONG_SEQUENCE: the last one of the log, 0 if it is not told
    is_duplicate: bool = False
    error: ApiError | None = None


# ---------------------------------------------------------------- requests


def account_info() -> ApiRequest:
    """Ask whether JetStream is available to this account."""
    return ApiRequest(API + b"INFO")


def stream_create(config: StreamConfig) -> ApiRequest:
    """Create a stream. The same settings again succeed; others are refused (STREAM_EXISTS)."""
    return _api("STREAM.CREATE", config.name, config.as_json())


def stream_info(name: str) -> ApiRequest:
    return _api("STREAM.INFO", name)


def stream_purge(name: str, first_kept: int) -> ApiRequest:
    """Remove all messages before a sequence. The last sequence of the stream stays."""
    if first_kept < 1:
        raise ValueError(f"first_kept={first_kept}: sequences begin at 1")
    return _api("STREAM.PURGE", name, {"seq": first_kept})


def append(subject: bytes, payload: bytes, expected_last: int, stream: str) -> ApiRequest:
    """Append a message, if the log ends with this sequence and belongs to this stream."""
    fields = ((EXPECTED_LAST, b"%d" % expected_last), (EXPECTED_STREAM, _word(stream)))
    return ApiRequest(subject, payload, write_headers(fields))


def message_get(name: str, sequence: int) -> ApiRequest:
    """Ask the leader for one message."""
    return _api("STREAM.MSG.GET", name, {"seq": sequence})


def direct_get(name: str, sequence: int) -> ApiRequest:
    """Ask any replica for one message."""
    return _api("DIRECT.GET", name, {"seq": sequence})


def direct_batch(name: str, first: int, count: int, max_bytes: int = 0) -> ApiRequest:
    """Ask any replica for messages from a sequence on, in order. `max_bytes` ends a batch early, after one message at
    least; 0: the default of the server."""
    body: dict[str, object] = {"seq": first, "batch": count}
    if max_bytes:
        body["max_bytes"] = max_bytes
    return _api("DIRECT.GET", name, body)


def direct_last(name: str, subjects: Sequence[str], up_to: int, count: int) -> ApiRequest:
    """Ask any replica for the last message of each subject that is not after a sequence; 0: all messages count."""
    body: dict[str, object] = {"multi_last": list(subjects), "batch": count}
    if up_to:
        body["up_to_seq"] = up_to
    return _api("DIRECT.GET", name, body)


# ---------------------------------------------------------------- answers


def read_account(answer: Answer) -> int | ApiError:
    """Return the number of streams of this account."""
    found = _read(answer)
    return found if isinstance(found, ApiError) else _number(found, "streams")


def read_stream(answer: Answer) -> StreamState | ApiError:
    found = _read(answer)
    if isinstance(found, ApiError):
        return found
    config, kept, cluster = _object(found, "config"), _object(found, "state"), _object(found, "cluster")
    replicas = cluster.get("replicas")
    others = [each for each in replicas if isinstance(each, dict)] if isinstance(replicas, list) else []
    subjects, metadata = config.get("subjects"), _object(config, "metadata")
    last = _number(kept, "last_seq")
    return StreamState(
        name=_text(config, "name"),
        subjects=tuple(str(each) for each in subjects) if isinstance(subjects, list) else (),
        replicas=_number(config, "num_replicas"),
        metadata={str(key): str(value) for key, value in metadata.items()},
        first=_number(kept, "first_seq") if _number(kept, "messages") else last + 1,
        last=last,
        messages=_number(kept, "messages"),
        size=_number(kept, "bytes"),
        leader=_text(cluster, "leader"),
        current=len([each for each in others if each.get("current") is True and not each.get("offline")]) + 1,
        allows_direct=config.get("allow_direct") is True,
        denies_delete=config.get("deny_delete") is True,
        others=tuple(
            Replica(
                name=_text(each, "name"),
                id=_text(each, "peer"),
                is_current=each.get("current") is True,
                is_offline=each.get("offline") is True,
                silence=_number(each, "active") * 1e-9,
            )
            for each in others
        ),
        time=nanoseconds(_text(found, "ts").encode()) or 0,
    )


def read_purged(answer: Answer) -> int | ApiError:
    """Return the number of messages that were removed."""
    found = _read(answer)
    return found if isinstance(found, ApiError) else _number(found, "purged")


def read_append(answer: Answer) -> Append:
    if answer.kind in (AnswerKind.NO_RESPONDERS, AnswerKind.NOT_SENT):
        return Append(AppendOutcome.NOT_STORED)
    found = _read(answer)
    if not isinstance(found, ApiError):
        sequence = _number(found, "seq")
        if sequence:
            return Append(AppendOutcome.STORED, sequence, found.get("duplicate") is True)
        return Append(AppendOutcome.UNKNOWN, error=ApiError(0, 0, "an acknowledgement without a sequence", True))
    if found.err_code in WRONG_LAST_SEQUENCE:
        last = found.description.rpartition(" ")[2]
        return Append(AppendOutcome.WRONG_SEQUENCE, int(last) if _is_number(last) else 0, error=found)
    if found.is_unknown:
        return Append(AppendOutcome.UNKNOWN, error=found)
    return Append(AppendOutcome.REFUSED, error=found)


def read_message(answer: Answer) -> StoredMessage | ApiError | None:
    """Return the message of `message_get`; None if the stream has none with this sequence."""
    found = _read(answer)
    if isinstance(found, ApiError):
        return None if found.err_code == NO_MESSAGE else found
    from base64 import b64decode

    message = _object(found, "message")
    try:
        payload = b64decode(_text(message, "data"), validate=True)
    except ValueError:
        return ApiError(0, 0, "a message whose payload is not base64")
    time = nanoseconds(_text(message, "time").encode())
    sequence = _number(message, "seq")
    if time is None or not sequence:
        return ApiError(0, 0, "a message without a sequence or a time")
    return StoredMessage(sequence, _text(message, "subject"), time, payload)


# ---------------------------------------------------------------- helpers


def nanoseconds(text: bytes) -> int | None:
    """Read a time such as 2026-11-18T02:24:09.546599887Z as nanoseconds since 1970; None if it is none."""
    from datetime import UTC, datetime

    whole, _, fraction = text.removesuffix(b"Z").partition(b".")
    if not text.endswith(b"Z") or len(fraction) > 9 or (fraction and not fraction.isdigit()):
        return None
    try:
        found = datetime.strptime(whole.decode("ascii"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(found.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, b"0"))


def _api(verb: str, stream: str, body: dict[str, object] | None = None) -> ApiRequest:
    payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    return ApiRequest(API + verb.encode() + b"." + _word(stream), payload)


def _word(stream: str) -> bytes:
    """Return the name of a stream. Raises ValueError if it cannot be part of a subject."""
    name = stream.encode()
    if not name or not all(0x20 < each < 0x7F and each not in b".*>/\\" for each in name):
        raise ValueError(f"{stream!r} is not the name of a stream; letters, digits, '_' and '-' are allowed")
    return name


def _read(answer: Answer) -> dict[str, Any] | ApiError:
    """Return the JSON object of a reply, or its error."""
    if answer.kind is not AnswerKind.REPLY:
        told = answer.kind.name.lower().replace("_", " ")
        return ApiError(0, 0, told, answer.kind.is_unknown)
    if answer.headers.status:
        return ApiError(answer.headers.status, 0, answer.headers.description.decode("utf-8", "replace"))
    try:
        found = json.loads(answer.payload)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return ApiError(0, 0, "the reply is not a JSON object", True)
    error = found.get("error")
    if isinstance(error, dict):
        return ApiError(_number(error, "code"), _number(error, "err_code"), _text(error, "description"))
    return found


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _number(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20

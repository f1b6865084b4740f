"""Message types of Worker-Controller, independent of the numbers of an edition.

A field that is None had a number that the edition does not define; `number` is that number, for error messages. A
worker id or task id of 0 means none: both are counted from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PulseKind(Enum):
    """Type of a pulse."""

    REGISTER = "REGISTER"  # new worker: requests an id
    OK = "OK"  # heartbeat
    FETCH_ME = "FETCH_ME"  # heartbeat, and a result is ready
    SHUTDOWN = "SHUTDOWN"  # leaving


class ControllerError(Enum):
    """Status of the reply to a pulse."""

    OK = "OK"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    UNKNOWN_ID = "UNKNOWN_ID"  # not registered, or removed
    FAILED = "FAILED"  # any other error


class ControlKind(Enum):
    """Type of a control message."""

    RESTART = "RESTART"  # terminate
    FETCH = "FETCH"  # send the result
    SET_TASK = "SET_TASK"  # run this job
    GET_STATUS = "GET_STATUS"  # name the current task


class WorkerError(Enum):
    """Status of the response to a control message."""

    OK = "OK"
    NO_FETCH = "NO_FETCH"  # no result is ready
    BUSY = "BUSY"
    TASK_FAILED = "TASK_FAILED"
    FAILED = "FAILED"  # any other error


@dataclass(frozen=True, slots=True)
class RawPulse:
    """A pulse from a worker, before its edition is known.

    `type` is 0 if the field is absent or 0: protobuf does not distinguish them.
    """

    type: int
    worker_id: int
    task_id: int
    next_pulse: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """A pulse from a worker. `next_pulse`: seconds until the next one, as sent."""

    kind: PulseKind | None
    worker_id: int
    task_id: int
    next_pulse: int
    number: int


@dataclass(frozen=True, slots=True)
class PulseResponse:
    """The reply to a pulse. Only the reply to REGISTER has a worker id."""

    error: ControllerError | None
    worker_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Control:
    """A control message to a worker; the extra bytes are the job of SET_TASK."""

    kind: ControlKind | None
    task_id: int
    extra_size: int
    number: int


@dataclass(frozen=True, slots=True)
class Response:
    """A worker's response to a control message; the extra bytes are the result or, with an error, a text about it."""

    error: WorkerError | None
    task_id: int
    extra_size: int
    number: int

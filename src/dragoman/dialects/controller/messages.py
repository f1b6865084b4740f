"""The words of Worker-Controller, whatever numbers an edition gives them.

A word that is None was a number that the edition does not have; `number` is what came, for whoever tells about it. A
worker id or task id of 0 means that there is none: both are counted from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PulseKind(Enum):
    REGISTER = "REGISTER"  # I am new: give me an id
    OK = "OK"  # I live, and will say so again
    FETCH_ME = "FETCH_ME"  # and there is something to fetch
    SHUTDOWN = "SHUTDOWN"  # I leave


class ControllerError(Enum):
    OK = "OK"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    UNKNOWN_ID = "UNKNOWN_ID"  # not registered, or not any more
    FAILED = "FAILED"  # all else


class ControlKind(Enum):
    RESTART = "RESTART"  # end your work
    FETCH = "FETCH"  # what have you got?
    SET_TASK = "SET_TASK"  # do this
    GET_STATUS = "GET_STATUS"  # which task is yours?


class WorkerError(Enum):
    OK = "OK"
    NO_FETCH = "NO_FETCH"  # there is nothing to fetch
    BUSY = "BUSY"
    TASK_FAILED = "TASK_FAILED"
    FAILED = "FAILED"  # all else


@dataclass(frozen=True, slots=True)
class RawPulse:
    """worker to controller, before it is known which edition's numbers are meant.

    `type` is 0 both if the field is absent and if it is there and 0: protobuf does not tell them apart.
    """

    type: int
    worker_id: int
    task_id: int
    next_pulse: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """worker to controller. `next_pulse`: in so many seconds, as it came."""

    kind: PulseKind | None
    worker_id: int
    task_id: int
    next_pulse: int
    number: int


@dataclass(frozen=True, slots=True)
class PulseResponse:
    """controller to worker. The id is given with the answer to REGISTER only."""

    error: ControllerError | None
    worker_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Control:
    """controller to worker; the extra bytes are the job of SET_TASK."""

    kind: ControlKind | None
    task_id: int
    extra_size: int
    number: int


@dataclass(frozen=True, slots=True)
class Response:
    """worker to controller; the extra bytes are what was fetched or, with an error, a text about it."""

    error: WorkerError | None
    task_id: int
    extra_size: int
    number: int

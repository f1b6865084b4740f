"""The client's side of single-frame calls (`single_frame_calls.py`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.core.states import DONE, REFUSED, Outcome
from dragoman.dialects import sides
from dragoman.dialects.sides import ClientIO
from dragoman.dialects.single_frame_calls import ERROR

CLIENT_SOCKET: Final = "REQ"  # a frontend may be a ROUTER or a REP
PAYLOAD: Final = "payload"  # start of the reason if a payload is too large
TOO_LARGE: Final = "too large"
OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome if outcome is not DONE}


@dataclass(frozen=True, slots=True)
class Ended:
    """A response without a result."""

    outcome: Outcome | None  # None: unknown
    reason: str
    refusal: str = ""  # the kind of a refusal


def read_answer(message: Message) -> Frame | Ended:
    """Parse a response: the result, or the outcome of a job without one."""
    if len(message) == 4 and not message[0] and not message[1] and message[2] == ERROR:
        return _read_error(bytes(message[3]).decode("utf-8", "replace"))
    if len(message) == 2 and not message[0]:
        return message[1]
    raise Malformed("unexpected frames", f"{len(message)} frames are not a response to a call")


def _read_error(text: str) -> Ended:
    """Parse `<outcome>: <reason>`; the reason of a refusal begins with its kind."""
    word, _, reason = text.partition(": ")
    outcome = OUTCOMES.get(word)
    if outcome is None:
        return Ended(None, text)
    if outcome is not REFUSED:
        return Ended(outcome, reason)
    return Ended(outcome, reason, TOO_LARGE if reason.startswith(PAYLOAD) else reason.partition(": ")[0])


def too_large(size: int, max_payload: int) -> str:
    """Return the reason for refusing a payload."""
    return f"{PAYLOAD} of {size} bytes is over max_payload {max_payload}"


class ClientSide(sides.ClientSide):
    """The client's side: one call at a time, on one connection."""

    patience = inf
    hint = ""

    def __init__(self, io: ClientIO, worker_reply: bytes) -> None:
        self._io = io
        self._worker_reply = worker_reply  # reply of a socket for workers
        self._job_ref: Hashable = None

    def opened(self, now: float) -> None:
        pass

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        assert self._job_ref is None, "a connection carries one call at a time"
        self._job_ref = job_ref
        self._io.send([b"", payload])

    def receive(self, message: Message | TooLarge, now: float) -> None:
        if isinstance(message, TooLarge):
            raise sides.response_too_large(message)
        answer = read_answer(message)
        if answer == self._worker_reply:
            reply = self._worker_reply.decode()
            detail = f"the reply is {reply}, so this address is for workers; callers use the frontend"
            raise Malformed("a worker's place", detail)
        job_ref, self._job_ref = self._job_ref, None
        if job_ref is not None:
            if isinstance(answer, Ended):
                self._io.ended(job_ref, answer.outcome, answer.reason, refusal=answer.refusal)
            else:
                self._io.answered(job_ref, answer)

    def tick(self, now: float) -> float:
        return inf

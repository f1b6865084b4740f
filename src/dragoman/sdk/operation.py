"""An operation request of a client, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.carriers.carrier import Frame
from dragoman.dialects.sides import JobExtras
from dragoman.sdk.ids import RequestNumber

OperationAnswer = tuple[bytes, Frame]  # the view as JSON, and a payload


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A request. `timeout`: seconds to wait for the answer; None: as long as the connection lasts. `extras`: of the job
    that it creates; they are sent if the broker understands them. `number`: of a request that is carried out once,
    however often it is sent; each copy has its text in the field `request_id`. `wait`: seconds for which the broker may
    hold the answer back, as the request says."""

    text: str
    form: bytes
    payload: Frame = b""
    timeout: float | None = None
    extras: JobExtras | None = None
    number: RequestNumber | None = None
    wait: float = 0.0

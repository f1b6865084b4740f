"""All details of one job, as the operations `job` and `payload` return them."""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.failure import Failure
from dragoman.core.model import Job, Payload
from dragoman.core.states import DONE, ENDED
from dragoman.operations.families import with_family
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import Durability, ErrorView, JobView, OperationError, PayloadKind, PayloadView
from dragoman.operations.views import job_view, outline

FIRST_BYTES: Final = 256  # number of payload bytes in a view
JSON_BYTES: Final = 65_536  # a longer text is not parsed in order to name its kind
PICKLE: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # first bytes of the protocols in use

Fetched = Callable[[Payload, Payload, Failure | None], None]


class JobBodies(Protocol):
    """Fetches payloads and results, from memory or from the store, and reports commits."""

    def fetch(self, job: Job, done: Fetched, lost: Callable[[str], None] | None = None) -> None: ...

    def when_saved(self, call: Callable[[str | None], None], shards: Collection[int] | None = None) -> None: ...


def show_job(
    job: Job,
    broker: Broker,
    bodies: JobBodies,
    offset: float,
    responder: Responder,
    is_full: bool,
    durability: Durability | None = None,
) -> None:
    """Answer with all details of a job; without `is_full`, with its states and its outcome (R147). An outcome is shown
    once it is committed (R103)."""
    is_ended = job.state is ENDED
    if is_ended and not job.is_told:
        shards = (broker.job_registry.pending_commits.shard(job.id),)
        bodies.when_saved(lambda _: show_job(job, broker, bodies, offset, responder, is_full, durability), shards)
        return
    principal = responder.owner.principal
    if not is_full:
        bare = outline(job, offset)
        bare.durability = durability
        responder.answer(with_family(bare, job, principal, broker))
        return

    def show(payload: Payload, result: Payload, failure: Failure | None) -> None:
        if is_ended is (job.state is ENDED):
            view = _detailed_view(job, offset, payload, result, failure)
            view.durability = durability
            responder.answer(with_family(view, job, principal, broker))
        else:  # it ended, or left the quarantine, while the store read it
            show_job(job, broker, bodies, offset, responder, is_full, durability)

    bodies.fetch(job, show, partitioned(responder))


def send_payload(job: Job, bodies: JobBodies, view: Callable[[], JobView], responder: Responder) -> None:
    """Answer with the payload of a job, as it was submitted, and the view of the job. Raises OperationError if the
    payload is no longer kept."""
    if not _keeps_payload(job):
        raise OperationError(
            "conflict",
            f"the payload of job {job.id.hex()} is not kept: the job ended {job.outcome}; a payload is kept until its "
            "job ends, and while the job is in quarantine",
        )
    bodies.fetch(job, lambda payload, _, __: responder.answer(view(), payload), partitioned(responder))


def partitioned(responder: Responder) -> Callable[[str], None]:
    """Return a function that refuses the request with a reason: another broker has the job now."""
    return lambda reason: responder.refuse(ErrorView(kind="partitioned", detail=reason))


def payload_view(payload: Payload, most: int) -> PayloadView:
    """Return the size, the kind and at most `most` bytes of a payload."""
    first = bytes(payload[:most])
    try:
        text = getincrementaldecoder("utf-8")().decode(first, len(first) == len(payload))
    except UnicodeDecodeError:
        kind: PayloadKind = "pickle" if first.startswith(PICKLE) and payload[-1:] == b"." else "bytes"
        return PayloadView(size=len(payload), kind=kind, base64=b64encode(first).decode())
    return PayloadView(size=len(payload), kind="JSON" if _is_json(payload) else "text", text=text)


def _detailed_view(job: Job, offset: float, payload: Payload, result: Payload, failure: Failure | None) -> JobView:
    view = job_view(job, offset, result if job.state is ENDED else None, failure)
    if _keeps_payload(job):
        view.payload = payload_view(payload, FIRST_BYTES)
        view.size = len(payload)
    if job.outcome is DONE:
        view.result_size = len(result)
    if job.progress is not None:
        view.progress = payload_view(job.progress, len(job.progress))
    return view


def _keeps_payload(job: Job) -> bool:
    """True until the job ends; for a job that was in quarantine, until its outcome is deleted."""
    return job.state is not ENDED or job.quarantined or job.retried_as is not None


def _is_json(payload: Payload) -> bool:
    """True for a JSON object or array. Other JSON values, such as a number, count as text."""
    if len(payload) > JSON_BYTES or payload[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True

"""Operations of clients on many jobs, as generators: batches and results of groups. See operation_steps.py."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from dragoman.carriers.carrier import Frame
from dragoman.core.failure import Failure, unpack_failure
from dragoman.core.packed_jobs import pack_jobs, packed_bytes
from dragoman.dialects.sides import Outcome
from dragoman.sdk.codecs import Codec
from dragoman.sdk.current_job import current_extras
from dragoman.sdk.errors import JobFailed, JobTimeout, NoSuchJob, PartlyEnqueued, PayloadTooLarge, error_from
from dragoman.sdk.operation_steps import LONGEST_WAIT, SHORTEST_WAIT, Steps, perform, read_view, view
from dragoman.sdk.tracing import tracing

if TYPE_CHECKING:
    from dragoman.core.packed_jobs import PackedJob
    from dragoman.operations.group_schemas import EnqueueManyRequest, GroupResultsView, MemberView

MOST_JOBS = 10_000  # of one batch
BATCH_BYTES = 16 << 20  # of the jobs of one message, if the broker's limit is not known
LIMIT = re.compile(r"max_payload ([0-9]+)")
ROOM = 4_096  # bytes of a message besides its jobs

Errors = Literal["raise", "return"]


def enqueue_many(request: EnqueueManyRequest, jobs: Iterable[PackedJob]) -> Steps[list[str]]:
    """Enqueue jobs in as few messages as possible, each of which is one commit. Returns the ids of the jobs."""
    left = deque(jobs)
    with _followed(request, left):
        ids = yield from _enqueue_parts(request, left)
    return ids


def _enqueue_parts(request: EnqueueManyRequest, left: deque[PackedJob]) -> Steps[list[str]]:
    from dragoman.operations.group_table import ENQUEUE_MANY

    total, most = len(left), BATCH_BYTES
    ids: list[str] = []
    while left:
        batch = _take(left, most)
        try:
            found = yield from view(ENQUEUE_MANY, request, pack_jobs(batch))
        except Exception as error:
            limit = LIMIT.search(str(error)) if isinstance(error, PayloadTooLarge) else None
            smaller = max(1, int(limit[1]) - ROOM) if limit is not None else most // 2
            left.extendleft(reversed(batch))
            if isinstance(error, PayloadTooLarge) and len(batch) > 1 and smaller < most and "jobs[" not in str(error):
                too_large = _too_large(left, total, smaller)
                if too_large is None:
                    most = smaller
                    continue
                error = too_large
            elif isinstance(error, PayloadTooLarge) and len(batch) == 1:
                error = PayloadTooLarge(f"payload {total - len(left)} of {total}: {error}")
            if ids:
                sentence = f"{len(ids)} of {total} jobs were enqueued, then the others were refused: {error}"
                raise PartlyEnqueued(sentence, ids) from error
            raise error from None
        ids += found.jobs
    return ids


def _take(left: deque[PackedJob], most: int) -> list[PackedJob]:
    """Remove as many jobs as fit into one message; at least one."""
    batch: list[PackedJob] = []
    size = 0
    while left and len(batch) < MOST_JOBS:
        _, fields, payload = left[0]
        size += packed_bytes(fields, payload)
        if batch and size > most:
            break
        batch.append(left.popleft())
    return batch


def _too_large(left: deque[PackedJob], total: int, most: int) -> PayloadTooLarge | None:
    """Return the error for the first job that alone exceeds the limit of a message."""
    for index, (_, fields, payload) in enumerate(left, total - len(left)):
        if packed_bytes(fields, payload) > most + ROOM:
            sentence = f"payload {index} of {total} has {len(payload)} bytes, more than a message may have"
            return PayloadTooLarge(f"refused: {sentence} (max_payload)")
    return None


def enqueue_group(request: EnqueueManyRequest, jobs: Iterable[PackedJob]) -> Steps[str]:
    """Enqueue a group, in one message. Returns its id."""
    found = yield from enqueue_whole(request, jobs)
    return str(found.group)


def enqueue_whole(request: EnqueueManyRequest, jobs: Iterable[PackedJob]) -> Steps[Any]:
    """Enqueue jobs in one message and one commit. Returns the view."""
    from dragoman.operations.group_table import ENQUEUE_MANY

    batch = list(jobs)
    if not batch:
        raise ValueError("there are no jobs; at least one is needed")
    if len(batch) > MOST_JOBS:
        raise ValueError(f"{len(batch)} jobs cannot be one group; at most {MOST_JOBS} are allowed: make several groups")
    try:
        with _followed(request, batch):
            found = yield from view(ENQUEUE_MANY, request, pack_jobs(batch))
    except PayloadTooLarge as error:
        advice = f"the {len(batch)} jobs of a group are one message; make several groups"
        raise PayloadTooLarge(f"{error}: {advice}") from None
    return found


@contextmanager
def _followed(request: EnqueueManyRequest, jobs: Collection[PackedJob]) -> Iterator[None]:
    """Set parent and trace of the jobs, unless the caller has: those of the job whose handler runs here. A tracer
    follows the submit of all jobs as one."""
    extras = current_extras()
    if request.parent is None and extras is not None and extras.parent is not None:
        request.parent = extras.parent.hex()
    if request.traceparent is not None:
        yield
        return
    inherited = extras.traceparent if extras is not None else ""
    span = None
    if tracing.tracer is not None and jobs:
        span = tracing.tracer.submit(_service_of(request, jobs), True, inherited, len(jobs))
    request.traceparent = (span.traceparent if span is not None else "") or inherited or None
    problem = None
    try:
        yield
    except BaseException as error:
        problem = error
        raise
    finally:
        if span is not None:
            span.end("", problem)


def _service_of(request: EnqueueManyRequest, jobs: Iterable[PackedJob]) -> str:
    """Return the name of the service of all jobs."""
    if request.service is not None:
        return request.service
    services = {str(json.loads(fields).get("service")) for _, fields, _ in jobs}
    return services.pop() if len(services) == 1 else "several services"


def group_results(id: str, timeout: float | None, errors: Errors, codec: Codec) -> Steps[list[Any]]:
    """Wait until all jobs of a group have ended. Returns their results, in order."""
    from dragoman.operations.group_schemas import GroupResultsRequest, GroupResultsView
    from dragoman.operations.group_table import GROUP_RESULTS

    if errors not in ("raise", "return"):
        raise ValueError(f"errors={errors!r}: must be 'raise' or 'return'")
    deadline = inf if timeout is None else monotonic() + timeout
    results: list[Any] = []
    start: int | None = 0
    while start is not None:
        left = max(0.0, deadline - monotonic())
        request = GroupResultsRequest(id=id, wait=0.0 if start else min(left, LONGEST_WAIT), start=start)
        answer_timeout = None if timeout is None or start else max(left, SHORTEST_WAIT)
        answer, bodies = yield from perform(GROUP_RESULTS, request, timeout=answer_timeout)
        page: GroupResultsView = read_view(GroupResultsView, answer)
        if not page.complete:
            if monotonic() >= deadline:
                ended = sum(each.outcome is not None for each in page.results)
                raise JobTimeout(
                    f"timed out: group {id} is not complete after {timeout:g} s; {ended} of its first "
                    f"{len(page.results)} jobs have ended"
                )
            results, start = [], 0
            continue
        results += _results(page, bodies, codec)
        start = page.next
    if errors == "raise":
        for each in results:
            if isinstance(each, Exception):
                raise each
    return results


def _results(page: GroupResultsView, bodies: Frame, codec: Codec) -> list[Any]:
    """Return the results of a page, and exceptions in place of those that are not done."""
    found: list[Any] = []
    at = 0
    is_inline = not len(bodies)  # HTTP has the results in the view
    for member in page.results:
        body = _inline(member) if is_inline else bytes(bodies[at : at + member.size])
        at += member.size
        found.append(_result(member, body, codec))
    return found


def _inline(member: MemberView) -> bytes:
    if member.result_base64 is not None:
        return b64decode(member.result_base64)
    return (member.result or "").encode()


def _result(member: MemberView, body: bytes, codec: Codec) -> Any:
    if member.deleted:
        return NoSuchJob(f"the outcome of a job of the group was deleted; it ended {member.outcome or 'otherwise'}")
    if member.outcome != "done":
        assert member.outcome is not None, "a complete group has ended jobs only"
        failure = unpack_failure(body) if body else None
        if member.error is not None:
            error = member.error
            failure = Failure(error.type, error.message, error.detail)
        return error_from(Outcome(member.outcome), member.reason, failure)
    try:
        return codec.decode_whole(body)
    except Exception as error:  # a codec raises the exceptions of its library
        reason = f"failed: the result of job {member.job} is not valid {codec.name}: {type(error).__name__}: {error}"
        return JobFailed(reason, type(error).__name__, str(error))

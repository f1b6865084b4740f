"""Results of a group, page by page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from dragoman.core.broker import Broker
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.groups import PRESENT, Group
from dragoman.core.model import ABSENT, Job, Payload
from dragoman.core.rights import Principal
from dragoman.core.states import DONE, ENDED
from dragoman.operations.group_schemas import MOST_RESULTS, GroupResultsView, MemberView
from dragoman.operations.job_details import partitioned
from dragoman.operations.responders import Responder
from dragoman.operations.seen_links import reason_of

PAGE_BYTES: Final = 8 << 20  # of the results of one page; a larger one is alone
MOST_LOADED: Final = 100  # results that one page loads from the store


class JobBodies(Protocol):
    """Fetches results, from memory or from the store."""

    def fetch(
        self,
        job: Job,
        done: Callable[[Payload, Payload, Failure | None], None],
        lost: Callable[[str], None] | None = None,
    ) -> None: ...


def send_results(group: Group, start: int, bodies: JobBodies, broker: Broker, responder: Responder) -> None:
    """Answer with the results of the jobs from the index `start` on, as many as fit into one page."""
    places = _places(group, start)
    loaded: dict[int, Payload] = {}
    left = 1

    def one_loaded() -> None:
        nonlocal left
        left -= 1
        if not left:
            _answer(group, start, places, loaded, broker, responder)

    def loaded_at(place: int, _: Payload, result: Payload, failure: Failure | None) -> None:
        loaded[place] = result if failure is None else pack_failure(failure)
        one_loaded()

    def lost(reason: str) -> None:
        nonlocal left
        if left >= 0:
            left = -1
            partitioned(responder)(reason)

    for place in places:
        job = group.jobs[place]
        if job is not None and job.state is ENDED and left >= 0:
            left += 1
            bodies.fetch(job, partial(loaded_at, place), lost)
    one_loaded()


def _places(group: Group, start: int) -> range:
    """Return the places of a page, as far as it is known before the results are loaded."""
    end, size, absent = start, 0, 0
    while end < min(group.size, start + MOST_RESULTS):
        job = group.jobs[end]
        if job is not None and job.state is ENDED:
            absent += job.result is ABSENT
            size += len(job.result)
        if end > start and (size > PAGE_BYTES or absent > MOST_LOADED):
            break
        end += 1
    return range(start, end)


def _answer(
    group: Group, start: int, places: range, loaded: dict[int, Payload], broker: Broker, responder: Responder
) -> None:
    results: list[MemberView] = []
    bodies: list[Payload] = []
    size, following = 0, start
    for place in places:
        body = loaded.get(place, b"")
        size += len(body)
        if size > PAGE_BYTES and results:
            break
        bodies.append(body)
        results.append(_member(group, place, len(body), responder.owner.principal, broker))
        following = place + 1
    view = GroupResultsView(
        id=group.id.hex(),
        complete=group.is_complete,
        size=group.size,
        start=start,
        results=results,
        next=following if following < group.size else None,
    )
    responder.answer(view, b"".join(bodies))


def _member(group: Group, place: int, size: int, principal: Principal, broker: Broker) -> MemberView:
    job = group.jobs[place]
    outcome = group.outcome_at(place)
    is_deleted = job is None and group.gone[place] != PRESENT
    return MemberView(
        job=job.id.hex() if job is not None else None,
        outcome=outcome.value if outcome is not None else None,
        reason=reason_of(job, principal, broker) if job is not None else "its outcome was deleted",
        deleted=is_deleted,
        size=size,
    )


def is_failure(member: MemberView) -> bool:
    """True if the bytes of a member are a failure, not a result."""
    return member.outcome is not None and member.outcome != DONE.value

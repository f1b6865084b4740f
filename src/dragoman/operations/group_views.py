"""Views of groups."""

from __future__ import annotations

from dragoman.core.groups import PRESENT, Group
from dragoman.core.infinity import inf
from dragoman.core.states import DONE
from dragoman.operations.group_schemas import GroupView, progress_of
from dragoman.operations.views import moment


def group_view(group: Group, offset: float) -> GroupView:
    """Return the view. `offset`: seconds that the wall clock is ahead of the broker's clock."""
    outcomes: dict[str, int] = {}
    for place in range(group.size):
        outcome = group.outcome_at(place)
        if outcome is not None and outcome is not DONE:
            outcomes[outcome.value] = outcomes.get(outcome.value, 0) + 1
    created = [job.created for job in group.jobs if job is not None]
    return GroupView(
        id=group.id.hex(),
        size=group.size,
        open=group.open,
        done=group.done,
        undone=group.undone,
        says=progress_of(group.size, group.done, outcomes),
        complete=group.is_complete,
        outcomes=outcomes,
        deleted=sum(letter != PRESENT for letter in group.gone),
        services=list(group.services),
        owner=group.owner,
        created=moment(min(created) + offset) if created else None,
        ended=moment(group.ended + offset) if group.ended is not None else None,
        kept_until=moment(group.keep_until + offset) if group.keep_until != inf else None,
    )

"""Children of a job at all brokers of the cluster, in the view of the job: a handler submits jobs to any of them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.operations.families import MOST_CHILDREN
from dragoman.operations.list_schemas import JobsView, ListJobsRequest
from dragoman.operations.passing_responders import PartResponder, PassingResponder
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ChildView, ErrorView, JobView, View

Gather = Callable[[ListJobsRequest, Responder], None]


class FamilyResponder(PassingResponder):
    """Adds the children at all brokers to the view of a job that was started; other jobs have none."""

    __slots__ = ("_gather",)

    def __init__(self, responder: Responder, gather: Gather) -> None:
        """`gather` lists jobs of all brokers."""
        super().__init__(responder)
        self._gather = gather

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if not isinstance(view, JobView) or not view.attempts:
            super().answer(view, payload, failure)
            return

        def found(part: View | ErrorView) -> None:
            if isinstance(part, JobsView):
                add_children(view, part)
            self._responder.answer(view, payload, failure)

        self._gather(ListJobsRequest(parent=view.id, limit=MOST_CHILDREN), PartResponder(self._responder, found))


def add_children(view: JobView, found: JobsView) -> None:
    """Replace the children at the job's own broker by those at all brokers."""
    view.children = [
        ChildView(
            id=each.id,
            service=each.service,
            state=each.state,
            outcome=each.outcome,
            background=each.background,
            broker=each.broker,
        )
        for each in found.jobs
    ]
    view.more_children = max(0, found.searched - len(view.children))
    view.unanswered = found.unanswered or UNSET

"""Operations that all brokers of the cluster execute: asks each for its part, and merges the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.questions import MOVED, Ending, Question
from dragoman.cluster.records import Answer
from dragoman.core.model import Payload
from dragoman.operations.bulk_schemas import BulkRequest
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.merged_views import MERGERS
from dragoman.operations.operation import Operation
from dragoman.operations.passing_responders import PartResponder
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, OperationError, View
from dragoman.server.cluster_messages import question_of, view_of
from dragoman.server.cluster_places import Places

ANSWER_TIME: Final = 10.0  # seconds for an answer, besides those that the operation itself waits
PART_TIME: Final = 2.0  # seconds for the part of one broker in a list
PROVED_WITHIN: Final = 1.0  # seconds in which a shard must prove for a list that it is at its broker


class Gathered:
    """An operation that all brokers execute, with the parts that have arrived."""

    __slots__ = (
        "confirmed",
        "errors",
        "is_over",
        "open",
        "parts",
        "proves",
        "request",
        "responder",
        "row",
        "unanswered",
        "waiting",
    )

    def __init__(self, row: Operation[Any, Any], request: Any, responder: Responder, proves: bool = True) -> None:
        """`proves`: brokers prove that they have the shards of their parts, if what is listed is kept in shards."""
        self.row = row
        self.proves = proves and "unanswered_shards" in row.view.__struct_fields__
        self.request = request
        self.responder = responder
        self.open: dict[str, Question] = {}
        self.parts: dict[str, View] = {}
        self.errors: dict[str, ErrorView] = {}
        self.unanswered: dict[str, None] = {}
        self.confirmed: set[int] = set()  # shards of which a part has all
        self.waiting = 0  # parts that have not arrived
        self.is_over = False


class Gathering:
    """Asks all brokers, for one of them. A broker that does not answer in time is named in the merged view."""

    def __init__(
        self, handlers: OperationHandlers, side: ClusterSide, places: Places, wake: Callable[[], None]
    ) -> None:
        self._handlers = handlers
        self._side = side
        self._places = places
        self._wake = wake
        self._known: dict[str, None] = {}  # brokers at the time when NATS was connected last

    def lost_brokers(self) -> list[str]:
        """Return the brokers that cannot be asked because NATS is away, even those that are not waited for any more."""
        if self._side.is_connected:
            self._known = dict.fromkeys(self._side.peers)
            return []
        return list(self._known)

    def begin(self, work: Gathered, payload: Payload, now: float) -> None:
        """Ask every broker, this one too."""
        side = self._side
        if work.proves and not self._places.shards.count and (doubt := self._places.shards.doubt()):
            work.is_over = True  # it is not even known which shards there are
            work.responder.refuse(ErrorView(kind="partitioned", detail=f"{doubt}; retry in a few seconds"))
            return
        work.unanswered.update(dict.fromkeys(self.lost_brokers()))
        live = [name for name, peer in sorted(side.peers.items()) if side.is_connected and not peer.is_silent]
        work.unanswered.update((name, None) for name in sorted(side.peers) if name not in live)
        request = MERGERS[work.row.name].request(work.request, len(live) + 1)
        if isinstance(request, BulkRequest) and request.id is None:  # the acts of all brokers have one id
            request = replace(request, id=self._handlers.broker.entropy.job_id().hex())
        work.waiting = len(live) + 1
        ask = question_of(work.row, request, payload, work.responder, None, work.proves)
        timeout = ANSWER_TIME if work.row.writes else PART_TIME
        for name in live:
            done = partial(self._part_arrived, work, name)
            question = side.questions.ask(side.peers[name], ask, done, timeout, now)
            if question is None:
                work.unanswered[name] = None
                work.waiting -= 1
            else:
                work.open[name] = question
        if work.proves:
            work.waiting += 1
            own_shards = self._places.denied_by(work.row, request, None)
            self._places.shards.confirm(own_shards, partial(self._own_shards, work, now), PROVED_WITHIN)
        own = PartResponder(work.responder, partial(self._own_part, work, now))
        self._handlers.ask(work.row.name, request, payload, own, now, is_here=True)
        self._wake()

    def _own_shards(self, work: Gathered, now: float, confirmed: Sequence[int], problems: dict[int, str]) -> None:
        work.confirmed.update(confirmed)
        self._add(work, self._side.name, None, now)

    def _own_part(self, work: Gathered, now: float, part: View | ErrorView) -> None:
        self._add(work, self._side.name, part, now)

    def _part_arrived(self, work: Gathered, broker: str, ending: Ending, answer: Answer | None, now: float) -> None:
        work.open.pop(broker, None)
        if answer is not None:
            work.confirmed.update(answer.confirmed)
        if answer is None or answer.kind == MOVED:
            work.unanswered[broker] = None
            self._add(work, broker, None, now)
        elif answer.kind:
            self._add(work, broker, ErrorView(kind=answer.kind, detail=answer.detail), now)  # type: ignore[arg-type]
        else:
            self._add(work, broker, view_of(work.row, answer), now)

    def _add(self, work: Gathered, broker: str, part: View | ErrorView | None, now: float) -> None:
        work.waiting -= 1
        if isinstance(part, ErrorView):
            work.errors[broker] = part
        elif part is not None:
            work.parts[broker] = part
        if work.waiting == 0 and not work.is_over:
            work.is_over = True
            self._merge(work, now)
            self._wake()

    def _merge(self, work: Gathered, now: float) -> None:
        own = self._side.name
        if not work.parts or (own in work.errors and work.errors[own].kind != "not found"):
            errors = [*(work.errors[own],)] if own in work.errors else []
            errors += [each for name, each in sorted(work.errors.items()) if name != own]
            found = next((each for each in errors if each.kind != "not found"), errors[0])
            if errors[0].kind == "not found" and (doubt := self._doubt(work)):
                found = ErrorView(kind="partitioned", detail=f"{found.detail.partition(':')[0]}, and {doubt}")
            work.responder.refuse(errors[0] if errors[0].kind != "not found" else found)
            return
        work.unanswered.update((name, None) for name, each in work.errors.items() if each.kind != "not found")
        parts = {name: work.parts[name] for name in sorted(work.parts, key=lambda name: (name != own, name))}
        try:
            view = MERGERS[work.row.name].merge(work.request, parts, now)
        except OperationError as error:
            work.responder.refuse(error.problem)
            return
        work.unanswered.update(dict.fromkeys(view.unanswered or ()))  # brokers at which the client may not see all
        view.unanswered = sorted(work.unanswered)
        if missing := self._missing_shards(work):
            view.unanswered_shards = missing
            if "complete" in view.__struct_fields__:
                view.complete = False
        work.responder.answer(view)

    def _missing_shards(self, work: Gathered) -> list[int]:
        """Return the shards of which no part is known to have all."""
        if not work.proves:
            return []
        return [each for each in self._places.listed(work.row) if each not in work.confirmed]

    def _doubt(self, work: Gathered) -> str:
        """Return the reason why something may exist that no broker has; empty: there is none."""
        doubt = self._places.shards.doubt()
        if doubt:
            return doubt
        if work.unanswered:
            return f"no answer came from {', '.join(sorted(work.unanswered))}; retry in a few seconds"
        missing = self._missing_shards(work)
        return f"{no_answer(missing)}; retry in a few seconds" if missing else ""


def no_answer(shards: Sequence[int]) -> str:
    """Return a sentence about shards whose owners have not answered."""
    which = f"shard {shards[0]}" if len(shards) == 1 else f"shards {', '.join(map(str, shards))}"
    return f"no broker has proved that it has {which} of the cluster"

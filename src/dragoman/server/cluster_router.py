"""Passes operations to the brokers of the cluster that execute them, and their responses to the client.

`cluster_places.py` decides where. An operation for the owner of a shard waits a moment if the owner is not known, or
if the shard has just moved. One that only reads is asked again if its broker is gone; one that writes is not, unless
it has a key or a request id: it may have been executed.

**A broker says *no such job* only if it can prove it** (R241): each shard that could have the job is at a broker that
has looked, and whose log has confirmed that since (`ShardKeeper.confirm`). A broker that was cut off or frozen does not
know that others have its shards. Without the proof the operation waits like one without an owner, and is refused then.
Every `not found` of an operation comes through here, or through `cluster_answers.py`, which adds the shards that are
proved to its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.questions import MOVED, Ending, Question
from dragoman.cluster.records import Answer
from dragoman.cluster.shard_bytes import shard_in
from dragoman.cluster.shard_keeper import CONFIRM_WITHIN
from dragoman.core.failure import unpack_failure
from dragoman.core.infinity import inf
from dragoman.core.model import Payload
from dragoman.core.recipients import Effect, TimedRecipient
from dragoman.core.remembered import older
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.jobs_by_id import JobsById
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.operation import Operation
from dragoman.operations.responders import ForwardedRequest, PendingRequest, Responder
from dragoman.operations.schemas import ErrorView, OperationError
from dragoman.operations.table import ENQUEUE, JOB, JOBS
from dragoman.server.cluster_children import FamilyResponder
from dragoman.server.cluster_gathering import ANSWER_TIME, Gathered, Gathering, no_answer
from dragoman.server.cluster_messages import MarkingResponder, WaitingResponder, question_of, view_of
from dragoman.server.cluster_places import BY_ID, HERE, SEARCH, Place, Places
from dragoman.server.cluster_status import taken_by_service

PATIENCE: Final = 3.0  # seconds for which an operation waits until the owner of a shard is known
AGAIN_AFTER: Final = 0.1  # seconds between two looks
KNOWN_HERE: Final = ("all", "this broker", "named broker")  # a broker knows by itself what these are about; or all do


class Forwarded:
    """An operation that one other broker executes."""

    __slots__ = (
        "confirmed",
        "denial",
        "denied",
        "has_imports",
        "is_over",
        "local",
        "missed",
        "open",
        "payload",
        "place",
        "request",
        "responder",
        "row",
        "since",
        "until",
    )

    def __init__(
        self,
        row: Operation[Any, Any],
        request: Any,
        payload: Payload,
        responder: Responder,
        since: float,
        until: float,
    ) -> None:
        self.row = row
        self.request = request
        self.payload = payload
        self.responder = responder
        self.since = since  # time at which it is tried first
        self.until = until  # time until which it is tried
        self.place: Place | None = None
        self.open: dict[str, Question] = {}  # by broker
        self.missed: dict[str, str] = {}  # brokers that do not have it, or could not be asked, with the reason
        self.local: PendingRequest | None = None  # it waits at this broker after all
        self.is_over = False
        self.denial: ErrorView | None = None  # the error of a broker that does not have it
        self.denied: dict[str, None] = {}  # brokers that have looked, and do not have it
        self.confirmed: set[int] = set()  # shards of which that is proved
        self.has_imports = False  # as these brokers say

    def forget(self) -> None:
        """Ask again: what was denied may be elsewhere now."""
        self.missed.clear()
        self.denied.clear()
        self.confirmed.clear()


class ExecutedHere(MarkingResponder):
    """The client of an operation that this broker executes. That something does not exist is proved first."""

    __slots__ = ("_payload", "_request", "_router", "_row", "work")

    def __init__(
        self,
        responder: Responder,
        router: ClusterRouter,
        row: Operation[Any, Any],
        request: Any,
        payload: Payload,
        work: Forwarded | None,
    ) -> None:
        super().__init__(responder, router.name)
        self._router = router
        self._row = row
        self._request = request
        self._payload = payload
        self.work = work  # None: nothing was passed on, or denied

    def refuse(self, problem: ErrorView) -> None:
        if problem.kind != "not found" or self._row.answered_by in KNOWN_HERE:
            super().refuse(problem)
            return
        if self.work is None:
            self.work = self._router.work_of(self._row, self._request, self._payload, self._responder)
        self._router.denied_here(self.work, problem)


class ClusterRouter(TimedRecipient):
    """Passes operations on, for one broker."""

    dialect = "cluster"
    job_list = JobsById

    def __init__(
        self,
        handlers: OperationHandlers,
        side: ClusterSide,
        places: Places,
        wake: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        """`wake` requests an iteration of the runner."""
        self._handlers = handlers
        self._side = side
        self._places = places
        self._wake = wake
        self._now = now
        self._later: list[tuple[float, Forwarded]] = []
        self._gathering = Gathering(handlers, side, places, wake)

    @property
    def name(self) -> str:
        return self._side.name

    # ---------------------------------------------------------------- facts for lists

    def running(self, service: str | None) -> int:
        counts = self.running_by_service()
        return sum(counts.values()) if service is None else counts.get(service, 0)

    def running_by_service(self) -> Mapping[str, int]:
        return taken_by_service(self._side)

    def ended(self, service: str | None) -> Mapping[str, int]:
        by_service = self._side.taken.ended
        if service is not None:
            return by_service.get(service, {})
        sums: dict[str, int] = {}
        for counts in by_service.values():
            for outcome, count in counts.items():
                sums[outcome] = sums.get(outcome, 0) + count
        return sums

    def heard(self) -> list[str]:
        """Return the other brokers that can be asked now."""
        if not self._side.is_connected:
            return []
        return sorted(name for name, peer in self._side.peers.items() if not peer.is_silent and peer.gossip is not None)

    def unheard(self) -> list[str]:
        """Return the other brokers that belong to the cluster and cannot be asked."""
        silent = [name for name, peer in self._side.peers.items() if peer.is_silent]
        return sorted({*self._gathering.lost_brokers(), *silent})

    # ---------------------------------------------------------------- operations

    def ask(
        self, row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        if row is JOB:
            responder = FamilyResponder(responder, self._gather_children)
        try:
            place = self._places.of(row, request, payload, responder.owner.principal.name)
            if self._is_here(place):
                if getattr(request, "wait", 0.0):
                    responder = WaitingResponder(responder, partial(self._moved, row, request, payload, responder, now))
                return self._execute(row, request, payload, responder, now)
            if row.target in ("service", "broker"):  # the broker that executes it checks every right once more
                self._handlers.permissions.check(row, request, responder)
        except OperationError as error:
            responder.refuse(error.problem)
            return None
        if place.kind == "all":
            gathered = Gathered(row, request, responder)
            self._gathering.begin(gathered, payload, now)
            return None if gathered.is_over else ForwardedRequest(self, responder, gathered)
        wait = getattr(request, "wait", 0.0)
        work = Forwarded(row, request, payload, responder, now, now + max(PATIENCE, wait))
        self._forward(work, place, now)
        return None if work.is_over else ForwardedRequest(self, responder, work)

    def _gather_children(self, request: ListJobsRequest, responder: Responder) -> None:
        self._gathering.begin(Gathered(JOBS, request, responder, proves=False), b"", self._now())

    def leave(self, pending: PendingRequest, now: float) -> None:
        """Drop an operation whose client has disconnected."""
        assert isinstance(pending, ForwardedRequest)
        work = pending.work
        assert isinstance(work, Forwarded | Gathered)
        work.is_over = True
        for question in work.open.values():
            self._side.questions.leave(question)
        work.open.clear()
        if isinstance(work, Forwarded) and work.local is not None:
            self._handlers.leave(work.local, now)

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("requests to other brokers have no jobs")

    def tick(self, now: float) -> float:
        if self._later:
            due = [work for at, work in self._later if at <= now]
            self._later = [(at, work) for at, work in self._later if at > now]
            for work in due:
                if not work.is_over:
                    self._again(work, now)
        return min((at for at, _ in self._later), default=inf)

    def _is_here(self, place: Place) -> bool:
        if place.kind != "shard" or place.shard is None:
            return place.kind == "here"
        shards = self._places.shards
        return shards.owner(place.shard) == self._side.name and shards.is_ready(place.shard)

    def _execute(
        self,
        row: Operation[Any, Any],
        request: Any,
        payload: Payload,
        responder: Responder,
        now: float,
        work: Forwarded | None = None,
    ) -> PendingRequest | None:
        """`work`: of an operation that was passed on before."""
        executed = ExecutedHere(responder, self, row, request, payload, work)
        pending = self._handlers.ask(row.name, request, payload, executed, now, is_here=True)
        if work is None and executed.work is not None and not executed.work.is_over:
            return ForwardedRequest(self, responder, executed.work)
        return pending

    def _moved(
        self, row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder, since: float
    ) -> None:
        """Wait at the next owner: the shard of the job has moved to another broker."""
        now = self._now()
        work = Forwarded(row, request, payload, responder, since, max(since + request.wait, now + PATIENCE))
        self._wait(work, "the job has moved to another broker", now)

    # ---------------------------------------------------------------- one broker

    def _again(self, work: Forwarded, now: float) -> None:
        """Decide anew: shards may have moved."""
        work.forget()
        work.denial = None
        try:
            place = self._places.of(work.row, work.request, work.payload, work.responder.owner.principal.name)
        except OperationError as error:
            self._refuse(work, error.problem.kind, error.problem.detail)
            return
        if self._is_here(place):
            self._execute_again(work, self._rest(work, now), now)
        else:
            self._forward(work, place, now)

    def _execute_again(self, work: Forwarded, request: Any, now: float) -> None:
        """Execute here what was passed on, or could have been."""
        work.is_over = True
        work.local = self._execute(work.row, request, work.payload, work.responder, now, work)
        self._wake()

    def _forward(self, work: Forwarded, place: Place, now: float) -> None:
        work.place = place
        if place.kind == "search":
            self._search(work, now)
            return
        if place.kind == "broker":
            if not self._send(work, place.broker, None, now):
                if doubt := self._places.shards.doubt():
                    self._refuse(work, "partitioned", f"broker {place.broker} is not heard: {doubt}")
                    return
                names = ", ".join([self._side.name, *self.heard()])
                detail = f"no broker named {place.broker!r} is heard; those of the cluster that are: {names}"
                self._refuse(work, "not found", detail)
            return
        assert place.shard is not None
        owner = self._places.shards.owner(place.shard)
        unusable = self._places.shards.unusable(place.shard)
        if not self._side.is_connected:
            self._refuse(work, "partitioned", self._unreachable(place.shard, owner, "NATS is not reached"))
        elif unusable and owner in ("", self._side.name):
            self._refuse(work, "partitioned", unusable)
        elif not owner or owner == self._side.name or not self._send(work, owner, place.shard, now):
            reason = f"broker {owner} is not heard" if owner else "no broker has it at the moment"
            if owner == self._side.name:
                reason = "its jobs are still being read"
            self._wait(work, self._unreachable(place.shard, owner, reason), now)

    def _unreachable(self, shard: int, owner: str, reason: str) -> str:
        whom = f" (of broker {owner})" if owner else ""
        return f"the operation belongs to shard {shard}{whom}, and {reason}; retry in a few seconds"

    def _wait(self, work: Forwarded, detail: str, now: float) -> None:
        """Try it again in a moment, or refuse it."""
        if now + AGAIN_AFTER >= work.until:
            self._refuse(work, "partitioned", detail)
        else:
            self._later.append((now + AGAIN_AFTER, work))
            self._wake()

    def _search(self, work: Forwarded, now: float) -> None:
        """Ask every other broker; the one that has the object answers."""
        for name, peer in sorted(self._side.peers.items()):
            if name not in work.denied and (peer.is_silent or not self._send(work, name, None, now)):
                work.missed[name] = "it is not heard"
        for name in self._gathering.lost_brokers():
            work.missed.setdefault(name, "it is not heard")
        if not work.open:
            self._end_search(work, now)

    def _send(self, work: Forwarded, broker: str, shard: int | None, now: float) -> bool:
        """Ask one broker. Returns False if it cannot be asked now."""
        peer = self._side.peers.get(broker)
        if peer is None or peer.is_silent or not self._side.is_connected:
            return False
        request = self._rest(work, now)
        ask = question_of(work.row, request, work.payload, work.responder, shard)
        timeout = ANSWER_TIME + getattr(request, "wait", 0.0)
        question = self._side.questions.ask(peer, ask, partial(self._answered, work, broker), timeout, now)
        if question is not None:
            work.open[broker] = question
        return question is not None

    def _rest(self, work: Forwarded, now: float) -> Any:
        """Return the request, with the time that is left to wait, or as a repetition of itself."""
        wait = getattr(work.request, "wait", 0.0)
        text = getattr(work.request, "request_id", None)
        if text is not None and now > work.since:
            return msgspec.structs.replace(work.request, request_id=older(text, now - work.since))
        if not wait:
            return work.request
        return msgspec.structs.replace(work.request, wait=min(wait, max(0.0, work.until - now)))

    def _answered(self, work: Forwarded, broker: str, ending: Ending, answer: Answer | None, now: float) -> None:
        work.open.pop(broker, None)
        if work.is_over:
            return
        if answer is None:
            self._not_answered(work, broker, ending, now)
        elif answer.kind == MOVED or (answer.kind == "partitioned" and not work.row.writes):
            self._missed(work, broker, f"broker {broker} does not have it any more", now)
        elif answer.kind == "not found" and work.row.answered_by not in KNOWN_HERE:
            self._denied_at(work, broker, answer, now)
        else:
            self._deliver(work, broker, answer)

    def _denied_at(self, work: Forwarded, broker: str, answer: Answer, now: float) -> None:
        assert work.place is not None
        work.denied[broker] = None
        work.confirmed.update(answer.confirmed)
        work.has_imports = work.has_imports or answer.has_imports
        if work.place.kind == "shard" or work.denial is None:
            work.denial = ErrorView(kind="not found", detail=answer.detail)
        if self._may_be_elsewhere(work):
            self._missed(work, broker, "", now)
        else:
            self._judge(work, now)

    def _may_be_elsewhere(self, work: Forwarded) -> bool:
        """True if another broker may have it: the id of a call, or of an imported job, may name another shard."""
        assert work.place is not None
        is_by_id = work.row.answered_by in ("job owner", "group owner", "predecessor owner")
        return work.place.kind == "search" or is_by_id

    def _missed(self, work: Forwarded, broker: str, reason: str, now: float) -> None:
        assert work.place is not None
        work.missed[broker] = reason
        if work.place.kind == "search":
            if not work.open:
                self._end_search(work, now)
        elif reason:
            self._wait(work, self._unreachable(work.place.shard or 0, broker, reason), now)
        else:
            self._forward(work, SEARCH, now)

    def _not_answered(self, work: Forwarded, broker: str, ending: Ending, now: float) -> None:
        is_repeated = not work.row.writes or getattr(work.request, "request_id", None) is not None
        is_repeated = is_repeated or (work.row is ENQUEUE and work.request.key is not None)
        assert work.place is not None
        reason = f"broker {broker} " + ("is gone" if ending is Ending.LOST else "has not answered in time")
        if work.place.kind == "search" and work.open:
            work.missed[broker] = reason
        elif is_repeated and work.place.kind == "shard":
            self._wait(work, self._unreachable(work.place.shard or 0, broker, reason), now)
        elif work.place.kind == "search":
            self._missed(work, broker, reason, now)
        elif is_repeated:
            self._refuse(work, "partitioned", f"{reason}; retry in a few seconds")
        else:
            self._refuse(work, "partitioned", f"{reason}; it may have executed the operation: look before you retry")

    def _end_search(self, work: Forwarded, now: float) -> None:
        """No broker that answered has it. Its own error is that of this broker, if all have answered."""
        silent = [name for name, reason in work.missed.items() if reason]
        if silent:
            which = f"broker {silent[0]} has" if len(silent) == 1 else f"brokers {', '.join(silent)} have"
            target = getattr(work.request, _first_field(work.row))
            detail = (
                f"{work.row.target} {target} is at no broker that answered, and {which} not; retry in a few seconds"
            )
            self._refuse(work, "partitioned", detail)
            return
        if self.name in work.denied:
            self._judge(work, now)
        else:
            self._execute_again(work, work.request, now)

    # ---------------------------------------------------------------- denials

    def work_of(self, row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder) -> Forwarded:
        """Return the record of an operation that this broker alone was to execute."""
        now = self._now()
        work = Forwarded(row, request, payload, responder, now, now + PATIENCE)
        try:
            work.place = self._places.of(row, request, payload, responder.owner.principal.name)
        except OperationError:  # it was refused for another reason before
            work.place = HERE
        return work

    def denied_here(self, work: Forwarded, problem: ErrorView) -> None:
        """This broker does not have it, or may not tell: look elsewhere, and prove the shards of this one."""
        work.is_over = False
        work.local = None
        work.denial = problem if work.denial is None else work.denial
        work.denied[self.name] = None
        if doubt := self._places.shards.doubt():
            self._refuse(work, "partitioned", f"{_subject(problem)}, and {doubt}; retry in a few seconds")
            return
        shard = work.place.shard if work.place is not None else None
        shards = self._places.denied_by(work.row, work.request, shard)
        within = min(CONFIRM_WITHIN, max(0.0, work.until - self._now()))
        self._places.shards.confirm(shards, partial(self._confirmed_here, work), within)

    def _confirmed_here(self, work: Forwarded, confirmed: Sequence[int], problems: dict[int, str]) -> None:
        if work.is_over:
            return
        now = self._now()
        work.confirmed.update(confirmed)
        work.has_imports = work.has_imports or self._places.shards.has_imports
        if problems:
            shard, reason = next(iter(problems.items()))
            self._wait(work, self._unreachable(shard, self.name, reason), now)
        elif self._may_be_elsewhere(work) and (work.place is None or work.place.kind != "search"):
            self._forward(work, SEARCH, now)  # it is here, and hidden; or another broker has a call with this id
        else:
            self._judge(work, now)

    def _judge(self, work: Forwarded, now: float) -> None:
        """Deny it, if no shard is left that could have it."""
        assert work.denial is not None
        doubt = self._places.shards.doubt()
        if doubt:
            self._refuse(work, "partitioned", f"{_subject(work.denial)}, and {doubt}; retry in a few seconds")
            return
        missing = [each for each in self._needed(work) if each not in work.confirmed]
        if missing:
            self._wait(work, f"{_subject(work.denial)}, and {no_answer(missing)}; retry in a few seconds", now)
        else:
            self._refuse(work, work.denial.kind, work.denial.detail)

    def _needed(self, work: Forwarded) -> Iterable[int]:
        """Return the shards that could have it."""
        shards = self._places.shards
        if work.row.answered_by in BY_ID and shards.count:
            named = shard_in(bytes.fromhex(getattr(work.request, _first_field(work.row))), shards.count)
            if work.has_imports or (named < 0 and not work.confirmed):  # not even known whether there were imports
                return range(shards.count)
            return [named] if named >= 0 else []
        place = work.place
        return [place.shard] if place is not None and place.shard is not None else []

    def _deliver(self, work: Forwarded, broker: str, answer: Answer) -> None:
        work.is_over = True
        for question in work.open.values():
            self._side.questions.leave(question)
        work.open.clear()
        if answer.kind:
            work.responder.refuse(ErrorView(kind=answer.kind, detail=answer.detail))  # type: ignore[arg-type]
        else:
            view = view_of(work.row, answer)
            failure = unpack_failure(answer.failure) if answer.failure else None
            if isinstance(view, ErrorView):
                work.responder.refuse(view)
            else:
                MarkingResponder(work.responder, broker).answer(view, answer.payload, failure)
        self._wake()

    def _refuse(self, work: Forwarded, kind: str, detail: str) -> None:
        work.is_over = True
        for question in work.open.values():
            self._side.questions.leave(question)
        work.open.clear()
        work.responder.refuse(ErrorView(kind=kind, detail=detail))  # type: ignore[arg-type]
        self._wake()


def _first_field(row: Operation[Any, Any]) -> str:
    name: str = row.request.__struct_fields__[0]
    return name


def _subject(problem: ErrorView) -> str:
    """Return the beginning of the error for something that does not exist."""
    return problem.detail.partition(": it never existed")[0]

"""Views of conversations: rows with the names of lanes, durations and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.conversation import (
    BROKER,
    GONE,
    NOTE,
    RECEIVED,
    SENT,
    AttemptEntry,
    Conversation,
    Entry,
    Lane,
    WorkerConversation,
    seconds,
)
from dragoman.core.conversations import ANSWERED, ENQUEUED, FINISHED, GIVEN, SUBMITTED, UNANSWERED
from dragoman.core.link_reasons import MARK
from dragoman.core.model import Worker
from dragoman.core.recipients import dialect_of
from dragoman.core.rights import ADMINISTER, SEE, Principal
from dragoman.dialects.catalogue import DIALECTS, MessageNames
from dragoman.operations.ladder_schemas import ConversationView, LaneView, RowView
from dragoman.operations.recorded_requests import name_of
from dragoman.operations.seen_links import seen_reason
from dragoman.operations.table import ENQUEUE
from dragoman.operations.views import moment
from dragoman.operations.visibility import may_see_all, owns_worker

UNKNOWN: Final = MessageNames(submit="job", give=(">job",), result=("<result",), done="result", undone="outcome")
NO_MESSAGE: Final = "no message"
NOT_REPORTED: Final = "not sent: the dialect has no message for it"


def conversation_view(
    conversation: Conversation, offset: float, principal: Principal, broker: Broker
) -> ConversationView:
    """Return the view of a job's conversation, without predecessors that the principal may not see; without
    `administer`, with the addresses of its own jobs' callers only (R147). `offset`: seconds that the wall clock is
    ahead of the clock of jobs."""
    reads = conversation.owner == principal.name or principal.may(ADMINISTER, conversation.service)
    lanes = _lanes(conversation.lanes)
    for lane in lanes:
        if lane.role == "caller" and not reads:
            lane.name = "caller"
    rows = [
        row
        for entry in conversation.entries
        for each in _spelled(entry, conversation.lanes)
        for row in _rows(each, conversation.began, conversation.lanes)
    ]
    for row in rows:
        if MARK in row.note:
            start = f"{row.kind}: " if row.note.startswith(f"{row.kind}: ") else ""
            reason = row.note.removeprefix(start)
            row.note = start + seen_reason(reason, conversation.owner, principal, broker)
    return ConversationView(
        job=conversation.id.hex(),
        ended=conversation.is_over,
        recorded="messages" if conversation.is_whole else "milestones",
        began=moment(conversation.began + offset),
        lanes=lanes,
        messages=rows,
        more=conversation.more,
    )


def worker_view(
    worker: Worker, conversation: WorkerConversation, principal: Principal, offset: float
) -> ConversationView:
    """Return the view of a worker's conversation, without messages about jobs that the principal may not see."""
    lanes = [Lane(f"w{worker.id}", "worker", worker.name, dialect_of(worker.recipient))]
    sees_all = may_see_all(principal) or owns_worker(principal, worker)
    rows = []
    for each in conversation.entries:
        if not each.id or sees_all or each.owner == principal.name or principal.may(SEE, each.service):
            for row in _rows(each.entry, conversation.began, lanes):
                row.job = each.id.hex()
                rows.append(row)
    return ConversationView(
        worker=worker.id,
        recorded="messages",
        began=moment(conversation.began + offset),
        lanes=_lanes(lanes),
        messages=rows,
        more=conversation.more,
    )


def _lanes(lanes: list[Lane]) -> list[LaneView]:
    """Return the lanes from left to right."""
    views = [LaneView(id=BROKER, role="broker", name="Dragoman")]
    for each in lanes:
        if each.role == "worker":
            views.append(LaneView(id=each.id, role="worker", name=each.name, dialect=each.dialect or None))
        else:
            callers = len(views) - 1 - sum(view.role == "worker" for view in views)
            name = each.name or "caller"  # in a history, the address of this machine is not known
            views.insert(callers, LaneView(id=each.id, role="caller", name=name, dialect=each.dialect or None))
    return views


def _rows(entry: Entry, began: float, lanes: list[Lane]) -> Iterator[RowView]:
    row = RowView(t=round(max(entry.time - began, 0.0), 6), ends=entry.ends, count=entry.count)
    if isinstance(entry, AttemptEntry):
        row.attempt, row.lane = entry.number, entry.lane
        row.title = f"Attempt {entry.number}" + (f" of {entry.most}" if entry.most > 1 else "")
        name = next((each.name for each in lanes if each.id == entry.lane), entry.lane)
        row.says = name if entry.ended is None else f"{name}, {_end(entry)}"
    elif entry.kind == RECEIVED:
        row.sender, row.receiver, row.message, row.size = entry.lane, BROKER, entry.text, entry.size
        row.dropped = entry.mark
    elif entry.kind == SENT:
        row.sender, row.receiver, row.message, row.size = BROKER, entry.lane, entry.text, entry.size
        row.unsent = entry.mark
    elif entry.kind == NOTE:
        row.at, row.note, row.kind = BROKER, entry.text, entry.mark
    else:
        assert entry.kind == GONE
        row.at, row.lost = entry.lane, entry.text
    yield row


def _end(entry: AttemptEntry) -> str:
    """Return how an attempt ended: `done in 2.4 s`."""
    assert entry.ended is not None
    word = "in" if entry.mark == "done" else "after"
    return f"{entry.mark} {word} {seconds(entry.ended - entry.given)}"


def _spelled(entry: Entry, lanes: list[Lane]) -> Iterator[Entry]:
    """Return the messages that a milestone stands for, in the dialect of its lane; any other entry as it is."""
    if not entry.text.startswith("\0"):
        yield entry
        return
    dialect = next((each.dialect for each in lanes if each.id == entry.lane), "")
    names = DIALECTS[dialect].messages if dialect in DIALECTS else UNKNOWN
    texts = {
        SUBMITTED: (f"<{names.submit}",),
        ENQUEUED: (f"<{name_of(ENQUEUE, dialect)}",),
        GIVEN: names.give,
        FINISHED: names.result,
        ANSWERED: (f">{names.done}",),
        UNANSWERED: (f">{names.undone}",),
    }[entry.text]
    for text in texts:
        spelled = Entry(entry.time, RECEIVED if text[0] == "<" else SENT, entry.lane, text[1:], entry.size)
        if not text[1:]:
            spelled.text, spelled.mark = NO_MESSAGE, NOT_REPORTED
        if text is texts[-1]:
            spelled.ends = entry.ends
        yield spelled

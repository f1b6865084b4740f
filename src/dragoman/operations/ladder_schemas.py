"""Requests and views of ladders: the recorded messages of a job or of a worker."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from dragoman.operations.schemas import JobIdText, Moment, OperationRequest, View, WorkerNumber

Role = Literal["caller", "broker", "worker"]
Recorded = Literal["messages", "milestones"]
Format = Annotated[
    Literal["json", "svg", "mermaid", "text"],
    Meta(description="Format of the HTTP response. Clients of other dialects get the view."),
]


class LadderRequest(OperationRequest):
    id: JobIdText
    format: Format = "json"


class WorkerLadderRequest(OperationRequest):
    id: WorkerNumber
    format: Format = "json"


class LaneView(View):
    """A party of a conversation, from left to right: callers, the broker, workers in the order of their attempts."""

    id: str
    role: Role
    name: str
    dialect: str | None = None


class RowView(View, omit_defaults=True, rename={"sender": "from", "receiver": "to"}):
    """One row: a message (`from`, `to`, `message`), an action of the broker (`at`, `note`), the start of an attempt
    (`attempt`, `lane`, `title`, `says`), or the end of a connection (`at`, `lost`). `t`: seconds since the first row.

    `size`: bytes of the message without what its carrier adds. `dropped`: the reason to ignore a received message.
    `unsent`: the reason that a message was not sent. `kind`: the outcome that a note is about. `ends`: the worker whose
    attempt ends here. `count`: heartbeats in this row. `job`: in a worker's ladder, the job that the row is about.
    """

    t: float
    sender: str = ""
    receiver: str = ""
    message: str = ""
    size: int = 0
    dropped: str = ""
    unsent: str = ""
    at: str = ""
    note: str = ""
    kind: str = ""
    lost: str = ""
    attempt: int = 0
    lane: str = ""
    title: str = ""
    says: str = ""
    ends: str = ""
    count: int = 1
    job: str = ""


class ConversationView(View):
    """The conversation of a job or a worker, in the order in which the broker saw it. It contains no payloads.

    `recorded` is `milestones` if the messages were not recorded, and follow from the history of the job. `more` is the
    number of messages that were left out: of a job the last ones, of a worker the first ones. `ended`: the job has
    ended; late messages may still follow.
    """

    recorded: Recorded
    began: Moment
    lanes: list[LaneView]
    messages: list[RowView]
    more: int = 0
    ended: bool = False
    job: JobIdText | None = None
    worker: int | None = None

"""One operation, as data: a row of the table of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from dragoman.operations.schemas import ErrorKind, OperationRequest, View

Right = Literal["call", "work", "see", "administer"]
# The object that the right is about. The first field of the request names a service, job, worker, schedule, group or
# quarantine group. For a `list` the handler leaves out what the principal may not see. `broker`: the right over all
# services. `none`: no right is needed. `conversation`: a job, or a call that has ended and whose messages are kept.
Target = Literal[
    "service", "job", "worker", "schedule", "group", "quarantine group", "list", "broker", "none", "conversation"
]
NAMED_TARGETS: Final = ("service", "job", "worker", "schedule", "group", "quarantine group", "conversation")
Method = Literal["GET", "POST", "PUT", "DELETE"]
# The brokers of a cluster that execute the operation. `job owner`, `group owner`: the first field of the request is an
# id, whose shard has an owner. `predecessor owner`: it is the id of a job or of a group. `key owner`: that of the shard
# of an idempotency key. `batch owner`: one broker for all jobs of the batch. `named shard`: the first field is the
# number of a shard. `shard 0`: the owner of shard 0, which has the schedules and the settings of services. `worker`,
# `schedule`: the broker that has it. `named broker`: the first field of the request names it; None: this one.
# `all`: every broker, and their views are merged (`merged_views.py`).
AnsweredBy = Literal[
    "this broker",
    "job owner",
    "group owner",
    "predecessor owner",
    "key owner",
    "batch owner",
    "named shard",
    "shard 0",
    "schedule",
    "worker",
    "all",
    "named broker",
]

RequestType = TypeVar("RequestType", bound=OperationRequest)
ViewType = TypeVar("ViewType", bound=View)

JOB_LOCATION: Final = "/v1/jobs/{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[RequestType, ViewType]):
    """One row of the table.

    `errors` are the error kinds of this operation alone. `all_errors` adds `invalid` for an operation that has fields,
    `loading` and `store unavailable` for one that writes, `forbidden` for one that needs a right (R146), and
    `partitioned` for one that another broker of a cluster may have to answer.
    """

    name: str  # the name on the native wire; underscores take the place of spaces in Python
    request: type[RequestType]
    view: type[ViewType]
    summary: str  # for the OpenAPI document, docstrings, `--help` and the reference page
    right: Right  # the right that a principal needs over the target
    target: Target
    method: Method
    path: str  # names in braces are fields of the request; the other fields are the query or the body
    answered_by: AnsweredBy  # in a cluster
    writes: bool = False  # the response is sent after the commit
    pages: bool = False  # the view is one page; its `after` is the start of the next one
    takes_payload: bool = False  # bytes are sent beside the request
    returns_payload: bool = False  # bytes are returned beside the view
    status: int = 200  # HTTP status of a response without error
    location: str = ""  # path of the created resource; names in braces are fields of the view
    errors: tuple[ErrorKind, ...] = ()
    command: str = ""  # the command, if it differs from the name
    for_any_right: bool = False  # target `service`: one of the rights over it is enough
    subject: str = ""  # name of the first field in Python and on the command line, if it differs
    returned: str = ""  # field of the view that methods of clients return; empty: the view

    def __post_init__(self) -> None:
        if self.right not in get_args(Right):
            raise ValueError(
                f"operation {self.name!r}: unknown right {self.right!r}; allowed are {', '.join(get_args(Right))}"
            )
        if self.target not in get_args(Target):
            raise ValueError(
                f"operation {self.name!r}: unknown target {self.target!r}; allowed are {', '.join(get_args(Target))}"
            )
        if self.answered_by not in get_args(AnsweredBy):
            known = ", ".join(get_args(AnsweredBy))
            raise ValueError(f"operation {self.name!r}: answered by {self.answered_by!r}; allowed are {known}")
        if self.target in NAMED_TARGETS and not self.request.__struct_fields__:
            raise ValueError(f"operation {self.name!r}: no field of its request names the {self.target}")
        missing = [each for each in self.path_fields if each not in self.request.__struct_fields__]
        if missing:
            raise ValueError(
                f"operation {self.name!r}: its path names {missing[0]!r}, which is no field of its request"
            )

    @property
    def path_fields(self) -> tuple[str, ...]:
        """Names of the request's fields that are in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part[:1] == "{")

    @property
    def other_fields(self) -> tuple[str, ...]:
        """Names of the request's fields that are in the query or in the body."""
        return tuple(each for each in self.request.__struct_fields__ if each not in self.path_fields)

    @property
    def creates_job(self) -> bool:
        """True if it creates a job, for which `call` is needed."""
        return self.location == JOB_LOCATION

    @property
    def has_body(self) -> bool:
        """True if fields of the request are the body of an HTTP request; else they are its query."""
        return self.method in ("POST", "PUT") and bool(self.other_fields)

    @property
    def group(self) -> str:
        """The kind of resource: `jobs`, `groups`, `services`, `workers`, `schedules`, `access` or `health`."""
        return self.path.split("/")[2]

    @property
    def python_name(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def all_errors(self) -> tuple[ErrorKind, ...]:
        """Error kinds that it may return."""
        general: list[ErrorKind] = ["invalid"] if self.request.__struct_fields__ else []
        general += ["loading", "store unavailable"] if self.writes else []
        general += ["forbidden"] if self.target not in ("list", "none") else []
        general += ["partitioned"] if self.answered_by != "this broker" else []
        return (*self.errors, *(each for each in general if each not in self.errors))

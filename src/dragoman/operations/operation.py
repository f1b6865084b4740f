"""One operation, as data: a row of the table of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from dragoman.operations.schemas import ErrorKind, OperationRequest, View

Right = Literal["call", "work", "see", "administer"]
Method = Literal["GET", "POST", "PUT", "DELETE"]

RequestType = TypeVar("RequestType", bound=OperationRequest)
ViewType = TypeVar("ViewType", bound=View)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[RequestType, ViewType]):
    """One row of the table.

    `errors` are the error kinds of this operation alone. An operation with fields may also be answered with `invalid`,
    one that writes with `loading` or `diary`.
    """

    name: str  # the name on the native wire; underscores take the place of spaces in Python
    request: type[RequestType]
    view: type[ViewType]
    summary: str  # sentences for the OpenAPI document, docstrings, `--help` and the reference page
    right: Right  # the right that a principal needs
    method: Method
    path: str  # names in braces are fields of the request; the others are the query or the body
    writes: bool = False  # it is answered after its commit
    pages: bool = False  # the view has one page, and in `after` the start of the next one
    takes_payload: bool = False  # bytes come beside the request
    returns_payload: bool = False  # bytes come beside the view
    status: int = 200  # of an HTTP response that is no error
    location: str = ""  # path of the resource that was created; names in braces are fields of the view
    errors: tuple[ErrorKind, ...] = ()
    command: str = ""  # on the command line, if that is not the name
    subject: str = ""  # the name of the first field in Python and on the command line, if it has another one there
    returned: str = ""  # the field of the view that methods of clients return, if it is not the view

    def __post_init__(self) -> None:
        if self.right not in get_args(Right):
            raise ValueError(f"operation {self.name!r}: right {self.right!r} is none of {', '.join(get_args(Right))}")
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
    def has_body(self) -> bool:
        """True if the fields of the request are the body of an HTTP request, False if they are its query."""
        return self.method in ("POST", "PUT") and bool(self.other_fields)

    @property
    def group(self) -> str:
        """The first part of the path: `jobs`, `services`, `workers`, `schedules` or `health`."""
        return self.path.split("/")[2]

    @property
    def python_name(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def all_errors(self) -> tuple[ErrorKind, ...]:
        """All error kinds of this operation."""
        general: list[ErrorKind] = ["invalid"] if self.request.__struct_fields__ else []
        general += ["loading", "store unavailable"] if self.writes else []
        return (*self.errors, *(each for each in general if each not in self.errors))

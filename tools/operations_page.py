"""Writes docs/operations.md from the table of operations: `python tools/operations_page.py`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from client_methods import field_name, shown_fields

from dragoman.cli.operation_commands import command_name
from dragoman.http.problems import STATUSES
from dragoman.operations.operation import Operation
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.schemas import ErrorKind
from dragoman.operations.table import JOB, OPERATIONS
from dragoman.sdk.errors import BrokerUnavailable, OperationError
from dragoman.sdk.operation_steps import error_of

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"

HEAD = """# Operations

An operation is a request about jobs, services, workers or schedules. Each has one name and the same fields everywhere:
over [HTTP](http.md), in an `ASK` of the [native dialect](dialects/native.md), as a method of `Client` and `AsyncClient`
([python.md](python.md)), and as a [command](cli.md). `GET /openapi.json` describes requests and answers to programs.

`make generate` writes this page from the table of operations, `src/dragoman/operations/table.py`.

An operation that *writes* is answered when its changes are on disk.

## Rights

Each operation needs a right over its target. Without an access table every client has all rights.

| target | the operation is for |
|---|---|
| service | a principal with the right over the service; `service` is for all that have any right over it |
| job | its owner, if the right is `call` or `see`; others with `see` or `administer` over its service, see below |
| worker | its owner, and a principal with the right over all services that it offers; to see it, over one of them |
| schedule | as for a job |
| group | its owner, if the right is `call` or `see`; others with `see` or `administer` over all services of its jobs |
| quarantine group | as for each of its jobs; those over which the principal lacks the right are left out |
| list | everybody: the list has what the principal may see |
| broker | a principal with the right over all services (`*`) |
| none | everybody; for each job that is enqueued, `call` over its service is needed |

- For jobs and schedules of others, `see` over the service allows operations with the right `see`; those with the right
  `call` need `administer`. `retry` and `set schedule` make jobs and therefore always need `call` over the service, or
  `administer` for those of others.
- A job, worker or schedule that the principal may not see is `not found`, with the same text as one that does not
  exist. `forbidden` is for services, and for what the principal may see.
- With `see`, a job is shown with its states, its outcome and the reason of the outcome, and without payload, result,
  error, progress and idempotency key. `administer` includes `see`, and shows all.
- Lists have the services over which the principal has any right, its own jobs, workers and schedules, and those of
  services that it may see. Event streams have the same jobs and workers; progress is for the owner and `administer`.
- An idempotency key belongs to its principal: another one may use the same key.
- The runs of a schedule are jobs of its owner. If the owner may no longer call the service, runs are skipped. A name
  that another principal uses for a schedule is a `conflict`, because names belong to the whole broker.
- The name of the principal takes the place of `by` in a pause; only `local` may choose it. Reasons of jobs that
  another principal cancels or purges name it, too. Every act by `administer` has a line `administered` in the
  [log](operate.md).

## All operations

"""

ERRORS_HEAD = """## Errors

Every operation that has fields may be `invalid`, every one that writes may be `loading` or `store unavailable`, and
every one that needs a right may be `forbidden`. Errors of one operation are listed with it. Native clients get the kind
in an `OBJECT`, HTTP clients as the `type` of a problem document (`urn:dragoman:not-found`).

| kind | HTTP status | Python |
|---|---|---|
"""

TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "time (RFC 3339)",
    dict: "object",
}


def page(rows: Iterable[Operation[Any, Any]]) -> str:
    rows = list(rows)
    return HEAD + _overview(rows) + "".join(_section(row) for row in rows) + ERRORS_HEAD + _errors()


def _overview(rows: list[Operation[Any, Any]]) -> str:
    lines = ["| operation | HTTP | Python | command | right | target |", "|---|---|---|---|---|---|"]
    lines += [
        f"| [{row.name}](#{row.name.replace(' ', '-')}) | `{row.method} {row.path}` | `{_call(row)}` "
        f"| `{command_name(row)}` | {row.right} | {row.target} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n\n"


def _call(row: Operation[Any, Any]) -> str:
    """Return the call, such as `pause(service, …)`: required parameters, and an ellipsis if there are others."""
    fields = shown_fields(row)
    words = [field_name(row, each) for each in fields if each.is_required]
    words += ["payload"] if row.takes_payload else []
    has_more = row.takes_payload or any(not each.is_required for each in fields)
    return f"{row.python_name}({', '.join([*words, *(['…'] if has_more else [])])})"


def _section(row: Operation[Any, Any]) -> str:
    answer = ", ".join(f"`{name}`" for name in row.view.__struct_fields__)
    facts = [
        f"`{row.method} {row.path}`, native `{row.name}`, Python `{_call(row)}`, `dragoman {command_name(row)}`.",
        f"Right: `{row.right}`, target: {row.target}. " + ("Writes." if row.writes else "Does not write."),
        *(["Takes a payload."] if row.takes_payload else []),
        *(["Returns bytes beside the view."] if row.returns_payload else []),
        *(["Answers with pages: `after` in the answer is the `after` of the next request."] if row.pages else []),
    ]
    errors = ", ".join(f"`{kind}`" for kind in row.all_errors)
    lines = [f"## {row.name}", "", row.summary, "", " ".join(facts), ""]
    if request_fields(row.request):
        lines += ["| field | type | limits | default | |", "|---|---|---|---|---|"]
        lines += [_field(each) for each in request_fields(row.request)]
        lines += [""]
    lines += [f"Answer: {answer}." + (f" Errors: {errors}." if errors else ""), "", ""]
    return "\n".join(lines)


def _field(field: RequestField) -> str:
    kind = TYPES[field.kind]
    kind = f"list of {kind}s" if field.is_list else kind
    default = "required" if field.is_required else field.default_text
    return f"| `{field.name}` | {kind} | {field.limits} | {default} | {field.description} |"


def _errors() -> str:
    return "".join(f"| `{kind}` | {STATUSES[kind][0]} | {_exception(kind)} |\n" for kind in get_args(ErrorKind))


def _exception(kind: str) -> str:
    if kind == "loading":
        return f"the client asks again for a minute, then `{BrokerUnavailable.__name__}`"
    name = f"`{type(error_of(JOB, OperationError(kind, ''))).__name__}`"
    return f"{name}, `NoSuchService` or `NotFound`" if kind == "not found" else name


def main() -> None:
    PAGE.write_text(page(OPERATIONS.values()))


if __name__ == "__main__":
    main()

"""Commands for operations that have none of their own, made from the table of operations.

`dragoman NAME FIELD... [--field VALUE]...` prints the view: a list as a table, anything else as facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from dragoman.cli.client import connect_option, connected, json_option, naming_lists
from dragoman.cli.request_options import FieldValue, given, request_options
from dragoman.cli.tables import print_facts, print_json, print_table, span
from dragoman.cli.worker_ids import worker_id
from dragoman.operations.operation import Operation
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.schemas import View, WorkerRef

TIMES = ("silent", "lease", "oldest")  # fields of views that are numbers of seconds


def commands_from(rows: Iterable[Operation[Any, Any]]) -> list[click.Command]:
    """One command for each row. An operation with a payload needs a module of its own."""
    return [_command(row) for row in rows]


def command_name(row: Operation[Any, Any]) -> str:
    """`pause`, `schedule pause`, `show-worker`: words after `dragoman`."""
    return row.command or row.name.replace(" ", "-").replace("_", "-")


def _command(row: Operation[Any, Any]) -> click.Command:
    if row.takes_payload or row.returns_payload:
        raise ValueError(f"operation {row.name!r} has a payload: write a command for it")

    def run(url: str | None, as_json: bool, **options: Any) -> None:
        with connected(url) as client, naming_lists(row):
            if row.request is WorkerRef:
                options["id"] = worker_id(client, options["id"])
            view = client.operation(row, row.request(**given(options)))
        _print(row, view, as_json)

    for decorate in (json_option, request_options(row.request, *_optional(row)), connect_option):
        run = decorate(run)
    command = click.command(command_name(row), help=row.summary)(run)
    command.params[:0] = [
        click.Argument([field.name], type=_type(row, field), metavar=_metavar(row, field.name))
        for field in request_fields(row.request)
        if field.is_required
    ]
    return command


def _type(row: Operation[Any, Any], field: RequestField) -> FieldValue | None:
    """The type of an argument; None for a worker's number, whose last digits are enough."""
    return None if row.request is WorkerRef else FieldValue(row.request, field)


def _optional(row: Operation[Any, Any]) -> list[str]:
    return [field.name for field in request_fields(row.request) if not field.is_required]


def _metavar(row: Operation[Any, Any], name: str) -> str:
    is_subject = row.subject and name == row.request.__struct_fields__[0]
    return (row.subject if is_subject else name).upper()


def _print(row: Operation[Any, Any], view: View, as_json: bool) -> None:
    listed = getattr(view, row.returned, None) if row.returned else None
    if as_json:
        print_json(*(listed if isinstance(listed, list) else [view]))
    elif isinstance(listed, list):
        entries = msgspec.to_builtins(listed)
        titles = [name.upper().replace("_", " ") for name in (entries[0] if entries else ())]
        rows = [[_text(name, each) for name, each in entry.items()] for entry in entries]
        print_table(titles, rows, "There are none.")
    else:
        print_facts([(name.replace("_", " "), _text(name, each)) for name, each in msgspec.to_builtins(view).items()])


def _text(name: str, value: Any) -> Any:
    """The value of a field, with its unit if it is a time."""
    return span(value) if name in TIMES and value is not None else _cell(value)


def _cell(value: Any) -> Any:
    """A value in a line of text."""
    if isinstance(value, list):
        if all(each is None for each in value):  # quantiles of a time in which nothing ended
            return ""
        return ", ".join("–" if each is None else str(_cell(each)) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_cell(each)}" for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else value

"""The client of commands that send requests to a running broker, and the options that these share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.exit_codes import code_of, ending_errors, fail
from dragoman.sdk.address import URL_VARIABLE
from dragoman.sdk.default_url import DEFAULT_URL, url_or_default

if TYPE_CHECKING:
    from dragoman.operations.operation import Operation, RequestType, ViewType
    from dragoman.sdk.client import Client

DEFAULT = f"[default: {URL_VARIABLE}, else {DEFAULT_URL}]"

# Advice for an unknown id or name, by the group of the operation.
LISTS = {
    "jobs": "`dragoman jobs` lists the jobs",
    "groups": "`dragoman job` shows the group of a job",
    "services": "`dragoman services` lists the services",
    "workers": "`dragoman workers` lists the workers",
    "schedules": "`dragoman schedule list` lists the schedules",
}

Command = TypeVar("Command", bound=Callable[..., Any])


def connect_option(command: Command) -> Command:
    """Add `--connect` to a command that performs operations: the native dialect and HTTP have these."""
    return click.option(
        "--connect",
        "url",
        metavar="URL",
        help=f"Address of the broker, native (tcp://, ipc://) or HTTP (http://, http+unix://); several brokers of "
        f"a cluster: tcp://a:7400,b:7400.  {DEFAULT}",
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a line.")(command)


@contextmanager
def connected(url: str | None) -> Iterator[Client[bytes]]:
    """A client that is closed at the end. An error that it raises ends the command."""
    from dragoman.sdk.client import Client

    with ending_errors(url), Client(url_or_default(url), wait_for_broker=False) as client:
        yield client


def perform(
    url: str | None, row: Operation[RequestType, ViewType], request: RequestType, payload: bytes = b""
) -> ViewType:
    """Perform one operation and return its view. An error ends the command."""
    with connected(url) as client, naming_lists(row):
        return client.operation(row, request, payload)


@contextmanager
def naming_lists(row: Operation[Any, Any]) -> Iterator[None]:
    """End the command if the broker does not know the id or the name, with the command that lists the known ones."""
    from dragoman.sdk.errors import NoSuchService, NotFound

    try:
        yield
    except (NotFound, NoSuchService) as error:
        fail(f"{error}; {LISTS[row.group]}" if not row.pages and row.group in LISTS else str(error), code_of(error))

"""The client of commands that send requests to a running broker, and the options that these share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.exit_codes import ending_errors
from dragoman.sdk.default_url import DEFAULT_URL, URL_VARIABLE, url_or_default

if TYPE_CHECKING:
    from dragoman.operations.operation import Operation, RequestType, ViewType
    from dragoman.sdk.client import Client

DEFAULT = f"[default: {URL_VARIABLE}, else {DEFAULT_URL}]"

Command = TypeVar("Command", bound=Callable[..., Any])


def connect_option(command: Command) -> Command:
    """Add `--connect` to a command that performs operations: the native dialect and HTTP have these."""
    return click.option(
        "--connect",
        "url",
        metavar="URL",
        help=f"Address of the broker, native (tcp://, ipc://) or HTTP (http://, http+unix://).  {DEFAULT}",
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
    with connected(url) as client:
        return client.operation(row, request, payload)

"""HTTP requests and event streams of commands that show a broker while it runs."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import click

from dragoman.sdk.address import URL_VARIABLE, AddressError, TlsAddress, UnixAddress
from dragoman.sdk.errors import BrokerUnavailable, DragomanError, Forbidden, NotFound
from dragoman.sdk.refusals import unauthenticated
from dragoman.sdk.targets import Target, caller_target
from dragoman.streams.sockets import unix_socket
from dragoman.streams.tls_context import client_role

DEFAULT_HTTP_URL = "http://127.0.0.1:7480"
CONNECT_TIMEOUT = 5.0  # seconds
SILENCE = 45.0  # seconds; a stream without events has a comment every 15

Command = TypeVar("Command", bound=Callable[..., Any])


class ServerEvent(NamedTuple):
    """One event of a stream."""

    name: str
    data: str


def http_option(command: Command) -> Command:
    """Add `--connect` to a command that needs the HTTP listener of the broker."""
    return click.option(
        "--connect",
        "url",
        metavar="URL",
        help="HTTP address of the broker (http://, https://, http+unix://).  "
        f"[default: {URL_VARIABLE} if it is one, else {DEFAULT_HTTP_URL}]",
    )(command)


def http_target(url: str | None) -> Target:
    """Return the target of the HTTP listener. Raises AddressError for an address of another dialect."""
    given = os.environ.get(URL_VARIABLE, "")
    if url is None:
        url = given if given.startswith("http") else DEFAULT_HTTP_URL
    target = caller_target(url)
    if target.dialect.name != "http":
        raise AddressError(
            f"{url} is an address of the dialect {target.dialect.name}, and this command needs HTTP; "
            f"write the HTTP address of the broker, such as {DEFAULT_HTTP_URL}"
        )
    return target


class BrokerHttp:
    """Requests to the HTTP listener of a broker, each on a connection of its own. Of several addresses, the one that
    answered last is tried first."""

    def __init__(self, url: str | None) -> None:
        """Raises AddressError."""
        self._targets = list(http_target(url).each)

    @property
    def _target(self) -> Target:
        return self._targets[0]

    @property
    def place(self) -> str:
        return str(self._target.place)

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON of a response. Raises DragomanError."""
        return json.loads(self.text(path, **query))

    def text(self, path: str, **query: object) -> str:
        """Return the text of a response. Raises DragomanError."""
        return self._send("GET", _with_query(path, query), None)

    def post(self, path: str, **fields: object) -> Any:
        """Send a JSON object and return that of the response. Raises DragomanError."""
        return json.loads(self._send("POST", path, json.dumps(fields)) or "null")

    def events(self, path: str, **query: object) -> Iterator[ServerEvent]:
        """Yield the events of a stream until it ends. The first is the event `open`, without data. Raises
        DragomanError."""
        response = self._open("GET", _with_query(path, query), None, SILENCE)
        yield ServerEvent("open", "")
        try:
            with response:
                yield from parse_events(response)
        except (OSError, http.client.HTTPException) as error:
            raise BrokerUnavailable(f"the connection to {self.place} is lost: {error}") from error

    def _send(self, method: str, target: str, body: str | None) -> str:
        try:
            with self._open(method, target, body, CONNECT_TIMEOUT) as response:
                return response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise BrokerUnavailable(f"the connection to {self.place} is lost: {error}") from error

    def _open(self, method: str, target: str, body: str | None, timeout: float) -> http.client.HTTPResponse:
        """Send a request and return the response, whose body is still to be read. Raises DragomanError."""
        problems: list[BrokerUnavailable] = []
        for _ in self._targets:
            try:
                made = self._connect(timeout)
            except OSError as error:
                problems.append(self._no_answer(error))
                self._targets.append(self._targets.pop(0))
                continue
            return self._request(made, method, target, body, timeout)
        raise BrokerUnavailable("; ".join(map(str, problems)))

    def _request(
        self, made: socket.socket, method: str, target: str, body: str | None, timeout: float
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        place = self._target.place
        host = "localhost" if isinstance(place, UnixAddress) else str(place)
        headers = {"Host": host, "Accept": "text/event-stream, application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token := self._target.proof.authorization:
            name, _, value = token.decode().strip().partition(": ")
            headers[name] = value
        try:
            connection.sock = made
            connection.request(method, target, body, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._no_answer(error) from error
        if response.status >= 400:
            raise self._error(response)
        return response

    def _no_answer(self, error: OSError | http.client.HTTPException) -> BrokerUnavailable:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return BrokerUnavailable(f"no broker answers at {self.place}: {problem.lower()}")

    def _connect(self, timeout: float) -> socket.socket:
        """Return a connected socket whose reads take at most `timeout` seconds. Raises OSError."""
        place = self._target.place
        if not isinstance(place, UnixAddress):
            made = socket.create_connection((place.host, place.port), CONNECT_TIMEOUT)
        else:
            made = unix_socket()
        try:
            if isinstance(place, UnixAddress):
                made.settimeout(CONNECT_TIMEOUT)
                made.connect(place.path)
            elif isinstance(place, TlsAddress):
                role = client_role(place.tls, place.host)
                made = role.context.wrap_socket(made, server_hostname=role.server_name)
        except BaseException:
            made.close()
            raise
        made.settimeout(timeout)
        return made

    def _error(self, response: http.client.HTTPResponse) -> DragomanError:
        """The error of a response: the detail of its problem document."""
        if response.status == 401:
            return unauthenticated(self._target.place, self._target.proof)
        text = response.read().decode("utf-8", "replace")
        try:
            problem = json.loads(text)
            sentence = str(problem.get("detail") or problem["title"])
        except (ValueError, KeyError, AttributeError):
            sentence = f"the broker at {self.place} answered {response.status} {response.reason}"
        kinds = {403: Forbidden, 404: NotFound, 503: BrokerUnavailable}
        return kinds.get(response.status, DragomanError)(sentence)


def _with_query(path: str, query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the events of a stream of lines, and an event `comment` for each comment. An event that is not complete at
    the end is dropped."""
    name, data = "message", list[str]()
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerEvent(name, "\n".join(data))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        if not field:
            yield ServerEvent("comment", "")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)

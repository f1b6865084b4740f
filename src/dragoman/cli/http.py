"""How commands ask a running broker: one HTTP request each, by the standard library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import click

from dragoman.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, fail

if TYPE_CHECKING:
    from http.client import HTTPConnection

DEFAULT = "http://127.0.0.1:7480"
PATIENCE = 30.0  # seconds, besides what the broker is asked to wait
NO_BROKER = "whoever answered is no Dragoman broker"
WRITTEN = "http://HOST:PORT or http+unix:///PATH"

Command = TypeVar("Command", bound=Callable[..., Any])


def connect_option(command: Command) -> Command:
    return click.option(
        "--connect", "url", metavar="URL", default=DEFAULT, show_default=True, help="The broker's HTTP address."
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a line.")(command)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            fail(f"{NO_BROKER}: HTTP status {self.status}, and no JSON", FAILED)


def path(*parts: object) -> str:
    """`/v1/jobs/…`: each part is one part, whatever is in it."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def ask(url: str, method: str, path: str, *, said: Any = None, wait: float = 0.0) -> Any:
    """What the broker answers, read as JSON; a problem ends the command. `said` goes as JSON."""
    answer = request(url, method, path, said=said, wait=wait)
    if answer.status >= 400:
        give_up_on(answer)
    return answer.json()


def request(
    url: str,
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    said: Any = None,
    body: bytes | None = None,
    wait: float = 0.0,
) -> Answer:
    """One request, whatever comes of it. If no broker is there, that ends the command."""
    from http.client import BadStatusLine, HTTPException, RemoteDisconnected

    headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
    if said is not None:
        headers, body = {"Content-Type": "application/json"}, json.dumps(said).encode()
    words = {name: each for name, each in (query or {}).items() if each is not None}
    connection = _connection(url, wait + PATIENCE)
    try:
        connection.request(method, f"{path}?{urlencode(words)}" if words else path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except TimeoutError:
        fail(f"the broker at {url} has not answered for {wait + PATIENCE:g} s", UNREACHABLE)
    except (OSError, HTTPException) as error:
        if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
            fail(
                f"{url} {_spoken(str(error))}: this is not the broker's HTTP address. "
                f"Use --connect {WRITTEN}; the default is {DEFAULT}",
                UNREACHABLE,
            )
        fail(
            f"no broker answers at {url}: {error}. Start one with `dragoman serve`, or say --connect {WRITTEN}",
            UNREACHABLE,
        )
    finally:
        connection.close()


def _spoken(line: str) -> str:
    """The protocol of a server whose first bytes are no HTTP."""
    if line.startswith("\xff"):
        return "speaks ZMTP, the protocol of ZeroMQ"
    if line.startswith("\x00SP"):
        return "speaks SP, the protocol of nanomsg and NNG"
    return f"does not speak HTTP; it began with {line[:20]!r}"


def give_up_on(answer: Answer) -> NoReturn:
    fail(problem_of(answer), exit_code(answer))


def problem_of(answer: Answer) -> str:
    """The problem that an answer reports, in one sentence."""
    try:
        said = json.loads(answer.body)
        return f"{said['title']}: {said['detail']}" if said["detail"] else str(said["title"])
    except (ValueError, KeyError, TypeError):
        return f"{NO_BROKER}: HTTP status {answer.status}"


def exit_code(answer: Answer) -> int:
    return {400: USAGE, 422: USAGE, 504: TIMED_OUT}.get(answer.status, FAILED)


def _connection(url: str, timeout: float) -> HTTPConnection:
    from http.client import HTTPConnection

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        fail(f"--connect {url}: {error}; write {WRITTEN}", USAGE)
    if parts.scheme in ("http+unix", "http+ipc") and parts.path and not parts.netloc:
        return _unix_connection(unquote(parts.path), timeout)
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query or parts.username:
        fail(f"--connect {url}: write {WRITTEN}", USAGE)
    return HTTPConnection(host, port or 80, timeout=timeout)


def _unix_connection(place: str, timeout: float) -> HTTPConnection:
    import socket
    from http.client import HTTPConnection

    class UnixConnection(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(timeout)
            self.sock.connect(place)

    return UnixConnection("localhost", timeout=timeout)

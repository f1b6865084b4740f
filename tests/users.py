"""Calls that run as another user of this machine. The tests must run as root."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # to connect needs it, and another user may not be able to read Python's files
import json
import os
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from preloaded import become_user
from programs import PATIENCE

ALICE, BOB = 12_345, 12_346  # ordinary users; neither needs an entry in /etc/passwd
NOBODY = 65_534  # the overflow user
ROOT = 0


def as_user(uid: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `call` returns in a forked process of this user, as JSON."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            become_user(uid)
            os.write(writing, json.dumps(call(*arguments)).encode())
            code = 0
        except BaseException as error:
            os.write(writing, json.dumps(repr(error)).encode())
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, said.decode()
    return json.loads(said)


def connected(url: str) -> socket.socket:
    """Connect to an address as `dragoman serve` prints it."""
    place = urlsplit(url)
    if place.scheme == "ipc":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(place.path)
        return connection
    assert place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=PATIENCE)


def first_bytes(url: str) -> str:
    """Connect and return the first bytes that the broker sends, in hex; empty if it closes the connection instead."""
    with connected(url) as connection:
        try:
            return connection.recv(8).hex()
        except ConnectionResetError:
            return ""


def response(url: str, path: str, method: str = "GET", fields: str = "") -> tuple[int, str]:
    """Send an HTTP request. Returns the status and the body."""
    with connected(url) as connection:
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{fields}\r\n"
        )
        connection.sendall(request.encode())
        said = b""
        while part := connection.recv(65_536):
            said += part
    head, _, body = said.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body

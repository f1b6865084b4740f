"""A worker whose result is too large, with a whole broker and real sockets (R16)."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from programs import DRAGOMAN, PATIENCE, Programs

JSON = "Content-Type: application/json"


def ask(port: int, path: str, *fields: str, body: bytes = b"", method: str = "POST") -> tuple[int, dict[str, str], Any]:
    head = "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *fields))
    if not any(each.startswith(("Content-Length", "Transfer-Encoding")) for each in fields):
        head += f"\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as visitor:
        visitor.sendall(f"{head}\r\n\r\n".encode() + body)
        said = b""
        while part := visitor.recv(65536):
            said += part
    first, *lines = said.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    content = said.partition(b"\r\n\r\n")[2]
    return int(first.split()[1]), headers, json.loads(content) if "json" in headers.get("content-type", "") else content


@pytest.mark.parametrize(
    ("field", "body", "size"),
    [
        ("Content-Length: 1001", b"", " of 1001 bytes"),
        ("Content-Length: 1001", b"a" * 1001, " of 1001 bytes"),
        ("Transfer-Encoding: chunked", b"3e8\r\n" + b"a" * 1000 + b"\r\n1\r\n", ""),
    ],
    ids=["announced", "sent", "in chunks"],
)
def test_a_result_that_is_too_large_fails_its_job(programs: Programs, field: str, body: bytes, size: str) -> None:
    """A bug: the HTTP listener rejected it without naming its job, and the job was dispatched again until its
    time-out."""
    broker = programs.start(DRAGOMAN, "serve", "http://127.0.0.1:0?max_payload=1000", "--data", "memory", "--strict")
    port = int(broker.prints(r"http://127\.0\.0\.1:(\d+) +both"))
    _, _, joined = ask(port, "/v1/workers", JSON, body=b'{"services": ["s"]}')
    secret = f"Dragoman-Worker-Token: {joined['token']}"
    _, _, job = ask(port, "/v1/jobs?service=s&attempts=1", body=b"x")
    _, given, _ = ask(port, f"/v1/workers/{joined['id']}/next", secret)
    attempt = f"Dragoman-Attempt: {given['dragoman-attempt']}"
    status, _, problem = ask(port, f"/v1/workers/{joined['id']}/result", secret, attempt, field, body=body)
    assert (status, problem["type"]) == (413, "urn:dragoman:too-large")
    _, _, ended = ask(port, f"/v1/jobs/{job['id']}", method="GET")
    assert (ended["state"], ended["outcome"]) == ("ended", "failed")
    assert ended["reason"] == f"its answer{size} is over max_payload 1000"

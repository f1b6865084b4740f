"""An HTTP server that requires a token, as a broker does: it answers calls itself, and has one worker at most."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from programs import PATIENCE


class TokenServer:
    """Listens on a free port until the end of the `with` block. Converts payloads of calls to upper case."""

    def __init__(self, token: str, context: ssl.SSLContext | None = None) -> None:
        self.token = token  # changes when it is revoked
        self.requests: list[tuple[str, str | None]] = []  # path and Authorization of each
        self.worker_waits = threading.Event()  # a worker has requested a job
        self.worker_may_go_on = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._handle()

            def do_POST(self) -> None:
                self._handle()

            def do_DELETE(self) -> None:
                self._handle()

            def log_message(self, *_: object) -> None:
                pass

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer._handle(self, body)

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignore clients that end without closing their connections."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="token server")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.worker_may_go_on.set()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()
        assert not self._thread.is_alive()

    def _handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path, shown = request.path.partition("?")[0], request.headers.get("authorization")
        self.requests.append((path, shown))
        if path.endswith("/next"):
            self.worker_waits.set()
            self.worker_may_go_on.wait(PATIENCE)
        if path == "/livez":
            _respond(request, 200, b"alive\n")
        elif shown != f"Bearer {self.token}":
            problem = {"type": "urn:dragoman:unauthenticated", "title": "unauthenticated", "detail": "no valid token"}
            _respond(request, 401, json.dumps(problem).encode(), "application/problem+json")
        elif path == "/v1/workers":
            view = {"id": 1, "token": "w", "lease": 30.0, "wait": 20.0}
            _respond(request, 201, json.dumps(view).encode(), "application/json")
        elif path.endswith("/next"):
            _respond(request, 204, b"")
        else:
            _respond(request, 200, body.upper(), "application/octet-stream")


def _respond(request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "text/plain") -> None:
    request.send_response(status)
    request.send_header("content-type", kind)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)

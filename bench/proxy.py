"""The ceiling: `zmq.proxy`, libzmq's own C loop, between a ROUTER for clients and a DEALER for workers.

python -m bench.proxy FRONTEND_PORT BACKEND_PORT [KEY_FILE]

With a file of a CURVE key pair, both sockets are CURVE servers with this key.
"""

from __future__ import annotations

import sys

import zmq
import zmq.auth


def main() -> None:
    """Forward until killed. There are no high-water marks: nothing is dropped and no sender is blocked."""
    frontend_port, backend_port, *key_files = sys.argv[1:]
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 64)
    key = zmq.auth.load_certificate(key_files[0]) if key_files else None
    frontend = _bind(context, zmq.ROUTER, frontend_port, key)
    backend = _bind(context, zmq.DEALER, backend_port, key)
    zmq.proxy(frontend, backend)


def _bind(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, port: str, key: tuple[bytes, bytes | None] | None
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    if key is not None:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = key
    socket.set_hwm(0)
    socket.setsockopt(zmq.BACKLOG, 1024)
    socket.bind(f"tcp://127.0.0.1:{port}")
    return socket


if __name__ == "__main__":
    main()

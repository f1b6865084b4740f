"""The ceiling: `zmq.proxy`, libzmq's own C loop, between a ROUTER for clients and a DEALER for workers.

python -m bench.proxy FRONTEND_PORT BACKEND_PORT
"""

from __future__ import annotations

import sys

import zmq


def main() -> None:
    """Forward until killed. There are no high-water marks: nothing is dropped and no sender is blocked."""
    frontend_port, backend_port = sys.argv[1:]
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 64)
    frontend = _bind(context, zmq.ROUTER, frontend_port)
    backend = _bind(context, zmq.DEALER, backend_port)
    zmq.proxy(frontend, backend)


def _bind(context: zmq.Context[zmq.Socket[bytes]], kind: int, port: str) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.setsockopt(zmq.BACKLOG, 1024)
    socket.bind(f"tcp://127.0.0.1:{port}")
    return socket


if __name__ == "__main__":
    main()

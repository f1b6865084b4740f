"""Load on brokers with and without encryption: the options, the protocols and the JSON line of load.py.

Modes are `proxy` and `pingpong`, plain or with `-curve` or `-tls`; and `handshake`, `handshake-curve` and
`handshake-tls`, where a job is one connection until its handshake is done. libzmq has no TLS, so PingPong over TLS goes
through a relay in a thread of the load: compare the broker's CPU there, and not the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import zmq
import zmq.auth
from zmq.utils import z85

from bench.load import Crowd, drive, read_options
from bench.measure import Run, run_between, take_reading
from dragoman.carriers.zmtp_curve import zmtp_carrier
from dragoman.carriers.zmtp_curve_handshake import CurveClient
from dragoman.carriers.zmtp_handshake import NULL, Security

FOLDER = "DRAGOMAN_BENCH_SECRETS"  # the variable that names the folder of keys and certificates
SERVER_KEY, CLIENT_KEY, CERTIFICATE, PRIVATE_KEY = "server.key", "client.key_secret", "cert.pem", "key.pem"
MODES = tuple(f"{kind}{suffix}" for kind in ("proxy", "pingpong", "handshake") for suffix in ("", "-curve", "-tls"))
SOCKET_LIMIT = 10.0


def main() -> None:
    options = read_options("bench.secure_load", *MODES)
    kind, _, mechanism = options.mode.partition("-")
    options.mode = kind
    if kind == "handshake":
        print(json.dumps(asdict(_shake_hands(options, mechanism))))
        return
    if mechanism == "tls":
        options.frontend, options.backend = (relay_to(each) for each in (options.frontend, options.backend))
    if mechanism == "curve":
        drive(options, Crowd, use_curve)
    else:
        drive(options, Crowd)


def secrets() -> Path:
    return Path(os.environ[FOLDER])


def client_keys() -> tuple[bytes, bytes, bytes]:
    """Public key of the server, and public and secret key of the client, each in Z85."""
    public, secret = zmq.auth.load_certificate(secrets() / CLIENT_KEY)
    assert secret is not None
    return (secrets() / SERVER_KEY).read_bytes(), public, secret


def use_curve(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """Let all sockets of this context use CURVE."""
    server, public, secret = client_keys()
    context.setsockopt(zmq.CURVE_SERVERKEY, server)
    context.setsockopt(zmq.CURVE_PUBLICKEY, public)
    context.setsockopt(zmq.CURVE_SECRETKEY, secret)


# ---------------------------------------------------------------- handshakes


def _shake_hands(options: argparse.Namespace, mechanism: str) -> Run:
    """Connect again and again, one connection at a time."""
    once = _handshake_of(options.frontend, mechanism)
    over = time.monotonic() + options.warmup
    while time.monotonic() < over:
        once()
    latencies = []
    before = take_reading(options.broker_pid)
    over = time.monotonic() + options.seconds
    while time.monotonic() < over:
        start = time.monotonic_ns()
        once()
        latencies.append(time.monotonic_ns() - start)
    return run_between(before, take_reading(options.broker_pid), latencies, 0, 0)


def _handshake_of(endpoint: str, mechanism: str) -> Callable[[], None]:
    place = _place(endpoint)
    security: Security = NULL
    if mechanism == "curve":
        server, public, secret = (z85.decode(each) for each in client_keys())
        security = CurveClient((public, secret), server, os.urandom)
    context = _tls_context() if mechanism == "tls" else None

    def once() -> None:
        connected = socket.create_connection(place, SOCKET_LIMIT)
        with context.wrap_socket(connected, server_hostname="localhost") if context else connected as stream:
            carrier = zmtp_carrier("DEALER", dials=True, security=security)
            while not carrier.ready:
                stream.sendall(b"".join(carrier.outgoing))
                carrier.outgoing = []
                carrier.feed(stream.recv(65_536))
                assert carrier.failure is None, carrier.failure
            if carrier.outgoing:
                stream.sendall(b"".join(carrier.outgoing))

    return once


# ---------------------------------------------------------------- TLS


def relay_to(endpoint: str) -> str:
    """Start a relay that encrypts, in a thread of its own. Returns its endpoint, for connections without TLS."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    # asyncio sets this for sockets that were made with the number of TCP only. Without it each message waits for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    place = _place(endpoint)
    threading.Thread(target=lambda: asyncio.run(_relay(listening, place)), daemon=True).start()
    return f"tcp://127.0.0.1:{listening.getsockname()[1]}"


async def _relay(listening: socket.socket, place: tuple[str, int]) -> None:
    context = _tls_context()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = await asyncio.open_connection(*place, ssl=context, server_hostname="localhost")
        await asyncio.gather(_pump(reader, far[1]), _pump(far[0], writer), return_exceptions=True)

    async with await asyncio.start_server(connected, sock=listening) as server:
        await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 18):
        writer.write(data)
        await writer.drain()
    writer.close()


def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(secrets() / CERTIFICATE))


def _place(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()

"""Calls and handshakes over plain connections, CURVE and TLS, beside libzmq's own proxy with and without CURVE.

The load on PingPong and on the proxy is pyzmq (`secure_load.py`). libzmq has no TLS, so the native dialect is measured
with Dragoman's own client and worker, too (`native_secure_load.py`). Tables compare CPU with that of plain connections.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import zmq
import zmq.auth

from bench.brokers import Kind, chosen, data_folder
from bench.compare import Comparison
from bench.generator import Generator, Shape
from bench.measure import NotMeasured
from bench.secure_load import CERTIFICATE, CLIENT_KEY, FOLDER, PRIVATE_KEY, SERVER_KEY
from bench.table import block

CALL_SHAPES = (
    Shape(workers=4, window=1, size=100),
    Shape(workers=16, window=16, size=100),
    Shape(workers=4, window=4, size=1 << 20),
)
NATIVE_SHAPES = (
    Shape(workers=1, window=1, size=100),
    Shape(workers=1, window=16, size=100),
    Shape(workers=1, window=2, size=1 << 20),
)
HANDSHAKE_SHAPES = (Shape(workers=1, window=1, size=100),)
GENERATOR = Generator("pyzmq; TLS through a relay", (sys.executable, "-m", "bench.secure_load"))
NATIVE_GENERATOR = Generator("Dragoman's own client and worker", (sys.executable, "-m", "bench.native_secure_load"))
NATIVE_URL = "native+{scheme}://127.0.0.1:{{frontend}}{more}"
PROXY = (sys.executable, "-m", "bench.proxy", "{frontend}", "{backend}")
URL = "pingpong+{scheme}://127.0.0.1:{{backend}}?frontend={{frontend}}{more}"
NO_LIMIT = tuple(
    part
    for name in ("max_handshakes", "max_unauthenticated", "max_accepts_per_second")
    for part in ("--set", f"{name}=1000000")
)


@contextmanager
def secure_kinds() -> Iterator[tuple[Kind, ...]]:
    """Make keys and a certificate. Returns the brokers: the first two are plain."""
    if not zmq.has("curve"):
        raise NotMeasured("this libzmq has no CURVE")
    with data_folder() as name:
        folder = Path(name)
        data = folder / "data"
        _make_keys(folder, data)
        _make_certificate(folder)
        os.environ[FOLDER] = name
        try:
            yield (
                Kind("zmq.proxy", "proxy", PROXY),
                Kind("plain", "pingpong", _serve("tcp", "", "memory")),
                Kind("zmq.proxy, CURVE", "proxy-curve", (*PROXY, str(_broker_key(data)))),
                Kind("CURVE", "pingpong-curve", _serve("tcp", "&auth=curve", str(data))),
                Kind(
                    "TLS",
                    "pingpong-tls",
                    _serve("tls", f"&cert={folder / CERTIFICATE}&key={folder / PRIVATE_KEY}", "memory"),
                ),
            )
        finally:
            del os.environ[FOLDER]


def native_kinds(folder: Path) -> tuple[Kind, ...]:
    """Return native brokers with the secrets of this folder: the first is plain."""
    data = folder / "data"
    tls = f"?cert={folder / CERTIFICATE}&key={folder / PRIVATE_KEY}"
    rows = (
        ("plain", "native", "tcp", "", "memory"),
        ("CURVE", "native-curve", "tcp", "?auth=curve", str(data)),
        ("TLS", "native-tls", "tls", tls, "memory"),
    )
    return tuple(
        Kind(name, mode, ("{dragoman}", "serve", NATIVE_URL.format(scheme=scheme, more=more), "--data", place))
        for name, mode, scheme, more, place in rows
    )


def handshakes_of(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """Return the same brokers for a load that only connects."""
    return tuple(
        Kind(each.name, each.mode.replace("pingpong", "handshake").replace("proxy", "handshake"), each.command)
        for each in kinds
    )


def secure_table(title: str, comparisons: Sequence[Comparison], unit: str) -> str:
    """Return a row for each load and broker; ratios are to the plain broker, or to the plain proxy for the proxy."""
    rows = [("size", "in flight", "", f"{unit}s/s", "p50 µs", "p99 µs", f"broker CPU µs/{unit}", "ratio", "clean runs")]
    for comparison in comparisons:
        for name in comparison.runs:
            figures = comparison.figures(name)
            ratio = comparison.cpu_ratio(name, "zmq.proxy" if name.startswith("zmq") else "plain")
            rows.append(
                (
                    f"{comparison.shape.size:,}",
                    str(comparison.shape.window),
                    name,
                    f"{figures.rate:,.0f}",
                    f"{figures.p50_us:,.0f}",
                    f"{figures.p99_us:,.0f}",
                    f"{figures.broker_us:,.1f}",
                    f"{ratio:.2f}",
                    f"{figures.clean}/{figures.runs}" if figures.clean else "NONE",
                )
            )
    return "\n".join(block(title, rows))


def _serve(scheme: str, more: str, data: str) -> tuple[str, ...]:
    url = URL.format(scheme=scheme, more=more)
    return ("{dragoman}", "serve", url, "--data", data, *NO_LIMIT)


def _make_keys(folder: Path, data: Path) -> None:
    """Make the key of the broker, which the proxy has as well, and that of the load, which may do everything."""
    data.mkdir(mode=0o700)
    public_file, secret_file = zmq.auth.create_certificates(folder, "client")
    assert Path(secret_file).name == CLIENT_KEY
    Path(secret_file).chmod(0o600)
    public, _ = zmq.auth.load_certificate(public_file)
    _run(str(chosen()), "keys", "new", "--broker", "--data", str(data))
    _run(str(chosen()), "keys", "allow", "load", public.decode(), "--call", "*", "--work", "*", "--data", str(data))
    server, _ = zmq.auth.load_certificate(_broker_key(data))
    (folder / SERVER_KEY).write_bytes(server)


def _broker_key(data: Path) -> Path:
    return data / "keys" / "broker.key_secret"


def _make_certificate(folder: Path) -> None:
    _run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", str(folder / PRIVATE_KEY), "-out", str(folder / CERTIFICATE)),
    )


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
        raise NotMeasured(f"`{' '.join(command[:3])}` failed: {error} {detail}") from error

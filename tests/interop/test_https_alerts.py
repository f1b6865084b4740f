"""HTTPS tells a client why its handshake failed, by an alert as all other listeners with TLS do."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_setup import BrokerSetup

from authority import Authority
from programs import PATIENCE

Start = Callable[..., BrokerSetup]


@pytest.fixture(params=["asyncio", "uvloop"])
def listener(
    broker_setup: Start, authority: Authority, request: pytest.FixtureRequest
) -> Callable[[str], tuple[str, int]]:
    """Start a broker with this scheme, whose clients must show a certificate. Returns its address."""

    def start(scheme: str) -> tuple[str, int]:
        url = f"{scheme}://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}"
        host, _, port = broker_setup(url, loop=request.param).workers.partition("//")[2].rpartition(":")
        return host, int(port)

    return start


def alert(place: tuple[str, int], context: ssl.SSLContext) -> str:
    """Return the reason of OpenSSL's error for a client that connects with this context, and sends something."""
    with socket.create_connection(place, timeout=PATIENCE) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client.recv(100)
        except ssl.SSLError as error:
            return str(error.reason)
    return "no error"


def contexts(authority: Authority, folder: Path) -> dict[str, ssl.SSLContext]:
    """Clients that are refused: without a certificate, with one of another authority, with an old version."""
    made = {name: ssl.create_default_context(cafile=str(authority.cert)) for name in ("none", "none in 1.2", "foreign")}
    made["none in 1.2"].maximum_version = ssl.TLSVersion.TLSv1_2
    foreign = Authority(folder / "other").issue()
    made["foreign"].load_cert_chain(str(foreign.cert), str(foreign.key))
    return made


def test_https_sends_the_alerts_of_tls_that_other_listeners_send(
    listener: Callable[[str], tuple[str, int]], authority: Authority, tmp_path: Path
) -> None:
    """A client without a certificate saw its connection end, and no reason."""
    places = [listener(scheme) for scheme in ("https", "memodb+tls")]
    told = [
        {name: alert(place, each) for name, each in contexts(authority, tmp_path / str(number)).items()}
        for number, place in enumerate(places)
    ]
    assert told[0] == told[1]
    assert all("ALERT" in reason for reason in told[0].values()), told


def test_https_answers_what_is_no_tls_with_an_alert(listener: Callable[[str], tuple[str, int]]) -> None:
    with socket.create_connection(listener("https"), timeout=PATIENCE) as plain:
        plain.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f" + bytes(54))  # the greeting of ZMTP
        assert plain.recv(100)[:2] == b"\x15\x03"

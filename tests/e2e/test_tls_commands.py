"""Commands over TLS: certificates in addresses, and errors on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from authority import Authority, Issued
from programs import DRAGOMAN, HANDLERS, Program, Programs


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A folder with the handlers module, in which workers are started."""
    module = tmp_path / "handlers.py"
    module.write_text(HANDLERS.read_text())
    return module


@pytest.fixture(scope="module")
def client(authority: Authority) -> Issued:
    return authority.issue("client", "extendedKeyUsage=clientAuth")


def serve(programs: Programs, url: str) -> Program:
    return programs.start(DRAGOMAN, "serve", url, "--data", "memory", "--strict")


def test_serve_worker_and_call_use_certificates(
    programs: Programs, authority: Authority, client: Issued, handlers: Path
) -> None:
    broker = serve(programs, f"native+tls://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}")
    port = broker.prints(r"native +tls://127\.0\.0\.1:(\d+) +both")
    url = f"native+tls://localhost:{port}?ca={authority.cert}"
    refused = programs.dragoman("worker", "handlers:upper", "--connect", url)
    assert refused.ends() == 3
    assert "the broker requires a certificate: name one that it accepts with cert= and key=" in refused.err
    programs.dragoman("worker", "handlers:upper", "--connect", f"{url}&{client.options}")
    broker.prints("worker joined")
    done = programs.dragoman("call", "default", "hello", "--connect", f"{url}&{client.options}")
    assert (done.ends(), done.out) == (0, "HELLO"), done.err
    refused = programs.dragoman("call", "default", "hello", "--connect", url)
    assert refused.ends() == 3
    assert "the broker requires a certificate" in refused.err
    broker.prints("the client has shown no certificate.*handshake aborted")


def test_serve_with_a_wrong_file_ends_with_an_error(programs: Programs, authority: Authority) -> None:
    issued, other = authority.issue(), authority.issue()
    broker = serve(programs, f"https://127.0.0.1:0?cert={issued.cert}&key={other.key}")
    assert broker.ends() == 2
    assert f"key={other.key}: the private key does not belong to the certificate in {issued.cert}" in broker.err

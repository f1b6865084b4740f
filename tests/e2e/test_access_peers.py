"""Peers of a broker with an access folder: real libzmq and libnng, real commands, one broker for all tests.

The tests change the folder, and each puts back what it has changed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cbor2
import pytest
import zmq
from access_broker import DISCONNECT, REPLY, AccessBroker, Peers, job, submit

from authority import Authority
from programs import PATIENCE, Programs, until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[AccessBroker]:
    programs = Programs(tmp_path_factory.mktemp("access"))
    try:
        yield AccessBroker(programs, authority)
    finally:
        programs.end_all()


@pytest.fixture
def peers(broker: AccessBroker) -> Iterator[Peers]:
    peers = Peers(broker)
    yield peers
    peers.close()


# ---------------------------------------------------------------- rights


def test_worker_offers_only_what_it_may(broker: AccessBroker, peers: Peers) -> None:
    """The worker gets DISCONNECT and the client FAILED; the log says what to edit."""
    worker = peers.worker("gpu-1", b"mail")
    assert worker.socket.recv_multipart() == [b"", b"MDPW01", DISCONNECT]
    line = broker.logged("right refused", principal="gpu-1", right="work", service="mail", dialect="majordomo")
    assert line["advice"] == "if it is to have this right: dragoman access allow gpu-1 --work mail"
    client = peers.client(broker.token)
    submit(client, b"mail", 1, b"x")
    head, kind, sentence, _ = client.socket.recv_multipart()
    assert (head[:2], kind, sentence) == (b"\x21\x05", b"forbidden", b"forbidden: web may not call 'mail'")
    broker.logged("right refused", principal="web", right="call", service="mail", dialect="native")


def test_admitted_and_rejected_connections_are_logged_with_their_identity(broker: AccessBroker, peers: Peers) -> None:
    peers.curve("gpu-2").sees(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    line = broker.logged("connection admitted", principal="gpu-2", mechanism="curve")
    assert (line["identity"], line["address"]) == (broker.keys["gpu-2"][:8], "127.0.0.1")
    peers.null(broker.native, plain_username=b"token", plain_password=b"dgm_" + b"x" * 43)
    line = broker.logged("connection rejected", mechanism="token", reason="unknown password")
    assert re.fullmatch("[0-9a-f]{8}", line["identity"])
    assert "dgm_" not in broker.program.err


# ---------------------------------------------------------------- revocation


def test_revoked_peers_are_gone_and_their_jobs_go_to_others(broker: AccessBroker, peers: Peers) -> None:
    """CURVE, a token and a certificate are revoked, and each connection is closed by the reload."""
    certificate = broker.authority.issue("crop.example", "subjectAltName=DNS:crop.example")
    client = peers.client(broker.token)
    victim = peers.worker("gpu-1")
    broker.logged("worker joined", dialect="majordomo")
    submit(client, b"resize", 1, b"first")
    assert job(victim)[1] == b"first"
    other = peers.worker("gpu-2")
    broker.logged("connection admitted", principal="gpu-2", mechanism="curve")

    before = broker.disconnected
    broker.command("keys", "revoke", "gpu-1", broker.keys["gpu-1"])  # it tells the broker
    assert broker.disconnected == before + 1
    victim.sees(zmq.EVENT_DISCONNECTED)
    assert victim.sees(zmq.EVENT_HANDSHAKE_FAILED_AUTH) == 400  # libzmq does not come again after it
    broker.logged("connection rejected", mechanism="curve", reason="unknown key", identity=broker.keys["gpu-1"][:8])
    name, payload = job(other)
    assert payload == b"first"
    other.socket.send_multipart([b"", b"MDPW01", REPLY, name, b"", b"done"])
    assert client.socket.recv_multipart() == [b"\x20" + (1).to_bytes(16, "big"), b"done"]

    worker = peers.nng(certificate)
    worker.send(cbor2.dumps(["memo01", 1, b"", ["resize"]], canonical=True))
    broker.logged("worker joined", dialect="memodb")
    broker.command("access", "remove", "crop-1")
    (token,) = re.findall(r"sha256:([0-9a-f]{8})", (broker.access / "web.toml").read_text())
    broker.command("token", "revoke", "web", token)
    assert broker.disconnected == before + 3
    client.sees(zmq.EVENT_DISCONNECTED)
    broker.logged("connection rejected", mechanism="tls", reason="unknown certificate")

    broker.command("access", "allow", "crop-1", "--tls-name", "crop.example", "--work", "resize")
    broker.command("keys", "allow", "gpu-1", broker.keys["gpu-1"], "--work", "resize")
    broker.token = broker.command("token", "new", "web")
    broker.reload()


def test_principal_that_expires_while_connected_is_gone(broker: AccessBroker, peers: Peers) -> None:
    broker.new_key("gpu-3")
    broker.reload()
    peer = peers.curve("gpu-3")
    peer.sees(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    moment = datetime.now(UTC) + timedelta(seconds=2)
    with (broker.access / "gpu-3.toml").open("a") as opened:
        opened.write(f"expires = {moment.isoformat(timespec='milliseconds')}\n")
    line = broker.reload()
    peer.sees(zmq.EVENT_DISCONNECTED)
    if line["disconnected"] == 0:  # else this machine is so slow that it expired before the reload
        broker.logged("access expired", removed=["gpu-3"], disconnected=1)
    assert datetime.now(UTC) >= moment
    assert peer.sees(zmq.EVENT_HANDSHAKE_FAILED_AUTH) == 400
    broker.command("access", "remove", "gpu-3")
    broker.reload()


def test_temporary_refusal_comes_again(broker: AccessBroker, peers: Peers) -> None:
    """Beyond `max_peers` a connection is closed without ERROR, so libzmq dials until there is room."""
    broker.new_key("gpu-4")
    file = broker.access / "gpu-4.toml"
    file.write_text(f"{file.read_text()}max_peers = 1\n")
    broker.reload()
    first = peers.curve("gpu-4")
    broker.logged("connection admitted", principal="gpu-4")
    peers.curve("gpu-4")
    broker.logged("connection rejected", reason="too many connections", mechanism="curve")
    first.close()
    broker.program.prints('"connection admitted"[^\\n]*"gpu-4"|"gpu-4"[^\\n]*"connection admitted"', 2)
    broker.command("access", "remove", "gpu-4")
    broker.reload()


# ---------------------------------------------------------------- reloads that fail


def test_bad_access_file_changes_nothing(broker: AccessBroker, peers: Peers) -> None:
    """Another file has lost a right, and keeps it: a reload is all or nothing."""
    good, bad = broker.access / "gpu-1.toml", broker.access / "zz.toml"
    text = good.read_text()
    good.write_text(text.replace("work", "call"))
    bad.write_text("cull = ['resize']\n")
    bad.chmod(0o600)
    line = broker.reload("access not reloaded")
    assert len(line["problems"]) == 1
    assert "zz.toml" in line["problems"][0]
    before = len(broker.lines("worker joined"))
    peers.worker("gpu-1")
    broker.program.prints('"worker joined"', before + 1)
    good.write_text(text)
    bad.unlink()
    broker.reload()


def test_vanished_table_does_not_fall_open(broker: AccessBroker, peers: Peers) -> None:
    """Neither a reload nor the next start admits everybody."""
    hidden = broker.access.with_name("hidden")
    broker.access.rename(hidden)
    line = broker.reload("access not reloaded")
    assert "there is no access folder any more" in line["problems"][0] or "is missing" in line["problems"][0]
    peers.curve("gpu-2").sees(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    stranger = peers.null(broker.native, plain_username=b"token", plain_password=b"guessed")
    stranger.sees(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
    hidden.rename(broker.access)
    broker.reload()


def test_a_start_without_the_former_table_needs_a_confirmation(broker: AccessBroker, tmp_path: Path) -> None:
    broker.command("token", "new", "web", "--call", "*", where=tmp_path)
    first = broker.serve("tcp://127.0.0.1:0", data=tmp_path)
    first.prints("native")
    first.terminate()
    first.ends()
    (tmp_path / "access" / "web.toml").unlink()
    (tmp_path / "access").rmdir()
    again = broker.serve("tcp://127.0.0.1:0", data=tmp_path)
    assert again.ends() == 2
    assert "--no-access" in again.err


# ---------------------------------------------------------------- keys of the broker, and weaker mechanisms


def test_broker_s_old_key_stays_valid_after_a_rotation(broker: AccessBroker, peers: Peers) -> None:
    old, new = broker.server_key, broker.command("keys", "new", "--broker", "--rotate")
    assert new != old
    broker.reload()
    assert "Nobody has come by the old key" in broker.told("access", "show")
    for name, server_key in (("gpu-1", old), ("gpu-2", new)):
        peers.curve(name, server_key).sees(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    line = broker.logged("connection admitted", principal="gpu-1", server_key="old")
    assert line["mechanism"] == "curve"
    until(
        lambda: "gpu-1 came by the old key" in broker.told("access", "show"), "the command knows who uses the old key"
    )
    assert "gpu-2" not in broker.told("access", "show")
    assert "gpu-1 used it: give them" in broker.told("keys", "new", "--broker", "--rotate")
    broker.reload()
    assert "Nobody has come by the old key" in broker.told("access", "show")
    broker.server_key = new


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN"])
def test_downgrade_is_refused(broker: AccessBroker, mechanism: str) -> None:
    """A peer that wants a weaker mechanism than CURVE gets the broker's greeting, and nothing else."""
    host, port = broker.curve.removeprefix("tcp://").split(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.encode().ljust(20, b"\0") + bytes(32)
    ready = b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER" + b"\x08Identity\x00\x00\x00\x00"
    came = b""
    with socket.create_connection((host, int(port)), PATIENCE) as peer:
        peer.sendall(greeting + ready)
        peer.settimeout(PATIENCE)
        try:
            while piece := peer.recv(1000):
                came += piece
        except ConnectionResetError:
            pass
    assert len(came) <= 64
    assert came[12:32].rstrip(b"\0") == b"CURVE"
    line = broker.logged("connection rejected", mechanism="curve", reason="mechanism")
    assert "only CURVE is accepted" in line["detail"]


# ---------------------------------------------------------------- listeners that do not start


def test_listener_off_loopback_needs_an_identity(broker: AccessBroker, authority: Authority, tmp_path: Path) -> None:
    """Each refusal to start is one sentence with the next step (T1)."""
    server, expired = authority.issue(), authority.issue(days=-1)
    user, key, token = (tmp_path / name for name in ("user", "key", "token"))
    broker.command("access", "allow", "local-user", "--uid", "4711", "--call", "*", where=user)
    broker.command("keys", "allow", "gpu-1", broker.keys["gpu-1"], where=key)
    broker.command("token", "new", "web", where=token)
    rows = [
        ("tcp://0.0.0.0:0", None, "it listens off loopback, where anyone can submit jobs"),
        ("tcp://0.0.0.0:0?auth=token", token, "tokens would be readable on the way"),
        ("http://0.0.0.0:0?auth=token", token, "tokens would be readable on the way"),
        ("tcp://0.0.0.0:0?auth=curve", None, "no principal of the access table can use auth=curve"),
        ("tcp://0.0.0.0:0?auth=curve", user, "no principal of the access table can use auth=curve"),
        ("tcp://0.0.0.0:0?auth=curve", key, "auth=curve needs a key of the broker"),
        ("native+tls://0.0.0.0:0?auth=token", None, "cert="),
        (f"native+tls://0.0.0.0:0?{expired.options}&client_ca={authority.cert}", None, "expired"),
        (
            f"native+tls://0.0.0.0:0?{server.options}&client_ca={authority.cert}",
            user,
            "no principal of the access table can use client_ca",
        ),
    ]
    for url, data, sentence in rows:
        refused = broker.serve(url, data=data)
        assert refused.ends() == 2
        assert sentence in refused.err

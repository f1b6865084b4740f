"""A broker with an access folder, set up by the real commands, and peers that never import Dragoman's client."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pynng
import zmq
import zmq.auth
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from authority import Authority, Issued
from programs import PATIENCE, Program, Programs, until

RESIZE = b"resize"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes([number]) for number in range(1, 6))


class AccessBroker:
    """A broker with a listener for CURVE (Majordomo), for tokens (native) and for certificates (MemoDB)."""

    def __init__(self, programs: Programs, authority: Authority) -> None:
        self._programs = programs
        self._home = {"HOME": str(programs.folder), "XDG_CONFIG_HOME": str(programs.folder / "config")}
        self._reloads = 0
        self.authority = authority
        self.data = programs.folder / "data"
        self.access = self.data / "access"
        self.server_key = self.command("keys", "new", "--broker")
        self.keys = {name: self.new_key(name) for name in ("gpu-1", "gpu-2")}
        self.token = self.command("token", "new", "web", "--call", "resize")
        self.command("access", "allow", "crop-1", "--tls-name", "crop.example", "--work", "resize")
        urls = (
            "majordomo+tcp://127.0.0.1:0?auth=curve&heartbeat=0.5&liveness=100",
            "tcp://127.0.0.1:0?auth=token",
            f"memodb+tls://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}",
        )
        self.program = programs.dragoman("serve", *urls, "--data", self.data, "--strict", "--log", "json")
        self.curve = f"tcp://{self._place('majordomo')}"
        self.native = f"tcp://{self._place('native')}"
        self.memodb = f"tls+tcp://{self._place('memodb')}".replace("127.0.0.1", "localhost")

    def _place(self, dialect: str) -> str:
        return self.program.prints(rf"{dialect}[^\n]*?(127\.0\.0\.1:\d+)")

    def command(self, *words: object, where: Path | None = None) -> str:
        """Run a command about the access folder of this broker. Returns its output."""
        done = self._programs.run(*words, "--data", where or self.data, **self._home)
        assert done.ends() == 0, done.err
        return done.out.strip()

    def told(self, *words: object) -> str:
        """Run a command about the access folder. Returns its remarks."""
        done = self._programs.run(*words, "--data", self.data, **self._home)
        assert done.ends() == 0, done.err
        return done.err

    def new_key(self, name: str) -> str:
        """Make a key, and allow its principal to work for `resize`. Returns the public key."""
        made = self._programs.run("keys", "new", name, **self._home)
        assert made.ends() == 0, made.err
        self.command("keys", "allow", name, made.out.strip(), "--work", "resize")
        return made.out.strip()

    def key_pair(self, name: str) -> tuple[bytes, bytes]:
        """Read a key file with the library of ZeroMQ."""
        path = self._programs.folder / "config" / "dragoman" / "keys" / f"{name}.key_secret"
        public, secret = zmq.auth.load_certificate(path)
        assert secret is not None
        return public, secret

    def serve(self, *urls: str, data: Path | None = None) -> Program:
        """Start another broker."""
        return self._programs.dragoman("serve", *urls, "--data", data or "memory", **self._home)

    @property
    def disconnected(self) -> int:
        """Connections that reloads have closed, among them those of commands that changed the folder."""
        return sum(line["disconnected"] for line in self.lines("access reloaded"))

    def reload(self, event: str = "access reloaded") -> dict[str, Any]:
        """Send SIGHUP, and wait for the line about its result."""
        before = len(self.lines(event))
        self.program.signal(signal.SIGHUP)
        self.program.prints(f'"{event}"', before + 1)
        return self.lines(event)[before]

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of the log with this event."""
        found = [json.loads(line) for line in self.program.err.splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def logged(self, event: str, **facts: object) -> dict[str, Any]:
        """Wait for a line with these facts."""
        wanted = {"event": event, **facts}

        def find() -> dict[str, Any] | None:
            for line in self.lines(event):
                if wanted.items() <= line.items():
                    return line
            return None

        return until(find, f"{wanted} in {self.program.err}")  # type: ignore[return-value]


class Peer:
    """A DEALER of libzmq with a monitor."""

    def __init__(self, context: zmq.Context[Any], url: str, **options: bytes) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = self.socket.sndtimeo = int(PATIENCE * 1000)
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.monitor = self.socket.get_monitor_socket()
        self.monitor.rcvtimeo = int(PATIENCE * 1000)
        self.socket.connect(url)

    def sees(self, event: int) -> int:
        """Wait for an event of the connection. Returns its value."""
        while True:
            told = recv_monitor_message(self.monitor)
            if told["event"] == event:
                return int(told["value"])

    def close(self) -> None:
        if self.socket.closed:
            return
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)


class Peers:
    """Peers of a broker, which end with the test."""

    def __init__(self, broker: AccessBroker) -> None:
        self._broker = broker
        self._context: zmq.Context[Any] = zmq.Context()
        self._peers: list[Peer] = []
        self._nng: list[Any] = []

    def curve(self, name: str, server_key: str = "") -> Peer:
        public, secret = self._broker.key_pair(name)
        server = bytes.fromhex(server_key or self._broker.server_key)
        options = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": z85.encode(server)}
        return self._new(self._broker.curve, options)

    def null(self, url: str, **options: bytes) -> Peer:
        return self._new(url, options)

    def worker(self, name: str, service: bytes = RESIZE, server_key: str = "") -> Peer:
        """A Majordomo worker that has sent READY."""
        peer = self.curve(name, server_key)
        peer.socket.send_multipart([b"", b"MDPW01", READY, service])
        return peer

    def client(self, token: str) -> Peer:
        """A native client that has sent HELLO."""
        peer = self._new(self._broker.native, {"plain_username": b"token", "plain_password": token.encode()})
        peer.socket.send_multipart([b"\x01\x01\x01", b"{}"])
        assert peer.socket.recv_multipart()[0][:1] == b"\x02"
        return peer

    def nng(self, certificate: Issued) -> Any:
        """A REQ of libnng, connected with this certificate."""
        own = {"own_key_string": certificate.key.read_text(), "own_cert_string": certificate.cert.read_text()}
        config = pynng.TLSConfig(
            pynng.TLSConfig.MODE_CLIENT, server_name="localhost", ca_files=[str(self._broker.authority.cert)], **own
        )
        timeout = int(PATIENCE * 1000)
        made = pynng.Req0(tls_config=config, recv_timeout=timeout, send_timeout=timeout, resend_time=600_000)
        self._nng.append(made)
        made.dial(self._broker.memodb, block=True)
        return made

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        for each in self._nng:
            each.close()
        self._context.term()

    def _new(self, url: str, options: dict[str, bytes]) -> Peer:
        self._peers.append(Peer(self._context, url, **options))
        return self._peers[-1]


def job(peer: Peer) -> tuple[bytes, bytes]:
    """Wait for the next job of a Majordomo worker. Returns its client and its payload."""
    while True:
        _, _, command, *rest = peer.socket.recv_multipart()
        if command == REQUEST:
            client, _, payload = rest
            return client, payload
        assert command == HEARTBEAT


def submit(peer: Peer, service: bytes, number: int, payload: bytes, attempts: int = 3) -> None:
    """Send a job of a native client, which waits for a worker."""
    head = b"\x10\x01\xff" + bytes([attempts]) + bytes(12) + service
    peer.socket.send_multipart([head, number.to_bytes(16, "big"), payload])

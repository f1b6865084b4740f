"""NATS servers of tests: processes of `nats-server` on loopback, one alone or three as a cluster, with JetStream.

Each server has a folder of its own with its configuration, log and data, and ports that stay the same when it is
started again. It ends with its owner, and with the process of the tests if that is killed.

Nothing here uses Dragoman: `ask` speaks NATS over a plain socket.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from programs import PATIENCE, state, until

PROGRAM = Path(sys.executable).with_name("nats-server")
LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
FORMATION = 60.0  # seconds; patience for the election of leaders
TRIES = 5  # to find free ports
SPAWNER = ThreadPoolExecutor(1)  # the kernel ends a process with the thread that started it: this one lives on


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class PortTaken(Exception):
    """Another program took a port between the choice and the start."""


class NatsServer:
    """One process, and the folder and ports that it has in all of its lives."""

    def __init__(self, folder: Path, name: str = "solo", settings: str = "", port: int = 0) -> None:
        """`settings`: further lines of the configuration."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.port = port or free_ports(1)[0]
        self._log = folder / "server.log"
        self._config = folder / "server.conf"
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(settings)

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not started"
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def configure(self, settings: str) -> None:
        """Write the configuration. A server that runs reads it again with `reload`."""
        lines = [
            f'listen: "{LOOPBACK}:{self.port}"',
            f"server_name: {self.name}",
            "max_control_line: 16384",
            settings,
        ]
        self._config.write_text("\n".join(lines))

    def start(self) -> NatsServer:
        """Start the process, and wait until it listens. Raises PortTaken."""
        assert not self.is_running, f"{self.name} runs already"
        before = len(self.log)
        self._process = SPAWNER.submit(self._spawn).result()
        until(lambda: self._has_started(before), f"{self.name} listens")
        return self

    def _spawn(self) -> subprocess.Popen[bytes]:
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                [PROGRAM, "-c", self._config], stderr=log, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent
            )

    def _has_started(self, before: int) -> bool:
        said = self.log[before:]
        assert self._process is not None
        if self._process.poll() is not None:
            if "address already in use" in said:
                raise PortTaken(said)
            raise AssertionError(f"{self.name} ended with {self._process.returncode}\n{said}")
        return "Server is ready" in said

    def kill(self) -> None:
        """Send SIGKILL, and wait for the exit."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)
        until(lambda: state(self.pid) == "T", f"{self.name} is frozen")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def enter_lame_duck_mode(self) -> None:
        """Tell the server to stop soon: it sends INFO to its clients, and closes their connections a while later."""
        self.signal(signal.SIGUSR2)

    def reload(self) -> None:
        before = self.log.count("Reloaded server configuration")
        self.signal(signal.SIGHUP)
        until(lambda: self.log.count("Reloaded server configuration") > before, f"{self.name} has reloaded")

    def ask(self, subject: str, body: object = None, *, patience: float = 2.0) -> Any:
        """Send a request over a plain socket without credentials. Returns its reply, a JSON object; None: no reply."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            with socket.create_connection((LOOPBACK, self.port), patience) as connected:
                connected.settimeout(patience)
                file = connected.makefile("rb")
                file.readline()
                lines = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB inbox.test.* 1\r\n'
                connected.sendall(
                    lines + b"PUB %b inbox.test.1 %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
                )
                while words := file.readline().split():
                    if words[0] == b"PING":
                        connected.sendall(b"PONG\r\n")
                    elif words[0] == b"HMSG":  # no responders
                        return None
                    elif words[0] == b"MSG":
                        return json.loads(file.read(int(words[-1])))
        except OSError:
            pass
        return None


class NatsCluster:
    """Three servers with routes to each other."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        """`settings`: further lines of every server's configuration."""
        ports = free_ports(6)
        routes = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in ports[3:])
        self.servers: list[NatsServer] = []
        for index, name in enumerate(("n1", "n2", "n3")):
            own = [
                f'jetstream {{ store_dir: "{folder / name}" }}',
                f'cluster {{ name: test, listen: "{LOOPBACK}:{ports[3 + index]}", routes: [{routes}] }}',
                settings,
            ]
            self.servers.append(NatsServer(folder / name, name, "\n".join(own), ports[index]))

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.servers]

    def start(self) -> NatsCluster:
        """Start all servers, and wait until JetStream has elected its leader. Raises PortTaken."""
        for each in self.servers:
            each.start()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until JetStream answers at every server that runs."""
        for each in self.servers:
            if each.is_running:
                until(lambda each=each: self._has_leader(each), f"JetStream answers at {each.name}", FORMATION)

    @staticmethod
    def _has_leader(server: NatsServer) -> bool:
        found = server.ask("$JS.API.INFO")
        return found is not None and "error" not in found

    def create_stream(self, name: str, subjects: Sequence[str], replicas: int = 3, **settings: object) -> None:
        """Create a stream, as an operator does, and wait until it has a leader."""
        config = {"name": name, "subjects": list(subjects), "num_replicas": replicas, "storage": "file", **settings}

        def is_created() -> bool:
            found = self.any_running().ask(f"$JS.API.STREAM.CREATE.{name}", config, patience=5.0)
            return found is not None and "error" not in found

        until(is_created, f"the stream {name} is created", FORMATION)
        until(lambda: self.leader_of(name), f"the stream {name} has a leader", FORMATION)

    def leader_of(self, stream: str) -> NatsServer | None:
        """Return the server that leads a stream, or None during an election."""
        found = self.any_running().ask(f"$JS.API.STREAM.INFO.{stream}")
        leader = (found or {}).get("cluster", {}).get("leader", "")
        return next((each for each in self.servers if each.name == leader and each.is_running), None)

    def any_running(self) -> NatsServer:
        return next(each for each in self.servers if each.is_running and state(each.pid) != "T")

    def kill(self) -> None:
        for each in self.servers:
            each.kill()


T = TypeVar("T", NatsServer, NatsCluster)


def start_on_free_ports(make: Callable[[], T]) -> T:
    """Make and start a server or a cluster; again with other ports if one was taken meanwhile."""
    for _ in range(TRIES):
        made = make()
        try:
            made.start()
            return made
        except PortTaken:
            made.kill()
        except BaseException:
            made.kill()
            raise
    raise AssertionError(f"no free ports in {TRIES} tries")


# ---------------------------------------------------------------- JWTs


def jwt_of(claims: dict[str, object], issuer: Any) -> str:
    """Return a JWT in the form of NATS, signed by an nkey with `public` and `sign`."""

    def part(value: object) -> bytes:
        text = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=")

    body = {"jti": "test", "iat": int(time.time()), "iss": issuer.public, **claims}
    signed = part({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + part(body)
    return (signed + b"." + part(issuer.sign(signed))).decode()

"""Certificates of listeners are replaced while clients connect and call: nothing is lost (R139)."""

from __future__ import annotations

import http.client
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from authority import Authority, Issued
from dragoman import Client
from programs import Program, Programs, until

SWAPS = 4


class Load:
    """Calls a function again and again, in a thread, until `end`."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.done = 0
        self.problems: list[str] = []
        self._call = call
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._call()
            except Exception as error:  # of any kind: the test reports it
                self.problems.append(repr(error))
            self.done += 1

    def goes_on(self) -> None:
        """Wait until it has called twice: the second call has begun after this."""
        before = self.done
        until(lambda: self.done >= before + 2, "the load goes on")

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


class Setup:
    """A broker with two listeners that share a certificate, a worker, and load on both."""

    def __init__(self, programs: Programs, authority: Authority) -> None:
        self._authority = authority
        self._cert, self._key = programs.folder / "cert.pem", programs.folder / "key.pem"
        self._key.touch(0o600)
        self.use(authority.issue())
        options = f"cert={self._cert}&key={self._key}"
        urls = (f"https://127.0.0.1:0?{options}", f"native+tls://127.0.0.1:0?{options}")
        self.broker: Program = programs.dragoman("serve", *urls, "--data", "memory", "--strict", "--log", "human")
        self.port = int(self.broker.prints(r"https://127\.0\.0\.1:(\d+)"))
        native = self.broker.prints(r"native +tls://(\S+)")
        url = f"tls://{native}?ca={authority.cert}"
        programs.dragoman("worker", "--exec", "cat", "--service", "echo", "--connect", url)
        self.broker.prints("worker joined")
        self._context = ssl.create_default_context(cafile=str(authority.cert))
        self._client = Client(url)
        self.loads = [Load(self.connect), Load(self._connect_and_call(url)), Load(self._call)]

    def use(self, issued: Issued) -> None:
        self._cert.write_bytes(issued.cert.read_bytes())
        self._key.write_bytes(issued.key.read_bytes())

    def connect(self) -> bytes:
        """Send a request on a new connection. Returns the certificate of the broker."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context)
        connection.request("GET", "/livez")
        with connection.getresponse() as response:
            assert response.read() == b"alive\n"
        certificate = connection.sock.getpeercert(True)
        connection.close()
        return bytes(certificate)

    def _connect_and_call(self, url: str) -> Callable[[], None]:
        def call() -> None:
            with Client(url) as client:
                assert client.call("echo", b"x") == b"x"

        return call

    def _call(self) -> None:
        assert self._client.call("echo", b"y") == b"y"

    def reload(self, event: str, times: int) -> None:
        self.broker.signal(signal.SIGHUP)
        self.broker.prints(f" {event} ", times)

    def end(self) -> None:
        for load in self.loads:
            load.end()
        self._client.close()


@pytest.fixture
def setup(programs: Programs, authority: Authority) -> Iterator[Setup]:
    setup = Setup(programs, authority)
    yield setup
    setup.end()


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_reload_swaps_certificate_under_load(setup: Setup, authority: Authority) -> None:
    for number in range(1, SWAPS + 1):
        issued = authority.issue()
        setup.use(issued)
        setup.reload("access reloaded", number)
        for load in setup.loads:
            load.goes_on()
        assert setup.connect() == der(issued.cert)
    other = authority.issue()
    setup._cert.write_bytes(other.cert.read_bytes())  # and the key of the one before
    setup.reload("access not reloaded", 1)
    for load in setup.loads:
        load.goes_on()
    assert setup.connect() == der(issued.cert), "a wrong file changes nothing"
    assert [load.problems for load in setup.loads] == [[], [], []]

"""Records messages of the native dialect: a TCP proxy between a broker and its clients and workers writes every
message.

It imports nothing of Dragoman, so the interpreter of any build can run it. A recording is made with the broker, the
clients and the workers of one build; `tests/unit/dialects/native/test_recorded.py` replays it against later builds. The
scenarios are beside the recordings, in `tests/fixtures/native-*/record.py`.

A recording is a file of JSON lines in the order in which the proxy saw things. The first line is about the recording;
`began` is the time of day at `at` 0. Each other line has `at` (seconds), `connection` (a number), and one of:

    "opened": "peer"                         a connection that the peer has opened
    "from": "peer" or "broker", "frames"     a message; `word` is the first byte of its head, for readers
    "closed": "peer" or "broker"             the end of the connection, and the side that ended it

A frame is `{"hex": …}`, or `{"text": …}` if it is printable UTF-8 and not the head; `times` repeats it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRAGOMAN = Path(sys.executable).with_name("dragoman")  # the command of the build that is recorded
PATIENCE = 20.0  # seconds to wait for an expected event
GREETING = 64  # size of the greeting of ZMTP 3
MORE, LONG, COMMAND = 1, 2, 4  # flags of a ZMTP frame
REPEATED = 64  # a frame that repeats one byte this often is written as that byte and a count


class ZmtpReader:
    """Splits one direction of a ZMTP connection into messages. Greeting and commands have no frames."""

    def __init__(self) -> None:
        self._held = b""
        self._raw = b""  # of the message that is not complete yet
        self._frames: list[bytes] = []
        self._is_greeted = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """Take bytes, and yield each complete message as raw bytes and as frames."""
        self._held += data
        if not self._is_greeted:
            if len(self._held) < GREETING:
                return
            self._is_greeted = True
            yield self._take(GREETING), []
        while (start := self._start()) is not None:
            flags, length = self._held[0], int.from_bytes(self._held[1:start])
            if len(self._held) < start + length:
                return
            raw = self._take(start + length)
            if flags & COMMAND:
                yield raw, []
                continue
            self._raw += raw
            self._frames.append(raw[start:])
            if not flags & MORE:
                yield self._raw, self._frames
                self._raw, self._frames = b"", []

    def _start(self) -> int | None:
        """Return the offset of the next frame's content, or None if its header is incomplete."""
        if not self._held:
            return None
        start = 9 if self._held[0] & LONG else 2
        return start if len(self._held) >= start else None

    def _take(self, count: int) -> bytes:
        taken, self._held = self._held[:count], self._held[count:]
        return taken


class Recording:
    """The lines of one file, in order. Any thread may add a line."""

    def __init__(self, hidden: Mapping[bytes, bytes], **about: Any) -> None:
        """`hidden`: bytes that must not be written, such as paths of this machine, with their replacements."""
        self._hidden = hidden
        self._lock = threading.Lock()
        self._began = time.monotonic()
        began = time.time()
        self.lines: list[dict[str, Any]] = [{**about, "began": round(began, 3)}]

    def add(self, connection: int, **fields: Any) -> None:
        with self._lock:
            at = round(time.monotonic() - self._began, 4)
            self.lines.append({"at": at, "connection": connection, **fields})

    def add_message(self, connection: int, name: str, frames: Sequence[bytes]) -> None:
        word = f"{frames[0][0]:02x}"
        head, *others = map(self._hide, frames)
        written = [{"hex": head.hex()}, *map(written_frame, others)]
        self.add(connection, **{"from": name}, word=word, frames=written)

    def count(self, **fields: Any) -> int:
        """Return the number of lines with these fields. `sender` is the field `from`."""
        wanted = {("from" if name == "sender" else name): value for name, value in fields.items()}.items()
        with self._lock:
            return sum(wanted <= {**line, "frames": None}.items() for line in self.lines)

    def write(self, path: Path) -> None:
        with self._lock:
            path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))

    def _hide(self, frame: bytes) -> bytes:
        for secret, shown in self._hidden.items():
            frame = frame.replace(secret, shown)
        return frame


def written_frame(frame: bytes) -> dict[str, Any]:
    """Return a frame as the recording stores it."""
    shown, times = frame, 1
    if len(frame) >= REPEATED and len(set(frame)) == 1:
        shown, times = frame[:1], len(frame)
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        text = "\0"
    is_text = text.replace("\n", "").isprintable()
    written: dict[str, Any] = {"text": text} if is_text else {"hex": shown.hex()}
    return written if times == 1 else {**written, "times": times}


class Proxy:
    """Listens on a free port, forwards each connection to a broker, and records its messages."""

    def __init__(self, broker: tuple[str, int], recording: Recording) -> None:
        self.is_open = True  # false: new connections are closed at once, and not recorded
        self.swallow: int | None = None  # type of a peer's message that is dropped, together with its connection
        self._broker = broker
        self._recording = recording
        self._lock = threading.Lock()
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, connection: int) -> None:
        """Close a connection abruptly, as a broken network does. It counts as closed by the peer."""
        self._end(connection, "peer")

    def connections(self) -> list[int]:
        """Return the open connections."""
        with self._lock:
            return list(self._pairs)

    def close(self) -> None:
        self._listener.close()
        for connection in self.connections():
            self.cut(connection)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                peer.close()
                continue
            broker = socket.create_connection(self._broker)
            for each in (peer, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._count += 1
                number = self._count
                self._pairs[number] = (peer, broker)
            self._recording.add(number, opened="peer")
            for name, source, target in (("peer", peer, broker), ("broker", broker, peer)):
                threading.Thread(target=self._pump, args=(number, name, source, target), daemon=True).start()

    def _pump(self, number: int, name: str, source: socket.socket, target: socket.socket) -> None:
        reader = ZmtpReader()
        try:
            while data := source.recv(65536):
                for raw, frames in reader.feed(data):
                    if frames and name == "peer" and frames[0][:1] == bytes((self.swallow or 0,)):
                        self.swallow = None
                        self.cut(number)
                        return
                    if frames:  # recorded before it is forwarded, so that its answer comes later
                        self._recording.add_message(number, name, frames)
                    target.sendall(raw)
        except OSError:
            pass
        self._end(number, name)

    def _end(self, number: int, name: str) -> None:
        with self._lock:
            pair = self._pairs.pop(number, None)
        if pair is None:
            return
        self._recording.add(number, closed=name)
        for each in pair:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()


class Stage:
    """A broker and a proxy in front of it, for one scenario. The recording is written when the scenario has ended."""

    def __init__(self, path: Path, build: str, about: str, options: str) -> None:
        """`options`: options of the broker's listener, as in its URL."""
        self._path = path
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        self._start("serve", f"tcp://127.0.0.1:{port}?{options}", "--data", "memory")
        self.until(lambda: _listens(port))
        hidden = {
            f"{path.parent}/".encode(): b"",
            f"{Path(sys.prefix).parent}/".encode(): b"",
            socket.gethostname().encode(): b"host",
        }
        self.recording = Recording(hidden, build=build, about=about, options=options)
        self.proxy = Proxy(("127.0.0.1", port), self.recording)
        self.url = f"tcp://127.0.0.1:{self.proxy.port}"

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                time.sleep(0.2)  # the last answers
                self.recording.write(self._path)
        finally:
            self.proxy.close()
            for process in reversed(self._processes):
                process.terminate()
                process.wait(PATIENCE)

    def worker(self, *arguments: str, options: str = "") -> subprocess.Popen[bytes]:
        """Start `dragoman worker`, and return when it has joined. `options`: options of its URL."""
        with self.passes("02"):
            process = self._start("worker", *arguments, "--connect", self.url + options)
        time.sleep(0.2)  # later brokers send it no job before its connection has been open for 50 ms
        return process

    def leave(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a worker, and return when it has ended."""
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        time.sleep(0.1)

    @contextmanager
    def passes(self, word: str, sender: str = "broker", count: int = 1) -> Iterator[None]:
        """Wait until `count` messages of this kind have passed since the start."""
        before = self.recording.count(word=word, sender=sender)
        yield
        self.until(lambda: self.recording.count(word=word, sender=sender) >= before + count)
        time.sleep(0.05)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the scenario does not go on after {PATIENCE:g} s")
            time.sleep(0.01)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join((str(self._path.parent), str(Path(__file__).parent)))
        command: list[str | Path] = [DRAGOMAN, *arguments, "--log-level", "warning"]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL)
        self._processes.append(process)
        return process


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True

"""The process tree of the demo: child processes with their logs, all of which end with the demo."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

GRACE = 5.0  # seconds that child processes may take to end after SIGTERM
LAST_LINES = 10  # of a log that is shown after a problem


class DemoError(Exception):
    """A part of the demo that did not work: one sentence."""


class Child:
    """One child process and its log."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._log = log
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None

    @property
    def is_alive(self) -> bool:
        return not self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process, at most this long. True if it has ended."""
        if self._handle is not None and select.select([self._handle], [], [], max(0.0, seconds))[0]:
            os.close(self._handle)
            self._handle = None
        return self._handle is None

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.send(signal.SIGKILL)
        self.wait(GRACE)

    def stop(self) -> None:
        """Let the process end, by force if it does not."""
        self.send(signal.SIGTERM)
        if not self.wait(GRACE):
            self.kill()

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        except OSError:
            return ""


class ProcessTree:
    """Starts child processes through the fork server (`demo/starter.py`), and ends all of them.

    The fork server has a session of its own, so that Ctrl-C reaches the demo alone, which then ends the others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._channel, theirs = socket.socketpair()
        with theirs, open(folder / "starter.log", "wb") as log:
            self._starter = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "dragoman.demo.starter", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._answers = self._channel.makefile("r")
        self._children: list[Child] = []

    def start(self, name: str, program: str, *arguments: object) -> Child:
        """Start a function of `demo/starter.py` with these arguments in a child process."""
        log = self.folder / f"{len(self._children)}-{name}.log"
        self._channel.sendall((json.dumps([program, str(log), *arguments]) + "\n").encode())
        answer = self._answers.readline()
        if not answer:
            lines = (self.folder / "starter.log").read_text(errors="replace").splitlines()
            raise DemoError(f"the fork server has ended: {lines[-1] if lines else 'without a message'}")
        child = Child(int(answer), log)
        self._children.append(child)
        return child

    def close(self) -> None:
        """End all child processes, the workers first; by force after some seconds, or at once after a second Ctrl-C."""
        try:
            deadline = time.monotonic() + GRACE
            broker, workers = self._children[:1], self._children[1:]
            for some in (workers, broker):
                for child in some:
                    child.send(signal.SIGTERM)
                for child in some:
                    child.wait(deadline - time.monotonic())
        finally:
            for child in self._children:
                child.send(signal.SIGKILL)
            self._answers.close()
            self._channel.close()
            self._starter.kill()
            self._starter.wait()


def forget_settings() -> None:
    """Remove the variables that name other brokers, their settings, keys and tokens: the demo has its own broker."""
    for name in [each for each in os.environ if each.startswith("DRAGOMAN_")]:
        del os.environ[name]

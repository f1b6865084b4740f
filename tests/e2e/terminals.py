"""Commands on a pseudo-terminal, as a person runs them."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading

from programs import DRAGOMAN, PATIENCE, until

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class TerminalProgram:
    """One `dragoman` command whose input, output and errors are one terminal. `shown` is what a person sees."""

    def __init__(self, *words: object, folder: str | os.PathLike[str] = ".", **environment: str) -> None:
        controller, terminal = pty.openpty()
        self._controller = controller
        self._read: list[bytes] = []
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            [DRAGOMAN, *map(str, words)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=folder,
            env={**clean, "TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        return b"".join(self._read).decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def shown(self) -> str:
        return COLOUR.sub("", self.raw)

    def shows(self, text: str) -> None:
        until(lambda: text in self.shown or self.process.poll() is not None, f"{text!r} is shown")
        assert text in self.shown, self.shown

    def press(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._controller, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ends(self, patience: float = PATIENCE) -> int:
        code = self.process.wait(patience)
        self._reader.join(patience)
        os.close(self._controller)
        return code

    def _read_all(self) -> None:
        while True:
            try:
                some = os.read(self._controller, 65_536)
            except OSError:  # the last process of this terminal has ended
                return
            self._read.append(some)


def on_terminal(*words: object, **environment: str) -> TerminalProgram:
    """A command that has ended with exit code 0."""
    program = TerminalProgram(*words, **environment)
    assert program.ends() == 0, program.shown
    return program

"""A terminal in full screen: frames out, keys in. The terminal is restored at the end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from types import FrameType, TracebackType
from typing import Self

ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
TERMINATED = 143  # exit code
LEAVE = "\x1b[?25h\x1b[?1049l"
NAMED_KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "escape",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}


class FullScreen:
    """The terminal of standard input and output. Another thread may call `wake`.

    Not for Windows: it is imported there, but cannot be made."""

    def __init__(self) -> None:
        import termios

        self._input = sys.stdin.fileno()
        self._former = termios.tcgetattr(self._input)
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._waking, False)
        self._resized = signal.signal(signal.SIGWINCH, self._resize)
        self._terminated = signal.signal(signal.SIGTERM, self._terminate)

    def __enter__(self) -> Self:
        import tty

        tty.setcbreak(self._input)
        self._write(ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import termios

        signal.signal(signal.SIGWINCH, self._resized)
        signal.signal(signal.SIGTERM, self._terminated)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._former)
        self._write(LEAVE)
        os.close(self._woken)
        waking, self._waking = self._waking, -1
        os.close(waking)

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines."""
        return shutil.get_terminal_size()

    def draw(self, lines: list[str]) -> None:
        """Replace everything on the screen."""
        self._write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def wake(self) -> None:
        """Let `keys` return."""
        try:
            os.write(self._waking, b".")
        except OSError:  # it is awake already, or closed
            pass

    def keys(self, seconds: float) -> list[str]:
        """Wait for keys, for a call of `wake`, or this long. Returns the keys."""
        ready, _, _ = select.select([self._input, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 4096)
        return key_names(os.read(self._input, 1024)) if self._input in ready else []

    def _resize(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """End the program after the terminal is restored."""
        sys.exit(TERMINATED)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def key_names(data: bytes) -> list[str]:
    """The names of the keys whose bytes were read together. Keys without a name are their character."""
    found: list[str] = []
    while data:
        sequence = next((each for each in NAMED_KEYS if len(each) > 1 and data.startswith(each)), None)
        if sequence is None and data.startswith(b"\x1b") and len(data) > 1:
            return found  # a key that is not used here
        taken = sequence or data[:1]
        if taken in NAMED_KEYS:
            found.append(NAMED_KEYS[taken])
            data = data[len(taken) :]
        else:
            text = data.decode("utf-8", "ignore")
            if not text:
                return found
            found.append(text[0])
            data = data[len(text[0].encode()) :]
    return found

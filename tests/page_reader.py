"""Runs documentation pages: saves their files, runs their commands, and compares the output."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from programs import PATIENCE, Program, Programs

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A file is the block after its name, with no other name in code between the two.
FILE = re.compile(r"`([\w-]+\.(?:csv|js|py|toml))`[^`]*```(?!sh|console)\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A broker as `dragoman serve` starts it, but on free ports; each replaces a port that pages name.
LISTENERS = {
    "native+tcp://127.0.0.1:0": {"both": "7400"},
    "pingpong+tcp://127.0.0.1:0?frontend=0": {"workers": "7401", "callers": "7402"},
    "memodb+tcp://127.0.0.1:0": {"both": "7405"},
    "majordomo+tcp://127.0.0.1:0": {"both": "7406"},
    "http://127.0.0.1:0": {"both": "7480"},
}


class Page:
    """A page: its files by name, and its commands with the output that it shows for them."""

    def __init__(self, path: str) -> None:
        self.text = (ROOT / path).read_text()
        self.files = dict(FILE.findall(self.text))
        blocks = [body for language, body in FENCE.findall(self.text) if language not in (*SHELL, "diff")]
        assert blocks == list(self.files.values()), "every program is a file with a name"
        self.shown = {
            command: output
            for language, body in FENCE.findall(self.text)
            if language in SHELL
            for command, output in SHELL[language](body)
        }


def _script(body: str) -> list[tuple[str, str | None]]:
    """Return the commands of a shell block, without comments. Their output is not shown."""
    lines = (re.sub(r"(^|\s+)#.*", "", line) for line in body.replace("\\\n", " ").splitlines())
    return [(line, None) for line in lines if line]


def _session(body: str) -> list[tuple[str, str | None]]:
    """Return the commands of a terminal session, after `$`, each with its output."""
    steps = re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.MULTILINE)
    assert steps[0] == "", "a session begins with a command"
    return [(command, output) for command, _, output in (step.partition("\n") for step in steps[1:])]


SHELL = {"sh": _script, "console": _session}


class Reader(Programs):
    """Runs the commands of a page in a folder that has the page's files, beside a broker."""

    is_preloaded = False

    def __init__(self, folder: Path, path: str) -> None:
        super().__init__(folder)
        self.page = Page(path)
        self.typed: set[str] = set()
        self.ports: dict[str, str] = {}
        self.placeholders: dict[str, str] = {}  # text of the page that a reader replaces by a printed value
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / ".curlrc").write_text("silent\n")
        self.environment |= {"CURL_HOME": str(folder), "HOME": str(folder)}
        self.environment["PATH"] = f"{sys.prefix}/bin:{self.environment['PATH']}"

    def serve(self, data: str = "memory") -> None:
        """Start the broker, and save the page's files."""
        self.broker = self.dragoman("serve", *LISTENERS, "--data", data, "--strict")
        for url, places in LISTENERS.items():
            for who, port in places.items():
                dialect = url.partition(":")[0].partition("+")[0]
                self.ports[port] = self.broker.prints(rf"{dialect} +\w+://127.0.0.1:(\d+) +{who}")
        self.environment["DRAGOMAN_URL"] = f"tcp://127.0.0.1:{self.ports['7400']}"
        for name, text in self.page.files.items():
            self.save(name, text)

    def save(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(self.at_home(text))

    def copy(self, folder: str) -> None:
        """Save the files of an example."""
        for path in (ROOT / folder).rglob("*.*"):
            if "__pycache__" not in path.parts:
                self.save(path.relative_to(ROOT / folder).as_posix(), path.read_text())

    def type(self, command: str, more: str = "") -> Program:
        """Start a command of the page. `more` is appended to it: a free port, or a shorter time."""
        assert command in self.page.shown, f"{command!r} is not on the page"
        self.typed.add(command)
        line = self.at_home(f"{command} {more}".rstrip())
        is_simple = not set("|<>&;$") & set(line) and "=" not in shlex.split(line)[0]
        return self.start("sh", "-c", f"exec {line}" if is_simple else line)

    def works(self, command: str, times: int = 1) -> Program:
        """Start a worker of the page, and wait until it has joined."""
        worker = self.type(command)
        self.broker.prints("worker joined", times)
        return worker

    def prints_as_shown(self, command: str, patience: float = 4 * PATIENCE) -> None:
        """Run a command of a session. It must print the output on the page, and succeed unless that is an error."""
        program = self.type(command)
        code = program.ends(patience)
        shown = self.at_home(self.page.shown[command] or "")
        assert_fits(program.out + program.err, shown)
        assert (code == 0) != shown.startswith("dragoman: "), (command, code, program.out, program.err)

    def session(self) -> None:
        """Run all commands that the page shows with output and that were not run yet, in order."""
        for command, output in self.page.shown.items():
            if output is not None and command not in self.typed:
                self.prints_as_shown(command)

    def starts(self, command: str, address: str) -> Program:
        """Start a command that sends a request to the page's own web server, which has this address."""
        assert command in self.page.shown, f"{command!r} is not on the page"
        self.typed.add(command)
        return self.start("sh", "-c", "exec " + command.replace("http://127.0.0.1:8000", address))

    def sends(self, command: str, address: str) -> str:
        """Run such a command to its end, and compare its output."""
        program = self.starts(command, address)
        program.ends()
        assert_fits(program.out + program.err, self.page.shown[command] or "")
        return program.out

    def has_typed_all(self, but: tuple[str, ...] = ()) -> None:
        """Every command of the page has been typed, but for those that begin like these."""
        left = [each for each in self.page.shown if each not in self.typed and not each.startswith(but)]
        assert left == [], f"not typed: {left}"

    def at_home(self, text: str) -> str:
        for placeholder, value in self.placeholders.items():
            text = text.replace(placeholder, value)
        return re.sub(r"\b7[45]\d\d\b", lambda port: self.ports.get(port[0], port[0]), text)


def assert_fits(printed: str, shown: str) -> None:
    """Compare output. `…` stands for any text within a line, and as the last line for all further lines."""
    shown = shown.strip()
    pattern = re.escape(shown.removesuffix("\n…")).replace("…", "[^\n]*") + ("(?s:\n.*)" if shown[-2:] == "\n…" else "")
    assert re.fullmatch(pattern, printed.strip()), f"printed:\n{printed}\nshown:\n{shown}"

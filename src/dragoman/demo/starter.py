"""The fork server of the demo: a process that has loaded everything, and forks the broker and the workers.

    python -m dragoman.demo.starter SOCKET

It reads one JSON array a line from the inherited socket, `[program, log, argument...]`, and answers with the process id
of the child process that runs this program. When the socket is closed, it ends, and the kernel ends its children: no
process is left, however the demo ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dragoman.sdk.controller_worker
import dragoman.sdk.dialling_worker
import dragoman.sdk.http_worker
import dragoman.sdk.powerhose_worker
import dragoman.sdk.worker_runner
import dragoman.server.controller_listener
import dragoman.server.http_listener  # noqa: F401
from dragoman import __version__
from dragoman.demo.handlers import HANDLERS
from dragoman.sdk.parent_death import exit_with_parent
from dragoman.sdk.worker import Worker
from dragoman.server.config import Config
from dragoman.server.serve import Opened, run


def run_broker(addresses: str, *urls: str) -> int:
    """Run a broker that keeps everything in memory. It writes its addresses to a file: for each socket the dialect, the
    service of its listener, the role and the address."""

    def announce(opened: Opened, folder: Path | None) -> None:
        places = [
            (listener.address.dialect, listener.address.options.get("service", ""), role, place)
            for listener, sockets in opened
            for role, place in sockets
        ]
        unfinished = Path(f"{addresses}.new")
        unfinished.write_text(json.dumps(places))
        unfinished.rename(addresses)

    config = Config(listen=urls, data="memory", log="human", drain_timeout=1.0)
    return run(config, os.environ, announce, __version__)


def run_worker(url: str, handlers: Mapping[str, str]) -> int:
    """Run a worker in Python that offers these services with these handlers."""
    worker = Worker(url, threads=1)
    for service, name in handlers.items():
        worker.service(service)(HANDLERS[name])
    return worker.run()


def run_program(*words: str) -> int:
    """Become another program."""
    os.execvp(words[0], words)  # noqa: S606


PROGRAMS: dict[str, Callable[..., int]] = {each.__name__: each for each in (run_broker, run_worker, run_program)}


def serve(channel: socket.socket) -> None:
    """Fork a child process for each line. Returns when the socket is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes processes that have ended
    with channel.makefile("r") as lines:
        for line in lines:
            program, log, *arguments = json.loads(line)
            process = os.fork()
            if process == 0:
                _become(program, log, arguments)
            channel.sendall(f"{process}\n".encode())


def _become(program: str, log: str, arguments: list[Any]) -> None:
    """Run a program in this forked process, and end the process."""
    code = 1
    try:
        exit_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        code = PROGRAMS[program](*arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

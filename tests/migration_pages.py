"""Runs the programs under *Before* of the migration pages with Celery, RQ and Dramatiq, and compares their output.

    .venv-dev/bin/python tests/migration_pages.py

It installs these packages, and a redis-server, where `make bench ARGS="--only queues"` does. It is not part of the
tests, which run the programs under *After*.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.brokers import free_ports, wait_until_listening  # noqa: E402
from bench.queues.home import PYTHON, find_redis, install  # noqa: E402
from bench.queues.running import REDIS_COMMAND, Sessions  # noqa: E402
from bench.queues.systems import ON_REDIS  # noqa: E402
from page_reader import Page, assert_fits  # noqa: E402

SYSTEMS = ("celery", "rq", "dramatiq")
REDIS_PORT = "6379"
PATIENCE = 120.0  # seconds


def main() -> None:
    for each in ON_REDIS:
        if each.short_name in SYSTEMS:
            install(each.short_name, each.requirements)
    for name in SYSTEMS:
        check(f"docs/how-to/from-{name}.md")
        print(f"{name}: as shown", flush=True)


def check(path: str) -> None:
    """Run the commands under *Before*: those without output go on in the background. Raises AssertionError."""
    page = Page(path)
    before = page.text.partition("\n## After\n")[0]
    [port] = free_ports(1)
    environment = os.environ | {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        for name, text in page.files.items():
            if f"`{name}`" in before:
                Path(folder, name).write_text(text.replace(REDIS_PORT, str(port)))
        sessions = Sessions(path, environment, folder, log)
        with sessions.ended():
            redis = sessions.start([*REDIS_COMMAND, "--port", str(port), "--dir", folder], find_redis())
            wait_until_listening(redis, "redis", port)
            for command, output in page.shown.items():
                if command not in before:
                    continue
                words = ["sh", "-c", f"exec {command.replace(REDIS_PORT, str(port))}"]
                if output is None:
                    sessions.start(words)
                    continue
                process = sessions.start(words, output=subprocess.PIPE)
                printed, _ = process.communicate(timeout=PATIENCE)
                if process.returncode:
                    log.seek(0)
                    raise SystemExit(f"{path}: {command} failed\n{log.read().decode(errors='replace')}")
                assert_fits(printed.decode(), output)


if __name__ == "__main__":
    main()

"""Modules that are loaded with a client or a worker: their number is the same on every machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_OF_OURS = 64
HEAVY = {
    "msgspec",
    "starlette",
    "uvicorn",
    "click",
    "cbor2",
    "google",
    "sqlite3",
    "http",
    "email",
    "uvloop",
    "opentelemetry",
}


@pytest.mark.parametrize("name", ["Client", "AsyncClient", "Worker"])
def test_a_client_and_a_worker_load_little(name: str) -> None:
    script = f"import sys; before = {{*sys.modules}}; from dragoman import {name}; print(*({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert sum(each.startswith("dragoman") for each in loaded) <= MOST_OF_OURS
    assert not {each.partition(".")[0] for each in loaded} & HEAVY

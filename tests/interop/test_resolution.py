"""Dragoman can be installed beside other packages. Versions are resolved against the index; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from case_tables import check_every_row

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

# Environments that Dragoman is installed into: the releases that were current when it was first written, or older.
NEIGHBOURS = [
    ("opentelemetry-sdk<1.43", "opentelemetry-exporter-otlp-proto-grpc<1.43"),
    ("streamlit==1.46.*",),
    ("fastapi==0.115.*",),
    ("fastapi[standard]==0.115.*",),
    ("django==4.2.*",),
    ("celery==5.4.*",),
    ("protobuf>=3.20.3,<5",),  # TensorFlow 2.15 to 2.17
    ("protobuf>=3.12,<6",),  # MLflow 2
    ("ray==2.40.*",),
    ("pandas==2.2.*", "numpy==1.26.*"),
]


def resolve(*requirements: str, extra: str = "") -> subprocess.CompletedProcess[str]:
    options = ["--extra", extra] if extra else []
    return subprocess.run(
        [UV, "pip", "compile", "--quiet", "--no-header", *options, ROOT / "pyproject.toml", "-"],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module", autouse=True)
def index() -> None:
    done = resolve()
    if "error sending request" in done.stderr or "network" in done.stderr.lower():
        pytest.skip(f"no package index can be reached: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def lives_beside(*requirements: str) -> None:
    for extra in ("", "all"):
        done = resolve(*requirements, extra=extra)
        assert done.returncode == 0, done.stderr


def test_dragoman_lives_beside_other_packages() -> None:
    check_every_row(lives_beside, NEIGHBOURS)


def test_a_conflict_is_noticed() -> None:
    done = resolve("msgspec<0.15")
    assert done.returncode != 0
    assert "msgspec" in done.stderr

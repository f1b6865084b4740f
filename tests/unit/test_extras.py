"""Installation without extras: the client side works, and all else says in one sentence which extra to install."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from case_tables import check_every_row
from dragoman.sdk.extras import EXTRAS, MissingPackage, needed_by

ROOT = Path(__file__).parents[2]
MASKS = ROOT / "tests" / "masks"
NO_EXTRAS = os.environ | {"PYTHONPATH": str(MASKS), "HIDDEN": "extras"}
BROKER_SIDE = ("server", "http", "store", "access", "dashboard", "cluster", "transfer", "recording", "demo")
IMPORTED_AS = {"pynacl": "nacl", "opentelemetry-api": "opentelemetry", "sentry-sdk": "sentry_sdk"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=NO_EXTRAS, cwd=ROOT / "tests", capture_output=True, text=True, timeout=60
    )


def project() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", each)[0] for each in requirements}


def test_the_client_side_needs_three_packages() -> None:
    assert names_of(project()["dependencies"]) == {"click", "msgspec", "mypy-extensions"}  # type: ignore[arg-type]


def test_every_package_of_an_extra_is_in_the_table() -> None:
    extras = project()["optional-dependencies"]
    listed = {
        IMPORTED_AS.get(name, name): extra
        for extra, requirements in extras.items()
        if extra not in ("all", "test", "fuzz", "uvloop")
        for name in names_of(requirements)
    }
    assert listed | {"uvloop": "uvloop"} == EXTRAS
    sys.path.insert(0, str(MASKS))
    assert set(EXTRAS) <= _masks().EXTRAS


def _masks() -> object:
    spec = importlib.util.spec_from_file_location("masks", MASKS / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_public_names_of_the_client_side_load_nothing_of_the_broker() -> None:
    script = """
import sys, dragoman
for name in dragoman.__all__:
    if name != "LocalBroker":
        getattr(dragoman, name)
import dragoman.testing.eager, dragoman.integrations.asgi, dragoman.cli
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("dragoman.")}))
"""
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & set(BROKER_SIDE) == set()


def says_what_to_install(command: str) -> None:
    done = run("-m", "dragoman", *command.split())
    sentence = (
        rf"dragoman: dragoman {command.split()[0]} needs the package '\w+', which is not installed\. "
        r"Install it with the extra 'broker': pip install 'dragoman\[broker\]'\n"
    )
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert re.fullmatch(sentence, done.stderr), done.stderr


def test_commands_of_the_broker_say_what_to_install() -> None:
    commands = [
        "serve",
        "demo",
        "store check .",
        "cluster init --cluster nats://127.0.0.1:1",
        "export --data .",
        "import --data . conftest.py",
    ]
    check_every_row(says_what_to_install, [(command,) for command in commands])


def test_local_broker_says_what_to_install() -> None:
    done = run("-c", "from dragoman import LocalBroker")
    assert done.stderr.splitlines()[-1] == (
        "dragoman.sdk.extras.MissingPackage: LocalBroker needs the package 'apsw', which is not installed. "
        "Install it with the extra 'broker': pip install 'dragoman[broker]'"
    )


def test_other_missing_modules_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needed_by("the test"):
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
    assert not isinstance(caught.value, MissingPackage)

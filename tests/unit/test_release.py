"""Settings of the release: pyproject.toml, the workflows of the public CI and the pages name the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def classified() -> list[str]:
    prefix = "Programming Language :: Python :: 3."
    return [each.removeprefix(prefix[:-2]) for each in PROJECT["project"]["classifiers"] if each.startswith(prefix)]


def test_wheels_are_built_for_every_version_that_is_tested() -> None:
    built = [re.sub(r"cp3(\d+)-\*", r"3.\1", each) for each in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert built == workflow("tests")["jobs"]["tests"]["strategy"]["matrix"]["python"]


def test_only_versions_that_must_pass_are_in_the_classifiers() -> None:
    job = workflow("tests")["jobs"]["tests"]
    optional = set(re.findall(r"'(3\.\d+)'", job["continue-on-error"]))
    assert classified() == [each for each in job["strategy"]["matrix"]["python"] if each not in optional]
    assert PROJECT["project"]["requires-python"] == f">={classified()[0]}"


def test_tests_of_clients_run_on_other_systems_without_make() -> None:
    job = workflow("tests")["jobs"]["clients"]
    systems = {each.partition("-")[0] for each in job["strategy"]["matrix"]["system"]}
    assert systems == {"macos", "windows"}
    commands = [each["run"] for each in job["steps"] if "run" in each]
    assert "python tests/client_suite.py" in commands
    assert (ROOT / "tests" / "client_suite.py").exists()
    assert not any(each.startswith("make") for each in commands)


def test_no_interpreted_wheel_can_be_released() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    assert settings["environment"] == {"DRAGOMAN_PURE": "never"}
    assert "(compiled)" in settings["test-command"]
    steps = workflow("wheels")["jobs"]["wheels"]["steps"]
    assert [each["uses"].split("@")[0] for each in steps if "cibuildwheel" in each["uses"]] == ["pypa/cibuildwheel"]


def test_the_page_names_every_version() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text()
    rows = re.findall(r"^\| (3\.[\d., ]+) \|", page, re.MULTILINE)
    named = [each for row in rows for each in row.split(", ")]
    assert named == workflow("tests")["jobs"]["tests"]["strategy"]["matrix"]["python"]

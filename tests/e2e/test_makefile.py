"""Decisions of the Makefile, as `make -n` prints them: the kind of install, and its conditions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERPRETED = "DRAGOMAN_PURE=later"
COMPILED_AGAIN = "DRAGOMAN_PURE=never"
COMPILED_NOW = "compiling the hot path: one to three minutes"
INSTALLS = (INTERPRETED, COMPILED_AGAIN, COMPILED_NOW)


def make(*words: str, path: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make in the repository, without the options of a make that runs the tests."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "DRAGOMAN"))
    }
    program = shutil.which("make")
    assert program is not None
    environment = inherited | variables | ({"PATH": path} if path else {})
    return subprocess.run([program, "-C", str(ROOT), *words], env=environment, capture_output=True, text=True)


def installs(venv: Path, target: str, **variables: str) -> list[str]:
    """Return the installs with which this target starts."""
    done = make("-n", target, f"VENV={venv}", f"DEV={venv}-dev", **variables)
    assert done.returncode == 0, done.stderr
    return [each for each in INSTALLS if each in done.stdout]


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment without the package."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    return folder


def install(venv: Path, compiled: bool, up_to_date: bool) -> None:
    core = venv / "lib" / "python3.11" / "site-packages" / "dragoman" / "core"
    core.mkdir(parents=True)
    (core / "broker.py").touch()
    if compiled:
        (core / "broker.cpython-311-x86_64-linux-gnu.so").touch()
    stamp = venv / ".installed"
    stamp.touch()
    time = 4_000_000_000 if up_to_date else 0
    os.utime(stamp, (time, time))


def test_the_first_run_installs_without_compiling(venv: Path) -> None:
    assert installs(venv, "run") == [INTERPRETED]


@pytest.mark.parametrize("target", ["install", "bench"])
def test_the_first_install_compiles(venv: Path, target: str) -> None:
    assert installs(venv, target) == [COMPILED_NOW]


@pytest.mark.parametrize("target", ["run", "install", "bench"])
def test_a_compiled_install_is_kept_while_no_source_changes(venv: Path, target: str) -> None:
    install(venv, compiled=True, up_to_date=True)
    assert installs(venv, target) == []


@pytest.mark.parametrize("target", ["run", "install", "bench"])
@pytest.mark.parametrize("setting", ["", "0"])
def test_a_compiled_install_is_compiled_again_after_a_change(venv: Path, target: str, setting: str) -> None:
    install(venv, compiled=True, up_to_date=False)
    assert installs(venv, target, DRAGOMAN_PURE=setting) == [COMPILED_AGAIN]


def test_run_never_replaces_a_compiled_install_by_an_interpreted_one(venv: Path) -> None:
    install(venv, compiled=True, up_to_date=False)
    assert installs(venv, "run", DRAGOMAN_PURE="1") == [COMPILED_AGAIN]


def test_install_replaces_a_compiled_install_if_it_is_told_to(venv: Path) -> None:
    install(venv, compiled=True, up_to_date=True)
    assert installs(venv, "install", DRAGOMAN_PURE="1") == [COMPILED_NOW]


def test_run_keeps_an_interpreted_install_while_no_source_changes(venv: Path) -> None:
    install(venv, compiled=False, up_to_date=True)
    assert installs(venv, "run") == []


def test_run_installs_interpreted_sources_again_after_a_change(venv: Path) -> None:
    install(venv, compiled=False, up_to_date=False)
    assert installs(venv, "run") == [INTERPRETED]


@pytest.mark.parametrize("up_to_date", [False, True])
def test_install_compiles_what_was_interpreted(venv: Path, up_to_date: bool) -> None:
    install(venv, compiled=False, up_to_date=up_to_date)
    assert installs(venv, "install") == [COMPILED_NOW]


# -------------------------------------------------------------------- programs that the tests need


def programs_missing(folder: Path, user: int, apt_get: str) -> subprocess.CompletedProcess[str]:
    """Run `make test-programs` as a user without any of the programs, with this apt-get."""
    for name, script in {"id": f"echo {user}", "apt-get": apt_get, "gcc": "exit 1", "python3": "echo /nowhere"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return make("test-programs", "SHELL=/bin/sh", "PYTHON=python3", path=str(folder))


PACKAGES = "nng-utils gcc libc6-dev libzmq3-dev python3-dev curl openssl nodejs npm chromium"


def test_packages_are_named_before_they_are_installed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = programs_missing(tmp_path, 0, f'echo "$@" >> {log}; echo noise')
    assert done.returncode == 0, done.stderr
    assert f"Installing them: apt-get install {PACKAGES}\n" in done.stdout
    assert log.read_text() == f"install -y -qq {PACKAGES}\n"


def test_a_user_who_may_not_install_packages_reads_which_are_missing(tmp_path: Path) -> None:
    done = programs_missing(tmp_path, 1000, f"touch {tmp_path / 'called'}")
    assert done.returncode == 2
    assert f"as root: apt-get install {PACKAGES}\n" in done.stderr
    assert not (tmp_path / "called").exists()


def test_packages_that_cannot_be_installed_are_named(tmp_path: Path) -> None:
    done = programs_missing(tmp_path, 0, "exit 100")
    assert done.returncode == 2
    assert f"could not install them. The tests need: {PACKAGES}. Install" in done.stderr


# -------------------------------------------------------------------- lint, the compiled product and the tests

LINT = ["ruff check .", "ruff format --check .", "mypy"]
PRODUCT = "python tests/compiled/product.py"
REWRITTEN = "python -m pytest --collect-only -q -n 0"
TESTS = "python -m pytest -n 4 --dist worksteal"


def run_tests(folder: Path, args: str = "", failing: str = "") -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run `make test` with programs that only log their commands. Returns the result and the commands, in order."""
    log = folder / "log"
    programs = folder / "dev" / "bin"
    programs.mkdir(parents=True)
    for name in ("ruff", "mypy", "python"):
        script = f'said=$(echo {name} "$@")\necho "$said" >> {log}\necho "output of $said"\n[ "$said" != "{failing}" ]'
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    stamp = folder / "dev" / ".installed"
    stamp.touch()
    os.utime(stamp, (4_000_000_000, 4_000_000_000))
    done = make("test", f"DEV={folder / 'dev'}", "JOBS=4", f"ARGS={args}")
    return done, log.read_text().splitlines()


def test_tests_start_after_lint_and_the_product_is_compiled_beside(tmp_path: Path) -> None:
    done, log = run_tests(tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(log) == sorted([*LINT, PRODUCT, REWRITTEN, TESTS])
    assert [each for each in log if each in (*LINT, TESTS)] == [*LINT, TESTS]
    assert log.index(REWRITTEN) < log.index(TESTS)


def test_with_arguments_nothing_is_prepared_for_the_tests(tmp_path: Path) -> None:
    done, log = run_tests(tmp_path, "-k pingpong")
    assert (done.returncode, log) == (0, [*LINT, f"{TESTS} -k pingpong"]), done.stderr


@pytest.mark.parametrize("failing", LINT)
def test_no_test_starts_if_lint_fails(tmp_path: Path, failing: str) -> None:
    done, log = run_tests(tmp_path, failing=failing)
    assert done.returncode == 2
    assert f"output of {failing}\n" in done.stdout
    assert TESTS not in log


@pytest.mark.parametrize("failing", [TESTS, PRODUCT], ids=["a test", "the compiled product"])
def test_a_failing_test_or_build_fails(tmp_path: Path, failing: str) -> None:
    done, _ = run_tests(tmp_path, failing=failing)
    assert done.returncode == 2
    assert f"output of {failing}\n" in done.stdout


def test_fuzzing_has_its_own_environment_time_and_targets(venv: Path) -> None:
    def commands(*words: str) -> list[str]:
        done = make("-n", "fuzz", f"FUZZ={venv}", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert f"{venv}/bin/python -m fuzz --all --seconds 60" in commands()
    assert f"{venv}/bin/python -m fuzz zmtp sp --seconds 10" in commands("SECONDS=10", "TARGET=zmtp sp")
    assert any(line.startswith("DRAGOMAN_PURE=1 ") for line in commands())

"""The compiled product: built once, and held to tests that the sources pass, in processes of their own.

Not all tests can be: compiled code neither notices what a test puts in the place of its constants and methods, nor has
interpreted heirs. So the simulated worlds, which look over a session's shoulder by inheriting from it, run on a copy
whose sessions, clients and callers are interpreted and all the rest is compiled, and bugs are planted in the sources
only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from product import NOTE, PACKAGE, ROOT, Product, build_wheel

import dragoman
from dragoman import Client
from programs import DRAGOMAN, Program, Programs

INHERITED = ("broker_side", "clients", "callers")  # modules of dialects whose classes the simulated worlds inherit from
HOOK = ROOT / "hatch_build.py"

sys.path.insert(0, str(ROOT))
import hatch_build  # noqa: E402


@pytest.fixture
def compiled(product: Product) -> Path:
    """A folder with the compiled package in it."""
    return product.package


def run_tests(package: Path, *words: str) -> str:
    """Run some tests of this repository on that package; returns pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *words]
    environment = os.environ | {"PYTHONPATH": str(package), "SIM_SEEDS": "60"}  # the sources have been through more
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(600)
def test_what_is_imported_is_compiled(compiled: Path) -> None:
    names = [".".join(path.with_suffix("").parts) for path in hatch_build.modules_of(PACKAGE)]
    program = "import sys; from importlib import import_module as f; [print(f(name).__file__) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", program, *names],
        env=os.environ | {"PYTHONPATH": str(compiled)},
        capture_output=True,
        text=True,
        check=True,
    )
    files = done.stdout.split()
    assert "dragoman.core.broker" in names
    assert [each for each in files if not each.startswith(str(compiled)) or not each.endswith(".so")] == []


@pytest.mark.timeout(600)
def test_compiled_core_carriers_and_pairs_pass_their_tests(compiled: Path) -> None:
    assert " passed" in run_tests(compiled, "tests/unit/core", "tests/unit/carriers", "tests/pairs")


@pytest.mark.timeout(600)
def test_compiled_streams_use_tls(compiled: Path) -> None:
    files = ("tests/machine/test_tls_unsent.py", "tests/interop/test_tls_dialects.py")
    assert " passed" in run_tests(compiled, *files)


@pytest.mark.timeout(600)
def test_compiled_cluster_uses_nats(compiled: Path) -> None:
    files = (
        "tests/interop/test_nats_server.py",
        "tests/interop/test_nats_tls.py",
        "tests/interop/test_nats_reconnect.py",
    )
    assert " passed" in run_tests(compiled, "tests/unit/cluster", *files, "-k", "not planted")


@pytest.mark.timeout(600)
def test_compiled_broker_holds_in_simulated_worlds(compiled: Path, tmp_path: Path) -> None:
    package = shutil.copytree(compiled, tmp_path / "interpreted-sessions")
    for name in INHERITED:
        found = list(package.glob(f"dragoman/dialects/*/{name}.*.so"))
        assert found, name
        for each in found:
            each.unlink()
    assert " passed" in run_tests(package, "tests/sim", "-k", "not planted")


@pytest.mark.timeout(600)
def test_compiled_product_serves(compiled: Path, programs: Programs) -> None:
    programs.environment["PYTHONPATH"] = str(compiled)
    assert "(compiled)" in programs.run("--version").out
    urls = ("tcp://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0", "memodb+tcp://127.0.0.1:0")
    broker = programs.start(DRAGOMAN, "serve", *urls, "--data", "memory", "--strict")
    broker.prints(r"\(compiled\) is listening")
    native = "native+" + broker.prints(r"native +(tcp://\S+)")
    memodb = "memodb+" + broker.prints(r"memodb +(tcp://\S+)")
    workers = "pingpong+" + broker.prints(r"pingpong +(tcp://\S+) +workers")
    callers = "pingpong+" + broker.prints(r"pingpong +(tcp://\S+) +callers")
    for service, worker, caller in (("n", native, native), ("default", workers, callers), ("m", memodb, memodb)):
        programs.dragoman("worker", "--exec", "tr a-z A-Z", "--service", service, "--connect", worker)
        broker.prints("worker joined", times=("n", "default", "m").index(service) + 1)
        called = programs.run("call", service, "hello", "--connect", caller)
        assert (called.ends(), called.out) == (0, "HELLO"), called.err
        large = os.urandom(300_000).hex().encode()
        called = programs.run("call", service, "-", "--connect", caller, given=large)
        assert (called.ends(), called.out_bytes) == (0, large.upper()), called.err
    with Client(native) as client:
        assert client.result(client.enqueue("n", b"later"), timeout=60) == b"LATER"
    assert "internal error" not in broker.err
    broker.terminate()
    assert broker.ends() == 0


@pytest.mark.timeout(600)
def test_compiled_product_does_jobs_of_an_earlier_run(compiled: Path, programs: Programs, tmp_path: Path) -> None:
    """A bug: the checksum of a result that was not there yet did not match, and the broker ended with 74 as soon as a
    worker came. The sources did not have it."""
    programs.environment["PYTHONPATH"] = str(compiled)

    def serve() -> tuple[Program, str]:
        broker = programs.start(DRAGOMAN, "serve", "tcp://127.0.0.1:0", "--data", tmp_path / "data", "--strict")
        return broker, "native+" + broker.prints(r"native +(tcp://\S+)")

    for end in ("terminate", "kill"):
        broker, native = serve()
        with Client(native) as client:
            job = client.enqueue("s", end.encode())
        getattr(broker, end)()
        broker.ends()
        broker, native = serve()
        programs.dragoman("worker", "--exec", "tr a-z A-Z", "--service", "s", "--connect", native)
        with Client(native) as client:
            assert client.result(job, timeout=60) == end.upper().encode()
        broker.terminate()
        assert broker.ends() == 0, broker.err


@pytest.mark.timeout(600)
def test_the_wheel_installs_without_a_compiler_and_is_compiled(product: Product, tmp_path: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in product.wheel.name
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # those of the tests
    no_compiler = {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": ""}
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--no-index", "--no-deps")
    subprocess.run([*pip, str(product.wheel)], env=no_compiler, check=True, capture_output=True)
    for words in ([str(venv / "bin" / "dragoman")], [str(venv / "bin" / "python"), "-m", "dragoman"]):
        done = subprocess.run([*words, "--version"], env=no_compiler, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "(compiled)" in done.stdout) == (0, True), done.stdout + done.stderr
    where = "import dragoman.core.broker as module; print(module.__file__)"
    done = subprocess.run([venv / "bin" / "python", "-c", where], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(str(packages)), done.stdout


def small_repository(folder: Path) -> Path:
    """A copy that translates one small module to C: before a C compiler can fail, all of the list is translated.

    Its package imports nothing, because mypy reads all modules that are imported.
    """
    shutil.copytree(PACKAGE, folder / "src" / "dragoman", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "src" / "dragoman" / "__init__.py").write_text(f'__version__ = "{dragoman.__version__}"\n')
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    code, lists = re.subn(r"(?ms)^COMPILED = \(.*?^\)", 'COMPILED = ("core/infinity.py",)', HOOK.read_text())
    assert lists == 1
    (folder / HOOK.name).write_text(code)
    return folder


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": ""}, "there is no C compiler"),
        ({"DRAGOMAN_PURE": "1"}, "DRAGOMAN_PURE is set"),
        ({"DRAGOMAN_PURE": "later"}, "'make install' compiles it"),
        ({"CC": "false"}, "compiling failed: "),
    ],
    ids=lambda value: " ".join(f"{name}={word}" for name, word in value.items()) if isinstance(value, dict) else None,
)
def test_where_nothing_can_be_compiled_the_wheel_is_pure(
    environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    wheel, said = build_wheel(tmp_path, small_repository(tmp_path / "repository"), **environment)
    assert NOTE + reason in said
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert [name for name in packed.namelist() if name.endswith(".so")] == []
        assert "dragoman/core/broker.py" in packed.namelist()
        assert packed.read("dragoman/interpreted.txt").decode().startswith(reason)  # for `dragoman --version`


@pytest.mark.timeout(300)
def test_a_build_that_must_be_compiled_fails_where_nothing_can_be(tmp_path: Path) -> None:
    """`make run` keeps a compiled install, and a release has no pure wheel, because this build fails."""
    repository = small_repository(tmp_path / "repository")
    with pytest.raises(AssertionError, match="DRAGOMAN_PURE=never forbids a pure wheel: there is no C compiler"):
        build_wheel(tmp_path, repository, PATH="", DRAGOMAN_PURE="never")
    assert list(tmp_path.glob("*.whl")) == []


def test_no_pattern_of_the_list_is_left_without_a_file() -> None:
    patterns = (*hatch_build.COMPILED, *hatch_build.INTERPRETED)
    assert [pattern for pattern in patterns if not list(PACKAGE.glob(pattern))] == []


def test_nothing_compiled_lies_beside_the_sources() -> None:
    """It would go on hiding them, however they are edited."""
    assert list((ROOT / "src").rglob("*.so")) == []

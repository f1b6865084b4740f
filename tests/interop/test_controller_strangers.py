"""Third-party programs that speak Worker-Controller, with each other and with Dragoman's worker."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from programs import STRANGERS, Program, Programs, until

MIB = 1 << 20

StartWorker = Callable[..., Program]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the sockets."""
    made = tmp_path / "c"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def c_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    assert compiler, "these tests build a worker in C: install gcc (Debian: apt-get install gcc libc6-dev)"
    program = tmp_path_factory.mktemp("c") / "controller_worker"
    source = STRANGERS / "controller_worker.c"
    flags = ["-Wall", "-Wextra", "-Wno-unused-result", "-O1"]
    built = subprocess.run(
        [compiler, *flags, "-o", program, source], capture_output=True, text=True, timeout=60, check=False
    )
    assert built.returncode == 0, f"{source.name} cannot be built (Debian: apt-get install libc6-dev)\n{built.stderr}"
    assert built.stderr == ""
    return program


@pytest.fixture(params=["seed", "shifted"])
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["C", "C, inside", "Python", "ours"])
def start_worker(request: pytest.FixtureRequest, programs: Programs, folder: Path, edition: str) -> StartWorker:
    is_shifted = edition == "shifted"
    if request.param == "ours":
        url = f"controller+unix://{folder}?edition={edition}&next_pulse=1"
        return lambda: programs.dragoman("worker", "--concurrency", 1, "--exec", "tr a-z A-Z", "--connect", url)
    if request.param == "Python":
        flags = ["--shifted"] if is_shifted else []
        return lambda: programs.stranger("controller_worker", folder, "--next-pulse", 1, *flags)
    flags = ["-n", "1"] + ["-s"] * is_shifted + ["-i"] * ("inside" in request.param)
    program = request.getfixturevalue("c_worker")
    return lambda: programs.start(program, *flags, folder)


def start_controller(programs: Programs, folder: Path, edition: str, *steps: str) -> Program:
    flags = ["--shifted"] if edition == "shifted" else []
    controller = programs.stranger("controller_controller", folder, *flags, *steps)
    until(lambda: (folder / "main.sock").exists(), "the controller listens")
    return controller


def answers(controller: Program, last_step: str) -> list[str]:
    """Return the answers to control messages, once the controller has done its last step."""
    controller.prints(f"(?m)^did {re.escape(last_step)}$")
    return [line for line in controller.out.splitlines() if "->" in line and not line.startswith("pulse")]


# -------------------------------------------------------------------- any worker with the controller


def test_any_worker_does_several_tasks_of_any_size_and_obeys_restart(
    programs: Programs, folder: Path, edition: str, start_worker: StartWorker
) -> None:
    steps = ["register", "do hello", "do ", f"do x*{3 * MIB}", "do bye", "restart", "shutdown"]
    controller = start_controller(programs, folder, edition, *steps)
    worker = start_worker()
    assert [re.sub(r"(?<=restart -> OK) \d+", "", line) for line in answers(controller, "shutdown")] == [
        "set 1 -> OK 1 b''",
        "fetch -> OK 1 b'HELLO'",
        "set 2 -> OK 2 b''",
        "fetch -> OK 2 b''",
        "set 3 -> OK 3 b''",
        f"fetch -> OK 3 {3 * MIB} bytes of {{88}}",
        "set 4 -> OK 4 b''",
        "fetch -> OK 4 b'BYE'",
        "restart -> OK b''",
    ]
    assert worker.ends() == 0
    assert [path.name for path in folder.iterdir()] == ["main.sock"]


def test_any_worker_pulses_answers_what_it_is_asked_and_refuses_what_nobody_knows(
    programs: Programs, folder: Path, edition: str, start_worker: StartWorker
) -> None:
    steps = ["register", "ok", "fetch", "status", "number 9", "do x", "ok"]
    controller = start_controller(programs, folder, edition, *steps)
    start_worker()
    controller.prints("(?m)^did do x$")
    controller.prints("(?m)^did ok$", times=2)
    found = answers(controller, "do x")
    assert found[:2] == ["fetch -> NO_FETCH 0 b''", "status -> OK 0 b''"]
    assert found[2].startswith("number 9 -> FAILED 0 b'")
    assert found[3:] == ["set 1 -> OK 1 b''", "fetch -> OK 1 b'X'"]


def test_a_worker_that_computes_inside_the_exchange_says_fetch_me_before_it_answers(
    programs: Programs, folder: Path, c_worker: Path
) -> None:
    controller = start_controller(programs, folder, "seed", "register", "do x")
    programs.start(c_worker, "-i", folder)
    controller.prints("(?m)^did do x$")
    assert re.findall("(?m)^(set 1|pulse FETCH_ME)", controller.out) == ["pulse FETCH_ME", "set 1"]


def test_a_worker_in_c_dies_if_nobody_reads_its_answer(programs: Programs, folder: Path, c_worker: Path) -> None:
    """A controller must never close a connection before it has read the answer."""
    start_controller(programs, folder, "seed")
    worker = programs.start(c_worker, "-i", "-d", "0.3", folder)
    place = worker.prints(r"listens (\S+)")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        connection.sendall(b"\x06" + bytes(7) + b"\x08\x02\x10\x01\x18\x07x")
    assert worker.ends() == -signal.SIGPIPE


def test_a_worker_in_c_dies_if_one_hangs_up_before_it_has_written_an_empty_message(
    programs: Programs, folder: Path, c_worker: Path
) -> None:
    """Eight zeros are a whole answer, but not the last that it writes: the worker ends the exchange, not the reader."""
    start_controller(programs, folder, "seed")
    worker = programs.start(c_worker, folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(worker.prints(r"listens (\S+)"))
        connection.sendall(b"\x02" + bytes(7) + b"\x08\x03")
        assert connection.recv(8) == bytes(8)
    assert worker.ends() == -signal.SIGPIPE


def test_a_worker_in_c_that_was_forgotten_registers_anew(
    programs: Programs, folder: Path, c_worker: Path, edition: str
) -> None:
    controller = start_controller(programs, folder, edition, "register", "do one", "forget", "register", "do two")
    programs.start(c_worker, "-n", "1", *(["-s"] if edition == "shifted" else []), folder)
    assert answers(controller, "do two")[-1] == "fetch -> OK 2 b'TWO'"
    controller.prints("pulse OK 1 1 1 -> UNKNOWN_ID")


# -------------------------------------------------------------------- what the worker in Python can be told


def test_the_python_worker_fails_waits_and_hangs_when_told_to(programs: Programs, folder: Path, edition: str) -> None:
    steps = ["register", "do fail it broke", "set wait go well", "status", "set x", "fetch"]
    steps += ["touch go", "fetch-me", "fetch", "set hang", "ok", "fetch", "status"]
    controller = start_controller(programs, folder, edition, *steps)
    flags = ["--shifted"] if edition == "shifted" else []
    programs.stranger("controller_worker", folder, "--next-pulse", 1, *flags)
    controller.prints("(?m)^did status$", times=2)
    assert answers(controller, "status") == [
        "set 1 -> OK 1 b''",
        "fetch -> TASK_FAILED 1 b'it broke'",
        "set 2 -> OK 2 b''",
        "status -> OK 2 b''",
        "set 3 -> BUSY 2 b''",
        "fetch -> NO_FETCH 2 b''",
        "fetch -> OK 2 b'well'",
        "set 4 -> OK 4 b''",
        "fetch -> NO_FETCH 4 b''",
        "status -> OK 4 b''",
    ]


def test_the_python_worker_names_stale_tasks_when_told_to(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "seed", "register", "do one", "do two", "status")
    programs.stranger("controller_worker", folder, "--stale")
    found = answers(controller, "status")
    assert found[1::2] == ["fetch -> OK 0 b'ONE'", "fetch -> OK 1 b'TWO'"]
    assert found[-1] == "status -> OK 1 b''"

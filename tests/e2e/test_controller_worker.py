"""`dragoman worker` for Worker-Controller, with a controller that follows the document to the letter."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from programs import HANDLERS, PATIENCE, Program, Programs, until

MIB = 1 << 20


@pytest.fixture(autouse=True)
def handlers(tmp_path: Path) -> None:
    """A folder with the handlers module, in which workers are started."""
    (tmp_path / "handlers.py").write_text(HANDLERS.read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the sockets of the controller and its workers."""
    made = tmp_path / "c"
    made.mkdir()
    return made


@pytest.fixture(params=["seed", "shifted"])
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start_controller(programs: Programs, folder: Path, *steps: str, edition: str = "seed") -> Program:
    (folder / "main.sock").unlink(missing_ok=True)
    flags = ["--shifted"] if edition == "shifted" else []
    controller = programs.stranger("controller_controller", folder, *flags, *steps)
    until(lambda: (folder / "main.sock").exists(), "the controller listens")
    return controller


def start_worker(
    programs: Programs, folder: Path, *words: object, edition: str = "seed", next_pulse: float = 1.0
) -> Program:
    url = f"controller+unix://{folder}?edition={edition}&next_pulse={next_pulse}"
    return programs.dragoman("worker", "--concurrency", 1, *words, "--connect", url)


def answers(controller: Program, steps: int) -> list[str]:
    """Return the answers to control messages, once the controller has done this many steps."""
    controller.prints("(?m)^did .*$", times=steps)
    return [line for line in controller.out.splitlines() if "->" in line and not line.startswith("pulse")]


def sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def message(head: bytes, extra: bytes = b"") -> bytes:
    return len(head).to_bytes(8, "little") + head + extra


def ask(folder: Path, data: bytes, name: str = "1.sock") -> bytes:
    """Send bytes to a worker. Returns its answer, until it closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / name))
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


GET_STATUS, FETCH, IDLE = message(b"\x08\x03"), message(b"\x08\x01"), bytes(8)


# -------------------------------------------------------------------- tasks


@pytest.mark.parametrize("words", [("handlers:upper",), ("--exec", "tr a-z A-Z")], ids=["function", "exec"])
def test_tasks_are_done_one_after_another(
    programs: Programs, folder: Path, edition: str, words: tuple[str, ...]
) -> None:
    steps = ["register", "do one", "do two", "do ", f"do x*{48 * MIB}", "status"]
    controller = start_controller(programs, folder, *steps, edition=edition)
    start_worker(programs, folder, *words, edition=edition)
    found = answers(controller, 6)
    assert found[1::2] == [
        "fetch -> OK 1 b'ONE'",
        "fetch -> OK 2 b'TWO'",
        "fetch -> OK 3 b''",
        f"fetch -> OK 4 {48 * MIB} bytes of {{88}}",
    ]
    assert found[-1] == "status -> OK 0 b''"


def test_a_busy_worker_refuses_says_what_it_does_and_pulses_on(programs: Programs, folder: Path, edition: str) -> None:
    steps = ["register", "set go", "set more", "status", "fetch", "ok", "ok"]
    steps += ["touch go", "fetch-me", "set more", "status", "fetch", "status"]
    controller = start_controller(programs, folder, *steps, edition=edition)
    start_worker(programs, folder, "handlers:waits", edition=edition)
    assert answers(controller, len(steps)) == [
        "set 1 -> OK 1 b''",
        "set 2 -> BUSY 1 b''",
        "status -> OK 1 b''",
        "fetch -> NO_FETCH 1 b''",
        "set 3 -> BUSY 1 b''",
        "status -> OK 1 b''",
        "fetch -> OK 1 b'GO'",
        "status -> OK 0 b''",
    ]
    assert "pulse OK 1 1 1 -> OK" in controller.out


def test_a_failure_is_told_with_its_text(programs: Programs, folder: Path, edition: str) -> None:
    controller = start_controller(programs, folder, "register", "do bad", "do good", "number 9", edition=edition)
    start_worker(programs, folder, "handlers:raises", edition=edition)
    found = answers(controller, 4)
    assert found[1] == "fetch -> TASK_FAILED 1 b'ValueError: this payload is bad'"
    assert found[3] == "fetch -> OK 2 b'good'"
    assert re.match(r"number 9 -> FAILED 0 b'unknown control message 9", found[4])


def test_a_handler_that_dies_costs_only_its_task(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "do die", "do more")
    start_worker(programs, folder, "handlers:dies")
    found = answers(controller, 3)
    assert found[1].startswith("fetch -> TASK_FAILED 1 b'the child process ended with exit code 7")
    assert found[3] == "fetch -> OK 2 b'alive'"


def test_several_at_once_are_as_many_workers(programs: Programs, folder: Path) -> None:
    steps = ["register", "set a", "register", "set b", "ok", "touch b", "fetch-me", "fetch"]
    controller = start_controller(programs, folder, *steps)
    worker = start_worker(programs, folder, "handlers:waits", "--concurrency", 2)
    assert answers(controller, len(steps)) == ["set 1 -> OK 1 b''", "set 2 -> OK 2 b''", "fetch -> OK 2 b'B'"]
    assert sockets(folder) == {"main.sock", "1.sock", "2.sock"}
    assert stat.S_IMODE(os.stat(folder / "1.sock").st_mode) == 0o600
    worker.terminate()
    controller.prints(r"pulse SHUTDOWN 2")
    (programs.folder / "a").touch()
    controller.prints(r"pulse FETCH_ME 1 1")


def test_a_listeners_url_may_be_pasted_whole(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "do x")
    options = "service=resize&pulse_grace=1&restart_on_mismatch=always&uid_allow=0,1&mode=0770&max_payload=1MiB"
    url = f"controller+unix://{folder}/?{options}"
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--service", "resize", "--connect", url)
    assert answers(controller, 2)[-1] == "fetch -> OK 1 b'X'"


# -------------------------------------------------------------------- RESTART


def test_restart_ends_an_idle_worker(programs: Programs, folder: Path, edition: str) -> None:
    controller = start_controller(programs, folder, "register", "ok", "restart", "shutdown", edition=edition)
    worker = start_worker(programs, folder, "handlers:upper", edition=edition)
    assert answers(controller, 4) == ["restart -> OK 0 b''"]
    assert worker.ends() == 0
    assert sockets(folder) == {"main.sock"}


@pytest.mark.parametrize("words", [("handlers:waits",), ("--exec", "sleep 60")], ids=["function", "exec"])
def test_restart_does_not_wait_for_the_task(programs: Programs, folder: Path, words: tuple[str, ...]) -> None:
    controller = start_controller(programs, folder, "register", "set never", "wait now", "restart", "shutdown")
    worker = start_worker(programs, folder, *words)
    controller.prints("(?m)^did set never$")
    children = until(worker.children, "its children")
    (programs.folder / "now").touch()
    assert answers(controller, 5)[-1] == "restart -> OK 1 b''"
    assert worker.ends() == 0
    assert sockets(folder) == {"main.sock"}
    until(lambda: not any(map(is_running, children)), "nothing of it is left")
    assert "Traceback" not in worker.err


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_restart_of_one_of_several_leaves_the_others_there(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "restart", "shutdown", "register", "do x")
    worker = start_worker(programs, folder, "handlers:upper", "--concurrency", 2)
    assert answers(controller, 5)[-1] == "fetch -> OK 1 b'X'"
    assert sockets(folder) == {"main.sock", "2.sock"}
    worker.terminate()
    assert worker.ends() == 0


# -------------------------------------------------------------------- controllers that come and go


def test_a_worker_that_was_forgotten_registers_anew(programs: Programs, folder: Path, edition: str) -> None:
    steps = ["register", "do one", "forget", "register", "do two"]
    controller = start_controller(programs, folder, *steps, edition=edition)
    worker = start_worker(programs, folder, "handlers:upper", edition=edition)
    assert answers(controller, 5)[-1] == "fetch -> OK 2 b'TWO'"
    assert "-> UNKNOWN_ID" in controller.out
    assert sockets(folder) == {"main.sock", "2.sock"}
    assert worker.process.poll() is None


def test_a_task_from_a_former_life_is_nobodys(programs: Programs, folder: Path) -> None:
    steps = ["register", "set a", "forget", "register", "ok", "set b", "status", "touch a"]
    controller = start_controller(programs, folder, *steps)
    start_worker(programs, folder, "handlers:waits")
    assert answers(controller, len(steps)) == ["set 1 -> OK 1 b''", "set 2 -> BUSY 0 b''", "status -> OK 0 b''"]
    set_task, fine = message(b"\x08\x02\x10\x01\x18\x09", b"b"), message(b"\x10\x09")
    until(lambda: ask(folder, set_task, "2.sock") == fine, "it is free again")
    (programs.folder / "b").touch()
    controller.prints("pulse FETCH_ME 2 9 1 -> OK")
    assert ask(folder, FETCH, "2.sock") == message(b"\x10\x09\x18\x01", b"B")


def test_a_controller_that_was_started_again_is_found(programs: Programs, folder: Path) -> None:
    """It counts ids from 1 again, so the worker listens where it did before."""
    first = start_controller(programs, folder, "register", "do one")
    worker = start_worker(programs, folder, "handlers:upper")
    assert answers(first, 2)[-1] == "fetch -> OK 1 b'ONE'"
    first.kill()
    worker.prints("no controller answers at .*main.sock: connection refused")
    second = start_controller(programs, folder, "register", "do two")
    assert answers(second, 2)[-1] == "fetch -> OK 1 b'TWO'"
    assert sockets(folder) == {"main.sock", "1.sock"}


def test_a_controller_that_comes_later_than_its_worker_is_found(programs: Programs, folder: Path) -> None:
    worker = start_worker(programs, folder, "handlers:upper")
    worker.prints("no controller answers at .*main.sock: No such file or directory", times=2)
    controller = start_controller(programs, folder, "register", "do it")
    assert answers(controller, 2)[-1] == "fetch -> OK 1 b'IT'"


def test_the_socket_of_a_dead_process_is_replaced(programs: Programs, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "1.sock"))
    controller = start_controller(programs, folder, "register", "do it")
    start_worker(programs, folder, "handlers:upper")
    assert answers(controller, 2)[-1] == "fetch -> OK 1 b'IT'"


def test_the_socket_of_a_live_process_is_left_alone_and_another_id_asked_for(programs: Programs, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(folder / "1.sock"))
        live.listen()
        controller = start_controller(programs, folder, "register", "register", "do it")
        worker = start_worker(programs, folder, "handlers:upper")
        assert answers(controller, 3)[-1] == "fetch -> OK 1 b'IT'"
        assert "1.sock is taken" in worker.err
        assert re.findall(r"pulse (REGISTER|SHUTDOWN) (\d)", controller.out) == [
            ("REGISTER", "0"),
            ("SHUTDOWN", "1"),
            ("REGISTER", "0"),
        ]
        assert (folder / "1.sock").exists()


def test_a_controller_of_the_other_edition_is_asked_again_with_a_hint(programs: Programs, folder: Path) -> None:
    start_controller(programs, folder, edition="shifted")
    worker = start_worker(programs, folder, "handlers:upper", edition="seed")
    worker.prints(r"REGISTER was answered with UNKNOWN_ID \(in the edition seed\)", times=2)


# -------------------------------------------------------------------- signals


def test_sigterm_ends_an_idle_worker_with_shutdown(programs: Programs, folder: Path, edition: str) -> None:
    controller = start_controller(programs, folder, "register", "ok", "shutdown", edition=edition)
    worker = start_worker(programs, folder, "handlers:upper", edition=edition)
    controller.prints("(?m)^did ok$")
    worker.terminate()
    controller.prints("(?m)^did shutdown$")
    assert worker.ends() == 0
    assert sockets(folder) == {"main.sock"}


def test_a_task_in_hand_on_sigterm_is_done_and_fetched(programs: Programs, folder: Path, edition: str) -> None:
    steps = ["register", "set go", "wait stopping", "set more", "ok", "touch go", "fetch-me", "fetch", "shutdown"]
    controller = start_controller(programs, folder, *steps, edition=edition)
    worker = start_worker(programs, folder, "handlers:waits", edition=edition)
    worker.prints("working")
    worker.terminate()
    worker.prints("stopping when the running jobs have ended")
    (programs.folder / "stopping").touch()
    assert answers(controller, 9) == ["set 1 -> OK 1 b''", "set 2 -> BUSY 1 b''", "fetch -> OK 1 b'GO'"]
    assert worker.ends() == 0
    assert sockets(folder) == {"main.sock"}


@pytest.mark.parametrize("words", [("handlers:waits",), ("--exec", "sleep 60")], ids=["function", "exec"])
def test_a_second_signal_stops_a_busy_worker_at_once(programs: Programs, folder: Path, words: tuple[str, ...]) -> None:
    controller = start_controller(programs, folder, "register", "set never")
    worker = start_worker(programs, folder, *words)
    controller.prints("(?m)^did set never$")
    children = until(worker.children, "its children")
    worker.terminate()
    worker.prints("stopping")
    worker.terminate()
    assert worker.ends() == 0
    assert sockets(folder) == {"main.sock"}
    until(lambda: not any(map(is_running, children)), "nothing of it is left")
    assert "Traceback" not in worker.err


def test_sigterm_ends_a_worker_that_waits_for_its_controller(programs: Programs, folder: Path) -> None:
    worker = start_worker(programs, folder, "handlers:upper")
    worker.prints("no controller answers")
    worker.terminate()
    assert worker.ends() == 0


# -------------------------------------------------------------------- bad manners on its socket


def test_a_message_that_cannot_be_understood_has_failed_and_changes_nothing(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "ok")
    start_worker(programs, folder, "handlers:upper")
    controller.prints("(?m)^did ok$")
    for data in (
        message(b"\xff"),
        (65_537).to_bytes(8, "little"),
        IDLE + b"!",
        message(b"\x10\xff\xff\xff\xff\xff\x01"),
    ):
        assert ask(folder, data)[8:10] == b"\x08\x04", data
    assert ask(folder, GET_STATUS) == IDLE


def test_a_connection_without_a_whole_message_never_was(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "ok", "wait go", "do x")
    start_worker(programs, folder, "handlers:upper")
    controller.prints("(?m)^did ok$")
    for data in (b"", b"\x00", bytes(7), message(b"\x08\x02\x10\x05\x18\x07", b"four")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(folder / "1.sock"))
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert ask(folder, GET_STATUS) == IDLE
    (programs.folder / "go").touch()
    assert answers(controller, 4)[-1] == "fetch -> OK 1 b'X'"


def test_an_outcome_can_be_fetched_again_if_the_connection_broke(programs: Programs, folder: Path) -> None:
    """R94."""
    controller = start_controller(programs, folder, "register", f"set {32 * MIB}", "fetch-me", "wait broke", "fetch")
    worker = start_worker(programs, folder, "handlers:large")
    controller.prints("(?m)^did fetch-me$")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / "1.sock"))
        connection.sendall(FETCH)
        assert connection.recv(1024)
    worker.prints("exchange with the controller aborted")
    (programs.folder / "broke").touch()
    assert answers(controller, 5)[-1] == f"fetch -> OK 1 {32 * MIB} bytes of {{120}}"


def test_messages_may_come_in_pieces_and_at_the_same_time(programs: Programs, folder: Path) -> None:
    controller = start_controller(programs, folder, "register", "ok")
    start_worker(programs, folder, "handlers:upper")
    controller.prints("(?m)^did ok$")
    with socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(PATIENCE)
        slow.connect(str(folder / "1.sock"))
        for byte in GET_STATUS:
            slow.sendall(bytes([byte]))
            assert ask(folder, GET_STATUS) == IDLE
        assert slow.recv(100) == IDLE


def test_the_controller_hangs_up_first(programs: Programs, folder: Path) -> None:
    """One that writes a length and then an empty message would be killed by the second, if we were gone by then."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(PATIENCE)
        listening.bind(str(folder / "main.sock"))
        listening.listen()
        worker = start_worker(programs, folder, "handlers:upper")
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.recv(100) == message(b"\x20\x01")
            accepted.sendall(message(b"\x10\x01"))
            until((folder / "1.sock").exists, "the answer was heard")
            assert accepted.send(b"") == 0
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.recv(100) == message(b"\x08\x01\x10\x01\x20\x01")
        worker.prints("no controller answers .*: it closed the connection")


# -------------------------------------------------------------------- addresses


REFUSED = [
    ("controller+tcp://127.0.0.1:1", "share a folder"),
    (f"controller+unix:///{'f' * 90}", "107"),
    ("controller+unix:///tmp/x?edition=third", "seed, shifted"),
    ("controller+unix:///tmp/x?next_pulse=0", "next_pulse"),
    ("controller+unix:///tmp/x?nonsense=1", "nonsense"),
]


@pytest.mark.parametrize(("url", "complaint"), REFUSED)
def test_an_address_that_cannot_be_used_ends_with_2_and_says_why(programs: Programs, url: str, complaint: str) -> None:
    refused = programs.run("worker", "--concurrency", 1, "--exec", "cat", "--connect", url)
    assert refused.ends() == 2
    assert complaint in refused.err
    assert "Traceback" not in refused.err


def test_a_service_that_the_url_does_not_name_is_a_usage_error(programs: Programs) -> None:
    refused = programs.run(
        "worker", "--concurrency", 1, "--exec", "cat", "--service", "x", "--connect", "controller+unix:///tmp/x"
    )
    assert refused.ends() == 2
    assert "has no service names on the wire" in refused.err


def test_nobody_calls_in_this_dialect(programs: Programs) -> None:
    refused = programs.run("call", "default", "x", "--connect", "controller+unix:///tmp/x")
    assert refused.ends() == 2
    assert "call through another listener" in refused.err

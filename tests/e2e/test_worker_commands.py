"""The command `worker`: functions, programs, failures, and signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pingpong_commands import MIB, assert_rested_between_connections, call, caller_url, start_worker, worker_url

from programs import Program, Programs, until

# -------------------------------------------------------------------- worker


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("no_such_module:f", "no_such_module"),
        ("handlers:no_such_function", "no_such_function"),
        ("handlers:not_callable", "not_callable"),
        (
            "handlers",
            "the module has no tasks (functions with @dragoman.task); run one of its functions: handlers:FUNCTION",
        ),
        ("shop", "run the module of its tasks: shop.tasks"),
        ("shop/tasks.py", "module 'shop/tasks' not found"),
        ("shop/tasks.py", "a module is named with dots: shop.tasks"),
        ("broken:f", "ZeroDivisionError"),
        ("needs_another:f", "not_installed_anywhere"),
    ],
)
def test_a_function_that_cannot_be_had_ends_with_2_and_says_which(
    programs: Programs, handlers: Path, target: str, complaint: str
) -> None:
    (handlers.parent / "shop").mkdir()
    (handlers.parent / "shop" / "__init__.py").touch()
    (handlers.parent / "shop" / "tasks.py").touch()
    handlers.with_name("broken.py").write_text("1 / 0\n")
    handlers.with_name("needs_another.py").write_text("import not_installed_anywhere\n")
    program = programs.run("worker", target, "--connect", "pingpong+tcp://127.0.0.1:1")
    assert program.ends() == 2
    assert target in program.err
    assert complaint in program.err


def test_a_module_that_ends_its_process_at_import_ends_with_2_and_a_sentence(
    programs: Programs, tmp_path: Path
) -> None:
    """A bug: the end of the pipe during the import was not handled, and raised EOFError."""
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    program = programs.run("worker", "leaves:f", "--connect", "pingpong+tcp://127.0.0.1:1")
    assert program.ends() == 2
    assert "cannot run leaves:f: importing leaves failed: it called sys.exit(3)" in program.err
    assert "Traceback" not in program.err


@pytest.mark.parametrize(
    ("command", "complaint"), [("no-such-program x", "no-such-program"), ("'open", "'open"), ("", "--exec")]
)
def test_a_program_that_cannot_be_had_ends_with_2_and_says_which(
    programs: Programs, command: str, complaint: str
) -> None:
    program = programs.run("worker", "--concurrency", 1, "--exec", command, "--connect", "pingpong+tcp://127.0.0.1:1")
    assert program.ends() == 2
    assert complaint in program.err


def test_exec_runs_a_program_for_each_job(programs: Programs) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "--exec", "tr a-z A-Z")
    assert call(programs, broker, "hello").out == "HELLO"
    big = call(programs, broker, "-", given=b"m" * MIB)
    assert big.out_bytes == b"M" * MIB


def test_a_program_that_fails_loses_the_job_and_its_complaint_is_logged(programs: Programs) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "--exec", "sh -c 'read line; echo no luck >&2; exit $line'")
    failed = call(programs, broker, "3")
    assert failed.ends() == 1
    assert "lost: " in failed.err
    worker.prints("exit code 3: no luck")
    assert call(programs, broker, "0").ends() == 0


def test_a_program_that_does_not_read_its_input_is_no_trouble(programs: Programs) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "--exec", "echo fixed")
    assert call(programs, broker, "-", given=b"x" * MIB).out == "fixed\n"


def test_a_program_that_cannot_be_run_after_all_loses_the_job_and_not_the_worker(
    programs: Programs, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x7fELF, but not really")
    script.chmod(0o755)
    broker = programs.broker()
    worker = start_worker(programs, broker, "--exec", str(script))
    lost = call(programs, broker, "x", "--timeout", 5)
    assert lost.ends() == 1
    assert worker.process.poll() is None


def test_a_program_killed_by_a_signal_loses_the_job_and_the_worker_comes_back(programs: Programs) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "--exec", """sh -c 'read -r line; test "$line" = live || kill -9 $$; echo alive'""")
    assert call(programs, broker, "die").ends() == 1
    assert call(programs, broker, "live").out == "alive\n"


def test_a_handler_that_raises_loses_the_job_and_the_worker_comes_back(programs: Programs, handlers: Path) -> None:
    """PingPong has no message for a failure; the traceback is in the worker's log."""
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:raises")
    lost = call(programs, broker, "bad")
    assert lost.ends() == 1
    assert "lost: " in lost.err
    worker.prints("ValueError: this payload is bad")
    assert call(programs, broker, "fine").out == "good"


def test_a_handler_that_ends_its_process_loses_the_job_and_the_worker_comes_back(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:dies")
    assert call(programs, broker, "die").ends() == 1
    worker.prints("exit code 7")
    assert call(programs, broker, "again").out == "alive"


def test_a_child_process_killed_in_mid_job_costs_only_its_job(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:tells_its_pid")
    caller = programs.dragoman("call", "default", "wait", "--connect", caller_url(broker))
    child = int(worker.prints(r"pid (\d+)"))
    assert child != worker.pid
    os.kill(child, signal.SIGKILL)
    assert caller.ends() == 1
    assert "lost: " in caller.err
    assert call(programs, broker, "x").out == "done"


def test_a_child_process_killed_between_two_jobs_costs_none(programs: Programs, handlers: Path) -> None:
    """A bug: the next job was written to the dead child's pipe and lost, though it was never read."""
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:tells_its_pid")
    assert call(programs, broker, "first").out == "done"
    child = int(worker.prints(r"pid (\d+)"))
    os.kill(child, signal.SIGKILL)
    until(lambda: not is_running(child), "it is dead")
    next_one = call(programs, broker, "next")
    assert (next_one.ends(), next_one.out) == (0, "done")
    assert int(worker.prints(r"pid (\d+)", times=2)) != child
    assert "job failed" not in worker.err


def test_a_worker_whose_program_always_fails_rests_before_it_comes_back(programs: Programs) -> None:
    """A bug: it was back at once for the next job, and lost a whole queue as fast as it could start processes."""
    broker = programs.broker()
    callers = [programs.dragoman("call", "default", "x", "--connect", caller_url(broker)) for _ in range(3)]
    worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "false", "--connect", worker_url(broker))
    assert [each.ends() for each in callers] == [1, 1, 1]
    worker.prints("connected to", times=4)
    assert_rested_between_connections(worker, 3)


def test_a_worker_logs_its_services_when_it_starts(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    for words in (["--exec", "cat"], ["handlers:upper"]):
        worker = start_worker(programs, broker, *words)
        assert "INFO services offered: default; jobs at once: 1\n" in worker.err


def test_a_worker_at_the_callers_port_is_told_where_workers_connect(programs: Programs, handlers: Path) -> None:
    """A bug: the error said only that the message was malformed, not what to do."""
    broker = programs.broker()
    start_worker(programs, broker, "handlers:upper")  # whom its READY, a caller's job here, would be given to
    misled = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:upper", "--connect", f"pingpong+{broker.callers}"
    )
    misled.prints("is this where callers connect\\? workers use the backend")


def test_what_a_handler_may_return(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:says")
    assert call(programs, broker, "none").out_bytes == b""
    assert call(programs, broker, "text").out == "grüß"
    assert call(programs, broker, "number").ends() == 1
    worker.prints("a int, cannot be encoded as bytes")


def test_r44_a_handler_that_returns_a_control_word_loses_the_job_instead_of_hanging_it(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "handlers:says")
    lost = call(programs, broker, "word", "--timeout", 5)
    assert lost.ends() == 1
    assert "lost: " in lost.err


def test_a_worker_serves_the_service_of_its_url_and_no_other(programs: Programs, handlers: Path) -> None:
    program = programs.run(
        "worker",
        "--concurrency",
        1,
        "handlers:upper",
        "--service",
        "resize",
        "--connect",
        "pingpong+tcp://127.0.0.1:1?service=other",
    )
    assert program.ends() == 2
    assert "service=resize" in program.err


def test_a_worker_of_edition_package_serves(programs: Programs, handlers: Path) -> None:
    broker = programs.broker("edition=package")
    worker = start_worker(programs, broker, "handlers:upper", options="edition=package")
    assert call(programs, broker, "EXIT").out == "EXIT"
    worker.terminate()
    assert worker.ends() == 0
    broker.prints("sent DISCONNECT")


# -------------------------------------------------------------------- a worker stops


def test_an_idle_worker_leaves_at_once_on_sigterm(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:upper")
    (child,) = [each for each in worker.children() if "resource_tracker" not in command_of(each)]
    worker.terminate()
    assert worker.ends() == 0
    until(lambda: not Path(f"/proc/{child}").exists(), "its child has ended too")
    broker.prints("worker left")


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_worker_that_found_no_broker_leaves_at_once_on_sigterm(programs: Programs, handlers: Path) -> None:
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:upper", "--connect", "pingpong+tcp://127.0.0.1:1"
    )
    worker.prints("trying again")
    worker.terminate()
    assert worker.ends() == 0


@pytest.mark.parametrize("how", ["handlers:slow", "--exec"])
def test_a_worker_finishes_the_job_in_hand_on_sigterm(programs: Programs, handlers: Path, how: str) -> None:
    broker = programs.broker()
    program = """sh -c 'read line; echo working >&2; sleep 0.7; echo "slept $line"'"""
    worker = start_worker(programs, broker, *(["--exec", program] if how == "--exec" else [how]))
    caller = programs.dragoman("call", "default", "0.7", "--connect", caller_url(broker))
    until(lambda: "working" in worker.out or has_grandchild(worker), "it works")
    worker.terminate()
    assert caller.ends() == 0
    assert caller.out.strip() == "slept 0.7"
    assert worker.ends() == 0


def has_grandchild(worker: Program) -> bool:
    return any(command_of(each).startswith("sh\0") for each in worker.children())


def test_a_large_result_in_hand_on_sigterm_arrives_whole(programs: Programs, handlers: Path) -> None:
    """It is far more than the kernel takes at once: closing right behind it would cut it off."""
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:large")
    caller = programs.dragoman("call", "default", str(48 * MIB), "--connect", caller_url(broker))
    worker.prints("working")
    worker.terminate()
    assert caller.ends() == 0, caller.err
    assert len(caller.out_bytes) == 48 * MIB
    assert worker.ends() == 0


@pytest.mark.parametrize("how", ["handlers:slow", "--exec"])
def test_a_second_signal_stops_a_busy_worker_at_once(programs: Programs, handlers: Path, how: str) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, *(["--exec", "sh -c 'read line; sleep 60'"] if how == "--exec" else [how]))
    caller = programs.dragoman("call", "default", "60", "--connect", caller_url(broker))
    until(lambda: "working" in worker.out or has_grandchild(worker), "it works")
    worker.terminate()
    worker.prints("stopping")
    worker.terminate()
    assert caller.ends() == 1
    assert "lost: " in caller.err
    assert worker.ends() == 0


def test_a_worker_killed_in_mid_job_leaves_no_child_behind(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:slow")
    caller = programs.dragoman("call", "default", "0.5", "--connect", caller_url(broker))
    worker.prints("working")
    children = worker.children()
    worker.kill()
    assert caller.ends() == 1
    until(lambda: not any(is_running(each) for each in children), "its child has noticed")


def test_a_program_does_not_outlive_a_worker_that_was_killed(programs: Programs) -> None:
    """A bug: it continued in its own session, while the job was lost and could be retried elsewhere."""
    broker = programs.broker()
    worker = start_worker(programs, broker, "--exec", "sleep 60")
    caller = programs.dragoman("call", "default", "x", "--connect", caller_url(broker))
    (program,) = until(
        lambda: [each for each in worker.children() if command_of(each).startswith("sleep\0")], "it works"
    )
    try:
        worker.kill()
        assert caller.ends() == 1
        until(lambda: not is_running(program), "its program has ended, too")
    finally:
        if is_running(program):
            os.kill(program, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

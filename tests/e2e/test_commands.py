"""The commands as people run them: processes, signals, exit codes, and what is printed where."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from dragoman import __version__
from dragoman.carriers.carrier import Message, TooLarge
from dragoman.carriers.zmtp import Zmtp
from programs import DRAGOMAN, HANDLERS, PATIENCE, Broker, Program, Programs, until

MIB = 1 << 20


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A module beside which workers are started."""
    module = tmp_path / "handlers.py"
    module.write_text(HANDLERS.read_text())
    return module


def worker_url(broker: Broker, options: str = "") -> str:
    return f"pingpong+{broker.workers}{'?' if options else ''}{options}"


def caller_url(broker: Broker, options: str = "") -> str:
    return f"pingpong+{broker.callers}{'?' if options else ''}{options}"


def start_worker(programs: Programs, broker: Broker, *words: object, options: str = "ping_every=0.2") -> Program:
    """Our worker, known to the broker by now."""
    known = broker.err.count("worker joined")
    worker = programs.dragoman("worker", "--concurrency", 1, *words, "--connect", worker_url(broker, options))
    until(lambda: broker.err.count("worker joined") > known or worker.process.poll() is not None, "it has joined")
    assert worker.process.poll() is None, worker.err
    return worker


def call(programs: Programs, broker: Broker, *words: object, given: bytes = b"") -> Program:
    """One call that has ended."""
    return programs.run("call", "default", *words, "--connect", caller_url(broker), given=given)


# -------------------------------------------------------------------- dragoman


def test_version_and_help_are_there_for_every_command(programs: Programs) -> None:
    version = programs.run("--version")
    assert (version.ends(), version.out.strip()) == (0, f"dragoman {__version__} (interpreted)")
    for words in ([], ["serve"], ["worker"], ["call"], ["config"]):
        helped = programs.run(*words, "--help")
        assert helped.ends() == 0
        assert "Usage: dragoman" in helped.out


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["serve", "--nonsense"],
        ["call"],
        ["worker", "--connect", "pingpong+tcp://127.0.0.1:1"],
        ["worker", "m:f", "--exec", "cat", "--connect", "pingpong+tcp://127.0.0.1:1"],
        ["call", "default", "--connect", "pingpong+tcp://127.0.0.1:1", "--timeout", "0"],
    ],
    ids=" ".join,
)
def test_a_command_that_is_not_understood_ends_with_2_and_says_why(programs: Programs, words: list[str]) -> None:
    program = programs.run(*words)
    assert program.ends() == 2
    assert program.err.strip()
    assert "Traceback" not in program.err


# -------------------------------------------------------------------- serve


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "://"),
        ("pingpong+tcp://127.0.0.1", "port"),
        ("pingpnog+tcp://127.0.0.1:0", "did you mean 'pingpong'"),
        ("pingpong+tcp://127.0.0.1:0?frontned=0", "did you mean 'frontend'"),
        ("pingpong+tcp://127.0.0.1:0?worker_expire=soon", "worker_expire"),
        ("pingpong+tcp://127.0.0.1:0?edition=fancy", "plain, package"),
        ("pingpong+tcp://127.0.0.1:0?service=%20%20x%7F", "control characters"),
        ("pingpong+tcp://no.such.host.invalid:0?insecure=true", "no.such.host.invalid"),
        ("pingpong+tcp://0.0.0.0:0", "insecure=true"),
        ("pingpong+tcp://127.0.0.1:0?frontend=tcp%3A%2F%2F0.0.0.0%3A0", "insecure=true"),
    ],
)
def test_serve_refuses_a_url_it_cannot_use_and_says_what_is_wrong(programs: Programs, url: str, complaint: str) -> None:
    program = programs.run("serve", url, "--data", "memory")
    assert program.ends() == 2
    assert complaint in program.err
    assert "Traceback" not in program.err
    assert "listening" not in program.out


def test_serve_off_loopback_with_insecure_warns(programs: Programs) -> None:
    broker = programs.broker(url="pingpong+tcp://0.0.0.0:0?frontend=0&insecure=true")
    broker.prints("listening without authentication")


def test_serve_without_a_frontend_says_that_it_takes_workers_only(programs: Programs) -> None:
    program = programs.dragoman("serve", "pingpong+tcp://127.0.0.1:0", "--data", "memory")
    program.prints("takes workers only")


@pytest.mark.parametrize("taken", ["backend", "frontend"])
def test_serve_ends_with_73_when_a_port_is_taken(programs: Programs, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        ports = (port, 0) if taken == "backend" else (0, port)
        program = programs.run("serve", "pingpong+tcp://127.0.0.1:{}?frontend={}".format(*ports), "--data", "memory")
    assert program.ends() == 73
    assert f"127.0.0.1:{port} is taken" in program.err
    assert "Traceback" not in program.err


def test_a_hangup_neither_stops_a_broker_nor_changes_it(programs: Programs) -> None:
    """R111."""
    broker = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", "memory")
    url = broker.prints(r"(tcp://127.0.0.1:\d+)")
    os.kill(broker.pid, signal.SIGHUP)
    broker.prints("SIGHUP changes nothing")
    programs.dragoman("worker", "--exec", "cat", "--service", "echo", "--connect", url)
    broker.prints("worker joined")
    called = programs.dragoman("call", "echo", "still here", "--connect", url)
    assert (called.ends(), called.out) == (0, "still here")


def test_serve_ends_with_73_when_a_socket_file_is_taken_and_leaves_it_alone(programs: Programs, tmp_path: Path) -> None:
    url = f"pingpong+ipc://{tmp_path}/b?frontend=tcp%3A%2F%2F127.0.0.1%3A0"
    first = programs.broker(url=url)
    second = programs.run("serve", url, "--data", "memory")
    assert second.ends() == 73
    assert f"{tmp_path}/b" in second.err
    assert (tmp_path / "b").is_socket()
    first.terminate()
    assert first.ends() == 0
    assert not (tmp_path / "b").exists()


def test_a_socket_file_left_by_a_killed_broker_is_no_obstacle(programs: Programs, tmp_path: Path) -> None:
    url = f"pingpong+ipc://{tmp_path}/b?frontend=tcp%3A%2F%2F127.0.0.1%3A0"
    programs.broker(url=url).kill()
    assert (tmp_path / "b").exists()
    programs.broker(url=url)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read"), (b"max_jobs = ", "is not TOML"), (b"max_jbos = 1", "max_jobs"), (b"\xff", "UTF-8")],
)
def test_serve_refuses_a_config_file_it_cannot_use(
    programs: Programs, tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "settings.toml"
    if content is not None:
        path.write_bytes(content)
    program = programs.run("serve", "--config", path)
    assert program.ends() == 2
    assert str(path) in program.err
    assert complaint in program.err


def test_a_second_broker_on_one_data_folder_ends_with_73_and_names_the_first(
    programs: Programs, tmp_path: Path
) -> None:
    url = "pingpong+tcp://127.0.0.1:0?frontend=0"
    first = programs.dragoman("serve", url, "--data", tmp_path / "data")
    first.prints("is listening")
    second = programs.run("serve", url, "--data", tmp_path / "data")
    assert second.ends() == 73
    assert str(first.pid) in second.err
    assert str(tmp_path / "data") in second.err


def test_the_data_folder_is_ours_alone_and_each_start_is_a_new_epoch(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "dragoman"  # XDG_STATE_HOME, as the fixture sets it
    for epoch in (0, 1):
        broker = programs.dragoman("serve", "pingpong+tcp://127.0.0.1:0?frontend=0")
        broker.prints("is listening")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {
            "lock": 0o600,
            "epoch": 0o600,
            "diary.db": 0o600,
            "diary.db-wal": 0o600,
            "ballast": 0o600,
        }
        assert (folder / "lock").read_text().strip() == str(broker.pid)
        assert (folder / "epoch").read_text().strip() == str(epoch)
        broker.kill()


def test_a_data_folder_that_cannot_be_made_ends_with_74_and_is_named(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    program = programs.run("serve", "pingpong+tcp://127.0.0.1:0", "--data", tmp_path / "file" / "data")
    assert program.ends() == 74
    assert str(tmp_path / "file") in program.err


def test_a_data_folder_where_everybody_may_write_ends_with_74_and_the_command_to_run(
    programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    folder.chmod(0o777)
    program = programs.dragoman("serve", "http://127.0.0.1:0", "--data", folder)
    assert program.ends() == 74
    assert f"everybody may write there: run chmod o-w {folder}" in program.err


def test_an_epoch_that_is_no_number_ends_with_74_and_is_named(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "epoch").write_text("seven\n")
    program = programs.run("serve", "pingpong+tcp://127.0.0.1:0", "--data", tmp_path / "data")
    assert program.ends() == 74
    assert str(tmp_path / "data" / "epoch") in program.err


@pytest.mark.parametrize("options", ["", "service=shout", "service=a%20b", "edition=package"])
def test_what_serve_suggests_to_try_works_as_printed(programs: Programs, options: str) -> None:
    broker = programs.broker(options)
    broker.prints(r"dragoman call .*\n")  # the last line of it
    suggested = re.findall(r"^  \S*dragoman ((?:worker|call) .*)$", broker.out, re.MULTILINE)
    assert [line.split()[0] for line in suggested] == ["worker", "call"]
    worker, caller = (programs.start("sh", "-c", f"exec {DRAGOMAN} {line}") for line in suggested)
    assert caller.ends() == 0, caller.err
    assert caller.out == "HELLO"
    assert worker.process.poll() is None


WITHOUT_A_READER = """
import os, sys
reading, writing = os.pipe()
os.dup2(writing, 2)
os.close(reading)
os.close(writing)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_broker_whose_log_nobody_reads_any_more_serves_and_stops_as_ever(programs: Programs, handlers: Path) -> None:
    """A bug: the first line it could not write raised in the middle of a turn, and the broker never had another."""
    words = ["serve", "pingpong+tcp://127.0.0.1:0?frontend=0", "--data", "memory", "--strict"]
    broker = programs.start(sys.executable, "-c", WITHOUT_A_READER, DRAGOMAN, *words, kind=Broker)
    assert isinstance(broker, Broker)
    broker.listens()
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", worker_url(broker))
    for data in ("one", "two"):
        done = call(programs, broker, data)
        assert (done.ends(), done.out) == (0, data.upper())
    broker.terminate()
    assert broker.ends(5) == 0


# -------------------------------------------------------------------- config


def test_config_prints_each_setting_and_where_it_came_from(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('max_jobs = 5\nlog = "human"\ndrain_timeout = 3\n')
    program = programs.run(
        "config", "--config", path, "--drain-timeout", "1.5", DRAGOMAN_MAX_JOBS="7", DRAGOMAN_LOG_LEVEL="debug"
    )
    assert program.ends() == 0
    rows = {line.split()[0]: re.split(r"  +", line.strip()) for line in program.out.splitlines()}
    assert rows["drain_timeout"] == ["drain_timeout", "1.5", "flag --drain-timeout"]
    assert rows["max_jobs"] == ["max_jobs", "7", "environment DRAGOMAN_MAX_JOBS"]
    assert rows["log_level"] == ["log_level", "debug", "environment DRAGOMAN_LOG_LEVEL"]
    assert rows["log"] == ["log", "human", f"file {path}"]
    assert rows["max_peers"][-1] == "default"
    assert "pingpong+tcp://127.0.0.1:7401?frontend=7402" in rows["listen"][1]


def test_config_as_json_says_the_same(programs: Programs) -> None:
    program = programs.run("config", "--json", "pingpong+tcp://127.0.0.1:1", "--strict")
    assert program.ends() == 0
    told = json.loads(program.out)
    assert told["listen"] == {"value": ["pingpong+tcp://127.0.0.1:1"], "source": "arguments"}
    assert told["strict"] == {"value": True, "source": "flag --strict"}


def test_config_refuses_what_serve_would_refuse(programs: Programs) -> None:
    program = programs.run("config", DRAGOMAN_MAX_JOBS="many")
    assert program.ends() == 2
    assert "DRAGOMAN_MAX_JOBS" in program.err


def test_variables_that_are_no_settings_do_not_keep_a_broker_from_starting(programs: Programs) -> None:
    """Both ended `serve` with 2, though `make help` advertises the second."""
    program = programs.run("config", DRAGOMAN_URL="x", DRAGOMAN_PURE="1", DRAGOMAN_MAX_JBOS="7")
    assert program.ends() == 0
    assert program.err == (
        "dragoman: warning: environment variable 'DRAGOMAN_URL' is not a setting and was ignored; "
        "`dragoman config` lists all settings\n"
        "dragoman: warning: environment variable 'DRAGOMAN_MAX_JBOS' is not a setting and was ignored "
        "(did you mean 'DRAGOMAN_MAX_JOBS'?)\n"
    )


def test_the_package_runs_as_a_module(programs: Programs) -> None:
    program = programs.start(sys.executable, "-m", "dragoman", "--version")
    assert program.ends() == 0
    assert program.out == programs.run("--version").out
    usage = programs.start(sys.executable, "-m", "dragoman", "call")
    assert usage.ends() == 2
    assert "python -m dragoman call" in usage.err


@pytest.mark.parametrize(
    "words", [["config"], ["--help"], ["serve", "http://127.0.0.1:0", "--data", "memory", "--log-level", "error"]]
)
def test_output_that_cannot_be_written_is_one_line_and_ends_with_1(words: list[str]) -> None:
    """It was a traceback."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run([DRAGOMAN, *words], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, text=True)
    assert (ended.returncode, ended.stderr) == (
        1,
        "dragoman: cannot write to standard output: No space left on device\n",
    )


def test_a_reader_that_has_gone_is_no_error_to_speak_of() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        ended = subprocess.run([DRAGOMAN, "config"], stdout=pipe, stderr=subprocess.PIPE, timeout=PATIENCE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_native_peer_at_a_port_of_another_dialect_is_told_so(programs: Programs, handlers: Path) -> None:
    """It said "connected", and then nothing that would have helped."""
    broker = programs.broker()
    worker = programs.dragoman("worker", "handlers:upper", "--threads", 1, "--connect", broker.workers)
    called = programs.dragoman("call", "default", "x", "--connect", broker.callers)
    early = programs.dragoman("call", "default", "x", "--timeout", 0.5, "--connect", broker.callers)
    assert early.ends() == 4
    assert "it was not sent: " in early.err
    assert called.ends() == 3
    assert "no WELCOME came within 5 s of connecting: this port seems to speak another dialect" in called.err
    worker.prints("no WELCOME came within 5 s of connecting: this port seems to speak another dialect")


# -------------------------------------------------------------------- call


def test_call_prints_the_result_as_it_came(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "handlers:upper")
    for words, given, result in (
        (["hello"], b"", b"HELLO"),
        (["-"], b"from stdin\n", b"FROM STDIN\n"),
        (["-"], b"\x00\xff\n", b"\x00\xff\n"),
        ([], b"", b""),
        (["-"], b"m" * MIB, b"M" * MIB),
    ):
        done = call(programs, broker, *words, given=given)
        assert (done.ends(), done.out_bytes, done.err) == (0, result, "")


def test_call_takes_the_listeners_whole_url(programs: Programs, handlers: Path) -> None:
    """What the operator gave to serve can be pasted for workers and callers alike."""
    broker = programs.broker("service=up&worker_expire=2&carrier_ping=1&carrier_timeout=9&job_timeout=5")
    port, frontend = (place.rpartition(":")[2] for place in (broker.workers, broker.callers))
    url = (
        f"pingpong+tcp://127.0.0.1:{port}?frontend={frontend}"
        "&service=up&worker_expire=2&carrier_ping=1&carrier_timeout=9&job_timeout=5"
    )
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--service", "up", "--connect", url)
    done = programs.run("call", "up", "hello", "--connect", url)
    assert (done.ends(), done.out) == (0, "HELLO")


def test_call_ends_with_1_when_the_job_is_lost_failed_or_refused(programs: Programs, handlers: Path) -> None:
    broker = programs.broker("max_payload=1MiB")
    start_worker(programs, broker, "handlers:raises")
    lost = call(programs, broker, "bad")
    assert lost.ends() == 1
    assert "lost: " in lost.err
    failed = call(programs, broker, "EXIT")
    assert failed.ends() == 1
    assert "failed: reserved word" in failed.err
    refused = call(programs, broker, "-", given=b"x" * (2 * MIB))
    assert refused.ends() == 1
    assert "refused: payload" in refused.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["default", "x", "--connect", "nonsense"], "://"),
        (["resize", "x", "--connect", "pingpong+tcp://127.0.0.1:1"], "service=resize"),
        (["default", "x", "--connect", "pingpong+tcp://127.0.0.1:1?nonsense=1"], "nonsense"),
    ],
)
def test_call_ends_with_2_when_it_is_told_nonsense(programs: Programs, words: list[str], complaint: str) -> None:
    program = programs.run("call", *words)
    assert program.ends() == 2
    assert complaint in program.err


def test_call_ends_with_3_when_there_is_no_broker(programs: Programs) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        program = programs.run("call", "default", "x", "--connect", f"pingpong+tcp://{where}")
    assert program.ends() == 3
    assert where in program.err


def test_call_ends_with_3_when_whoever_listens_there_is_no_broker(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        program = programs.dragoman("call", "default", "x", "--connect", f"pingpong+tcp://127.0.0.1:{port}")
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert program.ends() == 3
    assert "HTTP" in program.err


def test_call_ends_with_3_when_the_broker_dies_before_it_answers(programs: Programs) -> None:
    broker = programs.broker()
    caller = programs.dragoman("call", "default", "x", "--connect", caller_url(broker))
    waits_for(broker)
    broker.kill()
    assert caller.ends() == 3
    assert "went away" in caller.err


def waits_for(broker: Broker) -> None:
    """Wait until somebody is connected to the callers' door."""
    port = int(broker.callers.rpartition(":")[2])

    def is_there() -> bool:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" for row in rows)

    until(is_there, "a caller has connected")


def test_call_at_the_workers_port_says_that_it_is_the_workers_port(programs: Programs) -> None:
    """A bug: the broker took the job for a late result and said PONG, and call printed PONG as the result."""
    broker = programs.broker()
    program = programs.run("call", "default", "x", "--connect", f"pingpong+{broker.workers}")
    assert program.ends() == 1
    assert "this is where workers connect" in program.err
    assert program.out == ""


def test_call_and_worker_take_whatever_the_broker_let_in(programs: Programs) -> None:
    """A bug: they had the default max_payload for themselves, so a broker's larger one was of no use."""
    broker = programs.broker("max_payload=128MiB")
    worker = start_worker(programs, broker, "--exec", "cat")
    large = b"large" * (14 * MIB)
    done = call(programs, broker, "-", given=large)
    assert done.ends() == 0, done.err + worker.err
    assert done.out_bytes == large


def test_call_ends_with_4_when_its_own_time_is_over(programs: Programs) -> None:
    broker = programs.broker()
    program = call(programs, broker, "x", "--timeout", 0.3)
    assert program.ends() == 4
    assert "timed out: no answer within 0.3 s" in program.err


def test_call_ends_with_4_when_the_broker_says_timed_out(programs: Programs) -> None:
    broker = programs.broker("queue_timeout=0.2")
    program = call(programs, broker, "x")
    assert program.ends() == 4
    assert "timed out: no worker was free within 0.2 s" in program.err


# -------------------------------------------------------------------- worker


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("no_such_module:f", "no_such_module"),
        ("handlers:no_such_function", "no_such_function"),
        ("handlers:not_callable", "not_callable"),
        ("handlers", "MODULE:FUNCTION"),
        ("broken:f", "ZeroDivisionError"),
        ("needs_another:f", "not_installed_anywhere"),
    ],
)
def test_a_function_that_cannot_be_had_ends_with_2_and_says_which(
    programs: Programs, handlers: Path, target: str, complaint: str
) -> None:
    handlers.with_name("broken.py").write_text("1 / 0\n")
    handlers.with_name("needs_another.py").write_text("import not_installed_anywhere\n")
    program = programs.run("worker", target, "--connect", "pingpong+tcp://127.0.0.1:1")
    assert program.ends() == 2
    assert target in program.err
    assert complaint in program.err


def test_a_module_that_ends_its_process_at_import_ends_with_2_and_a_sentence(
    programs: Programs, tmp_path: Path
) -> None:
    """A bug: nobody had thought of the pipe's end while the module was imported, and an EOFError came up."""
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    program = programs.run("worker", "leaves:f", "--connect", "pingpong+tcp://127.0.0.1:1")
    assert program.ends() == 2
    assert "cannot run leaves:f: importing leaves ended the process: it called sys.exit(3)" in program.err
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
    """This wire has no word for failure; the traceback is in the worker's log."""
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
    """A bug: the next job was written to the dead child's pipe and lost, though nobody had seen it."""
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


def assert_rested_between_connections(worker: Program, rests: int) -> None:
    """As its log has it: every connection but the first comes after a rest, and the rest is one."""
    lines = re.findall(r"\d\d:(\d\d):(\d\d),(\d{3}) .*(connected to|trying again in)", worker.err)
    assert [what for *_, what in lines][: 2 * rests + 1] == ["connected to", "trying again in"] * rests + [
        "connected to"
    ]
    times = [60 * int(minute) + int(second) + int(thousandth) / 1_000 for minute, second, thousandth, _ in lines]
    for number in range(1, 2 * rests, 2):
        rested = (times[number + 1] - times[number]) % 3_600
        assert rested > 0.04, worker.err  # the first rest is 50 ms at least


def test_a_worker_at_the_callers_port_is_told_where_workers_connect(programs: Programs, handlers: Path) -> None:
    """A bug: it said only that the message was malformed, and nobody could tell what to do about it."""
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
    worker.prints("a int, cannot be written as bytes")


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
    broker.prints("said DISCONNECT")


# -------------------------------------------------------------------- a worker stops


def test_an_idle_worker_leaves_at_once_on_sigterm(programs: Programs, handlers: Path) -> None:
    broker = programs.broker()
    worker = start_worker(programs, broker, "handlers:upper")
    (child,) = [each for each in worker.children() if "resource_tracker" not in command_of(each)]
    worker.terminate()
    assert worker.ends(5) == 0
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
    assert worker.ends(5) == 0


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
    assert worker.ends(5) == 0


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
    assert worker.ends(5) == 0


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
    assert worker.ends(5) == 0


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
    """A bug: it worked on in a session of its own, while the job's loss was known and others might begin it anew."""
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


# -------------------------------------------------------------------- our worker and our call among strangers


class StrangerBroker:
    """A ROUTER in this process, to see exactly what our worker says."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self.backend = self._context.socket(zmq.ROUTER)
        self.backend.linger = 0
        self.backend.rcvtimeo = int(PATIENCE * 1000)
        self.backend.bind("tcp://127.0.0.1:*")
        self.url = "pingpong+" + self.backend.getsockopt_string(zmq.LAST_ENDPOINT)

    def close(self) -> None:
        self.backend.close()
        self._context.term()

    def hear(self) -> tuple[bytes, bytes]:
        worker, delimiter, word = self.backend.recv_multipart()
        assert delimiter == b""
        return worker, word

    def say(self, worker: bytes, word: bytes) -> None:
        self.backend.send_multipart([worker, b"", word])


@pytest.fixture
def stranger() -> Iterator[StrangerBroker]:
    broker = StrangerBroker()
    yield broker
    broker.close()


def test_heartbeats_go_on_while_a_long_job_runs(programs: Programs, handlers: Path, stranger: StrangerBroker) -> None:
    options = "ping_every=0.1&broker_timeout=0.2&ping_while_busy=true"
    programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", f"{stranger.url}?{options}")
    worker, word = stranger.hear()
    assert word == b"READY"
    stranger.say(worker, b"1.0")
    heard = [stranger.hear() for _ in range(6)]
    assert heard == [(worker, b"PING")] * 6  # and it is silence it does not mind while it works
    while word != b"slept 1.0":
        sender, word = stranger.hear()
        assert (sender, word) in [(worker, b"PING"), (worker, b"slept 1.0")]


def test_heartbeats_of_a_busy_worker_do_not_bring_it_a_second_job_from_our_broker(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker("worker_expire=0.3&ping_every=0.05")
    worker = start_worker(programs, broker, "handlers:slow", options="ping_every=0.05&ping_while_busy=true")
    callers = [programs.dragoman("call", "default", f"0.6 {n}", "--connect", caller_url(broker)) for n in range(2)]
    assert [each.ends() for each in callers] == [0, 0]
    assert "reconnecting" not in worker.err


def test_a_worker_reconnects_and_says_ready_when_the_broker_is_silent(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    """broker_timeout × n_timeouts; the new connection has a new routing id."""
    programs.dragoman(
        "worker",
        "--concurrency",
        1,
        "handlers:upper",
        "--connect",
        f"{stranger.url}?ping_every=0.1&broker_timeout=0.1&n_timeouts=3",
    )
    first, word = stranger.hear()
    assert word == b"READY"
    began = time.monotonic()
    worker = first
    while worker == first:
        worker, word = stranger.hear()
    assert word == b"READY"
    assert time.monotonic() - began < 5


def test_exit_from_the_broker_ends_the_worker_with_0(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    program = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", stranger.url)
    worker, _ = stranger.hear()
    stranger.say(worker, b"EXIT")
    assert program.ends(5) == 0


def test_r39_a_result_of_a_job_from_an_earlier_connection_is_not_sent(
    programs: Programs, handlers: Path, stranger: StrangerBroker
) -> None:
    """A second job while it works makes it come back on a new connection; what it then finishes is dropped."""
    programs.dragoman("worker", "--concurrency", 1, "handlers:slow", "--connect", f"{stranger.url}?ping_every=0.1")
    first, _ = stranger.hear()
    stranger.say(first, b"0.4 old")
    stranger.say(first, b"0.4 second")
    worker = first
    while worker == first:
        worker, word = stranger.hear()
        assert word in (b"READY", b"PING")
    assert word == b"READY"
    stranger.say(worker, b"0 new")
    while word in (b"READY", b"PING"):
        sender, word = stranger.hear()
    assert (sender, word) == (worker, b"slept 0 new")


class Doorkeeper:
    """A listening socket that greets by hand, as a broker's would, and then does what the test says."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.url = f"pingpong+tcp://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Doorkeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def accept(self) -> socket.socket:
        accepted, _ = self._listening.accept()
        accepted.settimeout(PATIENCE)
        return accepted

    def greet(self, accepted: socket.socket) -> list[Message | TooLarge]:
        """Shake hands until the visitor says something or hangs up; returns what it said."""
        carrier = Zmtp("ROUTER")
        heard: list[Message | TooLarge] = []
        try:
            while not heard:
                for each in carrier.outgoing:
                    accepted.sendall(each)
                carrier.outgoing = []
                came = accepted.recv(65_536)
                if not came:
                    break
                heard += carrier.feed(came)
        except ConnectionError:
            pass
        return heard


def test_a_worker_rests_before_it_comes_back_to_a_broker_that_greets_and_hangs_up(programs: Programs) -> None:
    """A bug: a greeting was success enough to forget all patience, and it came back without any rest."""
    with Doorkeeper() as door:
        worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", door.url)
        began = 0.0
        for _ in range(4):
            with door.accept() as accepted:
                began = began or time.monotonic()
                assert door.greet(accepted) == [[b"", b"READY"]]
        took = time.monotonic() - began
        worker.terminate()
        assert worker.ends(5) == 0
    assert_rested_between_connections(worker, 3)
    assert took > 0.3, "rests grow as long as nothing is heard from that broker"


def test_a_worker_told_to_stop_while_it_greets_does_not_say_that_it_is_ready(programs: Programs) -> None:
    """A bug: it finished the greeting, said READY and left: the job that a broker then gave it was lost."""
    with Doorkeeper() as door:
        worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", door.url)
        with door.accept() as accepted:
            worker.terminate()
            worker.prints("stopping")
            assert door.greet(accepted) == []
        assert worker.ends(5) == 0


def start_stranger_broker(programs: Programs, *words: object) -> tuple[Program, str, str]:
    broker = programs.stranger("pingpong_broker", *words)
    backend, frontend = (broker.prints(rf"{name} (tcp://\S+)") for name in ("backend", "frontend"))
    return broker, f"pingpong+{backend}", f"pingpong+{frontend}"


def test_our_worker_and_our_call_work_with_a_strangers_broker(programs: Programs, handlers: Path) -> None:
    """The first text to the letter on the other side."""
    broker, backend, frontend = start_stranger_broker(programs)
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", f"{backend}?ping_every=0.1")
    broker.prints("heard READY")
    for data in ("one", "two"):
        done = programs.run("call", "default", data, "--connect", frontend)
        assert (done.ends(), done.out) == (0, data.upper())
    broker.prints("heard PING", times=3)
    assert "reconnecting" not in worker.err
    worker.terminate()
    assert worker.ends(5) == 0


def test_two_callers_of_a_strangers_broker_get_their_own_answers_from_our_worker(
    programs: Programs, handlers: Path
) -> None:
    """A broker true to the letter makes a worker idle that pings at its job: ours is silent then."""
    broker, backend, frontend = start_stranger_broker(programs)
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--connect", backend
    )  # a PING would fall due in mid-job
    broker.prints("heard READY")
    callers = [programs.dragoman("call", "default", f"1.2{n}", "--connect", frontend) for n in range(2)]
    assert [(each.ends(), each.out) for each in callers] == [(0, "slept 1.20"), (0, "slept 1.21")]
    assert "reconnecting" not in worker.err


def test_our_worker_finds_a_strangers_broker_that_was_started_again(programs: Programs, handlers: Path) -> None:
    broker, backend, frontend = start_stranger_broker(programs)
    programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", f"{backend}?ping_every=0.1")
    broker.prints("heard READY")
    broker.kill()
    ports = [url.rpartition(":")[2] for url in (backend, frontend)]
    again, _, _ = start_stranger_broker(programs, "--backend", ports[0], "--frontend", ports[1])
    again.prints("heard READY")
    done = programs.run("call", "default", "x", "--connect", frontend)
    assert (done.ends(), done.out) == (0, "X")


def test_our_worker_gives_up_a_strangers_broker_that_answers_no_ping_and_tries_again(
    programs: Programs, handlers: Path
) -> None:
    broker, backend, _ = start_stranger_broker(programs, "--mute")
    worker = programs.dragoman(
        "worker",
        "--concurrency",
        1,
        "handlers:upper",
        "--connect",
        f"{backend}?ping_every=0.1&broker_timeout=0.1&n_timeouts=2",
    )
    broker.prints("heard READY", times=3)
    worker.prints("nothing heard from the broker for 0.2 s")


def test_our_worker_reconnects_after_our_broker_was_killed_and_started_again(
    programs: Programs, handlers: Path
) -> None:
    broker = programs.broker()
    start_worker(programs, broker, "handlers:upper")
    port, frontend = (place.rpartition(":")[2] for place in (broker.workers, broker.callers))
    broker.kill()
    again = programs.broker(url=f"pingpong+tcp://127.0.0.1:{port}?frontend={frontend}")
    done = call(programs, again, "x")
    assert (done.ends(), done.out) == (0, "X")

"""The commands `serve` and `config`, and the program itself: exit codes, and output."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pingpong_commands import call, worker_url

from dragoman import __version__
from programs import DRAGOMAN, PATIENCE, Broker, Programs

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
    program.prints("accepts workers only")


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
    broker.prints("access reloaded")
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
            "access-reload": 0o600,
            "epoch": 0o600,
            "store.db": 0o600,
            "store.db-wal": 0o600,
            "ballast": 0o600,
        }
        assert (folder / "lock").read_text().strip() == str(broker.pid)
        assert (folder / "epoch").read_text().strip() == str(epoch)
        broker.kill()


def test_a_data_folder_that_cannot_be_made_ends_with_74_and_is_named(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    program = programs.run("serve", "pingpong+tcp://127.0.0.1:0", "--data", tmp_path / "file" / "data")
    assert program.ends() == 74
    assert program.err == (
        f"dragoman: cannot use the data folder {tmp_path}/file/data: Not a directory ({tmp_path}/file/data); choose a "
        "folder that this user may create or write to with --data DIR, or store nothing with --data memory\n"
    )


def test_a_data_folder_where_everybody_may_write_ends_with_74_and_the_command_to_run(
    programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    folder.chmod(0o777)
    program = programs.dragoman("serve", "http://127.0.0.1:0", "--data", folder)
    assert program.ends() == 74
    assert f"all users may write there: run chmod o-w {folder}" in program.err


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
    assert broker.ends() == 0


# -------------------------------------------------------------------- config


def test_config_prints_each_setting_and_where_it_came_from(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('max_jobs = 5\nlog = "human"\ndrain_timeout = 3\n')
    program = programs.run(
        "config", "--config", path, "--drain-timeout", "1.5", DRAGOMAN_MAX_JOBS="7", DRAGOMAN_LOG_LEVEL="debug"
    )
    assert program.ends() == 0
    lines = [re.split(r"  +", line.strip()) for line in program.out.splitlines()]
    rows = {line[0]: line for line in lines}
    assert rows["drain_timeout"] == ["drain_timeout", "1.5", "flag --drain-timeout"]
    assert rows["max_jobs"] == ["max_jobs", "7", "environment DRAGOMAN_MAX_JOBS"]
    assert rows["log_level"] == ["log_level", "debug", "environment DRAGOMAN_LOG_LEVEL"]
    assert rows["log"] == ["log", "human", f"file {path}"]
    assert rows["max_connections"][-1] == "default"
    assert ["listen", "tcp://127.0.0.1:7400", "default"] in lines
    assert ["listen", "pingpong+tcp://127.0.0.1:7401?frontend=7402", "default"] in lines
    assert (rows["max_memory"][1], rows["max_key_bytes"][1]) == ("1GiB", "256")


def test_config_as_json_says_the_same(programs: Programs) -> None:
    program = programs.run("config", "--json", "pingpong+tcp://127.0.0.1:1", "--strict")
    assert program.ends() == 0
    told = json.loads(program.out)
    assert told["listen"] == {"value": ["pingpong+tcp://127.0.0.1:1"], "source": "arguments"}
    assert told["strict"] == {"value": True, "source": "flag --strict"}
    assert told["max_memory"] == {"value": 1 << 30, "source": "default"}


def test_config_refuses_what_serve_would_refuse(programs: Programs) -> None:
    program = programs.run("config", DRAGOMAN_MAX_JOBS="many")
    assert program.ends() == 2
    assert "DRAGOMAN_MAX_JOBS" in program.err


def test_variables_that_are_no_settings_do_not_keep_a_broker_from_starting(programs: Programs) -> None:
    """Both ended `serve` with 2, though `make help` advertises the second."""
    program = programs.run("config", DRAGOMAN_XYZZY="x", DRAGOMAN_PURE="1", DRAGOMAN_MAX_JBOS="7")
    assert program.ends() == 0
    assert program.err == (
        "dragoman: warning: environment variable 'DRAGOMAN_XYZZY' is not a setting and was ignored; "
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
    assert "the job was not sent: " in early.err
    assert called.ends() == 3
    assert f"{broker.callers} speaks PingPong or Powerhose over ZMTP (a ROUTER socket, for callers)" in called.err
    worker.prints(rf"{broker.workers} speaks PingPong over ZMTP .*, not the native dialect; use pingpong\+tcp://")

"""Commands that change the access folder tell the broker that runs with it, and print its answer."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from pathlib import Path

import pytest

from authority import Authority
from dragoman.cli import running_broker
from preloaded import DRAGOMAN
from programs import Programs


def changed(programs: Programs, *words: str) -> tuple[int, str]:
    done = programs.dragoman("access", *words, "--data", "data")
    return done.ends(), done.err


def test_commands_tell_the_broker_and_print_its_answer(programs: Programs) -> None:
    folder = programs.folder
    code, told = changed(programs, "allow", "www", "--uid", "33", "--call", "mail")
    assert (code, "No broker runs with the data folder data; the next one reads the change" in told) == (0, True)
    broker = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", "data")
    url = broker.prints(r"(tcp://127.0.0.1:\d+)")
    accepted = re.compile(rf"The broker \(process {broker.pid}\) has accepted the change\n")
    code, told = changed(programs, "allow", "www", "--uid", "34")
    assert code == 0
    assert accepted.search(told)
    bad = folder / "data" / "access" / "bad.toml"
    bad.touch(mode=0o600)
    bad.write_text("cal = []")
    reload = programs.dragoman("access", "reload", "--connect", url)
    assert reload.ends() == 2
    assert "bad.toml, line 1: cal is not a key; did you mean 'call'?" in reload.err
    code, told = changed(programs, "remove", "www")
    assert code == 1
    assert f"the broker (process {broker.pid}) has not accepted the change; it goes on with what it had" in told
    bad.unlink()
    reload = programs.dragoman("access", "reload", "--connect", url, "--json")
    assert reload.ends() == 0
    assert reload.out == '{"added":[],"removed":["www"],"changed":[],"disconnected":0}\n'


def test_the_process_in_the_lock_file_is_believed_only_if_it_holds_the_lock(tmp_path: Path) -> None:
    """The broker may run in another container that shares the folder: there its process id is another process."""
    assert running_broker.broker_process(tmp_path) is None
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    assert running_broker.broker_process(tmp_path) is None, "nobody holds the lock"
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert running_broker.broker_process(tmp_path) == os.getpid()
        lock.write_text("1\n")
        with pytest.raises(OSError, match="runs where its process id is not known"):
            running_broker.broker_process(tmp_path)


def test_a_worker_with_a_token_in_its_environment_hides_its_memory(programs: Programs) -> None:
    """R157: a program that it starts cannot read the token there. PR_GET_DUMPABLE is 3."""
    module = (
        "import ctypes\n"
        "def dumpable(payload: bytes) -> bytes:\n"
        "    return b'%d' % ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
    )
    (programs.folder / "handlers.py").write_text(module)
    broker = programs.dragoman("serve", "http://127.0.0.1:0", "--data", "memory")
    url = broker.prints(r"(http://127.0.0.1:\d+)")
    words = ("worker", "handlers:dumpable", "--threads", "1", "--connect", url, "--service")
    programs.dragoman(*words, "hidden", DRAGOMAN_TOKEN="dgm_" + "x" * 43)
    programs.dragoman(*words, "plain")
    broker.prints("worker joined", 2)
    answers = [programs.run("call", service, "", "--connect", url).out for service in ("hidden", "plain")]
    assert answers == ["0", "1"]


def test_a_certificate_without_a_principal_ends_the_worker_and_the_call(programs: Programs, tmp_path: Path) -> None:
    """It is signed by the right authority, so TLS accepts it; the broker then says that it has no principal for it."""
    authority = Authority(tmp_path / "ca")
    stranger = authority.issue("stranger", "subjectAltName=DNS:stranger")
    assert changed(programs, "allow", "ops", "--tls-name", "ops.example", "--call", "*", "--work", "*")[0] == 0
    url = f"native+tls://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}"
    broker = programs.dragoman("serve", url, "--data", "data")
    port = broker.prints(r"tls://127.0.0.1:(\d+)")
    address = f"tls://127.0.0.1:{port}?ca={authority.cert}&{stranger.options}"
    for words in (("worker", "--exec", "cat", "--service", "s"), ("call", "s", "x")):
        refused = programs.run(*words, "--connect", address)
        assert refused.ends() == 3
        assert "this broker has no principal for the certificate of this client" in refused.err
    broker.prints("unknown certificate", 2)


def test_a_broker_with_a_secret_key_writes_no_core_dump_and_hides_its_memory(programs: Programs) -> None:
    """Also if the first key comes with a reload. The files of a process that hides its memory belong to root."""
    group = 12_345
    as_group = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_CORE, (1, 1)); os.setgid(int(sys.argv[1])); "
    )
    start = (sys.executable, "-c", f"{as_group}os.execv(sys.argv[2], sys.argv[2:])", group)
    assert changed(programs, "allow", "www", "--uid", "33", "--call", "mail")[0] == 0
    broker = programs.start(*start, DRAGOMAN, "serve", "tcp://127.0.0.1:0", "--data", "data")
    broker.prints("is listening")
    process = Path(f"/proc/{broker.pid}")

    def facts() -> tuple[int, str]:
        [limit] = [line for line in (process / "limits").read_text().splitlines() if line.startswith("Max core")]
        return (process / "mem").stat().st_gid, limit.split()[4]

    assert facts() == (group, "1")
    assert programs.run("keys", "new", "--broker", "--data", "data").ends() == 0
    exit_code, told = changed(programs, "allow", "www", "--uid", "34")
    assert (exit_code, "has accepted the change" in told) == (0, True)
    assert facts() == (0, "0")


def test_a_worker_with_a_certificate_becomes_a_principal_of_the_first_table(programs: Programs, tmp_path: Path) -> None:
    """Without a table it was `anyone`. The reload that finds one closes the connection, and the worker comes again."""
    authority = Authority(tmp_path / "ca")
    ops = authority.issue("ops", "subjectAltName=DNS:ops.example")
    url = f"native+tls://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}"
    broker = programs.dragoman("serve", url, "--data", "data")
    port = broker.prints(r"tls://127.0.0.1:(\d+)")
    address = f"tls://127.0.0.1:{port}?ca={authority.cert}&{ops.options}"
    programs.dragoman("worker", "--exec", "cat", "--service", "echo", "--connect", address)
    broker.prints("worker joined")
    code, told = changed(programs, "allow", "ops", "--tls-name", "ops.example", "--call", "*", "--work", "*")
    assert code == 0
    assert "1 connection was closed" in told
    broker.prints("worker joined", 2)
    call = programs.run("call", "echo", "x", "--connect", address)
    assert (call.ends(), call.out) == (0, "x")

"""Commands that prove who they are: exit codes, and secrets that reach neither output nor child processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from case_tables import check_every_row
from dragoman.carriers.curve_keys import new_key_pair
from programs import DRAGOMAN, Program, Programs, until
from token_server import TokenServer

TOKEN = "dgm_" + "t0ken" * 8
SERVER = new_key_pair(bytes([7]) * 32)[0].hex()
HANDLERS = """
import os

def variable(payload: bytes) -> bytes:
    return os.environ.get("DRAGOMAN_TOKEN", "none").encode()
"""


@pytest.fixture
def broker(programs: Programs) -> str:
    """The address of a broker that requires no proof."""
    started = programs.start(DRAGOMAN, "serve", "http://127.0.0.1:0", "--data", "memory")
    return started.prints(r"(http://127\.0\.0\.1:\d+) +both")


def test_command_with_a_refused_token_ends_with_3(programs: Programs) -> None:
    with TokenServer("dgm_other") as server:
        url = f"http://127.0.0.1:{server.port}"
        rows: tuple[tuple[str, ...], ...] = (
            ("call", "default", "hello"),
            ("jobs",),
            ("worker", "--exec", "cat"),
        )

        def check(*words: str) -> None:
            refused = programs.dragoman(*words, "--connect", url, DRAGOMAN_TOKEN=TOKEN)
            assert refused.ends() == 3, refused.err
            assert "does not accept this token (DRAGOMAN_TOKEN): it is unknown, expired or revoked" in refused.err
            bare = programs.dragoman(*words, "--connect", url)
            assert bare.ends() == 3, bare.err
            assert "requires a token: set token_file" in bare.err
            assert "t0ken" not in refused.err + refused.out + bare.err + bare.out

        check_every_row(check, rows)


def test_command_uses_the_token_of_a_file(programs: Programs) -> None:
    file = programs.folder / "token"
    file.touch(0o600)
    file.write_text(TOKEN)
    with TokenServer(TOKEN) as server:
        url = f"http://127.0.0.1:{server.port}"
        done = programs.dragoman("call", "default", "hello", "--connect", f"{url}?token_file={file}")
        assert (done.ends(), done.out) == (0, "HELLO"), done.err
        done = programs.dragoman("call", "default", "hello", DRAGOMAN_URL=url, DRAGOMAN_TOKEN_FILE=str(file))
        assert (done.ends(), done.out) == (0, "HELLO"), done.err


def test_wrong_credential_is_a_usage_error_without_the_secret(programs: Programs) -> None:
    rows: tuple[tuple[str, dict[str, str], str], ...] = (
        (f"https://broker:1?token={TOKEN}", {}, "--connect: bad address 'https://broker:1?***': an address must not"),
        (f"https://me:{TOKEN}@broker:1", {}, "an address has no user or password"),
        (f"tcp://broker:1?server_key={SERVER}", {}, "make one with `dragoman keys new NAME`"),
        (f"tcp://broker:1?server_key={SERVER}&key=none", {}, "make one with `dragoman keys new`"),
        ("tcp://broker:1", {"DRAGOMAN_KEY": "none"}, "DRAGOMAN_KEY: the broker's public key is missing"),
        ("https://broker:1", {"DRAGOMAN_TOKEN": f"{TOKEN} x"}, "DRAGOMAN_TOKEN: no token: it has 1 to 255"),
    )

    def check(url: str, environment: dict[str, str], problem: str) -> None:
        for words in (("jobs",), ("worker", "--exec", "cat")):
            wrong = programs.dragoman(*words, "--connect", url, **environment)
            assert wrong.ends() == 2, wrong.err
            assert problem in wrong.err
            assert "t0ken" not in wrong.err

    check_every_row(check, rows)


def test_key_of_the_user_is_found_by_its_name(programs: Programs) -> None:
    """The port belongs to no broker with keys, so the handshake fails; the key was read."""
    made = programs.dragoman("keys", "new", "gpu-1", XDG_CONFIG_HOME=str(programs.folder / "config"))
    assert made.ends() == 0
    started = programs.start(DRAGOMAN, "serve", "tcp://127.0.0.1:0", "--data", "memory")
    address = started.prints(r"(tcp://127\.0\.0\.1:\d+) +both")
    refused = programs.dragoman(
        "jobs",
        "--connect",
        f"{address}?server_key={SERVER}&key=gpu-1",
        XDG_CONFIG_HOME=str(programs.folder / "config"),
    )
    assert refused.ends() == 3
    assert "uses no keys at this address: remove key and server_key" in refused.err


def test_token_reaches_neither_programs_nor_child_processes_of_a_worker(
    programs: Programs, broker: str, tmp_path: Path
) -> None:
    """R157."""
    (tmp_path / "spied.py").write_text(HANDLERS)
    listed = programs.dragoman("worker", "--exec", "env", "--service", "env", "--connect", broker, DRAGOMAN_TOKEN=TOKEN)
    ran = programs.dragoman(
        "worker", "spied:variable", "--service", "spy", "--processes", "1", "--connect", broker, DRAGOMAN_TOKEN=TOKEN
    )
    for each in (listed, ran):
        each.prints("connected to")
    of_program = programs.dragoman("call", "env", "--connect", broker)
    of_function = programs.dragoman("call", "spy", "--connect", broker)
    assert (of_program.ends(), of_function.ends()) == (0, 0), of_program.err + of_function.err
    assert "PATH=" in of_program.out
    assert "DRAGOMAN_TOKEN" not in of_program.out
    assert of_function.out == "none"
    for pid in descendants(ran):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    assert "t0ken" not in listed.err + ran.err


def descendants(program: Program) -> list[int]:
    """The processes that a worker has started: the fork server, and its child."""

    def find() -> list[int]:
        found = program.children()
        for pid in list(found):
            for each in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(word) for word in each.read_text().split()]
        return found

    return until(lambda: (len(found := find()) >= 2 and found) or [], "the child process runs")


def test_worker_restarted_by_reload_keeps_its_token(programs: Programs, tmp_path: Path) -> None:
    """The token is hidden from child processes only: --reload replaces the worker's process by a new one."""
    module = tmp_path / "changing.py"
    module.write_text("def work(payload: bytes) -> bytes:\n    return b'1'\n")
    with TokenServer(TOKEN) as server:
        worker = programs.dragoman(
            "worker", "changing:work", "--reload", "--connect", f"http://127.0.0.1:{server.port}", DRAGOMAN_TOKEN=TOKEN
        )
        worker.prints("connected to")
        assert server.worker_waits.wait(15)
        server.worker_may_go_on.set()
        module.write_text("def work(payload: bytes) -> bytes:\n    return b'22'\n")
        os.utime(module, (1, 1))
        worker.prints("restarting")
        worker.prints("connected to", times=2)

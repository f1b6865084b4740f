"""The commands for Powerhose: the broker connects to workers, and workers stop when their master is gone."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from programs import DRAGOMAN, HANDLERS, PATIENCE, Program, Programs, until

MIB = 1 << 20
LISTEN = "powerhose+tcp://127.0.0.1:0?frontend=0"


@pytest.fixture(autouse=True)
def handlers(tmp_path: Path, programs: Programs) -> None:
    """A folder with the handlers module, in which workers are started. Their sockets are removed with the test, even
    after SIGKILL."""
    (tmp_path / "handlers.py").write_text(HANDLERS.read_text())
    programs.environment["TMPDIR"] = str(tmp_path)


class Addresses:
    """A broker and its addresses."""

    def __init__(self, programs: Programs, url: str = LISTEN, *flags: object) -> None:
        self.broker = programs.start(DRAGOMAN, "serve", url, "--data", "memory", "--strict", *flags)
        self.workers = f"powerhose+{self.broker.prints(r'((?:tcp|ipc)://[^ ]+) +workers')}"
        self.callers = f"powerhose+{self.broker.prints(r'((?:tcp|ipc)://[^ ]+) +callers')}"

    def joined(self) -> int:
        return self.broker.err.count("worker joined")


def start_worker(programs: Programs, at: Addresses, *words: object, options: str = "", count: int = 1) -> Program:
    """Start a worker, and wait until it has joined."""
    known = at.joined()
    worker = programs.dragoman("worker", "--concurrency", 1, *words, "--connect", at.workers + options)
    until(lambda: at.joined() >= known + count or worker.process.poll() is not None, "it has joined")
    assert worker.process.poll() is None, worker.err
    return worker


def start_call(programs: Programs, at: Addresses, data: str, *words: object) -> Program:
    return programs.dragoman("call", "default", data, *words, "--connect", at.callers)


def done(program: Program) -> tuple[int, str]:
    return program.ends(), program.out


def endpoint_of(worker: Program) -> str:
    return worker.prints(r"listening for masters at (\S+)")


def is_clean(program: Program) -> bool:
    return not re.search("Traceback|Exception ignored|Warning:", program.err)


# -------------------------------------------------------------------- work


@pytest.mark.parametrize("kind", ["tcp", "tcp6", "ipc"])
def test_what_serve_suggests_to_try_works_as_printed(programs: Programs, tmp_path: Path, kind: str) -> None:
    places = {
        "tcp": LISTEN,
        "tcp6": "powerhose+tcp://[::1]:0?frontend=0",
        "ipc": f"powerhose+ipc://{tmp_path}/m.ipc?frontend=ipc%3A%2F%2F{tmp_path}%2Ff.ipc",
    }
    at = Addresses(programs, places[kind])
    at.broker.prints(r"dragoman call .*\n")
    suggested = re.findall(r"^  \S*dragoman ((?:worker|call) .*)$", at.broker.out, re.MULTILINE)
    assert [line.split()[0] for line in suggested] == ["worker", "call"]
    worker, caller = (programs.start("sh", "-c", f"exec {DRAGOMAN} {line}") for line in suggested)
    assert done(caller) == (0, "HELLO"), caller.err
    assert worker.process.poll() is None


def test_a_function_serves_and_the_listeners_url_may_be_pasted_whole(programs: Programs, tmp_path: Path) -> None:
    url = f"powerhose+ipc://{tmp_path}/m.ipc?frontend=ipc%3A%2F%2F{tmp_path}%2Ff.ipc&worker_expire=60&wake_timeout=30"
    at = Addresses(programs, url)
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", url)
    for given in (b"hello", b"", b"\x00:::\xff", b"m" * (16 * MIB)):
        made = programs.run("call", "default", "-", "--connect", url, given=given)
        assert (made.ends(), made.out_bytes, made.err) == (0, given.upper(), "")
    assert is_clean(worker)
    assert "bad message" not in at.broker.err


def test_three_jobs_run_at_once_in_three_workers(programs: Programs) -> None:
    at = Addresses(programs)
    start_worker(programs, at, "handlers:meets", "--concurrency", 3, count=3)
    callers = [start_call(programs, at, "3") for _ in range(3)]
    assert [done(each) for each in callers] == [(0, "met 3")] * 3


@pytest.mark.parametrize("options", ["endpoint=tcp://127.0.0.1:0", "endpoint=tcp://*:*", "endpoint=ipc://relative.ipc"])
def test_the_endpoint_may_be_chosen(programs: Programs, tmp_path: Path, options: str) -> None:
    at = Addresses(programs, f"{LISTEN}&base={tmp_path}")
    worker = start_worker(programs, at, "handlers:upper", options=f"?{options}")
    assert re.fullmatch(rf"tcp://127\.0\.0\.1:\d+|ipc://{tmp_path}/relative\.ipc", endpoint_of(worker))
    assert done(start_call(programs, at, "hello")) == (0, "HELLO")


def test_a_master_off_loopback_is_told_the_address_that_reaches_it(programs: Programs) -> None:
    at = Addresses(programs, "powerhose+tcp://0.0.0.0:0?frontend=0&insecure=true")
    worker = start_worker(programs, at, "handlers:upper")
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", endpoint_of(worker))
    assert done(start_call(programs, at, "hello")) == (0, "HELLO")


def test_a_handler_that_raises_leaves_its_job_to_another_worker(programs: Programs) -> None:
    at = Addresses(programs)
    bad = start_worker(programs, at, "handlers:always_raises")
    start_worker(programs, at, "handlers:upper")
    assert done(start_call(programs, at, "hello")) == (0, "HELLO")
    bad.prints("ValueError: this payload is bad")
    until(lambda: at.joined() == 3, "the one that failed is back at once, not after ping_every")


def test_where_every_handler_raises_the_caller_is_told_lost(programs: Programs) -> None:
    """Never a made-up result; and no attempt waits for the next regular PING."""
    at = Addresses(programs)
    worker = start_worker(programs, at, "handlers:always_raises")
    caller = start_call(programs, at, "hello")
    assert caller.ends() == 1
    assert "lost" in caller.err
    assert caller.out == ""
    assert worker.err.count("a job of default failed: ") == 3
    until(lambda: at.joined() == 4, "it is back")


def test_a_handler_that_ends_its_process_costs_its_attempts_only(programs: Programs) -> None:
    at = Addresses(programs, f"{LISTEN}&attempts=1")
    start_worker(programs, at, "handlers:dies")
    assert start_call(programs, at, "die").ends() == 1
    assert done(start_call(programs, at, "again")) == (0, "alive")


# -------------------------------------------------------------------- the wrong place


def test_call_at_the_place_of_workers_says_so(programs: Programs) -> None:
    at = Addresses(programs)
    program = programs.run("call", "default", "x", "--connect", at.workers)
    assert program.ends() == 3
    assert "speaks Powerhose over ZMTP (a ROUTER socket, for workers); callers connect to the frontend" in program.err


def test_a_worker_at_the_place_of_callers_is_told_so(programs: Programs) -> None:
    at = Addresses(programs, f"{LISTEN}&queue_timeout=0.1")
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", at.callers)
    worker.prints("is this where callers connect")
    worker.prints("a ROUTER socket, for callers.; workers connect to the backend")


def test_a_worker_whose_endpoint_is_not_allowed_ends_with_1_and_says_why(programs: Programs, tmp_path: Path) -> None:
    """R51."""
    (tmp_path / "inside").mkdir()
    at = Addresses(programs, f"{LISTEN}&base={tmp_path}/inside")
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:upper", "--connect", f"{at.workers}?endpoint=ipc://outside.ipc"
    )
    assert worker.ends() == 1
    assert f"it may not connect to ipc://{tmp_path}/outside.ipc" in worker.err
    assert is_clean(worker)
    assert not (tmp_path / "outside.ipc").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("endpoint=inproc://x", "unknown transport 'inproc'"),
        ("endpoint=tcp://127.0.0.1", "the port is missing"),
        ("endpoint=ipc://@abstract", "abstract sockets are not supported"),
        ("endpoint=ipc:///nowhere/w.ipc", "No such file or directory"),
        ("ping_evry=1", "did you mean 'ping_every'"),
        ("ping_attempts=0", "must be 1 or more"),
    ],
)
def test_options_that_cannot_be_used_end_with_2(programs: Programs, options: str, complaint: str) -> None:
    url = f"powerhose+tcp://127.0.0.1:1?{options}"
    worker = programs.run("worker", "--concurrency", 1, "--exec", "cat", "--connect", url)
    assert worker.ends() == 2
    assert complaint in worker.err
    assert is_clean(worker)


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_an_endpoint_that_is_taken_ends_with_2_and_says_so(programs: Programs, tmp_path: Path, kind: str) -> None:
    at = Addresses(programs, f"{LISTEN}&base={tmp_path}")
    asked = "tcp://127.0.0.1:0" if kind == "tcp" else f"ipc://{tmp_path}/w.ipc"
    endpoint = endpoint_of(start_worker(programs, at, "handlers:upper", options=f"?endpoint={asked}"))
    second = programs.run(
        "worker", "--concurrency", 1, "--exec", "cat", "--connect", f"{at.workers}?endpoint={endpoint}"
    )
    assert second.ends() == 2
    assert "is taken: another program listens there; each worker needs its own endpoint" in second.err
    assert is_clean(second)
    assert done(start_call(programs, at, "hello")) == (0, "HELLO")


def test_two_workers_cannot_share_an_endpoint_and_leave_nothing_behind(programs: Programs, tmp_path: Path) -> None:
    url = f"powerhose+tcp://127.0.0.1:1?endpoint=ipc://{tmp_path}/w.ipc"
    worker = programs.run("worker", "--concurrency", 1, "--exec", "cat", "--concurrency", 2, "--connect", url)
    assert worker.ends() == 2
    assert is_clean(worker)
    assert not (tmp_path / "w.ipc").exists()


# -------------------------------------------------------------------- the master goes and comes


@pytest.mark.parametrize("kind", ["tcp", "ipc", "name"])
def test_a_master_that_stays_away_ends_the_worker_with_3(programs: Programs, tmp_path: Path, kind: str) -> None:
    """The Powerhose document: it commits suicide if it's unable to reach the master."""
    place = {"tcp": "tcp://127.0.0.1:1", "ipc": f"ipc://{tmp_path}/m.ipc", "name": "tcp://no-such-host.invalid:1"}[kind]
    url = f"powerhose+{place}?ping_every=0.2&ping_attempts=3"
    worker = programs.dragoman("worker", "--concurrency", 1, "--exec", "cat", "--connect", url)
    assert worker.ends() == 3
    if kind != "name":
        assert "the master has not replied to a PING for 3 times 0.2 s" in worker.err
        assert not os.path.exists(endpoint_of(worker).removeprefix("ipc://"))
    assert is_clean(worker)


def test_a_master_that_comes_back_in_time_finds_its_workers_again(programs: Programs) -> None:
    """A restart is over before ping_attempts are: they register by their next PING."""
    at = Addresses(programs)
    worker = start_worker(programs, at, "handlers:upper", "--concurrency", 2, options="?ping_every=0.5", count=2)
    port = at.callers.rpartition(":")[2]
    for turn in ("one", "two"):
        at.broker.kill()
        at = Addresses(programs, f"{at.workers}?frontend={port}")
        assert done(start_call(programs, at, turn)) == (0, turn.upper())
        until(lambda at=at: at.joined() == 2, "both are back")  # type: ignore[misc]
    assert worker.process.poll() is None


def test_a_master_that_dies_for_good_ends_its_workers(programs: Programs) -> None:
    at = Addresses(programs)
    worker = start_worker(
        programs, at, "handlers:upper", "--concurrency", 2, options="?ping_every=0.2&ping_attempts=4", count=2
    )
    at.broker.kill()
    assert worker.ends() == 3
    assert is_clean(worker)


def test_a_result_whose_master_has_died_is_dropped_and_the_next_master_is_served(programs: Programs) -> None:
    at = Addresses(programs)
    worker = start_worker(programs, at, "handlers:slow", options="?ping_every=0.3&ping_attempts=50")
    start_call(programs, at, "1.0 old")
    worker.prints("working 1.0 old")
    at.broker.kill()
    at = Addresses(programs, f"{at.workers}?frontend=0")
    assert done(start_call(programs, at, "0 new", "--timeout", 10)) == (0, "slept 0 new")
    assert worker.out.count("working") == 2


# -------------------------------------------------------------------- signals


def test_an_idle_worker_says_remove_on_sigterm_and_leaves_nothing_behind(programs: Programs) -> None:
    """It does not wait for its next PING."""
    at = Addresses(programs, f"{LISTEN}&worker_expire=180")
    worker = start_worker(programs, at, "handlers:upper", "--concurrency", 2, options="?ping_every=60", count=2)
    path = endpoint_of(worker).removeprefix("ipc://")
    assert os.path.exists(path)
    worker.terminate()
    assert worker.ends() == 0
    assert not os.path.exists(path)
    until(lambda: at.broker.err.count("its worker sent REMOVE") == 2, "both have said so")
    assert is_clean(worker)


def test_a_job_in_hand_on_sigterm_is_done_and_no_other_is_taken(programs: Programs) -> None:
    """R58."""
    at = Addresses(programs, f"{LISTEN}&queue_timeout=0.3")
    worker = start_worker(programs, at, "handlers:slow")
    busy = start_call(programs, at, "1.0")
    worker.prints("working")
    worker.terminate()
    worker.prints("stopping when the running jobs have ended")
    assert start_call(programs, at, "0").ends() == 4
    assert done(busy) == (0, "slept 1.0")
    assert worker.ends() == 0
    assert worker.out.count("working") == 1
    assert is_clean(worker)


def test_a_large_result_in_hand_on_sigterm_arrives_whole(programs: Programs) -> None:
    at = Addresses(programs)
    worker = start_worker(programs, at, "handlers:large")
    caller = start_call(programs, at, str(48 * MIB))
    worker.prints("working")
    worker.terminate()
    assert caller.ends() == 0, caller.err
    assert len(caller.out_bytes) == 48 * MIB
    assert worker.ends() == 0


@pytest.mark.parametrize("words", [("handlers:slow",), ("--exec", "sleep 60")])
def test_a_second_signal_stops_a_busy_worker_at_once(programs: Programs, words: tuple[str, ...]) -> None:
    at = Addresses(programs)
    worker = start_worker(programs, at, *words)
    path = endpoint_of(worker).removeprefix("ipc://")
    caller = start_call(programs, at, "60")
    until_it_works(worker)
    worker.terminate()
    worker.prints("stopping")
    worker.terminate()
    assert worker.ends() == 0
    assert not os.path.exists(path)
    assert is_clean(worker)
    caller.kill()


def test_a_signal_ends_a_worker_whose_master_never_came(programs: Programs, tmp_path: Path) -> None:
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:upper", "--connect", f"powerhose+ipc://{tmp_path}/m.ipc"
    )
    worker.prints("no broker answers")
    worker.terminate()
    assert worker.ends() == 0
    assert is_clean(worker)


# -------------------------------------------------------------------- with a stranger's master


class Master:
    """A master from the Powerhose document, on libzmq: a REP for registration, a REQ to an endpoint that a PING
    named."""

    def __init__(self, where: str, is_mute: bool = False) -> None:
        self.words: list[str] = []
        self._context = zmq.Context()
        self._is_mute = is_mute
        self._over = threading.Event()
        self._asking: dict[str, zmq.Socket[bytes]] = {}
        self._rep = self._context.socket(zmq.ROUTER if is_mute else zmq.REP)
        self._rep.bind(where)
        self.where = self._rep.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while not self._over.is_set():
            if not self._rep.poll(20):
                continue
            word, _, endpoint = self._rep.recv_multipart()[-1].decode().partition(":::")
            self.words.append(f"{word} {endpoint}")
            if not self._is_mute:
                self._rep.send({"PING": b"PONG", "REMOVE": b"REMOVED"}[word])

    def endpoint(self) -> str:
        """Return the endpoint of the first worker that has registered."""
        return until(lambda: [word for word in self.words if word.startswith("PING ")], "a PING")[0][5:]

    def say(self, endpoint: str, word: bytes) -> None:
        if endpoint not in self._asking:
            self._asking[endpoint] = self._context.socket(zmq.REQ)
            self._asking[endpoint].rcvtimeo = int(PATIENCE * 1000)
            self._asking[endpoint].connect(endpoint)
        self._asking[endpoint].send(word)

    def receive(self, endpoint: str) -> bytes:
        return self._asking[endpoint].recv()

    def ask(self, endpoint: str, word: bytes) -> bytes:
        self.say(endpoint, word)
        return self.receive(endpoint)

    def forget(self, endpoint: str) -> None:
        self._asking.pop(endpoint).close(linger=0)

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        for each in (self._rep, *self._asking.values()):
            each.close(linger=0)
        self._context.term()


@pytest.fixture
def master() -> Iterator[Callable[..., Master]]:
    made: list[Master] = []

    def start(where: str = "tcp://127.0.0.1:*", **options: bool) -> Master:
        made.append(Master(where, **options))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_our_worker_serves_a_literal_master(
    programs: Programs, tmp_path: Path, master: Callable[..., Master], kind: str
) -> None:
    there = master("tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/m.ipc")
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", f"powerhose+{there.where}")
    endpoint = there.endpoint()
    assert there.ask(endpoint, b"WAKE") == b"GIVE"
    assert there.ask(endpoint, b"JOB:::a1:::some:::data") == b"JOBRES:::a1:::SOME:::DATA"
    assert there.ask(endpoint, b"JOB:::a2:::") == b"JOBRES:::a2:::"
    assert there.ask(endpoint, b"NONSENSE") == b"ERROR"
    assert there.ask(endpoint, b"WAKE") == b"GIVE"
    worker.terminate()
    assert worker.ends() == 0
    assert there.words[-1] == f"REMOVE {endpoint}"
    assert is_clean(worker)


def test_pings_go_on_while_a_job_runs_and_another_master_is_refused(
    programs: Programs, master: Callable[..., Master]
) -> None:
    first, second = master(), master()
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--connect", f"powerhose+{first.where}?ping_every=0.1"
    )
    endpoint = first.endpoint()
    assert first.ask(endpoint, b"WAKE") == b"GIVE"
    first.say(endpoint, b"JOB:::1:::1.0")
    worker.prints("working")
    assert second.ask(endpoint, b"WAKE") == b"ERROR"
    before = len(first.words)
    until(lambda: len(first.words) >= before + 4, "pings go on")
    assert first.receive(endpoint) == b"JOBRES:::1:::slept 1.0"
    assert second.ask(endpoint, b"WAKE") == b"GIVE"


def test_a_master_that_hangs_up_loses_the_result_and_the_worker_lives_on(
    programs: Programs, master: Callable[..., Master]
) -> None:
    there = master()
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--connect", f"powerhose+{there.where}?ping_every=0.1"
    )
    endpoint = there.endpoint()
    there.say(endpoint, b"JOB:::1:::0.5 first")
    worker.prints("working 0.5 first")
    there.forget(endpoint)
    until(lambda: there.ask(endpoint, b"WAKE") == b"GIVE", "it is free again")
    assert there.ask(endpoint, b"JOB:::2:::0 second") == b"JOBRES:::2:::slept 0 second"


def test_strangers_at_its_endpoint_do_not_keep_a_worker_from_its_master(programs: Programs) -> None:
    """Some speak another language, some say nothing, and there are too many of them."""
    at = Addresses(programs)
    worker = start_worker(programs, at, "handlers:upper", options="?endpoint=tcp://127.0.0.1:0")
    port = int(endpoint_of(worker).rpartition(":")[2])
    with ExitStack() as strangers:
        for number in range(120):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
            if number < 5:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        worker.prints("is not a master: the peer that connected does not speak ZMTP", times=5)
        worker.prints("connection rejected: 100 connections to the endpoint are open")
        assert done(start_call(programs, at, "hello")) == (0, "HELLO")
    assert done(start_call(programs, at, "again")) == (0, "AGAIN")
    assert is_clean(worker)


def test_a_failure_breaks_the_connection_of_a_literal_master(programs: Programs, master: Callable[..., Master]) -> None:
    """It sees no result, and its worker registers again."""
    there = master()
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:always_raises", "--connect", f"powerhose+{there.where}"
    )
    endpoint = there.endpoint()
    there.say(endpoint, b"JOB:::1:::x")
    worker.prints("connection of the master at .* closed: ")
    until(lambda: len(there.words) >= 2, "it has registered again, well before ping_every")
    there.forget(endpoint)
    assert there.ask(endpoint, b"WAKE") == b"GIVE"


def test_a_master_that_is_mute_hears_remove_before_the_worker_goes(
    programs: Programs, master: Callable[..., Master]
) -> None:
    there = master(is_mute=True)
    url = f"powerhose+{there.where}?ping_every=0.2&ping_attempts=3"
    worker = programs.dragoman("worker", "--concurrency", 1, "handlers:upper", "--connect", url)
    assert worker.ends() == 3
    endpoint = endpoint_of(worker)
    until(lambda: there.words[-1:] == [f"REMOVE {endpoint}"], "it has said so")
    assert there.words == [f"PING {endpoint}"] * 3 + [f"REMOVE {endpoint}"]
    assert worker.err.count("reconnecting: no PONG within 0.2 s") == 2


def test_a_job_whose_master_has_hung_up_does_not_keep_a_stopping_worker(
    programs: Programs, master: Callable[..., Master]
) -> None:
    for words in (("handlers:slow",), ("--exec", "sleep 60")):
        there = master()
        worker = programs.dragoman("worker", "--concurrency", 1, *words, "--connect", f"powerhose+{there.where}")
        endpoint = there.endpoint()
        there.say(endpoint, b"JOB:::1:::60")
        until_it_works(worker)
        worker.terminate()
        worker.prints("stopping when the running jobs have ended")
        there.forget(endpoint)
        assert worker.ends() == 0
        assert is_clean(worker), worker.err


def test_a_worker_with_nobody_to_answer_to_leaves_without_the_jobs_of_the_others(
    programs: Programs, master: Callable[..., Master]
) -> None:
    """They share the processes that do the jobs: one of them must not stop these for all."""
    there = master()
    worker = programs.dragoman(
        "worker", "--concurrency", 1, "handlers:slow", "--concurrency", 2, "--connect", f"powerhose+{there.where}"
    )
    first, second = until(lambda: len(set(there.words)) == 2 and sorted(set(there.words)), "both are here")
    lost, kept = first.removeprefix("PING "), second.removeprefix("PING ")
    there.say(lost, b"JOB:::1:::60")
    there.say(kept, b"JOB:::2:::1.5")
    worker.prints("working", times=2)
    there.forget(lost)
    worker.terminate()
    assert there.receive(kept) == b"JOBRES:::2:::slept 1.5"
    assert worker.ends() == 0
    assert is_clean(worker)


def until_it_works(worker: Program) -> None:
    """Wait until `handlers:slow` or `sleep` runs."""

    def look() -> bool:
        found = worker.out
        for pid in worker.children():
            try:
                found += Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:  # it has gone
                continue
        return "working" in found or found.startswith("sleep")

    until(look, "it works")

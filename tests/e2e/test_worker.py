"""Workers in Python: real processes, one broker for all, the URL of every dialect."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

from dragoman import AsyncClient, Client, JobError, JobFailed, JobLost, JobTimeout, NoSuchService
from programs import PATIENCE, Program, Programs, until

SERVICES = Path(__file__).parents[1] / "services.py"
LEASE = 0.6


class Setup:
    """A broker, and callers that are threads of this process."""

    def __init__(self, programs: Programs, native: str, *others: str) -> None:
        self.native = native
        self.programs = programs
        self.broker = programs.dragoman("serve", native, *others, "--data", "memory", "--strict")
        self.broker.prints("is listening")
        self.client = Client(native)
        self._threads = ThreadPoolExecutor(64)

    def close(self) -> None:
        self.client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def start(self, service: str, payload: bytes = b"", timeout: float | None = None) -> Future[bytes]:
        return self._threads.submit(self.ask, service, payload, timeout)

    def ask(self, service: str, payload: bytes = b"", timeout: float | None = None) -> bytes:
        """Return a job's result. The call is repeated until a worker offers the service."""
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                return bytes(self.client.call(service, payload, timeout=timeout))
            except NoSuchService:
                assert time.monotonic() < patience, f"nobody offers {service}"
                time.sleep(0.01)

    @property
    def came(self) -> int:
        """Return the number of workers that have joined."""
        return len(re.findall("worker (?:joined|registered)", self.broker.err))

    def is_left(self) -> bool:
        """Return whether all workers have left."""
        return self.came == len(re.findall("worker (?:left|dismissed)", self.broker.err))


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """A broker for native workers. Its second listener has short time-outs."""
    programs = Programs(tmp_path_factory.mktemp("setup"))
    setup = Setup(programs, f"ipc://{programs.folder}/n", hasty(programs.folder))
    yield setup
    setup.close()
    programs.end_all()


def hasty(folder: Path) -> str:
    return f"ipc://{folder}/h?lease={LEASE}&heartbeat=0.1"


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A listener for every dialect."""
    folder = tmp_path_factory.mktemp("listeners")
    (folder / "c").mkdir()
    return {
        "native": f"ipc://{folder}/n",
        "pingpong": f"pingpong+ipc://{folder}/p?service=upper",
        "powerhose": f"powerhose+ipc://{folder}/h?service=upper",
        "controller": f"controller+unix://{folder}/c?service=upper",
        "majordomo": f"majordomo+ipc://{folder}/d",
        "memodb": f"memodb+ipc://{folder}/m",
    }


@pytest.fixture(scope="module")
def tower(listeners: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """The broker of these listeners, for all workers of this module: MemoDB workers may reconnect for a while."""
    programs = Programs(tmp_path_factory.mktemp("tower"))
    tower = Setup(programs, *listeners.values())
    yield tower
    tower.close()
    programs.end_all()


Start = Callable[..., Program]


@pytest.fixture
def start(programs: Programs, setup: Setup) -> Iterator[Start]:
    """Starts workers of this broker, ends them with the test, and waits until they have left."""
    (programs.folder / "services.py").write_text(SERVICES.read_text())

    def start(*words: object, target: str = "services:worker", url: str = setup.native) -> Program:
        came = setup.came
        worker = programs.dragoman("worker", target, *words, "--connect", url)
        if url.startswith("ipc://"):
            until(lambda: setup.came > came or worker.process.poll() is not None, "the broker knows it")
        return worker

    yield start
    programs.end_all()
    until(setup.is_left, "the test's workers have gone")


# -------------------------------------------------------------------- services


def test_what_a_handler_is_told_and_what_it_answers(start: Start, setup: Setup) -> None:
    start("--processes", 1)
    assert setup.ask("upper", b"hello") == b"HELLO"
    told = setup.ask("add", b"[1, 2]", timeout=30).decode()
    assert re.fullmatch(r'{"sum":3,"service":"add","id":"[0-9a-f]{32}","try":1,"left":(29|30)\.\d+}', told), told
    with pytest.raises(JobFailed, match="the payload is not valid json, the codec of 'add'") as refused:
        setup.ask("add", b"no json")
    assert refused.value.remote_type == "ValueError"
    with pytest.raises(JobFailed, match="the handler's result, a set, cannot be encoded as json") as unwritten:
        setup.ask("a set", b"1")
    assert unwritten.value.remote_type == "TypeError"


def test_an_exception_reaches_the_caller_with_type_message_and_traceback(start: Start, setup: Setup) -> None:
    start("--processes", 1)
    with pytest.raises(JobFailed) as failed:
        setup.ask("raises", b"this")
    problem = failed.value
    assert (problem.remote_type, problem.remote_message) == ("services.Trouble", "cannot do this")
    assert problem.remote_traceback.startswith("Traceback (most recent call last):\n")
    assert 'raise Trouble(f"cannot do {payload.decode()}")' in problem.remote_traceback
    assert "dragoman" not in problem.remote_traceback


def test_python_calls_are_made_where_they_are_offered(start: Start, setup: Setup) -> None:
    start("--processes", 1, "--service", "python")
    assert pickle.loads(setup.ask("python", pickle.dumps((divmod, (7, 2), {})))) == (3, 1)
    with pytest.raises(JobFailed) as failed:
        setup.ask("python", pickle.dumps((divmod, (7, 0), {})))
    assert failed.value.remote_type == "ZeroDivisionError"
    setup.broker.prints(r'"services": \["python"\]')  # and nothing else


def test_async_handlers_run_together_and_a_stubborn_one_is_cancelled(start: Start, setup: Setup) -> None:
    worker = start("--cancel-grace", 0.05, target="services:naps")
    callers = [setup.start("meet", b"40") for _ in range(40)]
    assert [each.result(PATIENCE) for each in callers] == [b"false"] * 40
    run_out_of_time(setup, worker, "sleepless", b"0")
    worker.prints("put to bed, cancelled: True")


def run_out_of_time(setup: Setup, worker: Program, service: str, payload: bytes = b"") -> None:
    """Call until a call times out while its handler runs.

    The worker measures the time, too: on a busy machine it may report the end of the handler before the broker checks
    its clock. Then the job is called again; also if its time was over before the handler started.
    """

    def is_timed_out() -> bool:
        began = worker.out.count(service)
        try:
            early = setup.ask(service, payload, timeout=0.3)
        except JobTimeout:
            return worker.out.count(service) > began
        except JobFailed as failed:
            early = f"{failed.remote_type}: {failed.remote_message}".encode()
        assert early in (b"too late", b"TimeoutError: stopped after 0.3 s, the attempt's time-out")
        return False

    until(is_timed_out, f"a call of {service} times out while it runs", patience=4 * PATIENCE)


def test_threads_run_functions_that_no_child_could_find(start: Start, setup: Setup, programs: Programs) -> None:
    script = programs.folder / "local.py"
    script.write_text(
        "from dragoman import Worker\n"
        "import threading, sys\n"
        "def main():\n"
        "    meeting = threading.Barrier(3)\n"
        "    worker = Worker(sys.argv[1], threads=int(sys.argv[2]) or None)\n"
        "    worker.service('meet')(lambda payload: str(meeting.wait(10)))\n"
        "    worker.run()\n"
        "main()\n"
    )
    refused = programs.start(sys.executable, script, setup.native, 0)
    assert refused.ends() == 1
    assert "run jobs in threads (threads=4, --threads 4)" in refused.err
    programs.start(sys.executable, script, setup.native, 3)
    callers = [setup.start("meet") for _ in range(3)]
    assert sorted(each.result(PATIENCE) for each in callers) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("guard", ["", "if __name__ == '__main__':\n    "], ids=["bare", "guarded"])
def test_a_script_that_runs_its_worker_at_module_level(
    start: Start, setup: Setup, programs: Programs, guard: str
) -> None:
    script = programs.folder / "script.py"
    script.write_text(
        "import os, sys\n"
        "from dragoman import Worker\n"
        f"worker = Worker({setup.native!r}, processes=2)\n"
        "class Oops(Exception): pass\n"
        "@worker.service('own')\n"
        "def own(payload):\n"
        "    if payload == b'oops': raise Oops('as you like')\n"
        "    return str(os.getpid())\n"
        f"{guard}sys.exit(worker.run())\n"
    )
    program = programs.start(sys.executable, script)
    assert int(setup.ask("own")) != program.pid
    with pytest.raises(JobFailed) as failed:
        setup.ask("own", b"oops")
    assert failed.value.remote_type == "Oops"
    program.terminate()
    assert program.ends() == 0


# -------------------------------------------------------------------- children


def test_a_killed_child_costs_only_its_job(start: Start, setup: Setup, programs: Programs) -> None:
    worker = start("--processes", 2)
    other = setup.start("waits", b"go")
    worker.prints("working go")
    with pytest.raises(JobLost, match="the child process ended with exit code 7 during the job"):
        setup.ask("dies")
    victim = setup.start("stubborn")
    os.kill(int(worker.prints(r"stubborn (\d+)")), signal.SIGKILL)
    with pytest.raises(JobLost, match="the child process ended with signal SIGKILL during the job"):
        victim.result(PATIENCE)
    assert setup.ask("upper", b"next") == b"NEXT"
    (programs.folder / "go").touch()
    assert other.result(PATIENCE) == b"go"
    assert "reconnecting" not in worker.err


def test_a_child_is_replaced_after_max_jobs(start: Start, setup: Setup) -> None:
    start("--processes", 1, "--max-jobs", 2)
    pids = [setup.ask("pid") for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


def test_a_child_is_replaced_after_the_job_that_took_too_much_memory(start: Start, setup: Setup) -> None:
    worker = start("--processes", 1, "--max-memory", "200MiB")
    small, again = setup.ask("grows", b"1"), setup.ask("grows", b"1")
    large = setup.ask("grows", b"250")
    assert small == again == large != setup.ask("grows", b"1")
    worker.prints("child process [0-9]+ replaced: max_memory")


def test_a_killed_worker_takes_its_children_with_it(start: Start, setup: Setup) -> None:
    """A bug: a child that never looked up lived on, and kept the fork server alive."""
    worker = start("--processes", 1)
    asked = setup.start("stubborn")
    pid = worker.prints(r"stubborn (\d+)")
    server = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert server is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(JobLost):
        asked.result(PATIENCE)
    for each in (pid, server[1]):
        until(lambda each=each: not Path(f"/proc/{each}").exists(), "it has gone, too")


def test_a_job_whose_time_is_over_is_killed(start: Start, setup: Setup) -> None:
    worker = start("--processes", 1, "--cancel-grace", 0.1)
    run_out_of_time(setup, worker, "stubborn")
    pid = int(worker.prints(r"stubborn (\d+)"))
    until(lambda: not Path(f"/proc/{pid}").exists(), "it was killed")
    assert setup.ask("upper", b"next") == b"NEXT"


def test_a_handler_notices_that_it_was_cancelled(start: Start, setup: Setup) -> None:
    worker = start("--processes", 1, "--cancel-grace", 60)
    run_out_of_time(setup, worker, "notices")
    worker.prints("noticed")
    assert setup.ask("upper", b"next") == b"NEXT"


def test_parts_come_in_front_of_the_result_for_everybody_who_does_not_take_them(start: Start, setup: Setup) -> None:
    """They were lost without a word."""
    start("--processes", 1)
    whole = b"first second third"
    assert setup.ask("reports") == whole
    assert list(setup.client.map("reports", [b"", b""])) == [whole, whole]
    with setup.client.executor("reports") as pool:
        assert list(pool.map(None, [b""])) == [whole]
    assert setup.client.result(setup.client.enqueue("reports"), PATIENCE) == whole
    printed = setup.programs.dragoman("call", "reports", "", "--connect", setup.native)
    assert (printed.ends(), printed.out_bytes) == (0, whole)
    job = setup.client.submit("reports")
    assert (list(job.parts()), job.result()) == ([b"first ", b"second "], b"third")

    async def awaited() -> list[bytes]:
        async with AsyncClient(setup.native) as client:
            return [await client.call("reports"), *[each async for each in client.map("reports", [b""])]]

    assert asyncio.run(awaited()) == [whole, whole]


def test_progress_parts_and_cancel_on_the_wire(start: Start, setup: Setup) -> None:
    worker = start("--processes", 1, "--cancel-grace", 0.1)
    setup.ask("upper")
    with zmq.Context() as context, context.socket(zmq.DEALER) as caller:
        caller.linger = 0
        caller.rcvtimeo = int(PATIENCE * 1000)
        caller.connect(setup.native)
        caller.send_multipart([b"\x01\x01\x01", b"{}"])
        assert caller.recv_multipart()[0][:1] == b"\x02"
        first, second = b"first job's name", b"the second's one"
        caller.send_multipart([b"\x10\x00\xff\x00" + bytes(12) + b"reports", first, b""])
        heard = [caller.recv_multipart() for _ in range(4)]
        assert heard == [
            [b"\x22" + first + b"\x00\x01", b'{"done": 1, "total": 2, "note": "half way"}'],
            [b"\x23" + first + b"\x00\x01", b"first "],
            [b"\x23" + first + b"\x00\x01", b"second "],
            [b"\x20" + first, b"third"],
        ]
        caller.send_multipart([b"\x10\x00\xff\x00" + bytes(12) + b"stubborn", second, b""])
        pid = int(worker.prints(r"stubborn (\d+)"))
        caller.send_multipart([b"\x12", second])
        assert caller.recv_multipart()[0] == b"\x21\x04" + second
    until(lambda: not Path(f"/proc/{pid}").exists(), "it was killed")
    assert setup.ask("upper", b"next") == b"NEXT"


# -------------------------------------------------------------------- the life of a worker


@pytest.mark.parametrize("how", [("--processes", 1), ("--threads", 1)], ids=["process", "thread"])
def test_heartbeats_go_on_while_a_handler_holds_the_interpreter(
    start: Start, setup: Setup, how: tuple[object, ...]
) -> None:
    worker = start(*how, url=hasty(Path(setup.native.removeprefix("ipc://")).parent))
    assert setup.ask("spins", str(3 * LEASE).encode()) == b"span"
    assert "reconnecting" not in worker.err
    assert "ended" not in worker.err


def test_sigterm_drains_and_the_second_stops_at_once(start: Start, setup: Setup, programs: Programs) -> None:
    worker = start("--processes", 2)
    caller = setup.start("waits", b"go")
    worker.prints("working go")
    worker.terminate()
    worker.prints("stopping when the running jobs have ended")
    (programs.folder / "go").touch()
    assert caller.result(PATIENCE) == b"go"
    assert worker.ends() == 0
    hasty = start("--processes", 1)
    lost = setup.start("stubborn")
    pid = int(hasty.prints(r"stubborn (\d+)"))
    hasty.terminate()
    hasty.prints("stopping")
    hasty.terminate()
    with pytest.raises(JobLost):
        lost.result(PATIENCE)
    assert hasty.ends() == 0
    until(lambda: not Path(f"/proc/{pid}").exists(), "nothing of it is left")


def test_a_signal_to_the_whole_group_lets_children_finish(start: Start, setup: Setup, programs: Programs) -> None:
    """As systemd sends it, or a terminal's Ctrl-C."""
    worker = start("--processes", 1)
    caller = setup.start("waits", b"go")
    child = int(worker.prints(r"working go (\d+)"))
    os.killpg(worker.pid, signal.SIGTERM)
    os.kill(child, signal.SIGTERM)
    worker.prints("stopping")
    (programs.folder / "go").touch()
    assert caller.result(PATIENCE) == b"go"
    assert worker.ends() == 0


def test_a_worker_outlives_its_broker(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "services.py").write_text(SERVICES.read_text())
    url = f"ipc://{tmp_path}/b"
    first = programs.dragoman("serve", url, "--data", "memory")
    first.prints("is listening")
    worker = programs.dragoman("worker", "services:worker", "--processes", 1, "--connect", url)
    first.prints("worker joined")
    first.kill()
    again = programs.dragoman("serve", url, "--data", "memory")
    again.prints("worker joined")
    with Client(url) as client:
        assert client.call("upper", b"still here") == b"STILL HERE"
    assert worker.process.poll() is None


def test_reload_starts_anew_when_the_code_changes(start: Start, setup: Setup, programs: Programs) -> None:
    module = programs.folder / "changing.py"
    text = "from dragoman import Worker\nworker = Worker()\n@worker.service('changing')\ndef f(payload): return 'one'\n"
    module.write_text(text)
    first_change = module.stat().st_mtime_ns // 10**9 * 10**9
    worker = start("--reload", "--processes", 1, target="changing:worker")
    assert setup.ask("changing") == b"one"
    module.write_text("oh no")
    worker.prints("changed: changing.py; restarting")
    worker.prints("waiting for a change")
    assert "SyntaxError" in worker.err
    module.write_text(text.replace("one", "two"))
    os.utime(module, ns=(first_change, first_change + 1))  # in the same second, and of the same size
    worker.prints("changed: changing.py; restarting", times=2)
    assert setup.ask("changing") == b"two"
    worker.terminate()
    assert worker.ends() == 0


# -------------------------------------------------------------------- dialects


@pytest.mark.parametrize("dialect", ["native", "pingpong", "powerhose", "controller", "majordomo", "memodb"])
def test_the_same_worker_serves_in_every_dialect(
    programs: Programs, tower: Setup, listeners: dict[str, str], dialect: str
) -> None:
    worker = start_at(programs, listeners[dialect], "--processes", 1, "--service", "upper")
    assert tower.ask("upper", b"hello") == b"HELLO"
    worker.terminate()
    assert worker.ends() == 0


def start_at(programs: Programs, url: str, *words: object) -> Program:
    (programs.folder / "services.py").write_text(SERVICES.read_text())
    return programs.dragoman("worker", "services:worker", *words, "--connect", url)


def test_where_the_wire_has_no_names_the_worker_must_be_clear(programs: Programs) -> None:
    url = "pingpong+tcp://127.0.0.1:1"
    for words, at, complaint in (
        ([], url, "a worker in pingpong offers one service, but this one has upper, pid"),
        (["--service", "no such"], url, "and not no such"),
        (
            ["--service", "pid", "--service", "dies"],
            f"{url}?service=upper",
            "the URL chooses 'upper'",
        ),
    ):
        refused = start_at(programs, at, *words)
        assert refused.ends() == 2
        assert complaint in refused.err


def test_what_is_emitted_where_there_is_no_word_for_it_is_an_error_and_no_loss(
    programs: Programs, tower: Setup, listeners: dict[str, str]
) -> None:
    worker = start_at(programs, listeners["memodb"], "--processes", 1, "--service", "reports")
    with pytest.raises(JobError):
        tower.ask("reports", timeout=PATIENCE)
    worker.prints("Unsupported: memodb does not support parts of a result")


def test_a_worker_keeps_the_time_itself_where_it_is_not_recalled(
    programs: Programs, tower: Setup, listeners: dict[str, str]
) -> None:
    """MemoDB sends a job's time-out, but has no message to cancel it."""
    grace, services = ("--cancel-grace", 0.1), ("--service", "stubborn", "--service", "pid")
    worker = start_at(programs, listeners["memodb"], "--processes", 1, *grace, *services)
    first = tower.ask("pid")
    with Client(listeners["memodb"]) as client, pytest.raises(JobTimeout):
        client.call("stubborn", b"", timeout=0.3)
    worker.prints("TimeoutError: stopped after 0.[0-9]+ s, the attempt's time-out")
    assert tower.ask("pid") != first

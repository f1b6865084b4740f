"""A whole broker with third-party programs that speak Worker-Controller: in C, in Python, and on plain sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq
from broker_setup import MIB, BrokerSetup, Visitors

from dragoman.core.states import BUSY, IDLE, WorkerState
from dragoman.streams.sockets import AddressInUse
from programs import PATIENCE, STRANGERS, Program, Programs, until

Start = Callable[..., BrokerSetup]
StartWorker = Callable[..., Program]

MEMODB = "memodb+tcp://127.0.0.1:0"
PINGPONG = "pingpong+tcp://127.0.0.1:0?frontend=0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the sockets; the broker creates it."""
    return tmp_path / "c"


@pytest.fixture
def url(folder: Path) -> str:
    return f"controller+unix://{folder}"


@pytest.fixture(scope="session")
def built_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    assert compiler, "these tests build a worker in C: install gcc (Debian: apt-get install gcc libc6-dev)"
    program = tmp_path_factory.mktemp("built") / "controller_worker"
    subprocess.run([compiler, "-O1", "-o", program, STRANGERS / "controller_worker.c"], check=True, timeout=60)
    return program


@pytest.fixture(params=["C", "C, shifted", "C, inside", "Python", "Python, shifted"])
def start_worker(
    request: pytest.FixtureRequest, programs: Programs, folder: Path, built_worker: Path
) -> Callable[..., Program]:
    if request.param.startswith("C"):
        flags = ["-s"] * ("shifted" in request.param) + ["-i"] * ("inside" in request.param)
        return lambda *more: programs.start(built_worker, *flags, *more, folder)
    words = ["--shifted"] * ("shifted" in request.param)
    return lambda: programs.stranger("controller_worker", folder, *words)


def count_workers(setup: BrokerSetup, state: WorkerState | None = None) -> int:
    def count() -> int:
        return sum(state is None or worker.state is state for worker in setup.broker.worker_registry.workers.values())

    return int(setup.run(count))


def joined(setup: BrokerSetup, count: int = 1) -> None:
    until(lambda: count_workers(setup, IDLE) >= count, f"{count} workers are there and idle")


def quiet(setup: BrokerSetup) -> None:
    until(lambda: not setup.run(lambda: len(setup.runner.connections.peers)), "nothing is under way")


def busy(setup: BrokerSetup, count: int = 1) -> None:
    until(lambda: count_workers(setup, BUSY) >= count, f"{count} workers are at it")


def answers(client: Program) -> list[str]:
    assert client.ends() == 0, client.out + client.err
    return [line.removeprefix("answer ") for line in client.out.splitlines() if line.startswith("answer ")]


class Callers:
    """A DEALER at a PingPong frontend: many calls at once; results identify their calls."""

    def __init__(self, visitors: Visitors, setup: BrokerSetup, index: int = 0) -> None:
        self._socket = visitors.visit(zmq.DEALER, setup.places[index]["callers"])

    def submit(self, payload: bytes) -> None:
        self._socket.send_multipart([b"", payload])

    def told(self) -> bytes:
        empty, *rest = self._socket.recv_multipart()
        assert empty == b""
        return rest[-1] if len(rest) == 1 else b" ".join(rest[1:])


# -------------------------------------------------------------------- strangers serve callers of other dialects


def test_any_strangers_worker_serves_memodb_and_pingpong_callers(
    broker_setup: Start, programs: Programs, url: str, start_worker: StartWorker
) -> None:
    setup = broker_setup(MEMODB, PINGPONG, url)
    start_worker()
    joined(setup)
    client = programs.stranger("memodb_client", setup.places[0]["both"], "default", "one", "two", "three")
    assert answers(client) == ["ONE", "TWO", "THREE"]
    client = programs.stranger("pingpong_client", setup.places[1]["callers"], "four", "five")
    assert answers(client) == ["FOUR", "FIVE"]
    assert setup.counters.late_results == 0
    assert count_workers(setup) == 1


def test_a_worker_that_always_names_the_task_before_is_served_if_more_slowly(
    broker_setup: Start, programs: Programs, url: str, folder: Path
) -> None:
    setup = broker_setup(MEMODB, url)
    worker = programs.stranger("controller_worker", folder, "--stale", "--next-pulse", 1)
    joined(setup)
    client = programs.stranger("memodb_client", setup.places[0]["both"], "default", "one", "two", "three")
    assert answers(client) == ["ONE", "TWO", "THREE"]
    assert setup.counters.dispatched == 3
    assert worker.process.poll() is None


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_payloads_of_every_size_pass(
    broker_setup: Start, visitors: Visitors, url: str, start_worker: StartWorker, loop: str
) -> None:
    setup = broker_setup(PINGPONG, url, loop=loop)
    start_worker()
    callers = Callers(visitors, setup)
    for payload in (b"", b"x", b"m" * 16_384, b"L" * 65_533, b"b" * MIB, b"z" * (16 * MIB)):
        callers.submit(payload)
        assert callers.told() == payload.upper()


def test_workers_of_both_editions_and_all_kinds_share_the_jobs(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, built_worker: Path
) -> None:
    setup = broker_setup(PINGPONG, url)
    workers = [programs.start(built_worker, *flags, folder) for flags in ((), ("-s",), ("-i",), ("-i", "-s"))]
    workers += [programs.stranger("controller_worker", folder, *flags) for flags in ((), ("--shifted",))]
    joined(setup, 6)
    callers = Callers(visitors, setup)
    for number in range(60):
        callers.submit(b"job %d" % number)
    assert Counter(callers.told() for _ in range(60)) == Counter(b"JOB %d" % number for number in range(60))
    assert setup.counters.dispatched == 60
    for worker in workers:
        assert worker.process.poll() is None


def test_five_workers_and_three_hundred_jobs_none_lost_none_doubled(
    broker_setup: Start, visitors: Visitors, url: str, start_worker: StartWorker
) -> None:
    setup = broker_setup(PINGPONG, url)
    for _ in range(5):
        start_worker()
    joined(setup, 5)
    callers = Callers(visitors, setup)
    for number in range(300):
        callers.submit(b"job %d" % number)
    assert Counter(callers.told() for _ in range(300)) == Counter(b"JOB %d" % number for number in range(300))
    assert setup.counters.dispatched == 300
    assert setup.counters.late_results == 0
    until(lambda: count_workers(setup, IDLE) == 5, "all are idle again")


def test_the_callers_of_a_job_that_failed_are_told_why(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path
) -> None:
    setup = broker_setup(f"{PINGPONG}&attempts=1", url)
    programs.stranger("controller_worker", folder)
    callers = Callers(visitors, setup)
    callers.submit(b"fail there is no such table")
    assert callers.told() == b"ERROR failed: there is no such table"
    callers.submit(b"next")
    assert callers.told() == b"NEXT"


def test_our_own_worker_serves_too(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path
) -> None:
    setup = broker_setup(PINGPONG, url)
    for edition in ("seed", "shifted"):
        programs.dragoman("worker", "--concurrency", 1, "--exec", "tr a-z A-Z", "--connect", f"{url}?edition={edition}")
    joined(setup, 2)
    callers = Callers(visitors, setup)
    for number in range(10):
        callers.submit(b"job %d" % number)
    assert Counter(callers.told() for _ in range(10)) == Counter(b"JOB %d" % number for number in range(10))


# -------------------------------------------------------------------- workers die, hang, and are asked to go


def test_a_worker_that_is_killed_with_a_job_and_another_that_does_it(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path
) -> None:
    setup = broker_setup(PINGPONG, url)
    victim = programs.stranger("controller_worker", folder, "--next-pulse", 1)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"wait go done")
    victim.prints("control SET_TASK")
    other = programs.stranger("controller_worker", folder)
    joined(setup)
    victim.kill()
    other.prints("control SET_TASK")
    (other._out.parent / "go").write_text("")
    assert callers.told() == b"done"
    assert setup.counters.dispatched == 2
    assert count_workers(setup) == 1


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_that_is_killed_while_it_computes_is_noticed_at_once(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, loop: str
) -> None:
    """It was noticed when its lease was over: here that would be in ten minutes."""
    setup = broker_setup(f"{PINGPONG}&attempts=1", url, loop=loop)
    victim = programs.stranger("controller_worker", folder, "--next-pulse", 600)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"wait for ever")
    victim.prints("control SET_TASK")
    peers = setup.runner.connections.peers
    until(lambda: setup.run(lambda: len(peers)) == 1, "SET_TASK is answered, and only the caller is there")
    victim.kill()
    assert callers.told() == b"ERROR lost: its worker's process has ended"
    assert count_workers(setup) == 0


def test_a_worker_that_is_killed_inside_the_exchange_is_noticed_at_once(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, built_worker: Path
) -> None:
    setup = broker_setup(PINGPONG, url)
    victim = programs.start(built_worker, "-i", "-d", "600", "-n", "3000", folder)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"job")
    victim.prints("control 2")
    programs.start(built_worker, folder)
    joined(setup)
    victim.kill()
    assert callers.told() == b"JOB"


def test_a_worker_whose_answer_comes_late_is_not_killed_by_us(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, built_worker: Path
) -> None:
    """It dies of SIGPIPE if its answer is not read: its job is over, and it is forgotten, before it answers."""
    setup = broker_setup(f"{PINGPONG}&attempts=1&job_timeout=0.2", url)
    worker = programs.start(built_worker, "-i", "-d", "2.5", folder)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"slow")
    assert callers.told().startswith(b"ERROR timed out")
    until(lambda: count_workers(setup) == 0, "it does not answer GET_STATUS in time")
    worker.prints("-> 2")  # UNKNOWN_ID
    worker.prints("listens", times=2)
    assert worker.process.poll() is None
    joined(setup)
    assert setup.counters.false_expiries >= 1


def test_a_hung_worker_is_left_alone_once_its_time_is_over(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path
) -> None:
    setup = broker_setup(f"{PINGPONG}&attempts=1&job_timeout=0.5", url)
    hung = programs.stranger("controller_worker", folder)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"sleep 0.3 x")
    assert callers.told() == b"x"
    callers.submit(b"hang")
    hung.prints("control SET_TASK", times=2)
    assert callers.told().startswith(b"ERROR timed out")
    callers.submit(b"next")
    hung.prints("-> BUSY", times=2)  # it is offered what comes, and says so
    programs.stranger("controller_worker", folder)
    assert callers.told() == b"NEXT"
    assert hung.process.poll() is None


def test_a_stopped_worker_that_goes_on_is_unknown_and_its_old_job_is_nobodys(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, built_worker: Path
) -> None:
    setup = broker_setup(PINGPONG, url)
    frozen = programs.start(built_worker, "-n", "1", folder)
    joined(setup)
    frozen.stop()
    callers = Callers(visitors, setup)
    callers.submit(b"job")
    busy(setup)
    until(lambda: count_workers(setup) == 0, "its lease is over")
    programs.start(built_worker, folder)
    assert callers.told() == b"JOB"
    frozen.go_on()
    frozen.prints("listens", times=2)
    joined(setup, 2)
    assert frozen.process.poll() is None
    assert setup.counters.ended["done"] == 1


def test_a_worker_that_is_drained_ends_and_takes_its_socket_with_it(
    broker_setup: Start, url: str, folder: Path, start_worker: StartWorker
) -> None:
    setup = broker_setup(url)
    worker = start_worker()
    joined(setup)

    def drain() -> None:
        for each in list(setup.broker.worker_registry.workers.values()):
            setup.broker.availability.drain(each, setup.loop.time())
        setup.runner.run_once()

    setup.run(drain)
    assert worker.ends() == 0
    assert [path.name for path in folder.iterdir()] == ["main.sock"]
    assert count_workers(setup) == 0


# -------------------------------------------------------------------- controllers come and go


def test_a_worker_outlives_the_broker_and_registers_anew(
    broker_setup: Start, programs: Programs, visitors: Visitors, url: str, folder: Path, built_worker: Path
) -> None:
    for flags in ((), ("-s",)):
        first = broker_setup(PINGPONG, url)
        worker = programs.start(built_worker, "-n", "1", *flags, folder)
        joined(first)
        quiet(first)
        first.close()
        assert not (folder / "main.sock").exists()
        second = broker_setup(PINGPONG, url)
        assert [path.name for path in folder.iterdir()] == ["main.sock"]  # its socket was cleared away
        worker.prints("-> 2")
        worker.prints("listens", times=2)
        callers = Callers(visitors, second)
        callers.submit(b"again")
        assert callers.told() == b"AGAIN"
        worker.kill()
        second.close()


def test_a_folder_that_a_dead_controller_and_dead_workers_left(
    broker_setup: Start, url: str, folder: Path, start_worker: StartWorker
) -> None:
    folder.mkdir()
    for name in ("main.sock", "1.sock", "77.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / name))
    (folder / "notes").write_text("mine")
    setup = broker_setup(url)
    assert {path.name for path in folder.iterdir()} == {"main.sock", "notes"}
    start_worker()
    joined(setup)


def test_a_second_controller_in_the_same_folder_is_refused_and_the_first_is_unharmed(
    broker_setup: Start, visitors: Visitors, url: str, folder: Path, start_worker: StartWorker
) -> None:
    setup = broker_setup(PINGPONG, url)
    start_worker()
    joined(setup)
    sockets = {path.name for path in folder.iterdir()}
    with pytest.raises(AddressInUse):
        broker_setup(url)
    assert {path.name for path in folder.iterdir()} == sockets
    callers = Callers(visitors, setup)
    callers.submit(b"still there")
    assert callers.told() == b"STILL THERE"
    assert setup.counters.bad_messages == {}


def test_the_folder_and_its_socket_are_ours_alone(broker_setup: Start, url: str, folder: Path) -> None:
    broker_setup(url)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "main.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("frontend=7000", "controller has no frontend: callers use another dialect"),
        ("uid_allow=root", "uid_allow is a list of numbers"),
        ("mode=rwx", "mode an octal number"),
        ("edition=third", "edition"),
    ],
)
def test_what_a_url_may_not_say(broker_setup: Start, url: str, options: str, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        broker_setup(f"{url}?{options}")


# -------------------------------------------------------------------- plain sockets


class PlainWorker:
    """Listens on a socket that another program could have, and does nothing by itself."""

    def __init__(self, folder: Path, backlog: int = 16) -> None:
        self.ends = ExitStack()
        self._folder = folder
        answer = self.pulse(0)
        assert answer[:1] == b"\x10", answer
        self.id = answer[1]
        assert self.id < 128
        self.listening = self.ends.enter_context(socket.socket(socket.AF_UNIX))
        self.listening.settimeout(PATIENCE)
        self.listening.bind(str(folder / f"{self.id}.sock"))
        self.listening.listen(backlog)

    def pulse(self, kind: int, worker_id: int = 0, task: int = 0, next_pulse: int = 100) -> bytes:
        fields = ((8, kind), (16, worker_id), (24, task), (32, next_pulse))
        head = b"".join(bytes(pair) for pair in fields if pair[1])
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self._folder / "main.sock"))
            connection.sendall(len(head).to_bytes(8, "little") + head)
            return _rest(connection)[8:]

    def accept(self) -> tuple[socket.socket, bytes]:
        """Return the next connection, and the head of its message."""
        connection, _ = self.listening.accept()
        self.ends.enter_context(connection)
        connection.settimeout(PATIENCE)
        return connection, _exactly(connection, int.from_bytes(_exactly(connection, 8), "little"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    came = b""
    while len(came) < count:
        piece = connection.recv(count - len(came))
        assert piece, f"the connection ended after {came!r}"
        came += piece
    return came


def _rest(connection: socket.socket) -> bytes:
    came = b""
    while piece := connection.recv(1 << 16):
        came += piece
    return came


@pytest.fixture
def plain(folder: Path) -> Iterator[Callable[..., PlainWorker]]:
    made: list[PlainWorker] = []

    def start(**options: int) -> PlainWorker:
        made.append(PlainWorker(folder, **options))
        return made[-1]

    yield start
    for each in made:
        each.ends.close()


OK = bytes(8)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_whose_queue_is_full_is_waited_for_and_trusted(
    broker_setup: Start, visitors: Visitors, url: str, plain: Callable[..., PlainWorker], loop: str
) -> None:
    """The kernel rejects a connection to a full queue, and a dial must not take that for success."""
    setup = broker_setup(PINGPONG, url, loop=loop)
    worker = plain(backlog=0)
    boot, head = worker.accept()
    assert head == b"\x08\x03"
    boot.sendall(OK)
    joined(setup)
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(worker.listening.getsockname()))  # who now stands in the queue, and fills it
        callers = Callers(visitors, setup)
        callers.submit(b"job")
        busy(setup)
        setup.run(bool)  # so that it has been dialled, in vain
        setup.run(bool)
        worker.listening.accept()[0].close()
        connection, head = worker.accept()
    assert head[:2] == b"\x08\x02"
    connection.sendall(OK)
    assert not setup.journal.mentions("not trusted")
    assert count_workers(setup, BUSY) == 1


def test_an_answer_that_is_written_byte_by_byte_and_one_that_is_cut(
    broker_setup: Start, visitors: Visitors, url: str, plain: Callable[..., PlainWorker]
) -> None:
    setup = broker_setup(PINGPONG, f"{url}?control_timeout=0.3")
    worker = plain()
    boot, _ = worker.accept()
    boot.sendall(OK)
    joined(setup)
    callers = Callers(visitors, setup)
    callers.submit(b"job")
    task, head = worker.accept()
    assert head[:4] == b"\x08\x02\x10\x03"
    assert _exactly(task, 3) == b"job"
    for byte in OK:
        task.sendall(bytes([byte]))
    assert _rest(task) == b""  # it is for the worker to close; if it does not, we do
    assert worker.pulse(2, worker.id) == b""
    broken, head = worker.accept()
    assert head == b"\x08\x01"
    broken.sendall(b"\x02" + bytes(7) + b"\x18\x0aresu")
    broken.close()
    again, head = worker.accept()
    assert head == b"\x08\x01"
    again.sendall(b"\x02" + bytes(7) + b"\x18\x06result")
    assert callers.told() == b"result"


@pytest.mark.parametrize("said", [b"", b"\0", bytes(7), b"\x01\0\0\0\0\0\0\0", b"\x04" + bytes(7) + b"\x20"])
def test_visitors_who_say_too_little_leave_no_trace(broker_setup: Start, url: str, folder: Path, said: bytes) -> None:
    setup = broker_setup(url)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "main.sock"))
        connection.sendall(said)
    quiet(setup)
    assert count_workers(setup) == 0


@pytest.mark.parametrize("said", [b"\xff" * 8, bytes(9), b"\x02" + bytes(7) + b"\xff\xff"])
def test_visitors_who_say_too_much_or_nonsense_hear_failed(
    broker_setup: Start, url: str, folder: Path, said: bytes
) -> None:
    setup = broker_setup(url)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / "main.sock"))
        connection.sendall(said)
        assert _rest(connection) == b"\x02" + bytes(7) + b"\x08\x03"
    assert count_workers(setup) == 0


def test_another_user_is_turned_away_without_a_word(broker_setup: Start, url: str, folder: Path) -> None:
    setup = broker_setup(f"{url}?uid_allow={os.getuid() + 1}&mode=711")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(folder / "main.sock"))
        with contextlib.suppress(ConnectionError):  # it may hang up before it hears a byte
            connection.sendall(OK)
            assert _rest(connection) == b""
    until(lambda: setup.journal.mentions("is not in uid_allow"), "it was turned away")
    assert count_workers(setup) == 0


def test_no_worker_of_any_kind_dies_of_us(
    broker_setup: Start, visitors: Visitors, url: str, start_worker: StartWorker
) -> None:
    """Many jobs, some of them cancelled by time-outs at any moment: no worker dies."""
    setup = broker_setup(f"{PINGPONG}&attempts=1&job_timeout=0.004", url)
    workers = [start_worker() for _ in range(3)]
    joined(setup, 3)
    callers = Callers(visitors, setup)
    for number in range(200):
        callers.submit(b"job %d" % number)
    told = [callers.told() for _ in range(200)]
    assert sum(each.startswith((b"JOB ", b"ERROR timed out")) for each in told) == 200
    for worker in workers:
        assert worker.process.poll() is None, signal.strsignal(-worker.process.returncode)

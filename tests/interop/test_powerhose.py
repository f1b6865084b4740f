"""A whole broker with third-party programs that speak Powerhose: workers on libzmq, over TCP and ipc."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from broker_setup import BrokerSetup, Raw, Visitors, open_descriptors, place_of

from dragoman.core.states import BUSY, IDLE, WorkerState
from dragoman.sdk.address import TcpAddress
from programs import PATIENCE, Program, Programs, until

Start = Callable[..., BrokerSetup]

TCP = "powerhose+tcp://127.0.0.1:0?frontend=0"
PINGPONG = "pingpong+tcp://127.0.0.1:0?frontend=0"
MEMODB = "memodb+tcp://127.0.0.1:0"


@pytest.fixture(params=["tcp", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "tcp":
        return TCP
    frontend = f"ipc://{tmp_path}/f".replace(":", "%3A").replace("/", "%2F")
    return f"powerhose+ipc://{tmp_path}/m?frontend={frontend}"


@pytest.fixture(params=["tcp", "ipc", "relative ipc"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a worker's endpoint. Third-party programs run in the test's folder, the base of the listeners here."""
    return {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/w", "relative ipc": "ipc://w"}[request.param]


class Callers:
    """A caller that waits for one answer at a time."""

    def __init__(self, visitors: Visitors, where: str) -> None:
        self._socket = visitors.visit(zmq.DEALER, where)

    def ask(self, *jobs: bytes) -> None:
        for job in jobs:
            self._socket.send_multipart([b"", job])

    def answer(self) -> bytes:
        """Return the result, or `ERROR reason`."""
        frames = self._socket.recv_multipart()
        assert frames[0] == b""
        return frames[1] if len(frames) == 2 else b"ERROR " + frames[3]

    def call(self, job: bytes) -> bytes:
        self.ask(job)
        return self.answer()


@pytest.fixture
def caller_of(visitors: Visitors) -> Callable[[str], Callers]:
    return lambda where: Callers(visitors, where)


def count_workers(setup: BrokerSetup, state: WorkerState | None = None) -> int:
    def count() -> int:
        return sum(state is None or worker.state is state for worker in setup.broker.worker_registry.workers.values())

    return int(setup.run(count))


def joined(setup: BrokerSetup, count: int = 1) -> None:
    until(lambda: count_workers(setup, IDLE) >= count, f"{count} workers are there and idle")


def worker(programs: Programs, setup: BrokerSetup, name: str = "W", *words: object) -> Program:
    """Start a third-party worker, and wait until it has joined."""
    before = joins(setup)
    started = programs.stranger("powerhose_worker", setup.workers, "--name", name, *words)
    until(lambda: joins(setup) > before, f"{name} has registered")
    return started


def joins(setup: BrokerSetup) -> int:
    return sum(event == "worker joined" for _, event, _ in list(setup.journal.lines))


# -------------------------------------------------------------------- strangers among themselves


def test_a_strangers_worker_serves_a_strangers_caller(
    broker_setup: Start, programs: Programs, url: str, at: str, tmp_path: Path
) -> None:
    setup = broker_setup(f"{url}&base={tmp_path}")
    worker(programs, setup, "W", "--at", at)
    client = programs.stranger("pingpong_client", setup.callers, "one", "two:::three", "size 100000")
    assert client.ends() == 0, client.err
    answers = [line for line in client.out.splitlines() if line.startswith("answer")]
    assert answers == ["answer W did one", "answer W did two:::three", "answer " + "x" * 100_000]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_that_leaves_the_id_out_is_understood(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers], loop: str
) -> None:
    setup = broker_setup(TCP, loop=loop)
    worker(programs, setup, "W", "--no-id")
    caller = caller_of(setup.callers)
    for job in (b"one", b"", b"a:::b:::c", bytes(300_000)):
        assert caller.call(job) == b"W did " + job


def test_a_worker_pings_on_and_stays(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP)
    stranger = worker(programs, setup, "W", "--ping", 0.02)
    stranger.prints("PONG", times=20)
    assert count_workers(setup, IDLE) == 1
    assert joins(setup) == 1


def test_a_worker_says_remove_at_its_end_and_is_gone(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(url)
    stranger = worker(programs, setup)
    stranger.terminate()
    assert stranger.ends() == 0
    assert stranger.out.splitlines()[-1] == "REMOVED"
    until(lambda: count_workers(setup) == 0, "it is gone")


def test_r58_a_worker_that_leaves_with_its_last_job_delivers_it_first(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP)
    stranger = worker(programs, setup, "W", "--jobs", 2)
    caller = caller_of(setup.callers)
    assert [caller.call(b"one"), caller.call(b"two")] == [b"W did one", b"W did two"]
    assert stranger.ends() == 0


def test_a_strangers_worker_kills_itself_if_its_master_is_silent(programs: Programs) -> None:
    master = programs.stranger("powerhose_master", "--mute", "--stay")
    stranger = programs.stranger("powerhose_worker", master.prints(r"at (\S+)"), "--attempts", 2)
    assert stranger.ends() == 3
    master.prints("heard PING")
    assert "suicide" in stranger.out


def test_a_strangers_master_and_a_strangers_worker_understand_each_other(programs: Programs) -> None:
    """So that what is tested against either is the document."""
    master = programs.stranger("powerhose_master", "one", "a:::b", "sleep 0.1")
    stranger = programs.stranger("powerhose_worker", master.prints(r"at (\S+)"), "--name", "W")
    assert master.ends() == 0, master.err
    results = [line for line in master.out.splitlines() if line.startswith("result")]
    assert results == [
        f"result {number} JOBRES:::{number}:::W did {job}" for number, job in enumerate(["one", "a:::b", "sleep 0.1"])
    ]
    stranger.kill()


# -------------------------------------------------------------------- several dialects in one broker


def test_a_powerhose_worker_serves_callers_of_every_dialect(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP, PINGPONG, MEMODB)
    worker(programs, setup)
    assert caller_of(setup.callers).call(b"powerhose") == b"W did powerhose"
    assert caller_of(setup.places[1]["callers"]).call(b"pingpong") == b"W did pingpong"
    client = programs.stranger("memodb_client", setup.places[2]["both"], "default", "memodb")
    assert client.ends() == 0, client.err
    assert "answer W did memodb" in client.out


def test_a_powerhose_caller_is_served_by_workers_of_other_dialects(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP, PINGPONG, MEMODB)
    caller = caller_of(setup.callers)
    pingpong = programs.stranger("pingpong_worker", setup.places[1]["workers"], "--name", "P")
    assert caller.call(b"one") == b"P did one"
    pingpong.kill()
    until(lambda: count_workers(setup) == 0, "it is gone")
    programs.stranger("memodb_worker", setup.places[2]["both"], "default", "--name", "M")
    assert caller.call(b"two") == b"M did two"


def test_d8_a_pingpong_callers_job_has_three_attempts_at_powerhose_workers(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP, PINGPONG)
    caller = caller_of(setup.places[1]["callers"])
    first = worker(programs, setup, "A")
    caller.ask(b"sleep 0.3 job")
    first.prints("job sleep")
    first.kill()
    worker(programs, setup, "B")
    assert caller.answer() == b"B did sleep 0.3 job"


# -------------------------------------------------------------------- workers die, freeze, come back


def test_r9_a_worker_killed_with_its_job_costs_an_attempt_and_another_does_it(
    broker_setup: Start, programs: Programs, url: str, caller_of: Callable[[str], Callers], tmp_path: Path
) -> None:
    setup = broker_setup(url)
    caller = caller_of(setup.callers)
    first = worker(programs, setup, "A")
    gate = tmp_path / "gate"
    caller.ask(f"wait {gate}".encode())
    first.prints("job wait")
    worker(programs, setup, "B")
    first.kill()
    gate.touch()
    assert caller.answer() == f"B did wait {gate}".encode()
    assert setup.counters.dispatched == 2


def test_r9_three_killed_workers_and_the_caller_is_told(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP)
    caller = caller_of(setup.callers)
    workers = [worker(programs, setup, name) for name in "ABC"]
    caller.ask(b"sleep 30 poison")
    for each in workers:
        each.prints("job sleep")
        each.kill()
    assert caller.answer() == b"ERROR lost: its worker's connection ended"
    assert setup.counters.dispatched == 3


def test_r54_a_frozen_idle_worker_does_not_answer_wake_and_another_is_asked(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(f"{TCP}&wake_timeout=0.2&attempts=1")
    frozen = worker(programs, setup, "A")
    worker(programs, setup, "B")
    frozen.stop()
    caller = caller_of(setup.callers)
    assert [caller.call(b"1"), caller.call(b"2")] == [b"B did 1", b"B did 2"]
    assert count_workers(setup) == 1
    frozen.go_on()
    joined(setup, 2)


def test_r57_a_worker_frozen_with_its_job_is_hung_up_on_and_another_does_it_once(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(f"{TCP}&job_timeout=1")
    caller = caller_of(setup.callers)
    frozen = worker(programs, setup, "A")
    caller.ask(b"sleep 0.3 job")
    frozen.prints("job sleep")
    frozen.stop()
    worker(programs, setup, "B")
    assert caller.answer() == b"B did sleep 0.3 job"
    frozen.go_on()
    joined(setup, 2)  # its late result met nobody, and it came back with a PING
    assert setup.counters.late_results == 0
    assert {caller.call(b"x"), caller.call(b"y")} <= {b"A did x", b"A did y", b"B did x", b"B did y"}


def test_d3_a_worker_that_restarts_with_the_same_endpoint_is_found_again(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers], at: str, tmp_path: Path
) -> None:
    setup = broker_setup(f"{TCP}&base={tmp_path}")
    caller = caller_of(setup.callers)
    place = at
    for life in ("A", "B", "C"):
        stranger = worker(programs, setup, life, "--at", place, "--ping", 0.1)
        place = stranger.prints(r"at (\S+)") if at.startswith("tcp") else at
        assert caller.call(b"job") == life.encode() + b" did job"
        stranger.kill()
        until(lambda: count_workers(setup) == 0, "its end was noticed")
    assert len(setup.runner.sessions[0]._remotes) == 1  # type: ignore[attr-defined]


def test_a_broker_that_restarts_has_its_workers_back_with_their_next_ping(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    setup = broker_setup(TCP)
    port = setup.workers.rpartition(":")[2]
    strangers = [worker(programs, setup, name, "--ping", 0.1) for name in "AB"]
    setup.close()
    for each in strangers:
        each.prints("no answer")
    again = broker_setup(f"powerhose+tcp://127.0.0.1:{port}?frontend=0")
    joined(again, 2)
    caller = Callers(visitors, again.callers)
    assert {caller.call(b"x"), caller.call(b"x")} == {b"A did x", b"B did x"}


def test_r53_a_worker_that_pings_before_it_listens_is_reached_when_it_does(
    broker_setup: Start, visitors: Visitors, free_path: Path
) -> None:
    setup = broker_setup(f"{TCP}&base={free_path.parent}")
    master = visitors.visit(zmq.REQ, setup.workers)
    master.send(f"PING:::ipc://{free_path}".encode())
    assert master.recv() == b"PONG"
    work = visitors.receive(zmq.REP, place_of(f"ipc://{free_path}"))
    joined(setup)
    assert work.poll(0) == 0


# -------------------------------------------------------------------- strangers of another kind


def test_t6_what_may_not_be_dialled_is_answered_error_and_never_dialled(
    broker_setup: Start, visitors: Visitors, tmp_path: Path
) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    setup = broker_setup(f"{TCP}&base={folder}")
    master = visitors.visit(zmq.REQ, setup.workers)
    endpoints = ["inproc://x", f"ipc://{tmp_path}/x", "ipc://../x", "tcp://127.0.0.1:22", "tcp://example.com:9001"]
    for endpoint in endpoints:
        master.send(f"PING:::{endpoint}".encode())
        assert master.recv() == b"ERROR"
    assert setup.bad("endpoint not allowed", "powerhose") == len(endpoints)
    assert not setup.server.host._dials
    assert setup.journal.mentions("endpoint not allowed")


def test_a_worker_does_not_make_the_broker_call_services_by_naming_one_of_its_own_listeners(
    broker_setup: Start, visitors: Visitors, free_path: Path
) -> None:
    """A worker that may only work registered the address of PingPong's callers, and was sent jobs there: the broker
    submitted them as its own user."""
    setup = broker_setup(
        f"{TCP}&base={free_path.parent}",
        "pingpong+tcp://127.0.0.1:0?frontend=0",
        f"pingpong+ipc://{free_path}?frontend=ipc%3A%2F%2F{free_path}f",
    )
    master = visitors.visit(zmq.REQ, setup.workers)
    (free_path.parent / "link").symlink_to(f"{free_path}f")
    for endpoint in (setup.places[1]["callers"], f"ipc://{free_path}f", f"ipc://{free_path.parent}/link"):
        lines = len(setup.journal.lines)
        master.send(f"PING:::{endpoint}".encode())
        assert master.recv() == b"PONG"
        until(lambda: any("never dials itself" in str(line) for line in setup.journal.lines[lines:]), "rejected")  # noqa: B023
    assert count_workers(setup) == 0
    assert [peer for peer in setup.run(lambda: list(setup.runner.connections.peers)) if peer.stream is None] == []


def test_d12_a_listeners_limits_hold_for_the_connections_it_makes_to_its_workers(
    broker_setup: Start, programs: Programs, caller_of: Callable[[str], Callers]
) -> None:
    """A frozen worker is lost after the time in the listener's URL."""
    setup = broker_setup(f"{TCP}&carrier_ping=0.1&carrier_timeout=0.4&attempts=1")
    caller = caller_of(setup.callers)
    frozen = worker(programs, setup)
    caller.ask(b"sleep 30")
    frozen.prints("job sleep")
    peers = setup.runner.connections.peers
    assert setup.run(lambda: [peer.limits.carrier_timeout for peer in peers if peer.dialled]) == [0.4]
    frozen.stop()
    assert caller.answer() == b"ERROR lost: its worker's connection ended"


def test_garbage_on_every_socket_harms_nobody_else(
    broker_setup: Start, programs: Programs, visitors: Visitors, caller_of: Callable[[str], Callers]
) -> None:
    setup = broker_setup(TCP)
    worker(programs, setup)
    caller = caller_of(setup.callers)
    liar = visitors.visit(zmq.REQ, setup.workers)
    for number in range(30):
        liar.send(b"\xff:::%d" % number)
        assert liar.recv() == b"ERROR"
        if number % 19 == 18:  # twenty within ten seconds would be the end of it
            liar = visitors.visit(zmq.REQ, setup.workers)
        with Raw(setup.workers) as raw:
            raw.greet(b"DEALER")
            raw.message(b"no", b"envelope")
            assert raw.receive() == [b"", b"ERROR"]
            raw.message(b"", b"PING", b"more")
            assert raw.receive() == [b"", b"ERROR"]
            raw.say(b"\xff\xff\xff")
        with Raw(setup.workers) as noise:
            noise.say(b"GET / HTTP/1.1\r\n\r\n")
        assert caller.call(b"%d" % number) == b"W did %d" % number
    assert setup.bad("unknown word", "powerhose") == 30


class Liar:
    """A worker's socket on libzmq that registers itself, and sends the answers that the test chooses."""

    def __init__(self, visitors: Visitors, setup: BrokerSetup) -> None:
        self.work = visitors.receive(zmq.REP, TcpAddress("127.0.0.1", 0))
        self._endpoint = self.work.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0")
        self._master = visitors.visit(zmq.REQ, setup.workers)
        self.ping()
        joined(setup)

    def ping(self) -> None:
        self._master.send(b"PING:::" + self._endpoint)
        assert self._master.recv() == b"PONG"


@pytest.mark.parametrize("answers", [[b"BUSY"], [b""], [b"GIVE", b"garbage"], [b"GIVE", b""], [b"GIVE", b"JOBRES"]])
def test_a_lying_worker_is_dropped_and_the_job_goes_to_another(
    broker_setup: Start,
    programs: Programs,
    visitors: Visitors,
    caller_of: Callable[[str], Callers],
    answers: list[bytes],
) -> None:
    setup = broker_setup(TCP)
    liar = Liar(visitors, setup)
    worker(programs, setup, "W")
    caller = caller_of(setup.callers)
    caller.ask(b"job")
    for each in answers:
        liar.work.recv()
        liar.work.send(each)
    assert caller.answer() == b"W did job"
    until(lambda: count_workers(setup) == 1, "it is off the list")


def test_places_that_are_no_workers_are_given_up_and_leave_nothing_behind(
    broker_setup: Start, visitors: Visitors
) -> None:
    """One endpoint without a listener, one that sends no greeting, one with another protocol."""
    setup = broker_setup(TCP)
    master = visitors.visit(zmq.REQ, setup.workers)
    with socket.create_server(("127.0.0.1", 0)) as dead:
        closed = dead.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pull = visitors.receive(zmq.PULL, TcpAddress("127.0.0.1", 0))
        wrong = pull.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0")
        places = [b"tcp://127.0.0.1:%d" % closed, b"tcp://127.0.0.1:%d" % silent.getsockname()[1], wrong]
        master.send(b"REMOVE:::x")
        assert master.recv() == b"REMOVED"
        before = open_descriptors()
        for place in places:
            master.send(b"PING:::" + place)
            assert master.recv() == b"PONG"
        session = setup.runner.sessions[0]
        until(lambda: len(session._away) == 3, "all three are off the list")  # type: ignore[attr-defined]
        assert count_workers(setup) == 0
        until(lambda: open_descriptors() <= before, "their descriptors are closed")


# -------------------------------------------------------------------- many


class WorkerGroup:
    """Workers on libzmq in one thread: each has its own socket, and one socket pings for all."""

    def __init__(self, visitors: Visitors, where: str, count: int) -> None:
        self.done: Counter[bytes] = Counter()
        self._works = [visitors.receive(zmq.REP, TcpAddress("127.0.0.1", 0)) for _ in range(count)]
        self._master = visitors.visit(zmq.REQ, where)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="workers")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _live(self) -> None:
        poller = zmq.Poller()
        for each in self._works:
            self._master.send(b"PING:::" + each.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0"))
            assert self._master.recv() == b"PONG"
            poller.register(each, zmq.POLLIN)
        while not self._over.is_set():
            for each, _ in poller.poll(20):
                word = each.recv()
                if word == b"WAKE":
                    each.send(b"GIVE")
                else:
                    _, id, data = word.split(b":::", 2)
                    self.done[data] += 1
                    each.send(b":::".join((b"JOBRES", id, b"did " + data)))
        for each in (*self._works, self._master):
            each.close()


@pytest.fixture
def pool_of(visitors: Visitors) -> Iterator[Callable[[str, int], WorkerGroup]]:
    pools: list[WorkerGroup] = []

    def start(where: str, count: int) -> WorkerGroup:
        pools.append(WorkerGroup(visitors, where, count))
        return pools[-1]

    yield start
    for each in pools:
        each.close()


def test_of_1000_jobs_for_20_workers_none_is_lost_or_doubled(
    broker_setup: Start, pool_of: Callable[[str, int], WorkerGroup], visitors: Visitors
) -> None:
    setup = broker_setup(f"{TCP}&worker_expire=60")
    job_runner = pool_of(setup.workers, 20)
    joined(setup, 20)
    callers = [Callers(visitors, setup.callers) for _ in range(10)]
    for batch in range(0, 1000, 100):
        for number in range(batch, batch + 100):
            callers[number % 10].ask(b"%d" % number)
        for index, caller in enumerate(callers):
            numbers = range(batch + index, batch + 100, 10)
            assert sorted(caller.answer() for _ in numbers) == sorted(b"did %d" % number for number in numbers)
    assert job_runner.done == {b"%d" % number: 1 for number in range(1000)}
    assert setup.counters.dispatched == 1000
    assert count_workers(setup, BUSY) == 0
    assert setup.counters.bad_messages == {}

"""Lost MemoDB connections, restarted brokers, and clients that reconnect."""

from __future__ import annotations

import random
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from broker_setup import MIB, Raw
from memodb_peers import (
    DISCONNECT,
    JOB,
    TCP,
    Nngs,
    Plain,
    Start,
    again,
    count_jobs,
    count_workers,
    job,
    joined,
    result_of,
    silent,
    tap,
)

from dragoman.core.states import BUSY, DETACHED, WAITING
from programs import PATIENCE, Programs, until

# -------------------------------------------------------------------- connections and brokers come and go


def test_workers_and_callers_find_a_broker_that_was_started_again(
    broker_setup: Start, programs: Programs, nngs: Nngs, any_url: str
) -> None:
    setup = broker_setup(any_url)
    worker = programs.stranger("memodb_worker", setup.workers, "default", "--name", "W")
    caller = nngs.dial(setup.callers)
    caller.send(job(b"one"))
    assert result_of(caller.recv()) == b"W did one"
    second = again(broker_setup, setup)
    caller.send(job(b"two"))
    assert result_of(caller.recv()) == b"W did two"
    worker.prints("disconnect")  # its RESULT came again, under an id that nobody knew
    worker.prints("ready again")
    assert count_workers(second) == 1


def test_workers_that_were_parked_with_a_ready_are_workers_of_the_next_broker(
    broker_setup: Start, nngs: Nngs, url: str
) -> None:
    setup = broker_setup(url)
    job_runner = nngs.work(setup.workers, 5)
    joined(setup, 5)
    second = again(broker_setup, setup)
    joined(second, 5)
    caller = nngs.dial(second.callers)
    caller.send(job(b"job"))
    assert result_of(caller.recv()) == b"did job"
    assert [kind for kind, _ in list(job_runner.heard.queue)] == [JOB]


def test_a_call_under_way_is_done_by_the_next_broker(broker_setup: Start, nngs: Nngs) -> None:
    """The first result of the job is dropped: its worker must start again, and the caller's NNG repeats the request."""
    setup = broker_setup(TCP)
    job_runner = nngs.work(setup.workers)
    caller = nngs.dial(setup.callers)
    caller.send(job(b"sleep 0.5 x"))
    until(lambda: job_runner.done, "it is at work")
    again(broker_setup, setup)
    assert result_of(caller.recv()) == b"did sleep 0.5 x"
    assert job_runner.done == [b"sleep 0.5 x"] * 2
    assert [kind for kind, _ in list(job_runner.heard.queue)[:3]] == [JOB, DISCONNECT, JOB]


def test_r64_a_connection_that_is_cut_in_mid_job_costs_nothing(broker_setup: Start, nngs: Nngs, url: str) -> None:
    setup = broker_setup(url)
    job_runner = nngs.work(setup.workers, 4)
    joined(setup, 4)
    callers = nngs.contexts(nngs.dial(setup.callers), 6)
    for number, caller in enumerate(callers):
        caller.send(job(b"sleep 0.4 %d" % number))
    until(lambda: len(job_runner.done) == 4, "all are at work, and two calls wait")
    for peer in setup.run(lambda: list(setup.runner.connections.peers)):
        setup.run(setup.runner.connections.close, peer, "the test wants it")
    for number, caller in enumerate(callers):
        assert result_of(caller.recv()) == b"did sleep 0.4 %d" % number
    assert len(job_runner.done) == len(set(job_runner.done)) == 6
    assert count_workers(setup) == 4


def test_a_worker_killed_in_mid_job_is_detached_and_then_lost(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?detach_timeout=0.6")
    doomed = programs.stranger("memodb_worker", setup.workers, "default")
    with Plain(setup.callers) as caller:
        caller.greeted().ask(job(b"sleep 60"))
        doomed.prints("job default sleep")
        assert count_workers(setup, BUSY) == 1
        doomed.kill()
        until(lambda: setup.journal.mentions("connection lost", "info"), "the broker has noticed")
        assert silent(setup) == {}
        until(lambda: silent(setup) == {"lost": 1}, "and given it up")
        assert count_workers(setup) == 0
        assert setup.counters.expired_workers == 1


def test_r9_with_attempts_left_the_killed_workers_job_goes_to_another(
    broker_setup: Start, programs: Programs, nngs: Nngs
) -> None:
    setup = broker_setup(f"{TCP}?detach_timeout=0.2&attempts=2")
    doomed = programs.stranger("memodb_worker", setup.workers, "default")
    caller = nngs.dial(setup.callers)
    caller.send(job(b"sleep 0.6"))
    doomed.prints("job default sleep")
    job_runner = nngs.work(setup.workers)
    joined(setup)
    doomed.kill()
    assert result_of(caller.recv()) == b"did sleep 0.6"
    assert job_runner.done == [b"sleep 0.6"]


def test_a_detached_worker_gets_nothing_and_is_forgotten_if_it_was_idle(
    broker_setup: Start, programs: Programs, nngs: Nngs
) -> None:
    setup = broker_setup(f"{TCP}?heartbeat_after=0.5&heartbeat_timeout=0.5&detach_timeout=1")
    doomed = programs.stranger("memodb_worker", setup.workers, "default")
    joined(setup)
    doomed.kill()
    until(lambda: setup.journal.mentions("connection lost", "info"), "the broker has noticed")
    assert count_workers(setup, DETACHED) == 1
    caller = nngs.dial(setup.callers)
    caller.send(job(b"job"))
    until(lambda: count_jobs(setup, WAITING) == 1, "the job waits")
    until(lambda: count_workers(setup) == 0, "the worker is forgotten")
    nngs.work(setup.workers)
    assert result_of(caller.recv()) == b"did job"


def test_connections_that_are_cut_all_the_time_cost_no_call_and_double_none(broker_setup: Start, nngs: Nngs) -> None:
    setup = broker_setup(f"{TCP}?detach_timeout=10")
    job_runner = nngs.work(setup.workers, 6, resend=100)
    joined(setup, 6)
    callers = nngs.contexts(nngs.dial(setup.callers, resend=100), 8)
    chance = random.Random(5)

    def cut() -> None:
        peers = list(setup.runner.connections.peers)
        if peers:
            setup.runner.connections.close(chance.choice(peers), "the test wants it")

    for turn in range(25):
        for number, caller in enumerate(callers):
            caller.send(job(b"sleep %.3f %d %d" % (chance.random() / 50, turn, number)))
            if chance.random() < 0.3:
                setup.run(cut)
        for number, caller in enumerate(callers):
            assert result_of(caller.recv()).endswith(b" %d %d" % (turn, number))
            if chance.random() < 0.2:
                setup.run(cut)
    assert len(job_runner.done) == len(set(job_runner.done)) == 200
    assert setup.counters.accepted == 200
    assert silent(setup) == {}


# -------------------------------------------------------------------- clients that come back, and strangers


class Relay:
    """A relay between libnng and the broker. It drops the first answer, and resets both sides."""

    def __init__(self, where: str) -> None:
        self.lost = 0
        self._where = where
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.where = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._live, name="relay")
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._stopped.close()
        self._listening.close()

    def _live(self) -> None:
        while self._listening in select.select([self._listening, self._stopped], [], [])[0]:
            with self._listening.accept()[0] as client, Raw(self._where) as broker:
                self._pass_on(client, broker)

    def _pass_on(self, client: socket.socket, broker: Raw) -> None:
        client.sendall(broker.take(8))
        while True:
            ready = select.select([client, broker.socket, self._stopped], [], [])[0]
            if self._stopped in ready:
                return
            if broker.socket in ready and not self.lost:
                self.lost += 1
                for each in (client, broker.socket):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                return
            for one, other in ((client, broker.socket), (broker.socket, client)):
                if one in ready:
                    data = one.recv(1 << 16)
                    if not data:
                        return
                    other.sendall(data)


def test_r63_the_answer_that_a_cut_has_lost_is_given_to_libnng_when_it_asks_again(
    broker_setup: Start, nngs: Nngs, loop_name: str
) -> None:
    setup = broker_setup(TCP, loop=loop_name)
    job_runner = nngs.work(setup.workers)
    joined(setup)
    with Relay(setup.callers) as relay:
        caller = nngs.dial(relay.where)
        caller.send(job(b"once"))
        assert result_of(caller.recv()) == b"did once"
        assert relay.lost == 1
        caller.close()
    assert job_runner.done == [b"once"]
    assert setup.counters.replayed_answers == 1


@pytest.mark.parametrize("is_closed", [True, False], ids=["it has gone", "it is still there"])
def test_r63_the_answer_of_a_libnng_is_not_given_to_a_stranger(
    broker_setup: Start, nngs: Nngs, loop_name: str, url: str, is_closed: bool
) -> None:
    """Another connection of the same address with the same request id and message was given the kept answer."""
    setup = broker_setup(url, loop=loop_name)
    job_runner = nngs.work(setup.workers)
    joined(setup)
    heard = tap(setup, JOB)
    caller = nngs.dial(setup.callers)
    caller.send(job(b"mine"))
    assert result_of(caller.recv()) == b"did mine"
    if is_closed:
        caller.close()
        until(lambda: len(setup.runner.connections.peers) == 1, "the caller's connection has ended")
    with Plain(setup.callers).greeted() as stranger:
        stranger.ask(job(b"mine"), heard[0])
        assert result_of(stranger.answer()[1]) == b"did mine"
    assert job_runner.done == [b"mine", b"mine"]
    assert setup.counters.replayed_answers == 0


def test_r63_an_answer_that_was_not_read_is_kept_for_its_process_only(
    broker_setup: Start, nngs: Nngs, loop_name: str, free_path: Path
) -> None:
    setup = broker_setup(f"memodb+ipc://{free_path}", loop=loop_name)
    job_runner = nngs.work(setup.workers)
    joined(setup)
    session = setup.runner.sessions[0]
    with Plain(setup.callers).greeted() as caller:
        request = caller.ask(job(b"mine"))
        until(lambda: session._callers.answers.bytes, "it is answered")
        until(lambda: caller.socket.recv(1, socket.MSG_PEEK), "the answer is there")
    until(lambda: len(setup.runner.connections.peers) == 1, "the caller's connection has ended")
    body = request + job(b"mine")
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1]);"
        "s.sendall(bytes.fromhex(sys.argv[2])); s.recv(8, socket.MSG_WAITALL); s.recv(1)"
    )
    said = b"\0SP\0\0\x30\0\0\x01" + len(body).to_bytes(8, "big") + body
    subprocess.run([sys.executable, "-c", program, str(free_path), said.hex()], check=True, timeout=PATIENCE)
    assert (job_runner.done, setup.counters.replayed_answers) == ([b"mine", b"mine"], 0)
    with Plain(setup.callers).greeted() as caller:
        caller.ask(job(b"mine"), request)
        assert result_of(caller.answer()[1]) == b"did mine"
    assert (job_runner.done, setup.counters.replayed_answers) == ([b"mine", b"mine"], 1)


def test_large_jobs_under_one_request_id_each_get_their_own_answer(broker_setup: Start, nngs: Nngs) -> None:
    """Of a message over 16 KiB only samples were compared, and this one's answer was given to that one."""
    setup = broker_setup(TCP)
    job_runner = nngs.work(setup.workers)
    joined(setup)
    payload = bytearray(MIB)
    for at in (5_000, 300_000, MIB - 5_000):
        payload[at] = 1
        caller = Plain(setup.callers).greeted()
        caller.ask(job(bytes(payload)), b"\x80\0\0\x01")
        assert result_of(caller.answer()[1]) == b"did " + payload
        caller.reset()
    assert len(job_runner.done) == 3

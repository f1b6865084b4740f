"""A real `dragoman serve` with third-party programs: PingPong workers and clients on libzmq, written from the document
alone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import zmq
from broker_setup import Raw, Visitors

from programs import Broker, Program, Programs, until

MIB = 1 << 20
both_loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


def ask(caller: zmq.Socket, job: bytes) -> None:
    caller.send_multipart([b"", job])


def answer(caller: zmq.Socket) -> bytes:
    """Return the result, or `ERROR reason`."""
    frames = caller.recv_multipart()
    assert frames[0] == b""
    if len(frames) == 2:
        return frames[1]
    assert frames[1:3] == [b"", b"ERROR"]
    return b"ERROR " + frames[3]


def worker(programs: Programs, broker: Broker, *words: object, kind: str = "worker") -> Program:
    """Start a third-party worker, and wait until it has joined."""
    known = broker.err.count("worker joined")
    started = programs.stranger(f"pingpong_{kind}", broker.workers, *words)
    until(lambda: broker.err.count("worker joined") > known, "the worker has joined")
    return started


# -------------------------------------------------------------------- calls are answered


@both_loops
def test_a_strangers_calls_are_answered_by_a_stranger(programs: Programs, loop: str) -> None:
    broker = programs.broker("", "--loop", loop)
    worker(programs, broker, "--name", "W")
    client = programs.stranger("pingpong_client", broker.callers, "one", "two", "three")
    assert client.ends() == 0
    assert [line for line in client.out.splitlines() if line.startswith("answer")] == [
        "answer W did one",
        "answer W did two",
        "answer W did three",
    ]


@both_loops
def test_a_threaded_stranger_that_pings_while_it_works_is_given_one_job_at_a_time(
    programs: Programs, visitors: Visitors, loop: str
) -> None:
    """D1, R32: to the letter of the first text its PINGs would bring it a second job."""
    broker = programs.broker("", "--loop", loop)
    threaded = worker(programs, broker, "--ping", 0.02, kind="threaded_worker")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    for number in range(3):
        ask(caller, b"sleep 0.3 %d" % number)
    threaded.prints("job sleep 0.3 0")
    threaded.prints("pong", times=5)
    assert "job sleep 0.3 1" not in threaded.out
    assert [answer(caller) for _ in range(3)] == [b"threaded did sleep 0.3 %d" % number for number in range(3)]


def test_a_stranger_of_edition_package_sends_the_envelope_back(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("edition=package")
    package = worker(programs, broker, kind="package_worker")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    for job in (b"one", b"PONG", b"EXIT", b""):
        ask(caller, job)
        assert answer(caller) == b"package did " + job
    package.prints("job one 4")


def test_a_stranger_of_edition_package_that_repeats_ready_while_it_works_ends_its_job(
    programs: Programs, visitors: Visitors
) -> None:
    """Its third READY comes more than a second after the job. The job ended failed, and its result was dropped."""
    broker = programs.broker("edition=package")
    package = worker(programs, broker, kind="package_threads_worker")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"wait for 4 READY")
    ask(caller, b"next")
    assert answer(caller) == b"package did wait for 4 READY"
    assert answer(caller) == b"package did next"
    package.prints("done")


def test_a_stranger_of_edition_package_says_disconnect_and_leaves(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("edition=package")
    package = worker(programs, broker, kind="package_worker")
    package.terminate()
    assert package.ends() == 0
    broker.prints("sent DISCONNECT")


def test_calls_are_answered_over_unix_sockets(programs: Programs, visitors: Visitors, tmp_path: Path) -> None:
    frontend = f"ipc://{tmp_path}/f".replace(":", "%3A").replace("/", "%2F")
    broker = programs.broker(url=f"pingpong+ipc://{tmp_path}/b?frontend={frontend}")
    worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"job")
    assert answer(caller) == b"W did job"


def test_large_jobs_and_results_pass(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker()
    worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    big = b"b" * (4 * MIB)
    ask(caller, big)
    assert answer(caller) == b"W did " + big


def test_r16_what_is_over_max_payload_is_refused_one_way_and_failed_the_other(
    programs: Programs, visitors: Visitors
) -> None:
    broker = programs.broker("max_payload=1MiB")
    worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"x" * (2 * MIB))
    assert answer(caller).startswith(b"ERROR refused: payload of 2097152 bytes")
    ask(caller, b"size %d" % (2 * MIB))
    assert answer(caller).startswith(b"ERROR failed: its result of 2097152 bytes is over max_payload")
    ask(caller, b"next")
    assert answer(caller) == b"W did next"


def test_r47_a_strangers_ping_counts_come_back(programs: Programs) -> None:
    broker = programs.broker()
    counting = worker(programs, broker, "--count", "--ping", 0.05)
    counting.prints(r"pong 1\b")
    counting.prints(r"pong 2\b")


def test_d7_two_strangers_share_the_load(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker()
    for name in ("A", "B"):
        worker(programs, broker, "--name", name)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    for number in range(6):
        ask(caller, b"sleep 0.1 %d" % number)
    answers = [answer(caller) for _ in range(6)]
    assert sorted(each[:1] for each in answers) == [b"A", b"A", b"A", b"B", b"B", b"B"]


def test_a_caller_may_come_before_the_first_worker(programs: Programs) -> None:
    broker = programs.broker()
    client = programs.stranger("pingpong_client", broker.callers, "early")
    client.prints("sent early")
    worker(programs, broker, "--name", "W")
    assert client.ends() == 0
    assert "answer W did early" in client.out


def test_r45_a_job_that_a_plain_worker_would_misread_is_never_sent(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker()
    stranger = worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"EXIT")
    assert answer(caller).startswith(b"ERROR failed: reserved word")
    ask(caller, b"next")
    assert answer(caller) == b"W did next"
    assert "exit" not in stranger.out


# -------------------------------------------------------------------- workers die, freeze, are slow


@both_loops
def test_r41_when_a_busy_worker_is_killed_its_caller_is_told_at_once(
    programs: Programs, visitors: Visitors, loop: str
) -> None:
    broker = programs.broker("worker_expire=60", "--loop", loop)
    doomed = worker(programs, broker)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 60")
    doomed.prints("job sleep")
    doomed.kill()
    assert answer(caller) == b"ERROR lost: its worker's connection ended"


def test_r9_with_attempts_left_the_killed_workers_job_goes_to_another(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("attempts=2")
    first = worker(programs, broker, "--name", "A")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    gate = programs.folder / "gate"
    ask(caller, f"wait {gate}".encode())
    first.prints("job wait")
    worker(programs, broker, "--name", "B")
    first.kill()
    gate.touch()
    assert answer(caller) == f"B did wait {gate}".encode()


def test_r35_a_worker_that_restarts_under_its_routing_id_serves_again(programs: Programs, visitors: Visitors) -> None:
    """D3: the old process still holds its connection when the new one comes."""
    broker = programs.broker()
    former = worker(programs, broker, "--name", "A", "--identity", "w1")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 60")
    former.prints("job sleep")
    worker(programs, broker, "--name", "B", "--identity", "w1")
    assert answer(caller) == b"ERROR lost: its worker came back on a new connection"
    ask(caller, b"job")
    assert answer(caller) == b"B did job"


def test_r42_r36_a_slow_worker_is_given_the_next_job_once_its_late_result_has_come(
    programs: Programs, visitors: Visitors
) -> None:
    broker = programs.broker("job_timeout=0.3")
    worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 0.7 slow")
    assert answer(caller) == b"ERROR timed out: no result within 0.3 s"
    ask(caller, b"next")
    assert answer(caller) == b"W did next"


def test_r40_a_frozen_idle_worker_is_forgotten_and_comes_back(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("worker_expire=0.5&carrier_timeout=60")
    frozen = worker(programs, broker, "--name", "A", "--timeout", 60)
    frozen.stop()
    broker.prints("worker left")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"job")
    frozen.go_on()
    assert answer(caller) == b"A did job"


def test_d12_r41_a_frozen_busy_worker_is_noticed_by_the_carrier(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("carrier_ping=0.2&carrier_timeout=0.8")
    frozen = worker(programs, broker)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 60")
    frozen.prints("job sleep")
    frozen.stop()
    assert answer(caller).startswith(b"ERROR lost: ")


def test_d12_a_busy_worker_that_only_works_is_not_taken_for_dead(programs: Programs, visitors: Visitors) -> None:
    """libzmq answers the carrier's PING from its own thread while the application sleeps."""
    broker = programs.broker("carrier_ping=0.1&carrier_timeout=0.4&worker_expire=0.3")
    worker(programs, broker, "--name", "W")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 1.0")
    assert answer(caller) == b"W did sleep 1.0"


def test_r8_a_worker_that_died_while_the_broker_was_paused_costs_no_job(programs: Programs, visitors: Visitors) -> None:
    """Its end and the job are there in one turn: the job cannot have reached it."""
    broker = programs.broker("worker_expire=60")
    dead = worker(programs, broker, "--name", "A")
    worker(programs, broker, "--name", "B")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    did = b""
    while did != b"B did 1":  # B is idle a moment after A; from then on A has been idle for longest
        ask(caller, b"1")
        did = answer(caller)
    broker.stop()
    dead.kill()
    ask(caller, b"3")
    broker.go_on()
    assert answer(caller) == b"B did 3"


@both_loops
def test_r40_a_job_that_the_kernel_would_not_take_goes_to_another_worker(
    programs: Programs, visitors: Visitors, loop: str
) -> None:
    """R40, R8: bytes never handed to the kernel are *not started*. The write fails, because the worker was reset."""
    broker = programs.broker("worker_expire=60", "--loop", loop)
    with Raw(broker.workers) as doomed:
        doomed.greet().message(b"", b"READY")
        assert doomed.receive() == [b"", b"PONG"]
        worker(programs, broker, "--name", "B")
        caller = visitors.visit(zmq.DEALER, broker.callers)
        ask(caller, b"1")
        assert doomed.receive() == [b"", b"1"]
        ask(caller, b"2")
        assert answer(caller) == b"B did 2"  # as soon as B is idle
        doomed.message(b"", b"A did 1")
        assert answer(caller) == b"A did 1"
        ask(caller, b"3")
        assert answer(caller) == b"B did 3"  # from now on A has been idle for longest
        assert doomed.receive() == [b"", b"PONG"]
        broker.stop()
        ask(caller, b"4")
        until(lambda: not waits_in_the_kernel_no_more(broker), "the job has arrived")
        doomed.reset()
    broker.go_on()
    assert answer(caller) == b"B did 4"


def test_d13_a_pause_of_the_brokers_own_expires_nobody(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("worker_expire=0.5")
    worker(programs, broker, "--name", "W", "--timeout", 60)
    broker.stop()
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.7, "longer than the lease and than D13's second")
    broker.go_on()
    broker.prints("event loop stalled")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"job")
    assert answer(caller) == b"W did job"
    assert "worker left" not in broker.err


def test_r48_d6_a_peer_that_talks_rubbish_is_closed_and_harms_nobody(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker()
    worker(programs, broker, "--name", "W")
    rubbish = visitors.visit(zmq.DEALER, broker.workers)
    for _ in range(25):
        rubbish.send_multipart([b"no delimiter", b"PING"])
    broker.prints("bad message")
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"job")
    assert answer(caller) == b"W did job"


# -------------------------------------------------------------------- the broker stops and comes back


@both_loops
def test_sigterm_lets_the_running_job_end_and_refuses_new_ones(
    programs: Programs, visitors: Visitors, loop: str
) -> None:
    broker = programs.broker("", "--loop", loop)
    busy = worker(programs, broker, "--name", "W")
    running, waiting, late = (visitors.visit(zmq.DEALER, broker.callers) for _ in range(3))
    gate = programs.folder / "gate"
    ask(running, f"wait {gate}".encode())
    busy.prints("job wait")
    ask(waiting, b"waiting")
    until(lambda: waits_in_the_kernel_no_more(broker), "the broker has read the job")
    broker.terminate()
    assert answer(waiting) == b"ERROR refused: draining: the broker is about to stop"
    ask(late, b"late")
    assert answer(late) == b"ERROR refused: draining: the broker is about to stop"
    gate.touch()
    assert answer(running) == f"W did wait {gate}".encode()
    assert broker.ends() == 0


def waits_in_the_kernel_no_more(broker: Broker) -> bool:
    """Return whether the broker has read everything that was sent to its ports."""
    ports = {int(place.rpartition(":")[2]) for place in (broker.workers, broker.callers)}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        to_us, from_us = int(local.rpartition(":")[2], 16) in ports, int(remote.rpartition(":")[2], 16) in ports
        unsent, unread = (int(each, 16) for each in queues.split(":"))
        if (to_us and unread) or (from_us and unsent):
            return False
    return True


def test_an_idle_broker_stops_at_once_on_sigterm(programs: Programs) -> None:
    broker = programs.broker()
    worker(programs, broker)
    broker.terminate()
    assert broker.ends() == 0


def test_a_second_sigterm_stops_at_once_and_the_caller_is_told(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker()
    busy = worker(programs, broker)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 60")
    busy.prints("job sleep")
    broker.terminate()
    broker.prints("draining")
    broker.signal(signal.SIGINT)
    assert answer(caller).startswith(b"ERROR lost: the broker stopped")
    assert broker.ends() == 0


def test_when_the_time_for_draining_is_over_the_caller_is_told(programs: Programs, visitors: Visitors) -> None:
    broker = programs.broker("", "--drain-timeout", 0.3)
    busy = worker(programs, broker)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"sleep 60")
    busy.prints("job sleep")
    broker.terminate()
    assert answer(caller).startswith(b"ERROR lost: the broker stopped")
    assert broker.ends() == 0


def test_a_large_result_that_comes_while_the_broker_drains_arrives_whole(
    programs: Programs, visitors: Visitors
) -> None:
    """The last job ends, and with it the drain; its result is far more than the kernel takes at once."""
    broker = programs.broker()
    busy = worker(programs, broker)
    caller = visitors.visit(zmq.DEALER, broker.callers)
    ask(caller, b"size %d" % (48 * MIB))
    busy.prints("job size")
    broker.terminate()
    assert len(answer(caller)) == 48 * MIB
    assert broker.ends() == 0


def test_a_stranger_finds_a_broker_that_was_killed_and_started_again(programs: Programs, visitors: Visitors) -> None:
    """The first text, Broker timeout: the worker reconnects, and sends READY again."""
    broker = programs.broker()
    stranger = worker(programs, broker, "--name", "W", "--timeout", 0.2)
    broker.kill()
    stranger.prints("broker is silent")
    port, frontend = (place.rpartition(":")[2] for place in (broker.workers, broker.callers))
    again = programs.broker(url=f"pingpong+tcp://127.0.0.1:{port}?frontend={frontend}")
    caller = visitors.visit(zmq.DEALER, again.callers)
    ask(caller, b"job")
    assert answer(caller) == b"W did job"

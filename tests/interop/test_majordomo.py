"""A whole broker with third-party programs that speak Majordomo: written from RFC 7, from RFC 18 for Node, and the
package majortomo, which interprets RFC 18 a little differently."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from broker_setup import MIB, BrokerSetup, Raw, Visitors
from node_packages import node_package

from dragoman.core.states import BUSY, IDLE, Outcome, WorkerState
from programs import PATIENCE, STRANGERS, Program, Programs, until

Start = Callable[..., BrokerSetup]

TCP = "majordomo+tcp://127.0.0.1:0"
PINGPONG = "pingpong+tcp://127.0.0.1:0?frontend=0&service=echo"


@pytest.fixture(params=["tcp", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return TCP if request.param == "tcp" else f"majordomo+ipc://{tmp_path}/m"


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    """The folder of Node's package `zeromq`."""
    return node_package(Path(request.config.cache.mkdir("majordomo-node")), "zeromq@6")


def workers(setup: BrokerSetup, state: WorkerState | None = None) -> int:
    def count() -> int:
        return sum(state is None or worker.state is state for worker in setup.broker.worker_registry.workers.values())

    return int(setup.run(count))


def known(setup: BrokerSetup, start: Callable[[], Program]) -> Program:
    """Start a worker, and wait until it has joined."""

    def joins() -> int:
        return sum(event == "worker joined" for _, event, _ in list(setup.journal.lines))

    before = joins()
    program = start()
    until(lambda: joins() > before or program.process.poll() is not None, "it has said READY")
    assert program.process.poll() is None, program.err
    return program


def rfc7_worker(programs: Programs, setup: BrokerSetup, name: str = "W", *words: object) -> Program:
    return known(setup, lambda: programs.stranger("majordomo_worker", setup.workers, "echo", "--name", name, *words))


def majortomo(programs: Programs, where: str, *words: object) -> Program:
    return programs.start(sys.executable, "-m", "majortomo.echo", "-b", where, "-n", "echo", *words)


def majortomo_worker(programs: Programs, setup: BrokerSetup) -> Program:
    return known(setup, lambda: majortomo(programs, setup.workers, "worker", "-i", 0.2))


def node(programs: Programs, node_modules: Path, script: str, *words: object) -> Program:
    return programs.start("node", STRANGERS / f"{script}.js", *words, NODE_PATH=str(node_modules))


def node_worker(programs: Programs, setup: BrokerSetup, node_modules: Path) -> Program:
    return known(setup, lambda: node(programs, node_modules, "majordomo_worker", setup.workers, "echo", "N"))


def rfc7_call(programs: Programs, where: str, *jobs: str) -> list[str]:
    client = programs.stranger("majordomo_client", where, "echo", *jobs)
    assert client.ends() == 0, client.out + client.err
    return [line.removeprefix("answer ") for line in client.out.splitlines() if line.startswith("answer")]


def majortomo_call(programs: Programs, where: str, job: str) -> str:
    client = majortomo(programs, where, "client", "-m", job, "-d", 0, "-t", PATIENCE)
    assert client.ends() == 0, client.out + client.err
    return client.prints(r"Got response: (\[.*\])")


def node_call(programs: Programs, node_modules: Path, where: str, *jobs: str) -> list[str]:
    client = node(programs, node_modules, "majordomo_client", where, "echo", *jobs)
    assert client.ends() == 0, client.out + client.err
    return client.out.splitlines()


# -------------------------------------------------------------------- strangers among themselves


def test_a_worker_and_a_client_written_from_rfc_7(broker_setup: Start, programs: Programs, url: str) -> None:
    setup = broker_setup(url)
    rfc7_worker(programs, setup)
    assert rfc7_call(programs, setup.callers, "one", "a|b||c", "") == ["W did|one", "W did|a|b||c", "W did|"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_majortomos_own_worker_and_client(broker_setup: Start, programs: Programs, loop: str) -> None:
    setup = broker_setup(TCP, loop=loop)
    worker = majortomo_worker(programs, setup)
    assert majortomo_call(programs, setup.callers, "hello") == "[b'hello']"
    worker.terminate()
    until(lambda: workers(setup) == 0, "it said DISCONNECT")


def test_a_worker_and_a_client_for_node_written_from_rfc_18(
    broker_setup: Start, programs: Programs, node_modules: Path
) -> None:
    setup = broker_setup(f"{TCP}?heartbeat=0.1&liveness=100")
    worker = node_worker(programs, setup, node_modules)
    told = node_call(programs, node_modules, setup.callers, "one", "a|b")
    assert told == ["part one", "final N did it", "part a", "part b", "final N did it"]
    worker.prints("heartbeat", times=3)
    assert workers(setup, IDLE) == 1
    assert setup.counters.dropped_parts == 0


def test_clients_of_all_editions_and_workers_of_all_editions(
    broker_setup: Start, programs: Programs, node_modules: Path
) -> None:
    setup = broker_setup(TCP)
    where = setup.callers
    first = rfc7_worker(programs, setup)
    assert majortomo_call(programs, where, "x") == "[b'W did', b'x']"
    assert node_call(programs, node_modules, where, "y|z") == ["final W did|y|z"]
    first.kill()
    second = majortomo_worker(programs, setup)
    assert rfc7_call(programs, where, "a|b") == ["a|b"]
    assert node_call(programs, node_modules, where, "y|z") == ["final y|z"]
    second.kill()
    until(lambda: workers(setup) == 0, "both are gone")
    node_worker(programs, setup, node_modules)
    assert majortomo_call(programs, where, "x") == "[b'x', b'N did it']"
    assert rfc7_call(programs, where, "x") == ["xN did it"]
    assert setup.counters.dropped_parts == 0
    assert not setup.counters.bad_messages


def test_mmi_service_tells_a_strangers_client(broker_setup: Start, programs: Programs, visitors: Visitors) -> None:
    setup = broker_setup(TCP)
    client = visitors.visit(zmq.REQ, setup.callers)
    for expected in (b"404", b"200"):
        client.send_multipart([b"MDPC01", b"mmi.service", b"echo"])
        assert client.recv_multipart() == [b"MDPC01", b"mmi.service", expected]
        if expected == b"404":
            rfc7_worker(programs, setup)
    client.send_multipart([b"MDPC01", b"mmi.nonsense", b"echo"])
    assert client.recv_multipart()[-1] == b"501"


# -------------------------------------------------------------------- several dialects in one broker


def test_a_majordomo_caller_is_served_by_a_pingpong_worker(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP, PINGPONG)
    programs.stranger("pingpong_worker", setup.places[1]["workers"], "--name", "P")
    assert rfc7_call(programs, setup.callers, "one", "two |frames") == ["P did one", "P did two frames"]
    assert majortomo_call(programs, setup.callers, "x") == "[b'P did x']"


def test_a_pingpong_caller_is_served_by_majordomo_workers(
    broker_setup: Start, programs: Programs, node_modules: Path
) -> None:
    setup = broker_setup(TCP, PINGPONG)
    first = rfc7_worker(programs, setup)
    client = programs.stranger("pingpong_client", setup.places[1]["callers"], "one", "two")
    assert client.ends() == 0, client.err
    assert [line for line in client.out.splitlines() if line.startswith("answer")] == [
        "answer W didone",
        "answer W didtwo",
    ]
    first.kill()
    node_worker(programs, setup, node_modules)
    client = programs.stranger("pingpong_client", setup.places[1]["callers"], "three")
    assert client.ends() == 0, client.err
    assert "answer threeN did it" in client.out


# -------------------------------------------------------------------- workers come, die, freeze and come back


def test_a_worker_hears_heartbeats_idle_and_stays(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?heartbeat=0.05&liveness=200")
    worker = rfc7_worker(programs, setup, "W", "--heartbeat", 0.05, "--liveness", 200)
    worker.prints("heartbeat", times=8)
    assert workers(setup, IDLE) == 1


def test_d5_a_worker_that_is_silent_while_it_works_is_waited_for(broker_setup: Start, programs: Programs) -> None:
    """Its lease would have run out several times."""
    setup = broker_setup(f"{TCP}?heartbeat=0.05&liveness=2")
    rfc7_worker(programs, setup, "W", "--heartbeat", 0.02, "--liveness", 1000)
    assert rfc7_call(programs, setup.callers, "sleep 0.5") == ["W did|sleep 0.5"]


def test_d12_a_worker_frozen_with_its_job_is_lost_by_the_carriers_ping(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?carrier_ping=0.1&carrier_timeout=0.4")
    frozen = rfc7_worker(programs, setup)
    programs.stranger("majordomo_client", setup.callers, "echo", "sleep 30")
    frozen.prints("job sleep")
    frozen.stop()
    until(lambda: setup.counters.ended[Outcome.LOST] == 1, "its job is lost")
    assert setup.counters.unreported_outcomes == {Outcome.LOST: 1}


def test_a_worker_killed_with_its_job_is_lost_at_once_and_the_next_call_is_served(
    broker_setup: Start, programs: Programs
) -> None:
    setup = broker_setup(TCP)
    killed = rfc7_worker(programs, setup, "A")
    waiting = programs.stranger("majordomo_client", setup.callers, "echo", "sleep 30", "--timeout", 1)
    killed.prints("job sleep")
    killed.kill()
    until(lambda: setup.counters.ended[Outcome.LOST] == 1, "its job is lost")
    rfc7_worker(programs, setup, "B")
    assert rfc7_call(programs, setup.callers, "next") == ["B did|next"]
    assert waiting.ends() == 1
    assert "gave up sleep 30" in waiting.out


def test_d8_with_attempts_another_worker_does_the_job_of_one_that_was_killed(
    broker_setup: Start, programs: Programs
) -> None:
    setup = broker_setup(f"{TCP}?attempts=3")
    killed = rfc7_worker(programs, setup, "A")
    gate = programs.folder / "gate"
    waiting = programs.stranger("majordomo_client", setup.callers, "echo", f"wait {gate}")
    killed.prints("job wait")
    rfc7_worker(programs, setup, "B")
    killed.kill()
    gate.touch()
    assert waiting.ends() == 0
    assert f"answer B did|wait {gate}" in waiting.out


def test_a_worker_frozen_while_idle_is_told_disconnect_and_comes_back(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?heartbeat=0.2&liveness=3")
    frozen = rfc7_worker(programs, setup, "W", "--heartbeat", 0.1, "--liveness", 1000)
    frozen.stop()
    until(lambda: workers(setup) == 0, "its lease is over")
    frozen.go_on()
    frozen.prints("disconnect")
    assert rfc7_call(programs, setup.callers, "one") == ["W did|one"]


def test_a_late_reply_is_dropped_and_its_worker_goes_on(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?job_timeout=0.2")
    worker = rfc7_worker(programs, setup)
    slow = programs.stranger("majordomo_client", setup.callers, "echo", "sleep 0.5", "--timeout", 0.8)
    worker.prints("job sleep")
    until(lambda: setup.counters.late_results == 1, "its reply came late")
    assert rfc7_call(programs, setup.callers, "fast") == ["W did|fast"]
    assert slow.ends() == 1
    assert workers(setup) == 1


def test_workers_come_back_to_a_broker_that_was_started_again(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(TCP)
    port = setup.workers.rpartition(":")[2]
    worker = rfc7_worker(programs, setup, "W", "--heartbeat", 0.2, "--liveness", 1000)
    setup.close()
    again = broker_setup(f"majordomo+tcp://127.0.0.1:{port}")
    worker.prints("disconnect")  # for its first HEARTBEAT there
    assert rfc7_call(programs, again.callers, "one") == ["W did|one"]


def test_d3_two_workers_of_one_routing_id_fight_over_it_and_harm_nobody_else(
    broker_setup: Start, programs: Programs
) -> None:
    """libzmq connects again by itself, so each takes the name from the other for ever."""
    setup = broker_setup(TCP)
    one = rfc7_worker(programs, setup, "A", "--id", "same", "--heartbeat", 0.1)
    two = programs.stranger(
        "majordomo_worker", setup.workers, "echo", "--name", "B", "--id", "same", "--heartbeat", 0.1
    )
    until(lambda: setup.counters.takeovers >= 3, "they have fought")
    assert setup.journal.mentions("routing id taken over")
    assert workers(setup) <= 1
    one.kill()
    assert rfc7_call(programs, setup.callers, "peace")[0].startswith("B did")
    two.kill()


# -------------------------------------------------------------------- strangers of another kind


def test_garbage_harms_nobody_else(broker_setup: Start, programs: Programs) -> None:
    setup = broker_setup(f"{TCP}?max_payload=100000")
    rfc7_worker(programs, setup)
    for _ in range(10):
        with Raw(setup.workers) as raw:
            raw.greet(b"DEALER")
            raw.message(b"", b"nonsense")
            raw.message(b"", b"MDPW01", b"\x01")
            assert raw.receive() == [b"", b"MDPW01", b"\x05"]
            raw.message(b"", b"MDPW01", b"\x07", b"x")
            raw.message(b"", b"MDPW01", b"\x01", b"echo2")
            raw.message(b"", b"MDPW01", b"\x03", b"t" * 16, b"", bytes(200_000))
            assert raw.receive() == [b"", b"MDPW01", b"\x05"]
            raw.say(b"\xff\xff\xff")
        with Raw(setup.workers) as client:
            client.greet(b"REQ")
            client.message(b"", b"MDPC01", b"echo", bytes(200_000))
            client.message(b"", b"MDPC01", b"echo", *[b"x"] * 60)
            client.message(b"", b"MDPC01", b"mmi.service", b"echo")
            assert client.receive()[-1] == b"200"
        with Raw(setup.workers) as noise:
            noise.say(b"GET / HTTP/1.1\r\n\r\n")
    assert rfc7_call(programs, setup.callers, "fine") == ["W did|fine"]
    assert setup.bad("unknown header", "majordomo") == 10
    assert setup.bad("too large", "majordomo") == 20
    assert workers(setup) == 1


def test_r17_a_client_that_never_reads_is_disconnected_and_others_are_served(
    broker_setup: Start, programs: Programs
) -> None:
    setup = broker_setup(f"{TCP}?max_send_buffer=100000&carrier_ping=14")
    rfc7_worker(programs, setup)
    with Raw(setup.workers, receive_buffer=4096) as deaf:
        deaf.greet(b"DEALER")
        with suppress(ConnectionError):  # it may be hung up on while it sends
            for _ in range(100):
                deaf.message(b"", b"MDPC01", b"echo", bytes(200_000))
                if setup.counters.connections_closed_slow:
                    break
        until(lambda: setup.counters.connections_closed_slow == 1, "it was hung up on")
    assert rfc7_call(programs, setup.callers, "fine") == ["W did|fine"]


def test_a_job_that_a_frozen_worker_never_took_in_goes_to_another(
    broker_setup: Start, programs: Programs, visitors: Visitors
) -> None:
    """R8: its bytes never left us whole."""
    setup = broker_setup(TCP)
    with Raw(setup.workers, receive_buffer=4096) as deaf:
        deaf.greet(b"DEALER")
        deaf.message(b"", b"MDPW01", b"\x01", b"echo")
        until(lambda: workers(setup, IDLE) == 1, "it has said READY")
        client = visitors.visit(zmq.REQ, setup.callers)
        client.send_multipart([b"MDPC01", b"echo", b"x", bytes(20 * MIB)])
        until(lambda: workers(setup, BUSY) == 1, "it was given the job")
        rfc7_worker(programs, setup)
        deaf.reset()
    assert client.recv_multipart() == [b"MDPC01", b"echo", b"W did", b"x", bytes(20 * MIB)]

"""Connections that end, workers that are removed, requests that are refused, and mmi services."""

from __future__ import annotations

from dragoman.core.states import Outcome

from .world import ECHO, RFC18, Speech, World, every

# -------------------------------------------------------------------- connections end


def test_a_busy_workers_connection_ends_and_its_job_is_lost() -> None:
    world = World()
    worker, client = world.busy()
    worker.cut()
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_r8_a_job_that_never_left_us_goes_to_another_worker_and_costs_no_attempt() -> None:
    world = World()
    worker = world.worker()
    worker.stream.room = 0
    client = world.client()
    other = world.worker()
    worker.cut()
    assert other.words() == ["job"]
    other.reply(b"done")
    assert client.done(b"done")


def test_r18_a_waiting_job_of_a_client_that_has_gone_is_withdrawn() -> None:
    world = World()
    world.client().cut()
    assert world.ended == {"cancelled": 1}


def test_r19_a_running_job_of_a_client_that_has_gone_may_end() -> None:
    world = World()
    worker, client = world.busy()
    client.cut()
    assert world.state(worker) == "busy"
    worker.reply()
    assert world.state(worker) == "idle"
    assert world.counters.unclaimed_results == 1


def test_d3_a_routing_id_on_a_new_connection_ends_the_former_life_of_a_worker() -> None:
    world = World()
    worker = world.worker(identity=b"W")
    client = world.client()
    token = (worker.words(), worker.client)[1]
    again = world.worker(identity=b"W")
    assert worker.is_over
    assert world.ended == {"lost": 1}
    assert world.counters.takeovers == 1
    assert again.reply(client=token) == []
    assert world.counters.late_results == 1
    assert client.told() == []
    assert len(world.broker.worker_registry.workers) == 1


def test_d3_a_routing_id_on_a_new_connection_ends_the_former_life_of_a_client() -> None:
    world = World()
    first = world.connect(identity=b"C")
    first.call(b"job")
    second = world.connect(identity=b"C")
    assert first.is_over
    assert world.ended == {"cancelled": 1}
    second.cut()
    assert world.session.routing_ids.owners == {}


# -------------------------------------------------------------------- dismissed, refused, mmi


def test_a_drained_worker_gets_disconnect_behind_its_result() -> None:
    world = World()
    worker, client = world.busy()
    world.broker.availability.drain(world.worker_of(worker), world.now)
    world.run_once()
    assert worker.words() == []
    assert worker.reply(b"the last") == ["DISCONNECT"]
    assert client.done(b"the last")


def test_a_worker_that_an_operator_drained_stays_and_gets_nothing() -> None:
    """Told DISCONNECT, it was back at once and got the next job: RFC 7 has it so."""
    world = World()
    worker, client = world.busy()
    drained = world.worker_of(worker)
    assert drained.profile.comes_back
    world.broker.availability.drain(drained, world.now, stays=True)
    assert worker.reply(b"the last") == []
    assert client.done(b"the last")
    for _ in range(10):
        world.wait(2.5)
        assert set(worker.words()) <= {"HEARTBEAT"}
        worker.heartbeat()
    world.client(b"next")
    assert worker.words() == []
    assert world.worker_of(worker) is drained
    assert str(drained.state) == "draining"
    worker.cut()
    assert world.worker().words() == ["next"]


def test_a_killed_worker_gets_disconnect_at_once() -> None:
    world = World()
    worker, _ = world.busy()
    world.broker.availability.drain(world.worker_of(worker), world.now, at_once=True)
    world.run_once()
    assert worker.words() == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert worker.reply() == []
    assert world.counters.late_results == 1


def test_a_request_while_the_broker_drains_gets_silence() -> None:
    world = World()
    world.worker()
    world.broker.operator.close(world.now)
    world.client()
    assert world.counters.unreported_outcomes == {Outcome.REFUSED: 1}


def test_a_withdrawn_job_ends_in_silence_and_its_late_reply_proves_the_worker() -> None:
    world = World()
    worker, client = world.busy()
    world.broker.withdraw(world.job(), world.now)
    world.run_once()
    assert world.state(worker) == "stuck"
    worker.reply()
    assert world.state(worker) == "idle"
    assert client.told() == []
    assert world.counters.unreported_outcomes == {Outcome.CANCELLED: 1}


@every
def test_mmi_service_says_200_or_404(speech: Speech) -> None:
    world = World()
    worker = world.worker()
    client = world.connect(speech)
    mmi = b"mmi.service"
    assert client.call(b"echo", service=mmi) == [speech.answer(mmi, b"200")]
    for unknown in (b"ech", b"", b"\xff", b"x" * 5000, b"mmi.service"):
        assert client.call(unknown, service=mmi) == [speech.answer(mmi, b"404")]
    worker.cut()
    assert client.call(b"echo", service=mmi) == [speech.answer(mmi, b"404")]
    assert world.counters.accepted == 0


@every
def test_other_mmi_services_say_501(speech: Speech) -> None:
    world = World()
    client = world.connect(speech)
    for name in (b"mmi.echo", b"mmi.", b"mmi.service2"):
        assert client.call(b"x", service=name) == [speech.answer(name, b"501")]
    assert world.counters.accepted == 0


def test_a_busy_service_is_there() -> None:
    world = World()
    world.busy()
    client = world.connect(RFC18)
    assert client.call(ECHO, service=b"mmi.service") == [RFC18.answer(b"mmi.service", b"200")]


def test_late_replies_are_logged_once_a_second() -> None:
    world = World()
    worker, _ = world.busy()
    for _ in range(5):
        worker.reply()
    assert len(world.remarked("late result")) == 1
    world.wait(1)
    worker.reply()
    assert len(world.remarked("late result")) == 2

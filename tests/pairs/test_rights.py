"""Every caller × every worker with a right missing: each gets the refusal of its own dialect (R173, R174)."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from dragoman.carriers.zmtp import Zmtp
from dragoman.core.rights import ALL_RIGHTS, CALL, WORK, Rights
from dragoman.core.states import Outcome
from pairs import controller, majordomo, native
from pairs.asgi import one_world
from pairs.participants import Participants
from pairs.refused_workers import REFUSED_WORKERS
from pairs.test_pairs import CALLERS, PARTICIPANTS
from pairs.world import SERVICE, Connection, World

NO_CALL = Rights(call=("another",), work=("*",))
NO_WORK = Rights(call=("*",), work=("another",))


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_a_caller_without_the_right_is_refused_and_no_worker_gets_its_job(callers: Participants) -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            _set_rights(world, NO_CALL)
            caller, worker = callers.call(world), workers.worker(world)
            caller.submit(b"bonjour")
            if Outcome.REFUSED in callers.silent:
                assert caller.told() == []
                assert world.counters.unreported_outcomes == {Outcome.REFUSED: 1}
            else:
                assert caller.told() == [(Outcome.REFUSED, b"")]
            assert worker.jobs() == []
            assert (world.counters.refused, world.counters.accepted) == (1, 0)
            assert world.counters.rights_refused == {(CALL, callers.dialect): 1}
            _set_rights(world, ALL_RIGHTS)  # nothing else was missing
            caller.submit(b"bonsoir")
            assert worker.jobs() == [b"bonsoir"]

    check_every_row(check, [(each,) for each in PARTICIPANTS])


@pytest.mark.parametrize("callers", CALLERS, ids=str)
def test_a_worker_without_the_right_gets_no_job_of_any_caller(callers: Participants) -> None:
    def check(workers: Participants) -> None:
        with one_world() as world:
            _set_rights(world, NO_WORK)
            caller = callers.call(world)
            caller.submit(b"bonjour")
            caller.told()  # where jobs do not wait for a worker, it is refused
            REFUSED_WORKERS[workers.name](world)
            assert world.broker.worker_registry.workers == {}
            assert world.counters.dispatched == 0
            if workers.dialect != "http":
                assert world.counters.rights_refused[WORK, workers.dialect] >= 1
            _set_rights(world, ALL_RIGHTS)  # nothing else was missing
            worker = workers.worker(world)
            caller.submit(b"bonsoir")
            assert worker.jobs() in ([b"bonjour"], [b"bonsoir"])

    check_every_row(check, [(each,) for each in PARTICIPANTS])


def test_a_native_client_without_any_right_of_a_client_is_rejected_at_once() -> None:
    with one_world() as world:
        _set_rights(world, Rights(work=("*",)))
        connection = Connection(world, world.listener(native.URL, "both"), Zmtp("DEALER"))
        connection.say(native.HELLO + b"\x01\x01", b"{}")
        sentence = b"local may not call, see or administer any service"
        assert connection.take() == [[b"\x03" + native.HELLO, b"forbidden", sentence]]
        assert connection.is_cut
        assert world.counters.rights_refused == {(CALL, "native"): 1}
        assert world.counters.bad_messages == {}


@pytest.mark.parametrize("rights", [Rights(see=("a",)), Rights(administer=("a",)), Rights(call=("a",))])
def test_a_native_client_with_any_right_of_a_client_is_welcome(rights: Rights) -> None:
    with one_world() as world:
        _set_rights(world, rights)
        native.connect(world, b"\x01", {})  # it gets WELCOME


def test_a_service_that_a_client_may_not_call_is_not_found() -> None:
    with one_world() as world:
        _set_rights(world, NO_CALL)
        majordomo.Rfc7Worker(world)
        client = majordomo.connect(world)
        request = (b"", b"MDPC01", b"mmi.service")
        client.say(*request, SERVICE.encode())
        assert client.take() == [[*request, b"404"]]
        _set_rights(world, ALL_RIGHTS)
        client.say(*request, SERVICE.encode())
        assert client.take() == [[*request, b"200"]]


def test_a_controller_s_worker_that_lost_its_right_and_its_task_is_forgotten() -> None:
    """A bug: the worker joined again after a lost task, and the broker stopped if it was not allowed to."""
    with one_world() as world:
        worker, caller = controller.SeedWorker(world), native.NATIVE.call(world)
        caller.submit(b"bonjour")
        assert worker.jobs() == [b"bonjour"]
        _set_rights(world, NO_WORK)
        remote = world.broker.worker_registry.workers[next(iter(world.broker.worker_registry.workers))].remote
        world.listener(controller.URL, "workers").session._workers.lose_task(remote, "no result came", world.now)
        world.runner.run_once()
        assert caller.told() == [(Outcome.LOST, b"")]
        assert world.broker.worker_registry.workers == {}


def _set_rights(world: World, rights: Rights) -> None:
    """All connections of a world are the broker's own user, in every dialect."""
    world.broker.principals.local.rights = rights

"""No reference cycles: what a job, a caller or a worker leaves behind is freed at once, in every dialect.

R207. The broker runs the garbage collector rarely. A cycle would keep payloads and results for a long time, without a
count.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from case_tables import check_every_row
from dragoman.core.states import Outcome
from pairs.asgi import Exchange, one_world, settle
from pairs.http import OPTIONS
from pairs.participants import JOB_TIMEOUT, Participants
from pairs.test_pairs import CALLERS, PARTICIPANTS
from pairs.world import SERVICE, World

ROUNDS = 3
MARK = b"bonjour" * 1_000  # a payload that no other object equals


@contextmanager
def collecting_garbage() -> Iterator[list[object]]:
    """Turn the collector off, and return what it finds afterwards."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def no_garbage(found: list[object]) -> None:
    """Check that nothing of the broker is among the garbage, and no payload."""
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in found)
    names = [f"{name} x{count}" for name, count in kinds.items() if name.startswith(("dragoman.", "starlette."))]
    payloads = sum(isinstance(each, bytes | bytearray) and MARK in each for each in found)
    assert (names, payloads) == ([], 0)


# ---------------------------------------------------------------- jobs


def done(world: World, caller: Participants, worker: Participants) -> None:
    calls, works = caller.call(world), worker.worker(world)
    for _ in range(ROUNDS):
        calls.submit(MARK)
        assert works.jobs() == [MARK]
        works.finish(MARK)
        assert calls.told() == [(Outcome.DONE, MARK)]


def failed(world: World, caller: Participants, worker: Participants) -> None:
    calls, works = caller.call(world), worker.worker(world)
    calls.submit(MARK)
    assert works.jobs() == [MARK]
    works.fail()
    calls.told()


def lost(world: World, caller: Participants, worker: Participants) -> None:
    calls, works = caller.call(world), worker.worker(world)
    calls.submit(MARK)
    assert works.jobs() == [MARK]
    works.vanish()
    world.wait(1.0)
    calls.told()


def timed_out(world: World, caller: Participants, worker: Participants) -> None:
    calls, works = caller.call(world), worker.worker(world)
    calls.submit(MARK)
    assert works.jobs() == [MARK]
    world.wait(JOB_TIMEOUT + 1.0)
    calls.told()


def cancelled(world: World, caller: Participants, worker: Participants) -> None:
    calls, works = caller.call(world), worker.worker(world)
    calls.submit(MARK)
    assert works.jobs() == [MARK]
    world.broker.withdraw(world.only_job(), world.now)
    world.runner.run_once()
    calls.told()


def cut(world: World, caller: Participants, worker: Participants) -> None:
    """All connections end, and those of the broker with them."""
    calls, works = caller.call(world), worker.worker(world)
    calls.submit(MARK)
    assert works.jobs() == [MARK]
    for each in list(world.connections):
        if not each.is_cut:
            each.cut()
        del each._peer  # otherwise the test itself has a cycle: the peer has this end as its stream
    world.connections.clear()
    world.wait(1.0)


def test_no_job_leaves_a_reference_cycle() -> None:
    """A bug: a call over HTTP, its future and its outcome referred to each other, so that the result of every call was
    kept until a collection. After 5,000 calls of 1 MiB the broker had 5 GB."""

    def check(
        caller: Participants, worker: Participants, path: Callable[[World, Participants, Participants], None]
    ) -> None:
        with one_world(strict=False) as world:
            path(world, caller, worker)  # caches, and classes that are made on first use
        with one_world(strict=False) as world:
            with collecting_garbage() as found:
                path(world, caller, worker)
                settle(world)
            no_garbage(found)

    native = next(each for each in CALLERS if each.name == "native")
    rows = [(caller, native, path) for caller in CALLERS for path in (done, failed, lost, timed_out, cancelled, cut)]
    rows += [(native, worker, path) for worker in PARTICIPANTS for path in (done, lost, timed_out, cancelled, cut)]
    check_every_row(check, rows)


# ---------------------------------------------------------------- requests over HTTP


def ask(world: World, method: str, path: str, body: bytes = b"", **headers: str) -> Exchange:
    made = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
    return Exchange(world, method, path, body, made, OPTIONS)


def refused_call(world: World) -> None:
    assert ask(world, "POST", "/v1/call/nobody", MARK).status == 404


def call_that_hangs_up(world: World) -> None:
    call = ask(world, "POST", "/v1/call/nobody", MARK, Dragoman_Wait_For_Worker="true")
    call.hangup.happen()
    settle(world)


def refused_operations(world: World) -> None:
    for method, path, status in (
        ("GET", f"/v1/jobs/{32 * '0'}", 404),
        ("POST", f"/v1/jobs/{32 * '0'}/cancel", 404),
        ("GET", "/v1/jobs?state=none", 422),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/services", 405),
    ):
        assert ask(world, method, path, MARK if method == "POST" else b"").status == status, path


def views(world: World) -> None:
    for path in ("/v1/services", "/v1/workers", "/v1/jobs"):
        assert ask(world, "GET", path).status == 200


def worker_that_polls(world: World) -> None:
    joined = ask(world, "POST", "/v1/workers", json.dumps({"services": [SERVICE]}).encode())
    secret, path = json.loads(joined.content)["token"], joined.headers["location"]
    poll = ask(world, "POST", f"{path}/next", Dragoman_Worker_Token=secret)
    poll.hangup.happen()
    settle(world)
    assert ask(world, "POST", f"{path}/next?wait=0", Dragoman_Worker_Token=secret).status in (0, 204)
    world.wait(1.0)
    settle(world)
    assert ask(world, "DELETE", path, Dragoman_Worker_Token=secret).status == 204


def event_stream(world: World) -> None:
    stream = ask(world, "GET", "/v1/events")
    assert stream.status == 200
    stream.hangup.happen()
    settle(world)


def test_no_request_over_http_leaves_a_reference_cycle() -> None:
    """A bug: an error of an operation, its traceback and the request referred to each other, with the body."""

    def check(path: Callable[[World], None]) -> None:
        with one_world(strict=False) as world:
            path(world)
        with one_world(strict=False) as world:
            ask(world, "GET", "/v1/services")  # makes the application
            with collecting_garbage() as found:
                path(world)
                settle(world)
            no_garbage(found)

    rows = (refused_call, call_that_hangs_up, refused_operations, views, worker_that_polls, event_stream)
    check_every_row(check, [(path,) for path in rows])

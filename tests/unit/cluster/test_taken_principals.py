"""Jobs of other brokers do not use up the limits of their principal at the broker whose worker runs them (R187)."""

from __future__ import annotations

import pytest

from dragoman.core.model import Caller
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import ALL_RIGHTS, PrincipalLimits

from .world import Node, World


def joined(limits: PrincipalLimits) -> tuple[World, Node, Node]:
    """Return two brokers with this principal. Its jobs at `a` run at the worker of `b`."""
    world = World("a", "b")
    world.run(1.5)
    for node in world.nodes.values():
        node.broker.principals.apply({"web": (ALL_RIGHTS, limits)})
        node.side.notes.is_owner = lambda broker, now: broker == "a"
    world.run(15.0)  # shares are granted
    a, b = world.nodes["a"], world.nodes["b"]
    b.worker(capacity=10)
    world.run()
    return world, a, b


def test_limits_are_divided_into_equal_parts_until_shares_are_granted() -> None:
    world = World("a", "b", "c")
    for node in world.nodes.values():
        node.broker.principals.apply({"web": (ALL_RIGHTS, PrincipalLimits(30, 300, 3, None, 6.0, 9))})
    world.run(3.0)
    for node in world.nodes.values():
        web = node.broker.principals.named("web")
        assert (web.max_waiting, web.max_waiting_bytes, web.max_rate, web.max_peers) == (10, 100, 2.0, 3)
        assert web.max_running == 0


def call(node: Node, payload: bytes = b"x") -> bool:
    caller = Caller(node.local, Owner(node.broker.principals.named("web")))
    return node.broker.submit("s", payload, caller, JobOptions(waits=True), node.world.now) is not None


@pytest.mark.parametrize(
    "limits",
    [
        PrincipalLimits(max_running=4),
        PrincipalLimits(max_waiting=2),
        PrincipalLimits(max_waiting_bytes=2),
        PrincipalLimits(max_rate=4.0),
    ],
)
def test_job_of_another_broker_uses_up_no_limit_of_its_principal(limits: PrincipalLimits) -> None:
    """It was submitted again there under the account of the principal: it was answered *busy* if that had reached a
    limit, and otherwise took a submit, or a running job, from the principal's own callers there."""
    world, a, b = joined(limits)
    assert [call(b), call(b)] == [True, True]
    assert [call(a), call(a)] == [True, True]
    world.run()
    principal = b.broker.principals.named("web")
    assert (principal.running, principal.taken) == (2, 2)
    assert len(b.local.sent) == 4
    assert a.broker.counters.undone == b.broker.counters.undone
    for attempt in list(b.local.sent):
        b.finish(attempt)
    world.run()
    assert (principal.running, principal.taken, principal.waiting) == (0, 0, 0)
    assert [node.results for node in (a, b)] == [[("done", b"done")] * 2] * 2

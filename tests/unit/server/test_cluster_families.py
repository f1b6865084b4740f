"""Children of a job at other brokers of a cluster, and operations about a broker that the request names."""

from __future__ import annotations

from cluster_world import ShardTable, World, may

from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.schemas import ErrorView


def family() -> tuple[World, str, list[str]]:
    """A job of a that runs there, with a child at each of a, b and c. Returns the ids."""
    access = {"owner": may(call=("*",))}
    world = World("a", "b", "c", table=ShardTable("a", "b", "c"), access=access)
    parent = world.nodes["a"].enqueue()
    world.nodes["a"].worker("s")
    world.run()
    children = [world.nodes[name].enqueue("child", parent=parent) for name in "abc"]
    return world, parent, children


def test_the_view_of_a_job_has_its_children_at_all_brokers() -> None:
    world, parent, children = family()
    for name in "abc":
        view = world.nodes[name].ask("job", id=parent)
        assert view.broker == "a"
        assert {each.id: each.broker for each in view.children} == dict(zip(children, "abc", strict=True))
        assert view.more_children == 0
        assert not view.unanswered
    assert world.nodes["b"].ask("job", id=children[0]).children == []


def test_the_view_of_a_job_names_brokers_whose_children_are_missing() -> None:
    world, parent, children = family()
    world.freeze("c")
    view = world.nodes["a"].ask("job", id=parent)
    assert [each.id for each in view.children] == sorted(children[:2], reverse=True)
    assert view.unanswered == ["c"]


def test_children_that_a_principal_may_not_see_are_left_out() -> None:
    world, parent, _ = family()
    assert isinstance(world.nodes["b"].ask("job", id=parent, principal="owner"), ErrorView)
    world, _, _ = family()
    mine = world.nodes["a"].ask("enqueue", b"x", principal="owner", service="s")
    world.nodes["a"].worker("s")
    world.run()
    world.nodes["b"].enqueue("child", parent=mine.id)
    own = world.nodes["b"].ask("enqueue", b"x", principal="owner", service="child", parent=mine.id)
    view = world.nodes["c"].ask("job", id=mine.id, principal="owner")
    assert [(each.id, each.broker) for each in view.children] == [(own.id, "b")]


def test_a_job_that_was_not_started_has_no_children_and_nobody_is_asked() -> None:
    world = World("a", "b", table=ShardTable("a", "b"))
    id = world.nodes["a"].enqueue()
    world.freeze("b")
    view = world.nodes["a"].ask("job", id=id)
    assert (view.children, bool(view.unanswered)) == ([], False)


def test_jobs_are_listed_by_their_parent() -> None:
    world, parent, children = family()
    view = world.nodes["c"].ask("jobs", parent=parent)
    assert [each.id for each in view.jobs] == sorted(children, reverse=True)
    view = world.nodes["c"].ask("jobs", parent=parent, limit=2)
    assert (len(view.jobs), view.complete) == (2, False)
    assert world.nodes["c"].ask("jobs", parent=children[0]).jobs == []
    assert ListJobsRequest().parent is None


def test_a_broker_is_shown_by_its_name_at_any_broker() -> None:
    world = World("a", "b", table=ShardTable("a", "b"))
    for operation in ("broker", "listeners"):
        for name in (None, "a", "b"):  # each says that it runs without a server, as all do here
            answer = world.nodes["a"].ask(operation, broker=name)
            assert (answer.kind, "runs without a server" in answer.detail) == ("conflict", True)
        unknown = world.nodes["a"].ask(operation, broker="c")
        assert unknown.kind == "not found"
        assert unknown.detail == "no broker named 'c' is heard; those of the cluster that are: a, b"
    world.freeze("b")
    late = world.nodes["a"].begin("broker", broker="b")
    world.run_until(lambda: late.responses)
    assert late.responses[0].kind == "partitioned"
    assert "it may have executed" not in late.responses[0].detail

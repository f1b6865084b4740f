"""R200. Parent and children in the view of a job, for those who may see both."""

from __future__ import annotations

from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations.schemas import JobView

from .world import UNKNOWN, World

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TABLE = {
    "web": Rights(call=("mail",)),
    "pool": Rights(call=("print",), work=("mail",)),
    "thief": Rights(call=("print",)),
    "mailer": Rights(see=("mail",)),
    "viewer": Rights(see=("mail", "print")),
    "root": Rights(administer=("*",)),
}


def world_of_principals() -> World:
    world = World()
    world.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in TABLE.items()})
    return world


def seen(world: World, principal: str, id: str) -> JobView:
    world.act_as(principal)
    view = world.ask("job", id=id)
    assert isinstance(view, JobView), view
    return view


def test_view_has_the_latest_children_and_the_number_of_the_others() -> None:
    world = World()
    parent = world.enqueue()
    children = [world.enqueue("print", parent=parent) for _ in range(120)]
    view = world.ask("job", id=parent)
    assert [each.id for each in view.children] == children[:19:-1]
    assert view.more_children == 20
    first = view.children[0]
    assert (first.service, first.state, first.outcome, first.background) == ("print", "waiting", None, True)
    assert world.ask("job", id=children[0]).parent == parent
    assert world.ask("jobs", service="s").jobs[0].children == [], "a list of jobs does not list their children"


def test_ended_child_has_its_outcome() -> None:
    world = World()
    parent = world.enqueue("nobody")
    world.worker("print")
    child = world.enqueue("print", parent=parent)
    world.broker.succeed(world.attempt(child), b"", world.now)
    world.runner.run_once()
    (shown,) = world.ask("job", id=parent).children
    assert (shown.id, shown.state, shown.outcome) == (child, "ended", "done")


def test_unknown_parent_is_kept_as_it_was_given() -> None:
    world = World()
    assert world.ask("job", id=world.enqueue(parent=UNKNOWN)).parent == UNKNOWN


def test_traceparent_is_kept_and_an_invalid_one_is_ignored() -> None:
    world = World()
    assert world.ask("job", id=world.enqueue(traceparent=TRACE)).traceparent == TRACE
    assert world.ask("job", id=world.enqueue(traceparent="mine")).traceparent is None


def test_parent_and_children_are_shown_to_those_who_see_both() -> None:
    """The handler of a job of `web` submits with the key of its worker, `pool`."""
    world = world_of_principals()
    world.act_as("web")
    parent = world.enqueue("mail")
    world.act_as("pool")
    child = world.enqueue("print", parent=parent)
    assert seen(world, "pool", child).parent == parent, "it has named it itself"
    assert seen(world, "web", parent).children == [], "it may not see jobs of print"
    assert seen(world, "mailer", parent).children == []
    assert [each.id for each in seen(world, "viewer", parent).children] == [child]
    assert seen(world, "viewer", child).parent == parent
    assert [each.id for each in seen(world, "root", parent).children] == [child]
    world.broker.principals.apply({**dict.fromkeys(TABLE, (Rights(see=("print",)), NO_LIMITS))})
    assert seen(world, "mailer", child).parent is None, "it may see the child, and no job of mail"


def test_forged_parent_reveals_nothing() -> None:
    """`thief` names a job of `web` as the parent of its own: neither learns of the other's job."""
    world = world_of_principals()
    world.act_as("web")
    victim = world.enqueue("mail")
    world.act_as("thief")
    real, unknown = world.enqueue("print", parent=victim), world.enqueue("print", parent=UNKNOWN)
    assert seen(world, "thief", real).parent == victim
    assert seen(world, "thief", unknown).parent == UNKNOWN
    assert world.ask("why", id=real).why == world.ask("why", id=unknown).why
    assert seen(world, "web", victim).children == []
    assert seen(world, "web", victim).more_children == 0

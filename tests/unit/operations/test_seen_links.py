"""R147, R200. Links of a job to jobs that a principal may not see: it learns neither their ids nor their reasons."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.core.job_links import MOST_REASON
from dragoman.core.link_reasons import nameless, without_names
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.dashboard.pages import page_of
from dragoman.operations.schemas import ErrorView
from dragoman.server.dashboard_source import make_dashboard

from .world import READY, WALL, World

TABLE = {
    "web": Rights(call=("*",), work=("*",)),
    "guest": Rights(see=("open.*",), call=("open.*",)),
    "operator": Rights(administer=("open.*",)),
    "scraper": Rights(see=("*",)),
}
TEXT = "E: REASONMARK"
A, B = "0a" * 16, "0b" * 16


class LinkWorld(World):
    """`web` has a job of `secret.x` that failed, and jobs of `open.a` that came after it."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.job_registry.conversations.start()
        self.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in TABLE.items()})
        self.act_as("web")
        self.worker("secret.x")
        self.secret = self.enqueue("secret.x", attempts=1)
        self.first = self.enqueue("open.a", after=[self.secret], parent=self.secret)
        self.second = self.enqueue("open.a", after=[self.first])

    def fail(self) -> None:
        self.broker.fail(self.attempt(self.secret), TEXT, self.now)
        for _ in range(3):
            self.runner.run_once()
            self.wait(0.0)

    def as_(self, name: str, operation: str, /, **fields: Any) -> str:
        """The whole answer as text."""
        self.act_as(name)
        view = self.ask(operation, **fields)
        assert not isinstance(view, ErrorView), view
        return msgspec.json.encode(view).decode()

    def page(self, name: str, page: str) -> str:
        dashboard = make_dashboard(self.runner, self.operations, lambda: READY, lambda: WALL, lambda: self.now)
        principal = self.broker.principals.named(name)
        found = dashboard._pages.view(page_of(page), principal, self.now)
        return msgspec.json.encode(found).decode()

    def all_answers(self, name: str) -> dict[str, str]:
        answers = {
            f"{operation} {each}": self.as_(name, operation, id=each)
            for operation in ("job", "why", "ladder")
            for each in (self.first, self.second)
        }
        answers["jobs"] = self.as_(name, "jobs")
        answers["jobs by service"] = self.as_(name, "jobs", service="open.a", undone=True)
        answers |= {page: self.page(name, page) for page in (f"job/{self.first}", "service/open.a")}
        return answers


@pytest.mark.parametrize("name", ["guest", "operator"])
def test_no_answer_has_the_id_or_the_reason_of_a_predecessor_that_the_principal_may_not_see(name: str) -> None:
    """The reason of a cancelled job had the id and the failure of its predecessor, for everybody."""
    world = LinkWorld()
    found = {place: text for place, text in world.all_answers(name).items() if world.secret in text}
    assert found == {}, "while it waits"
    world.fail()
    answers = world.all_answers(name)
    found = {place: text for place, text in answers.items() if world.secret in text or "REASONMARK" in text}
    assert found == {}
    assert "a job that it comes after ended failed" in answers[f"why {world.first}"]
    assert "cancelled: a job that it comes after ended failed" in answers[f"ladder {world.first}"]
    chain = f"job {world.first}, which it comes after, ended cancelled: a job that it comes after ended failed"
    assert chain in answers[f"job {world.second}"], "it may see the first of the two"


@pytest.mark.parametrize("name", ["web", "scraper"])
def test_principals_that_may_see_the_predecessor_see_the_whole_reason(name: str) -> None:
    world = LinkWorld()
    world.fail()
    answers = world.all_answers(name)
    missing = [place for place, text in answers.items() if world.secret not in text and "service" not in place]
    assert missing == []
    assert f"job {world.secret}, which it comes after, ended failed: {TEXT}" in answers["jobs"]


def test_filter_by_reason_does_not_find_what_the_principal_may_not_see() -> None:
    world = LinkWorld()
    world.fail()
    found = {}
    for name in ("guest", "operator", "scraper"):
        world.act_as(name)
        found[name] = [len(world.ask("jobs", **{field: "reasonmark"}).jobs) for field in ("reason", "text")]
    assert found == {"guest": [0, 0], "operator": [0, 0], "scraper": [3, 3]}
    world.act_as("operator")
    assert world.ask("delete jobs", reason="REASONMARK", dry_run=True).of == 0


def test_job_that_waits_says_for_how_many_and_names_those_that_are_seen() -> None:
    world = LinkWorld()
    world.act_as("web")
    other = world.enqueue("open.b")
    both = world.enqueue("open.a", after=[world.secret, other])
    world.act_as("guest")
    assert world.ask("why", id=world.first).why == "It waits for one job."
    assert world.ask("why", id=both).why == f"It waits for 2 of 2 jobs: {other}, …."
    assert world.ask("job", id=both).after == [other]
    world.act_as("web")
    assert world.ask("why", id=both).why == f"It waits for 2 of 2 jobs: {world.secret}, {other}."


def test_children_are_those_whose_owner_has_a_right_over_the_service_of_the_parent() -> None:
    """A caller could name the job of another principal as parent, and its job then was among the children."""
    world = LinkWorld()
    world.act_as("guest")
    forged = world.enqueue("open.a", parent=world.secret)
    world.act_as("scraper")
    assert [each.id for each in world.ask("job", id=world.secret).children] == [world.first]
    assert forged not in [each.id for each in world.ask("jobs", parent=world.secret).jobs]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (f"job {A}, which it comes after, ended failed: x: y", "a job that it comes after ended failed"),
        (f"job {A} of group {B}, which it comes after, ended lost", "a job that it comes after ended lost"),
        (f"group {A}, which it comes after, has jobs that are not done", "a group that it comes after has jobs that "
         "are not done"),
        (f"jobs of group {A}, which it comes after, are not in the store any more", "jobs of a group that it comes "
         "after are not in the store any more"),
        (f"job {A}, which it comes after, is not in the store any more", "a job that it comes after is not in the "
         "store any more"),
        ("ValueError: job 12, which failed", "ValueError: job 12, which failed"),
    ],
)  # fmt: skip
def test_each_reason_that_names_a_predecessor_has_a_form_without_names(reason: str, shown: str) -> None:
    assert nameless(reason) == shown
    assert without_names(reason, lambda id: True) == reason


def test_shortened_reason_shows_no_part_of_a_name() -> None:
    whole = f"job {A}, which it comes after, ended cancelled: job {B[:9]}…"
    assert without_names(whole, lambda id: id.hex() == A) == f"job {A}, which it comes after, ended cancelled: …"
    assert len(whole) < MOST_REASON


def test_totals_of_a_worker_are_for_those_who_may_see_all_its_services() -> None:
    """A worker does not count its jobs by service, so its totals had jobs of services that were not to be seen."""
    world = LinkWorld()
    world.act_as("web")
    worker = world.worker("open.b", "secret.y", name="mixed")
    job = world.enqueue("secret.y")
    world.broker.fail(world.attempt(job), TEXT, world.now)
    found = {}
    for name in ("guest", "scraper", "web"):
        world.act_as(name)
        view = world.ask("worker", id=worker.id)
        found[name] = (view.services, view.done, view.undone)
    assert found == {
        "guest": (["open.b"], None, None),
        "scraper": (["open.b", "secret.y"], 0, 1),
        "web": (["open.b", "secret.y"], 0, 1),
    }

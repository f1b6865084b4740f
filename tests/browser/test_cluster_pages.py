"""The dashboard of a cluster in Chromium: any broker's pages show all brokers.

One test runs all rows, as in `test_browser_pages.py`. The last row kills a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from page_checks import WIDE, check_looks
from playwright.sync_api import Browser, ConsoleMessage, expect, sync_playwright
from test_browser_pages import LIGHT, PATIENCE_MS, chromium

from case_tables import check_every_row
from dragoman import Client
from e2e.cluster_members import PATIENCE, enqueue_at, initialise, start_members, start_nats, wait_for_balance
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
GONE = 30.0  # seconds after which a broker is gone: longer than its row of the test


class World:
    """Three brokers. The pages are those of eu1; the worker is at eu2, and so is the job that it runs."""

    def __init__(self, programs: Programs, nats: NatsServer, folder: Path, browser: Browser) -> None:
        initialise(programs, nats.url, shards=3)
        self.members = start_members(programs, nats, listeners=LISTENERS, adopt_after=GONE)
        wait_for_balance(self.members, shards=3)
        first, second, third = self.members
        self.folder = folder
        second.worker("waits", "waits", threads=3)
        for member in self.members:
            until(lambda member=member: member.offers("waits"), "the service is offered", PATIENCE)
        self.running = enqueue_at(second, "waits", str(folder).encode())
        self.waiting = enqueue_at(third, "nobody", b"x")
        with closing(Client(first.url)) as client:
            until(lambda: client.job(self.running).state == "running", "the job runs", PATIENCE)
            self.child = client.enqueue("nobody", b"x", parent=self.running)
            [self.worker] = client.workers()
            client.set_schedule("nightly", "nobody", every=3600.0)
        context = browser.new_context(viewport=WIDE)
        context.set_default_timeout(PATIENCE_MS)
        self.problems: list[str] = []
        self.page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} {message.location['url']}")

    def show(self, path: str) -> None:
        self.page.goto(f"{self.members[0].urls['http']}{path}")
        self.page.locator("main h1").wait_for()
        self.page.locator("#live[data-state=live]").wait_for()

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("main")).to_contain_text(text)


def overview_shows_all_brokers(world: World) -> None:
    world.show("/")
    world.sees("3 brokers")
    expect(world.page.locator(".tile", has_text="Running")).to_contain_text("1of 3 slots")
    expect(world.page.locator(".tile", has_text="Workers")).to_contain_text("11 idle")
    row = world.page.locator("tr", has_text="waits")
    expect(row).to_contain_text("eu2")
    expect(world.page.locator("#foot")).to_contain_text("eu1")
    world.sees("eu2: 1 worker of 'waits' joined")


def lists_name_the_broker_of_each_row(world: World) -> None:
    for path, text, broker in (
        ("/services", "waits", "eu2"),
        ("/workers", world.worker.name, "eu2"),
        ("/jobs", world.waiting[-4:], "eu3"),
        ("/schedules", "nightly", r"eu\d"),
    ):
        world.show(path)
        expect(world.page.locator("thead th", has_text="Broker").first).to_be_visible()
        expect(world.page.locator("tbody tr", has_text=text).first).to_contain_text(re.compile(broker))


def pages_of_things_at_other_brokers_are_live(world: World) -> None:
    world.show("/service/waits")
    world.sees("Its only worker is free.")
    world.show(f"/worker/{world.worker.id}")
    world.sees(re.compile("Broker *eu2"))
    world.sees("Jobs it holds1 of 3 slots")
    world.show(f"/job/{world.running}")
    world.sees(re.compile("Broker *eu2"))
    expect(world.page.locator("section", has=world.page.locator("h2", has_text="Children"))).to_contain_text("nobody")
    expect(world.page.locator("svg.ladder, .ladder svg").first).to_be_visible()
    expect(world.page.locator(".state").first).to_contain_text("running")
    (world.folder / "go").touch()
    expect(world.page.locator(".state").first).to_contain_text("done")


def broker_page_lists_all_and_shows_the_chosen_one(world: World) -> None:
    world.show("/broker")
    expect(world.page.locator("h1")).to_have_text("Broker eu1")
    table = world.page.locator("table.brokers")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(table.locator("tr.chosen")).to_contain_text("eu1")
    table.locator("tr", has_text="eu2").click()
    expect(world.page.locator("h1")).to_have_text("Broker eu2")
    port = world.members[1].urls["http"].rsplit(":", 1)[1]
    world.sees(f":{port}")
    expect(table.locator("tr.chosen")).to_contain_text("eu2")


def pages_fit_on_phones_and_in_both_themes(world: World) -> None:
    for path in ("/", "/services", "/broker?broker=eu2", f"/job/{world.running}"):
        check_looks(world.page, lambda path=path: world.show(path), lambda theme: None)


def no_page_had_an_error(world: World) -> None:
    assert world.problems == []


def broker_that_dies_is_named(world: World) -> None:
    world.show("/")
    world.members[2].program.kill()
    expect(world.page.locator("#banner")).to_contain_text("Broker eu3 does not answer.")
    world.sees("2 brokers")
    world.sees("eu3 does not answer")
    world.show("/broker")
    expect(world.page.locator("table.brokers tr", has_text="eu3")).to_contain_text("does not answer")
    world.show("/services")
    world.sees("eu3 does not answer")


SCENARIOS: list[Callable[[World], None]] = [
    overview_shows_all_brokers,
    lists_name_the_broker_of_each_row,
    pages_of_things_at_other_brokers_are_live,
    broker_page_lists_all_and_shows_the_chosen_one,
    pages_fit_on_phones_and_in_both_themes,
    no_page_had_an_error,
    broker_that_dies_is_named,
]


@pytest.fixture
def world(programs: Programs, tmp_path: Path) -> Iterator[World]:
    expect.set_options(timeout=PATIENCE_MS)
    nats = start_nats(tmp_path / "nats")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*LIGHT], timeout=PATIENCE_MS)
        try:
            yield World(programs, nats, tmp_path, browser)
        finally:
            browser.close()
            nats.kill()


def test_pages_of_a_cluster_in_a_browser(world: World) -> None:
    def check(name: str) -> None:
        [scenario] = [each for each in SCENARIOS if each.__name__ == name]
        scenario(world)

    check_every_row(check, [(each.__name__,) for each in SCENARIOS])

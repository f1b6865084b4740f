"""The frame of the dashboard in Chromium, and the pages Overview, Services and Service.

One test runs all rows, as in `test_browser_pages.py`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from page_checks import PHONE, WIDE, check_looks
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from test_browser_pages import LIGHT, PATIENCE_MS, chromium
from test_pages_of_lists import HttpWorker

from case_tables import check_every_row
from programs import Program, Programs

HOSTILE = """<img src=x onerror="document.title='owned'">"""
LONG = "x" * 126  # about the longest name, without a place to break it
# Counts the event streams of a page that are open, and the highest number at one time.
COUNT_STREAMS = """
    window.streams = {open: 0, most: 0};
    window.EventSource = class extends EventSource {
        constructor(url) { super(url); streams.open += 1; streams.most = Math.max(streams.most, streams.open); }
        close() { if (this.readyState !== 2 || !this.counted) streams.open -= 1; this.counted = true; super.close(); }
    };
"""
FOLLOW = """path => {
    const link = document.createElement('a');
    link.href = path;
    document.body.append(link);
    link.click();
    link.remove();
}"""
HIDE = """isHidden => {
    Object.defineProperty(document, 'hidden', {value: isHidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


class World:
    def __init__(self, programs: Programs, folder: Path, browser: Browser) -> None:
        self.programs = programs
        self.access = folder / "access"
        rights = {
            "ops": ("--call", "*", "--administer", "*"),
            "guest": ("--see", "open"),
            "other": ("--see", "nothing"),
        }
        self.tokens = {
            name: programs.run("token", "new", name, *words, "--access", self.access).out.strip()
            for name, words in rights.items()
        }
        urls = ("http://127.0.0.1:0", "http://127.0.0.1:0?auth=token", "http://127.0.0.1:0?max_streams=1")
        self.broker = self.serve(*urls)
        self.url = self.broker.prints(r"(http://\S+) +both")
        self.login_url = self.broker.prints(r"(http://\S+) +both", 2)
        self.crowded_url = self.broker.prints(r"(http://\S+) +both", 3)
        self.api = httpx2.Client(base_url=self.url, timeout=60)
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.problems: list[str] = []
        self.page = self.open()

    def serve(self, *urls: str) -> Program:
        words = ("--set", f"access={self.access}", "--data", "memory", "--log", "human")
        return self.programs.dragoman("serve", *urls, *words)

    def open(self, name: str = "") -> Page:
        """Open a tab of its own context, with the token of a principal. Its console is read."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        context = self.browser.new_context(viewport=WIDE, extra_http_headers=headers)
        self.contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} {message.location['url']}")

    def show(self, path: str, page: Page | None = None) -> Page:
        """Open a page of the dashboard, and wait until it has its data and is live."""
        page = page or self.page
        page.goto(f"{self.url}{path}")
        page.locator("main h1").wait_for()
        page.locator("#live[data-state=live]").wait_for()
        return page

    def visit(self, path: str) -> Page:
        """Open a page by a link within the dashboard: its scripts are not loaded again."""
        self.page.evaluate(FOLLOW, path)
        self.page.locator("main h1").wait_for()
        return self.page

    def enqueue(self, service: str, count: int = 1, **options: object) -> None:
        for _ in range(count):
            self.api.post("/v1/jobs", json={"service": service, "payload": "x", **options}).raise_for_status()

    def close(self) -> None:
        for each in self.contexts:
            each.close()
        self.api.close()


def waiting(service: str) -> str:
    """Return the path of the cell with the number of waiting jobs, in the table of services."""
    return f"tr[data-key='{service}'] td:nth-child(2)"


# -------------------------------------------------------------------- pages


def pages_open(world: World) -> None:
    """In both themes, wide and on a phone: no console messages, no sideways scrolling, all names and contrasts."""
    assert world.broker.out.startswith(f"Dashboard: {world.url}/\n")
    HttpWorker(world.api, "open")
    world.enqueue("open", 2)
    colors = {"light": "rgb(248, 248, 247)", "dark": "rgb(14, 16, 18)"}

    def open_page(path: str) -> None:
        world.show(path).locator("tr[data-href]").first.wait_for()

    def check(theme: str) -> None:
        assert world.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == colors[theme]
        assert world.problems == [], theme

    for path in ("/", "/?range=24h", "/services", "/service/open?range=1h"):
        check_looks(world.page, partial(open_page, path), check)


def values_move(world: World) -> None:
    world.enqueue("moving", 3)
    page = world.visit("/")
    cell = page.locator(waiting("moving"))
    expect(cell).to_have_text("3")
    worker = HttpWorker(world.api, "moving")
    for left in (2, 1):
        worker.done(worker.take())
        expect(cell).to_have_text(str(left))
    page.get_by_role("link", name="moving").first.click()
    page.wait_for_url("**/service/moving")
    page.get_by_text("1 job waits.").or_(page.get_by_text("the queue")).first.wait_for()
    worker.done(worker.take())
    expect(page.locator(".tile", has_text="Waiting").locator("b")).to_have_text("0")


def charts_show_values(world: World) -> None:
    page = world.visit("/service/open")
    charts = page.locator("[data-chart]")
    expect(charts).to_have_count(4)
    charts.first.hover()
    expect(page.locator(".chart .tip")).to_have_count(4)
    page.locator("h1").hover()
    expect(page.locator(".chart .tip")).to_have_count(0)
    page.get_by_role("button", name="as table").nth(1).click()
    expect(page.locator("dialog tbody tr")).to_have_count(150)
    page.get_by_role("button", name="Close").click()


def hostile_names(world: World) -> None:
    world.enqueue(HOSTILE, key=HOSTILE, attempts=1)
    worker = HttpWorker(world.api, HOSTILE)
    worker.fail(worker.take(), HOSTILE)
    world.enqueue(HOSTILE, key=f"{HOSTILE}2")
    [job] = world.api.get("/v1/jobs", params={"service": HOSTILE, "state": "ended"}).json()["jobs"]
    world.api.put(f"/v1/schedules/{quote(HOSTILE, safe='')}", json={"service": HOSTILE, "every": 3600})
    service = f"/service/{quote(HOSTILE, safe='')}"
    paths = ["/", "/services", service, "/workers", f"/worker/{worker.id}", "/jobs", f"/job/{job['id']}", "/quarantine"]
    for path in [*paths, "/schedules"]:
        page = world.visit(path)
        page.locator("main").get_by_text(HOSTILE).locator("visible=true").first.wait_for()
        assert page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0, path
        assert page.title() != "owned", path
    assert world.problems == []


def names_that_nobody_can_see(world: World) -> None:
    """A name of one space, the only one that is not refused, was shown as nothing, and could not be typed into a
    dialog."""
    for name, shown in {" ": r"\x20"}.items():
        world.enqueue(name)
        page = world.visit(f"/service/{quote(name, safe='')}")
        expect(page.locator("h1")).to_have_text(shown)
        expect(page.locator(".why")).to_contain_text("No worker offers")
        page.get_by_role("button", name="Purge …").click()
        expect(page.locator("dialog h2")).to_have_text(f"Cancel all jobs that wait for {shown}?")
        page.locator("dialog input").fill(shown)
        page.get_by_role("button", name="Cancel these jobs").click()
        expect(page.locator("#toast")).to_have_text(f"1 job of {shown} cancelled.")
        assert page.title() == f"{shown} · Dragoman"
        page = world.visit("/services")
        expect(page.locator("tbody a", has_text=shown).first).to_have_attribute("title", shown)
        assert world.api.get("/v1/jobs", params={"service": name, "outcome": "cancelled"}).json()["jobs"], name
    world.enqueue("\u05d0\u05d1")
    page = world.visit("/service/%D7%90%D7%91")
    expect(page.locator(".why bdi")).to_have_text("\u05d0\u05d1")
    assert world.problems == []


def boxes_fit_into_a_phone(world: World) -> None:
    """Commands to copy and dialogs of long names were wider than the page, and buttons of schedules off the screen."""
    world.enqueue(LONG[1:])
    world.api.put("/v1/schedules/a-name-that-is-rather-long", json={"service": "open", "cron": "0 3 * * *"})
    fits = "each => [each.scrollWidth <= each.clientWidth, each.scrollLeft]"
    for size in (PHONE, WIDE):
        world.page.set_viewport_size(size)
        page = world.visit(f"/service/{LONG[1:]}")
        page.locator(".command").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], "service"
        page.get_by_role("button", name="Purge …").click()
        page.locator("dialog[open] .primary").wait_for()
        assert page.locator("dialog").evaluate(fits) == [True, 0]
        page.get_by_role("button", name="Leave it").click()
        page = world.visit("/schedules")
        for name in ("Run now …", "Pause …"):
            box = page.get_by_role("button", name=name).first.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= size["width"], name
    world.page.set_viewport_size(WIDE)


def long_names(world: World) -> None:
    """They are wrapped or cut: no page scrolls sideways on a phone."""
    world.enqueue(LONG, key=LONG, attempts=1)
    worker = HttpWorker(world.api, LONG)
    worker.fail(worker.take(), LONG)
    world.enqueue(LONG)
    [job] = world.api.get("/v1/jobs", params={"service": LONG, "state": "ended"}).json()["jobs"]
    world.page.set_viewport_size(PHONE)
    paths = ["/", "/services", f"/service/{LONG}", "/workers", f"/worker/{worker.id}", "/jobs", f"/job/{job['id']}"]
    try:
        for path in [*paths, "/quarantine"]:
            page = world.visit(path)
            page.locator("main").get_by_text(LONG).locator("visible=true").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    finally:
        world.page.set_viewport_size(WIDE)


def service_page_has_callers_and_reasons(world: World) -> None:
    """Of calls, too, which are gone when they have ended; their messages are shown nevertheless."""
    worker = HttpWorker(world.api, "called")
    for page_number in (7, 11):
        with ThreadPoolExecutor(1) as caller:
            call = caller.submit(world.api.post, "/v1/call/called", content=b"x")
            worker.fail(worker.take(), f"page {page_number} is empty")
            assert call.result().status_code == 502
    page = world.visit("/service/called")
    reason = page.locator("section", has=page.get_by_role("heading", name="Not done")).locator("tbody tr")
    expect(reason).to_contain_text("page … is empty")
    expect(reason.locator("td").nth(2)).to_have_text("2")
    callers = page.locator("section", has=page.get_by_role("heading", name="Callers"))
    expect(callers).to_contain_text(re.compile(r"HTTP\s*100 %"))
    for section in ("Not done", "Callers"):
        numbers = page.locator("section", has=page.get_by_role("heading", name=section))
        expect(numbers).to_contain_text("Of the jobs that are recorded: all while few arrive, else about 50 a second.")
    reason.click()
    page.wait_for_url("**/job/*")
    expect(page.locator(".why")).to_contain_text("no job has id")
    expect(page.locator("svg.ladder")).to_contain_text("POST /v1/call/called")
    world.problems.clear()  # the browser reports the status 404 of the job


def broker_page_has_rates_of_listeners(world: World) -> None:
    page = world.visit("/broker")
    row = page.locator("table.listeners tbody tr").first
    expect(row.locator("td").nth(4)).to_have_text(re.compile(r"^[0-9.]+ (B|KiB|MiB)/s$"))
    assert world.problems == []


# -------------------------------------------------------------------- frame


def keyboard(world: World) -> None:
    page = world.visit("/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/services")
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("j")
    chosen = page.locator("tr.at").get_attribute("data-href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{chosen}")
    page.keyboard.press("/")
    page.keyboard.type("moving")
    page.keyboard.press("Enter")
    page.wait_for_url("**/service/moving")
    page.locator("h1", has_text="moving").wait_for()
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.emulate_media(color_scheme="light")
    page.keyboard.press("t")
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark", "the choice is kept"
    page.go_back()
    page.wait_for_url(f"**{chosen}")
    world.problems.clear()  # the browser reports the status 404 of what the search does not find


def held_page_stands_still(world: World) -> None:
    world.enqueue("held")
    page, other = world.show("/"), world.show("/", world.open())
    cell = page.locator(waiting("held"))
    expect(cell).to_have_text("1")
    page.keyboard.press(".")
    page.get_by_role("button", name="Held").wait_for()
    world.enqueue("held")
    expect(other.locator(waiting("held"))).to_have_text("2")
    expect(cell).to_have_text("1")
    page.keyboard.press(".")
    expect(cell).to_have_text("2")
    world.contexts.pop().close()


def login_and_logout(world: World) -> None:
    page = world.open()
    page.goto(f"{world.login_url}/services")
    page.get_by_label("Token").fill(world.tokens["ops"])
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("You are ops.").wait_for()
    page.locator("#live[data-state=live]").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.get_by_label("Token").wait_for()
    world.problems.clear()  # the browser reports the status 401 of the first page
    world.contexts.pop().close()


def principal_sees_its_services(world: World) -> None:
    page = world.open("guest")
    page.goto(f"{world.login_url}/")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_have_attribute("data-key", "open")
    expect(page.locator(".tile")).to_have_count(0)
    page.locator("tbody tr a").click()
    page.locator(".why").wait_for()
    expect(page.locator("button.act")).to_have_count(0)
    jobs = world.api.get("/v1/jobs", params={"service": "open"}).json()["jobs"]
    world.enqueue("secret")
    HttpWorker(world.api, "secret")
    for path in (
        "/services",
        "/workers",
        "/jobs",
        f"/job/{jobs[0]['id']}",
        "/quarantine",
        "/schedules",
        "/broker",
        "/",
    ):
        page.goto(f"{world.login_url}{path}")
        page.locator("main h1").wait_for()
        page.locator("#live[data-state=live]").wait_for()
        assert "secret" not in page.inner_text("body"), path
        expect(page.locator("button.act")).to_have_count(0)
    assert world.problems == []
    world.contexts.pop().close()


def principal_is_not_told_that_nothing_is_there(world: World) -> None:
    """There are workers, which it may not see: to start one is no advice."""
    page = world.open("other")
    for name in ("workers", "services", "jobs", "schedules"):
        page.goto(f"{world.login_url}/{name}")
        expect(page.locator(".empty")).to_have_text(f"There are no {name} that you may see.")
    assert world.problems == []
    world.contexts.pop().close()


def too_many_streams(world: World) -> None:
    page = world.open()
    with httpx2.stream("GET", f"{world.crowded_url}/v1/events", timeout=60) as taken:
        assert taken.status_code == 200
        page.goto(f"{world.crowded_url}/")
        page.get_by_text("The broker has too many event streams.").wait_for()
        page.locator("#live[data-state=polling]").wait_for()
    world.problems.clear()  # the browser reports the status 429
    world.contexts.pop().close()


def menu_on_a_phone(world: World) -> None:
    page = world.visit("/")
    page.set_viewport_size(PHONE)
    link = page.get_by_role("link", name="Services", exact=False).first
    expect(page.locator("#nav")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    link.click()
    page.wait_for_url("**/services")
    expect(page.locator("#nav")).to_be_hidden()
    page.set_viewport_size(WIDE)


def one_stream_and_none_while_hidden(world: World) -> None:
    page = world.open()
    page.add_init_script(COUNT_STREAMS)
    page.clock.install()
    world.show("/", page)
    for path in ("/services", "/workers", "/"):
        page.locator(f"#nav a[href='{path}']").click()
        page.locator("#live[data-state=live]").wait_for()
    assert page.evaluate("[streams.open, streams.most]") == [1, 1]
    page.evaluate(HIDE, True)
    page.clock.fast_forward(11_000)
    page.wait_for_function("streams.open == 0")
    page.evaluate(HIDE, False)
    page.wait_for_function("streams.open == 1")
    assert page.evaluate("streams.most") == 1
    page.locator("#live[data-state=live]").wait_for()
    world.contexts.pop().close()


def broker_ends_and_restarts(world: World) -> None:
    """Only one row follows: the broker of those before is killed."""
    page = world.open()
    page.clock.install()
    world.show("/service/open", page)
    world.broker.kill()
    page.clock.fast_forward(4_000)
    expect(page.locator("#live")).to_have_attribute("data-state", re.compile("slow|lost"))
    page.clock.fast_forward(4_000)
    banner = page.locator("#banner")
    expect(banner).to_contain_text(re.compile(r"The broker has not answered for \d+ s\. The values shown are from"))
    expect(page.locator("h1", has_text="open")).to_be_visible()
    expect(page.get_by_role("button", name="Pause …")).to_be_disabled()
    world.broker = world.serve(world.url)
    world.broker.prints("is listening")
    HttpWorker(world.api, "open")
    while page.locator("#live[data-state=live]").count() == 0:
        page.clock.fast_forward(16_000)
        page.wait_for_timeout(20)
    expect(banner).to_be_hidden()
    expect(page.get_by_role("button", name="Pause …")).to_be_enabled()


def missing_modules_are_loaded_after_a_restart(world: World) -> None:
    """A module that could not be fetched once was never fetched again: buttons did nothing, and a page said Loading….

    The broker of the rows before is killed.
    """
    acting, leaving = world.open(), world.open()
    for page, path in ((acting, "/service/open"), (leaving, "/")):
        page.clock.install()
        world.show(path, page)
        page.clock.fast_forward(11_000)
        page.locator("#live[data-state=live]").wait_for()
    world.broker.kill()
    acting.get_by_role("button", name="Pause …").click()
    expect(acting.locator("#toast")).to_contain_text("A part of the page cannot be loaded. Check that the broker runs")
    leaving.locator("#nav a[href='/quarantine']").click()
    expect(leaving.locator("main .why")).to_contain_text("A part of the page cannot be loaded.")
    world.broker = world.serve(world.url)
    world.broker.prints("is listening")
    HttpWorker(world.api, "open")
    expect(leaving.locator("main .why")).to_contain_text("A part of the page cannot be loaded.")
    while leaving.get_by_text("Nothing is in quarantine.").count() == 0:
        leaving.clock.fast_forward(16_000)
        leaving.wait_for_timeout(20)
    while acting.get_by_text("A part of the page").count():
        acting.clock.fast_forward(16_000)
        acting.wait_for_timeout(20)
    acting.locator("#live[data-state=live]").wait_for()
    acting.get_by_role("button", name="Pause …").click()
    acting.get_by_role("heading", name="Pause open?").wait_for()
    world.problems.clear()  # the browser reports the requests without an answer
    world.contexts.pop().close()
    world.contexts.pop().close()


def broker_that_drains_says_so(world: World) -> None:
    """It waits for a running job before it stops."""
    world.enqueue("drained")
    HttpWorker(world.api, "drained").take()
    page = world.show("/", world.open())
    world.broker.signal(signal.SIGTERM)
    expect(page.locator("#banner")).to_have_text("The broker accepts no new jobs: the broker is about to stop.")
    world.broker.kill()
    world.contexts.pop().close()


SCENARIOS: list[Callable[[World], None]] = [
    pages_open,
    values_move,
    charts_show_values,
    hostile_names,
    long_names,
    names_that_nobody_can_see,
    boxes_fit_into_a_phone,
    service_page_has_callers_and_reasons,
    broker_page_has_rates_of_listeners,
    keyboard,
    held_page_stands_still,
    login_and_logout,
    principal_sees_its_services,
    principal_is_not_told_that_nothing_is_there,
    too_many_streams,
    menu_on_a_phone,
    one_stream_and_none_while_hidden,
    broker_ends_and_restarts,
    missing_modules_are_loaded_after_a_restart,
    broker_that_drains_says_so,
]


@pytest.fixture
def world(programs: Programs, tmp_path: Path) -> Iterator[World]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*LIGHT], timeout=PATIENCE_MS)
        world = World(programs, tmp_path, browser)
        try:
            yield world
        finally:
            world.close()
            browser.close()


def test_dashboard_in_a_browser(world: World) -> None:
    def check(name: str) -> None:
        [scenario] = [each for each in SCENARIOS if each.__name__ == name]
        scenario(world)

    check_every_row(check, [(each.__name__,) for each in SCENARIOS])

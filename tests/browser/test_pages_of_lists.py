"""The pages of workers, jobs, quarantine, schedules and the broker in Chromium, and the acts of operators on them.

One test runs all rows, as in `test_browser_pages.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from page_checks import PHONE, WIDE, check_looks
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from test_browser_pages import LIGHT, PATIENCE_MS, chromium

from case_tables import check_every_row
from programs import Programs

LEASE = 600  # seconds: the workers of this test send no heartbeats
NAVIGATE = """path => {
    document.getElementById('main').replaceChildren()
    history.pushState(null, '', path)
    dispatchEvent(new PopStateEvent('popstate'))
}"""
MOST_TABS = 60  # key presses until a control must have the focus


class HttpWorker:
    """A worker of the HTTP API that does what a test tells it."""

    def __init__(self, api: httpx2.Client, *services: str) -> None:
        self._api = api
        joined = api.post("/v1/workers", json={"services": services, "name": f"{services[0]}-1", "lease": LEASE})
        joined.raise_for_status()
        self._path = joined.headers["location"]
        self._headers = {"Dragoman-Worker-Token": joined.json()["token"]}
        self.id = joined.json()["id"]

    def take(self) -> str:
        """Take the next job. Returns the attempt."""
        answer = self._api.post(f"{self._path}/next?wait=15", headers=self._headers)
        assert answer.status_code == 200, answer.text
        attempt: str = answer.headers["dragoman-attempt"]
        return attempt

    def done(self, attempt: str) -> None:
        headers = {**self._headers, "Dragoman-Attempt": attempt}
        self._api.post(f"{self._path}/result", headers=headers, content=b"ok").raise_for_status()

    def fail(self, attempt: str, reason: str) -> None:
        headers = {**self._headers, "Dragoman-Attempt": attempt}
        self._api.post(f"{self._path}/result?outcome=failed", headers=headers, content=reason).raise_for_status()


class World:
    def __init__(self, programs: Programs, folder: Path, browser: Browser) -> None:
        self.programs = programs
        self.access = folder / "access"
        rights = {"ops": ("--call", "*", "--work", "*", "--administer", "*"), "guest": ("--see", "*")}
        self.tokens = {
            name: programs.run("token", "new", name, *words, "--access", self.access).out.strip()
            for name, words in rights.items()
        }
        words = ("--set", f"access={self.access}", "--data", "memory", "--log", "human")
        broker = programs.dragoman("serve", "http://127.0.0.1:0?auth=token", *words)
        self.url = broker.prints(r"(http://\S+) +both")
        self.api = httpx2.Client(base_url=self.url, headers=self._as("ops"), timeout=60)
        self.browser = browser
        expect.set_options(timeout=PATIENCE_MS)
        self.problems: list[str] = []
        self.worker = HttpWorker(self.api, "mail")
        self.pages = {name: self._open(name) for name in rights}

    def _as(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def _open(self, name: str) -> Page:
        context = self.browser.new_context(viewport=WIDE, extra_http_headers=self._as(name))
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} {message.location['url']}")

    def show(self, path: str, name: str = "ops") -> Page:
        """Open a page of the dashboard, and wait until it has its data and is live."""
        page = self.pages[name]
        if page.url == f"{self.url}{path}":
            page.reload()
        elif page.url.startswith(self.url):
            page.evaluate(NAVIGATE, path)  # as a link does: the scripts need not be loaded again
        else:
            page.goto(f"{self.url}{path}")
        page.locator("main h1").wait_for()
        page.locator("#live[data-state=live]").wait_for()
        return page

    def enqueue(self, service: str, payload: str = "x", **options: object) -> str:
        answer = self.api.post("/v1/jobs", json={"service": service, "payload": payload, **options})
        id: str = answer.json()["id"]
        return id

    def quarantined(self, service: str, reason: str, count: int = 1) -> list[str]:
        """Make jobs that used up their only attempt."""
        ids = [self.enqueue(service, attempts=1) for _ in range(count)]
        worker = HttpWorker(self.api, service)
        for _ in ids:
            worker.fail(worker.take(), reason)
        self.api.delete(f"/v1/workers/{worker.id}", headers=worker._headers).raise_for_status()
        return ids

    def get(self, path: str) -> Any:
        return self.api.get(path).raise_for_status().json()

    def close(self) -> None:
        self.api.close()


def tab_to(page: Page, text: str) -> None:
    """Press Tab until the control with this text has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"no control with the text {text!r} is reached by Tab")


def focused(page: Page) -> str:
    text: str = page.evaluate("document.activeElement.textContent.trim()")
    return text


# -------------------------------------------------------------------- pages


def pages_open(world: World) -> None:
    """In both themes, wide and on a phone: no console messages, no sideways scrolling, all names and contrasts."""
    [job] = world.quarantined("open", "page 7 of 'a.pdf' is empty")
    world.enqueue("open")
    world.api.put("/v1/schedules/nightly", json={"service": "open", "cron": "0 3 * * *"}).raise_for_status()
    paths = ["/workers", f"/worker/{world.worker.id}", "/jobs", "/jobs?state=undone&text=empty", f"/job/{job}"]
    world.problems.clear()

    def check(theme: str) -> None:
        assert world.problems == [], theme

    for path in [*paths, "/quarantine", "/schedules", "/broker"]:
        check_looks(world.pages["ops"], partial(world.show, path), check)


def job_page_says_why(world: World) -> None:
    job = world.enqueue("nobody")
    token = world.access.parent / "token"
    token.touch(0o600)
    token.write_text(world.tokens["ops"])
    said = world.programs.run("why", job, "--connect", f"{world.url}?token_file={token}").out.strip()
    assert said == "It waits: no worker offers 'nobody'."
    page = world.show(f"/job/{job}")
    expect(page.locator(".why p")).to_have_text(said)
    HttpWorker(world.api, "nobody").take()
    expect(page.locator(".why p")).to_have_text(re.compile("Attempt 1 of 3 has run for"))
    expect(page.locator("main .head .state")).to_have_text("running")


def job_page_shows_key_and_keeping(world: World) -> None:
    job = world.enqueue("keyed", key="nightly", unique="unfinished", keep="forever")
    page = world.show(f"/job/{job}")
    expect(page.locator(".why small")).to_have_text(
        "It holds the key 'nightly' until it ends. Its outcome is kept until it is deleted."
    )
    facts = page.locator("main")
    expect(facts).to_contain_text("nightly unique until it ends")
    expect(facts).to_contain_text("until it is deleted")


def filters_are_in_the_address(world: World) -> None:
    ids = [world.enqueue("filtered") for _ in range(2)]
    page = world.show("/jobs")
    page.get_by_label("Service", exact=True).select_option("filtered")
    page.get_by_role("button", name="waiting").click()
    page.wait_for_url("**/jobs?service=filtered&state=waiting")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")  # the older one is below
    page.wait_for_url(f"**/job/{ids[0]}")
    page.go_back()
    expect(rows).to_have_count(2)
    page.get_by_label("Caller", exact=True).select_option("Majordomo")
    page.wait_for_url("**/jobs?service=filtered&state=waiting&caller=majordomo")
    page.get_by_text("No job matches.").wait_for()
    page.get_by_label("Caller", exact=True).select_option("HTTP")
    expect(rows).to_have_count(2)


def workers_of_a_service_are_as_they_are_now(world: World) -> None:
    """Its page kept the workers that it had found, and the ages of jobs grew that had ended."""
    world.enqueue("busy")
    command = world.show("/service/busy").locator("section[data-key=Workers] code")
    expect(command).to_have_text("dragoman worker --exec \"tr a-z A-Z\" --service 'busy'")
    worker = HttpWorker(world.api, "busy")
    attempt = worker.take()
    page = world.show("/service/busy")
    row = page.locator("section[data-key=Workers] tbody tr").first
    expect(row.locator("td").nth(2)).to_contain_text("busy")
    expect(row.locator("td").nth(4)).not_to_have_text("–")
    worker.done(attempt)
    HttpWorker(world.api, "busy")
    expect(row.locator("td").nth(4)).to_have_text("–")
    expect(page.locator("section[data-key=Workers] tbody tr")).to_have_count(2)


def schedules_are_run_on_a_phone(world: World) -> None:
    """Their buttons were left out on narrow screens, and no other page has them."""
    world.api.put("/v1/schedules/hourly", json={"service": "scheduled", "every": 3600}).raise_for_status()
    page = world.show("/schedules")
    page.set_viewport_size(PHONE)
    try:
        page.locator("tr[data-key=shourly]").get_by_role("button", name="Run now …").click()
        page.get_by_role("dialog").get_by_role("button", name="Run now").click()
        page.wait_for_url("**/job/*")
    finally:
        page.set_viewport_size(WIDE)


def job_page_shows_parent_and_children(world: World) -> None:
    """R200. The children stay while snapshots, which do not have them, renew the page."""
    parent = world.enqueue("unserved")
    child = world.enqueue("children", parent=parent)
    page = world.show(f"/job/{parent}")
    rows = page.locator("section[data-key=Children] tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("children")
    world.api.delete(f"/v1/jobs/{child}").raise_for_status()
    expect(rows).to_contain_text("cancelled")  # with a later snapshot
    rows.get_by_role("link").first.click()
    page.wait_for_url(f"**/job/{child}")
    expect(page.locator("dl.facts")).to_contain_text("Parent")
    page.locator(f"dl.facts a[href='/job/{parent}']").wait_for()


def list_of_jobs_stands_still(world: World) -> None:
    first = world.enqueue("still")
    page = world.show("/jobs?service=still")
    expect(page.locator("tbody tr")).to_have_count(1)
    world.enqueue("still")
    offer = page.get_by_role("button", name="1 newer")
    offer.wait_for()
    expect(page.locator("tbody tr")).to_have_attribute("data-href", f"/job/{first}")
    offer.click()
    expect(page.locator("tbody tr")).to_have_count(2)


def job_page_shows_what_a_job_comes_after_and_its_group(world: World) -> None:
    group = "ab" * 16
    jobs = [{"group": group}, {"group": group, "after": [0], "input": "result"}, {"after": [group, 0]}]
    answer = world.api.post("/v1/jobs/many", json={"service": "linked", "jobs": jobs})
    first, second, last = answer.raise_for_status().json()["jobs"]
    page = world.show(f"/job/{second}")
    expect(page.locator("main .head .state")).to_have_text("dependent")
    expect(page.locator(".why p")).to_have_text(f"It waits for one job: {first}.")
    facts = page.locator("dl.facts")
    expect(facts.get_by_title(first)).to_have_attribute("href", f"/job/{first}")
    expect(facts.get_by_text("0 of 2")).to_be_visible()
    facts.get_by_role("link", name="ababab…abab").click()
    page.wait_for_url(f"**/jobs?group={group}")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_text("group: 0 of 2")).to_be_visible()
    world.problems.clear()
    page = world.show(f"/job/{last}")
    page.locator("dl.facts").get_by_title(group).click()  # a link to a job, which is a group
    page.wait_for_url(f"**/jobs?group={group}")
    expect(page.locator("tbody tr")).to_have_count(2)
    world.problems = [each for each in world.problems if "404" not in each]  # the browser reports the status
    page = world.show("/jobs?service=linked&state=dependent")
    expect(page.locator("tbody tr")).to_have_count(2)


# -------------------------------------------------------------------- acts


def pause_by_keyboard(world: World) -> None:
    world.enqueue("paused")
    page = world.show("/service/paused")
    tab_to(page, "Pause …")
    page.keyboard.press("Enter")
    page.get_by_text("1 job waits and will not start until it is resumed.").wait_for()
    assert focused(page) == "Leave it"
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    assert not world.get("/v1/services/paused")["paused"], "Escape leaves"
    assert focused(page) == "Pause …"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Leave it").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("paused is paused.").wait_for()
    view = world.get("/v1/services/paused")
    assert (view["paused"], view["paused_by"]) == (True, "ops")
    page.get_by_role("button", name="Resume …").wait_for()
    tab_to(page, "Resume …")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Leave it").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("paused is resumed.").wait_for()
    assert not world.get("/v1/services/paused")["paused"]


def purge_by_keyboard_needs_the_name(world: World) -> None:
    world.enqueue("purged")
    page = world.show("/service/purged")
    tab_to(page, "Purge …")
    page.keyboard.press("Enter")
    accept = page.get_by_role("button", name="Cancel these jobs")
    expect(accept).to_be_disabled()
    assert focused(page) == "Leave it"
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_label("Type purged to continue")).to_be_focused()
    page.keyboard.type("purge")
    expect(accept).to_be_disabled()
    page.keyboard.press("Enter")
    assert world.get("/v1/services/purged")["waiting"] == 1
    page.keyboard.type("d")
    expect(accept).to_be_enabled()
    page.keyboard.press("Enter")
    page.get_by_text("1 job of purged cancelled.").wait_for()
    assert world.get("/v1/services/purged")["waiting"] == 0


def retry_by_keyboard_opens_the_new_job(world: World) -> None:
    [job] = world.quarantined("retried", "disk full")
    page = world.show(f"/job/{job}")
    tab_to(page, "Retry …")
    page.keyboard.press("Enter")
    page.get_by_text("This one ended failed: disk full.").wait_for()
    assert focused(page) == "Leave it"
    page.keyboard.press("Tab")
    assert focused(page) == "Retry"
    page.keyboard.press("Enter")
    page.get_by_text("Retried as job").wait_for()
    again = world.get(f"/v1/jobs/{job}")["retried_as"]
    page.wait_for_url(f"**/job/{again}")


def group_retry_by_keyboard(world: World) -> None:
    jobs = world.quarantined("grouped", "page 7 is empty", 2)
    page = world.show("/quarantine")
    tab_to(page, "Retry 2 …")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Retry 2 jobs of grouped?").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Retry of 2 jobs of grouped has begun.").wait_for()
    for job in jobs:
        while world.get(f"/v1/jobs/{job}")["retried_as"] is None:
            page.wait_for_timeout(20)


def failed_act_stays_in_the_dialog(world: World) -> None:
    job = world.enqueue("late")
    page = world.show(f"/job/{job}")
    page.get_by_role("button", name="Cancel …").click()
    accept = page.get_by_role("button", name="Cancel the job")
    accept.wait_for()
    world.api.delete(f"/v1/jobs/{job}").raise_for_status()
    accept.click()
    expect(page.get_by_role("alert")).to_have_text(f"job {job} has already ended: cancelled")
    page.get_by_role("button", name="Leave it").click()
    expect(page.locator("dialog")).to_be_hidden()
    world.problems.clear()  # the browser reports the status 409


def acts_need_the_right(world: World) -> None:
    [job] = world.quarantined("secret", "no")
    world.api.put("/v1/schedules/seen", json={"service": "secret", "every": 3600}).raise_for_status()
    for path in ("/service/secret", "/workers", f"/job/{job}", "/quarantine", "/schedules"):
        page = world.show(path, "guest")
        expect(page.locator("main").get_by_text("secret" if path != "/workers" else "mail-1").first).to_be_visible()
        expect(page.locator("button.act")).to_have_count(0)
    expect(world.show("/schedules").locator("button.act").first).to_be_visible()


SCENARIOS: list[Callable[[World], None]] = [
    pages_open,
    job_page_says_why,
    job_page_shows_key_and_keeping,
    filters_are_in_the_address,
    workers_of_a_service_are_as_they_are_now,
    schedules_are_run_on_a_phone,
    list_of_jobs_stands_still,
    job_page_shows_what_a_job_comes_after_and_its_group,
    pause_by_keyboard,
    purge_by_keyboard_needs_the_name,
    job_page_shows_parent_and_children,
    retry_by_keyboard_opens_the_new_job,
    group_retry_by_keyboard,
    failed_act_stays_in_the_dialog,
    acts_need_the_right,
]


@pytest.fixture
def world(programs: Programs, tmp_path: Path) -> Iterator[World]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*LIGHT], timeout=PATIENCE_MS)
        world = World(programs, tmp_path, browser)
        try:
            yield world
        finally:
            world.close()
            browser.close()


def test_pages_of_lists_in_a_browser(world: World) -> None:
    def check(name: str) -> None:
        [scenario] = [each for each in SCENARIOS if each.__name__ == name]
        scenario(world)

    check_every_row(check, [(each.__name__,) for each in SCENARIOS])

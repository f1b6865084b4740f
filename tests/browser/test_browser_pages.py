"""The pages in Chromium: login, logout, foreign pages, frames and hostile names (R158 to R164).

One test runs all rows: a browser takes seconds to start, and pytest's processes would start one each.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from authority import Authority
from case_tables import check_every_row
from programs import Program, Programs, until

PATIENCE_MS = 60_000
HOSTILE = ("<script>document.title='owned'</script>*", '"><img src=x onerror="document.title=\'owned\'">', "a&lt;b")
LIGHT = ("--disable-gpu", "--disable-software-rasterizer", "--renderer-process-limit=2")  # less CPU time
MAP = "MAP evil.example 127.0.0.1, MAP broker.example 127.0.0.1"


def chromium() -> str:
    found = [path for path in map(shutil.which, ("chromium", "chromium-browser")) if path is not None]
    assert found, "Chromium is missing. On Debian and Ubuntu, as root: apt-get install chromium"
    return found[0]


class ForeignSite:
    """A web server with pages that attack the broker. Its port makes it another origin, a host name another site."""

    def __init__(self) -> None:
        pages = self.pages = {}  # type: dict[str, str]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def show(self, path: str, body: str) -> None:
        self.pages[path] = f"<!DOCTYPE html><title>foreign</title>{body}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class World:
    def __init__(self, programs: Programs, folder: Path, authority: Authority, browser: Browser) -> None:
        self.programs = programs
        self.folder = folder / "access"
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.foreign = ForeignSite()
        self.reloads = 0
        self.tokens = {
            name: programs.run("token", "new", name, *rights, "--access", self.folder).out.strip()
            for name, rights in {"ops": ("--call", "*", "--administer", "*"), "web": ("--call", "mail")}.items()
        }
        self.broker = self._serve("http://127.0.0.1:0?auth=token&hosts=broker.example&dashboard=off")
        self.url = self.broker.prints(r"(http://\S+) +both")
        tls = self._serve(f"https://127.0.0.1:0?auth=token&dashboard=off&{authority.issue().options}")
        self.secure_url = tls.prints(r"(https://\S+) +both")
        self.api = httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.tokens['ops']}"})
        self.api.post("/v1/jobs?service=mail", content=b"x").raise_for_status()

    def _serve(self, url: str) -> Program:
        words = ("--set", f"access={self.folder}", "--data", "memory", "--log", "human")
        return self.programs.dragoman("serve", url, *words)

    def page(self, **options: object) -> Page:
        context = self.browser.new_context(**options)  # type: ignore[arg-type]
        self.contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        return context.new_page()

    def login(self, page: Page, name: str = "ops", url: str = "") -> None:
        page.goto(f"{url or self.url}/")
        page.get_by_label("Token").fill(self.tokens.get(name, name))
        page.get_by_role("button", name="Log in").click()

    def logged_in(self, name: str = "ops") -> Page:
        page = self.page()
        self.login(page, name)
        page.get_by_text(f"You are {name}.").wait_for()
        return page

    def write(self, name: str, more: str) -> None:
        """Append to the file of a principal, and reload."""
        path = self.folder / f"{name}.toml"
        path.write_text(path.read_text() + more)
        self.reloads += 1
        self.broker.signal(signal.SIGHUP)
        self.broker.prints("access reloaded", self.reloads)

    def is_paused(self) -> bool:
        paused: bool = self.api.get("/v1/services/mail").json()["paused"]
        return paused

    def rejected(self) -> int:
        """Return the number of requests that were rejected because of their origin."""
        found = re.search(r'reason="foreign-origin"} (\d+)', self.api.get("/metrics").text)
        return int(found[1]) if found is not None else 0

    def close_pages(self) -> None:
        while self.contexts:
            self.contexts.pop().close()

    def close(self) -> None:
        self.close_pages()
        self.api.close()
        self.foreign.close()


# -------------------------------------------------------------------- login


def login(world: World) -> None:
    page = world.page()
    response = page.goto(f"{world.url}/v1/jobs")
    assert response is not None
    assert (response.status, page.title()) == (401, "Log in")
    world.login(page)
    page.get_by_text("You are ops.").wait_for()
    assert page.url == f"{world.url}/"
    [cookie] = page.context.cookies()
    facts = {name: cookie.get(name) for name in ("name", "path", "httpOnly", "secure", "sameSite")}
    assert facts == {"name": "dragoman", "path": "/", "httpOnly": True, "secure": False, "sameSite": "Strict"}
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("link", name="Health").click()
    page.get_by_text('"ready":true').wait_for()


def login_over_tls(world: World) -> None:
    page = world.page(ignore_https_errors=True)
    world.login(page, "web", world.secure_url)
    page.get_by_text("You are web.").wait_for()
    [cookie] = page.context.cookies()
    facts = {name: cookie.get(name) for name in ("name", "path", "httpOnly", "secure", "sameSite")}
    assert facts == {"name": "__Host-dragoman", "path": "/", "httpOnly": True, "secure": True, "sameSite": "Strict"}


def wrong_token(world: World) -> None:
    page = world.page()
    world.login(page, "dgm_wrong")
    page.get_by_text("This token is not valid.").wait_for()
    assert page.context.cookies() == []
    assert page.get_by_label("Token").input_value() == ""
    assert "dgm_wrong" not in world.broker.err + world.broker.out


def logout(world: World) -> None:
    page = world.logged_in()
    other = page.context.new_page()
    other.goto(f"{world.url}/v1/health")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{world.url}/login")
    assert page.context.cookies() == []
    page.go_back()
    page.get_by_role("button", name="Log in").wait_for()
    other.reload()
    other.get_by_role("button", name="Log in").wait_for()


def expiry(world: World) -> None:
    page = world.logged_in("web")
    world.write("web", "expires = 2020-01-01\n")
    page.reload()
    page.get_by_role("button", name="Log in").wait_for()
    world.login(page, "web")
    page.get_by_text("This token is not valid.").wait_for()


def event_stream(world: World) -> None:
    """EventSource sends the cookie; the stream ends with the session."""
    page = world.logged_in()
    page.goto(f"{world.url}/v1/health")  # a document of this origin, whose policy allows connections to it
    page.evaluate(
        """() => new Promise(opened => {
            window.ended = false
            const source = new EventSource('/v1/events')
            source.onopen = opened
            source.onerror = () => { window.ended = true }
        })"""
    )
    assert page.evaluate("window.ended") is False
    status = page.evaluate("fetch('/logout', {method: 'POST', redirect: 'manual'}).then(each => each.type)")
    assert status == "opaqueredirect"
    while not page.evaluate("window.ended === true"):  # not wait_for_function: its eval violates the policy
        page.wait_for_timeout(20)


# -------------------------------------------------------------------- foreign pages


def foreign_pages(world: World) -> None:
    """A page of another port is of the same site: the browser sends the cookie. Origin decides."""
    page = world.logged_in()
    port = world.foreign.port
    target = f"{world.url}/v1/services/mail/pause"
    world.foreign.show("/form", f'<form method="post" action="{target}"><button>win</button></form>')
    world.foreign.show("/sandbox", f'<iframe sandbox="allow-forms allow-scripts" srcdoc="{_form(target)}"></iframe>')
    world.foreign.show("/empty", "<p>nothing</p>")
    send = f"""mode => fetch('{target}', {{method: 'POST', mode: mode, credentials: 'include'}})
        .then(each => each.type, () => 'failed')"""
    read = f"""mode => fetch('{world.url}/v1/jobs', {{mode: mode, credentials: 'include'}})
        .then(each => each.text(), () => 'failed')"""
    for host in ("127.0.0.1", "localhost"):
        page.goto(f"http://{host}:{port}/form")
        with page.expect_response(target) as answered:
            page.get_by_role("button").click()
        assert answered.value.status == 403, host
        before = world.rejected()
        page.goto(f"http://{host}:{port}/sandbox")  # it sends `Origin: null`
        until(lambda before=before: world.rejected() > before, "the form without an origin is rejected")
        page.goto(f"http://{host}:{port}/empty")
        assert [page.evaluate(send, mode) for mode in ("cors", "no-cors")] == ["failed", "opaque"]
        assert [page.evaluate(read, mode) for mode in ("cors", "no-cors")] == ["failed", ""]
        assert not world.is_paused(), host
    own = page.context.new_page()
    own.goto(f"{world.url}/")
    assert own.evaluate("fetch('/v1/services/mail/pause', {method: 'POST'}).then(each => each.status)") == 200
    assert world.is_paused(), "the request itself is right"
    world.api.post("/v1/services/mail/resume").raise_for_status()


def _form(target: str) -> str:
    written = f"<form method=post action={target}></form><script>document.forms[0].submit()</script>"
    return written.replace("&", "&amp;").replace('"', "&quot;")


def link_of_another_site(world: World) -> None:
    page = world.logged_in()
    world.foreign.show("/link", f'<a href="{world.url}/">broker</a> <a href="{world.url}/v1/jobs">jobs</a>')
    for name, status in (("broker", 401), ("jobs", 403)):
        page.goto(f"http://localhost:{world.foreign.port}/link")
        with page.expect_navigation() as navigated:
            page.get_by_role("link", name=name).click()
        assert navigated.value is not None
        assert navigated.value.status == status, "the cookie is not sent with a link of another site"
    page.goto(f"{world.url}/")
    page.get_by_text("You are ops.").wait_for()


def frames(world: World) -> None:
    page = world.logged_in()
    world.foreign.show("/frame", f'<iframe name="framed" src="{world.url}/login"></iframe>')
    page.goto(f"http://127.0.0.1:{world.foreign.port}/frame")
    until(lambda: _frame_is_refused(page), "the frame shows an error")


def _frame_is_refused(page: Page) -> bool:
    [frame] = [each for each in page.frames if each.name == "framed"]
    page.wait_for_timeout(10)  # lets Playwright handle events
    return frame.url.startswith("chrome-error:")


def rebinding(world: World) -> None:
    """A host name of an attacker that resolves to this machine."""
    page = world.page()
    port = world.url.rpartition(":")[2]
    for host, status in (("evil.example", 403), ("broker.example", 401), ("localhost", 401)):
        response = page.goto(f"http://{host}:{port}/")
        assert response is not None
        assert response.status == status, host


# -------------------------------------------------------------------- hostile content


def hostile_names(world: World) -> None:
    lines = ", ".join(f"'''{each}'''" for each in HOSTILE)
    world.write("ops", f"work = [{lines}]\n")
    page = world.page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    world.login(page)
    page.get_by_text("You are ops.").wait_for()
    assert page.locator("code").all_text_contents() == list(HOSTILE)
    assert (page.title(), page.locator("img").count(), page.locator("script").count()) == ("Dragoman", 0, 0)
    assert problems == []


def injected_content(world: World) -> None:
    """Scripts and styles within a page are not run, however they come into it."""
    page = world.logged_in()
    page.evaluate(
        """() => {
            const script = document.createElement('script')
            script.textContent = "document.title = 'owned'"
            document.body.append(script)
            document.body.insertAdjacentHTML('beforeend', '<p id="x" style="color: rgb(1, 2, 3)">x</p>')
        }"""
    )
    assert page.title() == "Dragoman"
    assert page.evaluate("getComputedStyle(document.getElementById('x')).color") != "rgb(1, 2, 3)"
    with pytest.raises(Error, match="Failed to fetch"):
        page.evaluate(f"fetch('http://127.0.0.1:{world.foreign.port}/x', {{mode: 'no-cors'}})")


def pages_fit(world: World) -> None:
    """No page scrolls sideways on a phone, in the light and in the dark."""
    page = world.page(viewport={"width": 360, "height": 640})
    world.login(page)
    page.get_by_text("You are ops.").wait_for()
    for path in ("/", "/login"):
        page.goto(f"{world.url}{path}")
        for scheme, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 24, 27)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == color


SCENARIOS: list[Callable[[World], None]] = [
    login,
    login_over_tls,
    wrong_token,
    logout,
    event_stream,
    foreign_pages,
    link_of_another_site,
    frames,
    rebinding,
    injected_content,
    expiry,
    hostile_names,
    pages_fit,
]


@pytest.fixture
def world(programs: Programs, tmp_path: Path, authority: Authority) -> Iterator[World]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=[f"--host-resolver-rules={MAP}", *LIGHT], timeout=PATIENCE_MS
        )
        world = World(programs, tmp_path, authority, browser)
        try:
            yield world
        finally:
            world.close()
            browser.close()


def test_pages_in_a_browser(world: World) -> None:
    def check(name: str) -> None:
        [scenario] = [each for each in SCENARIOS if each.__name__ == name]
        try:
            scenario(world)
        finally:
            world.close_pages()

    check_every_row(check, [(each.__name__,) for each in SCENARIOS])

"""The dashboard over HTTP: its page at every path, its files, and a listener that only shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from http_world import World
from token_world import OPS, TokenWorld, bearer

from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.http.app import make_app
from dragoman.http.dashboard_pages import FOLDER
from dragoman.http.hosts import PAGE_PATHS, is_foreign_page
from dragoman.http.options import DashboardMode

PATHS = [path.replace("{name}", "a%2Fb").replace("{id}", "12") for path in PAGE_PATHS]


class DashboardWorld(World):
    def __init__(self, mode: DashboardMode = DashboardMode.ON) -> None:
        super().__init__()
        self.listener.dashboard_mode = mode
        self._app = make_app(self.listener)


class LoginWorld(TokenWorld):
    def __init__(self) -> None:
        super().__init__()
        self.listener.dashboard_mode = DashboardMode.ON
        self._app = make_app(self.listener)


@pytest.fixture
def mode() -> DashboardMode:
    return DashboardMode.ON


@pytest.fixture
def world(mode: DashboardMode) -> Iterator[DashboardWorld]:
    world = DashboardWorld(mode)
    yield world
    world.close()


@pytest.fixture
def login_world() -> Iterator[LoginWorld]:
    world = LoginWorld()
    yield world
    world.close()


def test_every_path_of_the_dashboard_is_the_same_page(world: DashboardWorld) -> None:
    for path in PATHS:
        answer = world.ask("GET", path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        assert answer.headers["cache-control"] == "no-store", "it names the principal"
        assert 'data-principal="local" data-sees="all" data-acts="all"' in answer.text


def test_other_paths_are_not_found(world: DashboardWorld) -> None:
    for path in (
        "/service",
        "/service/a/b",
        "/nothing",
        "/ui/nothing.js",
        "/ui/../dashboard_pages.py",
        "/ui/index.html",
    ):
        assert world.ask("GET", path).status_code == 404, path


def test_files_are_checked_by_their_tag(world: DashboardWorld) -> None:
    for name, kind in (
        ("app.js", "text/javascript"),
        ("pages/overview.js", "text/javascript"),
        ("style.css", "text/css"),
    ):
        answer = world.ask("GET", f"/ui/{name}")
        assert answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        known = {"If-None-Match": f'"other", W/{answer.headers["etag"]}'}
        again = world.ask("GET", f"/ui/{name}", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        assert world.ask("GET", f"/ui/{name}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_names_of_principals_are_escaped(login_world: LoginWorld) -> None:
    login_world.broker.principals.apply(
        {"ops": (Rights(see=["*"], administer=['"><script>alert(1)</script>']), PrincipalLimits())}
    )
    page = login_world.ask("GET", "/", headers=bearer(OPS)).text
    assert "<script>" not in page
    assert 'data-principal="ops" data-sees="all" data-acts="some"' in page


def test_requests_without_a_principal_get_the_login_page(login_world: LoginWorld) -> None:
    for path in (*PATHS, "/ui/app.js", "/account"):
        assert login_world.ask("GET", path).status_code == 401, path
        page = login_world.ask("GET", path, headers={"Accept": "text/html"})
        assert (page.status_code, "Log in to Dragoman" in page.text) == (401, True), path


def test_login_leads_to_the_dashboard_and_the_account(login_world: LoginWorld) -> None:
    cookie = {"Cookie": login_world.login(OPS)}
    page = login_world.ask("GET", "/", headers=cookie).text
    assert 'data-principal="ops"' in page
    assert 'data-login="session"' in page
    account = login_world.ask("GET", "/account", headers=cookie).text
    assert "You are <strong>ops</strong>." in account
    assert 'action="/logout"' in account


@pytest.mark.parametrize("mode", [DashboardMode.READ])
def test_listener_that_only_shows_rejects_what_changes_something(world: DashboardWorld) -> None:
    assert 'data-acts="none"' in world.ask("GET", "/").text
    accepted = world.ask("POST", "/v1/jobs?service=mail", content=b"x")
    assert accepted.status_code == 202
    id = accepted.json()["id"]
    acts = [
        ("POST", "/v1/services/mail/pause"),
        ("POST", "/v1/services/mail/resume"),
        ("POST", "/v1/services/mail/purge"),
        ("DELETE", f"/v1/jobs/{id}"),
        ("POST", f"/v1/jobs/{id}/retry"),
        ("POST", "/v1/workers/1/drain"),
        ("PUT", "/v1/schedules/nightly"),
        ("DELETE", "/v1/schedules/nightly"),
    ]
    for method, path in acts:
        answer = world.ask(method, path)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:dragoman:read-only"), path
    assert world.ask("GET", f"/v1/jobs/{id}").json()["state"] == "waiting"


@pytest.mark.parametrize("mode", [DashboardMode.OFF])
def test_listener_without_dashboard_has_the_start_page(world: DashboardWorld) -> None:
    assert "You are <strong>local</strong>." in world.ask("GET", "/").text
    assert [world.ask("GET", path).status_code for path in ("/jobs", "/ui/app.js", "/account")] == [404, 404, 404]


def test_other_sites_may_link_to_pages_only() -> None:
    """R160"""
    for path in (*PATHS, "/jobs?state=failed", "/login", "/account"):
        assert not is_foreign_page(b"cross-site", b"GET", path.encode()), path
        assert is_foreign_page(b"cross-site", b"POST", path.encode()), path
    for path in ("/v1/jobs", "/v1/live", "/ui/app.js", "/services/x", "/logout", "/metrics"):
        assert is_foreign_page(b"cross-site", b"GET", path.encode()), path


def test_every_path_of_the_scripts_is_served(world: DashboardWorld) -> None:
    paths = re.findall(r'path: "([^"]+)"', (FOLDER / "routes.js").read_text())
    assert len(paths) == len(PATHS)
    for path in paths:
        assert world.ask("GET", f"{path}x" if path.endswith("/") and path != "/" else path).status_code == 200, path

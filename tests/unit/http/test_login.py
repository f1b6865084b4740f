"""Login and logout, by form and by JSON, and the pages (R159)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_worker import kind
from token_world import OPS, OWN, UNKNOWN, WEB, TokenWorld, bearer, who

from case_tables import check_every_row
from dragoman.core.rights import PrincipalLimits, Rights
from dragoman.http.admission import ORIGIN, Admission

COOKIE = "Max-Age=43200; Path=/; HttpOnly; SameSite=Strict"
SECURE = "Max-Age=43200; Path=/; HttpOnly; Secure; SameSite=Strict"


@pytest.fixture
def world() -> Iterator[TokenWorld]:
    world = TokenWorld()
    yield world
    world.close()


def test_form_sets_the_cookie_and_leads_to_the_start_page(world: TokenWorld) -> None:
    answer = world.ask("POST", "/login", data={"token": f" {WEB}\r\n"}, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    name, _, attributes = answer.headers["set-cookie"].partition("; ")
    assert name.startswith("dragoman=")
    assert attributes == COOKIE
    assert who(world.ask("GET", "/")) == "web", "the client has kept the cookie"
    assert world.logged == [("login", "web")]


@pytest.mark.parametrize(("is_tls", "scheme"), [(True, "https"), (False, "https")])
def test_cookie_is_secure_where_the_browser_uses_tls(is_tls: bool, scheme: str) -> None:
    """A proxy may terminate TLS."""
    world = TokenWorld(is_tls=is_tls)
    try:
        origin = {"Origin": f"{scheme}://127.0.0.1:7480"}
        answer = world.ask("POST", "/login", data={"token": WEB}, headers=origin)
        name, _, attributes = answer.headers["set-cookie"].partition("; ")
        assert name.startswith("__Host-dragoman=")
        assert attributes == SECURE
        assert who(world.ask("GET", "/", headers={"Cookie": name})) == "web"
    finally:
        world.close()


def test_json_sets_the_cookie(world: TokenWorld) -> None:
    answer = world.ask("POST", "/login", json={"token": WEB})
    assert (answer.status_code, answer.content) == (204, b"")
    assert who(world.ask("GET", "/")) == "web"


def test_wrong_token_is_refused_and_not_repeated(world: TokenWorld) -> None:
    form = world.ask("POST", "/login", data={"token": UNKNOWN}, headers=OWN)
    assert (form.status_code, form.headers["www-authenticate"]) == (401, "Bearer")
    assert "This token is not valid." in form.text
    assert kind(world.ask("POST", "/login", json={"token": UNKNOWN})) == (401, "unauthenticated")
    empty = world.ask("POST", "/login", data={}, headers={**OWN, "Content-Type": "application/x-www-form-urlencoded"})
    assert (empty.status_code, empty.text) == (401, form.text)
    for answer in (form, empty):
        assert "set-cookie" not in answer.headers
        assert UNKNOWN not in answer.text
    assert world.logged == [("login refused", "")] * 3


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"[]", "application/json", (422, "invalid")),
        (b"{", "application/json", (422, "invalid")),
        (b'{"token": 1}', "application/json", (422, "invalid")),
        (b"token=x", "text/plain", (415, "wrong-content-type")),
        (b"token=" + b"x" * 4096, "application/x-www-form-urlencoded", (413, "too-large")),
    ],
)
def test_body_that_is_no_login_is_rejected(
    world: TokenWorld, body: bytes, content_type: str, expected: tuple[int, str]
) -> None:
    world.listener.max_payload = 1 << 20
    assert kind(world.ask("POST", "/login", content=body, headers={"Content-Type": content_type})) == expected


@pytest.mark.parametrize("body", [b"\xff=1&token=%ff", b"&".join(b"a%d=1" % each for each in range(9))])
def test_odd_form_is_a_wrong_token(world: TokenWorld, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert world.ask("POST", "/login", content=body, headers=headers).status_code == 401


def test_session_belongs_to_the_user_of_its_login_or_else_to_the_address(world: TokenWorld) -> None:
    access = world.listener.access
    id = world.sessions.open(Admission(world.broker.principals.named("ops")), "uid 1000")
    remote = world.sessions.open(Admission(world.broker.principals.named("web")), "192.0.2.1")

    def check(user: str, address: str, ops: bool, web: bool) -> None:
        for cookie, expected in ((id, ops), (remote, web)):
            scope = {"method": "GET", "headers": [(b"cookie", f"dragoman={cookie}".encode())], "client": (address, 1)}
            assert (access.admit({**scope, "extensions": {ORIGIN: user}}) is not None) is expected

    rows = [
        ("uid 1000", "127.0.0.1", True, False),
        ("uid 1001", "127.0.0.1", False, False),
        ("uid 0", "127.0.0.1", False, False),
        ("", "127.0.0.1", False, False),
        ("", "192.0.2.1", False, True),
        ("uid 1001", "192.0.2.1", False, False),  # another user of the machine at which the broker runs
        ("", "192.0.2.2", False, False),
    ]
    check_every_row(check, rows)


def test_each_login_makes_a_new_session_and_ends_the_former(world: TokenWorld) -> None:
    first = world.login(WEB)
    answer = world.ask("POST", "/login", data={"token": OPS}, headers={**OWN, "Cookie": first})
    second = answer.headers["set-cookie"].partition(";")[0]
    world._client.cookies.clear()
    assert first != second
    assert who(world.ask("GET", "/", headers={"Cookie": first})) == "401"
    assert who(world.ask("GET", "/", headers={"Cookie": second})) == "ops"


def test_cookie_of_a_stranger_is_not_made_a_session(world: TokenWorld) -> None:
    """Session fixation."""
    answer = world.ask("POST", "/login", data={"token": WEB}, headers={**OWN, "Cookie": "dragoman=chosen"})
    assert "chosen" not in answer.headers["set-cookie"]
    assert world.sessions.find("chosen", "127.0.0.1") is None


def test_logout_ends_the_session_and_its_requests(world: TokenWorld) -> None:
    cookie = {"Cookie": world.login()}
    answer = world.ask("POST", "/logout", headers={**OWN, **cookie})
    assert (answer.status_code, answer.headers["location"], world.ended) == (303, "/login", 1)
    assert [each.partition(";")[0] for each in answer.headers.get_list("set-cookie")] == [
        "__Host-dragoman=",
        "dragoman=",
    ]
    assert who(world.ask("GET", "/", headers=cookie)) == "401"
    assert world.logged == [("login", "web"), ("logout", "web")]


def test_logout_after_the_end_of_the_session_leads_to_the_login(world: TokenWorld) -> None:
    answer = world.ask("POST", "/logout", headers={**OWN, "Cookie": "dragoman=x"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert world.logged == []


def test_get_logs_nobody_out(world: TokenWorld) -> None:
    cookie = {"Cookie": world.login()}
    assert world.ask("GET", "/logout", headers=cookie).status_code == 405
    assert who(world.ask("GET", "/", headers=cookie)) == "web"


def test_session_ends_when_its_token_is_revoked(world: TokenWorld) -> None:
    cookie = {"Cookie": world.login()}
    world.revoked.add("web")
    assert who(world.ask("GET", "/", headers=cookie)) == "401"


def test_start_page_shows_the_rights_and_escapes_them(world: TokenWorld) -> None:
    hostile = "<script>alert(1)</script>*"
    rights = Rights(call=[hostile, '"><img src=x>'], work=["a&b"])
    world.broker.principals.apply({"web": (rights, PrincipalLimits())})
    page = world.ask("GET", "/", headers=bearer(WEB)).text
    assert "<code>&lt;script&gt;alert(1)&lt;/script&gt;*</code>" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "a&amp;b" in page
    assert "Log out" not in page, "a request with a token has no session"
    assert "/metrics" not in page


def test_start_page_of_a_session_has_a_logout_button(world: TokenWorld) -> None:
    page = world.ask("GET", "/", headers={"Cookie": world.login(OPS)}).text
    assert 'action="/logout"' in page
    assert "/metrics" in page
    assert "all services" in page


def test_pages_have_no_scripts_and_no_styles_of_their_own(world: TokenWorld) -> None:
    """The Content-Security-Policy forbids both."""
    for path in ("/", "/login"):
        page = world.ask("GET", path, headers=bearer(OPS)).text.lower()
        assert "<script" not in page
        assert "style=" not in page
        assert "<style" not in page
        assert "onload" not in page

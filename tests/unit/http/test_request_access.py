"""The principal of a request: by token, login session or connection; and requests without one (R158, R160)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_worker import kind
from http_world import World
from token_world import EXPIRED, HOST, OPS, OWN, UNKNOWN, WEB, TokenWorld, bearer, who

from case_tables import check_every_row
from dragoman.core.rights import Principal
from dragoman.http.admission import Admission
from dragoman.http.request_access import UNAUTHENTICATED, RequestAccess

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def world() -> Iterator[TokenWorld]:
    world = TokenWorld()
    yield world
    world.close()


# ---------------------------------------------------------------- credentials


def test_first_credentials_of_a_request_count() -> None:
    def check(name: str, token: str | None, session: str, certificate: str, expected: str) -> None:
        world = TokenWorld()
        try:
            if certificate:
                world.certified(certificate)
            headers = dict(bearer(token)) if token is not None else {}
            if session:
                headers["Cookie"] = world.login(session) if session.startswith("dgm_") else session
            assert who(world.ask("GET", "/", headers=headers)) == expected, name
        finally:
            world.close()

    check_every_row(
        check,
        [
            ("a token", WEB, "", "", "web"),
            ("a token before a session", WEB, OPS, "", "web"),
            ("a token before a certificate", WEB, "", "ops", "web"),
            ("a session", None, OPS, "", "ops"),
            ("a session before a certificate", None, OPS, "web", "ops"),
            ("a certificate", None, "", "web", "web"),
            ("an unknown session, and a certificate", None, "dragoman=x", "web", "web"),
            ("an unknown token is not replaced by a session", UNKNOWN, OPS, "", "401"),
            ("an unknown token is not replaced by a certificate", UNKNOWN, "", "ops", "401"),
            ("an empty token", "", "", "ops", "401"),
            ("an expired token", EXPIRED, "", "", "401"),
            ("an unknown session", None, "dragoman=x", "", "401"),
            ("a session under another name", None, "dragoman2=x; xdragoman=y", "", "401"),
            ("nothing", None, "", "", "401"),
        ],
    )


@pytest.mark.parametrize("value", ["bearer dgm_web", "BEARER   dgm_web  ", "Bearer dgm_web"])
def test_scheme_has_any_case(world: TokenWorld, value: str) -> None:
    assert who(world.ask("GET", "/", headers={"Authorization": value})) == "web"


def test_another_scheme_proves_nothing(world: TokenWorld) -> None:
    for value in ("Basic ZGdtX3dlYg==", "dgm_web", "Token dgm_web", ""):
        assert world.ask("GET", "/v1/services", headers={"Authorization": value}).status_code == 401


def test_response_is_the_same_without_and_with_wrong_credentials(world: TokenWorld) -> None:
    answers = []
    for headers in ({}, bearer(UNKNOWN), bearer(EXPIRED), bearer(""), {"Cookie": "dragoman=x"}):
        world.asked.clear()
        answer = world.ask("GET", "/v1/services", headers=headers)
        answers.append((answer.status_code, answer.headers.raw, answer.content))
        assert len(world.asked) == 1, "the same work"
    assert answers.count(answers[0]) == len(answers)
    assert answers[0][0] == 401
    answer = world.ask("GET", "/v1/services")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert kind(answer) == (401, "unauthenticated")
    assert answer.json()["detail"] == UNAUTHENTICATED
    assert set(world.reports) == {"unauthenticated"}


def test_empty_token_never_is_a_principal() -> None:
    """The lookup without a token must not find a principal whose file has the hash of the empty string."""
    everyone = Admission(Principal("web"))
    assert RequestAccess(lambda token: everyone).admit({"method": "GET", "headers": []}) is None


def test_requests_without_a_principal_learn_nothing_of_routes(world: TokenWorld) -> None:
    read = ("/v1/jobs", "/nowhere", "/metrics", "/v1/health", "/openapi.json", "/v1/events")
    rows = [("PATCH", "/v1/jobs"), ("POST", "/v1/call/x"), ("POST", "/v1/workers"), *(("GET", each) for each in read)]
    assert {(*row, world.ask(*row).status_code) for row in rows} == {(*row, 401) for row in rows}
    assert world.broker.jobs == {}


def test_health_checks_answer_everybody_with_one_word(world: TokenWorld) -> None:
    assert (world.ask("GET", "/livez").text, world.ask("GET", "/readyz").text) == ("alive\n", "ready\n")
    ready = world.listener.health()
    ready.ready, ready.problems = False, ["the store cannot write: secret disk"]
    world.listener.health = lambda: ready
    answer = world.ask("GET", "/readyz")
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (503, "unready\n", "1")
    known = world.ask("GET", "/readyz", headers=bearer(WEB))
    assert (known.status_code, known.json()["detail"]) == (503, "the store cannot write: secret disk")


def test_browser_gets_the_login_page_and_programs_a_problem(world: TokenWorld) -> None:
    page = world.ask("GET", "/v1/jobs", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert page.headers["www-authenticate"] == "Bearer"
    assert 'action="/login"' in page.text
    assert kind(world.ask("POST", "/v1/jobs", headers={**HTML, **OWN})) == (401, "unauthenticated")
    assert kind(world.ask("GET", "/", headers={"Accept": "*/*"})) == (401, "unauthenticated")


# ---------------------------------------------------------------- rights


def test_jobs_and_workers_belong_to_the_principal(world: TokenWorld) -> None:
    world.worker("mail.send")
    world.begin("POST", "/v1/call/mail.send", headers=bearer(WEB), content=b"x")
    [job] = world.broker.jobs.values()
    assert job.owner.principal.name == "web"
    joined = world.ask("POST", "/v1/workers", headers=bearer(WEB), json={"services": ["resize"]}).json()
    assert world.broker.worker_registry.workers[joined["id"]].owner.principal.name == "web"


def test_missing_right_is_forbidden(world: TokenWorld) -> None:
    world.worker("resize")
    for path in ("/v1/call/resize", "/v1/jobs?service=resize"):
        refused = world.ask("POST", path, headers=bearer(WEB), content=b"x")
        assert kind(refused) == (403, "forbidden")
        assert refused.json()["detail"].startswith("web may not call 'resize'")
    joined = world.ask("POST", "/v1/workers", headers=bearer(WEB), json={"services": ["resize", "mail"]})
    assert (kind(joined), joined.json()["detail"]) == ((403, "forbidden"), "web may not work for 'mail'")


def test_limits_count_for_each_principal() -> None:
    world = TokenWorld(max_jobs_per_caller=1)
    try:
        world.worker("mail.send")
        for token, expected in ((WEB, None), (WEB, 429), (OPS, None)):
            task = world.begin("POST", "/v1/call/mail.send", headers=bearer(token), content=b"x")
            assert (world.finish(task).status_code if task.done() else None) == expected
        refused = world.ask("POST", "/v1/call/mail.send", headers=bearer(WEB), content=b"x")
        assert (kind(refused), refused.headers["retry-after"]) == ((429, "busy"), "1")
    finally:
        world.close()


def test_metrics_need_the_right_to_see_all(world: TokenWorld) -> None:
    refused = world.ask("GET", "/metrics", headers=bearer(WEB))
    assert kind(refused) == (403, "forbidden")
    assert refused.json()["detail"].startswith("web may not see all services; an administrator of the broker gives the")


# ---------------------------------------------------------------- cookies and other pages


def test_cookie_needs_the_own_origin_for_everything_but_get(world: TokenWorld) -> None:
    cookie = {"Cookie": world.login(OPS)}
    rows = [
        ("GET", "/v1/services", {}, 200),
        ("HEAD", "/v1/services", {}, 200),
        ("POST", "/v1/services/s/pause", {}, 403),
        ("POST", "/v1/services/s/pause", {"Origin": "null"}, 403),
        ("POST", "/v1/services/s/pause", {"Origin": "http://evil.example"}, 403),
        ("POST", "/v1/services/s/pause", {"Origin": "http://127.0.0.1:9999"}, 403),
        ("PUT", "/v1/schedules/x", {}, 403),
        ("DELETE", "/v1/schedules/x", {}, 403),
        ("POST", "/login", {}, 403),
        ("POST", "/logout", {}, 403),
        ("POST", "/v1/services/s/pause", OWN, 200),
        ("POST", "/v1/services/s/pause", {"Origin": f"https://{HOST}"}, 200),  # through a proxy with TLS
    ]
    for method, path, headers, expected in rows:
        answer = world.ask(method, path, headers={**cookie, **headers})
        assert answer.status_code == expected, (method, path, headers)
        if expected == 403:
            assert kind(answer) == (403, "no-origin")
    assert world.ask("POST", "/v1/services/s/resume", headers=bearer(OPS)).status_code == 200, "tokens need none"


def test_plain_cookie_is_not_accepted_over_tls() -> None:
    """Another page of the same host name, without TLS, can set it."""
    world = TokenWorld(is_tls=True)
    try:
        name, _, id = world.login().partition("=")
        assert name == "__Host-dragoman"
        assert who(world.ask("GET", "/", headers={"Cookie": f"dragoman={id}"})) == "401"
        assert who(world.ask("GET", "/", headers={"Cookie": f"x=1; __Host-dragoman={id}; y"})) == "web"
    finally:
        world.close()


def test_page_without_tls_is_foreign_to_a_listener_with_it() -> None:
    """Anybody on the way to the browser can write a page of `http://` with the same name. It was taken for our own."""
    world = TokenWorld(is_tls=True)
    try:
        cookie = {"Cookie": world.login(OPS)}
        for origin, expected in ((f"http://{HOST}", 403), (f"https://{HOST}", 200)):
            headers = {**cookie, "Origin": origin}
            assert world.ask("POST", "/v1/services/s/pause", headers=headers).status_code == expected, origin
    finally:
        world.close()


def test_no_response_has_cors_headers(world: TokenWorld) -> None:
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, headers in (("OPTIONS", preflight), ("GET", bearer(WEB)), ("GET", {})):
        answer = world.ask(method, "/v1/services", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_responses_are_not_cached_but_the_style_sheet(world: TokenWorld) -> None:
    for path in ("/", "/login", "/v1/services", "/v1/health", "/nowhere", "/livez"):
        for headers in (bearer(OPS), {}):
            assert world.ask("GET", path, headers=headers).headers.get_list("cache-control") == ["no-store"], path
    assert world.ask("GET", "/assets/page.css").headers.get_list("cache-control") == ["max-age=3600"]


def test_listener_without_tokens_has_no_login() -> None:
    world = World()
    try:
        assert world.ask("GET", "/login").status_code == 404
        assert world.ask("POST", "/logout").status_code == 404
        assert who(world.ask("GET", "/", headers={"Cookie": "dragoman=x", **bearer(UNKNOWN)})) == "local"
        assert "Log out" not in world.ask("GET", "/").text
        world.admission = None
        assert kind(world.ask("GET", "/", headers=HTML)) == (401, "unauthenticated")
    finally:
        world.close()


def test_document_names_the_credentials(world: TokenWorld) -> None:
    document = world.ask("GET", "/openapi.json", headers=bearer(WEB)).json()
    assert document["security"] == [{"token": []}, {"session": []}]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    described = {path: each["get"] for path, each in document["paths"].items() if "get" in each}
    assert [path for path, each in described.items() if "401" not in each["responses"]] == ["/livez", "/readyz"]
    assert [path for path, each in described.items() if each.get("security") == []] == ["/livez", "/readyz"]
    assert "/login" not in document["paths"]
    assert "/" not in document["paths"]

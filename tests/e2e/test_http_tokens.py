"""Tokens, certificates and revocation over HTTP, with curl (R158 to R163)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from authority import Authority, Issued
from programs import PATIENCE, Program, Programs
from users import ALICE, as_user, response

STREAMING = ("-sS", "-N", "--max-time", str(4 * PATIENCE))


class Setup:
    """A broker with an access folder."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs = programs
        self.folder = folder / "access"
        self.tokens: dict[str, str] = {}

    def token(self, name: str, *rights: str) -> str:
        made = self.programs.run("token", "new", name, *rights, "--access", self.folder)
        self.tokens[name] = token = made.out.strip()
        (self.folder.parent / f"{name}.header").write_text(f"Authorization: Bearer {token}\n")
        return token

    def allow(self, name: str, *words: object) -> None:
        allowed = self.programs.run("access", "allow", name, *words, "--access", self.folder)
        assert allowed.ends() == 0, allowed.err

    def serve(self, url: str) -> str:
        """Start a broker. Returns its address."""
        words = ("serve", url, "--set", f"access={self.folder}", "--data", "memory", "--strict", "--log", "human")
        self.broker = self.programs.dragoman(*words)
        return self.broker.prints(r"(https?://\S+) +both")

    def reload(self, times: int = 1) -> None:
        self.broker.signal(signal.SIGHUP)
        self.broker.prints("access reloaded", times)

    def curl(self, *words: object, name: str = "") -> Program:
        """Start curl, as a principal. Its token is in a file: arguments can be seen by all users."""
        header = ("-H", f"@{self.folder.parent / name}.header") if name else ()
        return self.programs.start("curl", *header, *words)

    def status(self, url: str, *words: object, name: str = "") -> tuple[int, str]:
        """Send a request. Returns its status and body."""
        done = self.curl("-sS", "-w", "\n%{http_code}", *words, url, name=name)
        assert done.ends() == 0, done.err
        body, _, status = done.out.rpartition("\n")
        return int(status), body


@pytest.fixture
def setup(programs: Programs, tmp_path: Path) -> Setup:
    return Setup(programs, tmp_path)


def kind(answer: tuple[int, str]) -> tuple[int, str]:
    status, body = answer
    return status, json.loads(body)["type"].removeprefix("urn:dragoman:")


# -------------------------------------------------------------------- tokens


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_curl_with_a_token(setup: Setup, loop: str) -> None:
    setup.token("web", "--call", "mail*")
    setup.token("gpu", "--work", "mail")
    setup.token("ops", "--administer", "*")
    setup.programs.environment["DRAGOMAN_LOOP"] = loop
    url = setup.serve("http://127.0.0.1:0?auth=token")
    (setup.folder.parent / "bad.header").write_text("Authorization: Bearer dgm_unknown\n")
    assert kind(setup.status(f"{url}/v1/services")) == (401, "unauthenticated"), "root, and the broker's own user"
    assert kind(setup.status(f"{url}/v1/services", name="bad")) == (401, "unauthenticated")
    assert setup.status(f"{url}/v1/services", name="web")[0] == 200
    assert kind(setup.status(f"{url}/metrics", name="web")) == (403, "forbidden")
    assert setup.status(f"{url}/metrics", name="ops")[0] == 200
    for path, word in (("/livez", "alive\n"), ("/readyz", "ready\n")):
        assert setup.status(f"{url}{path}") == (200, word)
    refused = setup.status(f"{url}/v1/call/resize", "-d", "x", name="web")
    assert (kind(refused), json.loads(refused[1])["detail"]) == ((403, "forbidden"), "web may not call 'resize'")
    join = ("--json", '{"services": ["mail"]}')
    assert kind(setup.status(f"{url}/v1/workers", *join, name="web")) == (403, "forbidden")
    assert setup.status(f"{url}/v1/workers", *join, name="gpu")[0] == 201
    assert as_user(ALICE, response, url, "/v1/services")[0] == 401, "tokens count, and not users"
    secret = setup.status(f"{url}/v1/jobs?token={setup.tokens['web']}", name="web")
    assert kind(secret) == (400, "secret-in-url")
    setup.broker.prints("request rejected.*secret-in-url")
    for token in (*setup.tokens.values(), "dgm_unknown"):
        assert token not in setup.broker.out + setup.broker.err


def test_curl_logs_in_and_out(setup: Setup, tmp_path: Path) -> None:
    token = setup.token("web", "--call", "*")
    url = setup.serve("http://127.0.0.1:0?auth=token")
    jar = ("-c", tmp_path / "jar", "-b", tmp_path / "jar")
    (tmp_path / "login").write_text(f"token={token}")
    own = ("-H", f"Origin: {url}")
    assert setup.status(f"{url}/login", "-d", "token=dgm_wrong")[0] == 401
    assert setup.status(f"{url}/login", *jar, *own, "-d", f"@{tmp_path / 'login'}")[0] == 303
    [cookie] = [line for line in (tmp_path / "jar").read_text().splitlines() if "\tdragoman\t" in line]
    assert cookie.startswith("#HttpOnly_127.0.0.1\tFALSE\t/\tFALSE\t")
    assert setup.status(f"{url}/v1/services", *jar)[0] == 200
    assert kind(setup.status(f"{url}/v1/jobs?service=x", *jar, "-d", "x")) == (403, "no-origin")
    assert setup.status(f"{url}/v1/jobs?service=x", *jar, *own, "-d", "x")[0] == 202
    stream = setup.curl(*STREAMING, *jar, f"{url}/v1/events")
    stream.prints(":")
    assert setup.status(f"{url}/logout", *jar, *own, "-X", "POST")[0] == 303
    assert stream.ends() != 0, "the streams of the session end"
    assert setup.status(f"{url}/v1/services", *jar)[0] == 401
    log = setup.broker.prints(r"(?s)login refused.*\blogin\b.*\blogout\b.*")
    identity = cookie.rpartition("\t")[2]
    assert not [each for each in (token, "dgm_wrong", identity) if each in log + setup.broker.out + setup.broker.err]


def test_cookie_that_another_user_of_this_machine_has_got_is_worth_nothing(setup: Setup, tmp_path: Path) -> None:
    """Browsers send a cookie to every port of a host name. Another user's server on 127.0.0.1 got the session of an
    administrator, and was one for 12 hours."""
    token = setup.token("ops", "--administer", "*")
    url = setup.serve("http://127.0.0.1:0?auth=token")
    jar = ("-c", tmp_path / "jar", "-b", tmp_path / "jar")
    (tmp_path / "login").write_text(f"token={token}")
    assert setup.status(f"{url}/login", *jar, "-H", f"Origin: {url}", "-d", f"@{tmp_path / 'login'}")[0] == 303
    [cookie] = [line for line in (tmp_path / "jar").read_text().splitlines() if "\tdragoman\t" in line]
    fields = f"Cookie: dragoman={cookie.rpartition(chr(9))[2]}\r\nOrigin: http://localhost\r\n"
    assert as_user(ALICE, response, url, "/v1/services", "GET", fields)[0] == 401
    assert as_user(ALICE, response, url, "/v1/access/reload", "POST", fields)[0] == 401
    assert as_user(ALICE, response, url, "/logout", "POST", fields)[0] == 303
    assert setup.status(f"{url}/v1/services", *jar)[0] == 200, "the session of its own user goes on"


# -------------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def client(authority: Authority) -> Issued:
    return authority.issue("client", "extendedKeyUsage=clientAuth\nsubjectAltName=DNS:gpu.example")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    """A certificate of an authority that the broker does not trust, with the same name."""
    other = Authority(tmp_path_factory.mktemp("other") / "ca", "Other CA")
    return other.issue("client", "extendedKeyUsage=clientAuth\nsubjectAltName=DNS:gpu.example")


def shown(issued: Issued) -> tuple[object, ...]:
    return "--cert", issued.cert, "--key", issued.key


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_curl_with_a_certificate_or_a_token(
    setup: Setup, authority: Authority, client: Issued, stranger: Issued, loop: str
) -> None:
    setup.allow("gpu", "--tls-name", "gpu.example", "--work", "resize")
    setup.token("web", "--call", "*")
    setup.programs.environment["DRAGOMAN_LOOP"] = loop
    url = setup.serve(f"https://127.0.0.1:0?{authority.issue().options}&client_ca={authority.cert}&auth=token")
    trust = ("--cacert", authority.cert)
    unknown = authority.issue("unknown", "extendedKeyUsage=clientAuth")
    join = ("--json", '{"services": ["resize"]}')
    assert setup.status(f"{url}/v1/workers", *trust, *shown(client), *join)[0] == 201, "by certificate"
    assert kind(setup.status(f"{url}/v1/workers", *trust, *join, name="web")) == (403, "forbidden"), "by token"
    both = setup.status(f"{url}/v1/workers", *trust, *shown(client), *join, name="web")
    assert json.loads(both[1])["detail"] == "web may not work for 'resize'", "a token counts before a certificate"
    assert kind(setup.status(f"{url}/v1/services", *trust)) == (401, "unauthenticated")
    assert kind(setup.status(f"{url}/v1/services", *trust, *shown(unknown))) == (401, "unauthenticated")
    setup.broker.prints("certificate rejected.*dragoman access allow NAME --tls-name")
    for wrong in (("--cacert", stranger.cert), (*trust, *shown(stranger))):
        failed = setup.curl("-sS", *wrong, f"{url}/livez")
        assert failed.ends() != 0
        assert failed.out == ""
    jar = ("-D", "-", "-o", "/dev/null", "-d", "token=dgm_wrong")
    assert "strict-transport-security" not in setup.status(f"{url}/login", *trust, *jar)[1].lower()


def test_certificate_is_required_without_tokens(
    setup: Setup, authority: Authority, client: Issued, stranger: Issued
) -> None:
    setup.allow("gpu", "--tls-name", "gpu.example", "--work", "resize")
    options = f"{authority.issue().options}&client_ca={authority.cert}&hsts=600"
    url = setup.serve(f"https://127.0.0.1:0?{options}")
    trust = ("--cacert", authority.cert)
    unknown = authority.issue("unknown", "extendedKeyUsage=clientAuth")
    page = setup.status(f"{url}/account", *trust, *shown(client), "-D", "-")
    assert page[0] == 200
    assert "<strong>gpu</strong>" in page[1]
    assert "strict-transport-security: max-age=600" in page[1]
    rejected = setup.status(f"{url}/", *trust, *shown(unknown))
    assert kind(rejected) == (401, "unauthenticated")
    for wrong in ((), shown(stranger)):
        failed = setup.curl("-sS", *trust, *wrong, f"{url}/")
        assert failed.ends() != 0
        assert failed.out == ""


# -------------------------------------------------------------------- users


def test_user_of_the_table_is_a_principal(setup: Setup) -> None:
    setup.allow("alice", "--uid", ALICE, "--call", "mail")
    url = setup.serve("http://127.0.0.1:0")
    assert "<strong>alice</strong>" in as_user(ALICE, response, url, "/account")[1]
    status, body = as_user(ALICE, response, url, "/v1/call/resize", "POST")
    assert (status, json.loads(body)["detail"]) == (403, "alice may not call 'resize'")
    assert "<strong>local</strong>" in response(url, "/account")[1]


def test_users_of_the_table_are_known_where_anyone_may_connect(setup: Setup) -> None:
    setup.allow("alice", "--uid", ALICE, "--call", "mail")
    url = setup.serve("http://127.0.0.1:0?loopback=anyone")
    assert "<strong>alice</strong>" in as_user(ALICE, response, url, "/account")[1]
    assert "<strong>anyone</strong>" in as_user(ALICE + 1, response, url, "/account")[1]
    assert "<strong>local</strong>" in response(url, "/account")[1]


# -------------------------------------------------------------------- revocation


def test_revoked_principal_is_gone_in_a_second(setup: Setup) -> None:
    setup.token("web", "--call", "*", "--see", "*")
    setup.token("gpu", "--work", "resize")
    setup.token("ops", "--administer", "*", "--call", "*")
    url = setup.serve("http://127.0.0.1:0?auth=token")
    events = setup.curl(*STREAMING, f"{url}/v1/events", name="web")
    live = setup.curl(*STREAMING, f"{url}/v1/live", name="web")
    others = setup.curl(*STREAMING, f"{url}/v1/events", name="ops")
    for stream in (events, live, others):
        stream.prints(":")
    join = ("--json", '{"services": ["resize"], "capacity": 2}')
    joined = json.loads(setup.status(f"{url}/v1/workers", *join, name="gpu")[1])
    secret = ("-H", f"Dragoman-Worker-Token: {joined['token']}")
    path = f"{url}/v1/workers/{joined['id']}"
    call = setup.curl(*STREAMING, f"{url}/v1/call/resize", "-d", "x", name="ops")
    given = setup.status(f"{path}/next", "-X", "POST", *secret, name="gpu")
    assert given == (200, "x")
    poll = setup.curl(*STREAMING, f"{path}/next", "-X", "POST", *secret, name="gpu")
    patient = ("-H", "Dragoman-Wait-For-Worker: true", "-d", "x")
    waiting = setup.curl(*STREAMING, f"{url}/v1/call/later", *patient, name="web")
    others.prints('"service":"later","state":"waiting"')
    for name in ("web", "gpu"):
        (setup.folder / f"{name}.toml").unlink()
    setup.reload()
    assert [each.ends() != 0 for each in (events, live, waiting, poll)] == [True] * 4, "they were cut off"
    assert call.ends() == 0
    assert json.loads(call.out)["type"] == "urn:dragoman:lost", "the worker has left (D8)"
    assert kind(setup.status(f"{path}/heartbeat", "-X", "POST", *secret, name="gpu")) == (401, "unauthenticated")
    assert setup.status(f"{url}/v1/services", name="web")[0] == 401
    assert setup.status(f"{url}/v1/services", name="ops")[0] == 200
    assert others.process.poll() is None, "another principal keeps its stream"

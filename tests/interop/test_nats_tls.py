"""TLS to a NATS server: after INFO, before INFO, with and without a certificate of our own; and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from authority import Authority, Issued
from case_tables import check_every_row
from dragoman.carriers.nats_connect import NO_CREDENTIALS, Credentials, TokenCredentials
from dragoman.cluster.jetstream import ApiRequest
from dragoman.cluster.requests import AnswerKind
from dragoman.server.nats_connection import NatsUnavailable
from nats_servers import NatsServer
from nats_visits import Inbox, run, visit
from programs import PATIENCE

StartNats = Callable[[str], NatsServer]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Certified:
    """Files of a server and of its clients."""

    def __init__(self, authority: Authority) -> None:
        self.ca = authority.cert
        self.server = authority.issue()
        self.client = authority.issue("client", "extendedKeyUsage=clientAuth\nsubjectAltName=email:me@example.com")
        self.elsewhere = authority.issue("elsewhere", "subjectAltName=DNS:elsewhere.example")

    def settings(self, *more: str, shown: Issued | None = None) -> str:
        issued = shown or self.server
        files = [f'cert_file: "{issued.cert}"', f'key_file: "{issued.key}"', f'ca_file: "{self.ca}"']
        lines = [*files, f"timeout: {PATIENCE}", *more]  # the default of 2 s ends handshakes on an overloaded machine
        return "tls {\n" + "\n".join(lines) + "\n}"

    def url(self, server: NatsServer, options: str = "", host: str = "127.0.0.1") -> str:
        return f"tls://{host}:{server.port}?ca={self.ca}{'&' if options else ''}{options}"


@pytest.fixture(scope="module")
def certified(authority: Authority) -> Certified:
    return Certified(authority)


def test_messages_travel_inside_tls(start_nats: StartNats, certified: Certified, loop_name: str) -> None:
    """After INFO, and before INFO; also those of a mebibyte."""
    after = start_nats(certified.settings())
    first = start_nats(certified.settings("handshake_first: true"))
    payload = bytes(range(256)) * 4096

    async def work() -> None:
        for url in (
            certified.url(after),
            certified.url(first, "tls_first=true"),
            certified.url(after, host="localhost"),
        ):
            async with visit(url) as a, visit(url) as b:
                inbox = Inbox()
                b.client.subscribe(b"big", inbox)
                assert await b.flush()
                for _ in range(3):
                    a.client.publish(b"big", payload)
                for _ in range(3):
                    assert (await inbox.next())[3] == payload
                assert a.client.info is not None
                assert a.client.info.tls_required

    run(work, loop_name)


def test_a_server_that_requires_a_certificate_gets_ours(start_nats: StartNats, certified: Certified) -> None:
    server = start_nats(certified.settings("verify: true"))
    mapped = start_nats(
        certified.settings("verify_and_map: true") + "\nauthorization { users: [ { user: me@example.com } ] }"
    )
    ours = f"cert={certified.client.cert}&key={certified.client.key}"

    async def work() -> None:
        for each in (server, mapped):
            async with visit(certified.url(each, ours)) as a:
                assert (await a.request(ApiRequest(b"nobody"), PATIENCE)).kind is AnswerKind.NO_RESPONDERS
            with pytest.raises(NatsUnavailable, match="certificate"):
                async with visit(certified.url(each)):
                    pass

    run(work)


def test_tls_is_offered_by_a_server_that_also_admits_plain_clients(start_nats: StartNats, certified: Certified) -> None:
    server = start_nats(certified.settings() + "\nallow_non_tls: true")

    async def work() -> None:
        async with visit(certified.url(server)) as a, visit(server.url) as b:
            assert await a.flush()
            assert await b.flush()

    run(work)


def test_a_token_may_be_sent_inside_tls(start_nats: StartNats, certified: Certified) -> None:
    server = start_nats(certified.settings() + "\nauthorization { token: s3cret }")

    async def work() -> None:
        async with visit(certified.url(server), TokenCredentials("s3cret")) as a:
            assert await a.flush()

    run(work)


def test_wrong_certificates_and_servers_are_refused_with_the_reason(
    start_nats: StartNats, certified: Certified, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = TokenCredentials("s3cret")
    tls = start_nats(certified.settings() + "\nauthorization { token: s3cret }")
    elsewhere = start_nats(certified.settings(shown=certified.elsewhere) + "\nauthorization { token: s3cret }")
    first = start_nats(certified.settings("handshake_first: true"))
    hasty = start_nats(certified.settings("handshake_first: true", "timeout: 0.2"))
    plain = start_nats("")
    other = Authority(tmp_path_factory.mktemp("other") / "ca", "Other CA")

    def check(url: str, credentials: Credentials, problem: str) -> None:
        async def work() -> None:
            with pytest.raises(NatsUnavailable, match=problem) as caught:
                async with visit(url, credentials, timeout=2.0):
                    pass
            assert "s3cret" not in str(caught.value)

        run(work)

    check_every_row(
        check,
        [
            (f"tls://127.0.0.1:{tls.port}?ca={other.cert}", secret, "unknown issuer"),
            (certified.url(elsewhere), secret, "for another name"),
            (tls.url, NO_CREDENTIALS, "the server requires TLS: write tls://"),
            (certified.url(plain), NO_CREDENTIALS, "the server has no TLS"),
            (certified.url(plain, "tls_first=true"), NO_CREDENTIALS, "sends INFO before TLS: remove tls_first"),
            (certified.url(first), NO_CREDENTIALS, r"no handshake within 2 s; .* \(tls_first=true\)"),
            (certified.url(hasty), NO_CREDENTIALS, r"the peer closed .* without INFO: .* \(tls_first=true\)"),
            (f"tls://127.0.0.1:{tls.port}?ca=/nowhere/ca.pem", secret, "No such file"),
        ],
    )
    assert "s3cret" not in tls.log + elsewhere.log


def test_a_certificate_for_a_name_is_checked_by_that_name(start_nats: StartNats, certified: Certified) -> None:
    server = start_nats(certified.settings(shown=certified.elsewhere))

    async def work() -> None:
        async with visit(certified.url(server, "server_name=elsewhere.example")) as a:
            assert await a.flush()

    run(work)

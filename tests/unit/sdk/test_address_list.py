"""Several addresses of a client or a worker: valid forms, and the errors for invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from case_tables import check_every_row
from dragoman.access.keys import key_file, new_key_file
from dragoman.sdk.address import AddressError, TlsAddress, UnixAddress, parse
from dragoman.sdk.address_list import Urls, as_one_url, checked_urls
from dragoman.sdk.credentials import CredentialError, Credentials, credentials_of
from dragoman.sdk.default_url import url_or_default
from dragoman.sdk.targets import SPOKEN, Target, caller_target, worker_target


def places(target: Target) -> list[str]:
    return [str(each.place) for each in target.each]


def test_each_host_and_each_url_is_an_address() -> None:
    rows: list[tuple[Urls, list[str]]] = [
        ("tcp://a:7400", ["a:7400"]),
        ("tcp://a:7400,b:7401,[::1]:7402", ["a:7400", "b:7401", "[::1]:7402"]),
        ("tcp://a:7400,b:7401/", ["a:7400", "b:7401"]),
        ("tcp://a:7400,b:7401?window=9", ["a:7400", "b:7401"]),
        ("http://a:80,b:81", ["a:80", "b:81"]),
        ("tls://a:7400,b:7401?server_name=x", ["a:7400", "b:7401"]),
        ("memodb+tcp://a:1,b:1", ["a:1", "b:1"]),
        ("pingpong+tcp://a:1,b:1?frontend=2", ["a:2", "b:2"]),
        (["tcp://a:7400", "tcp://b:7400,c:7400"], ["a:7400", "b:7400", "c:7400"]),
        (("tcp://a:7400", "ipc:///run/d.sock", "tls://b:7400"), ["a:7400", "/run/d.sock", "b:7400"]),
        ("ipc:///run/a,b.sock", ["/run/a,b.sock"]),
        (["ipc:///run/a.sock", "ipc:///run/b.sock"], ["/run/a.sock", "/run/b.sock"]),
        (["tcp://a:7400?max_payload=1MiB", "tcp://b:7400"], ["a:7400", "b:7400"]),
    ]
    check_every_row(lambda urls, wanted: _same(places(caller_target(urls)), wanted), rows)


def _same(found: object, wanted: object) -> None:
    assert found == wanted


def test_options_of_a_url_apply_to_all_its_hosts() -> None:
    target = caller_target("tls://a:7400,b:7400?server_name=x&window=9")
    assert [each.options.window for each in target.each] == [9, 9]
    files = [each.place.tls.server_name for each in target.each if isinstance(each.place, TlsAddress)]
    assert files == ["x", "x"]


def test_every_address_has_its_own_proof(tmp_path: Path) -> None:
    pairs = [new_key_file(tmp_path, name, name.encode().ljust(32)) for name in ("one", "two", "broker")]
    server = pairs[2].public.hex()
    token = tmp_path / "token"
    token.write_text("dgm_secret")
    token.chmod(0o600)
    target = caller_target(
        [
            f"tcp://a:1?key={key_file(tmp_path, 'one')}&server_key={server}",
            f"tcp://b:1?key={key_file(tmp_path, 'two')}&server_key={server}",
            f"tls://c:1?token_file={token}",
            "ipc:///run/d.sock",
        ]
    )
    assert [each.proof.public_key for each in target.each] == [pairs[0].public.hex(), pairs[1].public.hex(), "", ""]
    assert [each.proof.token is not None for each in target.each] == [False, False, True, False]


def test_arguments_apply_to_all_addresses() -> None:
    target = caller_target(["tcp://a:1", "tcp://b:1"], None, credentials_of(token="t", tls=True))
    assert [type(each.place) for each in target.each] == [TlsAddress, TlsAddress]
    assert all(each.proof.token is not None for each in target.each)
    with pytest.raises(CredentialError, match="is a Unix socket"):
        caller_target(["tcp://a:1", "ipc:///run/d.sock"], None, Credentials(tls=True))
    with pytest.raises(CredentialError, match=r"readable by everybody on the way to b:1"):
        caller_target("tcp://127.0.0.1:1,b:1", None, credentials_of(token="t"))


def test_an_invalid_list_is_an_error_that_says_what_to_write() -> None:
    rows: list[tuple[Callable[[Urls], Target], Urls, str]] = [
        (caller_target, "tcp://a:1,,b:1", "'tcp://a:1,,b:1': a host is missing beside a comma"),
        (caller_target, "tcp://a:1,", "a host is missing beside a comma"),
        (caller_target, "tcp://,a:1", "a host is missing beside a comma"),
        (caller_target, "tcp://a:1,b", "the port is missing; write b:PORT"),
        (caller_target, "tcp://a,b:1", "the port is missing; write a:PORT"),
        (caller_target, "tcp://a:1,tcp://b:1", "write the scheme and the options once: tcp://a:7400,b:7400"),
        (caller_target, "ipc:///a.sock,ipc:///b.sock", "write the scheme and the options once"),
        (caller_target, "tcp://a:1?window=1,b:1", "option window=1,b:1: must be a whole number"),
        (caller_target, "tcp://a:1,b:70000", "the port '70000' is not a number from 1 to 65535"),
        (caller_target, "tcp://a:1,a:1", "a:1 occurs twice; name each broker once"),
        (caller_target, ["tcp://a:1", "tcp://a:1"], "a:1 occurs twice"),
        (caller_target, ["tcp://a:1", "http://b:1"], "'http://b:1': its dialect is http, and that of the first"),
        (caller_target, ["tcp://a:1?window=1", "tcp://b:1?window=2"], "the option window= of b:1 differs from that of"),
        (caller_target, "tcp://" + ",".join(f"h{n}:1" for n in range(65)), "65 addresses; at most 64 are allowed"),
        (worker_target, "powerhose+tcp://a:1,b:1", "a worker in powerhose takes one address; several are possible in "),
        (worker_target, ["controller+unix:///a", "controller+unix:///b"], "several are possible in http, majordomo, "),
    ]

    def check(target: Callable[[Urls], Target], urls: Urls, problem: str) -> None:
        with pytest.raises(AddressError, match=re.escape(problem)):
            target(urls)

    check_every_row(check, rows)


def test_no_error_shows_a_secret() -> None:
    rows: list[tuple[Urls]] = [
        ("tcp://a:1,user:hunter2@b:1",),
        ("tcp://user:hunter2@a:1,,b:1",),
        ("tls://a:1,b:1?token=hunter2",),
        (["tcp://a:1", "tls://b:1?token=hunter2"],),
        (["tcp://a:1", "tcp://x:hunter2@b:1"],),
    ]

    def check(urls: Urls) -> None:
        with pytest.raises(AddressError) as caught:
            caller_target(urls)
        assert "hunter2" not in str(caught.value)

    check_every_row(check, rows)


def test_listeners_have_one_host() -> None:
    with pytest.raises(AddressError, match="one host is allowed here; only clients and workers take several"):
        parse("tcp://a:1,b:1", SPOKEN)
    assert parse("ipc:///run/a,b.sock", SPOKEN).place == UnixAddress("/run/a,b.sock")


def test_the_environment_takes_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_URL", "tcp://a:1,b:1")
    assert url_or_default(None) == "tcp://a:1,b:1"
    assert url_or_default(["tcp://c:1"]) == ("tcp://c:1",)
    monkeypatch.setenv("DRAGOMAN_URL", "tcp://a:1,,b:1")
    with pytest.raises(AddressError, match=re.escape("(the value of DRAGOMAN_URL): a host is missing")):
        caller_target(url_or_default(None))


def test_a_list_is_checked_before_it_is_parsed() -> None:
    with pytest.raises(AddressError, match="the list of addresses is empty"):
        checked_urls([])
    with pytest.raises(AddressError, match="an entry of the list of addresses is empty"):
        checked_urls(["tcp://a:1", ""])
    with pytest.raises(TypeError, match="has an entry of type int"):
        checked_urls(["tcp://a:1", 7])  # type: ignore[list-item]
    for wrong in (b"tcp://a:1", 7, {"tcp://a:1"}):
        with pytest.raises(TypeError, match="it must be a URL or a list of URLs"):
            checked_urls(wrong)  # type: ignore[arg-type]


def test_a_list_is_passed_to_other_programs_as_one_url_if_it_can_be() -> None:
    rows: list[tuple[Urls, str]] = [
        ("tcp://a:1,b:1", "tcp://a:1,b:1"),
        (["tcp://a:1", "tcp://b:1,c:1"], "tcp://a:1,b:1,c:1"),
        (["tls://a:1?ca=x", "tls://b:1?ca=x"], "tls://a:1,b:1?ca=x"),
        (["tcp://a:1?window=2", "tcp://b:1"], "tcp://a:1?window=2"),
        (["tcp://a:1", "tls://b:1"], "tcp://a:1"),
        (["ipc:///a.sock", "ipc:///b.sock"], "ipc:///a.sock"),
    ]
    check_every_row(lambda urls, wanted: _same(as_one_url(urls), wanted), rows)

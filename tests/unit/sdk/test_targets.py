"""Targets of callers and workers, and their service, in a dialect without service names."""

from __future__ import annotations

import pytest

from dragoman.sdk.address import AddressError, TcpAddress
from dragoman.sdk.targets import Target, caller_target, worker_target

URL = "pingpong+tcp://127.0.0.1:7401"
MEMO = "memodb+tcp://127.0.0.1:7405"


def work(url: str, service: str | None) -> Target:
    return worker_target(url, [service] if service is not None else [])


@pytest.mark.parametrize("service", [None, "default", "resize"])
def test_the_service_is_the_urls_or_default(service: str | None) -> None:
    for target in (caller_target, work):
        assert target(f"{URL}?service=resize", service).place == TcpAddress("127.0.0.1", 7401)


@pytest.mark.parametrize("target", [caller_target, work])
def test_any_other_service_is_an_error_that_says_what_to_write(target: object) -> None:
    with pytest.raises(AddressError, match="this address serves 'default', not 'resize'; add service=resize"):
        target(URL, "resize")  # type: ignore[operator]


def test_a_listeners_url_may_be_pasted_whole() -> None:
    url = f"{URL}?frontend=7402&service=resize&worker_expire=1.5&max_payload=1MiB&carrier_ping=1&insecure=true"
    assert caller_target(url, "resize").place == TcpAddress("127.0.0.1", 7402)
    assert worker_target(url, ["resize"]).place == TcpAddress("127.0.0.1", 7401)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1", "pingpong+tcp://127.0.0.1:1?frontend=x"])
def test_no_error_suggests_port_0(url: str) -> None:
    with pytest.raises(AddressError, match="port") as caught:
        caller_target(url, None)
    assert "any free" not in str(caught.value)


def test_an_option_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(AddressError, match="did you mean 'ping_every'"):
        worker_target(f"{URL}?ping_evry=1")


def test_where_the_wire_has_names_any_number_of_services_may_be_offered() -> None:
    assert worker_target(MEMO).services == ("default",)
    assert worker_target(f"{MEMO}?service=resize").services == ("resize",)
    assert worker_target(f"{MEMO}?service=resize", ["crop", "blur"]).services == ("crop", "blur")
    assert caller_target(MEMO, "anything").place == TcpAddress("127.0.0.1", 7405)


@pytest.mark.parametrize("name", ["", "a" * 129, "tab\tin it"])
def test_a_name_that_no_service_may_have_is_an_error_before_anybody_connects(name: str) -> None:
    for target in (caller_target, work):
        with pytest.raises(AddressError, match="service name"):
            target(MEMO, name)


def test_more_services_than_a_worker_may_offer_are_an_error() -> None:
    with pytest.raises(AddressError, match="64"):
        worker_target(MEMO, [f"s{number}" for number in range(65)])

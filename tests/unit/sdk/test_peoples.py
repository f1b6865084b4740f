"""Where callers and workers connect, and which service they mean, on a wire that has no service names."""

from __future__ import annotations

import pytest

from dragoman.sdk.address import AddressError, TcpPlace
from dragoman.sdk.peoples import caller_target, worker_target

URL = "pingpong+tcp://127.0.0.1:7401"


@pytest.mark.parametrize("service", [None, "default", "resize"])
def test_the_service_is_the_urls_or_default(service: str | None) -> None:
    for target in (caller_target, worker_target):
        assert target(f"{URL}?service=resize", service)[1] == TcpPlace("127.0.0.1", 7401)


@pytest.mark.parametrize("target", [caller_target, worker_target])
def test_any_other_service_is_an_error_that_says_what_to_write(target: object) -> None:
    with pytest.raises(AddressError, match="this address serves 'default', not 'resize'; add service=resize"):
        target(URL, "resize")  # type: ignore[operator]


def test_a_listeners_url_may_be_pasted_whole() -> None:
    url = f"{URL}?frontend=7402&service=resize&worker_expire=1.5&max_payload=1MiB&carrier_ping=1&insecure=true"
    assert caller_target(url, "resize")[1] == TcpPlace("127.0.0.1", 7402)
    assert worker_target(url, "resize")[1] == TcpPlace("127.0.0.1", 7401)


def test_an_option_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(AddressError, match="did you mean 'ping_every'"):
        worker_target(f"{URL}?ping_evry=1", None)

"""Problem documents, and host names that are served."""

from __future__ import annotations

import json

import pytest

from dragoman.http.hosts import Hosts, is_own_origin
from dragoman.http.problems import problem


def test_a_problem_says_what_went_wrong_to_programs_and_to_people() -> None:
    response = problem(404, "no-such-service", "No such service", "Nobody offers it.", [("retry-after", "5")])
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["retry-after"] == "5"
    assert json.loads(bytes(response.body)) == {
        "type": "urn:dragoman:no-such-service",
        "title": "No such service",
        "status": 404,
        "detail": "Nobody offers it.",
    }


@pytest.mark.parametrize("given", ["Broker", "broker.", "broker:7480", " broker "])
def test_a_name_may_be_given_in_any_dress(given: str) -> None:
    assert Hosts([given]).allows(b"broker:1")


@pytest.mark.parametrize("given", ["2001:db8::1", "[2001:DB8::1]"])
def test_an_ipv6_address_may_be_given_with_or_without_brackets(given: str) -> None:
    assert Hosts([given]).allows(b"[2001:db8::1]:7480")


def test_a_name_that_was_refused_is_refused_again_and_the_memory_is_bounded() -> None:
    hosts = Hosts()
    for _ in range(2):
        assert not hosts.allows(b"evil.example")
    for port in range(1000):
        assert hosts.allows(b"localhost:%d" % port)
    assert len(hosts._good) <= 64


def test_an_origin_is_ours_only_with_a_host_to_compare() -> None:
    assert is_own_origin(b"https://LOCALHOST:1", b"localhost:1", is_tls=False)
    assert not is_own_origin(b"http://", b"", is_tls=False)

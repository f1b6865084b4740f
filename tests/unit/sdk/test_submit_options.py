"""Submit options by dialect."""

from __future__ import annotations

import inspect
from math import inf
from typing import Any

import pytest

from dragoman import AsyncClient, Client
from dragoman.sdk.address import AddressError
from dragoman.sdk.errors import Unsupported
from dragoman.sdk.submit_options import MAX_CACHED, SubmitOptionsCache
from dragoman.sdk.unset import JOB_TIMEOUT, QUEUE_TIMEOUT, TIMEOUT

URLS = {
    "native": "tcp://127.0.0.1:1",
    "memodb": "memodb+tcp://127.0.0.1:1",
    "pingpong": "pingpong+tcp://127.0.0.1:1",
    "powerhose": "powerhose+tcp://127.0.0.1:1",
    "majordomo": "majordomo+tcp://127.0.0.1:1",
}
OPTIONS: dict[str, Any] = {
    "priority": 9,
    "attempts": 2,
    "job_timeout": 1.0,
    "queue_timeout": 1.0,
    "wait_for_worker": True,
    "tenant": "acme",
}
DEFAULTS = {"timeout": TIMEOUT, "job_timeout": JOB_TIMEOUT, "queue_timeout": QUEUE_TIMEOUT}
SPOKEN = {"native": set(OPTIONS), "memodb": {"job_timeout"}}  # the others: nothing of it


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("dialect", URLS)
def test_an_option_is_taken_where_the_wire_has_a_word_for_it(dialect: str, option: str) -> None:
    cache = SubmitOptionsCache(URLS[dialect])
    if option in SPOKEN.get(dialect, ()):
        submit_options = cache.submit_options("default", **{option: OPTIONS[option]})
        assert getattr(submit_options, "waits" if option == "wait_for_worker" else option) == OPTIONS[option]
    else:
        with pytest.raises(Unsupported, match=f"^{dialect} does not support {option}; "):
            cache.submit_options("default", **{option: OPTIONS[option]})


@pytest.mark.parametrize("capability", ["id", "progress", "cancel"])
@pytest.mark.parametrize("dialect", URLS)
def test_only_native_knows_jobs_by_name(dialect: str, capability: str) -> None:
    assert SubmitOptionsCache(URLS[dialect]).supports(capability) == (dialect == "native")


@pytest.mark.parametrize("dialect", URLS)
def test_everybody_may_say_how_long_they_wait(dialect: str) -> None:
    assert SubmitOptionsCache(URLS[dialect]).submit_options("default", timeout=2.5).timeout == 2.5


def test_the_same_options_are_the_same_object_and_not_kept_without_end() -> None:
    cache = SubmitOptionsCache(URLS["native"])
    assert cache.submit_options("echo", 1.0) is cache.submit_options("echo", 1.0)
    assert cache.submit_options("echo", 1.0) is not cache.submit_options("echo", 2.0)
    first = cache.submit_options("service 0")
    for number in range(MAX_CACHED + 10):
        cache.submit_options(f"service {number}")
    assert cache.submit_options("service 0") is not first


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"job_timeout": 0.0},
        {"queue_timeout": -1},
        {"priority": -1},
        {"priority": 10},
        {"priority": True},
        {"attempts": 0},
        {"attempts": 101},
        {"attempts": 1.5},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}="):
        SubmitOptionsCache(URLS["native"]).submit_options("echo", **wrong)


@pytest.mark.parametrize(
    ("capability", "urls"),
    [
        ("background jobs", "a native URL such as tcp://127.0.0.1:7400 or an HTTP URL such as http://127.0.0.1:7480"),
        ("parts", "a native URL such as tcp://127.0.0.1:7400"),
    ],
)
def test_an_unsupported_request_names_the_addresses_that_support_it(capability: str, urls: str) -> None:
    with pytest.raises(Unsupported) as caught:
        SubmitOptionsCache(URLS["pingpong"]).require(capability)
    assert str(caught.value) == f"pingpong does not support {capability}; use {urls}"


def test_a_service_must_be_one_that_can_be_there() -> None:
    with pytest.raises(AddressError, match="service=resize"):
        SubmitOptionsCache(URLS["pingpong"]).submit_options("resize")
    with pytest.raises(AddressError, match="is not a service name"):
        SubmitOptionsCache(URLS["native"]).submit_options("")
    with pytest.raises(AddressError, match="no callers"):
        SubmitOptionsCache("controller+unix:///run/controller")


@pytest.mark.parametrize("option", ["timeout", "job_timeout", "queue_timeout"])
@pytest.mark.parametrize("dialect", URLS)
def test_none_is_no_limit_and_what_is_not_said_is_not_sent(dialect: str, option: str) -> None:
    """A bug: None meant the setting of the listener or the address."""
    cache = SubmitOptionsCache(URLS[dialect])
    assert getattr(cache.submit_options("default", **{option: None}), option) == inf
    assert getattr(cache.submit_options("default"), option) is None
    assert getattr(cache.submit_options("default", **{option: DEFAULTS[option]}), option) is None


def test_a_default_that_is_said_is_sent() -> None:
    assert SubmitOptionsCache(URLS["native"]).submit_options("default", job_timeout=60.0).job_timeout == 60.0


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("method", ["call", "submit", "map"])
def test_the_default_is_the_number_in_the_signature(kind: Any, method: str) -> None:
    parameters = inspect.signature(getattr(kind, method)).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS
    for name in ("enqueue", "set_schedule"):
        assert inspect.signature(getattr(kind, name)).parameters["timeout"].default == 60.0

"""Powerhose URLs of workers and callers, and ZeroMQ endpoints."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import pytest

from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress, parse
from dragoman.sdk.powerhose_worker import PowerhoseWorker
from dragoman.sdk.targets import caller_target, worker_target
from dragoman.sdk.zmq_endpoint import url_from_endpoint

URL = "powerhose+tcp://127.0.0.1:7403"


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("ipc:///tmp/a.ipc", UnixAddress("/tmp/a.ipc")),
        ("ipc:///tmp/50%25 ?#&.ipc", UnixAddress("/tmp/50%25 ?#&.ipc")),
        ("tcp://127.0.0.1:9001", TcpAddress("127.0.0.1", 9001)),
        ("tcp://*:9001", TcpAddress("0.0.0.0", 9001)),
        ("tcp://127.0.0.1:*", TcpAddress("127.0.0.1", 0)),
        ("tcp://[::1]:*", TcpAddress("::1", 0)),
        ("tcp://host:9001", TcpAddress("host", 9001)),
    ],
)
def test_an_endpoint_as_zeromq_writes_it_is_an_address_of_ours(endpoint: str, place: SocketAddress) -> None:
    assert parse(url_from_endpoint(endpoint, "powerhose"), ("powerhose",)).place == place


def test_a_relative_endpoint_lies_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(url_from_endpoint("ipc://w.ipc", "powerhose"), ("powerhose",)).place == UnixAddress(
        f"{tmp_path}/w.ipc"
    )


def test_a_listeners_url_may_be_pasted_whole() -> None:
    url = (
        f"{URL}?frontend=7404&service=resize&worker_expire=9&wake_timeout=2&base=/tmp&dial_allow=10.0.0.0/8&attempts=2"
    )
    assert caller_target(url, "resize").place == TcpAddress("127.0.0.1", 7404)
    assert worker_target(url, ["resize"]).place == TcpAddress("127.0.0.1", 7403)


def test_a_workers_own_options_are_read() -> None:
    options = worker_target(f"{URL}?endpoint=tcp://127.0.0.1:9001&ping_every=1&ping_attempts=3").options
    assert (options.endpoint, options.ping_every, options.ping_attempts) == ("tcp://127.0.0.1:9001", 1.0, 3)


def test_its_workers_are_called_back() -> None:
    assert resolve_name(worker_target(URL).dialect.worker) is PowerhoseWorker

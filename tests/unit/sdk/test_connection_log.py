"""Log lines about the connection of a worker."""

from __future__ import annotations

import logging

import pytest

from dragoman.sdk.address import TcpAddress
from dragoman.sdk.connection_log import ConnectionLog
from dragoman.sdk.errors import BrokerUnavailable, WrongDialect
from dragoman.sdk.recognition import Recognition
from dragoman.sdk.targets import worker_target

PLACE = TcpAddress("127.0.0.1", 7406)
WRONG = WrongDialect("tcp://127.0.0.1:7406 speaks Majordomo; use majordomo+tcp://127.0.0.1:7406")
GONE = BrokerUnavailable("no broker answers at 127.0.0.1:7406: connection refused")
ADVICE = ". Stop this worker and correct its address; until then it retries without further messages"


@pytest.fixture
def recognition() -> Recognition:
    return Recognition(worker_target("tcp://127.0.0.1:7406"), "worker")


@pytest.fixture
def lines(recognition: Recognition, caplog: pytest.LogCaptureFixture) -> ConnectionLog:
    caplog.set_level(logging.INFO, "dragoman.worker")
    return ConnectionLog(recognition)


def test_a_wrong_port_is_reported_once(lines: ConnectionLog, caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt logged that it tries again, which cannot help."""
    for delay in (0.1, 0.2, 0.4):
        lines.connected(PLACE)
        lines.write(logging.WARNING, "reconnecting: %s", "no greeting")
        lines.failed(WRONG, delay)
        lines.proven(PLACE)
    assert caplog.messages == ["connected to 127.0.0.1:7406", "reconnecting: no greeting", f"{WRONG}{ADVICE}"]
    assert caplog.records[-1].levelname == "ERROR"


def test_a_broker_that_takes_the_port_is_logged(
    lines: ConnectionLog, recognition: Recognition, caplog: pytest.LogCaptureFixture
) -> None:
    lines.failed(WRONG, 0.1)
    lines.connected(PLACE)
    assert caplog.messages == [f"{WRONG}{ADVICE}"]
    recognition.is_known = True
    for _ in range(2):
        lines.proven(PLACE)
    lines.write(logging.WARNING, "reconnecting: %s", "silent")
    assert caplog.messages[1:] == ["connected to 127.0.0.1:7406", "reconnecting: silent"]


def test_every_other_failure_is_logged_with_the_delay(lines: ConnectionLog, caplog: pytest.LogCaptureFixture) -> None:
    for problem in (GONE, WRONG, GONE, "connection lost", WRONG):
        lines.failed(problem, 0.25)
    again = "; trying again in 0.2 s"
    assert caplog.messages == [
        f"{GONE}{again}",
        f"{WRONG}{ADVICE}",
        f"{GONE}{again}",
        f"connection lost{again}",
        f"{WRONG}{ADVICE}",
    ]

"""Tests of summaries.py with a broker that lives in the test: `pytest`, in this folder."""

import json
import threading
from collections.abc import Iterator

import pytest
from dragoman import Client, JobFailed, LocalBroker, Worker

import summaries


@pytest.fixture
def client(dragoman_broker: LocalBroker, dragoman_client: Client[bytes]) -> Iterator[Client[bytes]]:
    """A client of a broker with the worker. Both fixtures come with Dragoman."""
    worker = Worker(dragoman_broker.url, threads=1)
    worker.service("summarise")(summaries.summarise)
    thread = threading.Thread(target=worker.run)
    thread.start()
    dragoman_broker.wait_for_workers(service="summarise")
    yield dragoman_client
    worker.stop()
    thread.join()


def test_columns_of_numbers_are_summarised(client: Client[bytes]) -> None:
    summary = json.loads(client.call("summarise", b"city,units\nBern,3\nGraz,5\n", timeout=30))
    assert summary == {"units": {"count": 2, "sum": 8, "min": 3, "max": 5}}


def test_a_table_without_numbers_fails(client: Client[bytes]) -> None:
    with pytest.raises(JobFailed, match="no column has numbers"):
        client.call("summarise", b"city\nBern\n", timeout=30)


def test_a_background_job_is_tried_again(client: Client[bytes]) -> None:
    job = client.enqueue("summarise", b"city\nBern\n", attempts=2, retry_first=0)
    with pytest.raises(JobFailed):
        client.result(job, timeout=30)
    assert len(client.job(job).attempts) == 2

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

import pytest

from dragoman.dialects.listener_profile import default_job_options, silent_worker
from dragoman.dialects.option_fields import attempts, count, seconds, time_limit
from dragoman.sdk.address import AddressError, read_options


@dataclass(frozen=True, slots=True)
class Options:
    period: float = seconds(2.0)
    pulse: float = seconds(10.0, least=0.01, most=20.0)
    job_timeout: float = time_limit(60.0)
    queue_timeout: float = time_limit(0.0)
    stuck_timeout: float = time_limit(3600.0)
    liveness: int = count(3)
    window: int = count(5, least=0, most=9)
    attempts: int | None = attempts()


def test_each_kind_of_field_has_its_range() -> None:
    assert {each.name: dict(each.metadata) for each in fields(Options)} == {
        "period": {"min": 0.001},
        "pulse": {"min": 0.01, "max": 20.0},
        "job_timeout": {"min": 0.0},
        "queue_timeout": {"min": 0.0},
        "stuck_timeout": {"min": 0.0},
        "liveness": {"min": 1},
        "window": {"min": 0, "max": 9},
        "attempts": {"min": 1, "max": 100},
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("period", "0"), ("pulse", "21"), ("job_timeout", "-1"), ("liveness", "0"), ("window", "10"), ("attempts", "101")],
)
def test_a_url_cannot_choose_a_value_out_of_range(name: str, value: str) -> None:
    with pytest.raises(AddressError, match=name):
        read_options(Options, {name: value}, f"tcp://127.0.0.1:1?{name}={value}")


def test_a_limit_of_zero_is_none() -> None:
    options = Options(job_timeout=0.0, queue_timeout=0.0)
    assert (default_job_options(options).job_timeout, default_job_options(options).queue_timeout) == (inf, inf)
    assert silent_worker(options, 3.0).job_timeout == inf


def test_what_a_listener_says_is_what_its_jobs_and_workers_get() -> None:
    options = Options(job_timeout=5.0, queue_timeout=7.0, attempts=4, stuck_timeout=9.0)
    jobs, workers = default_job_options(options), silent_worker(options, 3.0)
    assert (jobs.job_timeout, jobs.queue_timeout, jobs.attempts, jobs.waits) == (5.0, 7.0, 4, True)
    assert (workers.lease, workers.job_timeout, workers.stuck_timeout) == (3.0, 5.0, 9.0)
    assert workers.silent_while_busy

"""What callers may ask for, checked once for all jobs that ask for the same."""

from __future__ import annotations

from math import inf

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.errors import Unsupported
from dragoman.sdk.targets import Target, caller_target
from dragoman.sdk.unset import JOB_TIMEOUT, QUEUE_TIMEOUT, TIMEOUT, is_set

MOST_KEPT = 1024  # wishes that are remembered
_Key = tuple[str, float | None, float | None, float | None, int | None, int | None, bool, bool]


class SubmitOptionsCache:
    """The wishes of one client's jobs. From any thread."""

    def __init__(self, url: str) -> None:
        """Raises AddressError."""
        self._url = url
        self.target: Target = caller_target(url, None)
        self._known: dict[_Key, SubmitOptions] = {}

    def submit_options(
        self,
        service: str,
        timeout: float | None = TIMEOUT,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        priority: int | None = None,
        attempts: int | None = None,
        wait_for_worker: bool = False,
        is_whole: bool = False,
    ) -> SubmitOptions:
        """`is_whole`: the parts of the result are joined in front of it. Raises Unsupported for what the wire cannot
        say, ValueError for what makes no sense, AddressError for a service that cannot be there."""
        timeout, job_timeout, queue_timeout = is_set(timeout), is_set(job_timeout), is_set(queue_timeout)
        key = (service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, is_whole)
        known = self._known.get(key)
        if known is not None:
            return known
        caller_target(self._url, service)
        for name, seconds in (("timeout", timeout), ("job_timeout", job_timeout), ("queue_timeout", queue_timeout)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name}={seconds}: a number of seconds over 0, or None")
        _check_number("priority", priority, 0, 9)
        _check_number("attempts", attempts, 1, 100)
        for name, asked in (("job_timeout", job_timeout), ("queue_timeout", queue_timeout)):
            if asked is not None and asked != inf:  # no limit is what there is, as far as the caller can say
                self.needs(name)
        self._check_words(priority=priority, attempts=attempts)
        if wait_for_worker:
            self.needs("wait_for_worker")
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        made = self._known[key] = SubmitOptions(*key)
        return made

    def has(self, word: str) -> bool:
        return word in self.target.dialect.capabilities

    def needs(self, word: str) -> None:
        """Raises Unsupported if the wire has no word for it."""
        if not self.has(word):
            raise Unsupported(
                f"{self.target.dialect.name} has no word for {word}: call by a native address, such as tcp://127.0.0.1:7400"
            )

    def _check_words(self, **asked: object) -> None:
        for name, value in asked.items():
            if value is not None:
                self.needs(name)


def _check_number(name: str, number: int | None, least: int, most: int) -> None:
    if number is not None and (type(number) is not int or not least <= number <= most):
        raise ValueError(f"{name}={number}: a whole number from {least} to {most}, or None")

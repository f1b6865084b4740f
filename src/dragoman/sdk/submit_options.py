"""Validates the options of a call once, and caches them for further jobs with the same options."""

from __future__ import annotations

from math import inf

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.address_list import Urls, first_url
from dragoman.sdk.credentials import NO_CREDENTIALS, Credentials
from dragoman.sdk.errors import Unsupported
from dragoman.sdk.targets import SPOKEN, Target, caller_target, check_services
from dragoman.sdk.unset import JOB_TIMEOUT, QUEUE_TIMEOUT, TIMEOUT, is_set

MAX_CACHED = 1024  # cached options
_Key = tuple[str, float | None, float | None, float | None, int | None, int | None, bool, bool, str]


class SubmitOptionsCache:
    """Validated submit options of one client. May be used from any thread."""

    def __init__(self, url: Urls, credentials: Credentials = NO_CREDENTIALS) -> None:
        """Raises AddressError and CredentialError."""
        self._url = first_url(url)
        self.target: Target = caller_target(url, None, credentials)
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
        tenant: str | None = None,
    ) -> SubmitOptions:
        """Return validated options. `is_whole`: parts are prepended to the result. Raises Unsupported if the dialect
        cannot carry an option, ValueError for an invalid value, and AddressError for an invalid service name."""
        timeout, job_timeout, queue_timeout = is_set(timeout), is_set(job_timeout), is_set(queue_timeout)
        key = (
            service,
            timeout,
            job_timeout,
            queue_timeout,
            priority,
            attempts,
            wait_for_worker,
            is_whole,
            tenant or "",
        )
        known = self._known.get(key)
        if known is not None:
            return known
        check_services(self.target.dialect, self._url, self.target.options.service, [service])
        for name, seconds in (("timeout", timeout), ("job_timeout", job_timeout), ("queue_timeout", queue_timeout)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name}={seconds}: must be a number of seconds over 0, or None")
        _check_number("priority", priority, 0, 9)
        _check_number("attempts", attempts, 1, 100)
        for name, seconds in (("job_timeout", job_timeout), ("queue_timeout", queue_timeout)):
            if seconds is not None and seconds != inf:  # a dialect without the option has no limit
                self.require(name)
        self._check_capabilities(priority=priority, attempts=attempts)
        if wait_for_worker:
            self.require("wait_for_worker")
        if tenant is not None:
            from dragoman.core.tenants import tenant_problem

            self.require("tenant")
            problem = tenant_problem(tenant)
            if problem is not None:
                raise ValueError(problem)
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        made = self._known[key] = SubmitOptions(*key)
        return made

    def supports(self, capability: str) -> bool:
        return capability in self.target.dialect.capabilities

    def require(self, capability: str) -> None:
        """Raise Unsupported if the dialect does not have this capability."""
        if not self.supports(capability):
            http = " or an HTTP URL such as http://127.0.0.1:7480" if capability in SPOKEN["http"].capabilities else ""
            raise Unsupported(
                f"{self.target.dialect.name} does not support {capability}; use a native URL such as "
                f"tcp://127.0.0.1:7400{http}"
            )

    def _check_capabilities(self, **options: object) -> None:
        for name, value in options.items():
            if value is not None:
                self.require(name)


def _check_number(name: str, number: int | None, least: int, most: int) -> None:
    if number is not None and (type(number) is not int or not least <= number <= most):
        raise ValueError(f"{name}={number}: must be a whole number from {least} to {most}, or None")

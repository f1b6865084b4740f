"""Facts of a job that few waiting jobs have.

A million jobs may wait, so each field of a job costs megabytes. A job has an object for these facts from the first of
them on; until then each has its default.
"""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.ids import JobId
from dragoman.core.job_extras import JobExtras
from dragoman.core.parts import Payload
from dragoman.core.queues import Queued


class RareFacts:
    """The facts themselves."""

    __slots__ = (
        "deaths",
        "delayed_since",
        "ended",
        "extras",
        "failure",
        "progress",
        "refusals",
        "retried_as",
        "retry_of",
    )

    def __init__(self) -> None:
        self.deaths = 0
        self.delayed_since: float | None = None
        self.ended: float | None = None
        self.extras: JobExtras | None = None
        self.failure: Failure | None = None
        self.progress: Payload | None = None
        self.refusals = 0
        self.retried_as: JobId | None = None
        self.retry_of: JobId | None = None


class WithRareFacts(Queued):
    """Gives access to the facts, as if they were fields."""

    __slots__ = ("_rare",)

    _rare: RareFacts | None

    def _made(self) -> RareFacts:
        rare = self._rare
        if rare is None:
            rare = self._rare = RareFacts()
        return rare

    @property
    def deaths(self) -> int:
        """Attempts among `spent` that ended with the worker's death."""
        return 0 if self._rare is None else self._rare.deaths

    @deaths.setter
    def deaths(self, value: int) -> None:
        if value != 0 or self._rare is not None:
            self._made().deaths = value

    @property
    def refusals(self) -> int:
        """Dispatches in a row that no worker can have seen."""
        return 0 if self._rare is None else self._rare.refusals

    @refusals.setter
    def refusals(self, value: int) -> None:
        if value != 0 or self._rare is not None:
            self._made().refusals = value

    @property
    def delayed_since(self) -> float | None:
        """Time at which its last delay after an attempt began."""
        return None if self._rare is None else self._rare.delayed_since

    @delayed_since.setter
    def delayed_since(self, value: float | None) -> None:
        if value is not None or self._rare is not None:
            self._made().delayed_since = value

    @property
    def ended(self) -> float | None:
        """Time of its end, if it is kept afterwards."""
        return None if self._rare is None else self._rare.ended

    @ended.setter
    def ended(self, value: float | None) -> None:
        if value is not None or self._rare is not None:
            self._made().ended = value

    @property
    def extras(self) -> JobExtras | None:
        """Facts that its caller gave with it, besides options."""
        return None if self._rare is None else self._rare.extras

    @extras.setter
    def extras(self, value: JobExtras | None) -> None:
        if value is not None or self._rare is not None:
            self._made().extras = value

    @property
    def tenant(self) -> str:
        """The tenant among its extras; empty: none."""
        rare = self._rare
        return "" if rare is None or rare.extras is None else rare.extras.tenant

    @property
    def needs(self) -> tuple[str, ...]:
        """Parameters that a worker must know to get it, among its extras; empty: it goes to any worker (R269)."""
        rare = self._rare
        return () if rare is None or rare.extras is None else rare.extras.needs

    @property
    def failure(self) -> Failure | None:
        """The worker's error, if the worker's dialect can report one."""
        return None if self._rare is None else self._rare.failure

    @failure.setter
    def failure(self, value: Failure | None) -> None:
        if value is not None or self._rare is not None:
            self._made().failure = value

    @property
    def progress(self) -> Payload | None:
        """The last report of its workers, in memory only."""
        return None if self._rare is None else self._rare.progress

    @progress.setter
    def progress(self, value: Payload | None) -> None:
        if value is not None or self._rare is not None:
            self._made().progress = value

    @property
    def retried_as(self) -> JobId | None:
        """The job that a retry created."""
        return None if self._rare is None else self._rare.retried_as

    @retried_as.setter
    def retried_as(self, value: JobId | None) -> None:
        if value is not None or self._rare is not None:
            self._made().retried_as = value

    @property
    def retry_of(self) -> JobId | None:
        """The quarantined job that this one retries."""
        return None if self._rare is None else self._rare.retry_of

    @retry_of.setter
    def retry_of(self, value: JobId | None) -> None:
        if value is not None or self._rare is not None:
            self._made().retry_of = value

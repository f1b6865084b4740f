"""Links between jobs of different shards: the interface of the cluster, as the links of this broker need it.

A shard is a log, and each has its own commits. So a predecessor in another shard is *foreign*, also if the same broker
has both shards: its end counts when its shard has committed it, and `cluster/watches.py` reports that.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from dragoman.core.model import JobId
from dragoman.core.results_payload import Entry


@mypyc_attr(allow_interpreted_subclasses=True)
class OtherShards:
    """Watches the foreign predecessors of dependent jobs."""

    def is_foreign(self, job: JobId, predecessor: JobId) -> bool:
        """True if the predecessor is not in the shard of the job, at this broker."""
        raise NotImplementedError

    def waits(self, job: JobId, predecessor: JobId) -> None:
        """A dependent job waits for a foreign predecessor from now on."""
        raise NotImplementedError

    def waits_no_more(self, job: JobId, predecessor: JobId) -> None:
        """The job is ready or has ended. The predecessor is needed until that is committed."""
        raise NotImplementedError

    def changed(self, predecessor: JobId) -> None:
        """A job or group that jobs of other shards wait for has ended, failed in part, or has not ended any more."""
        raise NotImplementedError

    def place_of(self, job: JobId, predecessor: JobId) -> str:
        """Return the shard of a foreign predecessor, and its broker, for people."""
        raise NotImplementedError

    def load(self, job: JobId, predecessor: JobId, done: Callable[[Entry], None]) -> None:
        """Load the results of a foreign predecessor that has ended. `done` is not called if the job leaves first."""
        raise NotImplementedError

"""The first reading of a file: it is checked as a whole, and the links between its jobs are collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dragoman.core.groups import PREFIX as GROUP
from dragoman.core.model import JobId
from dragoman.store.errors import InvalidRow
from dragoman.store.rows import RowDecoder
from dragoman.transfer.errors import BadFile
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.jobs_file import FileReader, Progress


@final
class JobEntry:
    """The facts of a job that its place depends on."""

    __slots__ = ("after", "created", "key", "links", "owner", "service")

    def __init__(
        self,
        created: float,
        owner: str,
        service: str,
        key: str | None,
        links: Sequence[bytes],
        after: Sequence[bytes],
    ) -> None:
        self.created = created
        self.owner = owner
        self.service = service
        self.key = key
        self.links = links  # its group, and the job that it retries
        self.after = after  # jobs and groups that it waits for


class FileIndex:
    """The jobs and the groups of a file. Raises BadFile if the file is not whole, or has an id twice."""

    def __init__(self, file: FileReader, progress: Progress) -> None:
        self.jobs: dict[bytes, JobEntry] = {}
        self.values: dict[str, str] = {}
        self.groups: dict[bytes, str] = {}  # keys of their values
        decoder = RowDecoder()
        for item in file.read():
            if isinstance(item, ExportedJob):
                if item.id in self.jobs:
                    raise BadFile(f"job {item.id.hex()} is in the file twice")
                self.jobs[item.id] = _entry_of(item, decoder)
                progress(len(self.jobs), 0)
            else:
                key, value = item
                if key in self.values:
                    raise BadFile(f"the value {key!r} is in the file twice")
                self.values[key] = value
                if key.startswith(GROUP):
                    self.groups[_group_id(key)] = key

    def numbers(self, source: str) -> dict[bytes, int]:
        """Return the numbers of the jobs in a data folder, which restores them in this order. The shards of a cluster
        are one after the other in the file, so its jobs are sorted by time; none comes before one that it waits for."""
        ids = list(self.jobs)
        if source == "cluster":
            ranks = self._ranks()
            ids.sort(key=ranks.__getitem__)
        return {id: number for number, id in enumerate(ids, 1)}

    def _ranks(self) -> dict[bytes, tuple[float, int]]:
        """Return the time of each job, not before that of jobs that it waits for; and the length of its chain."""
        ranks: dict[bytes, tuple[float, int]] = {}
        path: dict[bytes, None] = {}
        for first in self.jobs:
            path[first] = None
            while path:
                id = next(reversed(path))
                entry = self.jobs[id]
                before = [each for each in (*entry.links, *entry.after) if each in self.jobs]
                open_one = next((each for each in before if each not in ranks and each not in path), None)
                if open_one is not None:
                    path[open_one] = None
                    continue
                del path[id]
                known = [ranks[each] for each in before if each in ranks]
                time = max([entry.created, *[time for time, _ in known]])
                ranks[id] = (time, 1 + max([length for _, length in known], default=0))
        return ranks


def _entry_of(job: ExportedJob, decoder: RowDecoder) -> JobEntry:
    try:
        kept = job.decoded(decoder)
    except InvalidRow as error:
        raise BadFile(f"job {job.id.hex()} cannot be read: {error}") from None
    links: list[JobId] = [] if kept.retry_of is None else [kept.retry_of]
    after: Sequence[JobId] = ()
    extras = kept.extras
    if extras is not None:
        if extras.group is not None:
            links.append(extras.group)
        if kept.outcome is None and kept.token is None and not extras.is_ready:
            after = extras.after
    return JobEntry(kept.created, kept.owner, kept.service, kept.key, links, after)


def _group_id(key: str) -> bytes:
    try:
        return bytes.fromhex(key.removeprefix(GROUP))
    except ValueError:
        raise BadFile(f"the value {key!r} does not name a group") from None

"""Batches of jobs: reads the jobs of the operation `enqueue many`, from its fields or from the bytes beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.bulk import NewJob
from dragoman.core.groups import Group
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.model import JobId, Payload
from dragoman.core.options import JobOptions
from dragoman.core.packed_jobs import NO_ID, unpack_jobs
from dragoman.core.remembered import FREE, Repeated, RequestId
from dragoman.core.rights import Principal
from dragoman.operations.group_schemas import MOST_JOBS, BatchJob, EnqueueManyRequest
from dragoman.operations.job_options import extras_of, options_of
from dragoman.operations.payloads import payload_of
from dragoman.operations.placement import Placement, batch_shard
from dragoman.operations.predecessors import check_input, check_job, check_links, find_group, missing
from dragoman.operations.repeated_requests import find_repeated, request_id_of
from dragoman.operations.schemas import EnqueueRequest, OperationError
from dragoman.operations.validation import decode, explain
from dragoman.operations.visibility import sees_job

OPTIONS: Final = (
    "delay",
    "not_before",
    "priority",
    "attempts",
    "timeout",
    "keep",
    "retry_first",
    "retry_cap",
    "retry_jitter",
    "parameters",
)
EXTRAS: Final = ("tenant", "parent", "traceparent")
OTHER_JOBS: Final = (
    "a batch with these ids, or this request_id, was accepted before, with other jobs; new jobs need new ids"
)
_decoder: Final = msgspec.json.Decoder(BatchJob)
_NO_FIELDS: Final = BatchJob()


class BatchReader:
    """Reads one batch. `ahead` returns the lead of the wall clock over `now`."""

    def __init__(
        self,
        request: EnqueueManyRequest,
        payload: Payload,
        broker: Broker,
        principal: Principal,
        now: float,
        ahead: Callable[[], float],
        placement: Placement | None = None,
    ) -> None:
        """Read the ids. Raises OperationError."""
        self._request = request
        self._broker = broker
        self._principal = principal
        self._now = now
        self._ahead = ahead
        self._placement = placement
        self._ids: list[JobId] = []  # of the jobs of the batch
        self._own: set[JobId] = set()  # the same, and those of its groups: only looked up
        self._links = 0
        self._index = 0  # of the job that is being read
        self._home = -1  # shard of the batch; -1: there are none
        self.foreign: dict[tuple[JobId, JobInput], int] = {}  # predecessors in other shards, and the first job of each
        self._common_extras: JobExtras | None = None  # of jobs without fields of their own
        self.group: JobId | None = None  # of all jobs
        self.asked = request_id_of(request.request_id)  # None: a repetition would make the jobs again
        self.found: Repeated | None = None  # what is remembered of the request: it was accepted before
        self._forms = self._read_forms(payload)
        if not self._forms:
            raise OperationError("invalid", "the batch has no jobs; at least one is needed")
        self._check_size(self._forms)
        if placement is not None:
            self._home = self._shard(placement, self._forms)
        has_ids = request.group_id is not None or all(id != NO_ID for id, _, _ in self._forms)
        if self.asked is None and has_ids:
            self.asked = _request_of_ids(request, self._forms)
        self.mark = "" if self.asked is None else _mark(request, payload)
        self.look()
        self._name_jobs()

    def look(self) -> None:
        """Find out whether the request was accepted before. Raises OperationError, for one with other jobs, too."""
        asked = self.asked
        if asked is None:
            return
        self.found = find_repeated(self._broker, asked, self._principal.name, max(0, self._home), self._now)
        mark, _, rest = self.found.answer.partition(" ") if self.found is not None else ("", "", "")
        if mark and mark != self.mark:
            raise OperationError("conflict", OTHER_JOBS)
        if asked.is_free:
            asked.millisecond = int(rest.partition(" ")[0]) if rest else int((self._now + self._ahead()) * 1000.0)

    def answer(self, names: Sequence[str]) -> str:
        """Return what is remembered with the request. `names`: ids of the jobs, of which some may be earlier ones with
        their keys."""
        assert self.asked is not None
        others = {index: name for index, name in enumerate(names) if bytes.fromhex(name) != self._ids[index]}
        return f"{self.mark} {self.asked.millisecond} {json.dumps(others, separators=(',', ':'))}"

    def names(self) -> list[str]:
        """Return the ids of the jobs of a request that was accepted before."""
        assert self.found is not None
        names = [id.hex() for id in self._ids]
        others = self.found.answer.partition(" ")[2].partition(" ")[2]
        for index, name in json.loads(others or "{}").items():
            names[int(index)] = name
        return names

    def _name_jobs(self) -> None:
        """Set the ids of the jobs and of their group: those of the client, those that follow from the request, or
        random ones."""
        request, forms = self._request, self._forms
        if request.group or request.group_id is not None:
            if any(form.group is not None for _, form, _ in forms):
                raise OperationError("invalid", "jobs name groups of their own, so the batch cannot be one group, too")
            text = request.group_id
            self.group = JobId(bytes.fromhex(text)) if text is not None else self._new_id(len(forms))
            self._own.add(self.group)
        self._ids = [JobId(id) if id != NO_ID else self._new_id(index) for index, (id, _, _) in enumerate(forms)]

    def _new_id(self, index: int) -> JobId:
        asked = self.asked
        id = self._broker.entropy.job_id() if asked is None else asked.job_id(self._principal.name, index)
        return id if self._placement is None else self._placement.in_shard(id, self._home)

    def read(self) -> list[NewJob]:
        """Return the jobs. Raises OperationError."""
        forms = self._forms
        self._own.update(self._ids)
        self._own.update(JobId(bytes.fromhex(form.group)) for _, form, _ in forms if form.group is not None)
        if len(set(self._ids)) < len(self._ids):
            raise OperationError("invalid", "two jobs of the batch have the same id; each needs its own")
        common = self._options_of(_NO_FIELDS)
        self._common_extras = self._given_extras(_NO_FIELDS)
        jobs = [self._job(index, form, body, common) for index, (_, form, body) in enumerate(forms)]
        check_links(self._broker, self._principal, self._links)
        return jobs

    def may_be(self, group: Group) -> bool:
        """True if these may be the jobs of an earlier group with the same id."""
        if group.size != len(self._ids):
            return False
        given = [id for id, _, _ in self._forms]
        return all(id == NO_ID or job is None or job.id == id for id, job in zip(given, group.jobs, strict=True))

    @property
    def home(self) -> int:
        """Shard of the batch, in a cluster."""
        return self._home

    def _check_size(self, forms: list[tuple[bytes, BatchJob, Payload]]) -> None:
        """Raise OperationError if reading the batch would hold up everything else (R216)."""
        links, most = sum(len(form.after) for _, form, _ in forms), self._broker.policy.max_links_per_batch
        if links > most:
            detail = f"its jobs come after other jobs in {links} cases, of at most {most} (max_links_per_batch)"
            advice = "let jobs come after a group, which counts as one, or send several batches"
            raise OperationError("invalid", f"{detail}; {advice}")

    def _shard(self, placement: Placement, forms: list[tuple[bytes, BatchJob, Payload]]) -> int:
        """Return the shard of all jobs and groups of the batch."""
        ids = [id for id, _, _ in forms if id != NO_ID]
        groups = [form.group for _, form, _ in forms if form.group is not None]
        if self._request.group_id is not None:
            groups.append(self._request.group_id)
        own = dict.fromkeys(ids + [bytes.fromhex(each) for each in groups])
        named = [bytes.fromhex(each) for _, form, _ in forms for each in form.after if isinstance(each, str)]
        after = [id for id in named if id not in own]
        return batch_shard(placement, self._principal.name, list(own), after, self.asked)

    def _read_forms(self, payload: Payload) -> list[tuple[bytes, BatchJob, Payload]]:
        """Return id, fields and payload of each job."""
        if self._request.jobs and payload:
            raise OperationError("invalid", "the request has jobs in two places; send them as a field or beside it")
        found: list[tuple[bytes, BatchJob, Payload]] = []
        if self._request.jobs:
            for index, form in enumerate(self._request.jobs):
                try:
                    body = payload_of(form, b"")
                except OperationError as error:
                    raise named(index, error) from None
                found.append((NO_ID if form.id is None else bytes.fromhex(form.id), form, body))
            return found
        try:
            packed = unpack_jobs(payload, MOST_JOBS)
        except ValueError as error:
            detail = f"the bytes beside the request are no packed jobs: {error}; at most {MOST_JOBS} are allowed"
            raise OperationError("invalid", detail) from None
        for index, (id, fields, body) in enumerate(packed):
            form = self._decoded(fields, index) if fields else _NO_FIELDS
            if form.payload is not None or form.payload_base64 is not None or form.id is not None:
                detail = "payload and id are beside its fields, not in them"
                raise named(index, OperationError("invalid", detail))
            found.append((id, form, body))
        return found

    def _decoded(self, fields: bytes, index: int) -> BatchJob:
        try:
            form: BatchJob = decode(_decoder, fields)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise named(index, OperationError("invalid", explain(error, BatchJob))) from None
        return form

    def _job(self, index: int, form: BatchJob, body: Payload, common: JobOptions) -> NewJob:
        service = self._request.service if form.service is msgspec.UNSET else form.service
        if service is None:
            raise named(index, OperationError("invalid", "it names no service, and neither does the batch"))
        id = self._ids[index]
        if form is _NO_FIELDS and self.group is None:
            return NewJob(service, body, common, id, None, self._common_extras)
        self._index = index
        try:
            extras = self._extras_of(form, body)
            return NewJob(service, body, self._options_of(form, common), id, form.key, extras)
        except OperationError as error:
            raise named(index, error) from None

    def _options_of(self, form: BatchJob, common: JobOptions | None = None) -> JobOptions:
        """Return the options of one job: its own fields, and those of the batch."""
        if form.unique not in (msgspec.UNSET, "kept") and form.key is None:
            raise OperationError("invalid", "unique is about the key of a job, and this one has none: give a key")
        own = {name: value for name in (*OPTIONS, "unique") if (value := getattr(form, name)) is not msgspec.UNSET}
        if common is not None and not own:
            return common
        shared: dict[str, Any] = {name: getattr(self._request, name) for name in OPTIONS}
        asked = EnqueueRequest(service="", **(shared | own))
        return options_of(asked, self._now, self._ahead, self._broker.policy.max_delay)

    def _extras_of(self, form: BatchJob, body: Payload) -> JobExtras | None:
        group = self.group if form.group is None else JobId(bytes.fromhex(form.group))
        given = self._given_extras(form)
        if group is None and not form.after and form.input == "payload":
            return given
        input = JobInput(form.input)
        check_input(len(form.after), input, body)
        before = tuple([self._predecessor(each, input) for each in form.after])
        self._links += len(before)
        runs = form.after_failure == "run"
        return replace(given or JobExtras(), after=before, runs_after_failure=runs, input=input, group=group)

    def _given_extras(self, form: BatchJob) -> JobExtras | None:
        """Return tenant, parent and trace of one job: its own fields, and those of the batch."""
        own = {name: value for name in EXTRAS if (value := getattr(form, name)) is not msgspec.UNSET}
        if form is not _NO_FIELDS and not own:
            return self._common_extras
        shared: dict[str, Any] = {name: getattr(self._request, name) for name in EXTRAS}
        return extras_of(EnqueueRequest(service="", **(shared | own)))

    def _predecessor(self, named: str | int, input: JobInput) -> JobId:
        if isinstance(named, int):
            if named >= len(self._ids):
                raise OperationError("invalid", f"after: index {named}, but the batch has {len(self._ids)} jobs")
            return self._ids[named]
        id = JobId(bytes.fromhex(named))
        if id in self._own:
            return id
        if self._placement is not None and self._placement.is_foreign(self._home, id):
            self.foreign.setdefault((id, input), self._index)
            return id
        job = self._broker.jobs.get(id)
        if job is not None and sees_job(self._principal, job):
            check_job(job, self._principal, input)
            return id
        if job is None and (group := find_group(id, self._broker, self._principal, input)) is not None:
            return group.id
        raise missing(named, self._broker)


def named(index: int, error: OperationError) -> OperationError:
    """Return the error with the index of the job that it is about."""
    return OperationError(error.problem.kind, f"jobs[{index}]: {error.problem.detail}")


def repeated_group(request: EnqueueManyRequest, reader: BatchReader, broker: Broker, owner: str) -> Group | None:
    """Return the group of an earlier request with the same id, which is not remembered any more. Raises OperationError
    if it has other jobs."""
    if request.group_id is None:
        return None
    group = broker.job_registry.groups.by_id.get(JobId(bytes.fromhex(request.group_id)))
    if group is None or group.owner != owner:
        return None
    if not reader.may_be(group):
        raise OperationError("conflict", OTHER_JOBS)
    return group


def _request_of_ids(request: EnqueueManyRequest, forms: list[tuple[bytes, BatchJob, Payload]]) -> RequestId:
    """Return the id of a request whose client has chosen the ids of its jobs: it may repeat the request with these."""
    named = b"".join([id for id, _, _ in forms]) + (request.group_id or "").encode()
    return RequestId(f"{FREE}batch {blake2b(named, digest_size=16).hexdigest()}")


def _mark(request: EnqueueManyRequest, payload: Payload) -> str:
    """Return a text by which other jobs are noticed. Traces differ between copies of one request."""
    fields = msgspec.json.encode(msgspec.structs.replace(request, request_id=None, parent=None, traceparent=None))
    return f"{crc32(payload):x}-{len(payload):x}-{crc32(fields):x}"

"""Jobs as rows and back: every field is restored unchanged, with any content."""

from __future__ import annotations

import json
from math import inf

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Attempt, Job, JobId, Service, Token, Worker, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.rights import LOCAL, Principal
from dragoman.core.states import AttemptRecord, JobState, Outcome
from dragoman.store import statements
from dragoman.store.commit import Commit
from dragoman.store.errors import InvalidRow
from dragoman.store.large_payloads import LARGE, LargePayloads
from dragoman.store.rows import STATUS_COLUMNS, RowDecoder, RowEncoder, options_text
from dragoman.store.schema import TABLES
from owners import LOCAL_OWNER

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
said = st.text(max_size=20)  # by a peer: need not have a form in UTF-8
times = st.floats(0, 1e9)
offsets = st.floats(0, 4e9)
sixteen = st.binary(min_size=16, max_size=16)
owners = st.sampled_from(["a", "web", "w.e-b_0", "x" * 64]).map(lambda name: Owner(Principal(name)))
job_options = st.builds(
    JobOptions,
    queue_timeout=times | st.just(inf),
    job_timeout=times | st.just(inf),
    attempts=st.none() | st.integers(1, 100),
    priority=st.integers(0, 9),
    delay=times,
    durable=st.just(True),
    waits=st.booleans(),
    retry_first=st.none() | times,
    retry_jitter=st.none() | st.floats(0, 1),
)
untimed = st.builds(AttemptRecord, st.integers(1, 100), said, st.sampled_from(Outcome), said)
endings = untimed | st.builds(AttemptRecord, st.integers(1, 100), said, st.sampled_from(Outcome), said, times, times)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    service = Service(draw(text), 60.0)
    payload, owner = draw(st.binary(max_size=6_000)), draw(st.just(LOCAL_OWNER) | owners)
    job = Job(JobId(draw(sixteen)), service, payload, (), draw(job_options), draw(times), owner)
    job.number = draw(st.integers(1, 2**60))
    job.key, job.digest = draw(st.none() | text), draw(st.just(b"") | sixteen)
    job.retry_of = draw(st.none() | sixteen.map(JobId))
    job.extras = draw(st.none() | st.builds(JobExtras, parent=st.none() | sixteen.map(JobId), traceparent=st.text()))
    job.spent, job.deaths = draw(st.integers(0, 100)), draw(st.integers(0, 100))
    job.history = draw(st.none() | st.lists(endings, min_size=1, max_size=4))
    job.start_at, job.delayed_since = draw(times), draw(st.none() | times)
    job.state = draw(st.sampled_from([JobState.WAITING, JobState.DELAYED]))
    if draw(st.booleans()):
        worker = Worker(
            WorkerId(1), None, None, draw(said), WorkerProfile(can_resume=draw(st.booleans())), 0.0, LOCAL_OWNER
        )
        job.state = JobState.RUNNING
        job.attempt = Attempt(job, draw(st.integers(1, 100)), Token(draw(sixteen)), worker, draw(times), 0.0)
    else:
        job.outcome = draw(st.none() | st.sampled_from(Outcome))
    if job.outcome is not None:
        job.state = JobState.ENDED
        job.reason, job.result = draw(said), draw(st.binary(max_size=100))
        job.quarantined, job.keep_until = draw(st.booleans()), draw(times)
        job.ended = draw(st.none() | times)
    return job


def as_stored(words: str) -> str:
    return words.encode("utf-8", "replace").decode()


@given(job=jobs(), before=offsets, after=offsets, has_fate=st.booleans())
@settings(deadline=None)
def test_every_field_comes_back(job: Job, before: float, after: float, has_fate: bool) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(TABLES)
    scribe, group = RowEncoder(), Commit()
    group.jobs.append(scribe.job_row(job, before))
    if has_fate:
        group.statuses[job.number] = scribe.status_row(job, before)
    statements.write(connection, group, LargePayloads(0).dropped_by(group))
    [row] = statements.read_batch(connection, 0, 2**62, 10)
    kept = RowDecoder().kept(row, after)

    def moved(time: float) -> object:
        """The same time after a restart of the clock."""
        return pytest.approx(time + before - after, abs=1e-3)

    assert (kept.number, kept.id, kept.service, kept.options) == (job.number, job.id, job.service.name, job.options)
    assert (kept.key, kept.digest, kept.retry_of) == (job.key, job.digest, job.retry_of)
    assert kept.extras == job.extras
    assert kept.owner == job.principal.name
    assert connection.execute("SELECT owner FROM job").get == (None if kept.owner == LOCAL else kept.owner)
    assert kept.created == moved(job.created)
    payload, result = statements.read_bodies(connection, job.number)
    if not has_fate:
        assert (payload, kept.spent, kept.token, kept.outcome) == (job.payload, 0, None, None)
        return
    assert (kept.spent, kept.deaths) == (job.spent, job.deaths)
    assert (kept.history is None) == (job.history is None)
    for found, record in zip(kept.history or (), job.history or (), strict=True):
        assert (found.number, found.worker, found.outcome) == (record.number, record.worker, record.outcome)
        assert found.reason == record.reason
        assert found.started == (None if record.started is None else moved(record.started))
        assert found.ended == (None if record.ended is None else moved(record.ended))
        if record.ended is not None:
            assert (found.dialect, found.worker_id) == (record.dialect, record.worker_id)
    is_delayed = job.state is JobState.DELAYED
    assert kept.start_at == (moved(job.start_at) if is_delayed else 0.0)
    assert kept.delayed_since == (moved(job.delayed_since) if is_delayed and job.delayed_since is not None else None)
    if job.attempt is not None:
        assert (kept.token, kept.attempt, kept.given) == (
            job.attempt.token,
            job.attempt.number,
            moved(job.attempt.given),
        )
        assert (kept.worker, kept.can_resume) == (
            as_stored(job.attempt.worker.name),
            job.attempt.worker.profile.can_resume,
        )
    assert (kept.outcome, kept.quarantined) == (job.outcome, job.quarantined)
    if job.outcome is not None:
        assert (kept.reason, result, kept.keep_until) == (as_stored(job.reason), job.result, moved(job.keep_until))
        assert kept.ended == (None if job.ended is None else moved(job.ended))
    is_dropped = job.outcome is not None and not job.quarantined and len(job.payload) > LARGE
    assert payload == (b"" if is_dropped else job.payload)


def test_options_are_written_as_what_differs_from_the_defaults() -> None:
    assert options_text(JobOptions()) == "{}"
    assert options_text(JobOptions(durable=True, queue_timeout=5.0)) == '{"queue_timeout":5.0,"durable":true}'


def test_equal_options_are_one_object() -> None:
    reader = RowDecoder()
    row = (1, b"x" * 16, "s", '{"durable":true}', 1.0, None, None, None, None, *(None,) * 13)
    assert reader.kept(row, 0.0).options is reader.kept(row, 0.0).options


def test_equal_owners_are_one_text() -> None:
    """A million jobs of one principal have one name in memory."""
    reader = RowDecoder()
    rows = [(1, b"x" * 16, "s", "{}", 1.0, None, None, None, "".join(("we", "b")), *(None,) * 13) for _ in range(2)]
    first, second = (reader.kept(row, 0.0).owner for row in rows)
    assert first is second == "web"


@pytest.mark.parametrize("owner", ["", 7, b"web"])
def test_owner_that_is_no_name_is_invalid(owner: object) -> None:
    row = (1, b"x" * 16, "s", "{}", 1.0, None, None, None, owner, *(None,) * 13)
    with pytest.raises(InvalidRow, match="row of job 1: its owner is not the name of a principal"):
        RowDecoder().kept(row, 0.0)


def test_many_options_do_not_pile_up() -> None:
    """I5."""
    scribe = RowEncoder()
    service = Service("s", 60.0)
    for number in range(5_000):
        scribe.job_row(Job(JobId(b"x" * 16), service, b"", (), JobOptions(delay=float(number)), 0.0, LOCAL_OWNER), 0.0)
    assert len(scribe._texts) <= 1_024


def test_history_is_the_json_that_it_was() -> None:
    """Earlier releases wrote it with `json.dumps`: its checksum is over the text. Times follow the reason."""
    history = [AttemptRecord(1, 'w "1"\n\ud800é', Outcome.TIMED_OUT, "no\\"), AttemptRecord(2, "", Outcome.DONE, "")]
    timed = AttemptRecord(3, "w", Outcome.FAILED, "no", 1.5, 2.0004)
    job = Job(JobId(b"i" * 16), Service("s", 60.0), b"", (), JobOptions(), 0.0, LOCAL_OWNER)
    job.history = history
    text = RowEncoder().status_row(job, 0.0)[STATUS_COLUMNS.index("history")]
    endings: list[tuple[object, ...]] = [
        (each.number, each.worker, each.outcome.value, each.reason) for each in history
    ]
    assert text == json.dumps(endings, separators=(",", ":"))
    job.history = [*history, timed]
    text = RowEncoder().status_row(job, 100.0)[STATUS_COLUMNS.index("history")]
    assert text == json.dumps([*endings, (3, "w", "failed", "no", 101_500, 102_000)], separators=(",", ":"))

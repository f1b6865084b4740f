"""Clients and workers of earlier builds get the same messages as from the broker of their own build.

The recordings are in `tests/fixtures/native-*`, made by `tools/record_native.py`. A message that is missing, too many
or of another type fails a test, and so does any field that differs and has no row in `ALLOWED`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest

from .recordings import NOT_THERE, Difference, Replay

FIXTURES = Path(__file__).parents[3] / "fixtures"
RECORDINGS = {f"{path.parent.name}/{path.stem}": path for path in sorted(FIXTURES.glob("native-*/*.jsonl"))}


class Text:
    """Equal to every text that this regular expression matches as a whole."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(self._pattern, other) is not None

    __hash__ = None  # type: ignore[assignment]


class Allowed(NamedTuple):
    """A difference that cannot break a client or worker of the recorded build."""

    message: str
    field: str  # a regular expression for the whole of it
    recorded: Any
    today: Any
    reason: str

    def covers(self, difference: Difference) -> bool:
        message, field, recorded, today = difference
        is_field = message == self.message and re.fullmatch(self.field, field) is not None
        return is_field and self.recorded == recorded and self.today == today


# The client of 2885e3f reads views with msgspec structs that pass over unknown keys (`desk/forms.py:View`), as its
# docs/dialects/native.md says of JSON. Its workers read no view. In a list of jobs, `[…]` has the key of the job.
RETRIED = "retry/[0-9a-f]{32}"  # the key of a job that was made by `retry`
JOB = r"view(\.jobs\[.*?\])?"
SERVICE = r"view(\.services\[.*?\])?"
NEW_OF_SERVICES = "paused_at|slots|arrived|dependent|done|undone|wait|run|dialects|need|limits|parameters"
SCHEDULE = r"view(\.recurring\[.*?\])?"
NEW_OF_JOBS = (
    "tenant|caller|waited|job_timeout|deadline|size|result_size|after|after_failure|input|group|unique|holds_key|keep"
    "|durability"
)
NEW_OF_WORKERS = "listener|address|since|done|undone|pace|holds"
ALLOWED = [
    Allowed("TELL", r"view(\.jobs\[.+\])?\.retried_as", NOT_THERE, ANY, "a new key of jobs; unknown keys are ignored"),
    Allowed("TELL", rf"{JOB}\.(started|ended|payload|progress|recorded)", NOT_THERE, ANY, "new keys of jobs; likewise"),
    Allowed("TELL", rf"{JOB}\.attempts\[.*\]\.(started|ended)", NOT_THERE, ANY, "new keys of attempts; likewise"),
    Allowed("TELL", rf"{JOB}\.error\.permanent", NOT_THERE, False, "a new key of failures; likewise"),
    Allowed("TELL", rf"{JOB}\.({NEW_OF_JOBS})", NOT_THERE, ANY, "new keys of jobs; likewise"),
    Allowed("TELL", rf"{JOB}\.(parent|traceparent|tenant)", NOT_THERE, None, "new keys of jobs; likewise"),
    Allowed("TELL", rf"{JOB}\.children", NOT_THERE, [], "a new key of jobs; likewise"),
    Allowed("TELL", rf"{JOB}\.more_children", NOT_THERE, 0, "a new key of jobs; likewise"),
    Allowed("TELL", rf"{JOB}\.attempts\[.*\]\.(dialect|worker_id)", NOT_THERE, ANY, "new keys of attempts; likewise"),
    Allowed("TELL", r"view(\.workers\[\])?\.comes_back", NOT_THERE, False, "a new key of workers; likewise"),
    Allowed("TELL", rf"{SERVICE}\.({NEW_OF_SERVICES})", NOT_THERE, ANY, "new keys of services; likewise"),
    Allowed("TELL", r"view\.(after|counts|searched|complete)", NOT_THERE, ANY, "new keys of lists; likewise"),
    Allowed("TELL", r"view\.(kind|ahead|turn_in|about|earlier|more)", NOT_THERE, ANY, "new keys of why; likewise"),
    Allowed("TELL", rf"view(\.workers\[\])?\.({NEW_OF_WORKERS})", NOT_THERE, ANY, "new keys of workers; likewise"),
    Allowed("TELL", rf"{SCHEDULE}\.(says|recent|last_took)", NOT_THERE, ANY, "new keys of schedules; likewise"),
    Allowed("TELL", rf"{SCHEDULE}\.owner", NOT_THERE, "local", "a new key of schedules; likewise"),
    Allowed("TELL", rf"{SCHEDULE}\.paused_reason", NOT_THERE, "", "a new key of schedules; likewise"),
    Allowed("TELL", r"view\.key", Text(RETRIED), ANY, "a retry has the key of the first job; clients only show keys"),
    Allowed("TELL", rf"view\.jobs\[{RETRIED}\]\.key", Text(RETRIED), ANY, "the same in a list"),
    Allowed("TELL", r"view\.jobs\[failing\]\.quarantined", True, False, "a job that was retried leaves the quarantine"),
    Allowed("TELL", r"view\.jobs\[failing\]", "a job", NOT_THERE, "and the list of jobs in quarantine"),
    Allowed("TELL", "payload", b"last", b"first second last", "the result of a background job begins with its parts"),
]
# Sentences for people, recorded and today's. The client of 2885e3f shows them; it decides by the kind of an OBJECT.
ID = "[0-9a-f]{32}"
WHYS = [
    (r"It may start in 3600 s, as it was asked for\.", r"It may start in 3600 s: it was submitted with a delay\."),
    (
        r"It ended (failed|timed out): attempt (\d of \d) \1 at worker \S+: (ValueError: cannot read 'this'|no result "
        r"within 0\.3 s)\. It is in quarantine: `retry` makes a new job of it\.",
        r"It ended (failed|timed out): attempt (\d of \d) \1 on worker \S+: (ValueError: cannot read 'this'|no result "
        r"within 0\.3 s)\. It is in quarantine: a retry makes a new job from it\.",
    ),
    (
        r"Attempt 1 of 3 has run for 0\.0 s at worker \S+ \(\S+\)\.",
        r"Attempt 1 of 3 has run for 0\.0 s on worker \S+ \(\S+\)\.",
    ),
]
ERRORS = [
    ("it has ended already: done", rf"job {ID} has already ended: done"),
    ("it has ended already: cancelled", rf"job {ID} has already ended: cancelled"),
    (
        r"it would start in more than 30 days \(max_delay\)",
        r"the job would start in 26\d{3}(\.\d)? days; at most 30 days are allowed \(max_delay\)",
    ),
    (
        "enqueue: service: a name has no control characters",
        "enqueue: service: must not have control characters or others that cannot be seen",
    ),
    (
        "only a job in quarantine can be tried again",
        rf"job {ID} ended done and is not in quarantine; only quarantined jobs can be retried",
    ),
    (
        "there is no such job: it never was, or its outcome has been erased",
        "no job has id 0{32}: it never existed, or its outcome was deleted",
    ),
    (
        "there is no such service: no worker has offered it, and no job is there for it",
        "no service is named 'nothing': no worker offers it, and it has no jobs",
    ),
    ("there is no such worker: it has gone, or never was", r"no worker has id \d+: it has left, or never joined"),
    ('no recurring job is called "nothing"', 'no schedule is named "nothing"'),
    ('no recurring job is called "asleep"', 'no schedule is named "asleep"'),
    (
        '"not cron" has 2 fields, a cron expression has five: .+',
        '"not cron" has 2 fields; a cron expression has five: .+',
    ),
    (
        '"Nowhere/Else" is no time zone that this machine knows; write "UTC" or a name such as "Europe/Berlin"',
        'unknown time zone "Nowhere/Else"; use "UTC" or a zone of this machine, such as "Europe/Berlin"',
    ),
    ("say one of cron and every, and not both", "set exactly one of cron and every"),
]
ALLOWED += [Allowed("TELL", r"view\.why", Text(old), Text(new), "a sentence for people") for old, new in WHYS]
ALLOWED += [Allowed("OBJECT", "sentence", Text(old), Text(new), "a sentence for people") for old, new in ERRORS]
MESSAGES_OF_PEERS = "HELLO HEARTBEAT DRAIN BYE SUBMIT CANCEL ACK RESUME RESULT FAILED PROGRESS PART RETURN ASK"
MESSAGES_OF_BROKER = "WELCOME HEARTBEAT BYE MISSING RESULT FAILED PROGRESS PART JOB RECALL TELL OBJECT"


@pytest.fixture(scope="module")
def replays() -> dict[str, Replay]:
    """Each recording, replayed."""
    replays = {name: Replay(path) for name, path in RECORDINGS.items()}
    for replay in replays.values():
        replay.play()
    return replays


def test_answers_are_as_they_were_recorded(replays: dict[str, Replay]) -> None:
    unexpected = {
        name: [each for each in replay.differences if not any(row.covers(each) for row in ALLOWED)]
        for name, replay in replays.items()
    }
    assert {name: found for name, found in unexpected.items() if found} == {}


def test_every_allowed_difference_is_there(replays: dict[str, Replay]) -> None:
    """A row that covers nothing any more would hide the next change."""
    found = [each for replay in replays.values() for each in replay.differences]
    assert [row for row in ALLOWED if not any(row.covers(each) for each in found)] == []


def test_recordings_have_every_message_and_operation_of_2885e3f(replays: dict[str, Replay]) -> None:
    """But ERROR, which answers a peer's mistake, and ACCEPTED, which the client of that build never asks for."""
    of_build = [replay for name, replay in replays.items() if name.startswith("native-2885e3f/")]
    received = set().union(*(replay.received for replay in of_build))
    sent = set().union(*(replay.sent for replay in of_build))
    operations = set().union(*(replay.operations for replay in of_build))
    assert received == set(MESSAGES_OF_PEERS.split())
    assert sent == set(MESSAGES_OF_BROKER.split())
    assert operations == {
        *("enqueue", "job", "result", "why", "cancel", "retry", "jobs"),
        *("services", "service", "pause", "resume", "purge", "workers", "worker", "drain"),
        *("recurring", "recurrence", "recur", "stop recurring", "pause recurring", "resume recurring"),
    }

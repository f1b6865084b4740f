"""Types of the fields of requests and views: formats, limits and descriptions.

Durations are in seconds, times are RFC 3339 texts. A job's id is 32 lower-case hex digits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, UnsetType

from dragoman.core.names import CONTROL, INVISIBLE

DAY = 86_400.0
MOST_ATTEMPTS = 100
JOB_TIMEOUT = 60.0  # seconds
LONGEST_WAIT = 3_600.0  # seconds
MOST_PREDECESSORS = 1_000  # of one job; a group counts as one
LONGEST_KEEP = 3_650 * DAY

ID = "^[0-9a-f]{32}$"
NAME = f"^[^{CONTROL}{INVISIBLE}]+$"  # those of other planes are refused by `is_name`
JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"

JobIdText = Annotated[str, Meta(pattern=ID, description="Job id: 32 lower-case hex digits.", examples=[JOB])]
ServiceName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=NAME,
        description="Service name: 1 to 128 bytes of UTF-8 without control characters and others that cannot be "
        "seen, case-sensitive.",
        examples=["resize"],
    ),
]
WorkerNumber = Annotated[int, Meta(ge=0, le=2**53, description="Worker id: a number, as in the list of workers.")]
ScheduleName = Annotated[str, Meta(min_length=1, max_length=128, description="Schedule name.")]
Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=NAME,
        description="Idempotency key. A second submit with the same key and payload returns the first job.",
        examples=["invoice-42"],
    ),
]
Tenant = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=NAME,
        description="Tenant: the customer or account that the job is for, at most 128 bytes. Tenants take turns.",
        examples=["acme"],
    ),
]
Unique = Annotated[
    Literal["waiting", "unfinished", "kept"],
    Meta(
        description="How long the job holds its key: `waiting` until it starts, `unfinished` until it ends, `kept` "
        "while its outcome is kept. A submit with a key that no job holds makes a new job."
    ),
]
KeepSeconds = Annotated[float, Meta(ge=0, le=LONGEST_KEEP)]
Keep = Annotated[
    KeepSeconds | Literal["forever"],
    Meta(
        description="Seconds for which the outcome is kept; 0: not at all; `forever`: until it is deleted. By default "
        "the broker's setting (outcome_retention).",
        examples=[3_600],
    ),
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=NAME,
        description="Id of this request, chosen by the client. If the request is repeated with the same id, because "
        "its answer was lost, it is not carried out a second time, and the answer is the first one's. Ids are "
        "remembered for `request_retention`, 10 minutes.",
    ),
]
Text = Annotated[str, Meta(description="Payload as text, encoded as UTF-8.", examples=["hello"])]
Base64 = Annotated[
    str,
    Meta(
        description="Payload as base64, for arbitrary bytes.",
        examples=["aGVsbG8="],
        extra_json_schema={"contentEncoding": "base64"},
    ),
]
Priority = Annotated[
    int,
    Meta(ge=0, le=9, description="Priority; jobs with a higher one start first. One step equals a minute of waiting."),
]
Attempts = Annotated[
    int, Meta(ge=1, le=MOST_ATTEMPTS, description="Maximum number of attempts before the job goes into quarantine.")
]
JobTimeout = Annotated[
    float,
    Meta(
        gt=0,
        le=DAY,
        description="Time limit of one attempt, in seconds; `null`: no limit.",
        examples=[30],
    ),
]
Delay = Annotated[float, Meta(ge=0, le=30 * DAY, description="Earliest start, in seconds from now.")]
Moment = Annotated[datetime, Meta(tz=True, description="Time in RFC 3339 format.")]
RetryDelay = Annotated[
    float,
    Meta(
        ge=0,
        le=DAY,
        description="Delay before the second attempt, in seconds; it doubles with each further attempt. By default the "
        "broker's setting.",
    ),
]
RetryMaxDelay = Annotated[
    float,
    Meta(ge=0, le=DAY, description="Longest delay between two attempts, in seconds. By default the broker's setting."),
]
Jitter = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Random fraction that is added to or subtracted from each retry delay. By default the broker's "
        "setting.",
    ),
]
Parameters = Annotated[
    tuple[Annotated[str, Meta(max_length=256)], ...],
    Meta(
        max_length=256,
        description="Names of all parameters of the task, as the caller knows it. A worker that does not know a "
        "parameter of the job refuses it; the job then waits for a worker of a newer version, if these are newer than "
        "those of the worker. Python tasks set it by themselves.",
    ),
]
Parent = Annotated[
    str,
    Meta(
        pattern=ID,
        description="Id of the job whose handler submits this one. Python clients set it by themselves.",
        examples=[JOB],
    ),
]
Traceparent = Annotated[
    str,
    Meta(
        max_length=255,
        description="Trace context of the submit (W3C `traceparent`), which the worker receives. An invalid one is "
        "ignored.",
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    ),
]
After = Annotated[
    tuple[JobIdText, ...],
    Meta(
        max_length=MOST_PREDECESSORS,
        description="Ids of jobs or groups. The job starts when all of them are done; if one ends otherwise, it is "
        "cancelled.",
    ),
]
AfterFailure = Annotated[
    Literal["cancel", "run"],
    Meta(description="If a job in `after` ends otherwise than done: cancel this job, or run it when all have ended."),
]
Input = Annotated[
    Literal["payload", "result", "results"],
    Meta(
        description="The payload that the worker gets: the submitted one; the result of the only job in `after`; or "
        "the submitted one and the results of all jobs in `after`, in CBOR."
    ),
]
WaitSeconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the outcome.")]

State = Literal["waiting", "delayed", "dependent", "running", "ended"]
Durability = Literal["memory", "disk", "single", "replicated", "durable"]
DurabilityShown = Annotated[
    Durability | None,
    Meta(
        description="What an acknowledged background job survives: `memory`: nothing; `disk`: a crash of this machine; "
        "in a cluster, `single`: the loss of brokers; `replicated`: also that of one NATS server; `durable`: also a "
        "power cut of all. The operation `job` shows it, and `enqueue` in a cluster."
    ),
]
HoldsKey = Annotated[
    bool | None, Meta(description="True while a submit with its key returns this job; `null` without a key.")
]
KeepShown = Annotated[
    Keep | None,
    Meta(description="Seconds for which its outcome is kept, or `forever`; `null`: as the broker's setting says."),
]
PayloadKind = Literal["text", "JSON", "pickle", "bytes"]
OutcomeName = Literal["done", "failed", "timed out", "lost", "cancelled", "refused"]
ErrorKind = Literal[
    "not found",
    "invalid",
    "conflict",
    "busy",
    "draining",
    "loading",
    "store unavailable",
    "key reused",
    "no such service",
    "forbidden",
    "too large",
    "partitioned",
    "internal",
]
Quantiles = Annotated[
    list[float | None],
    Meta(
        min_length=3,
        max_length=3,
        description="p50, p95 and p99 of the last 10 seconds, in seconds; null if nothing was measured.",
    ),
]

# Fields that are present in a cluster only.
ParentShown = Annotated[
    JobIdText | None, Meta(description="The job whose handler submitted this one, as its caller named it.")
]
RecordedShown = Annotated[
    Literal["messages", "milestones"] | None, Meta(description="Source of its ladder; `null`: not recorded so far.")
]
RowBroker = Annotated[str | UnsetType, Meta(description="Broker that has it. Present only in a cluster.")]
RowBrokers = Annotated[
    list[str] | UnsetType, Meta(description="Brokers that have workers or jobs of it. Present only in a cluster.")
]
Unanswered = Annotated[
    list[str] | UnsetType,
    Meta(
        description="Brokers that have not answered in time, so that the view is without their part. Present only in a "
        "cluster."
    ),
]
UnansweredShards = Annotated[
    list[int] | UnsetType,
    Meta(
        description="Shards of the cluster without an answer: no broker has proved that it has them, so that the view "
        "is without their part. Present only if there are some."
    ),
]

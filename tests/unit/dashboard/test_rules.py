"""Rules of attention: the facts of one moment, and the sentence about them."""

from __future__ import annotations

from case_tables import check_every_row
from dragoman.dashboard.facts import (
    Facts,
    LimitFacts,
    QuarantineFacts,
    ScheduleFacts,
    ServiceFacts,
    StarvingFacts,
    WorkerFacts,
)
from dragoman.dashboard.rules import RULES, findings

OCR = ServiceFacts(name="ocr", waiting=442, oldest=21.0, workers=48, busy=48, arrived=41.0, ended=22.0)
LATE = WorkerFacts(id=7, name="ocr-b6", services=("ocr",), held=1, seconds=7.2, lease=10.0)


def service(**changes: object) -> Facts:
    facts = {name: getattr(OCR, name) for name in ServiceFacts.__slots__} | changes
    return Facts(services=[ServiceFacts(**facts)])


ROWS: list[tuple[Facts, str, str]] = [
    (Facts(store_problem="disk full"), "store", "The store cannot write: disk full. Background jobs are refused."),
    (Facts(problems=["a", "b"]), "not ready", "The broker accepts no new jobs: a; b."),
    (Facts(degraded=["a", "b"]), "shard unusable", "Background jobs of some shards do not run: a; b."),
    (Facts(replicas="x"), "replicas away", "Logs of background jobs have too few copies: x."),
    (
        Facts(unheard=["eu2", "eu3"]),
        "broker silent",
        "Not heard: eu2, eu3. Jobs and workers there are not shown, and no job is sent there.",
    ),
    (service(workers=0, busy=0), "no worker", "442 jobs of 'ocr' wait: no worker offers the service."),
    (service(workers=0, waiting=1), "no worker", "1 job of 'ocr' waits: no worker offers the service."),
    (
        service(is_paused=True, paused_by="ops", paused_for=720.0),
        "paused",
        "442 jobs of 'ocr' wait: the service has been paused for 12 min by ops.",
    ),
    (service(is_paused=True), "paused", "442 jobs of 'ocr' wait: the service is paused."),
    (
        service(),
        "backlog",
        "442 jobs of 'ocr' wait, the oldest for 21 s: all 48 workers are busy, and the queue grows by 19 a second.",
    ),
    (
        service(ended=50.0, busy=40),
        "backlog",
        "442 jobs of 'ocr' wait, the oldest for 21 s: none of 48 workers is free, and the queue shrinks by 9.0 a "
        "second.",
    ),
    (
        service(ended=41.5, workers=1, busy=0),
        "backlog",
        "442 jobs of 'ocr' wait, the oldest for 21 s: its only worker is not free, and as many jobs arrive as end.",
    ),
    (
        service(idle=3),
        "backlog",
        "442 jobs of 'ocr' wait, the oldest for 21 s: 3 of 48 workers are free, and the queue grows by 19 a second.",
    ),
    (
        Facts(starving=[StarvingFacts(service="ocr", waiting=7, slots=48, services=("ocr",))], services=[OCR]),
        "nested",
        "7 jobs of 'ocr' will not start: all 48 slots of the workers run jobs whose handler waits for jobs of 'ocr', "
        "which only these workers offer.",
    ),
    (
        Facts(starving=[StarvingFacts(service="ocr", waiting=1, slots=1, services=("ocr",))]),
        "nested",
        "1 job of 'ocr' will not start: the only slot of the workers runs a job whose handler waits for jobs of 'ocr', "
        "which only these workers offer.",
    ),
    (
        service(waiting=0, failed=42.0, done=958.0, usual_share=0.003),
        "undone",
        "4.2 % of the jobs of 'ocr' failed, timed out or were lost in the last minute (in the last hour 0.3 %).",
    ),
    (
        service(oldest=1.0, waiting=900, most_waiting=1_000),
        "full queue",
        "The queue of 'ocr' is filled to 90 %: 900 of 1,000 jobs.",
    ),
    (
        Facts(silent=[LATE]),
        "silent",
        "Worker 7 (ocr-b6) has been silent for 7.2 s of its lease of 10 s and holds 1 job.",
    ),
    (
        Facts(silent=[LATE], counts={"silent": 30}),
        "silent",
        "30 workers of 'ocr' have been silent for most of their leases.",
    ),
    (Facts(detached=[LATE]), "detached", "Worker 7 (ocr-b6) has been unreachable for 7.2 s and holds 1 job."),
    (Facts(detached=[LATE, LATE]), "detached", "2 workers of 'ocr' are unreachable."),
    (
        Facts(stuck=[WorkerFacts(id=7, name="", services=("ocr",), held=0, seconds=61.0)]),
        "stuck",
        "Worker 7 has been stuck for 61 s in an attempt that has ended.",
    ),
    (Facts(rejoining={"w": 6}), "rejoining", "Worker 'w' joined again 6 times in 5 minutes."),
    (
        Facts(quarantined=[QuarantineFacts(service="ocr", count=38)]),
        "quarantined",
        "38 jobs of 'ocr' went into quarantine in the last 10 minutes.",
    ),
    (
        Facts(limits=[LimitFacts(name="max_jobs", used=850_000, of=1_000_000)]),
        "limit",
        "max_jobs is used to 85 %: 850,000 of 1,000,000.",
    ),
    (Facts(lag_p99=0.25), "lag", "The broker is late: 1 % of its timed iterations start 0.2 s late or more."),
    (Facts(bad_messages={"http": 10}), "bad messages", "10 messages of the last minute violate the dialect http."),
    (
        Facts(schedules=[ScheduleFacts(name="nightly", service="ocr", skipped=3)]),
        "skipped",
        "The last 3 runs of schedule 'nightly' were skipped.",
    ),
    (
        Facts(schedules=[ScheduleFacts(name="nightly", service="ocr", ahead=365.25 * 86_400.0, waits=3_600.0)]),
        "schedule ahead",
        "Schedule 'nightly' has made runs for times up to 365.2 d from now, and makes no other for 60 min.",
    ),
]

QUIET: list[tuple[Facts]] = [
    (Facts(),),
    (service(oldest=4.9),),
    (service(usual_wait=5.0),),
    (service(waiting=0),),
    (service(waiting=0, failed=2.0),),
    (service(waiting=0, failed=9.0, done=991.0),),
    (service(waiting=0, failed=42.0, done=958.0, usual_share=0.01),),
    (Facts(limits=[LimitFacts(name="max_jobs", used=80, of=100)]),),
    (Facts(limits=[LimitFacts(name="max_connections", used=80, of=0)]),),
    (Facts(lag_p99=0.1),),
    (Facts(bad_messages={"http": 9}),),
    (Facts(schedules=[ScheduleFacts(name="nightly", service="ocr", skipped=2)]),),
]


def test_each_rule_has_its_sentence() -> None:
    def check(facts: Facts, kind: str, text: str) -> None:
        (finding,) = findings(facts)
        assert (finding.kind, finding.text) == (kind, text)
        assert finding.advice.endswith(".")

    check_every_row(check, ROWS)
    assert len({kind for _, kind, _ in ROWS}) == len(RULES)


def test_usual_facts_need_no_attention() -> None:
    def check(facts: Facts) -> None:
        assert findings(facts) == []

    check_every_row(check, QUIET)


def test_queue_that_waits_for_a_limit_of_its_service_needs_no_attention() -> None:
    """R182: somebody has decided that its jobs wait."""
    assert findings(service(is_limited=True, idle=3, busy=45)) == []


def test_findings_about_services_name_them() -> None:
    """A principal without `see` over all services gets those of its services only."""
    broker = {"store", "not ready", "shard unusable", "replicas away", "broker silent", "limit", "lag", "bad messages"}
    broker.add("rejoining")
    for facts, kind, _ in ROWS:
        (finding,) = findings(facts)
        assert finding.services == (() if kind in broker else ("ocr",)), kind


def test_a_reached_limit_is_an_error() -> None:
    levels = [findings(Facts(limits=[LimitFacts(name="n", used=used, of=100)]))[0].level for used in (81, 100)]
    assert levels == ["warning", "error"]

"""Metrics, as a scraper reads them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from time import thread_time

import pytest

from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.core.bulk import NewJob
from dragoman.core.counters import Counters
from dragoman.core.histogram import PUBLISHED
from dragoman.core.job_extras import JobExtras
from dragoman.core.limit_values import LimitValues
from dragoman.core.memory import Transit
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import ALL_RIGHTS
from dragoman.core.states import Outcome, RefusalReason
from dragoman.http import labels
from dragoman.http.exposition import OPENMETRICS, PROMETHEUS, MetricType, media_type
from dragoman.http.labels import OTHER
from dragoman.http.metrics import COUNTERS, METRICS
from dragoman.http.metrics_snapshot import GAUGES, HISTOGRAMS
from fake_stream import FakeStream
from owners import LOCAL_OWNER
from scraped import PATIENT, Caller, Dialect, Scraped, numbers, read

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


# ---------------------------------------------------------------- what is told


def test_jobs_are_counted_by_service_and_outcome(scraped: Scraped) -> None:
    scraped.worker("resize")
    scraped.finish(scraped.job("resize"))
    failed = scraped.job("resize")
    assert failed.attempt is not None
    scraped.broker.fail(failed.attempt, "no", scraped.now)
    told = scraped.numbers()
    assert told["dragoman_jobs_total{service=resize,outcome=done}"] == 1
    assert told["dragoman_jobs_total{service=resize,outcome=failed}"] == 1
    assert told["dragoman_jobs_total{service=resize,outcome=timed out}"] == 0
    assert told["dragoman_jobs_accepted_total"] == told["dragoman_jobs_dispatched_total"] == 2


def test_queues_tell_how_many_wait_run_and_rest_and_for_how_long(scraped: Scraped) -> None:
    scraped.worker("resize")
    for _ in range(3):
        scraped.job("resize")
    scraped.job("resize", JobOptions(delay=60.0))
    scraped.now += 7.0
    told = scraped.numbers()
    assert told["dragoman_queue_depth{service=resize}"] == 2
    assert told["dragoman_queue_oldest_seconds{service=resize}"] == 7.0
    assert told["dragoman_jobs_running{service=resize}"] == 1
    assert told["dragoman_jobs_delayed{service=resize}"] == 1
    assert told["dragoman_jobs_dependent{service=resize}"] == 0
    assert told["dragoman_jobs_present"] == 4
    assert told["dragoman_payload_bytes"] == 4


def test_dependent_jobs_and_groups_are_counted(scraped: Scraped) -> None:
    scraped.worker("resize")
    asked = JobOptions(durable=True, waits=True)
    first, second = (scraped.broker.entropy.job_id() for _ in range(2))
    group = JobExtras(group=scraped.broker.entropy.job_id())
    orders = [
        NewJob("unknown", b"", asked, first, extras=group),
        NewJob("resize", b"", asked, second, extras=JobExtras(after=(first,))),
    ]
    scraped.broker.bulk.submit(orders, LOCAL_OWNER, "http", scraped.now)
    told = scraped.numbers()
    assert (told["dragoman_jobs_dependent{service=resize}"], told["dragoman_groups"]) == (1, 1)
    assert (told["dragoman_jobs_delayed{service=resize}"], told["dragoman_jobs_dependent{service=other}"]) == (0, 0)


def test_queue_that_waits_for_a_limit_of_its_service_is_told(scraped: Scraped) -> None:
    """An alarm about long waits leaves it out: somebody has decided that these jobs wait."""
    for name in ("busy", "limited", "tenants"):
        scraped.worker(name)
        scraped.broker.limiter.set_by_operator(
            name, LimitValues(9 if name == "busy" else 1, 1 if name == "tenants" else None), "ada", scraped.now
        )
        scraped.job(name)
    told = scraped.numbers()
    assert [told[f"dragoman_queue_limited{{service={name}}}"] for name in ("busy", "limited", "tenants")] == [0, 0, 0]
    for name in ("busy", "limited", "tenants"):
        scraped.job(name)
    told = scraped.numbers()
    assert [told[f"dragoman_queue_limited{{service={name}}}"] for name in ("busy", "limited", "tenants")] == [0, 1, 1]


def test_how_long_jobs_waited_and_ran_is_told_in_buckets(scraped: Scraped) -> None:
    scraped.worker("resize")
    first, second = scraped.job("resize"), scraped.job("resize")
    scraped.now += 3.0
    scraped.finish(first)
    scraped.finish(second)
    told = scraped.numbers()
    assert told["dragoman_queue_seconds_bucket{service=resize,le=0.0005}"] == 1
    assert told["dragoman_queue_seconds_bucket{service=resize,le=2.5}"] == 1
    assert told["dragoman_queue_seconds_bucket{service=resize,le=5.0}"] == 2
    assert told["dragoman_queue_seconds_bucket{service=resize,le=+Inf}"] == 2
    assert told["dragoman_run_seconds_count{service=resize}"] == 2
    assert told["dragoman_run_seconds_sum{service=resize}"] == 3.0
    assert len([name for name in told if name.startswith("dragoman_run_seconds_bucket{service=resize")]) == (
        len(PUBLISHED) + 1
    )


def test_workers_are_counted_by_service_dialect_and_state(scraped: Scraped) -> None:
    scraped.worker("resize")
    scraped.worker("resize", "crop", dialect="pingpong")
    scraped.job("resize")
    told = scraped.numbers()
    assert told["dragoman_workers{service=resize,dialect=memodb,state=busy}"] == 1
    assert told["dragoman_workers{service=resize,dialect=pingpong,state=idle}"] == 1
    assert told["dragoman_workers{service=crop,dialect=pingpong,state=idle}"] == 1


def test_every_count_of_the_core_is_told(scraped: Scraped) -> None:
    """A counter that is added there must be named here."""
    by_label = {
        "access_reloads",
        "bad_messages",
        "limits_reached",
        "peers_refused",
        "rights_refused",
        "unreported_outcomes",
    }
    # `dropped` is in the log, the flow between dialects on the dashboard
    shown_otherwise = {"done", "undone", "dropped", "flow", "_flow_to", *by_label}
    assert set(COUNTERS) == set(Counters.__slots__) - shown_otherwise
    counters = scraped.broker.counters
    for number, attribute in enumerate(COUNTERS, start=1):
        setattr(counters, attribute, number)
    counters.bad_message("memodb", "not CBOR")
    counters.unreported_outcome(Outcome.LOST)
    counters.refuse_right("call", "native")
    counters.refuse_peer("curve", "unknown key")
    counters.access_reloaded("done")
    told = scraped.numbers()
    assert [told[name] for name, _ in COUNTERS.values()] == list(range(1, len(COUNTERS) + 1))
    assert told["dragoman_bad_messages_total{dialect=memodb,reason=not CBOR}"] == 1
    assert told["dragoman_unreported_outcomes_total{outcome=lost}"] == 1
    assert told["dragoman_rights_refused_total{right=call,dialect=native}"] == 1
    assert told["dragoman_access_reloads_total{result=done}"] == 1
    assert told["dragoman_handshakes_rejected_total{mechanism=curve,reason=unknown key}"] == 1


def test_handshakes_certificates_limits_and_data_in_transit_are_told(scraped: Scraped) -> None:
    """None of these lines, which show a flood to an operator, had a test."""
    handshakes = scraped.runner.connections.registry.handshakes
    for address, mechanism, is_done in (("a", "curve", True), ("a", "curve", True), ("b", "tls", False)):
        handshakes.end(handshakes.begin(mechanism, address, lambda: None), is_done=is_done)
    handshakes.begin("tls", "c", lambda: None)
    scraped.listener.certificates = lambda: [("127.0.0.1:7400", 4_000.0)]
    scraped.broker.counters.refuse("resize", RefusalReason.BUSY, "too many", "max_bytes_per_service")
    scraped.broker.job_registry.memory.set_transit(Transit.BODIES, 7)
    told = scraped.numbers()
    assert told["dragoman_handshakes_waiting"] == 1
    assert told["dragoman_handshakes_total{mechanism=curve,result=done}"] == 2
    assert told["dragoman_handshakes_total{mechanism=tls,result=failed}"] == 1
    assert told["dragoman_certificate_expiry_seconds{listener=127.0.0.1:7400}"] == 4_000
    assert told["dragoman_limits_reached_total{limit=max_bytes_per_service}"] == 1
    assert told["dragoman_transit_bytes{kind=HTTP bodies}"] == 7


def test_the_store_and_the_loop_tell_how_they_do(scraped: Scraped) -> None:
    scraped.store.commits.observe(0.2)
    scraped.runner.lag.observe(0.004)
    before = scraped.numbers()
    scraped.store.problem = "the disk is full"
    scraped.problems.append("the disk is full")
    after = scraped.numbers()
    assert before["dragoman_store_commit_seconds_sum"] == 0.2
    assert before["dragoman_loop_lag_seconds_bucket{le=0.005}"] == 1
    assert (before["dragoman_store_unavailable"], after["dragoman_store_unavailable"]) == (0, 1)
    assert (before["dragoman_ready"], after["dragoman_ready"]) == (1, 0)


def test_the_process_tells_what_it_costs(scraped: Scraped) -> None:
    told = scraped.numbers()
    assert told["process_cpu_seconds_total"] > 0
    assert told["process_resident_memory_bytes"] > 1 << 20
    assert 0 < told["process_open_fds"] < told["process_max_fds"]
    assert told["process_start_time_seconds"] > 1_600_000_000


def test_bytes_of_peers_that_have_gone_are_counted_on(scraped: Scraped) -> None:
    class Session(Dialect):
        def opened(self, peer: object, now: float) -> None: ...

        def lost(self, peer: object, unsent: object, now: float) -> None: ...

    streams = [FakeStream(), FakeStream()]
    session = Session("controller")
    peers = [
        scraped.runner.connections.connected(session, "workers", LengthPrefix(lambda head: 0), stream, "p", "a")  # type: ignore[arg-type]
        for stream in streams
    ]
    streams[0].received, streams[0].sent = 10, 1
    streams[1].received, streams[1].sent = 200, 20
    scraped.connections = 3
    before = scraped.numbers()
    scraped.runner.connections.ended(peers[0], "gone")
    after = scraped.numbers()
    for told in (before, after):
        assert told["dragoman_received_bytes_total{dialect=controller}"] == 210
        assert told["dragoman_sent_bytes_total{dialect=controller}"] == 21
    assert (before["dragoman_connections{dialect=controller}"], after["dragoman_connections{dialect=controller}"]) == (
        2,
        1,
    )
    assert after["dragoman_connections{dialect=http}"] == 3


# ---------------------------------------------------------------- how it is told


@pytest.mark.parametrize("accept", [OPENMETRICS, PROMETHEUS])
def test_both_texts_say_the_same(scraped: Scraped, accept: str) -> None:
    scraped.worker('a "quoted" \\ name')
    scraped.job('a "quoted" \\ name')
    answer = scraped.get(accept)
    assert answer.headers["content-type"] == accept
    told = numbers(answer)
    assert told['dragoman_jobs_running{service=a "quoted" \\ name}'] == 1
    assert {name for name in told if not name.startswith("process_")} == {
        name for name in numbers(scraped.get(OPENMETRICS)) if not name.startswith("process_")
    }


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", OPENMETRICS),
        ("*/*", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5", PROMETHEUS),
        ("text/plain", PROMETHEUS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", PROMETHEUS),
        ("text/plain;q=nonsense", OPENMETRICS),
    ],
)
def test_the_text_is_the_one_that_is_preferred(accept: str, media: str) -> None:
    assert media_type(accept) == media


@pytest.mark.parametrize("accept", [OPENMETRICS, PROMETHEUS])
def test_every_metric_is_there_with_its_meaning_from_the_first_scrape(scraped: Scraped, accept: str) -> None:
    families = {family.name: family for family in read(scraped.get(accept))}
    for name, (kind, meaning) in METRICS.items():
        known_as = name.removesuffix("_total") if kind is MetricType.COUNTER else name
        if kind is MetricType.INFO and accept == OPENMETRICS:
            known_as = name.removesuffix("_info")
        assert families.pop(known_as).documentation == meaning
    assert families == {}


def test_the_page_names_every_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {name: kind.value for name, (kind, _) in METRICS.items()}
    assert len(rows) == len(METRICS)


# ---------------------------------------------------------------- bounded (T21)


def test_services_beyond_the_bound_are_told_together(scraped: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_SERVICES", 2)
    for name in "abcd":
        scraped.worker(name)
        scraped.finish(scraped.job(name))
        scraped.job(name)
    told = scraped.numbers()
    assert told["dragoman_jobs_total{service=a,outcome=done}"] == 1
    assert told["dragoman_jobs_total{service=other,outcome=done}"] == 2
    assert told["dragoman_jobs_running{service=other}"] == 2
    assert told["dragoman_run_seconds_count{service=other}"] == 2
    assert told["dragoman_workers{service=other,dialect=memodb,state=busy}"] == 2
    assert not any("service=c" in name or "service=d" in name for name in told)


def test_names_that_only_callers_have_said_have_no_series(scraped: Scraped) -> None:
    scraped.job("made up")
    told = scraped.numbers()
    assert told["dragoman_queue_depth{service=other}"] == 1
    assert not any("made up" in name for name in told)


def test_a_service_that_is_called_like_the_others_is_told_with_them(scraped: Scraped) -> None:
    scraped.worker(OTHER)
    scraped.job(OTHER)
    scraped.job("made up")
    told = scraped.numbers()
    assert told["dragoman_jobs_running{service=other}"] == told["dragoman_queue_depth{service=other}"] == 1


def test_who_has_a_series_keeps_it(scraped: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_SERVICES", 1)
    scraped.job("a")  # known first, offered later
    scraped.worker("b")
    assert "dragoman_queue_depth{service=b}" in scraped.numbers()
    scraped.worker("a")
    told = scraped.numbers()
    assert "dragoman_queue_depth{service=b}" in told
    assert "dragoman_queue_depth{service=a}" not in told


def test_what_the_others_ended_never_falls(scraped: Scraped) -> None:
    """One of them gets a series of its own. A scraper takes a fall for a new start, and counts all once more."""
    for name in ("made up", "later offered"):
        scraped.broker.withdraw(scraped.job(name), scraped.now, "no")
    name = "dragoman_jobs_total{service=other,outcome=cancelled}"
    assert scraped.numbers()[name] == 2
    scraped.worker("later offered")
    told = scraped.numbers()
    assert told[name] == 2
    assert told["dragoman_jobs_total{service=later offered,outcome=cancelled}"] == 1


def test_places_go_to_services_with_workers_and_then_to_those_with_most_jobs(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MOST_SERVICES", 2)
    for name, jobs in (("one job", 1), ("two jobs", 2)):
        scraped.broker.leave(scraped.worker(name), scraped.now, "gone")
        for _ in range(jobs):
            scraped.job(name)
    scraped.worker("worker")
    told = scraped.numbers()
    assert sorted(name for name in told if "queue_depth" in name) == [
        "dragoman_queue_depth{service=other}",
        "dragoman_queue_depth{service=two jobs}",
        "dragoman_queue_depth{service=worker}",
    ]


def test_service_that_is_not_used_gives_its_place_to_one_that_is(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of names that a worker offered once must not hide the services that come later."""
    monkeypatch.setattr(labels, "MOST_SERVICES", 2)
    gone = scraped.worker("gone")
    scraped.worker("stays")
    scraped.finish(scraped.job("gone"))
    assert scraped.numbers()["dragoman_jobs_total{service=gone,outcome=done}"] == 1
    scraped.broker.leave(gone, scraped.now, "gone")
    assert "dragoman_queue_depth{service=gone}" in scraped.numbers()
    scraped.worker("new")
    told = scraped.numbers()
    assert "dragoman_queue_depth{service=new}" in told
    assert "dragoman_queue_depth{service=stays}" in told
    assert "dragoman_queue_depth{service=gone}" not in told
    assert told["dragoman_jobs_total{service=other,outcome=done}"] == 1


def test_waiting_jobs_by_owner(scraped: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_OWNERS", 2)
    for number, name in enumerate(("few", "more", "most", "none"), start=1):
        principal = scraped.broker.principals.named(name)
        principal.rights = ALL_RIGHTS
        caller = Caller()
        caller.belong_to(Owner(principal))
        for _ in range(number % 4):
            scraped.broker.submit("s", b"", caller, PATIENT, scraped.now)
    told = {name: count for name, count in scraped.numbers().items() if "owner" in name}
    assert told == {
        "dragoman_owner_waiting_jobs{owner=most}": 3,
        "dragoman_owner_waiting_jobs{owner=more}": 2,
        "dragoman_owner_waiting_jobs{owner=other}": 1,
    }


def test_lines_are_bounded_with_ten_thousand_services_and_a_thousand_owners(scraped: Scraped) -> None:
    for number in range(10_000):
        scraped.worker(f"service {number}")
    for service in scraped.broker.worker_registry.services.values():
        service.waited.observe(0.1)
        service.ran.observe(0.1)
    for number in range(1_000):
        scraped.broker.principals.named(f"owner {number}")
    of_a_service = len(Outcome) + len(GAUGES) + len(HISTOGRAMS) * (len(PUBLISHED) + 3) + 1  # and its workers
    assert bytes(scraped.get(OPENMETRICS).body).count(b"\n") <= 201 * of_a_service + 201 + 3 * len(METRICS) + 100


# ---------------------------------------------------------------- and quick


def test_a_scrape_of_very_many_lets_others_have_their_turn(scraped: Scraped) -> None:
    """Ten thousand services, ten thousand workers: never more than 100 ms of CPU time at a time."""
    for number in range(10_000):
        scraped.worker(f"service {number}")
        scraped.broker.submit(f"service {number}", b"", Caller(), JobOptions(), scraped.now)
    for service in scraped.broker.worker_registry.services.values():
        service.waited.observe(0.1)
        service.ran.observe(0.1)

    async def longest_gap() -> float:
        longest, last = 0.0, thread_time()
        scrape = asyncio.ensure_future(scraped.ask())
        while not scrape.done():
            await asyncio.sleep(0)
            now = thread_time()
            longest, last = max(longest, now - last), now
        assert 500_000 < len(bytes((await scrape).body)) < 2_000_000
        return longest

    assert min(asyncio.run(longest_gap()) for _ in range(3)) < 0.1

"""Every metric, its meaning, and where a scraper gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dragoman.http.context import AppContext
from dragoman.http.exposition import OPENMETRICS, Kind, media_type
from dragoman.http.metrics_snapshot import MetricsSnapshot
from dragoman.http.route import TEXT, Route

COUNTER, GAUGE, HISTOGRAM, INFO = Kind

# What core/counters.py counts, by the metric that shows it.
COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "accepted": ("dragoman_jobs_accepted_total", "Jobs that were let in."),
    "restored": ("dragoman_jobs_restored_total", "Jobs of an earlier run that had not ended."),
    "released": ("dragoman_jobs_released_total", "Quarantined jobs that were let in again."),
    "refused": ("dragoman_jobs_refused_total", "Submits turned away at the door."),
    "dispatched": ("dragoman_jobs_dispatched_total", "Attempts: jobs given to a worker."),
    "erased": ("dragoman_outcomes_erased_total", "Kept outcomes that were forgotten."),
    "late_results": ("dragoman_late_results_total", "Results that came after their attempt was over."),
    "unclaimed_results": ("dragoman_unclaimed_results_total", "Results of calls whose callers had gone."),
    "dropped_parts": ("dragoman_dropped_parts_total", "Parts of results that came late."),
    "expired_workers": ("dragoman_expired_workers_total", "Workers given up because they were silent."),
    "false_expiries": ("dragoman_false_expiries_total", "Workers given up that turned out to live."),
    "ready_while_busy": ("dragoman_ready_while_busy_total", "Workers that said they were free while they held a job."),
    "ambiguous_results": ("dragoman_ambiguous_results_total", "Results that could belong to more than one attempt."),
    "throttled_pings": ("dragoman_throttled_pings_total", "Pings that came too often to be answered."),
    "takeovers": ("dragoman_takeovers_total", "Routing ids seen on a new connection."),
    "internal_errors": ("dragoman_internal_errors_total", "Faults of the broker itself that hurt one peer."),
    "connections_closed_slow": (
        "dragoman_connections_closed_slow_total",
        "Peers disconnected because they did not read.",
    ),
    "connections_rejected": ("dragoman_connections_rejected_total", "Connections that were not let in."),
    "clamped_timeouts": ("dragoman_clamped_timeouts_total", "Timeouts cut to what the listener allows."),
    "replayed_answers": ("dragoman_replayed_answers_total", "Answers said again because the request came again."),
}

METRICS: Final[Mapping[str, tuple[Kind, str]]] = {
    "dragoman_build_info": (INFO, "What runs here."),
    "dragoman_ready": (GAUGE, "1 if new jobs are taken, as /readyz says."),
    "dragoman_jobs_total": (COUNTER, "Jobs that ended, by service and outcome."),
    "dragoman_queue_depth": (GAUGE, "Jobs that wait for a worker now."),
    "dragoman_queue_oldest_seconds": (GAUGE, "How long the job to be handed out next has waited."),
    "dragoman_jobs_delayed": (GAUGE, "Jobs that may not start yet: delayed, resting before a retry, not yet on disk."),
    "dragoman_jobs_running": (GAUGE, "Jobs that a worker has now."),
    "dragoman_queue_seconds": (HISTOGRAM, "How long jobs waited before their first attempt."),
    "dragoman_run_seconds": (HISTOGRAM, "How long attempts ran."),
    "dragoman_workers": (GAUGE, "Workers present; one of several services is counted with each."),
    "dragoman_connections": (GAUGE, "Connections, by dialect."),
    "dragoman_received_bytes_total": (COUNTER, "Bytes that came from peers, by dialect."),
    "dragoman_sent_bytes_total": (COUNTER, "Bytes that went to peers, by dialect."),
    "dragoman_bad_messages_total": (COUNTER, "Messages that break their dialect's rules."),
    "dragoman_unreported_outcomes_total": (
        COUNTER,
        "Jobs that ended with an outcome their caller's wire has no word for.",
    ),
    **{name: (COUNTER, meaning) for name, meaning in COUNTERS.values()},
    "dragoman_jobs_present": (GAUGE, "Jobs that have not ended; max_jobs bounds them."),
    "dragoman_payload_bytes": (GAUGE, "Payloads of those in memory; max_memory bounds them."),
    "dragoman_outcomes_kept": (GAUGE, "Ended jobs whose outcome is kept for who comes back."),
    "dragoman_store_commit_seconds": (HISTOGRAM, "How long commits of the diary took."),
    "dragoman_store_unavailable": (GAUGE, "1 if the diary cannot write, and background jobs are refused."),
    "dragoman_loop_lag_seconds": (HISTOGRAM, "How late turns of the broker's loop were that had a time."),
    "process_cpu_seconds_total": (COUNTER, "Processor time, of user and system together."),
    "process_max_fds": (GAUGE, "How many file descriptors may be open."),
    "process_virtual_memory_bytes": (GAUGE, "Memory that is mapped."),
    "process_resident_memory_bytes": (GAUGE, "Memory that is in use."),
    "process_open_fds": (GAUGE, "File descriptors that are open."),
    "process_start_time_seconds": (GAUGE, "When the process was started, in seconds since 1970."),
}


async def metrics(context: AppContext, request: Request) -> Response:
    """Read when asked for: nothing is kept for a scraper that may never come."""
    media = media_type(request.headers.get("accept", ""))
    body = await MetricsSnapshot(context, METRICS, media == OPENMETRICS).text(COUNTERS)
    return Response(body, headers={"Content-Type": media, "Cache-Control": "no-store"})


ROUTES = [
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Counters, gauges and histograms for scrapers: OpenMetrics, or by Accept the older Prometheus text.",
        handler=metrics,
        answers={200: (OPENMETRICS.partition(";")[0], TEXT)},
        tag="health",
    ),
]

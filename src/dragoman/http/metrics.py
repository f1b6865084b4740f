"""Declarations of all metrics, and the route for scrapers."""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.model import Payload
from dragoman.http.context import AppContext
from dragoman.http.exposition import OPENMETRICS, MetricType, head, labels, media_type, sample
from dragoman.http.merged_metrics import MergedMetrics
from dragoman.http.metrics_snapshot import MetricsContext, MetricsSnapshot
from dragoman.http.problems import HttpError, problem_response
from dragoman.http.request_parsing import in_query
from dragoman.http.route import TEXT, Route
from dragoman.operations.metric_sources import MetricSources
from dragoman.operations.schemas import OperationError, OperationRequest

COUNTER, GAUGE, HISTOGRAM, INFO = MetricType

# Attributes of core/counters.py, with their metrics.
COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "accepted": ("dragoman_jobs_accepted_total", "Jobs accepted."),
    "restored": ("dragoman_jobs_restored_total", "Unfinished jobs restored from an earlier run."),
    "evicted": ("dragoman_jobs_evicted_total", "Unfinished jobs whose shard went to another broker of the cluster."),
    "released": ("dragoman_jobs_released_total", "Quarantined jobs retried."),
    "refused": ("dragoman_jobs_refused_total", "Jobs refused at submit."),
    "dispatched": ("dragoman_jobs_dispatched_total", "Attempts: jobs dispatched to a worker."),
    "erased": ("dragoman_outcomes_erased_total", "Kept outcomes deleted."),
    "late_results": ("dragoman_late_results_total", "Results that came after their attempt had ended."),
    "unclaimed_results": ("dragoman_unclaimed_results_total", "Results of calls whose caller had disconnected."),
    "dropped_parts": ("dragoman_dropped_parts_total", "Parts of results that came after their attempt had ended."),
    "expired_workers": ("dragoman_expired_workers_total", "Workers removed because they were silent."),
    "false_expiries": (
        "dragoman_false_expiries_total",
        "Silent workers that were removed, and came back under their name.",
    ),
    "ready_while_busy": ("dragoman_ready_while_busy_total", "READY messages of workers that had a job."),
    "ambiguous_results": ("dragoman_ambiguous_results_total", "Results that could belong to more than one attempt."),
    "throttled_pings": ("dragoman_throttled_pings_total", "Pings without a reply because they came too often."),
    "takeovers": ("dragoman_takeovers_total", "Connections replaced by a new one with the same identity."),
    "internal_errors": ("dragoman_internal_errors_total", "Internal errors that closed one connection."),
    "connections_closed_slow": (
        "dragoman_connections_closed_slow_total",
        "Connections closed because their data was not read.",
    ),
    "connections_rejected": ("dragoman_connections_rejected_total", "Connections rejected."),
    "clamped_timeouts": ("dragoman_clamped_timeouts_total", "Time-outs reduced to the listener's maximum."),
    "replayed_answers": ("dragoman_replayed_answers_total", "Replies repeated because the request was repeated."),
}

BROKER_UP: Final = "dragoman_broker_up"  # has samples in the metrics of all brokers only
# Metrics of a broker in a cluster. Others have no samples of them.
CLUSTER = {
    BROKER_UP: (GAUGE, "1 if a broker of the cluster has answered within two seconds. Only with brokers=all."),
    "dragoman_cluster_brokers": (GAUGE, "Other brokers of the cluster that are known."),
    "dragoman_cluster_gives_total": (COUNTER, "Attempts at workers of other brokers that have ended, by their result."),
    "dragoman_cluster_taken_jobs_running": (
        GAUGE,
        "Jobs of other brokers that run here; their own broker counts them as running, too.",
    ),
    "dragoman_cluster_taken_jobs_total": (
        COUNTER,
        "Jobs of other brokers that ended here; their own broker counts them, too.",
    ),
    "dragoman_cluster_shards_owned": (GAUGE, "Shards of background jobs that this broker owns."),
    "dragoman_cluster_shards_unusable": (GAUGE, "Shards whose log this broker has found unusable, or has lost."),
    "dragoman_cluster_replicas_away": (GAUGE, "NATS servers that are away, and should have replicas of the logs."),
    "dragoman_cluster_commits_total": (COUNTER, "Batches of rows that are in the logs of shards."),
    "dragoman_cluster_claims_total": (COUNTER, "Claims of shards, by their result."),
    "dragoman_cluster_void_commits_total": (COUNTER, "Messages in the logs of shards that do not count."),
    "dragoman_cluster_cleanings_total": (COUNTER, "Logs of shards that were cleaned."),
    "dragoman_cluster_log_bytes": (GAUGE, "Size of the log of a shard that this broker owns, about."),
    "dragoman_cluster_outcomes_held": (
        GAUGE,
        "Outcomes of attempts here that the owner has not acknowledged.",
    ),
}
METRICS: Final[Mapping[str, tuple[MetricType, str]]] = {
    "dragoman_build_info": (INFO, "Version of the broker and of Python."),
    "dragoman_ready": (GAUGE, "1 if the broker accepts new jobs, like /readyz."),
    "dragoman_certificate_expiry_seconds": (GAUGE, "Unix time at which the certificate of a listener expires."),
    "dragoman_jobs_total": (COUNTER, "Jobs that ended, by service and outcome."),
    "dragoman_queue_depth": (GAUGE, "Jobs that wait for a worker."),
    "dragoman_queue_oldest_seconds": (GAUGE, "Waiting time of the next job to be dispatched."),
    "dragoman_queue_limited": (GAUGE, "1 if jobs wait because of a limit of their service."),
    "dragoman_jobs_delayed": (GAUGE, "Jobs that may not start yet: delayed, in a retry delay, or not yet stored."),
    "dragoman_jobs_dependent": (GAUGE, "Jobs that wait for other jobs."),
    "dragoman_jobs_running": (GAUGE, "Jobs that are running at a worker."),
    "dragoman_owner_waiting_jobs": (GAUGE, "Jobs that wait or are delayed, by the principal that submitted them."),
    "dragoman_queue_seconds": (HISTOGRAM, "Waiting time of jobs before their first attempt."),
    "dragoman_run_seconds": (HISTOGRAM, "Duration of attempts."),
    "dragoman_workers": (GAUGE, "Workers by state; one that offers several services counts for each."),
    "dragoman_connections": (GAUGE, "Connections, by dialect."),
    "dragoman_handshakes_total": (COUNTER, "Ended handshakes of CURVE, TLS and tokens, by mechanism and result."),
    "dragoman_handshakes_waiting": (GAUGE, "Handshakes of CURVE, TLS and tokens that are in progress."),
    "dragoman_received_bytes_total": (COUNTER, "Bytes received, by dialect."),
    "dragoman_sent_bytes_total": (COUNTER, "Bytes sent, by dialect."),
    "dragoman_bad_messages_total": (COUNTER, "Messages that violate their dialect."),
    "dragoman_access_reloads_total": (COUNTER, "Reloads of the access folder, keys and certificates, by result."),
    "dragoman_handshakes_rejected_total": (
        COUNTER,
        "Connections rejected before they were open, by mechanism and reason.",
    ),
    "dragoman_rights_refused_total": (COUNTER, "Requests refused because their principal lacks a right."),
    "dragoman_unreported_outcomes_total": (COUNTER, "Jobs whose outcome the caller's dialect cannot express."),
    **{name: (COUNTER, meaning) for name, meaning in COUNTERS.values()},
    "dragoman_limits_reached_total": (COUNTER, "Jobs refused at submit because of a limit, by its name."),
    "dragoman_jobs_present": (GAUGE, "Jobs that have not ended; limited by max_jobs."),
    "dragoman_groups": (GAUGE, "Groups of jobs that are open or kept; limited by max_groups."),
    "dragoman_payload_bytes": (
        GAUGE,
        "Payloads of these jobs in memory; limited by max_memory together with data in transit.",
    ),
    "dragoman_transit_bytes": (
        GAUGE,
        "Data in transit, by kind; limited by max_memory together with payloads.",
    ),
    "dragoman_outcomes_kept": (GAUGE, "Ended jobs whose outcome is kept for later requests."),
    "dragoman_jobs_kept_forever": (
        GAUGE,
        "Jobs whose outcome is kept until it is deleted; limited by max_kept_forever.",
    ),
    "dragoman_store_commit_seconds": (HISTOGRAM, "Duration of the store's commits."),
    "dragoman_store_unavailable": (GAUGE, "1 if the store cannot write, and background jobs are refused."),
    "dragoman_loop_lag_seconds": (HISTOGRAM, "Delay of the event loop's timed iterations."),
    **CLUSTER,
    "process_cpu_seconds_total": (COUNTER, "Processor time, user and system together."),
    "process_max_fds": (GAUGE, "Maximum number of open file descriptors."),
    "process_virtual_memory_bytes": (GAUGE, "Mapped memory."),
    "process_resident_memory_bytes": (GAUGE, "Memory in use."),
    "process_open_fds": (GAUGE, "Open file descriptors."),
    "process_start_time_seconds": (GAUGE, "Start time of the process, in seconds since 1970."),
}


class MetricsQuery(OperationRequest):
    """The brokers whose metrics are wanted."""

    brokers: Annotated[
        Literal["all"] | None,
        Meta(
            description="`all`: of every broker of the cluster, each sample with the label `broker`, and "
            "`dragoman_broker_up`. Default: of this broker."
        ),
    ] = None


async def metrics(context: AppContext, request: Request) -> Response:
    """Collect the metrics on request: nothing is prepared for a scraper that may never come. They tell of all services,
    so they are for principals that may see all."""
    try:
        context.operations.permissions.require_see_all(context.owner(request.scope).principal, context.session.dialect)
    except OperationError as error:
        raise HttpError(problem_response(error.problem)) from None
    query = in_query(request, MetricsQuery) if "brokers" in request.query_params else MetricsQuery()
    media = media_type(request.headers.get("accept", ""))
    sources = context.operations.metric_sources
    if query.brokers == "all" and sources is not None:
        body = await _of_all_brokers(context, request, sources, media == OPENMETRICS)
    else:
        body = await MetricsSnapshot(context, METRICS, media == OPENMETRICS).text(COUNTERS, CLUSTER)
    return Response(body, headers={"Content-Type": media, "Cache-Control": "no-store"})


async def broker_metrics(context: MetricsContext, broker: str, is_openmetrics: bool) -> bytes:
    """Return the metrics of this broker, as a part of those of its cluster."""
    return await MetricsSnapshot(context, METRICS, is_openmetrics, broker).text(COUNTERS, CLUSTER)


async def _of_all_brokers(context: AppContext, request: Request, sources: MetricSources, is_openmetrics: bool) -> bytes:
    """Return the metrics of all brokers of the cluster, each with the label `broker`."""
    others: Future[dict[str, Payload | None]] = get_running_loop().create_future()

    def done(texts: dict[str, Payload | None]) -> None:
        if not others.done():
            others.set_result(texts)

    sources.gather(context.owner(request.scope), is_openmetrics, done)
    own = await broker_metrics(context, sources.name, is_openmetrics)
    found: dict[str, Payload | None] = dict(sorted({**await others, sources.name: own}.items()))
    kind, meaning = METRICS[BROKER_UP]
    ups = [sample(BROKER_UP, labels(broker=name), int(text is not None)) for name, text in found.items()]
    whole = MergedMetrics()
    whole.add((head(BROKER_UP, kind, meaning, is_openmetrics) + "".join(ups)).encode())
    for text in found.values():
        if text is not None:
            whole.add(text)
            await sleep(0)
    return whole.text(is_openmetrics)


ROUTES = [
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Counters, gauges and histograms for scrapers: OpenMetrics, or by Accept the older Prometheus text.",
        handler=metrics,
        answers={200: (OPENMETRICS.partition(";")[0], TEXT)},
        tag="health",
        query=MetricsQuery,
        problems=(403, 422),
    ),
]

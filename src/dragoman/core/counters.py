"""Counters of the broker: plain integers on one object."""

from __future__ import annotations

from typing import Final

from dragoman.core.states import DONE, Outcome, RefusalReason
from dragoman.core.work_record import FlowCell

MOST_NAMED: Final = 1_000  # services whose dropped jobs are counted by name
UNNAMED: Final = ""  # stands for all other services, and for names of unknown services
QUEUE_TIMEOUT: Final = "queue time-out"


class Dropped:
    """Jobs of one service that were refused, or timed out in the queue, since the last report."""

    __slots__ = ("causes", "reason")

    def __init__(self) -> None:
        self.causes: dict[str, int] = {}  # jobs by cause: QUEUE_TIMEOUT or a RefusalReason
        self.reason = ""  # of the latest one


class Counters:
    """Totals since the start of the broker, for metrics and reports."""

    __slots__ = (
        "_flow_to",
        "accepted",
        "access_reloads",
        "ambiguous_results",
        "bad_messages",
        "clamped_timeouts",
        "connections_closed_slow",
        "connections_rejected",
        "dispatched",
        "done",
        "dropped",
        "dropped_parts",
        "erased",
        "evicted",
        "expired_workers",
        "false_expiries",
        "flow",
        "internal_errors",
        "late_results",
        "limits_reached",
        "peers_refused",
        "ready_while_busy",
        "refused",
        "released",
        "replayed_answers",
        "restored",
        "rights_refused",
        "takeovers",
        "throttled_pings",
        "unclaimed_results",
        "undone",
        "unreported_outcomes",
    )

    def __init__(self) -> None:
        self.accepted = 0  # jobs accepted
        self.restored = 0  # jobs of an earlier run that had not ended
        self.evicted = 0  # unfinished jobs whose shard went to another broker of the cluster
        self.released = 0  # R135: quarantined jobs that were released
        self.refused = 0  # submits refused
        self.done = 0  # accepted jobs that ended `done`
        self.undone = dict.fromkeys(Outcome, 0)  # accepted jobs that ended otherwise
        self.erased = 0  # kept outcomes that were deleted
        self.dispatched = 0  # attempts
        self.late_results = 0  # R2
        self.unclaimed_results = 0  # R19
        self.dropped_parts = 0  # late parts of results
        self.expired_workers = 0
        self.false_expiries = 0  # R88: removed workers that turned out to be alive
        self.ready_while_busy = 0  # R34
        self.ambiguous_results = 0  # R44
        self.throttled_pings = 0  # R49
        self.takeovers = 0  # T7: a routing id seen on a new connection
        self.internal_errors = 0  # R27
        self.connections_closed_slow = 0  # R17: connections that did not read
        self.connections_rejected = 0  # L7, R23
        self.clamped_timeouts = 0  # R72
        self.replayed_answers = 0  # R60, R63: replies sent again for a repeated request
        self.dropped: dict[str, Dropped] = {}  # by service; the server reports entries and removes them
        self.unreported_outcomes: dict[str, int] = {}  # R73: by outcome, where the dialect has no message for it
        self.bad_messages: dict[tuple[str, str], int] = {}  # D6, by dialect and reason
        self.rights_refused: dict[tuple[str, str], int] = {}  # R152, by right and dialect
        self.access_reloads: dict[str, int] = {}  # by result
        self.peers_refused: dict[tuple[str, str], int] = {}  # R175, by mechanism and reason
        self.limits_reached: dict[str, int] = {}  # submits refused, by the limit's name
        self.flow: dict[tuple[str, str], FlowCell] = {}  # jobs done, by the dialects of caller and worker
        self._flow_to: dict[str, dict[str, FlowCell]] = {}  # the same cells by the worker's, then the caller's dialect

    @property
    def ended(self) -> dict[Outcome, int]:
        """Accepted jobs by outcome."""
        return self.undone | {DONE: self.done}

    def refuse(self, service: str, cause: RefusalReason, reason: str, limit: str = "") -> None:
        """Count a refused submit. `service`: UNNAMED if there is no such service. `limit`: the one that is reached, if
        the cause is a limit."""
        self.refused += 1
        if limit and (cause is RefusalReason.BUSY or cause is RefusalReason.TOO_LARGE):
            self.limits_reached[limit] = self.limits_reached.get(limit, 0) + 1
        # These two have log lines of their own: `draining` and `right refused`.
        if cause is not RefusalReason.DRAINING and cause is not RefusalReason.FORBIDDEN:
            self.drop(service, cause, reason)

    def drop(self, service: str, cause: str, reason: str) -> None:
        """Count a job that was dropped before an attempt. Not on the hot path."""
        dropped = self.dropped.get(service)
        if dropped is None:
            if len(self.dropped) >= MOST_NAMED:
                service = UNNAMED
            dropped = self.dropped.setdefault(service, Dropped())
        dropped.causes[cause] = dropped.causes.get(cause, 0) + 1
        dropped.reason = reason

    def flow_to(self, worker_dialect: str) -> dict[str, FlowCell]:
        """Return the cells of this dialect's workers, by the dialect of the caller."""
        return self._flow_to.setdefault(worker_dialect, {})

    def flow_cell(self, caller_dialect: str, worker_dialect: str) -> FlowCell:
        """Return the cell of this pair. Not on the hot path: workers keep the result of `flow_to`."""
        cell = self.flow.get((caller_dialect, worker_dialect))
        if cell is None:
            cell = self.flow[caller_dialect, worker_dialect] = FlowCell()
            self.flow_to(worker_dialect)[caller_dialect] = cell
        return cell

    def access_reloaded(self, result: str) -> None:
        self.access_reloads[result] = self.access_reloads.get(result, 0) + 1

    def refuse_peer(self, mechanism: str, reason: str) -> None:
        """Count a connection that was rejected before it was open."""
        key = (mechanism, reason)
        self.peers_refused[key] = self.peers_refused.get(key, 0) + 1

    def unreported_outcome(self, outcome: Outcome) -> None:
        self.unreported_outcomes[outcome] = self.unreported_outcomes.get(outcome, 0) + 1

    def bad_message(self, dialect: str, reason: str) -> None:
        key = (dialect, reason)
        self.bad_messages[key] = self.bad_messages.get(key, 0) + 1

    def refuse_right(self, right: str, dialect: str) -> None:
        key = (right, dialect)
        self.rights_refused[key] = self.rights_refused.get(key, 0) + 1

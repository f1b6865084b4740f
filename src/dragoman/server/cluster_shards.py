"""Background jobs of a broker in a cluster: finds the layout of the logs, and begins to own shards.

The layout is read from the first log as soon as NATS is reached. A cluster that was never initialised stops the start
(`check_initialised`); if NATS cannot be reached then, the broker starts, and background jobs are refused until it can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cluster.broker_side import NO_LAYOUT, NOT_REACHED, ClusterSide
from dragoman.cluster.jetstream import ApiError, StreamState, read_stream, stream_info
from dragoman.cluster.layout import Layout, layout_of, log_subject, stream_name
from dragoman.cluster.log import Expected
from dragoman.cluster.log_io import JetStreamLog, LogIO
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.placement import Placement
from dragoman.cluster.replicas import Replicas
from dragoman.cluster.requests import Answer
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.shards import ShardSettings
from dragoman.cluster.store import ShardStore
from dragoman.core.broker import Broker
from dragoman.core.recipients import Effect, TimedRecipient
from dragoman.dialects.interface import BrokerIO

ASK_EVERY: Final = 2.0  # seconds between two questions for the layout
ASK_TIMEOUT: Final = 2.0
LOOK_EVERY: Final = 1.0  # seconds between two looks at the replicas of the logs, and at the clock of NATS
LOOK_TIMEOUT: Final = 1.0  # for the answer of a leader, after one of another replica
CLOCK_TOLERANCE: Final = 5.0  # seconds; a broker whose clock differs by more does not own shard 0
STREAM_NOT_FOUND: Final = 10059
MADE_AGAIN: Final = "the logs of the cluster were deleted and made again since this broker started; start it again"


def not_initialised(cluster: str) -> str:
    """Return the sentence about a cluster without logs."""
    return (
        f"cluster {cluster} has no logs for background jobs; make them once with "
        f"`dragoman cluster init --cluster nats://HOST --cluster-name {cluster}`"
    )


class ClusterShards(TimedRecipient):
    """The shards of a member. `client` belongs to `side`."""

    def __init__(
        self, broker: Broker, io: BrokerIO, side: ClusterSide, client: NatsClient, store: ShardStore, now: float
    ) -> None:
        self._io = io
        self.placement = Placement(broker, store)
        self.layout: Layout | None = None
        self.problem = NO_LAYOUT
        self._broker = broker
        self._side = side
        self._client = client
        self._store = store
        self.wall_offset: Callable[[], float] | None = None  # of the wall clock to the broker's clock
        self.replicas = Replicas(now)
        self.when_outage: Callable[[str, float], None] = lambda reason, now: None  # logs cannot be written from now on
        self._ask_at = now
        self._looks = 0
        self._lack = ""  # as it was logged
        broker.dispatch.marks_shards = True
        store.homes = broker.dispatch.home_bytes
        store.outage = self._outage
        store.holder_of = side.hub.holder_of

    @property
    def keeper(self) -> ShardKeeper | None:
        return self._side.keeper

    def _outage(self) -> str | None:
        if not self._side.is_connected:
            return NOT_REACHED
        return self._side.membership.refusal() or self.problem or self.replicas.outage() or None

    # ---------------------------------------------------------------- calls from the runner

    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("it has no callers and no workers")

    def tick(self, now: float) -> float:
        if now >= self._ask_at and self._side.is_connected:
            self._ask_at = now + (ASK_EVERY if self.layout is None else LOOK_EVERY)
            self._ask(now)
        if not self._side.is_connected:
            self.replicas.away(now)
        return self._ask_at if self._side.is_connected else now + (0.1 if self.layout is None else 1.0)

    def _ask(self, now: float) -> None:
        """Look at the first log, and at all others in turn. Answers of replicas that know of no leader may be wrong:
        wait for another one after them."""
        self._looks += 1
        shards = 1 if self.layout is None else self.layout.shards
        number = 0 if self._looks % 2 else self._looks // 2 % shards
        asked = stream_info(stream_name(self._side.settings.cluster, number))
        others: list[StreamState] = []  # answers of replicas that know of no leader

        def answered(answer: Answer, then: float) -> bool:
            found = read_stream(answer)
            if not number and not others:
                self._answered(found, then)
            if isinstance(found, StreamState) and found.time:
                self._compare_clocks(found.time, 0.5 * (now + then), then)
            if self.layout is None or self.layout.replicas == 1:
                return False
            if isinstance(found, StreamState) and not found.leader:
                others.append(found)
                return True
            self._note_replicas(found, others, then)
            return False

        timeout = ASK_TIMEOUT if self.layout is None else LOOK_TIMEOUT
        self._client.request(asked.subject, asked.payload, asked.headers, answered, timeout, now)

    def _note_replicas(self, found: StreamState | ApiError, others: list[StreamState], now: float) -> None:
        """Take what a look has found. `others`: answers that came before, of replicas that know of no leader."""
        info = self._client.info
        if info is None:
            return
        if isinstance(found, StreamState):
            self.replicas.led(found, info.server_name, now)
        elif others:
            self.replicas.unled(others[-1], info.server_name, now)
        else:
            self.replicas.unanswered(now)
        lack, before, self._lack = self.replicas.lack(), self._lack, self.replicas.lack()
        if lack and lack != before:
            self._io.remark("nats replicas away", level="warning", reason=lack)
        elif before and not lack:
            self._io.remark("nats replicas complete")
        outage = self.replicas.outage()
        if outage and lack != before:
            self.when_outage(outage, now)

    def _answered(self, found: StreamState | ApiError, now: float) -> None:
        problem = layout_problem(self._side.settings.cluster, found)
        if self.layout is not None:
            if isinstance(problem, Layout):
                self._compare_layouts(self.layout, problem)
            return
        if isinstance(problem, str):
            self.problem = problem
            return
        self.problem = ""
        self.layout = problem
        self._begin(problem, now)

    def _compare_layouts(self, own: Layout, found: Layout) -> None:
        """Notice that the logs were deleted and made again while this broker runs: it has those of before."""
        before, self.problem = self.problem, "" if found.identity == own.identity else MADE_AGAIN
        if self.problem and not before:
            facts = {"identity": own.identity, "found": found.identity, "advice": self.problem}
            self._side.hub.remark("cluster layout replaced", "error", shard=0, **facts)

    def _compare_clocks(self, time: int, at: float, now: float) -> None:
        """Compare the wall clock with that of the NATS server, which was `time` (nanoseconds) at the moment `at`."""
        if self.wall_offset is None or self.keeper is None:
            return
        shards = self.keeper.shards
        self._side.gossip.clock = round(at + self.wall_offset() - time * 1e-9, 1)
        is_wrong = abs(self._side.gossip.clock) > CLOCK_TOLERANCE
        if is_wrong and not shards.has_wrong_clock:
            advice = "synchronise both; until then this broker does not own shard 0, which runs the schedules"
            self._side.hub.remark("clock differs", "warning", shard=0, seconds=self._side.gossip.clock, note=advice)
        if is_wrong is not shards.has_wrong_clock:
            shards.has_wrong_clock = is_wrong
            shards.tick(now)

    def _begin(self, layout: Layout, now: float) -> None:
        settings = self._side.settings
        logs: list[LogIO] = [
            JetStreamLog(
                self._client,
                stream_name(settings.cluster, shard),
                log_subject(settings.cluster, shard),
                self.replicas.refused,
            )
            for shard in range(layout.shards)
        ]
        keeper = ShardKeeper(
            self._broker,
            self._side.hub,
            self._store,
            settings.cluster,
            settings.release,
            Expected(layout.identity, layout.replicas),
            logs,
            _times(settings.adopt_after),
            now,
        )
        self.placement.keeper = keeper
        self.placement.durability = layout.durability
        self._side.keep_shards(keeper, now)


def _times(adopt_after: float) -> ShardSettings:
    most = ShardSettings()
    return ShardSettings(
        adopt_after=adopt_after,
        turn=min(most.turn, 0.1 * adopt_after),
        silent_after=min(most.silent_after, 0.5 * adopt_after),
        again_after=min(most.again_after, 0.2 * adopt_after),
        balance_every=min(most.balance_every, adopt_after),
    )


def layout_problem(cluster: str, found: StreamState | ApiError) -> Layout | str:
    """Return the layout; or the reason why there is none."""
    if isinstance(found, ApiError):
        if found.err_code == STREAM_NOT_FOUND:
            return not_initialised(cluster)
        return f"JetStream does not answer: {found.description}"
    layout = layout_of(found)
    return layout if layout is not None else f"stream {found.name} was not made by `dragoman cluster init`"

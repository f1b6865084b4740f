"""Decides which other brokers belong to the cluster of this one, and from when on this one takes part in it.

A *stranger* has the name of this cluster, and logs with another identity (`layout.py`): those of an earlier
`cluster init`, or of another cluster that has the same name by mistake. Its gossip and its packets are ignored. A
broker that does not know the layout yet is no stranger: it takes calls.

A broker listens before it sends anything. If it hears an older run of a broker with its own name (a *namesake*), it
stays out until that is silent: two brokers of one name would take each other's place at all others. A broker that was
killed and is started again hears nothing of its earlier run, and does not wait.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.gossip import Gossip
from dragoman.core.infinity import inf
from dragoman.dialects.interface import BrokerIO

LISTEN_FIRST: Final = 1.3  # seconds before the first gossip: longer than the others are silent
NAMESAKE_FOR: Final = 3.0  # seconds after the last gossip of an older run of a broker with this name
REMIND_EVERY: Final = 600.0  # seconds between two log lines about the same namesake
STRANGER_FOR: Final = 10.0  # seconds after the last message of a stranger
MAX_STRANGERS: Final = 64
LONGEST_IDENTITY: Final = 64  # characters that are kept
ADVICE: Final = "Stop it; start it again, if `cluster init` was run since; or choose another --cluster-name for it"


@final
class Stranger:
    """One run of a broker of another cluster with the same name."""

    __slots__ = ("broker", "heard", "identity", "incarnation")

    def __init__(self, broker: str, incarnation: str, identity: str) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.identity = identity  # of its layout
        self.heard = -inf


@final
class Membership:
    """The membership of one broker. `incarnation`: its run."""

    def __init__(self, io: BrokerIO, cluster: str, broker: str, incarnation: str, now: float) -> None:
        self.identity = ""  # of the layout of the cluster; empty: not known yet
        self.takes_part_at = inf
        self._io = io
        self._cluster = cluster
        self._broker = broker
        self._incarnation = incarnation
        self._started = now
        self._strangers: dict[tuple[str, str], Stranger] = {}
        self._takes_part = False
        self._has_namesake = False
        self._reminded_at = -inf

    # ---------------------------------------------------------------- for gossip

    def uptime(self, now: float) -> int:
        """Return the seconds since the start of this broker, for its gossip."""
        return round(now - self._started)

    def sent_at(self, gossip: Gossip) -> float:
        """Return the earliest time at which gossip of this run was sent."""
        return self._started + gossip.uptime - 0.5  # it is rounded

    # ---------------------------------------------------------------- from the cluster's side

    def connected(self, now: float) -> None:
        """NATS can be reached: listen, if nothing was sent yet. The time without it does not count as silence."""
        if self._has_namesake:
            self.takes_part_at = max(self.takes_part_at, now + NAMESAKE_FOR)
        elif self.takes_part_at == inf:
            self.takes_part_at = now + LISTEN_FIRST

    def is_stranger(self, broker: str, incarnation: str, identity: str, now: float) -> bool:
        """True if a message is to be ignored. `identity`: of its sender's layout; empty: not known there."""
        if not self.differs(identity):
            return False
        found = self._strangers.get((broker, incarnation))
        if found is None:
            self._forget_silent(now)
        if found is None and len(self._strangers) < MAX_STRANGERS:
            found = self._strangers[broker, incarnation] = Stranger(broker, incarnation, identity[:LONGEST_IDENTITY])
        if found is not None:
            if found.heard == -inf:
                self._io.log_limited(
                    "broker ignored",
                    cluster=self._cluster,
                    broker=broker,
                    identity=found.identity,
                    expected=self.identity,
                    advice=ADVICE,
                )
            found.heard = now
        return True

    def differs(self, identity: str) -> bool:
        """True if this is the identity of another layout."""
        return bool(self.identity) and bool(identity) and identity != self.identity

    def hear_namesake(self, gossip: Gossip, now: float) -> bool:
        """Take the gossip of another run of a broker with this name. True: it is older, and this one stays out."""
        if (gossip.uptime, self._incarnation) <= (self.uptime(now), gossip.incarnation):
            return False
        self._has_namesake = True
        self.takes_part_at = now + NAMESAKE_FOR
        if now >= self._reminded_at + REMIND_EVERY:
            self._reminded_at = now
            advice = "give each broker of the cluster its own --broker-name, or stop the other one"
            self._io.remark("broker name taken", level="error", broker=self._broker, advice=advice)
        return True

    def layout_known(self, identity: str, now: float) -> None:
        """Take the identity of the layout. A namesake that was heard before may be a stranger."""
        self.identity = identity
        if self._has_namesake:
            self.takes_part_at = now + LISTEN_FIRST

    def tick(self, now: float) -> None:
        """Note that this broker takes part, and that a namesake is gone. Call it while NATS is reached."""
        self._takes_part = now >= self.takes_part_at
        if self._has_namesake and now >= self.takes_part_at:
            self._has_namesake = False
            self._reminded_at = -inf
            self._io.remark("broker name freed", broker=self._broker)

    # ---------------------------------------------------------------- for views

    def strangers(self, now: float) -> list[Stranger]:
        """Return the strangers that are heard."""
        self._forget_silent(now)
        return [self._strangers[run] for run in sorted(self._strangers)]

    def _forget_silent(self, now: float) -> None:
        self._strangers = {run: each for run, each in self._strangers.items() if now < each.heard + STRANGER_FOR}

    def refusal(self) -> str:
        """Return the reason why this broker takes no part in the cluster; empty: it does."""
        if not self._has_namesake:
            return "" if self._takes_part else "the broker listens for others of its cluster; wait two seconds"
        return (
            f"another broker of cluster {self._cluster} is named {self._broker} and was started before this one: this "
            "one takes no part in the cluster. Start it with its own --broker-name; or stop the other one, then this "
            "one joins within seconds"
        )

    def problems(self, now: float) -> list[str]:
        """Return what is wrong with the members of the cluster, as sentences."""
        found = [self.refusal()] if self._has_namesake else []
        for each in self.strangers(now):
            found.append(
                f"broker {each.broker} is ignored: it has the name of this cluster, and logs with another identity "
                f"({each.identity}; here {self.identity}). {ADVICE}"
            )
        return found

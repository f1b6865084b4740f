"""The NATS servers that have the logs, as JetStream's answers about streams show them.

The leader of a stream says how long ago it has heard each other replica. One that it has not heard for `AWAY_AFTER` is
*away*: its server is dead, frozen or cut off, or runs without JetStream, which ends when its disk is full and must be
started again. A stream without a majority of its replicas accepts nothing.

Without a leader, each replica answers for itself, and one that is cut off answers, too. So such an answer counts only
if none of a leader has come, and if the same is found for `DOUBT` seconds: an election has no leader, either.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.jetstream import Replica, StreamState
from dragoman.core.infinity import inf

AWAY_AFTER: Final = 2.5  # seconds; a leader hears its replicas every second
DOUBT: Final = 3.0  # seconds without a leader; an election takes less, once its members are found
UNANSWERED: Final = 5.0  # seconds without any answer after which that is said
NAMELESS: Final = "Server name unknown"  # NATS says that of a server that was away since another one was started


@final
class Replicas:
    """The replicas of all logs, as one broker knows them."""

    def __init__(self, now: float) -> None:
        self._names: dict[str, str] = {}  # of servers, by their id
        self._away: dict[str, bool] = {}  # by name of each server that has a replica
        self._servers: dict[str, list[str]] = {}  # by stream, those that have it
        self._stopped: dict[str, None] = {}  # servers that can be reached, and whose JetStream does not answer
        self._full: dict[str, None] = {}  # servers that have refused a message for want of space
        self._leaders: dict[str, str] = {}  # by stream, the last one
        self._doubt: list[str] = []  # servers that were away at the last look, which found no leader
        self._doubt_since = inf
        self._answered_at = now
        self._is_silent = False

    # ---------------------------------------------------------------- from JetStream

    def led(self, found: StreamState, connected: str, now: float) -> None:
        """Take the answer of a leader. `connected`: name of the server that this broker is connected to."""
        self._doubt, self._doubt_since = [], inf
        self._answered_at, self._is_silent = now, False
        self._leaders[found.name] = found.leader
        away = [name for name, each in self._named(found) if not self._is_known(each)]
        self._learn(found, away, connected)

    def unled(self, found: StreamState, connected: str, now: float) -> None:
        """Take the answer of a replica that knows of no leader, if no leader has answered."""
        self._answered_at, self._is_silent = now, False
        away = [name for name, each in self._named(found) if not self._is_heard(each) and name != connected]
        if away != self._doubt:
            self._doubt, self._doubt_since = away, now
        if 2 * len(away) >= found.replicas and now >= self._doubt_since + DOUBT:
            self._learn(found, away, "")

    def unanswered(self, now: float) -> None:
        """Nothing has answered a look."""
        self._is_silent = now >= self._answered_at + UNANSWERED

    def away(self, now: float) -> None:
        """NATS cannot be reached."""
        self._answered_at, self._is_silent = now, False

    def refused(self, stream: str) -> None:
        """Note that the leader of a stream had no space for a message. It is no leader any more then."""
        leader = self._leaders.get(stream, "")
        if leader:
            self._full[leader] = None

    def _named(self, found: StreamState) -> list[tuple[str, Replica]]:
        """Return the replicas with their names, without the leader."""
        named = []
        for each in found.others:
            if each.id and not each.name.startswith(NAMELESS):
                self._names[each.id] = each.name
            named.append((self._names.get(each.id, each.name), each))
        return sorted(named, key=lambda entry: entry[0])

    @staticmethod
    def _is_known(replica: Replica) -> bool:
        """True if a leader has heard this replica lately. Since its election, it may not have heard it at all."""
        never = not replica.is_current and not replica.silence
        return not (replica.is_offline or never or replica.silence > AWAY_AFTER)

    @staticmethod
    def _is_heard(replica: Replica) -> bool:
        return replica.is_current or 0.0 < replica.silence <= AWAY_AFTER

    def _learn(self, found: StreamState, away: list[str], connected: str) -> None:
        names = sorted({name for name, _ in self._named(found)} | ({found.leader} if found.leader else set()))
        self._servers[found.name] = names
        for name in names:
            self._away[name] = name in away
            if name not in away:
                self._stopped.pop(name, None)
                self._full.pop(name, None)
            elif name == connected:
                self._stopped[name] = None

    # ---------------------------------------------------------------- for views

    @property
    def lost(self) -> int:
        """Number of servers whose replicas are away."""
        servers = dict.fromkeys(name for names in self._servers.values() for name in names)
        return len([name for name in servers if self._away[name]])

    def outage(self) -> str:
        """Return the reason why logs cannot be written; empty: they can, as far as is known."""
        for names in self._servers.values():
            lost = [name for name in names if self._away[name]]
            if 2 * (len(names) - len(lost)) <= len(names):
                return f"NATS has no majority: {self._said(lost)}"
        return ""

    def lack(self) -> str:
        """Return a sentence about replicas that are away; empty: there are none."""
        outage = self.outage()
        if outage:
            return outage
        worst: list[str] = []
        of = 0
        for names in self._servers.values():
            lost = [name for name in names if self._away[name]]
            if len(lost) > len(worst):
                worst, of = lost, len(names)
        if worst:
            return f"replicas {of - len(worst)} of {of} ({self._said(worst)})"
        return "JetStream does not answer" if self._is_silent else ""

    def _said(self, lost: list[str]) -> str:
        said = [f"disk of {name} full" for name in lost if name in self._full]
        stopped = [name for name in lost if name in self._stopped and name not in self._full]
        if stopped:
            said.append(f"{', '.join(stopped)} without JetStream, look at its log and its disk")
        away = [name for name in lost if name not in self._full and name not in self._stopped]
        if away:
            said.append(f"{', '.join(away)} away")
        return "; ".join(said)

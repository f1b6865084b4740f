"""The model of JetStream: streams as logs, with elections, unknown answers, lagging replicas and stale leaders.

A stream has one truth, the entries that a majority has stored, and what its servers believe about it.

- The *leader* checks the expected sequence against what it has stored and proposed, and proposes. An entry is stored
  when a majority has it; then the leader acknowledges. Followers apply it later.
- A leader that is killed, frozen or cut from the majority is replaced after an election of one to four seconds. Of what
  it had proposed, a part at the beginning is stored by the new leader, without any acknowledgement.
- A leader that was frozen or cut does not know that it was replaced. It goes on to answer from what it had (*stale
  leader*) to those that reach it, and never acknowledges an append, until it hears of the new one or gives up.
- Shortly after an election the check of the expected sequence may be missed (`leaks`, nats-server #8469): an append
  that does not fit is stored, also a second copy.
- DIRECT.GET is answered by any replica that is reached, from what it has applied.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.nats_model import NatsModel, Server

API = "$JS.API."
ELECTION = (1.0, 4.0)  # seconds
LOST_QUORUM = 10.0  # seconds after which a leader without a majority gives up, as nats-server does
LEAK_WINDOW = 1.5  # seconds after an election


@dataclass(frozen=True, slots=True)
class Packet:
    """A message on its way."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes


@dataclass(slots=True)
class Entry:
    subject: str
    headers: bytes
    payload: bytes
    time: float


@dataclass(slots=True)
class Proposal:
    entry: Entry
    reply: str
    term: int


class Stream:
    """A stream and what its servers know of it."""

    def __init__(self, model: NatsModel, name: str, config: dict[str, Any]) -> None:
        self.model = model
        self.name = name
        self.config = config
        self.subject: str = config["subjects"][0]
        count = config.get("num_replicas", 1)
        self.replicas = model.servers[:count]
        self.entries: dict[int, Entry] = {}
        self.first = 1
        self.last = 0
        self.term = 1
        self.leader: Server | None = self.replicas[0]
        self.applied = {each.index: 0 for each in self.replicas}
        self.stale: dict[int, tuple[int, int]] = {}  # servers that believe to lead: last sequence, term
        self.proposals: list[Proposal] = []
        self.elected_at = float("-inf")
        self.leaked = 0
        self._is_electing = False

    # ---------------------------------------------------------------- leaders

    def majority_of(self, server: Server) -> list[Server]:
        """The replicas that a server reaches, itself included; empty if they are no majority."""
        reached = [each for each in self.replicas if self.model.is_reachable(server, each)]
        return reached if 2 * len(reached) > len(self.replicas) else []

    def look(self) -> None:
        """Check the leader after a fault or its end, and elect another one if it has no majority any more."""
        leader = self.leader
        if leader is not None and not self.majority_of(leader):
            if leader.is_up:
                self.stale[leader.index] = (self.last, self.term)
                self.model.world.after(LOST_QUORUM, self._give_up, leader, self.term)
            self.leader = None
        if self.leader is None and not self._is_electing:
            self._is_electing = True
            world = self.model.world
            world.after(round(world.random.uniform(*ELECTION), 3), self._elect)
        for index in list(self.stale):
            if not self.model.servers[index].is_up:
                del self.stale[index]
        for server in self.replicas:
            if server.is_up and not server.is_frozen:
                self.model.world.after(0.02, self._catch_up, server)

    def _elect(self) -> None:
        self._is_electing = False
        world = self.model.world
        able = [each for each in self.replicas if self.majority_of(each)]
        if not able:
            self.look()
            return
        kept = world.random.randint(0, len(self.proposals))
        for proposal in self.proposals[:kept]:
            self._store(proposal.entry)
        self.proposals.clear()
        self.term += 1
        self.leader = world.random.choice(able)
        self.elected_at = world.now
        self.applied[self.leader.index] = self.last
        world.note(self.name, f"leader {self.leader.name}, term {self.term}, {kept} kept")
        self._step_down()

    def _step_down(self) -> None:
        """Let servers that believe to lead, and hear of the new leader, step down after a moment."""
        for index in list(self.stale):
            server = self.model.servers[index]
            if self.leader is not None and self.model.is_reachable(server, self.leader):
                self.model.world.after(self.model.world.random.uniform(0.05, 0.8), self._forget_stale, index)

    def _give_up(self, server: Server, term: int) -> None:
        """A leader that has had no majority for a while is none, also for itself; a frozen one notices it later."""
        if self.stale.get(server.index, (0, 0))[1] == term:
            if server.is_frozen:
                self.model.world.after(1.0, self._give_up, server, term)
            else:
                del self.stale[server.index]

    def _forget_stale(self, index: int) -> None:
        server = self.model.servers[index]
        if self.leader is not None and self.model.is_reachable(server, self.leader):
            self.stale.pop(index, None)

    def _catch_up(self, server: Server) -> None:
        leader = self.leader
        if leader is not None and self.model.is_reachable(server, leader):
            self.applied[server.index] = max(
                self.applied[server.index], self.last - self.model.world.random.randint(0, 2)
            )
            if self.applied[server.index] < self.last:
                self.model.world.after(0.01, self._catch_up, server)
            self._step_down()

    def leader_for(self, server: Server) -> tuple[Server, bool] | None:
        """The leader that requests at a server reach, and whether it is stale."""
        if self.leader is not None and self.model.is_reachable(server, self.leader):
            return self.leader, False
        for index in self.stale:
            other = self.model.servers[index]
            if self.model.is_reachable(server, other):
                return other, True
        return None

    # ---------------------------------------------------------------- entries

    def append(self, leader: Server, is_stale: bool, packet: Packet) -> None:
        expected = _header(packet.headers, b"Nats-Expected-Last-Sequence")
        world = self.model.world
        if is_stale:
            last, _ = self.stale[leader.index]
            if expected is not None and expected != last:
                self._refuse(leader, packet.reply, last)
            return  # proposed, and never stored
        leaks = world.now - self.elected_at < LEAK_WINDOW and world.chance(0.3)
        if expected is not None and expected != self.last + len(self.proposals):
            if not leaks:
                self._refuse(leader, packet.reply, self.last)
                return
            self.leaked += 1
            world.note(self.name, "leak")
        entry = Entry(packet.subject, packet.headers, packet.payload, world.now + leader.clock)
        self.proposals.append(Proposal(entry, packet.reply, self.term))
        world.after(world.random.randint(1, 6) / 1000, self._commit, leader, self.term)

    def _refuse(self, leader: Server, reply: str, last: int) -> None:
        error = {"code": 400, "err_code": 10071, "description": f"wrong last sequence: {last}"}
        self.answer(leader, reply, {"error": error, "stream": self.name, "seq": 0})

    def _commit(self, leader: Server, term: int) -> None:
        """Store the first proposal, if its leader still has a majority."""
        if self.term != term or self.leader is not leader or not self.proposals:
            return
        followers = self.majority_of(leader)
        if not followers:
            return
        proposal = self.proposals.pop(0)
        self._store(proposal.entry)
        self.applied[leader.index] = self.last
        for server in followers:
            if server is not leader:
                self.model.world.after(self.model.world.random.randint(1, 15) / 1000, self._catch_up, server)
        self.answer(leader, proposal.reply, {"stream": self.name, "seq": self.last})

    def _store(self, entry: Entry) -> None:
        self.last += 1
        self.entries[self.last] = entry

    def answer(self, server: Server, reply: str, body: dict[str, Any]) -> None:
        if reply:
            self.model.logs.send(server, reply, b"", json.dumps(body).encode())

    # ---------------------------------------------------------------- requests

    def info(self, last: int) -> dict[str, Any]:
        kept = [sequence for sequence in self.entries if sequence <= last]
        return {
            "config": {**self.config, "allow_direct": True, "deny_delete": True},
            "state": {"messages": len(kept), "bytes": 0, "first_seq": self.first, "last_seq": last},
            "cluster": {"leader": self.leader.name if self.leader is not None else ""},
        }

    def message(self, sequence: int, last: int) -> dict[str, Any]:
        entry = self.entries.get(sequence) if sequence <= last else None
        if entry is None:
            return {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        data = base64.b64encode(entry.payload).decode()
        found = {"subject": entry.subject, "seq": sequence, "data": data, "time": stamp(entry.time)}
        return {"message": found}

    def direct(self, server: Server, request: dict[str, Any], reply: str) -> None:
        """Answer a DIRECT.GET from what a replica has applied."""
        send, last, size = self.model.logs.send, 0, 0
        known = self.applied[server.index]
        found = [sequence for sequence in sorted(self.entries) if request["seq"] <= sequence <= known]
        if not found:
            send(server, reply, b"NATS/1.0 404 Message Not Found\r\n\r\n", b"")
            return
        for index, sequence in enumerate(found[: request["batch"]]):
            entry = self.entries[sequence]
            pending = len(found) - index - 1
            fields = [
                f"Nats-Stream: {self.name}", f"Nats-Subject: {entry.subject}", f"Nats-Sequence: {sequence}",
                f"Nats-Time-Stamp: {stamp(entry.time)}", f"Nats-Num-Pending: {pending}", f"Nats-Last-Sequence: {last}",
            ]  # fmt: skip
            send(server, reply, ("NATS/1.0\r\n" + "\r\n".join(fields) + "\r\n\r\n").encode(), entry.payload)
            last = sequence
            size += len(entry.payload)
            if size >= request.get("max_bytes", 1 << 30):
                break
        end = f"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: {last}\r\n\r\n"
        send(server, reply, end.encode(), b"")

    def purge(self, first_kept: int) -> int:
        gone = [sequence for sequence in self.entries if sequence < first_kept]
        for sequence in gone:
            del self.entries[sequence]
        self.first = max(self.first, first_kept)
        return len(gone)


class Logs:
    """All streams of the model."""

    def __init__(self, model: NatsModel) -> None:
        self.model = model
        self.streams: dict[str, Stream] = {}

    def create(self, name: str, subject: str, replicas: int, metadata: dict[str, str]) -> Stream:
        """Create a stream, as `cluster init` does."""
        config = {"name": name, "subjects": [subject], "num_replicas": replicas, "metadata": metadata}
        self.streams[name] = Stream(self.model, name, config)
        return self.streams[name]

    def server_changed(self) -> None:
        for stream in self.streams.values():
            stream.look()

    def send(self, server: Server, subject: str, headers: bytes, payload: bytes) -> None:
        """Publish an answer at the server that made it."""
        server.act(lambda: server.publish(Packet(subject, "", headers, payload), None, None))

    def takes(self, server: Server, packet: Packet) -> bool:
        """Take a message that is for JetStream."""
        if packet.subject.startswith(API):
            self._request(server, packet)
            return True
        stream = next((each for each in self.streams.values() if each.subject == packet.subject), None)
        if stream is None:
            return False
        found = stream.leader_for(server)
        if found is None:
            if self.model.world.chance(0.5) and packet.reply:
                self.send(server, packet.reply, b"NATS/1.0 503\r\n\r\n", b"")
            return True
        leader, _ = found
        self._at(server, leader, lambda: self._append(stream, leader, packet))
        return True

    def _append(self, stream: Stream, leader: Server, packet: Packet) -> None:
        """Append at a server, if it is or believes to be the leader when the message arrives there."""
        if stream.leader is leader:
            stream.append(leader, False, packet)
        elif leader.index in stream.stale:
            stream.append(leader, True, packet)

    def _at(self, server: Server, other: Server, call: Callable[[], None]) -> None:
        if other is server:
            call()
        else:
            self.model.route(server, other, call)

    def _request(self, server: Server, packet: Packet) -> None:
        verb, _, name = packet.subject.removeprefix(API).rpartition(".")
        request = json.loads(packet.payload or b"{}")
        stream = self.streams.get(name)
        if stream is None:
            missing = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
            self.send(server, packet.reply, b"", json.dumps(missing).encode())
            return
        if verb == "DIRECT.GET":
            able = [each for each in stream.replicas if self.model.is_reachable(server, each)]
            if able:
                chosen = self.model.world.random.choice(able)
                self._at(server, chosen, lambda: stream.direct(chosen, request, packet.reply))
            return
        found = stream.leader_for(server)
        if found is not None:
            leader, is_stale = found
            self._at(server, leader, lambda: self._answer(stream, leader, is_stale, verb, request, packet.reply))

    def _answer(
        self, stream: Stream, leader: Server, is_stale: bool, verb: str, request: dict[str, Any], reply: str
    ) -> None:
        last = stream.last
        if is_stale:
            if leader.index not in stream.stale:
                return
            last = stream.stale[leader.index][0]
        if verb == "STREAM.INFO":
            stream.answer(leader, reply, stream.info(last))
        elif verb == "STREAM.MSG.GET":
            stream.answer(leader, reply, stream.message(request["seq"], last))
        elif verb == "STREAM.PURGE" and not is_stale:
            stream.answer(leader, reply, {"success": True, "purged": stream.purge(request["seq"])})


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def _header(block: bytes, name: bytes) -> int | None:
    for line in block.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key == name:
            return int(value)
    return None

"""A model of NATS for simulations: servers with routes between them, clients that speak the real protocol, and loss.

Clients connect through simulated pipes and exchange the bytes of the protocol, so that our own carrier and client are
in the simulation. Nothing here is taken from them.

*Core.* Messages of one connection keep their order, also through a route. A message reaches the clients that are
subscribed where it arrives, when it arrives; whoever is not connected then, or behind a cut route, never gets it. A
request whose subject nobody listens to is answered 503. A new subscription is known at other servers a moment later.

*Faults.* A killed server cuts its connections and loses what is on its way to it. A frozen one does nothing, and then
everything. A cut route loses what is on it and what is sent until it heals; a flaky one loses single messages.

The log (JetStream) is in `nats_model_log.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from sim.nats_model_log import Logs, Packet
from sim.pipes import End, Weather, Wire
from sim.world import World

MAX_PAYLOAD = 1 << 20


def matches(pattern: list[str], subject: list[str]) -> bool:
    for index, token in enumerate(pattern):
        if token == ">":
            return len(subject) > index
        if index >= len(subject) or token not in ("*", subject[index]):
            return False
    return len(pattern) == len(subject)


@dataclass(slots=True)
class Subscription:
    sid: bytes
    pattern: list[str]
    queue: str
    since: float


class Client:
    """A connection at a server."""

    def __init__(self, server: Server, end: End, number: int) -> None:
        self.server = server
        self.number = number
        self.is_open = True
        self._end = end
        self._held = bytearray()
        self._echoes = True
        self.subscriptions: dict[bytes, Subscription] = {}
        end.on_bytes = self._arrived
        end.on_end = lambda problem: self.close()
        self.write(b"INFO " + json.dumps(server.info()).encode() + b" \r\n")

    def write(self, data: bytes) -> None:
        if self.is_open:
            self._end.write([data])

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._end.close()
            self.server.clients.pop(self.number, None)

    def freeze(self) -> None:
        self._end.is_frozen = True

    def thaw(self) -> None:
        self._end.thaw()

    def deliver(self, packet: Packet, sid: bytes) -> None:
        words = [packet.subject.encode(), sid]
        if packet.reply:
            words.append(packet.reply.encode())
        body = packet.headers + packet.payload
        if packet.headers:
            line = b"HMSG " + b" ".join(words) + b" %d %d\r\n" % (len(packet.headers), len(body))
        else:
            line = b"MSG " + b" ".join(words) + b" %d\r\n" % len(body)
        self.write(line + body + b"\r\n")

    def _arrived(self, data: bytes) -> None:
        self._held += data
        while self.is_open and (end := self._held.find(b"\r\n")) >= 0:
            words = bytes(self._held[:end]).split()
            size = end + 2
            if words[0] in (b"PUB", b"HPUB"):
                body = int(words[-1])
                if len(self._held) < size + body + 2:
                    return
                payload = bytes(self._held[size : size + body])
                size += body + 2
                del self._held[:size]
                self._publish(words, payload)
            else:
                line = bytes(self._held[:end])
                del self._held[:size]
                self._line(words, line)

    def _publish(self, words: list[bytes], body: bytes) -> None:
        head = int(words[-2]) if words[0] == b"HPUB" else 0
        names = [each.decode() for each in words[1 : -2 if words[0] == b"HPUB" else -1]]
        packet = Packet(names[0], names[1] if names[1:] else "", body[:head], body[head:])
        self.server.publish(packet, self if not self._echoes else None, self)

    def _line(self, words: list[bytes], line: bytes) -> None:
        verb = words[0]
        if verb == b"PING":
            self.write(b"PONG\r\n")
        elif verb == b"SUB":
            queue = words[2].decode() if len(words) == 4 else ""
            pattern = words[1].decode().split(".")
            self.subscriptions[words[-1]] = Subscription(words[-1], pattern, queue, self.server.world.now)
        elif verb == b"UNSUB":
            self.subscriptions.pop(words[1], None)
        elif verb == b"CONNECT":
            self._echoes = json.loads(line.partition(b" ")[2])["echo"]


class Server:
    """One server of the cluster."""

    def __init__(self, model: NatsModel, index: int) -> None:
        self.model = model
        self.world = model.world
        self.index = index
        self.name = f"n{index + 1}"
        self.is_up = True
        self.is_frozen = False
        self.clock = 0.0  # seconds by which its clock is wrong
        self.clients: dict[int, Client] = {}
        self._numbers = 0
        self._wires: list[Wire] = []
        self._waiting: list[Callable[[], None]] = []  # what came while it was frozen

    def info(self) -> dict[str, object]:
        urls = [self.model.url(each) for each in self.model.servers if each.is_up]
        return {
            "server_id": self.name, "server_name": self.name, "version": "2.15.1", "headers": True,
            "max_payload": MAX_PAYLOAD, "jetstream": True, "connect_urls": urls,
        }  # fmt: skip

    def accept(self, wire: Wire) -> None:
        if not self.is_up:
            wire.cut()
            return
        self._numbers += 1
        number = self._numbers
        self._wires = [each for each in self._wires if each.is_whole]
        self._wires.append(wire)
        self.act(lambda: self._greet(wire, number))

    def _greet(self, wire: Wire, number: int) -> None:
        if not wire.is_cut:
            self.clients[number] = Client(self, wire.broker, number)

    def act(self, call: Callable[[], None]) -> None:
        """Do something now, or when the server is no longer frozen; never if it is down."""
        if self.is_frozen:
            self._waiting.append(call)
        elif self.is_up:
            call()

    # ---------------------------------------------------------------- messages

    def publish(self, packet: Packet, silent: Client | None, publisher: Client | None) -> None:
        """Take a message of a client or of the log. `silent`: the client that does not get it back."""
        if self.model.logs.takes(self, packet):
            return
        reached = self._deliver_here(packet, silent)
        for other in self.model.servers:
            if other is not self and self.model.has_interest(other, packet.subject, self.world.now):
                reached = True
                self.model.route(self, other, lambda other=other: other.arrived(packet))  # type: ignore[misc]
        if not reached and packet.reply and publisher is not None:
            status = b"NATS/1.0 503\r\nNats-Subject: " + packet.subject.encode() + b"\r\n\r\n"
            self._deliver_here(Packet(packet.reply, "", status, b""), None)

    def arrived(self, packet: Packet) -> None:
        """Take a message that came over a route."""
        self._deliver_here(packet, None)

    def _deliver_here(self, packet: Packet, silent: Client | None) -> bool:
        subject = packet.subject.split(".")
        groups: dict[str, list[tuple[Client, bytes]]] = {}
        reached = False
        for client in list(self.clients.values()):
            for each in list(client.subscriptions.values()):
                if client is silent or not matches(each.pattern, subject):
                    continue
                reached = True
                if each.queue:
                    groups.setdefault(each.queue, []).append((client, each.sid))
                else:
                    client.deliver(packet, each.sid)
        for members in groups.values():
            client, sid = self.world.random.choice(members)
            client.deliver(packet, sid)
        return reached

    # ---------------------------------------------------------------- faults

    def kill(self) -> None:
        if not self.is_up:
            return
        self.world.note(self.name, "killed")
        self.is_up = self.is_frozen = False
        self._waiting.clear()
        for client in list(self.clients.values()):
            client.is_open = False
        self.clients.clear()
        for wire in self._wires:
            wire.cut()
        self.model.logs.server_changed()

    def start(self) -> None:
        if not self.is_up:
            self.world.note(self.name, "started")
            self.is_up = True
            self.model.logs.server_changed()

    def freeze(self) -> None:
        if self.is_up and not self.is_frozen:
            self.world.note(self.name, "frozen")
            self.is_frozen = True
            for client in self.clients.values():
                client.freeze()
            self.model.logs.server_changed()

    def thaw(self) -> None:
        if not self.is_frozen:
            return
        self.world.note(self.name, "thawed")
        self.is_frozen = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self.act(call)
        for client in list(self.clients.values()):
            client.thaw()
        self.model.logs.server_changed()


@dataclass(slots=True)
class Route:
    """One direction between two servers."""

    is_cut: bool = False
    cuts: int = 0  # number of cuts so far: what was on its way before a cut is lost
    last_arrival: float = 0.0


class NatsModel:
    """A cluster of servers."""

    def __init__(self, world: World, weather: Weather, count: int = 3) -> None:
        self.world = world
        self.weather = weather
        self.flaky = 0.0  # probability that a message between two servers is lost: a route that broke for a moment
        self.vanished = 0
        self.servers = [Server(self, index) for index in range(count)]
        self._routes = {(a, b): Route() for a in range(count) for b in range(count) if a != b}
        self.logs = Logs(self)

    @staticmethod
    def url(server: Server) -> str:
        return f"10.0.0.{server.index + 1}:4222"

    def server_at(self, place: str) -> Server:
        return next(each for each in self.servers if self.url(each) == place)

    def dial(self, place: str, label: str) -> End | None:
        """Connect to a server. Returns the client's end of a new wire; None: nobody listens there."""
        server = self.server_at(place)
        if not server.is_up:
            return None
        wire = Wire(self.world, self.weather, label)
        when = self.world.now + self.weather.latency(self.world)
        wire.actor.hold_until(when)
        self.world.after(when - self.world.now, server.accept, wire)
        return wire.actor

    def has_interest(self, server: Server, subject: str, now: float) -> bool:
        """True if other servers know that this one has a subscriber, and reach it."""
        if not server.is_up:
            return False
        tokens = subject.split(".")
        known = now - 0.004
        return any(
            each.since <= known and matches(each.pattern, tokens)
            for client in server.clients.values()
            for each in client.subscriptions.values()
        )

    def route(self, sender: Server, receiver: Server, arrive: Callable[[], None]) -> None:
        """Let something happen at another server after the way there, in order, unless the route is cut."""
        route = self._routes[sender.index, receiver.index]
        if route.is_cut:
            return
        if self.flaky and self.world.chance(self.flaky):
            self.vanished += 1
            return
        cuts = route.cuts
        when = max(route.last_arrival, self.world.now + self.world.random.randint(1, 4) / 1000)
        when += self.world.random.choice((0.0, 0.0, 0.001))  # a burst takes a while
        route.last_arrival = when

        def arrives() -> None:
            if route.cuts == cuts and not route.is_cut:
                receiver.act(arrive)

        self.world.after(when - self.world.now, arrives)

    def is_reachable(self, a: Server, b: Server) -> bool:
        """True if both run, and messages pass between them in both directions."""
        if not all(each.is_up and not each.is_frozen for each in (a, b)):
            return False
        return a is b or not (self._routes[a.index, b.index].is_cut or self._routes[b.index, a.index].is_cut)

    def cut_route(self, a: Server, b: Server, *, one_way: bool = False) -> None:
        self.world.note(a.name, f"route to {b.name} cut{' one way' if one_way else ''}")
        for pair in ((a.index, b.index), (b.index, a.index))[: 1 if one_way else 2]:
            self._routes[pair].is_cut = True
            self._routes[pair].cuts += 1
        self.logs.server_changed()

    def heal_routes(self) -> None:
        for route in self._routes.values():
            route.is_cut = False
        self.logs.server_changed()

    def heal(self) -> None:
        """End all faults of servers."""
        self.flaky = 0.0
        self.heal_routes()
        for server in self.servers:
            server.thaw()
            server.start()

"""Scenarios of access from a seed: principals whose rights come and go while their workers and callers are at work.

Workers and callers of three dialects belong to four principals with rights over three services. At random steps a
principal gets other rights or is removed, connections are cut, and attackers name ids and tokens of others. In half of
the worlds the peers of ZeroMQ dialects prove themselves by CURVE; in the others, and in MemoDB, the scenario says who
they are. Everything runs on the pairs' world: real broker sides and carriers, no sockets, and a clock that only the
scenario moves.

Rules, checked after every step:

R173, R174  no job is given to a worker whose principal may not work for its service.
R175        with CURVE, no connection opens whose key is not in the table, also if it is removed in the handshake.
R177        no outcome reaches a principal that did not submit the job, and no forged result reaches anybody.
I14         at the end, with all rights back, every service is served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.location import AccessPlaces
from dragoman.access.principal_file import PrincipalEntry
from dragoman.access.table import AccessTable
from dragoman.core.rights import ALL_RIGHTS, NO_LIMITS, WORK, Principal, Rights
from dragoman.server.access_control import AccessControl
from dragoman.server.authentication import Admitted, Authentication, AuthMechanism, ListenerAuth
from pairs.world import Connection, World
from sim.access_actors import CALLERS, NATIVE, SERVER, WORKERS, AccessCaller, AccessWorker, dealer, key_of

NAMES = ("ann", "bob", "eve", "gus")
SERVICES = ("crop", "mail", "resize")
STEPS = 120
FORGED = b"forged"


@dataclass
class Report:
    """Counts of what happened in a run."""

    seed: int
    hits: Counter[str] = field(default_factory=Counter)


class Scenario:
    def __init__(self, seed: int, use_clock: Callable[[Callable[[], float]], None]) -> None:
        """`use_clock` replaces the clock of the server, which a reload reads."""
        self.random = Random(f"access {seed}")
        self.report = Report(seed)
        self.world = World()
        use_clock(lambda: self.world.now)
        authentication = Authentication(self.world.broker.principals, lambda: 0.0)
        connections = self.world.runner.connections
        self.control = AccessControl(self.world.broker, connections, authentication, AccessPlaces(), None, lambda: ())
        self.has_curve = self.random.random() < 0.5
        if self.has_curve:
            self.world.curve = ListenerAuth(
                authentication, AuthMechanism.CURVE, verifies_certificates=False, is_open=False
            )
        self.rights = {name: self._some_rights() for name in NAMES}
        self.workers: list[AccessWorker] = []
        self.callers: list[AccessCaller] = []
        self.jobs = 0
        self._apply()

    def run(self) -> Report:
        steps = (
            (5, self._new_worker),
            (4, self._new_caller),
            (14, self._submit),
            (14, self._finish),
            (3, self._change_rights),
            (2, self._remove_principal),
            (3, self._cut),
            (6, self._forge),
            (3, self._repeat),
            (2, self._wait),
            (3, self._connect_removed),
        )
        weights, calls = [weight for weight, _ in steps], [call for _, call in steps]
        for _ in range(STEPS):
            self.random.choices(calls, weights)[0]()
            self._look()
        self._serve_all()
        return self.report

    # ---------------------------------------------------------------- rules

    def _look(self) -> None:
        """Read everything that has arrived, and check who got it."""
        self.world.runner.run_once()
        for worker in self.workers:
            for service in worker.read(self._owner_of):
                self._hit("jobs given")
                if not worker.principal.may(WORK, service):
                    raise AssertionError(f"R174: {worker} of {worker.principal.name} was given a job of {service}")
        for caller in self.callers:
            for result in caller.read():
                if result not in caller.expected:
                    raise AssertionError(f"R177: {caller} of {caller.principal.name} got {result!r}")
                self._hit("results delivered")
        self.workers = [each for each in self.workers if not each.is_gone]
        self.callers = [each for each in self.callers if not each.is_gone]

    def _owner_of(self, name: bytes) -> str:
        """Return the principal of the job that a worker has under this token, or in MemoDB under the worker's id."""
        for worker in self.world.broker.worker_registry.workers.values():
            for token, attempt in worker.running.items():
                if name == token or name == getattr(worker.remote, "id", None):
                    return attempt.job.owner.principal.name
        return "nobody"

    # ---------------------------------------------------------------- steps

    def _new_worker(self) -> None:
        kind = self.random.choice(WORKERS)
        principal = self._principal()
        if principal is not None:
            services = self.random.sample(SERVICES, self.random.randint(1, 2))
            self.workers.append(self._connected(principal, lambda: kind(self.world, principal, services)))

    def _new_caller(self) -> None:
        kind = self.random.choice(CALLERS)
        principal = self._principal()
        if principal is not None:
            self.callers.append(self._connected(principal, lambda: kind(self.world, principal)))

    def _submit(self) -> None:
        callers = [each for each in self.callers if not each.is_gone]
        if callers:
            self.jobs += 1
            service = self.random.choice(SERVICES)
            self.random.choice(callers).submit(service, b"%s job %d" % (service.encode(), self.jobs))

    def _finish(self) -> None:
        busy = [each for each in self.workers if each.is_busy and not each.is_gone]
        if busy:
            self.random.choice(busy).finish()

    def _change_rights(self) -> None:
        self.rights[self.random.choice(NAMES)] = self._some_rights()
        self._apply()

    def _remove_principal(self) -> None:
        name = self.random.choice(NAMES)
        if self.rights.pop(name, None) is None:
            self.rights[name] = self._some_rights()
        self._apply()

    def _cut(self) -> None:
        present = [*self.workers, *self.callers]
        if present:
            self.random.choice(present).cut()

    def _forge(self) -> None:
        """Send a result in the name of a busy worker of another principal."""
        victims = [each for each in self.workers if each.is_busy]
        principal = self._principal()
        if victims and principal is not None:
            victim = self.random.choice(victims)
            if victim.principal is not principal:
                self._connected(principal, lambda: victim.forge(self.world, principal, FORGED))
                self._hit("results forged")

    def _repeat(self) -> None:
        """Repeat the last request of a caller whose connection is cut, as another principal."""
        victims = [each for each in self.callers if each.can_be_repeated]
        principal = self._principal()
        if victims and principal is not None:
            victim = self.random.choice(victims)
            if victim.principal is not principal:
                victim.cut()
                thief = self._connected(principal, lambda: victim.repeated_by(self.world, principal))
                self.callers.append(thief)
                self._hit("requests repeated")

    def _connect_removed(self) -> None:
        """Connect with the key of a principal that is not in the table, or is removed before the handshake is done."""
        if not self.has_curve:
            return
        name = self.random.choice(NAMES)
        if name not in self.rights:
            steps = 0
            self._hit("strangers refused")
        else:
            steps = self.random.randint(1, 3)
            self._hit("removed in the handshake")
        carrier = dealer(self.world, self.world.broker.principals.named(name))
        connection = SlowConnection(self.world, self.world.listener(NATIVE, "both"), carrier)
        for _ in range(steps):
            connection.step()
        rights = self.rights.pop(name, None)
        self._apply()
        for _ in range(9):
            connection.step()
        if connection._peer.is_open and not connection.is_cut:
            raise AssertionError(f"R175: a connection with the key of {name} is open after {steps} steps")
        assert connection.is_cut
        if rights is not None:
            self.rights[name] = rights
            self._apply()

    def _wait(self) -> None:
        self.world.wait(self.random.choice((0.1, 1.0, 6.0)))

    def _serve_all(self) -> None:
        """Give everybody all rights: a new worker serves each new job."""
        self.rights = dict.fromkeys(NAMES, ALL_RIGHTS)
        self._apply()
        for each in (*self.workers, *self.callers):
            each.cut()
        self._look()
        self.world.wait(700.0)  # leases and calls of lost connections end
        principal = self._principal()
        assert principal is not None
        worker = self._connected(principal, lambda: WORKERS[0](self.world, principal, list(SERVICES)))
        caller = self._connected(principal, lambda: CALLERS[0](self.world, principal))
        self.workers, self.callers = [worker], [caller]
        before = self.report.hits["results delivered"]
        for service in SERVICES:
            caller.submit(service, f"{service} last job".encode())
            self._look()
            while worker.is_busy:
                worker.finish()
                self._look()
        assert self.report.hits["results delivered"] == before + len(SERVICES), "I14: a service is not served"

    # ---------------------------------------------------------------- the table

    def _apply(self) -> None:
        """Use the present rights, as a reload does."""
        entries = [
            PrincipalEntry(name, f"{name}.toml", rights, NO_LIMITS, (_identity(name),))
            for name, rights in self.rights.items()
        ]
        authentication = self.control.authentication
        authentication.apply(AccessTable(entries), (SERVER,))
        authentication._curve = replace(authentication.curve_server, random=self.random.randbytes)
        self._hit("connections revoked", self.control._disconnect())
        self.world.runner.run_once()

    def _some_rights(self) -> Rights:
        return Rights(call=self._some_services(), work=self._some_services())

    def _some_services(self) -> list[str]:
        return self.random.choice((["*"], list(SERVICES[:2]), [self.random.choice(SERVICES)], []))

    def _principal(self) -> Principal | None:
        """A principal that can connect."""
        names = sorted(self.rights)
        return self.world.broker.principals.named(self.random.choice(names)) if names else None

    def _connected(self, principal: Principal, connect: Callable[[], Any]) -> Any:
        """Call `connect`; its connections belong to the principal."""
        self.world.admitted = Admitted(principal, _identity(principal.name))
        try:
            return connect()
        finally:
            self.world.admitted = None

    def _hit(self, what: str, times: int = 1) -> None:
        self.report.hits[what] += times


def _identity(name: str) -> Identity:
    return Identity(IdentityKind.CURVE, key_of(name)[0])


class SlowConnection(Connection):
    """A connection whose handshake goes on by `step`."""

    def _greet(self) -> None:
        pass

    def step(self) -> None:
        self.world.runner.run_once()
        self.live()
        self.world.runner.run_once()

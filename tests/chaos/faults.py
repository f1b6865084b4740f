"""Faults of a chaos campaign: one of a list every few seconds, each for some seconds."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from chaos.processes import NAMES, SERVERS, STEADY, Processes

KINDS = (
    "kill broker", "kill broker", "stop broker", "freeze broker", "cut broker", "hold broker", "hold broker one way",
    "kill server", "kill server", "freeze server", "cut server", "hold server", "hold server one way",
    "cut routes of server",
)  # fmt: skip
POWER = "cut power of all servers"


class Faults:
    """Breaks and mends, in a thread of its own. At most two brokers and one server are broken at the same time."""

    def __init__(
        self,
        processes: Processes,
        seed: int,
        every: tuple[float, float],
        lasts: tuple[float, float],
        kinds: Sequence[str] = KINDS,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.error: BaseException | None = None
        self.least = 0  # faults that happen before it ends
        self.most = 1 << 30
        self._processes = processes
        self._kinds = kinds
        self._random = random.Random(seed)
        self._every = every
        self._lasts = lasts
        self._ends: list[tuple[float, str, Callable[[], None]]] = []
        self._is_over = threading.Event()
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Mend everything that is broken, and wait until it runs. Raises what went wrong."""
        self._is_over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def total(self) -> int:
        return self.counts.total()

    def _run(self) -> None:
        try:
            due = time.monotonic() + self._random.uniform(*self._every)
            while not self._is_over.is_set() or self.total < self.least:
                now = time.monotonic()
                self._mend(now)
                if now >= due and self.total < self.most and self._break(now):
                    due = now + self._random.uniform(*self._every)
                self._is_over.wait(0.05) if not self._is_over.is_set() else time.sleep(0.05)
        except BaseException as error:
            self.error = error
        finally:
            try:
                self._mend(float("inf"))
                for broker in self._processes.brokers:
                    broker.wait()
            except BaseException as error:
                self.error = self.error or error

    def _mend(self, now: float) -> None:
        for each in [each for each in self._ends if each[0] <= now]:
            self._ends.remove(each)
            self.note(f"{each[1]} is mended")
            each[2]()

    def note(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._begin:7.2f} {text}")

    def _break(self, now: float) -> bool:
        kind = self._random.choice(self._kinds)
        broken = [name for _, name, _ in self._ends]
        names, most = (NAMES, 2) if "broker" in kind else (SERVERS, 1)
        if kind == POWER:
            return self._break_power(now, not any(name in SERVERS for name in broken))
        free = [name for name in names if name not in broken]
        if len(names) - len(free) >= most:
            return False
        name = self._random.choice(free)
        lasts = self._random.uniform(*self._lasts)
        self.note(f"{kind} {name} for {lasts:.1f} s")
        self.counts[kind] += 1
        self._ends.append((now + lasts, name, self._act(kind, name)))
        return True

    def _break_power(self, now: float, is_possible: bool) -> bool:
        if is_possible:
            self.note(POWER)
            self.counts[POWER] += 1
            self._processes.cut_power()
            self._ends.append((now + self._random.uniform(*self._lasts), SERVERS[0], self._processes.restore_power))
        return is_possible

    def _act(self, kind: str, name: str) -> Callable[[], None]:
        """Break something. Returns how it is mended."""
        wires = self._processes.wires
        verb, what = kind.split()[0], "server" if "server" in kind else "broker"
        if verb in ("cut", "hold"):
            if "routes" in kind:
                wires.cut(name, SERVERS)
            elif verb == "cut":
                wires.cut(name)
            elif kind.endswith("one way"):
                out = self._random.random() < 0.5
                wires.hold(name, out=out, into=not out)
            else:
                wires.hold(name)
            return lambda: wires.mend(name)
        if what == "server":
            server = self._processes.server(name)
            if verb == "freeze":
                server.freeze()
                return server.thaw
            server.kill()
            return lambda: server.start() and None
        return self._act_on_broker(verb, name)

    def _act_on_broker(self, verb: str, name: str) -> Callable[[], None]:
        broker = self._processes.broker(name)
        program = broker.running
        if verb == "freeze":
            program.stop()
            return program.go_on
        if verb == "kill":
            program.kill()
        else:
            program.signal(signal.SIGTERM)

        def start() -> None:
            program.ends(STEADY)
            broker.start()

        return start

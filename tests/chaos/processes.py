"""The processes of a chaos campaign: three NATS servers, three brokers, and workers of seven dialects."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.disks import Disk
from chaos.wires import LOOPBACK, Wires
from nats_servers import NatsCluster, NatsServer, free_ports, start_on_free_ports
from programs import Program, Programs, until

TESTS = Path(__file__).parents[1]
NAMES = ("eu1", "eu2", "eu3")
SERVERS = ("n1", "n2", "n3")
DIALECTS = ("native", "http", "majordomo", "memodb", "pingpong", "powerhose", "controller")
SOLITARY = ("powerhose", "controller")  # a worker of these has one address, because its broker connects to it
STEADY = 60.0  # seconds until everything runs
ADOPT_AFTER = 4.0


class WiredNats(NatsCluster):
    """Three servers whose routes are wires. None of them learns an address that goes round these."""

    def __init__(self, folder: Path, wires: Wires, places: Sequence[Path], jetstream: str) -> None:
        """`places`: of their data. `jetstream`: further settings of it."""
        ports = free_ports(6)
        self.servers: list[NatsServer] = []
        for index, name in enumerate(SERVERS):
            others = [other for other in range(3) if other != index]
            routes = ", ".join(
                f'"nats://{LOOPBACK}:{wires.open(name, SERVERS[other], ports[3 + other])}"' for other in others
            )
            place = f'listen: "{LOOPBACK}:{ports[3 + index]}", advertise: "{LOOPBACK}:1", no_advertise: true'
            own = [
                f'jetstream {{ store_dir: "{places[index]}", {jetstream} }}',
                f"cluster {{ name: test, {place}, routes: [{routes}] }}",
            ]
            self.servers.append(NatsServer(folder / name, name, "\n".join(own), ports[index]))


class ChaosBroker:
    """A broker, with the same addresses in all of its runs."""

    def __init__(self, programs: Programs, name: str, nats: str, folder: Path, flags: tuple[str, ...]) -> None:
        """`folder`: of its Worker-Controller workers; the path of a Unix socket must be short."""
        self.name = name
        self._programs = programs
        ports = free_ports(8)
        self.places = {dialect: f"{LOOPBACK}:{port}" for dialect, port in zip(DIALECTS[:6], ports, strict=False)}
        self.folder = folder
        tcp = {dialect: f"tcp://{place}" for dialect, place in self.places.items()}
        listeners = (
            tcp["native"],
            f"http://{self.places['http']}",
            f"majordomo+{tcp['majordomo']}",
            f"memodb+{tcp['memodb']}",
            f"pingpong+{tcp['pingpong']}?frontend={ports[6]}&service=pingpong",
            f"powerhose+{tcp['powerhose']}?frontend={ports[7]}&service=powerhose",
            f"controller+unix://{self.folder}?service=controller",
        )
        words = ("--cluster", nats, "--broker-name", name, "--data", "memory")
        sets = (f"cluster_adopt_after={ADOPT_AFTER}", "max_worker_deaths=1000", "worker_resume_timeout=5")
        self._words = ("serve", *listeners, *words, *flags, *(word for each in sets for word in ("--set", each)))
        self.program: Program | None = None

    @property
    def native(self) -> str:
        return f"tcp://{self.places['native']}"

    @property
    def http(self) -> str:
        return f"http://{self.places['http']}"

    def start(self) -> None:
        self.program = self._programs.dragoman(*self._words)

    def wait(self) -> None:
        """Wait until it listens."""
        program = self.running
        until(lambda: "Try, in two other terminals" in program.out, f"{self.name} listens\n{program.err}", STEADY)

    @property
    def running(self) -> Program:
        assert self.program is not None
        return self.program


class Processes:
    """Everything that runs besides the campaign itself. `workers`: of each dialect. `power`: the servers have disks
    that can lose power; `synced` if they sync before they acknowledge, `unsynced` if not."""

    def __init__(
        self, folder: Path, workers: int, flags: tuple[str, ...] = (), shards: int = 6, power: str = ""
    ) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir(parents=True)
        self.programs = Programs(folder)
        self.programs.environment |= {"PYTHONPATH": str(TESTS), "CHAOS_RUNS": str(self.runs)}
        self._stack = ExitStack()
        self._stack.callback(self.programs.end_all)
        try:
            self.wires = Wires()
            self._stack.callback(self.wires.close)
            self.disks = [self._disk(folder / "disks", name) for name in SERVERS] if power else []
            places = [each.place for each in self.disks] or [folder / "nats" / name for name in SERVERS]
            jetstream = "sync_interval: always" if power == "synced" else ""
            self.nats = start_on_free_ports(lambda: WiredNats(folder / "nats", self.wires, places, jetstream))
            self._stack.callback(self.nats.kill)
            direct = ",".join(f"{LOOPBACK}:{each.port}" for each in self.nats.servers)
            words = ("--cluster", f"nats://{direct}", "--shards", shards, "--replicas", 3)
            made = self.programs.run("cluster", "init", *words, *(("--synced",) if power == "synced" else ()))
            assert made.ends(STEADY) == 0, made.err
            short = Path(self._stack.enter_context(TemporaryDirectory(prefix="chaos-")))
            self.brokers = [
                ChaosBroker(self.programs, name, self._nats_of(name), short / name, flags) for name in NAMES
            ]
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                broker.wait()
            self.workers = [self._worker(dialect, turn) for turn in range(workers) for dialect in DIALECTS]
        except BaseException:
            self.close()
            raise

    def _disk(self, folder: Path, name: str) -> Disk:
        disk = Disk(folder, name)
        self._stack.callback(disk.close)
        return disk

    def cut_power(self) -> None:
        """Cut the power of all servers at once: each loses what is not on its disk."""
        running = [each for each in self.nats.servers if each.is_running]
        for server in running:
            server.freeze()
        for disk in self.disks:
            disk.cut()
        for server in running:
            server.kill()
        for disk in self.disks:
            disk.restore()

    def restore_power(self) -> None:
        for server in self.nats.servers:
            server.start()

    def _nats_of(self, name: str) -> str:
        ports = [self.wires.open(name, server.name, server.port) for server in self.nats.servers]
        return "nats://" + ",".join(f"{LOOPBACK}:{port}" for port in ports)

    def _worker(self, dialect: str, turn: int) -> Program:
        first = (turn + DIALECTS.index(dialect)) % len(self.brokers)
        brokers = self.brokers[first:] + self.brokers[:first]
        words: tuple[object, ...] = ("--service", dialect, "--threads", 4)
        if dialect in (*SOLITARY, "pingpong"):
            words = ("--threads", 1)
        if dialect == "controller":
            url = f"controller+unix://{brokers[0].folder}?service=controller"
        elif dialect == "powerhose":
            url = f"powerhose+tcp://{brokers[0].places['powerhose']}?service=powerhose"
        else:
            scheme = {"native": "tcp", "http": "http"}.get(dialect, f"{dialect}+tcp")
            url = f"{scheme}://{','.join(broker.places[dialect] for broker in brokers)}"
            url += "?service=pingpong" if dialect == "pingpong" else ""
        return self.programs.dragoman("worker", "chaos.handlers:run", *words, "--connect", url)

    def broker(self, name: str) -> ChaosBroker:
        return next(each for each in self.brokers if each.name == name)

    def server(self, name: str) -> NatsServer:
        return next(each for each in self.nats.servers if each.name == name)

    def executed(self) -> dict[str, int]:
        """Return the number of runs of each job, by its name."""
        counts: dict[str, int] = {}
        for path in self.runs.iterdir():
            for name in path.read_text().split():
                counts[name] = counts.get(name, 0) + 1
        return counts

    def close(self) -> None:
        self._stack.close()

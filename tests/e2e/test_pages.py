"""Documentation pages as they are: each file, each command, one after the other."""

from __future__ import annotations

import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from dragoman import Client
from nats_servers import free_ports
from page_reader import ROOT, Page, Reader
from programs import PATIENCE, Program, until

Reads = Callable[[str], Reader]
NEW_PORTS = {  # of the broker that takes the place of a home-made one
    "7401": r"pingpong +tcp://\S+:(\d+) +workers",
    "7402": r"pingpong +tcp://\S+:(\d+) +callers",
    "7480": r"http +http://\S+:(\d+) +both",
}
OTHER_QUEUES = {"celery": "dragoman worker sums", "rq": "dragoman worker words", "dramatiq": "dragoman worker prices"}
OTHER_PORTS = {"7501": "workers", "7502": "callers"}  # of the second broker on the page of dialects


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[Reads]:
    """Creates the reader of a page."""
    readers: list[Reader] = []

    def read(path: str) -> Reader:
        readers.append(Reader(tmp_path, path))
        return readers[-1]

    yield read
    for each in readers:
        each.end_all()


def test_every_page_with_a_task_is_read_here() -> None:
    pages = [ROOT / "docs" / "tutorial.md", *(ROOT / "docs" / "how-to").glob("*.md")]
    read = re.findall(r'reads\("(docs/.*?)"\)', Path(__file__).read_text())
    read += [f"docs/how-to/from-{each}.md" for each in OTHER_QUEUES]
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= set(read)


# -------------------------------------------------------------------- README


def test_the_readme(reads: Reads) -> None:
    reader = reads("README.md")
    reader.serve()
    assert sorted(reader.page.files) == ["call.py", "shout.py", "sums.py", "use_sums.py"]
    stranger = reader.works(".venv/bin/python -m majortomo.echo -b tcp://127.0.0.1:7406 worker")
    reader.prints_as_shown("curl --data-binary hello http://127.0.0.1:7480/v1/call/mdp-echo")
    reader.works(".venv/bin/dragoman worker sums", times=2)
    ours = reader.works(".venv/bin/python shout.py", times=3)
    reader.works('.venv/bin/dragoman worker --exec "gzip -c" --service gzip --concurrency 4', times=4)
    reader.session()
    assert ours.out == "", "child processes do not run the client's part"
    assert "dragoman" not in stranger.err
    reader.has_typed_all(but=("make demo", "make run", "make test", ".venv/bin/pip install majortomo six"))


def test_the_readme_s_strangers_are_what_the_tests_install() -> None:
    asked = set(re.findall(r"^    \"(\w+)[>=]", (ROOT / "pyproject.toml").read_text(), re.M))
    assert {"majortomo", "six"} <= asked


def test_the_readme_s_advice_for_ports_that_are_taken(reads: Reads) -> None:
    """A bug: it ended with "data folder in use". The program that uses the ports is probably a broker, which locks that
    folder, too."""
    reader = reads("README.md")
    first = reader.dragoman("serve", "http://127.0.0.1:0")
    first.prints("is listening")
    found = re.search(r'`make run ARGS="(.*?)"`', reader.page.text)
    assert found is not None
    second = reader.dragoman("serve", *re.sub(r":8\d{3}\b", ":0", found[1]).split())
    second.prints("is listening")
    assert (reader.folder / "data").is_dir()


def test_no_chapter_before_start_is_longer_than_a_screen() -> None:
    before, found, _ = Page("README.md").text.partition("\n## Start\n")
    assert found
    assert all(len(chapter.splitlines()) <= 40 for chapter in before.split("\n## "))


# -------------------------------------------------------------------- tutorial


@pytest.mark.timeout(300)
def test_the_tutorial(reads: Reads) -> None:
    reader = reads("docs/tutorial.md")
    reader.serve(data="data")
    summaries = {name: ROOT / "examples" / "reports" / name for name in reader.page.files}
    assert {name: path.read_text() for name, path in summaries.items()} == reader.page.files
    assert sorted(summaries) == sorted(path.name for path in (ROOT / "examples" / "reports").glob("*.*"))

    worker = reader.works("dragoman worker summaries:worker")
    shown = list(reader.page.shown)
    enqueues = next(index for index, command in enumerate(shown) if command.startswith("dragoman enqueue"))
    for command in shown[:enqueues]:
        if reader.page.shown[command] is not None:
            reader.prints_as_shown(command)

    worker.terminate()
    assert worker.ends() == 0
    for command in shown[enqueues : enqueues + 2]:
        reader.prints_as_shown(command)
    reader.broker.terminate()
    assert reader.broker.ends() == 0
    reader.serve(data="data")
    reader.works("dragoman worker summaries:worker")
    server = reader.type("uvicorn report_app:app", "--port 0")
    address = server.prints(r"running on (http://\S+)")
    for command in shown:
        if ":8000/" in command and (place := re.search(r'"(/reports/\w+)"', reader.sends(command, address))):
            report = until(partial(done_report, address + place[1]), "the report is done")
            assert '"sum": 12.0' in report
    reader.session()
    reader.has_typed_all(but=("make install", ". .venv/bin/activate", "mkdir", "dragoman serve", "pip install"))


def done_report(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return str(answer.read().decode()) if answer.status == 200 else ""


# -------------------------------------------------------------------- how-to pages


def test_call_inside_a_web_request(reads: Reads) -> None:
    reader = reads("docs/how-to/web-request.md")
    reader.serve()
    worker = reader.works("dragoman worker waiting:worker")
    server = reader.type("uvicorn web_waiting:app", "--port 0")
    address = server.prints(r"running on (http://\S+)")
    assert reader.sends("curl http://127.0.0.1:8000/wait/0.1", address) == "done\n"
    worker.prints("started")
    curl = reader.starts("curl http://127.0.0.1:8000/wait/100", address)
    worker.prints("started", times=2)
    curl.signal(signal.SIGINT)
    worker.prints("stopped: the caller does not wait any more")
    server.terminate()
    server.ends()
    assert "Traceback" not in server.err
    reader.has_typed_all()


def test_run_a_batch_with_retries(reads: Reads) -> None:
    reader = reads("docs/how-to/batch.md")
    reader.serve()
    reader.works("dragoman worker orders:worker")
    reader.session()
    reader.has_typed_all()


def test_write_a_worker_in_another_language(reads: Reads) -> None:
    reader = reads("docs/how-to/foreign-worker.md")
    reader.serve()
    reader.copy("examples/c_worker")
    built = reader.type("gcc -O2 -Wall -Wextra -o primes primes.c -lzmq -pthread")
    assert (built.ends(4 * PATIENCE), built.err) == (0, "")
    workers = [
        'dragoman worker --exec "tr a-z A-Z" --service shout',
        "node reverse.js http://127.0.0.1:7480",
        "python backwards.py",
        "./primes tcp://127.0.0.1:7400",
    ]
    for number, command in enumerate(workers, 1):
        reader.works(command, times=number)
    reader.session()
    reader.has_typed_all(but=("pip install pyzmq",))


@pytest.mark.timeout(300)
def test_test_your_code(reads: Reads) -> None:
    reader = reads("docs/how-to/testing.md")
    reader.serve()
    (reader.folder / "test_program.py").rename(reader.folder / "later.py")  # it comes last
    reader.prints_as_shown("pytest --quiet")
    (reader.folder / "later.py").rename(reader.folder / "test_program.py")
    reader.session()
    reader.has_typed_all(but=("pip install pytest",))


def test_python_tasks(reads: Reads) -> None:
    reader = reads("docs/tasks.md")
    reader.serve()
    reader.works("dragoman worker shop")
    reader.works("dragoman worker pages", times=2)
    reader.works("dragoman worker numbers_tasks", times=3)
    reader.session()
    reader.has_typed_all()


def test_deploy(reads: Reads) -> None:
    reader = reads("docs/how-to/deploy.md")
    reader.ports = {"7400": "0", "7480": "0"}
    reader.save("dragoman.toml", reader.page.files["dragoman.toml"])
    reader.prints_as_shown("dragoman config --config dragoman.toml | grep toml")
    reader.broker = reader.type("dragoman serve --config dragoman.toml --data /var/lib/dragoman", "--data data")
    reader.ports["7480"] = reader.broker.prints(r'"http", "address": "http://127.0.0.1:(\d+)", "role": "both"')
    reader.ports["7400"] = reader.broker.prints(r'"native", "address": "tcp://127.0.0.1:(\d+)", "role": "both"')
    exported = reader.at_home("DRAGOMAN_URL=tcp://127.0.0.1:7400")
    assert f"export {exported}" in map(reader.at_home, reader.page.shown)
    reader.environment |= dict([exported.split("=")])
    reader.works('dragoman worker --exec "gzip -c" --service gzip')
    reader.session()
    reader.has_typed_all(but=("export",))


def test_connect_other_machines(reads: Reads) -> None:
    """Three commands, with what they print in place of the page's digits."""
    reader = reads("docs/how-to/network.md")
    makes = ("dragoman keys new --broker --data data", "dragoman keys new gpu-1")
    for command, digits in zip(makes, ("a41e…", "3f0a…"), strict=True):
        made = reader.type(command)
        assert made.ends() == 0
        reader.placeholders[digits] = made.out.strip()
    reader.prints_as_shown("dragoman keys allow gpu-1 3f0a… --work resize --call resize --data data")
    reader.ports["7400"] = "0"
    reader.broker = reader.type('dragoman serve "native+tcp://0.0.0.0:7400?auth=curve" --data data')
    reader.ports["7400"] = reader.broker.prints(r"native +tcp://0.0.0.0:(\d+) +both")
    [worker] = [each for each in reader.page.shown if each.startswith("dragoman worker")]
    running = reader.works(worker)
    reader.session()
    assert running.ends() == 3, "its key was revoked"
    reader.has_typed_all()


def test_several_brokers(reads: Reads) -> None:
    reader = reads("docs/cluster.md")
    nats, *ports = free_ports(4)
    reader.ports |= dict(zip(("7411", "7412", "7413"), map(str, ports), strict=True))
    reader.placeholders[":4222"] = f":{nats}"
    reader.placeholders["-p 4222"] = f"-p {nats}"
    reader.type("nats-server -a 127.0.0.1 -p 4222 -js -sd ./nats").prints("Server is ready")
    reader.prints_as_shown("dragoman cluster init --cluster nats://127.0.0.1:4222 --shards 3 --replicas 1")
    _three_servers(reader)
    serves = [each for each in reader.page.shown if each.startswith("dragoman serve") and "--cluster-name" not in each]
    brokers = [reader.type(command) for command in serves]
    for broker in brokers:
        broker.prints("broker joined", 2)
        broker.prints("shard owned")
    reader.broker = brokers[1]
    [worker] = [each for each in reader.page.shown if each.startswith("dragoman worker")]
    reader.works(worker)
    brokers[0].prints("worker joined")
    reader.session()
    _move_jobs(reader, brokers)
    _move_what_is_left(reader, nats)
    reader.has_typed_all(but=("pip install",))


def _three_servers(reader: Reader) -> None:
    ports = ("4231", "4232", "4233", "6231", "6232", "6233")
    reader.placeholders |= dict(zip(ports, map(str, free_ports(6)), strict=True))
    for command in [each for each in reader.page.shown if each.startswith("nats-server -n n")]:
        reader.type(command).prints("Server is ready")
    [init] = [each for each in reader.page.shown if each.startswith("dragoman cluster init") and "4231" in each]
    reader.prints_as_shown(init)


def _move_jobs(reader: Reader, brokers: list[Program]) -> None:
    """Move the jobs of one broker into the cluster, which is stopped, and back."""
    for broker in brokers:
        broker.terminate()
    for broker in brokers:
        assert broker.ends() == 0
    with _broker_of(reader, "data") as client:
        waiting, ended = client.enqueue("later", b"payload"), client.enqueue("never", b"x")
        client.cancel(ended)
    _run(reader, "dragoman export --data ./data > jobs.ndjson")
    _run(reader, "dragoman import jobs.ndjson --cluster nats://127.0.0.1:4222")
    again = reader.type(next(command for command in reader.page.shown if command.startswith("dragoman serve")))
    again.prints("shard owned", 3)
    with closing(Client(f"tcp://127.0.0.1:{reader.ports['7411']}")) as client:
        assert (client.job(waiting).state, client.payload(waiting)) == ("waiting", b"payload")
        assert (client.job(ended).outcome, client.job(ended).broker) == ("cancelled", "eu1")
    again.terminate()
    assert again.ends() == 0
    _run(reader, "dragoman export --cluster nats://127.0.0.1:4222 > jobs.ndjson")
    _run(reader, "dragoman import jobs.ndjson --data ./new")
    with _broker_of(reader, "new") as client:
        assert (client.job(waiting).state, client.payload(waiting)) == ("waiting", b"payload")
        assert client.job(ended).outcome == "cancelled"


def _move_what_is_left(reader: Reader, port: int) -> None:
    """Damage a log of the cluster, which is stopped, and move its jobs into another one."""
    with socket.create_connection(("127.0.0.1", port), 5.0) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nPUB dgm.dragoman.log.00 8\r\nnonsense\r\nPING\r\n')
        lines = connection.makefile("rb")
        while lines.readline() != b"PONG\r\n":
            pass
    one, other = "nats://127.0.0.1:4222", "--cluster nats://127.0.0.1:4222 --cluster-name second"
    told = _run(reader, f"dragoman export --cluster {one} --skip-damaged > rest.ndjson", 65)
    assert re.search(r"shard 0: message \d+ \(1 message\): cannot be read", told)
    _run(reader, f"dragoman cluster init {other} --shards 3 --replicas 1")
    assert _run(reader, f"dragoman import rest.ndjson {other} --accept-damage").count("shard 0: message") == 1
    broker = reader.type(next(command for command in reader.page.shown if f"{other} --broker-name" in command))
    broker.prints("shard owned", 3)
    with closing(Client(f"tcp://127.0.0.1:{reader.ports['7411']}")) as client:
        assert {each.outcome for each in client.jobs()} == {None, "cancelled"}
    broker.terminate()
    assert broker.ends() == 0


def _run(reader: Reader, command: str, code: int = 0) -> str:
    """Type a command. Returns its standard error."""
    done = reader.type(command)
    assert done.ends(60.0) == code, done.err
    return done.err


@contextmanager
def _broker_of(reader: Reader, data: str) -> Iterator[Client[bytes]]:
    """Run a broker without a cluster on a data folder of the page."""
    broker = reader.dragoman("serve", "tcp://127.0.0.1:0", "--data", f"./{data}", "--strict")
    url = broker.prints(r"native +(\w+://127.0.0.1:\d+) +both")
    with closing(Client(url)) as client:
        yield client
    broker.terminate()
    assert broker.ends() == 0


def test_migrate_from_process_pool_executor(reads: Reads) -> None:
    reader = reads("docs/how-to/from-process-pool.md")
    reader.serve()
    reader.copy("examples/process_pool")
    shown = re.search(r"^```diff\n.*?^```$", reader.page.text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[0] in (ROOT / "examples" / "process_pool" / "README.md").read_text(), "which a test compares"
    connect = "--connect tcp://127.0.0.1:7400"
    reader.works(f"dragoman worker dragoman.sdk.pickled_calls:run --service python {connect}")
    reader.works("dragoman worker sums:worker", times=2)
    reader.session()
    reader.has_typed_all()


def test_migrate_from_a_home_made_zeromq_broker(reads: Reads) -> None:
    reader = reads("docs/how-to/from-zeromq-broker.md")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        reader.ports |= {"7551": str(one.getsockname()[1]), "7552": str(other.getsockname()[1])}
    for name, text in reader.page.files.items():
        reader.save(name, text)
    reader.type("python old_broker.py")
    reader.type("python old_worker.py")
    reader.prints_as_shown("python caller.py tcp://127.0.0.1:7552")

    (serves,) = [command for command in reader.page.shown if command.startswith("dragoman serve")]
    places = [word.strip('"') for word in re.sub(r"74\d\d", "0", serves).split()[2:]]
    reader.broker = reader.dragoman("serve", *places, "--data", "memory", "--strict")
    reader.typed.add(serves)
    for port, pattern in NEW_PORTS.items():
        reader.ports[port] = reader.broker.prints(pattern)
    reader.save("new_worker.py", reader.page.files["new_worker.py"])
    reader.works("python new_worker.py")
    reader.session()
    reader.has_typed_all()


@pytest.mark.parametrize("system", OTHER_QUEUES)
def test_migrate_from_another_task_queue(reads: Reads, system: str) -> None:
    """The half of the page under *After*. `tests/migration_pages.py` runs the other half with the other system."""
    reader = reads(f"docs/how-to/from-{system}.md")
    reader.serve()
    before, found, after = reader.page.text.partition("\n## After\n")
    assert found
    reader.typed |= {each for each in reader.page.shown if each in before and each not in after}
    assert len(reader.typed) >= 2, "a worker and a program of the other system"
    reader.works(OTHER_QUEUES[system])
    reader.session()
    reader.has_typed_all()


# -------------------------------------------------------------------- explanation


def test_security(reads: Reads) -> None:
    """The commands work on one data folder; the last one has the names that the page shows."""
    reader = reads("docs/security.md")
    made = reader.type("dragoman keys new --broker --data data")
    assert made.ends() == 0
    reader.placeholders["3f0a…"] = "3f" * 32
    allow = reader.type("dragoman keys allow gpu-1 3f0a… --work resize --data data")
    assert allow.ends() == 0, allow.err
    for name, content in (("broker.key_secret", "data/keys"), ("gpu-1.toml", "data/access")):
        assert (reader.folder / content / name).is_file(), "the Secrets are made from these"
    (reader.folder / "data" / "access" / "gpu-1.toml").write_text(reader.at_home(reader.page.files["gpu-1.toml"]))
    checked = reader.dragoman("access", "check", "--data", "data")
    assert (checked.ends(), checked.out) == (0, "in order: 1 principal in data/access\n")
    reader.session()
    token = reader.type('dragoman token new web --call "*"')
    assert token.ends() == 0
    reader.ports["7480"] = "0"
    broker = reader.type('dragoman serve "http://127.0.0.1:7480?auth=token&hosts=jobs.example.org"')
    port = broker.prints(r"http://127\.0\.0\.1:(\d+)")
    for host, status in (("jobs.example.org", 200), ("other.example.org", 403)):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/services", headers={"Host": host})
        request.add_header("Authorization", f"Bearer {token.out.strip()}")
        request.add_header("X-Forwarded-For", "192.0.2.1")
        try:
            found = urllib.request.urlopen(request, timeout=PATIENCE).status
        except urllib.error.HTTPError as error:
            found = error.code
        assert found == status, host
    reader.has_typed_all(but=("kubectl",))


def test_dialects(reads: Reads) -> None:
    reader = reads("docs/dialects/index.md")
    reader.serve()
    reader.works('dragoman worker --exec "tr a-z A-Z" --connect pingpong+tcp://127.0.0.1:7401')
    reader.session()
    gzip = 'dragoman worker --exec "gzip -c" --service gzip --service pack --concurrency 4'
    reader.works(f"{gzip} --connect memodb+tcp://127.0.0.1:7405", times=2)

    listens, works, calls = list(reader.page.shown)[-3:]
    other = reader.dragoman("serve", *re.sub(r"75\d\d", "0", listens).replace('"', "").split()[2:])
    reader.ports |= {port: other.prints(rf"pingpong +\w+://\S+:(\d+) +{who}") for port, who in OTHER_PORTS.items()}
    reader.type(works)
    other.prints("worker joined")
    called = reader.type(calls)
    assert called.ends() == 0, called.err
    assert (reader.folder / "small.gz").read_bytes()[:2] == b"\x1f\x8b"
    reader.typed.add(listens)
    reader.has_typed_all()

"""The programs in examples/: a broker, workers and callers, each a process of its own."""

from __future__ import annotations

import difflib
import json
import math
import os
import pty
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from dragoman import Busy, Client, JobFailed, JobTimeout
from programs import DRAGOMAN, PATIENCE, Program, Programs, until

EXAMPLES = Path(__file__).parents[2] / "examples"
ADDRESS = "tcp://127.0.0.1:7400"  # of the broker, in all examples


class Setup(Programs):
    """A broker, and examples that run in a folder of their own."""

    is_preloaded = False
    url: str
    broker: Program

    def serve(self, options: str = "", *flags: object) -> None:
        words = ("serve", f"tcp://127.0.0.1:0{options}", "--data", "memory", "--strict", *flags)
        self.broker = self.dragoman(*words)
        self.url = self.broker.prints(r"native +(tcp://\S+)")

    def fetch(self, example: str) -> None:
        """Copy an example here, with the address of this broker."""
        shutil.copytree(EXAMPLES / example, self.folder, dirs_exist_ok=True)
        for path in self.folder.iterdir():
            if path.suffix in (".py", ".md", ".sh"):
                path.write_text(path.read_text().replace(ADDRESS, self.url))

    def type(self, command: str, file: str, more: str = "", given: bytes = b"") -> Program:
        """Run a command from a file."""
        assert re.search(rf"^[# ]*{re.escape(command)}( +#.*)?$", (self.folder / file).read_text(), re.MULTILINE), (
            command
        )
        first, *words = shlex.split(f"{command} {more}".replace(ADDRESS, self.url))
        found = {"dragoman": DRAGOMAN, "python": sys.executable}.get(first) or Path(sys.executable).with_name(first)
        return self.start(found, *words, given=given)

    def work(self, command: str, file: str, more: str = "") -> Program:
        """Run a command that starts a worker."""
        worker = self.type(command, file, more)
        worker.prints("connected")
        return worker


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    setup.serve()
    yield setup
    setup.end_all()


def test_every_example_is_on_the_list() -> None:
    listed = re.findall(r"^\| \[(\w+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0] != ".")


# -------------------------------------------------------------------- thumbnails


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def draw(path: Path, size: tuple[int, int], colour: str) -> None:
    Image.new("RGB", size, colour).save(path)


def test_a_folder_of_pictures_is_made_small(setup: Setup) -> None:
    setup.fetch("thumbnails")
    setup.work("dragoman worker thumbnails:worker", "thumbnails.py")
    pictures = setup.folder / "pictures"
    pictures.mkdir()
    draw(pictures / "wide.png", (640, 320), "red")
    draw(pictures / "high.gif", (100, 400), "blue")
    draw(pictures / "tiny.jpg", (16, 8), "white")
    (pictures / "notes.txt").write_text("not a picture")
    done = setup.type("python shrink.py pictures small", "shrink.py")
    assert done.ends() == 0, done.err
    sizes = {path.name: size_of(path) for path in (setup.folder / "small").iterdir()}
    assert sizes == {"wide.jpg": (128, 64), "high.jpg": (32, 128), "tiny.jpg": (16, 8)}
    assert done.out.startswith(f"high.gif: {(pictures / 'high.gif').stat().st_size} bytes, now ")


def test_a_file_that_is_no_picture_ends_it_with_the_workers_reason(setup: Setup) -> None:
    setup.fetch("thumbnails")
    setup.work("dragoman worker thumbnails:worker", "thumbnails.py")
    pictures = setup.folder / "pictures"
    pictures.mkdir()
    (pictures / "wrong.png").write_text("not a picture")
    done = setup.type("python shrink.py pictures small", "shrink.py")
    assert done.ends() == 1
    assert done.err.startswith("cannot shrink a picture: cannot identify image file")


# -------------------------------------------------------------------- a web view


class Web:
    """The application on a real server."""

    def __init__(self, setup: Setup) -> None:
        self.server = setup.type("uvicorn web_app:app", "web_app.py", "--port 0")
        self.address = self.server.prints(r"running on (http://\S+)")

    def get(self, path: str) -> tuple[int, dict[str, object]]:
        try:
            with urllib.request.urlopen(self.address + path, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


HARD = (2**31 - 1) * (2**61 - 1)  # two primes: it takes minutes to find them


def test_a_web_view_answers_with_what_a_worker_found(setup: Setup) -> None:
    setup.fetch("web_view")
    web = Web(setup)
    status, said = web.get("/factors/1001")
    assert (status, said["error"]) == (404, "no worker offers this service")
    setup.work("dragoman worker factors:worker", "factors.py")
    assert web.get("/factors/1001") == (200, {"number": 1001, "factors": [7, 11, 13]})
    status, said = web.get("/factors/0")
    assert (status, said["detail"]) == (502, "failed: ValueError: 0 has no prime factors")
    status, said = web.get(f"/factors/{HARD}?patience=0.2")
    assert (status, said["error"]) == (504, "it took too long")
    web.server.terminate()
    web.server.ends()
    assert "Application shutdown complete" in web.server.err
    assert "Traceback" not in web.server.err


def test_a_web_view_says_so_when_there_is_too_much_to_do(setup: Setup) -> None:
    setup.serve("", "--set", "max_jobs=1")
    setup.fetch("web_view")
    web = Web(setup)
    setup.work("dragoman worker factors:worker", "factors.py")
    with Client(setup.url, codec="json") as client:
        client.submit("factors", HARD)
        with pytest.raises(Busy):  # the broker has the first
            client.call("factors", 10)
        status, said = web.get("/factors/10")
    assert (status, said["error"]) == (429, "too many jobs are waiting; retry later")


def test_a_web_view_says_so_when_the_broker_is_away(setup: Setup) -> None:
    setup.fetch("web_view")
    web = Web(setup)
    setup.broker.kill()
    status, said = web.get("/factors/10")
    assert (status, said["error"]) == (503, "the broker is unavailable; retry later")


# -------------------------------------------------------------------- tasks in web applications


def post(url: str, body: bytes) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_requests_call_tasks_and_cancel_them_when_the_browser_disconnects(setup: Setup) -> None:
    """With a real server, and a client that hangs up."""
    setup.fetch("web_tasks")
    worker = setup.work(f"dragoman worker words --connect {setup.url}", "words.py", "--processes 2")
    web = setup.type("uvicorn words_app:app", "words_app.py", "--port 0")
    address = web.prints(r"running on (http://\S+)")
    assert 'prints {"to":2,"be":2,"or":1,"not":1}' in (setup.folder / "words_app.py").read_text()
    assert post(f"{address}/words", b"to be or not to be") == (200, b'{"to":2,"be":2,"or":1,"not":1}')
    assert post(f"{address}/lines", b"one\ntwo") == (200, b'"one"\n"two"\n')
    with Client(setup.url) as client, socket.create_connection(address.removeprefix("http://").split(":")) as browser:
        browser.sendall(b"GET /book/600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: client.service("print_book").running == 1, "the job runs")
    worker.prints(r"stopped after \d+ of 600 pages")
    assert json.loads(post(f"{address}/words", b"again")[1]) == {"again": 1}
    web.terminate()
    web.ends()
    assert "Application shutdown complete" in web.err
    assert "Traceback" not in web.err


def test_django_project_packs_orders_after_their_commit(setup: Setup) -> None:
    setup.fetch("django_shop")
    migrated = setup.type("python manage.py migrate", "manage.py")
    assert migrated.ends() == 0, migrated.err
    setup.work("python manage.py runworker --threads 2", "manage.py")
    server = setup.type("python manage.py runserver --noreload", "manage.py", "127.0.0.1:0")
    address = server.prints(r"(?:running on|development server at) (http://127\.0\.0\.1:[1-9]\d*)")
    assert post(f"{address}/orders", b"name=tea") == (201, b'{"number": 1}')

    def show() -> bytes | None:
        with urllib.request.urlopen(f"{address}/orders/1", timeout=PATIENCE) as answer:
            body: bytes = answer.read()
            return body if b"true" in body else None

    assert until(show, "the order is packed") == b'{"name": "tea", "is_packed": true}'
    assert post(f"{address}/orders", b"name=" + b"x" * 51)[0] == 400
    with Client(setup.url) as client:
        assert [job.outcome for job in client.jobs()] == ["done"], "the order that was rolled back has no job"


# -------------------------------------------------------------------- a progress bar


@pytest.fixture
def darts(setup: Setup) -> None:
    setup.fetch("progress_bar")
    setup.work("dragoman worker pi:worker", "pi.py")


@pytest.mark.usefixtures("darts")
def test_many_jobs_give_one_estimate_and_no_bar_where_nobody_looks(setup: Setup) -> None:
    done = setup.type("python estimate.py", "estimate.py")
    assert done.ends(60) == 0, done.err
    assert math.isclose(float(done.out), math.pi, abs_tol=0.01)
    assert done.err == ""


@pytest.mark.usefixtures("darts")
def test_on_a_terminal_a_bar_shows_how_far_they_are(setup: Setup) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "estimate.py"], cwd=setup.folder, stdout=subprocess.PIPE, stderr=theirs, env=setup.environment
    ) as process:
        os.close(theirs)
        drawn = b"".join(iter(lambda: read(ours), b"")).decode()
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert math.isclose(float(out), math.pi, abs_tol=0.01)
    shown = [int(share) for share in re.findall(r"\r\[[# ]{40}\] +(\d+)%", drawn)]
    assert len(shown) > 20, "there are 20 jobs, and reports before they end"
    assert shown[0] < shown[-1] == 100
    assert drawn.endswith("[########################################] 100%\r\n")


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody has it open at the other end any more
        return b""


# -------------------------------------------------------------------- from ProcessPoolExecutor


def test_the_same_program_runs_on_processes_and_on_workers(setup: Setup) -> None:
    setup.fetch("process_pool")
    setup.work(f"dragoman worker dragoman.sdk.pickled_calls:run --service python --connect {setup.url}", "README.md")
    before, after = (setup.type(f"python with_{which}.py", "README.md") for which in ("pool", "dragoman"))
    assert [before.ends(), after.ends()] == [0, 0], before.err + after.err
    assert after.out == before.out
    assert after.out.splitlines()[-1] == "10539"


def test_it_takes_three_lines_and_the_page_shows_them() -> None:
    folder = EXAMPLES / "process_pool"
    before, after = ((folder / f"with_{which}.py").read_text().splitlines() for which in ("pool", "dragoman"))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert len([line for line in changed if line[0] == "+"]) == 3
    shown = re.search(r"^```diff\n(.*?)^```$", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert [line for line in shown[1].splitlines() if line] == [line[0] + line[2:] for line in changed]


# -------------------------------------------------------------------- a shell script


def test_a_shell_script_is_a_worker(setup: Setup) -> None:
    setup.fetch("shell_worker")
    script = "frequent_words.sh"
    connect = f"--connect {setup.url}"
    setup.work(f'dragoman worker --exec "sh {script}" --service words {connect}', script)
    called = setup.type(f'dragoman call words "the cat and the dog and the bird" {connect}', script)
    assert called.ends() == 0, called.err
    assert [line.split() for line in called.out.splitlines()] == [["3", "the"], ["2", "and"], ["1", "bird"]]
    long = setup.run("call", "words", "-", "--connect", setup.url, given=b"Dragoman, dragoman! " * 10_000)
    assert long.out.split() == ["20000", "dragoman"]
    empty = setup.run("call", "words", "1 + 1 = 2", "--connect", setup.url)
    assert empty.ends() == 1
    assert "the text has no words" in empty.err


# -------------------------------------------------------------------- a worker in C


@pytest.fixture(scope="session")
def primes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker in C, built with the command in its header."""
    source = EXAMPLES / "c_worker" / "primes.c"
    command = re.search(r"^ \* +(gcc .*?-o) primes (.*?) +\(", source.read_text(), re.MULTILINE)
    assert command is not None
    program = tmp_path_factory.mktemp("c") / "primes"
    words = [*command[1].split(), str(program), *command[2].split()]
    built = subprocess.run(words, cwd=source.parent, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, f"Debian: apt-get install gcc libc6-dev libzmq3-dev\n{built.stderr}"
    assert built.stderr == ""
    return program


def start(setup: Setup, primes: Path) -> Program:
    worker = setup.start(primes, setup.url)
    worker.prints("connected")
    return worker


ENDLESS = b"1000000000000"


def test_the_c_worker_counts_primes_in_batches(setup: Setup, primes: Path) -> None:
    start(setup, primes)
    with Client(setup.url) as client:
        numbers = [10, 100, 1000, 2, 1, 0] * 20
        counted = client.map("primes", [str(number) for number in numbers], timeout=PATIENCE)
        assert list(counted) == [b"4", b"25", b"168", b"1", b"0", b"0"] * 20
        with pytest.raises(JobFailed) as failed:
            client.call("primes", b"many", timeout=PATIENCE)
        assert (failed.value.remote_type, failed.value.remote_message) == ("NotANumber", "many")
        with pytest.raises(JobFailed, match="NotANumber"):
            client.call("primes", b"1" * 10_000, timeout=PATIENCE)
    assert setup.run("call", "primes", "1000000", "--connect", setup.url).out == "78498"


def test_the_c_worker_stops_what_is_recalled(setup: Setup, primes: Path) -> None:
    """One job runs and three lie ready in the worker; when all are recalled, it is there for others."""
    start(setup, primes)
    with Client(setup.url) as client:
        jobs = [client.submit("primes", ENDLESS, timeout=0.5) for _ in range(6)]
        for job in jobs:
            with pytest.raises(JobTimeout):
                job.result(PATIENCE)
        assert client.call("primes", b"10", timeout=PATIENCE) == b"4"


def test_the_c_worker_lives_as_long_as_its_job_takes(setup: Setup, primes: Path) -> None:
    setup.serve("?lease=1.5&heartbeat=0.1")
    start(setup, primes)
    with Client(setup.url) as client:
        with pytest.raises(JobTimeout):  # not JobLost
            client.call("primes", ENDLESS, timeout=3)
        assert client.call("primes", b"10", timeout=PATIENCE) == b"4"


def test_the_c_worker_gives_back_what_it_has_not_begun(setup: Setup, primes: Path) -> None:
    first = start(setup, primes)
    with Client(setup.url) as client:
        running = client.submit("primes", ENDLESS)
        first.prints(f"counting primes up to {ENDLESS.decode()}")
        waiting = [client.submit("primes", b"100") for _ in range(6)]
        start(setup, primes)
        first.terminate()
        assert [job.result(PATIENCE) for job in waiting] == [b"25"] * 6
        assert not running.done()
        running.cancel()
        assert first.ends() == 0
        assert running.cancelled()


def test_the_c_worker_ends_with_its_broker(setup: Setup, primes: Path) -> None:
    setup.serve("?lease=1&heartbeat=0.1")
    worker = start(setup, primes)
    setup.broker.kill()
    assert worker.ends() == 1
    assert "the broker is silent" in worker.err

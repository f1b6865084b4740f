"""Acts on many jobs by commands: pipelines of more than a page, Ctrl-C, a killed command and a killed broker."""

from __future__ import annotations

import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from terminals import TerminalProgram

from dragoman import Client
from programs import DRAGOMAN, PATIENCE, Program, Programs, until

PAGE = 1_000  # jobs that one request lists


class Setup:
    """A broker behind a Unix socket, which may be killed and started again. To check all jobs after each of thousands
    of steps would take minutes, so it is not strict."""

    def __init__(self, programs: Programs, folder: Path, data: object) -> None:
        self.programs = programs
        self.data = data
        self.url = f"ipc://{folder}/broker.sock"
        self.start()

    def start(self) -> None:
        self.broker = self.programs.dragoman("serve", f"native+{self.url}", "--data", self.data)
        self.broker.prints("is listening")

    def enqueue(self, count: int) -> None:
        """Enqueue jobs that wait for an hour."""
        with Client(self.url) as client, ThreadPoolExecutor(32) as threads:
            for _ in threads.map(lambda _: client.enqueue("resize", b"x", delay=3_600), range(count)):
                pass

    def counts(self) -> tuple[int, int]:
        """Numbers of delayed and of cancelled jobs."""
        with Client(self.url) as client:
            counts = client.job_counts("resize")
        return counts.delayed, counts.undone

    def command(self, *words: object) -> Program:
        return self.programs.dragoman(*words, "--connect", self.url)


@pytest.fixture
def setup(programs: Programs, tmp_path: Path) -> Setup:
    return Setup(programs, tmp_path, tmp_path / "data")


def test_pipelines_work_for_more_than_a_page(programs: Programs, tmp_path: Path) -> None:
    """Each command of the pipeline acts while the list is still being read. A job that is deleted must not end it."""
    setup, count = Setup(programs, tmp_path, "memory"), PAGE + 300
    setup.enqueue(count)
    pipe = "{0} jobs --service resize --state delayed --json --connect {1} | jq -r .id | {0} cancel - --connect {1}"
    for pipeline in (pipe, "{0} jobs --service resize --json --connect {1} | jq -r .id | {0} delete - --connect {1}"):
        command = pipeline.format(DRAGOMAN, setup.url)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=4 * PATIENCE)
        assert (done.returncode, done.stderr) == (0, b"")
        assert len(set(done.stdout.split())) == count
    assert setup.counts() == (0, 0)


def test_ctrl_c_stops_the_act_and_a_second_command_continues(setup: Setup) -> None:
    """Finished jobs are on disk, and the others are unchanged. Meanwhile a bar shows the progress."""
    setup.enqueue(300)
    command = TerminalProgram("cancel", "--all", "--yes", "--rate", "20", "--connect", setup.url)
    command.shows("of 300 jobs")
    assert "cancelling  [" in command.shown
    command.interrupt()
    assert command.ends() == 130
    stopped = re.search(
        r"stopped: (\d+) of 300 jobs are cancelled, the others are unchanged; run the command again to continue",
        command.shown,
    )
    assert stopped is not None, command.shown
    cancelled = int(stopped[1])
    assert setup.counts() == (300 - cancelled, cancelled)
    again = setup.command("cancel", "--all", "--service", "resize", "--yes")
    assert (again.ends(), again.out) == (0, f"{300 - cancelled} jobs are cancelled\n")
    setup.broker.prints('"jobs cancelled"', times=2)


def test_confirmation_names_the_number_of_jobs(setup: Setup) -> None:
    setup.enqueue(3)
    command = TerminalProgram("cancel", "--all", "--service", "resize", "--connect", setup.url)
    command.shows("Cancel 3 jobs? [y/N]:")
    command.press("y\n")
    assert command.ends() == 0
    assert "3 jobs are cancelled" in command.shown


def test_act_of_a_killed_command_stops(setup: Setup) -> None:
    """Nobody asks for its progress any more."""
    setup.enqueue(2_000)
    command = setup.command("cancel", "--all", "--yes", "--rate", 20)
    until(lambda: setup.counts()[1] > 0, "the first jobs are cancelled")
    command.kill()
    setup.broker.prints("nobody has asked for its progress for 10 s")
    delayed, cancelled = setup.counts()
    assert 0 < cancelled < 2_000
    assert delayed + cancelled == 2_000


def test_broker_that_is_killed_has_done_what_it_said_and_the_command_can_be_repeated(setup: Setup) -> None:
    """I3: each step is one commit. The rest is untouched."""
    setup.enqueue(1_000)
    command = setup.command("cancel", "--all", "--yes", "--rate", 100)
    until(lambda: setup.counts()[1] >= 50, "some jobs are cancelled")
    before = setup.counts()[1]
    setup.broker.signal(signal.SIGKILL)
    setup.broker.ends()
    setup.start()
    assert command.ends() in (1, 3)  # it has found another broker, or none in time
    delayed, cancelled = setup.counts()
    assert before <= cancelled < 1_000
    assert delayed + cancelled == 1_000
    again = setup.command("cancel", "--all", "--yes")
    assert (again.ends(), again.out) == (0, f"{delayed} jobs are cancelled\n")
    assert setup.counts() == (0, 1_000)

"""Commands on a terminal and in a pipe: colours, times, and the story of a job."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from native_worker import HandWorker
from terminals import TerminalProgram, on_terminal

from dragoman import Client, JobFailed, JobLost, LocalBroker
from programs import DRAGOMAN, PATIENCE, Programs

ADDRESSES = ["native", "http"]
LOCAL = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+05:30"
UTC = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
INDIA = {"TZ": "Asia/Kolkata"}  # never without its offset


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def worker(broker: LocalBroker) -> Iterator[HandWorker]:
    worker = HandWorker(broker.urls["native"].removeprefix("native+"), "echo")
    yield worker
    worker.stop()


def piped(*words: object, **environment: str) -> bytes:
    done = subprocess.run(
        [DRAGOMAN, *map(str, words)], capture_output=True, timeout=PATIENCE, check=True, env=environment or None
    )
    return done.stdout


def failed_job(broker: LocalBroker) -> str:
    with Client(broker.urls["native"]) as client:
        job = client.enqueue("echo", b"fail no luck", attempts=1)
        with pytest.raises(JobFailed):
            client.result(job, timeout=PATIENCE)
    return job


@pytest.mark.parametrize("dialect", ADDRESSES)
def test_failed_job_tells_its_story(broker: LocalBroker, worker: HandWorker, dialect: str) -> None:
    job, url = failed_job(broker), broker.urls[dialect]
    shown = piped("job", job, "--connect", url).decode()
    for line in (
        r"outcome +failed, in quarantine",
        r"reason +ValueError: no luck",
        rf"submitted +{UTC} \(.+ ago\)",
        rf"started +{UTC}",
        rf"ended +{UTC}",
        r"payload +12 bytes of text: fail no luck",
        r"ATTEMPT +WORKER +STARTED +TOOK +OUTCOME +REASON",
        rf" +1 +\S+ +{UTC} +[\d.]+ m?s +failed +ValueError: no luck",
        r"traceback",
        r"Traceback: here",
    ):
        assert re.search(f"^{line}$", shown, re.M), line
    assert piped("job", job, "--payload", "--connect", url) == b"fail no luck"
    with Client(url) as client:
        view = client.job(job)
        assert client.payload(job) == b"fail no luck"
    assert view.error is not None
    assert view.error.detail == "Traceback: here"
    assert view.started is not None
    assert view.ended is not None
    assert view.created <= view.started <= view.ended
    assert (view.attempts[0].started, view.attempts[0].ended) == (view.started, view.ended)


@pytest.mark.parametrize("dialect", ADDRESSES)
def test_progress_of_a_background_job_is_there_for_python_http_and_commands(
    broker: LocalBroker, worker: HandWorker, dialect: str
) -> None:
    url = broker.urls[dialect]
    with Client(url) as client:
        job = client.enqueue("echo", b"report 3")
        client.result(job, timeout=PATIENCE)
        progress = client.job(job).progress
    assert progress is not None
    assert json.loads(progress.text or "") == {"done": 3}
    assert re.search(r'^progress +11 bytes of JSON: \{"done": 3\}$', piped("job", job, "--connect", url).decode(), re.M)


def test_terminal_has_colours_and_local_times(broker: LocalBroker, worker: HandWorker) -> None:
    job, url = failed_job(broker), broker.urls["native"]
    seen = on_terminal("job", job, "--connect", url, **INDIA)
    assert "\x1b[31mfailed, in quarantine\x1b[0m" in seen.raw
    assert re.search(rf"submitted +{LOCAL} ", seen.shown)
    assert "\x1b[31mfailed\x1b[0m" in on_terminal("jobs", "--connect", url).raw
    plain = on_terminal("job", job, "--connect", url, NO_COLOR="1", **INDIA)
    assert "\x1b" not in plain.raw
    assert re.search(rf"submitted +{LOCAL} ", plain.raw)
    (listed,) = on_terminal("jobs", "--json", "--connect", url, **INDIA).raw.splitlines()
    assert datetime.fromisoformat(json.loads(listed)["created"]).utcoffset() == timedelta(0)
    assert b"\x1b" not in piped("job", job, "--connect", url)


CHATTY = """
import logging, os, signal

def plain(payload):
    logging.warning("payload %s", payload.decode())
    if payload == b"crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if payload == b"fail":
        raise ValueError("bad")
    return payload

async def coroutine(payload):
    return plain(payload)
"""


@pytest.mark.parametrize("words", [["plain", "--processes", "1"], ["plain", "--threads", "1"], ["coroutine"]])
def test_log_lines_of_a_worker_carry_the_job_id(
    programs: Programs, broker: LocalBroker, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    name, *options = words
    url = broker.urls["native"]
    worker = programs.dragoman("worker", f"chatty:{name}", *options, "--service", "chat", "--connect", url)
    with Client(url) as client:
        done, failed = client.enqueue("chat", b"hello"), client.enqueue("chat", b"fail", attempts=1)
        client.result(done, timeout=PATIENCE)
        with pytest.raises(JobFailed):
            client.result(failed, timeout=PATIENCE)
    worker.prints(f" WARNING job {done}: payload hello\n")
    worker.prints(f" WARNING job {failed}: payload fail\n")
    worker.prints(f" ERROR job {failed} of chat failed: ValueError: bad\n")


def test_signal_that_ended_a_job_is_named(programs: Programs, broker: LocalBroker, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    url = broker.urls["native"]
    programs.dragoman("worker", "chatty:plain", "--processes", "1", "--service", "chat", "--connect", url)
    programs.dragoman("worker", "--exec", "sh -c 'kill -TERM $$'", "--service", "shell", "--connect", url)
    with Client(url) as client:
        crashed, killed = client.enqueue("chat", b"crash", attempts=1), client.enqueue("shell", attempts=1)
        with pytest.raises(JobLost, match="the child process ended with signal SIGSEGV during the job"):
            client.result(crashed, timeout=PATIENCE)
        with pytest.raises(JobFailed, match="sh ended with signal SIGTERM: no output on standard error"):
            client.result(killed, timeout=PATIENCE)


SERVE = ["serve", "tcp://127.0.0.1:0", "--data", "memory"]


def test_broker_on_a_terminal_writes_sentences_and_no_json() -> None:
    broker = TerminalProgram(*SERVE, **INDIA)
    broker.shows("Try, in two other terminals:")
    broker.interrupt()
    assert broker.ends() == 0
    assert re.search(rf"^{LOCAL} \[info +\] stopping ", broker.shown, re.M)
    assert "\x1b" in broker.raw
    assert '{"' not in broker.shown


def test_log_of_a_broker_on_a_terminal_respects_no_color() -> None:
    broker = TerminalProgram(*SERVE, NO_COLOR="1")
    broker.shows("Try, in two other terminals:")
    broker.interrupt()
    assert broker.ends() == 0
    assert "stopping" in broker.raw
    assert "\x1b" not in broker.raw


@pytest.mark.parametrize("is_one_pipe", [True, False], ids=["one pipe", "log json"])
def test_start_of_a_broker_is_json_where_its_log_is(is_one_pipe: bool) -> None:
    """A bug: a JSON line stood among the sentences."""
    words = SERVE if is_one_pipe else [*SERVE, "--log", "json"]
    broker = subprocess.Popen(
        [DRAGOMAN, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT if is_one_pipe else subprocess.PIPE
    )
    log = broker.stdout if is_one_pipe else broker.stderr
    assert log is not None
    lines = [json.loads(log.readline()) for _ in range(2)]
    broker.terminate()
    rest, _ = broker.communicate(timeout=PATIENCE)
    assert [each["event"] for each in lines] == ["listener opened", "broker started"]
    assert (lines[0]["dialect"], lines[0]["role"], lines[1]["data"]) == ("native", "both", "memory")
    assert all(json.loads(line)["event"] for line in rest.splitlines())


def test_bash_completes_commands_options_and_choices_as_documented(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    found = re.search(r"`~/\.bashrc` \| `(eval .+)` \|", page)
    assert found is not None
    ask = """
    complete_words() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _dragoman_completion dragoman "${COMP_WORDS[COMP_CWORD]}"; echo "${COMPREPLY[@]}"
    }
    complete_words dragoman jo
    complete_words dragoman jobs --st
    complete_words dragoman jobs --state w
    """
    path = f"{Path(DRAGOMAN).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{found[1]}\n{ask}"],
        capture_output=True,
        timeout=4 * PATIENCE,
        check=True,
        env=os.environ | {"PATH": path},
    )
    assert done.stdout.decode().splitlines() == ["job jobs", "--state", "waiting"]

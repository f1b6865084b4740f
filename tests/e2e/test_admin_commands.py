"""The administration commands: output as text and as JSON, and exit codes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from command_runner import command_runner
from dragoman import Client
from dragoman.cli import MODULES, SECTIONS, dragoman
from programs import DRAGOMAN, HANDLERS, Program, Programs, until

UNKNOWN = "0" * 32


class Setup:
    """A broker, and commands that use it."""

    def __init__(self, programs: Programs, folder: Path, *more: str) -> None:
        self.programs = programs
        self.folder = folder
        self.broker = programs.dragoman(
            *("serve", "http://127.0.0.1:0", "native+tcp://127.0.0.1:0", *more, "--data", "memory", "--strict")
        )
        self.url = self.broker.prints(r"(http://\S+) +both")
        self.native = self.broker.prints(r"native +(tcp://\S+)")

    def ask(self, *words: object, given: bytes = b"") -> Program:
        return self.programs.run(*words, "--connect", self.url, given=given)

    def said(self, *words: object, given: bytes = b"") -> str:
        asked = self.ask(*words, given=given)
        assert (asked.ends(), asked.err) == (0, "")
        return asked.out

    def lines(self, *words: object) -> list[Any]:
        return [json.loads(line) for line in self.said(*words, "--json").splitlines()]

    def worker(self, handler: str, service: str, url: str = "") -> Program:
        if not (self.folder / "handlers.py").exists():
            shutil.copy(HANDLERS, self.folder / "handlers.py")
        known = self.broker.err.count("worker joined")
        worker = self.programs.dragoman(
            *("worker", f"handlers:{handler}", "--service", service, "--threads", 1, "--connect", url or self.native)
        )
        until(lambda: self.broker.err.count("worker joined") > known, "it has joined")
        return worker


@pytest.fixture
def setup(programs: Programs, tmp_path: Path) -> Setup:
    return Setup(programs, tmp_path)


def test_a_job_from_its_order_to_its_result(setup: Setup) -> None:
    job = setup.said("enqueue", "up", "-", "--key", "k", "--priority", 7, given=b"gr\xc3\xbc\xc3\x9fe \xff").strip()
    assert setup.said("enqueue", "up", "-", "--key", "k", given=b"gr\xc3\xbc\xc3\x9fe \xff").strip() == job
    early = setup.ask("result", job)
    assert (early.ends(), early.out) == (4, "")
    assert early.err == f"dragoman: timed out: job {job} is still waiting after 0 s\n"
    held = "It holds the key 'k' while its outcome is kept."
    assert setup.said("why", job) == f"It waits: no worker offers 'up'.\n{held}\n"
    setup.worker("upper", "up")
    done = setup.ask("result", job, "--wait", 15)
    assert (done.ends(), done.out_bytes) == (0, b"GR\xc3\xbc\xc3\x9fE \xff")
    shown = setup.said("job", job)
    assert [line.split()[1] for line in shown.splitlines()[:4]] == [job, "up", "ended", "done"]
    (view,) = setup.lines("job", job)
    assert (view["id"], view["outcome"], view["priority"]) == (job, "done", 7)


def test_enqueue_that_waits_prints_the_result(setup: Setup) -> None:
    setup.worker("upper", "up")
    assert setup.said("enqueue", "up", "hello", "--wait", 15) == "HELLO"
    late = setup.ask("enqueue", "nobody", "hello", "--wait", 0.1)
    assert late.ends() == 4
    assert "is still waiting after 0.1 s" in late.err


def test_a_job_that_is_cancelled_has_no_result(setup: Setup) -> None:
    first, second = (setup.said("enqueue", "s", "x").strip() for _ in range(2))
    asked = setup.ask("cancel", first, UNKNOWN, second)
    assert (asked.ends(), asked.out.split()) == (1, [first, second])
    assert f"dragoman: no job has id {UNKNOWN}: " in asked.err
    ended = setup.ask("result", first)
    assert (ended.ends(), ended.out) == (1, "")
    assert "cancelled: cancelled on request" in ended.err
    again = setup.ask("retry", first)
    assert again.ends() == 1
    assert "ended cancelled and is not in quarantine; only quarantined jobs can be retried" in again.err


def test_a_job_in_quarantine_is_tried_again(setup: Setup) -> None:
    setup.worker("slow", "slow")
    job = setup.said("enqueue", "slow", "not a number", "--attempts", 1).strip()
    failed = setup.ask("result", job, "--wait", 15)
    assert failed.ends() == 1
    assert "failed: ValueError: " in failed.err
    assert [each["id"] for each in setup.lines("jobs", "--quarantined")] == [job]
    assert "in quarantine" in setup.said("job", job)
    again = setup.said("retry", job).strip()
    assert setup.lines("job", again)[0]["retry_of"] == job
    assert setup.lines("job", job)[0]["retried_as"] == again
    assert setup.ask("result", again, "--wait", 15).ends() == 1
    assert [each["id"] for each in setup.lines("jobs", "--quarantined")] == [again]
    twice = setup.ask("retry", job)
    assert (twice.ends(), twice.out) == (1, "")
    assert f"it was retried already, as job {again}, which ended failed; retry that one" in twice.err


def test_a_pipeline_gets_all_jobs_of_a_list(setup: Setup) -> None:
    """`jobs --quarantined --json | ... retry` retried 20 of them, and nothing said that there were more."""
    with Client(setup.native) as client:
        names = [client.enqueue("nobody", b"x") for _ in range(25)]
    found = setup.said("jobs", "--service", "nobody", "--json")
    assert [json.loads(line)["id"] for line in found.splitlines()] == names[::-1]
    some = setup.ask("jobs", "--service", "nobody", "--json", "--limit", 3)
    assert (len(some.out.splitlines()), some.err) == (3, "There are more than these 3: --limit shows them.\n")
    cancelled = setup.said("cancel", names[0], "-", given="\n".join(names[1:]).encode())
    assert cancelled.split() == names
    assert setup.said("retry", "-") == ""


def test_text_of_a_failure_is_escaped_by_every_command(setup: Setup) -> None:
    """T14: `dragoman call` printed the text of a worker's failure as it came, escape sequences and all."""
    setup.worker("raises_its_payload", "bad")
    text, escaped = "\x1b]0;owned\x07\nsecond line", r"\x1b]0;owned\x07\nsecond line"
    called = setup.programs.run("call", "bad", "-", "--connect", setup.native, given=text.encode())
    assert (called.ends(), called.err) == (1, f"dragoman: failed: ValueError: {escaped}\n")
    job = setup.said("enqueue", "bad", "-", "--attempts", 1, given=text.encode()).strip()
    result = setup.ask("result", job, "--wait", 15)
    assert (result.ends(), result.err.count(escaped), result.err.count("\n")) == (1, 1, 1)
    for command in ("job", "why", "jobs"):
        said = setup.said(command, *(() if command == "jobs" else (job,)))
        assert escaped in said
        assert "\x1b" not in said


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_a_port_that_speaks_something_else_is_recognised(setup: Setup, dialect: str) -> None:
    """The first bytes of ZMTP were printed as the reason."""
    wrong = setup.native.replace("tcp:", "http:") if dialect == "native" else setup.url.replace("http:", "tcp:")
    asked = setup.programs.run("jobs", "--connect", wrong)
    assert (asked.ends(), asked.out) == (3, "")
    assert asked.err.count("\n") == 1
    assert ("speaks the native dialect over ZMTP" if dialect == "native" else "speaks HTTP") in asked.err
    assert "NULL" not in asked.err


def test_a_job_rests_as_long_as_it_was_told_to(setup: Setup) -> None:
    setup.worker("slow", "slow")
    rests = ["--retry-first", 3600, "--retry-cap", 7200, "--retry-jitter", 0]
    job = setup.said("enqueue", "slow", "not a number", *rests).strip()
    until(lambda: setup.lines("job", job)[0]["state"] == "delayed", "it rests")
    (view,) = setup.lines("job", job)
    rest = datetime.fromisoformat(view["not_before"]) - datetime.fromisoformat(view["created"])
    assert (len(view["attempts"]), rest >= timedelta(seconds=3600)) == (1, True)


def test_jobs_are_listed(setup: Setup) -> None:
    assert setup.ask("jobs").err == "There are no such jobs.\n"
    jobs = [setup.said("enqueue", "s", "x").strip() for _ in range(3)]
    setup.said("enqueue", "t", "x", "--delay", 60)
    assert [each["id"] for each in setup.lines("jobs", "--service", "s")] == jobs[::-1]
    assert [each["service"] for each in setup.lines("jobs", "--state", "delayed")] == ["t"]
    table = setup.said("jobs", "--service", "s").splitlines()
    assert table[0].split() == ["JOB", "SERVICE", "STATE", "AGE", "ATTEMPTS", "REASON"]
    assert [line.split()[:3] for line in table[1:]] == [[job, "s", "waiting"] for job in jobs[::-1]]
    some = setup.ask("jobs", "--limit", 2)
    assert len(some.out.splitlines()) == 3
    assert "more than these 2" in some.err


def test_a_service_is_paused_resumed_and_purged(setup: Setup) -> None:
    setup.said("enqueue", "s", "x")
    assert setup.said("pause", "s", "--by", "Ada") == "s is paused; waiting: 1, running: 0\n"
    table = setup.said("services")
    assert "paused by Ada" in table
    assert "SINCE START: DONE" in table  # the counts begin at 0 with each start, though outcomes are kept
    assert setup.said("resume", "s").startswith("s is not paused any more")
    unasked = setup.ask("purge", "s")
    assert unasked.ends() == 2
    assert "--yes" in unasked.err
    assert setup.said("purge", "s", "--yes") == "1 job of s is cancelled\n"
    assert setup.said("purge", "s", "--ended", "--yes") == "1 job of s is forgotten\n"
    (service,) = setup.lines("services")
    assert (service["name"], service["waiting"]) == ("s", 0)


@pytest.mark.parametrize(("answer", "code", "waiting"), [(b"y\n", 0, 0), (b"n\n", 130, 1)])
def test_purge_asks_on_a_terminal(setup: Setup, answer: bytes, code: int, waiting: int) -> None:
    setup.said("enqueue", "s", "x")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(DRAGOMAN, [DRAGOMAN, "purge", "s", "--connect", setup.url])
    heard = b""
    while b"[y/N]" not in heard:
        heard += os.read(terminal, 1024)
    os.write(terminal, answer)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code
    assert setup.lines("services")[0]["waiting"] == waiting


def test_a_worker_is_listed_and_drained(setup: Setup) -> None:
    worker = setup.worker("upper", "up")
    until(lambda: setup.lines("workers")[0]["state"] == "idle", "it can take a job")
    (listed,) = setup.lines("workers")
    assert (listed["dialect"], listed["services"]) == ("native", ["up"])
    row = setup.said("workers").splitlines()[1]
    short = row.split()[0]
    assert (len(short), str(listed["id"])[-4:]) == (4, short)
    assert row.endswith("up")
    assert f"id          {listed['id']}\n" in setup.said("show-worker", short)
    assert setup.said("drain", short).startswith(f"worker {listed['id']} is ")
    worker.terminate()
    worker.ends()
    until(lambda: setup.lines("workers") == [], "it has gone")
    gone = setup.ask("drain", listed["id"], "--now")
    assert gone.ends() == 1
    assert f"no worker has id {listed['id']}: it has left, or never joined" in gone.err


@pytest.mark.parametrize(
    "url", ["memodb+tcp://127.0.0.1:0", "majordomo+tcp://127.0.0.1:0", "powerhose+tcp://127.0.0.1:0?service=up"]
)
def test_a_worker_that_would_come_back_stays_drained(programs: Programs, tmp_path: Path, url: str) -> None:
    """It was sent away, joined again as a new worker, and got the next job."""
    setup = Setup(programs, tmp_path, url)
    dialect, _, rest = url.partition("+")
    _, _, options = rest.partition("?")
    place = setup.broker.prints(rf"{dialect} +(tcp://\S+)")
    setup.worker("upper", "up", f"{dialect}+{place}?{options}")
    (listed,) = setup.lines("workers")
    assert setup.said("drain", listed["id"]).splitlines() == [
        f"worker {listed['id']} is draining",
        "It stays connected and gets no jobs until you stop or restart it.",
    ]
    job = setup.said("enqueue", "up", "x").strip()
    assert setup.said("why", job) == "It waits: its only worker is not free (1 draining).\n"
    setup.worker("upper", "up")
    assert setup.said("result", job, "--wait", 15) == "X"
    assert {each["id"]: each["state"] for each in setup.lines("workers")}[listed["id"]] == "draining"
    gone = setup.said("drain", listed["id"], "--now")
    assert gone.endswith("Its program is likely to join again, as a new worker that gets jobs: stop it.\n")


def test_recurring_jobs_are_kept(setup: Setup) -> None:
    shown = setup.said("schedule", "set", "poll", "check", "x", "--every", 3600)
    assert "every 3600 s" in shown
    assert "(in 60 min)" in shown
    setup.said("schedule", "set", "nightly", "report", "--cron", "0 3 * * *", "--timezone", "Europe/Vienna", "--paused")
    listed = {each["name"]: each for each in setup.lines("schedule", "list")}
    assert (listed["poll"]["every"], listed["nightly"]["cron"]) == (3600, "0 3 * * *")
    assert "paused" in setup.said("schedule", "show", "nightly")
    assert "not paused any more" in setup.said("schedule", "resume", "nightly")
    assert setup.said("schedule", "pause", "nightly") == "nightly is paused\n"
    assert "poll" in setup.said("schedule", "list")
    assert setup.said("schedule", "remove", "poll") == "poll is removed\n"
    assert setup.ask("schedule", "show", "poll").ends() == 1


def test_quarantine_is_listed_by_cause_and_retried_after_the_cause_is_fixed(setup: Setup) -> None:
    assert setup.lines("quarantine") == []
    worker = setup.worker("raises_its_payload", "up")
    for word in ("row 1", "row 22"):
        job = setup.said("enqueue", "up", word, "--attempts", 1).strip()
        assert setup.ask("result", job, "--wait", 15).ends() != 0
    (group,) = setup.lines("quarantine")
    assert (group["service"], group["count"], group["example"]) == ("up", 2, job)
    assert group["group"] in setup.said("quarantine")
    worker.terminate()
    worker.ends()
    setup.worker("upper", "up")
    assert setup.said("quarantine", "retry", group["group"], "--rate", 1000).endswith(" of 2 jobs retried so far\n")
    until(lambda: setup.lines("quarantine") == [], "all are retried")
    until(lambda: '"group retried"' in setup.broker.err, "the log has a line")
    (again,) = [each for each in setup.lines("jobs") if each["retry_of"] == job]
    assert setup.said("result", again["id"], "--wait", 15) == "ROW 22"
    unknown = setup.ask("quarantine", "retry", "0" * 16)
    assert unknown.ends() == 1
    assert "no group of the quarantine has id" in unknown.err


def test_schedule_is_run_on_request(setup: Setup) -> None:
    setup.said("schedule", "set", "nightly", "up", "night", "--cron", "0 3 * * *", "--timezone", "Europe/Vienna")
    setup.worker("upper", "up")
    job = setup.said("schedule", "run", "nightly").strip()
    assert setup.said("result", job, "--wait", 15) == "NIGHT"
    shown = setup.said("schedule", "show", "nightly")
    assert "every day at 03:00, Europe/Vienna" in shown
    assert dict(line.split(maxsplit=1) for line in shown.splitlines())["recent"] == "d"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["schedule", "set", "x", "s"], "a schedule needs exactly one of --cron and --every"),
        (["schedule", "set", "x", "s", "--cron", "nonsense"], "a cron expression has five"),
        (["job", "xyz"], "dragoman: job 'xyz': a job's id has 32 lower-case hex digits, as"),
        (
            ["enqueue", "a\x07b"],
            "dragoman: enqueue: service: must not have control characters or others that cannot be seen\n",
        ),
        (["enqueue", "s", "--priority", "10"], "--priority"),
        (["drain", "nonsense"], "nonsense"),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, list) else None,
)
def test_what_cannot_be_meant_ends_with_2(setup: Setup, words: list[str], complaint: str) -> None:
    asked = setup.ask(*words)
    assert asked.ends() == 2
    assert complaint in asked.err
    assert "Traceback" not in asked.err


def test_health(setup: Setup) -> None:
    assert "broker       ready" in setup.said("health")
    (view,) = setup.lines("health")
    assert (view["ready"], view["problems"]) == (True, [])


def test_names_from_strangers_do_not_reach_the_terminal(setup: Setup) -> None:
    """T14."""
    setup.said("enqueue", "s", "\x1b[31mred\u202e")
    setup.said("pause", "s", "--by", "\x1b[2J")
    for words in (["services"], ["jobs"], ["why", setup.lines("jobs")[0]["id"]], ["job", setup.lines("jobs")[0]["id"]]):
        shown = setup.said(*words)
        assert all(each.isprintable() or each == "\n" for each in shown), shown
    assert "\\x1b[2J" in setup.said("services")


@pytest.mark.parametrize("scheme", ["http+unix", "http+ipc"])
def test_a_broker_may_listen_on_a_unix_socket(programs: Programs, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://{tmp_path}/s"
    programs.dragoman("serve", url, "--data", "memory").prints("is listening")
    assert "broker       ready" in programs.run("health", "--connect", url).out


# ---------------------------------------------------------------- no broker

COMMANDS = [
    ["enqueue", "s", "x"],
    ["result", UNKNOWN],
    ["job", UNKNOWN],
    ["jobs"],
    ["cancel", UNKNOWN],
    ["retry", UNKNOWN],
    ["services"],
    ["workers"],
    ["why", UNKNOWN],
    ["pause", "s"],
    ["resume", "s"],
    ["drain", "1"],
    ["purge", "s", "--yes"],
    ["schedule", "list"],
    ["health"],
]


def run(*words: str) -> Result:
    """Run a command within this process, which is faster."""
    return command_runner().invoke(dragoman, words)


@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_a_host_without_an_address_is_named(scheme: str) -> None:
    asked = run("jobs", "--connect", f"{scheme}://no.such.host.invalid:1")
    assert (asked.exit_code, asked.stdout) == (3, "")
    assert "cannot resolve 'no.such.host.invalid'" in asked.stderr
    assert asked.stderr.endswith(". Correct the name of the host, or name another address with --connect\n")


@pytest.mark.parametrize("scheme", ["http", "tcp"])
@pytest.mark.parametrize("words", [*COMMANDS, ["call", "s", "x"]], ids=lambda words: words[0])
def test_without_a_broker_a_command_ends_with_3_and_says_what_to_do(words: list[str], scheme: str) -> None:
    asked = run(*words, "--connect", f"{scheme}://127.0.0.1:1")
    assert (asked.exit_code, asked.stdout) == (3, "")
    assert asked.stderr == (
        "dragoman: no broker answers at 127.0.0.1:1: connection refused. "
        "Start a broker with `dragoman serve`, or name its address with --connect\n"
    )


@pytest.mark.parametrize("words", [*COMMANDS, ["call", "s", "x"]], ids=lambda words: words[0])
def test_the_address_in_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("DRAGOMAN_URL", "http://127.0.0.1:1")
    asked = run(*words)
    assert (asked.exit_code, "no broker answers at 127.0.0.1:1:" in asked.stderr) == (3, True)
    other = run(*words, "--connect", "tcp://127.0.0.1:2")
    assert (other.exit_code, "no broker answers at 127.0.0.1:2:" in other.stderr) == (3, True)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "'://' is missing"),
        ("htps://127.0.0.1:1", "unknown scheme 'htps' (did you mean 'https'?)"),
        ("http://", "host and port are missing"),
        ("http://h:port", "the port 'port' is not a number"),
        ("pingpong+tcp://127.0.0.1:7402", "pingpong does not support background jobs; use a native URL"),
    ],
)
def test_an_address_that_cannot_be_used_ends_with_2(url: str, complaint: str) -> None:
    asked = run("jobs", "--connect", url)
    assert asked.exit_code == 2
    assert complaint in asked.stderr


@pytest.mark.parametrize(
    "words", [["jobs"], ["call", "s", "x"], ["worker", "--exec", "cat"]], ids=lambda words: words[0]
)
def test_a_bad_address_of_the_environment_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_URL", "tpc://127.0.0.1:1")
    asked = run(*words)
    assert asked.exit_code == 2
    assert asked.stderr.startswith(
        "dragoman: bad address 'tpc://127.0.0.1:1' (the value of DRAGOMAN_URL): unknown scheme"
    )
    given = run(*words, "--connect", "tcp://127.0.0.1")
    assert (given.exit_code, given.stderr) == (
        2,
        "dragoman: --connect: bad address 'tcp://127.0.0.1': the port is missing; write 127.0.0.1:PORT (the broker "
        "prints its ports when it starts)\n",
    )


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_has_help_with_examples(words: list[str]) -> None:
    helped = run(words[0], "--help")
    assert helped.exit_code == 0
    assert f"dragoman {words[0]}" in helped.stdout.partition("Examples:")[2]


def test_every_command_stands_in_one_section_of_the_help() -> None:
    context = click.Context(dragoman)
    listed = dragoman.list_commands(context)
    assert len(listed) == len(set(listed)) > len(MODULES)
    helped = run("--help").stdout
    for name in listed:
        command = dragoman.get_command(context, name)
        assert (command is not None and command.name, helped.count(f"\n  {name} ")) == (name, 1)
    assert all(f"\n{title}:\n" in helped for title in SECTIONS)


@pytest.mark.parametrize("status", [b"404 Not Found", b"200 OK"])
def test_whoever_answers_may_be_no_broker(status: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            stranger, _ = listening.accept()
            with stranger:
                stranger.recv(65536)
                stranger.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno")

        answering = threading.Thread(target=answer)
        answering.start()
        asked = run("jobs", "--connect", f"http://127.0.0.1:{listening.getsockname()[1]}")
        answering.join()
    assert asked.exit_code == 3
    assert "it speaks HTTP, but is no broker: its answer to the first request was" in asked.stderr

"""Ladders of real programs: the rescue of a job whose worker is killed, as text while it happens and as a file."""

from __future__ import annotations

import json
from pathlib import Path

from programs import Programs


def test_the_rescue_of_a_job_is_followed_and_saved(programs: Programs, tmp_path: Path) -> None:
    broker = programs.dragoman(
        *("serve", "http://127.0.0.1:0", "tcp://127.0.0.1:0", "pingpong+tcp://127.0.0.1:0?frontend=0"),
        *("--data", "memory"),
    )
    http, native = broker.prints(r"(http://\S+) +both"), broker.prints(r"native +(tcp://\S+)")
    backend = broker.prints(r"pingpong +(tcp://\S+) +workers")
    job = programs.run("enqueue", "default", "hello", "--connect", http)
    assert job.ends() == 0
    id = job.out.strip()
    follower = programs.dragoman("tail", "--ladder", id, "--save", tmp_path / "followed.svg", "--connect", http)
    follower.prints("POST /v1/jobs")
    first = programs.dragoman("worker", "--exec", "sleep 600", "--connect", f"pingpong+{backend}")
    follower.prints("broker --- job -->")
    first.kill()
    follower.prints("lost; retry in")
    programs.dragoman("worker", "--exec", "tr a-z A-Z", "--connect", native)
    assert follower.ends() == 0
    lines = [line[12:] for line in follower.out.splitlines()]
    order = ["-- Attempt 1 of 3", "--- job -->", " x ", "(lost; retry", "-- Attempt 2 of 3", "--- JOB -->", "(done)"]
    found = [next(index for index, line in enumerate(lines) if part in line) for part in order]
    assert found == sorted(found)

    assert "Attempt 2 of 3" in (tmp_path / "followed.svg").read_text()
    for name in ("story.svg", "story.mmd", "story.json", "story.txt"):
        assert programs.run("ladder", id, "--save", tmp_path / name, "--connect", native).ends() == 0
    assert (tmp_path / "story.svg").read_text().startswith('<svg class="ladder"')
    assert json.loads((tmp_path / "story.json").read_text())["recorded"] == "messages"
    shown = programs.run("ladder", id, "--connect", http)
    assert shown.ends() == 0
    assert (tmp_path / "story.txt").read_text() == shown.out

    workers = programs.run("workers", "--json", "--connect", http)
    assert workers.ends() == 0
    number = str(json.loads(workers.out.splitlines()[-1])["id"])
    assert programs.run("ladder", number, "--worker", "--connect", http).ends() == 0
    assert programs.run("call", "default", "again", "--connect", native).ends() == 0
    worker = programs.run("ladder", number, "--connect", http)
    assert worker.ends() == 0
    assert "broker --- JOB -->" in worker.out


def test_a_broker_without_ladders_says_so_and_a_wrong_target_is_an_error(programs: Programs) -> None:
    broker = programs.dragoman("serve", "http://127.0.0.1:0", "--data", "memory", "--no-ladders")
    http = broker.prints(r"(http://\S+) +both")
    job = programs.run("enqueue", "default", "hello", "--connect", http)
    assert job.ends() == 0
    refused = programs.run("ladder", job.out.strip(), "--connect", http)
    assert refused.ends() == 1
    assert "start it with --ladders" in refused.err
    assert programs.run("ladder", "what", "--connect", http).ends() == 2
    assert programs.run("tail", "--save", "x.svg", "--connect", http).ends() == 2
    assert programs.run("tail", "--ladder", "1", "--failed", "--connect", http).ends() == 2
    assert programs.run("ladder", "1", "--save", "x.png", "--connect", http).ends() == 2

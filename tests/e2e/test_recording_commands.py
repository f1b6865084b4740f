"""`dragoman serve --record` and `dragoman replay` as users type them."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from dragoman.cli.exit_codes import DISK, FAILED, TAKEN, USAGE
from programs import Program, Programs, until

URL = "tcp://127.0.0.1:0"


def recorded_broker(programs: Programs, file: Path, *words: object) -> tuple[Program, str]:
    """Start a broker that is recorded. Returns it and its address."""
    flags = ("--data", programs.folder / "data", "--log", "json", "--record", file)
    broker = programs.dragoman("serve", URL, *flags, *words)
    return broker, f"tcp://{broker.prints(r'(127.0.0.1:[1-9][0-9]*)')}"


def lines_of(replay: Program) -> list[str]:
    assert replay.ends() == 0, replay.err
    return replay.out.splitlines()


def test_runs_with_killed_workers_and_a_killed_broker_are_replayed(programs: Programs) -> None:
    """The first run ends with SIGKILL while a job runs, the second in order. Both recordings have all outcomes."""
    files = [programs.folder / "1.rec", programs.folder / "2.rec"]
    broker, address = recorded_broker(programs, files[0])
    begun = programs.folder / "begun"
    program = programs.folder / "program.sh"
    program.write_text(f"cat && echo x >> {begun} && test $(wc -l < {begun}) -ge 3 || exec sleep 600\n")
    script = f"sh {program}"
    worker = programs.dragoman("worker", "--exec", script, "--service", "work", "--connect", address)
    options = ("--retry-first", "0.01", "--attempts", "5", "--connect", address)
    id = programs.run("enqueue", "work", "hello", *options).out.strip()
    until(begun.exists, "the job has begun")
    worker.kill()
    worker = programs.dragoman("worker", "--exec", script, "--service", "work", "--connect", address)
    until(lambda: len(begun.read_text().splitlines()) == 2, "another worker has begun it")
    broker.signal(signal.SIGKILL)
    broker.ends()
    worker.kill()
    broker, address = recorded_broker(programs, files[1], "--set", "worker_resume_timeout=0.1")
    programs.dragoman("worker", "--exec", script, "--service", "work", "--connect", address)
    until(lambda: programs.run("result", id, "--wait", "10", "--connect", address).out == "hello", "the job is done")
    broker.terminate()
    assert broker.ends() == 0

    first = programs.run("replay", files[0])
    assert lines_of(first)[-1].endswith("jobs ended: none")
    assert "the recording is cut off" in first.err
    *ended, last = lines_of(programs.run("replay", files[1], "--strict"))
    assert [line.split()[1:] for line in ended] == [[id, "work", "done"]]
    assert re.fullmatch(r"same decisions in \d+ items; jobs ended: 1 done", last)
    ladder = lines_of(programs.run("replay", files[1], "--ladder", id))
    assert ladder[0].startswith(f"Job {id}: ")
    assert any("--- RESULT --> broker" in line for line in ladder)
    assert ladder[-1] == last
    unknown = programs.run("replay", files[1], "--ladder", "0" * 32)
    assert unknown.ends() == USAGE
    assert "the recording has no such job" in unknown.err


def test_a_broker_does_not_start_if_it_cannot_record(programs: Programs) -> None:
    file = programs.folder / "run.rec"
    file.write_text("kept")
    for words, code, message in (
        (("--record", file), TAKEN, "the file exists; choose another name, or remove it"),
        (("--record", "/dev/full"), DISK, "No space left on device; choose another place"),
        (("--record", programs.folder / "none" / "run.rec"), DISK, "No such file or directory; choose another place"),
        (("--record-payloads",), USAGE, "have no effect without --record FILE"),
    ):
        refused = programs.dragoman("serve", URL, "--data", "memory", *words)
        assert refused.ends() == code
        assert message in refused.err
    assert file.read_text() == "kept"


def test_a_recording_is_no_larger_than_its_limit(programs: Programs) -> None:
    file = programs.folder / "run.rec"
    broker, address = recorded_broker(programs, file, "--record-size", 5000)
    until(lambda: programs.run("health", "--connect", address) and "recording stopped" in broker.err, "it is full")
    broker.terminate()
    assert broker.ends() == 0
    assert file.stat().st_size < 5100
    assert lines_of(programs.run("replay", file, "--quiet"))[-1].startswith("same decisions in ")


def test_a_file_that_is_no_recording_is_refused(programs: Programs) -> None:
    file = programs.folder / "other"
    file.write_text("text")
    begun = programs.folder / "begun"
    begun.write_bytes(b"dragoman recording 1\n\0\0\0")  # the broker was killed while it wrote its first chunk
    for name, code, message in (
        (file, FAILED, "is not a recording"),
        ("none", USAGE, "No such file"),
        (begun, FAILED, "cut off before the settings of its broker"),
    ):
        refused = programs.run("replay", name)
        assert refused.ends() == code
        assert message in refused.err

"""The programs on the pages about Python, run as they are printed, with a broker and workers for what they call."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Client, Context, JobFailed, LocalBroker, Worker
from page_reader import ROOT
from programs import PATIENCE, Programs

ADDRESS = "tcp://127.0.0.1:7400"  # of the broker, on both pages


def programs_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


# -------------------------------------------------------------------- clients

NAMES = {
    "big": b"1234567890",
    "images": [b"one", b"two"],
    "scenes": [b"scene 2", b"scene 3"],
    "pictures": [b"1234567890"] * 3,
}  # that the page has not


def resize(image: bytes) -> bytes:
    return image[:5]


def describe(request: dict[str, int]) -> str:
    return f"picture {request['picture']}"


def render(scene: bytes, ctx: Context) -> bytes:
    ctx.progress(3, 10)
    ctx.emit(b"part of " + scene)
    return b"rest"


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        worker = Worker(broker.url, threads=2)
        for function in (resize, render):
            worker.service(function)
        worker.service("describe", codec="json")(describe)
        worker.offer_python_calls("python")
        thread = threading.Thread(target=worker.run)
        thread.start()
        broker.wait_for_workers(service="python")
        yield broker
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_every_program_of_the_page_about_clients_runs(
    broker: LocalBroker, capsys: pytest.CaptureFixture[str], dragoman_client: Client[bytes]
) -> None:
    printed = []
    for program in programs_of("python.md"):
        names: dict[str, Any] = {**NAMES, "__name__": "program"}
        exec(compile(program.replace(ADDRESS, broker.url), "python.md", "exec"), names)
        if "test_what_happens_without_workers" in names:
            names["test_what_happens_without_workers"](dragoman_client)
        printed.append(capsys.readouterr().out)
    calls, codec, jobs, background, keys, after, many, awaited, functions, services, local = printed
    assert re.fullmatch(r"3\n3\n[0-9a-f]{32} b'12345'\n", calls)
    assert codec == "picture 42\n"
    assert keys == "done\n"
    assert "b'part of scene 1'\n" in jobs
    assert "{'done': 3, 'total': 10} b'rest'\n" in jobs
    assert len(re.findall(r"^[0-9a-f]{32} b'rest'$", jobs, re.MULTILINE)) == 2
    assert background.count("\n") == 1, "a sentence"
    assert after == ""
    assert re.fullmatch(r"[0-3] of 3\n", many)
    assert awaited == "3\n3\nb'12345'\n"
    assert functions == "[32, 9]\n"
    assert services == "[3, 3]\n"
    assert "resize" in local


# -------------------------------------------------------------------- workers


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.end_all()


def test_every_program_of_the_page_about_workers_runs(programs: Programs) -> None:
    images, frames, functions = programs_of("workers.md")
    with LocalBroker() as broker, broker.client(codec="json") as client:
        programs.environment["DRAGOMAN_URL"] = broker.url
        for name, text in {"images": images, "frames": frames, "functions": functions}.items():
            (programs.folder / f"{name}.py").write_text(text.replace(ADDRESS, broker.url))
        started = [
            programs.start(sys.executable, "images.py"),
            programs.dragoman("worker", "frames:worker"),
            programs.start(sys.executable, "functions.py"),
        ]
        for service in ("resize", "frames", "python"):
            broker.wait_for_workers(service=service, timeout=4 * PATIENCE)
        assert client.call("resize", b"x" * 200, codec="bytes", timeout=PATIENCE) == b"x" * 100
        job = client.submit("frames", {"frames": 3}, timeout=PATIENCE)
        assert [*job.parts(), job.result()] == [{"frame": 0}, {"frame": 1}, {"frame": 2}, "that was all"]
        with client.executor("python", codec="pickle") as pool:
            assert pool.submit(pow, 2, 5).result(PATIENCE) == 32
            with pytest.raises(JobFailed):
                pool.submit(int, "many").result(PATIENCE)
        for each in started:
            each.terminate()
        assert [each.ends() for each in started] == [0, 0, 0]

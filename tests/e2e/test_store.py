"""Stores that were damaged after a kill, or removed under a running broker."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from programs import PATIENCE, Program, Programs, until

FIXTURES = Path(__file__).parents[1] / "fixtures" / "store-2885e3f"


def serve(programs: Programs, folder: Path) -> tuple[Program, str]:
    broker = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    return broker, broker.prints(r"(http://\S+) +both")


def ask(url: str, data: bytes | None = None) -> tuple[int, str]:
    try:
        with urlopen(Request(url, data=data), timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def enqueue(http: str, count: int) -> list[str]:
    ids = []
    for number in range(count):
        status, body = ask(f"{http}/v1/jobs?service=s", b"payload %d" % number)
        assert status == 202, body
        ids.append(json.loads(body)["id"])
    return ids


def known(http: str) -> set[str]:
    until(lambda: not json.loads(ask(f"{http}/v1/health")[1])["loading"], "all jobs are read")
    return {each["id"] for each in json.loads(ask(f"{http}/v1/jobs?limit=1000")[1])["jobs"]}


def test_log_that_is_damaged_after_a_kill_is_refused_and_recovered(programs: Programs, tmp_path: Path) -> None:
    """R129."""
    folder = tmp_path / "data"
    broker, http = serve(programs, folder)
    ids = enqueue(http, 30)
    broker.kill()
    log = folder / "store.db-wal"
    content = bytearray(log.read_bytes())
    content[len(content.rstrip(b"\0")) // 4] ^= 0xFF  # zeros at its end are room
    log.write_bytes(content)
    refused = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    assert refused.ends() == 74
    assert "dragoman store recover" in refused.err
    assert "Traceback" not in refused.err
    checked = programs.run("store", "check", folder)
    assert checked.process.returncode == 74
    recovered = programs.run("store", "recover", folder)
    assert recovered.process.returncode == 0
    assert "recovered: 30 jobs" in recovered.out
    _, http = serve(programs, folder)
    assert known(http) == set(ids)


def test_killed_broker_starts_again_without_a_word(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ids: list[str] = []
    for _ in range(3):
        broker, http = serve(programs, folder)
        assert known(http) == set(ids)
        ids += enqueue(http, 5)
        broker.kill()
        assert programs.run("store", "check", folder).out == "in order\n"


def test_backup_in_a_folder_that_knows_of_more_starts_after_it_was_accepted(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    broker, http = serve(programs, folder)
    ids = enqueue(http, 2)
    broker.terminate()
    assert broker.ends() == 0
    backup = (folder / "store.db").read_bytes()
    broker, http = serve(programs, folder)
    enqueue(http, 2)
    broker.terminate()
    assert broker.ends() == 0
    (folder / "store.db").write_bytes(backup)
    refused = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    assert refused.ends() == 74
    assert "2 jobs that were accepted between these times are missing" in refused.err
    accepted = programs.run("store", "accept", folder)
    assert accepted.out == "accepted: the next broker starts with the store in this folder\n"
    _, http = serve(programs, folder)
    assert known(http) == set(ids)


@pytest.mark.parametrize("left", [("epoch",), ("epoch", "commits")])
def test_epoch_without_a_store_is_refused(programs: Programs, tmp_path: Path, left: tuple[str, ...]) -> None:
    folder = tmp_path / "data"
    broker, http = serve(programs, folder)
    enqueue(http, 1)
    broker.kill()
    for each in folder.iterdir():
        if each.name not in left:
            each.unlink()
    refused = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    assert refused.ends() == 74
    assert "the file is gone or empty" in refused.err
    assert programs.run("store", "check", folder).process.returncode == 74
    assert programs.run("store", "recover", folder).process.returncode == 74
    assert programs.run("store", "accept", folder).process.returncode == 0
    serve(programs, folder)


@pytest.mark.parametrize("kind", ["stopped", "killed"])
def test_folder_of_the_release_before_is_served(programs: Programs, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    shutil.copytree(FIXTURES / kind, folder)
    ids = json.loads((folder / "ids.json").read_text())
    broker, http = serve(programs, folder)
    broker.prints("store upgraded")
    assert {*ids["waiting"], *ids["delayed"]} <= known(http)
    broker.terminate()
    assert broker.ends() == 0
    assert programs.run("store", "check", folder).out == "in order\n"


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_files_that_are_gone_are_noticed_and_saved(programs: Programs, tmp_path: Path, way: str) -> None:
    """R130. It went on to answer 202, and 200 to /readyz."""
    folder, saved = tmp_path / "data", tmp_path / "saved"
    broker, http = serve(programs, folder)
    ids = enqueue(http, 20)
    epoch = (folder / "epoch").read_text()
    shutil.rmtree(folder)
    if way == "replaced":
        folder.mkdir()
        (folder / "store.db").touch()
    status, body = ask(f"{http}/v1/jobs?service=s", b"too late")
    assert status == 507
    assert "dragoman store rescue" in json.loads(body)["detail"]
    status, body = ask(f"{http}/readyz")
    assert status == 503
    assert ("was removed" if way == "removed" else "was replaced") in body
    assert ask(f"{http}/livez")[0] == 200
    broker.prints("store files lost")
    assert len(re.findall("store files lost", broker.err)) == 1
    rescued = programs.run("store", "rescue", broker.pid, saved)
    assert (rescued.process.returncode, rescued.err) == (0, "")
    assert "in order" in rescued.out
    assert (saved / "epoch").read_text() == epoch
    again = programs.run("store", "rescue", broker.pid, saved)
    assert again.process.returncode == 74
    assert "name an empty folder" in again.err
    broker.signal(signal.SIGTERM)
    assert broker.ends() == 74
    _, http = serve(programs, saved)
    assert known(http) == set(ids)


def test_rescue_of_what_is_no_broker_says_so(programs: Programs, tmp_path: Path) -> None:
    stranger = programs.start("sleep", 60)
    other = programs.run("store", "rescue", stranger.pid, tmp_path / "saved")
    assert other.process.returncode == 74
    assert f"process {stranger.pid} has no store.db open" in other.err
    gone = programs.start("true")
    gone.ends()
    none = programs.run("store", "rescue", gone.pid, tmp_path / "saved")
    assert none.process.returncode == 74
    assert f"there is no process {gone.pid}" in none.err


def test_check_and_the_start_agree_about_an_epoch_that_is_no_number(programs: Programs, tmp_path: Path) -> None:
    """A bug: the start refused the folder, and the check found it in order."""
    folder = tmp_path / "data"
    broker, http = serve(programs, folder)
    enqueue(http, 1)
    broker.terminate()
    assert broker.ends() == 0
    (folder / "epoch").write_text("")
    refused = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    assert refused.ends() == 74
    checked = programs.run("store", "check", folder)
    assert checked.ends() == 74
    assert "does not contain a number" in checked.err
    recovered = programs.run("store", "recover", folder)
    assert recovered.ends() == 0
    again = programs.dragoman("serve", "http://127.0.0.1:0", "--data", str(folder))
    again.prints("jobs restored")

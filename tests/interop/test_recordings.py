"""Recordings of a broker with real sockets, and their replay: chaos in four dialects."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import zmq
from broker_setup import Journal, LoopThread

from dragoman import Client
from dragoman.access.folder import principal_path
from dragoman.access.location import AccessPlaces
from dragoman.access.tokens import new_token, token_hash
from dragoman.core.events import Event
from dragoman.core.states import Outcome
from dragoman.dialects.native import codec as native
from dragoman.dialects.native.messages import ASK, HEARTBEAT, JOB, TELL, Hello, Role, SubmitHeader
from dragoman.recording.file import Recording, RecordingError, RecordingWriter
from dragoman.recording.item_reader import Diverged
from dragoman.recording.items import ASK as ASK_ITEM
from dragoman.recording.items import HTTP, JOURNAL, LISTEN, SLICE, Item
from dragoman.recording.journal import KINDS, entry_of
from dragoman.recording.recorder import Recorder
from dragoman.recording.replay import Replay
from dragoman.server.config import Config
from dragoman.server.serve import Server
from programs import PATIENCE, until

SECRET = b"a payload that no other party may read"
TOLD = "the worker's private error"
STEPS = 100


class RecordedBroker(LoopThread):
    """A whole broker that is recorded."""

    def __init__(self, file: Path, *urls: str, payloads: bool = False, folder: Path | None = None, access: Any = None):
        super().__init__("auto")
        self.journal = Journal()
        self.entries: list[tuple[Any, ...]] = []
        self.file = file
        self.recorder = recorder = Recorder(file, payloads=payloads)
        told = Config(listen=urls, data="memory", strict=True, drain_timeout=0.1)

        def make() -> Server:
            return Server(self.loop, told, 1, self.journal, folder=folder, access=access, taps=recorder)

        self.server: Server = self.run(make)
        self.run(self.server.broker.events.subscribe, KINDS, self._published)
        self.places = [dict(places) for _, places in self.run(self.server.listen)]

    def stop(self) -> None:
        """Stop the broker in order."""

        async def stopped() -> None:
            self.server.drain()
            await self.server.stopped
            self.server.close()

        asyncio.run_coroutine_threadsafe(stopped(), self.loop).result(PATIENCE)
        super().close()
        assert not self.troubles, self.troubles

    def _published(self, event: Event, now: float) -> None:
        self.entries.append(entry_of(event))


def replayed(file: Path, *, strict: bool = False) -> list[tuple[Any, ...]]:
    """Replay a recording. Returns its journal."""
    entries = []
    Replay(file, lambda event, seconds: entries.append(entry_of(event)), strict=strict).run()
    return entries


class HttpHand:
    """An HTTP client that sends each request on a connection of its own."""

    def __init__(self, url: str, **headers: str) -> None:
        self.place = url.removeprefix("http://")
        self._headers = headers

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        named = {name.replace("_", "-"): each for name, each in (self._headers | headers).items()}
        try:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def join(self, service: str) -> HttpWorker:
        asked = json.dumps({"services": [service], "limits": {service: {"max_running": 90, "rate": "5000/s"}}}).encode()
        status, _, body = self.ask("POST", "/v1/workers", asked, Content_Type="application/json")
        assert status == 201, body
        view = json.loads(body)
        return HttpWorker(f"/v1/workers/{view['id']}", {"Dragoman_Worker_Token": view["token"]})


@dataclass(frozen=True)
class HttpWorker:
    """A worker that has joined: its address, and the header with its token."""

    path: str
    secret: dict[str, str]


class Chaos:
    """Clients and workers of four dialects that do anything at any time, by their seed."""

    def __init__(self, broker: RecordedBroker, seed: int) -> None:
        self.chance = random.Random(seed)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sockets: dict[str, list[zmq.Socket[bytes]]] = {}
        self.done = 0  # jobs that a worker has answered
        native_place, majordomo, pingpong, http_place = broker.places
        self._places = {
            "native client": native_place["both"],
            "native worker": native_place["both"],
            "majordomo client": majordomo["both"],
            "majordomo worker": majordomo["both"],
            "pingpong client": pingpong["callers"],
            "pingpong worker": pingpong["workers"],
        }
        self._http = HttpHand(http_place["both"])
        self._greetings: dict[str, list[bytes]] = {
            "native client": [bytes(each) for each in native.write_hello(Hello(Role.CLIENT, session="ab" * 16))],
            "native worker": [
                bytes(each) for each in native.write_hello(Hello(Role.WORKER, services=("work",), capacity=2))
            ],
            "majordomo worker": [b"", b"MDPW01", b"\x01", b"work"],
            "pingpong worker": [b"", b"READY"],
        }
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (6, self._connect),
            (3, self._cut),
            (30, self._submit),
            (40, self._work),
            (4, self._send_garbage),
            (3, self._enqueue),
            (3, self._call_and_leave),
            (3, self._work_over_http),
        ]

        for kind in self._places:
            self._open(kind)

    def run(self, steps: int) -> None:
        weights = [weight for weight, _ in self._acts]
        for _ in range(steps):
            [(_, act)] = self.chance.choices(self._acts, weights)
            act()

    def close(self) -> None:
        self.context.destroy(linger=0)

    def _open(self, kind: str) -> None:
        opened = self.context.socket(zmq.DEALER)
        opened.linger = 0
        opened.connect(self._places[kind])
        if kind in self._greetings:
            opened.send_multipart(self._greetings[kind])
        self.sockets.setdefault(kind, []).append(opened)

    def _connect(self) -> None:
        self._open(self.chance.choice(list(self._places)))

    def _cut(self) -> None:
        kind = self.chance.choice(list(self._places))
        if len(self.sockets[kind]) > 1:
            self.sockets[kind].pop(self.chance.randrange(len(self.sockets[kind]))).close(linger=0)

    def _payload(self) -> bytes:
        return SECRET + str(self.chance.randrange(20)).encode() * self.chance.choice((0, 1, 50_000))

    def _submit(self) -> None:
        kind = self.chance.choice(("native client", "majordomo client", "pingpong client"))
        head = native.write_order(SubmitHeader("work", deadline=self.chance.choice((0.05, 5.0))))
        frames = {
            "native client": [head, self.chance.randbytes(16), self._payload()],
            "majordomo client": [b"", b"MDPC01", b"work", self._payload()],
            "pingpong client": [b"", self._payload()],
        }
        self._send(kind, frames[kind])

    def _work(self) -> None:
        """Receive what a worker has received, and answer it, or not."""
        kind = self.chance.choice(("native worker", "majordomo worker", "pingpong worker"))
        for worker in list(self.sockets[kind]):
            while not worker.closed:
                try:
                    message = worker.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self._answer(kind, worker, message)

    def _answer(self, kind: str, worker: zmq.Socket[bytes], message: list[bytes]) -> None:
        fate = self.chance.random()
        if fate < 0.1:  # it dies
            self.sockets[kind].remove(worker)
            worker.close(linger=0)
            self._open(kind)
        elif fate < 0.85:  # otherwise it never answers
            frames: list[list[bytes]] = []
            if kind == "native worker" and message[0][0] == JOB:
                frames = [self._native_result(job.token) for job in native.read_jobs(list(message))]
            elif kind == "majordomo worker" and message[2] == b"\x02":
                frames = [[b"", b"MDPW01", b"\x03", message[3], b"", SECRET]]
            elif kind == "pingpong worker" and len(message) == 2 and message[1] != b"PONG":
                frames = [[b"", message[1]]]
            for each in frames:
                with suppress(zmq.Again):
                    worker.send_multipart(each, zmq.NOBLOCK)
                    self.done += 1

    def _native_result(self, token: bytes) -> list[bytes]:
        if self.chance.random() < 0.2:
            return [bytes(each) for each in native.write_failed(Outcome.FAILED, token, "ValueError", TOLD, TOLD)]
        return [bytes(each) for each in native.write_result([token], [SECRET])]

    def _send_garbage(self) -> None:
        kind = self.chance.choice(list(self._places))
        garbage = [[SECRET], [b"", SECRET, SECRET, SECRET], [bytes((HEARTBEAT,)), b"x"], [bytes((ASK,)), b"{"]]
        self._send(kind, self.chance.choice(garbage))

    def _send(self, kind: str, frames: list[bytes]) -> None:
        with suppress(zmq.Again):
            self.chance.choice(self.sockets[kind]).send_multipart(frames, zmq.NOBLOCK)

    # ---------------------------------------------------------------- HTTP

    def _enqueue(self) -> None:
        key = {"Idempotency_Key": f"key-{self.chance.randrange(3)}"} if self.chance.random() < 0.5 else {}
        status, _, _ = self._http.ask("POST", "/v1/jobs?service=work&retry_first=0.01", self._payload(), **key)
        assert status in (200, 202, 409), status
        assert self._http.ask("GET", "/v1/services")[0] == 200

    def _call_and_leave(self) -> None:
        host, port = self._http.place.rsplit(":", 1)
        with socket.create_connection((host, int(port)), PATIENCE) as caller:
            caller.sendall(b"POST /v1/call/work HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello")

    def _work_over_http(self) -> None:
        worker = self._http.join("work")
        status, headers, _ = self._http.ask("POST", f"{worker.path}/next?wait=0.05", **worker.secret)
        if status == 200 and self.chance.random() < 0.7:
            outcome = self.chance.choice(("done", "failed"))
            named = {"Dragoman_Attempt": headers["dragoman-attempt"]}
            self._http.ask("POST", f"{worker.path}/result?outcome={outcome}", SECRET, **worker.secret, **named)
        if self.chance.random() < 0.5:
            self._http.ask("DELETE", worker.path, **worker.secret)


URLS = (
    "tcp://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0?heartbeat=0.3&liveness=2&job_timeout=0.3",
    "pingpong+tcp://127.0.0.1:0?frontend=0&service=work&job_timeout=0.2",
    "http://127.0.0.1:0",
)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_chaotic_run_is_replayed_to_the_same_journal(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "run.rec"
    broker = RecordedBroker(file, *URLS, payloads=seed == 2)
    chaos = Chaos(broker, seed)

    def has_seen_enough() -> bool:
        chaos.run(STEPS)
        return {"done", "failed", "timed out", "lost"} <= {entry[-1] for entry in broker.entries}

    try:
        until(has_seen_enough, "jobs have ended in every way")
    finally:
        broker.stop()
        chaos.close()
    assert replayed(file) == broker.entries
    recorded = file.read_bytes()
    assert (SECRET in recorded) == (seed == 2)
    assert seed == 2 or TOLD.encode() not in recorded


def _is_loaded(server: Server) -> bool:
    return not server.is_loading


def test_a_restart_with_background_jobs_is_replayed(tmp_path: Path) -> None:
    """The second run restores the jobs of the first. A repeated key finds its job although payloads are hidden."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    payload = SECRET + b" of a stored job"
    key = {"Idempotency_Key": "one", "Content_Type": "application/octet-stream"}
    schedule = b'{"service": "later", "every": 3600, "payload": "%s"}' % SECRET
    for run in (1, 2):
        file = tmp_path / f"{run}.rec"
        broker = RecordedBroker(file, "http://127.0.0.1:0", folder=folder)
        client = HttpHand(broker.places[0]["both"])
        try:
            until(partial(_is_loaded, broker.server), "the stored jobs are restored")
            status, _, body = client.ask("POST", "/v1/jobs?service=later", payload, **key)
            assert status == 202, body
            assert client.ask("POST", "/v1/jobs?service=later", b"another payload", **key)[0] == 409
            kind = {"Content_Type": "application/json"}
            assert client.ask("PUT", "/v1/schedules/hourly", schedule, **kind)[0] in (200, 201)
            if run == 2:
                assert broker.server.broker.job_registry.present == 1
                worker = client.join("later")
                status, headers, sent = client.ask("POST", f"{worker.path}/next?wait=5", **worker.secret)
                assert (status, sent) == (200, payload)
                named = {"Dragoman_Attempt": headers["dragoman-attempt"]}
                assert client.ask("POST", f"{worker.path}/result", SECRET, **worker.secret, **named)[0] == 204
        finally:
            broker.stop()
        assert replayed(file, strict=True) == broker.entries
        assert SECRET not in file.read_bytes()
    assert [entry[0] for entry in broker.entries if entry[1] == "job"][-1] == "ended"


def test_groups_and_jobs_after_them_are_replayed_over_a_restart(tmp_path: Path) -> None:
    """Payloads are hidden also within a batch, and the broker decides by their lengths only."""
    folder, group = tmp_path / "data", "ab" * 16
    folder.mkdir()
    for run in range(2):
        file = tmp_path / f"run-{run}.rec"
        broker = RecordedBroker(file, "tcp://127.0.0.1:0", "http://127.0.0.1:0", folder=folder)
        hand = HttpHand(broker.places[1]["both"])
        until(lambda hand=hand: hand.ask("GET", "/readyz")[0] == 200, "the store is read")
        if not run:
            jobs: list[dict[str, Any]] = [{"payload": f"{SECRET.decode()} {n}", "group": group} for n in range(3)]
            jobs.append({"service": "last", "after": [group], "input": "results", "payload": SECRET.decode()})
            asked = json.dumps({"service": "s", "jobs": jobs}).encode()
            status, _, body = hand.ask("POST", "/v1/jobs/many", asked, Content_Type="application/json")
            assert status == 202, body
            with Client(broker.places[0]["both"]) as client:
                client.enqueue_many("many", [SECRET, SECRET + b"!"])
        worker = hand.join("s")
        for _ in range(1 + run):
            _, headers, payload = hand.ask("POST", f"{worker.path}/next?wait=10", **worker.secret)
            said = {"Dragoman_Attempt": headers["dragoman-attempt"], **worker.secret}
            assert hand.ask("POST", f"{worker.path}/result", payload, **said)[0] == 204
        if run:
            last = hand.join("last")
            status, _, payload = hand.ask("POST", f"{last.path}/next?wait=10", **last.secret)
            assert (status, payload.count(SECRET)) == (200, 4)
        broker.stop()
        assert replayed(file, strict=True) == broker.entries
        assert SECRET not in file.read_bytes()


def test_retries_by_reason_and_by_group_are_replayed_although_the_texts_are_hidden(tmp_path: Path) -> None:
    """The replay compared the filter and the id of the group with the hidden texts, and found no jobs."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    text = "the disk of host 17 is full"
    kind = {"Content_Type": "application/json"}
    for run in (1, 2):
        file = tmp_path / f"{run}.rec"
        broker = RecordedBroker(file, "http://127.0.0.1:0", folder=folder)
        try:
            hand = HttpHand(broker.places[0]["both"])
            until(partial(_is_loaded, broker.server), "the stored jobs are restored")
            if run == 1:
                worker = hand.join("bad")
                for number in range(4):
                    assert hand.ask("POST", "/v1/jobs?service=bad&attempts=1", b"x")[0] == 202
                    _, headers, _ = hand.ask("POST", f"{worker.path}/next?wait=10", **worker.secret)
                    said = {"Dragoman_Attempt": headers["dragoman-attempt"], **worker.secret}
                    error = text.replace("17", str(number)) if number < 3 else "another"
                    failed = json.dumps({"type": "E", "message": error}).encode()
                    assert hand.ask("POST", f"{worker.path}/result?outcome=failed", failed, **said, **kind)[0] == 204
                asked = {"service": "bad", "reason": "HOST 1", "dry_run": True}
                assert hand.ask("GET", "/v1/jobs?reason=the%20disk&text=the%20disk")[0] == 200
                for path in ("workers", "services"):  # names stay: the same rows are found
                    [row] = json.loads(hand.ask("GET", f"/v1/{path}")[2])[path]
                    found = json.loads(hand.ask("GET", f"/v1/{path}?text={quote(row['name'])}")[2])[path]
                    assert len(found) == 1
                assert hand.ask("POST", "/v1/jobs/retry", json.dumps(asked).encode(), **kind)[0] == 202
                asked = {"service": "bad", "reason": "NOTHER"}
                assert hand.ask("POST", "/v1/jobs/retry", json.dumps(asked).encode(), **kind)[0] == 202
            else:
                groups = json.loads(hand.ask("GET", "/v1/quarantine")[2])["groups"]
                [group] = [each["group"] for each in groups if each["count"] == 3]
                asked = {"group": group, "rate": 1000}
                assert hand.ask("POST", "/v1/quarantine/retry", json.dumps(asked).encode(), **kind)[0] == 202
                until(lambda hand=hand: not _quarantined(hand), "the group is retried")
        finally:
            broker.stop()
        assert replayed(file, strict=True) == broker.entries
        assert b"the disk" not in file.read_bytes()
        assert b"NOTHER" not in file.read_bytes()


def _quarantined(hand: HttpHand) -> list[Any]:
    found: list[Any] = json.loads(hand.ask("GET", "/v1/quarantine")[2])["groups"]
    return found


def test_an_access_folder_that_changes_is_replayed(tmp_path: Path) -> None:
    """Principals, their rights and their ends are in the recording; their tokens are not."""
    access = tmp_path / "access"
    access.mkdir(mode=0o700)
    token = new_token(bytes(range(32))).reveal().decode()
    principal = principal_path(access, "robot")
    principal.write_text(f'call = ["*"]\nwork = ["*"]\nsee = ["*"]\ntoken = ["sha256:{token_hash(token).hex()}"]\n')
    principal.chmod(0o600)
    file = tmp_path / "run.rec"
    urls = ("http://127.0.0.1:0?auth=token", "tcp://127.0.0.1:0?auth=token")
    broker = RecordedBroker(file, *urls, access=AccessPlaces(str(access)))
    client = HttpHand(broker.places[0]["both"], Authorization=f"Bearer {token}")
    try:
        with Client(broker.places[1]["both"], token=token) as native_client:
            native_client.enqueue("later", SECRET)
        worker = client.join("later")
        assert client.ask("POST", f"{worker.path}/next?wait=5", **worker.secret)[0] == 200
        principal.unlink()
        broker.run(broker.server.access_control.reload)
        assert client.ask("POST", "/v1/jobs?service=later", SECRET)[0] == 401
    finally:
        broker.stop()
    assert replayed(file) == broker.entries
    recorded = file.read_bytes()
    assert b"robot" in recorded
    assert token.encode() not in recorded
    assert bytes.fromhex(worker.secret["Dragoman_Worker_Token"]) not in recorded


def test_a_list_that_takes_several_slices_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a slice depends on the machine. The response is sent after the same slice nevertheless."""
    broker = RecordedBroker(tmp_path / "run.rec", "tcp://127.0.0.1:0", "http://127.0.0.1:0")
    try:
        HttpHand(broker.places[1]["both"]).join("work")
        with monkeypatch.context() as patches, zmq.Context() as context, context.socket(zmq.DEALER) as client:
            patches.setattr("dragoman.operations.slices.SLICE", -1.0)
            client.linger, client.rcvtimeo = 0, int(PATIENCE * 1000)
            client.connect(broker.places[0]["both"])
            client.send_multipart([bytes(each) for each in native.write_hello(Hello(Role.CLIENT, window=1000))])
            client.recv_multipart()
            head = native.write_order(SubmitHeader("work", deadline=100.0))
            ids = [number.to_bytes(16, "big") for number in range(1, 1000)]
            client.send_multipart([head, b"".join(ids), *[b"x"] * len(ids)])
            asked = native.write_ask(bytes(8), "jobs", b'{"text": "no job has this"}', b"")
            client.send_multipart([bytes(each) for each in asked])
            while client.recv_multipart()[0][0] != TELL:
                pass
    finally:
        broker.stop()
    assert [item[1] for item in Recording(broker.file) if item[0] == SLICE][:2] == [False, False]
    assert replayed(broker.file, strict=False) == broker.entries


def test_two_brokers_record_side_by_side(tmp_path: Path) -> None:
    brokers = [RecordedBroker(tmp_path / f"{number}.rec", "tcp://127.0.0.1:0") for number in (1, 2)]
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "1.rec")
    for broker in brokers:
        broker.stop()
        assert replayed(broker.file) == broker.entries == []


# -------------------------------------------------------------------- recordings that differ, or are not whole


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedBroker:
    """A broker that has stopped; its recording has five jobs that were done."""
    broker = RecordedBroker(tmp_path / "run.rec", "http://127.0.0.1:0")
    client = HttpHand(broker.places[0]["both"])
    try:
        worker = client.join("work")
        for _ in range(5):
            assert client.ask("POST", "/v1/jobs?service=work", SECRET)[0] == 202
            status, headers, _ = client.ask("POST", f"{worker.path}/next?wait=5", **worker.secret)
            assert status == 200
            named = {"Dragoman_Attempt": headers["dragoman-attempt"]}
            assert client.ask("POST", f"{worker.path}/result", SECRET, **worker.secret, **named)[0] == 204
    finally:
        broker.stop()
    return broker


def rewritten(file: Path, change: Callable[[list[Item]], None]) -> Path:
    """Write the items of a recording to another file, with a change."""
    items = list(Recording(file))
    change(items)
    changed = file.with_suffix(".changed")
    writer = RecordingWriter(changed)
    for item in items:
        writer.add(item)
    writer.close()
    return changed


def test_a_decision_that_differs_is_reported_with_its_place(recorded: RecordedBroker) -> None:
    def lose_a_job(items: list[Item]) -> None:
        index = next(index for index, item in enumerate(items) if item[:2] == (JOURNAL, "ended"))
        items[index] = (*items[index][:-1], "lost")

    with pytest.raises(Diverged, match=r"item \d+, \d+\.\d{3} s after the start: .*work, .*lost.*work, .*done"):
        replayed(rewritten(recorded.file, lose_a_job))


def test_an_input_that_is_missing_is_noticed(recorded: RecordedBroker) -> None:
    def drop(kind: str, method: str) -> Callable[[list[Item]], None]:
        return lambda items: items.remove(next(item for item in items if item[0] == kind and method in item))

    for kind, name in ((HTTP, "succeed"), (HTTP, "poll"), (ASK_ITEM, "enqueue"), (LISTEN, "http://127.0.0.1:0")):
        file = rewritten(recorded.file, drop(kind, name))
        with pytest.raises(Diverged):
            replayed(file)
        file.unlink()


def test_a_recording_that_is_cut_off_is_replayed_up_to_its_end(recorded: RecordedBroker) -> None:
    whole = recorded.file.read_bytes()
    cut = recorded.file.with_suffix(".cut")
    for part in (3, 2, 1.1):
        cut.write_bytes(whole[: int(len(whole) / part)])
        entries = replayed(cut)
        assert 0 < len(entries) < len(recorded.entries)
        assert entries == recorded.entries[: len(entries)]


def test_a_damaged_recording_is_replayed_up_to_the_damage(recorded: RecordedBroker) -> None:
    whole = bytearray(recorded.file.read_bytes())
    whole[len(whole) // 2] ^= 1
    damaged = recorded.file.with_suffix(".damaged")
    damaged.write_bytes(whole)
    entries: list[tuple[Any, ...]] = []
    with pytest.raises(RecordingError, match="damaged at byte"):
        Replay(damaged, lambda event, seconds: entries.append(entry_of(event))).run()
    assert entries == recorded.entries[: len(entries)]
    assert entries


def test_a_broker_that_cannot_record_any_more_continues(tmp_path: Path) -> None:
    """The disk is full: the log has the reason once, and jobs are accepted as before."""
    broker = RecordedBroker(tmp_path / "run.rec", "http://127.0.0.1:0")
    client = HttpHand(broker.places[0]["both"])
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, broker.recorder._writer._file)
        for _ in range(3):
            assert client.ask("POST", "/v1/jobs?service=work", SECRET)[0] == 202
    finally:
        os.close(full)
        broker.stop()
    lines = [fields for _, event, fields in broker.journal.lines if event == "recording stopped"]
    assert [each["reason"] for each in lines] == ["No space left on device"]

"""Ladders: the recorded messages of jobs in every dialect, and the stories that they tell as text and as pictures."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from case_tables import check_every_row
from dragoman.core.infinity import inf
from dragoman.core.model import JobId
from dragoman.core.states import Outcome
from dragoman.ladder import as_mermaid, as_text
from dragoman.ladder_picture import RULES, as_svg, draw
from dragoman.operations.ladder_schemas import ConversationView
from dragoman.operations.ladder_views import conversation_view
from pairs import controller, http, majordomo, memodb, native, pingpong, powerhose
from pairs.asgi import Exchange, one_world
from pairs.http import OPTIONS
from pairs.participants import JOB_TIMEOUT, Participants
from pairs.test_pairs import CALLERS, PARTICIPANTS, WAYS
from pairs.world import SERVICE, World

UI = Path(__file__).parents[2] / "src" / "dragoman" / "http" / "ui"
STORIES = Path(__file__).parents[1] / "fixtures" / "ladders"

# Messages of a job that is done: those of the caller, around those of the worker.
OF_CALLER: list[tuple[Participants, tuple[str, str]]] = [
    (native.NATIVE, ("SUBMIT", "RESULT")),
    (http.HTTP, (f"POST /v1/call/{SERVICE}", "200 OK")),
    (pingpong.PLAIN, ("job", "result")),
    (powerhose.POWERHOSE, ("job", "result")),
    (memodb.MEMODB, ("JOB", "RESULT")),
    (majordomo.RFC7, ("REQUEST", "REPLY")),
    (majordomo.RFC18, ("REQUEST", "FINAL")),
]
OF_WORKER: list[tuple[Participants, tuple[str, ...]]] = [
    (native.NATIVE, (">JOB", "<RESULT")),
    (http.HTTP, (">200 OK", "<POST …/result")),
    (pingpong.PLAIN, (">job", "<result")),
    (pingpong.PACKAGE, (">job", "<JOB COMPLETE")),
    (powerhose.POWERHOSE, (">WAKE", "<GIVE", ">JOB", "<JOBRES")),
    (memodb.MEMODB, (">JOB", "<RESULT")),
    (controller.SEED, (">SET_TASK", "<OK", "<FETCH_ME", ">FETCH", "<OK")),
    (majordomo.RFC7, (">REQUEST", "<REPLY")),
    (majordomo.RFC18, (">REQUEST", "<FINAL")),
]


def record(world: World) -> None:
    world.broker.job_registry.conversations.start()


def view_of(world: World, id: JobId) -> ConversationView:
    found = world.broker.job_registry.conversations.find(id)
    assert found is not None
    return conversation_view(found, 0.0, world.broker.principals.local, world.broker)


def messages(view: ConversationView) -> list[str]:
    """The messages of all lanes: `>` is sent by the broker, `<` is received."""
    return [("<" if row.receiver == "b" else ">") + row.message for row in view.messages if row.message]


def run_job(world: World, callers: Participants, workers: Participants, outcome: Outcome) -> ConversationView:
    caller, worker = callers.call(world), workers.worker(world)
    caller.submit(b"bonjour")
    id = world.only_job().id
    assert worker.jobs() == [b"bonjour"]
    WAYS[outcome](world, caller, worker)
    caller.told()
    return view_of(world, id)


@pytest.mark.parametrize(("callers", "spelled"), OF_CALLER, ids=str)
def test_every_message_is_recorded_in_the_words_of_its_dialect(callers: Participants, spelled: tuple[str, str]) -> None:
    def check(workers: Participants, names: tuple[str, ...]) -> None:
        with one_world() as world:
            record(world)
            view = run_job(world, callers, workers, Outcome.DONE)
        assert messages(view) == [f"<{spelled[0]}", *names, f">{spelled[1]}"]
        assert [each.dialect for each in view.lanes] == [callers.dialect, None, workers.dialect]
        assert not any(row.dropped or row.unsent for row in view.messages)
        assert view.recorded == "messages"

    check_every_row(check, OF_WORKER)


def test_a_job_that_was_not_recorded_has_the_messages_that_follow_from_its_history() -> None:
    """Of those that did not end done, and of slow ones. They name no editions."""

    def check(callers: Participants, workers: Participants, outcome: Outcome) -> None:
        with one_world() as world:
            record(world)
            whole = run_job(world, callers, workers, outcome)
        with one_world() as world:
            record(world)
            world.broker.job_registry.conversations.next_at = inf
            worker, caller = workers.worker(world), callers.call(world)
            service = world.broker.worker_registry.services[SERVICE]
            service.slow_run = -1.0
            caller.submit(b"bonjour")
            id = world.only_job().id
            worker.jobs()
            WAYS[outcome](world, caller, worker)
            history = view_of(world, id)
        assert history.recorded == "milestones"
        if outcome is Outcome.DONE:
            expected = [each.replace(f"/{SERVICE}", "/…") for each in messages(whole)]
            assert messages(history) == expected
        assert [row.note for row in history.messages if row.kind] == [row.note for row in whole.messages if row.kind]
        assert [row.says for row in history.messages if row.attempt] == [
            row.says for row in whole.messages if row.attempt
        ]

    with_editions = (majordomo.RFC18, pingpong.PACKAGE)
    rows = [(each, native.NATIVE, Outcome.DONE) for each, _ in OF_CALLER if each not in with_editions]
    rows += [(native.NATIVE, each, Outcome.DONE) for each, _ in OF_WORKER if each not in with_editions]
    rows += [(native.NATIVE, native.NATIVE, each) for each in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED)]
    check_every_row(check, rows)


def test_every_outcome_of_every_pair_has_a_ladder() -> None:
    """No dialect forgets the end, and each form can be made of each."""

    def check(callers: Participants, workers: Participants, outcome: Outcome) -> None:
        with one_world() as world:
            record(world)
            view = run_job(world, callers, workers, outcome)
        last = [row for row in view.messages if row.kind][-1]
        assert last.kind == outcome.value
        assert as_text(view)
        assert as_mermaid(view)
        assert as_svg(view)

    rows = [(native.NATIVE, workers, outcome) for workers in PARTICIPANTS for outcome in WAYS]
    rows += [(callers, pingpong.PLAIN, outcome) for callers in CALLERS for outcome in WAYS]
    check_every_row(check, [row for row in rows if row[2] not in row[1].impossible and row[2] is not Outcome.REFUSED])


# -------------------------------------------------------------------- stories


def enqueue(world: World) -> JobId:
    """Enqueue a background job over HTTP."""
    sent = Exchange(world, "POST", f"/v1/jobs?service={SERVICE}", bytes(428_113 % 200_000), {}, OPTIONS)
    assert sent.status == 202
    return JobId(bytes.fromhex(json.loads(sent.content)["id"]))


def fetch(world: World, id: JobId) -> None:
    assert Exchange(world, "GET", f"/v1/jobs/{id.hex()}/result", b"", {}, OPTIONS).status == 200


def take_job(worker: native.NativeWorker) -> None:
    """Take a job that may be another attempt than the first."""
    for head, *frames in worker._connection.take():
        if head[:1] == native.JOB:
            worker._token = bytes(frames[0][:16])


def rescue(world: World) -> JobId:
    """A PingPong worker is killed in the middle of a job, and a native one does it."""
    first = pingpong.PLAIN.worker(world)
    id = enqueue(world)
    assert first.jobs()
    world.now += 12.4
    first.vanish()
    second = native.NativeWorker(world)
    world.wait(0.2)
    take_job(second)
    world.now += 0.5
    second.finish(bytes(9214))
    world.now += 0.3
    fetch(world, id)
    return id


def late(world: World) -> JobId:
    """A job times out, and its result comes after that."""
    caller, worker = native.NativeCaller(world), native.NativeWorker(world)
    caller.submit(b"bonjour")
    id = world.only_job().id
    worker.jobs()
    world.wait(JOB_TIMEOUT)
    world.now += 1.67
    worker.finish(b"good day")
    return id


def cancelled(world: World) -> JobId:
    worker = native.NativeWorker(world)
    id = enqueue(world)
    take_job(worker)
    world.now += 2.0
    assert Exchange(world, "DELETE", f"/v1/jobs/{id.hex()}", b"", {}, OPTIONS).status == 200
    return id


def background(world: World) -> JobId:
    worker = http.HttpWorker(world)
    id = enqueue(world)
    world.now += 0.02
    assert worker.jobs()
    world.now += 0.7
    worker.finish(b"good day")
    fetch(world, id)
    return id


def lost_caller(world: World) -> JobId:
    """The caller leaves while its job runs: the result is dropped."""
    caller, worker = pingpong.PLAIN.call(world), powerhose.POWERHOSE.worker(world)
    caller.submit(b"bonjour")
    id = world.only_job().id
    assert worker.jobs()
    world.now += 0.25
    caller._connection.cut()  # type: ignore[attr-defined]
    world.now += 0.25
    worker.finish(b"good day")
    return id


TELLERS: list[Callable[[World], JobId]] = [rescue, late, cancelled, background, lost_caller]


def tell(teller: Callable[[World], JobId]) -> ConversationView:
    with one_world() as world:
        record(world)
        id = teller(world)
        return msgspec.structs.replace(view_of(world, id), job="0197f3a2c4d87b12a9e05c61f38d2b74")


@pytest.fixture(scope="module")
def stories() -> dict[str, ConversationView]:
    return {teller.__name__: tell(teller) for teller in TELLERS}


def test_stories_as_text_and_as_pictures_are_those_of_the_files(stories: dict[str, ConversationView]) -> None:
    """If a picture changes on purpose, delete its file, run this test twice, and look at the new file."""

    def check(name: str) -> None:
        for suffix, made in (("txt", as_text(stories[name])), ("svg", as_svg(stories[name]))):
            path = STORIES / f"{name}.{suffix}"
            if not path.exists():
                path.write_text(made)
                raise AssertionError(f"{path} is new")
            assert made == path.read_text()

    check_every_row(check, [(name,) for name in stories])


DRAW = """
import { drawLadder } from "%s";
let text = "";
for await (const piece of process.stdin) text += piece;
console.log(JSON.stringify(JSON.parse(text).map((each) => [drawLadder(each), drawLadder(each, { isNarrow: true })])));
"""


def in_browser_code(views: list[ConversationView]) -> list[list[str]]:
    """The pictures of the page's own code, wide and narrow."""
    script = DRAW % (UI / "ladder.js").as_uri()
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=msgspec.json.encode(views), capture_output=True, check=True)
    drawn: list[list[str]] = json.loads(done.stdout)
    return drawn


def test_the_page_draws_the_same_pictures(stories: dict[str, ConversationView]) -> None:
    views = [*stories.values(), many_attempts(stories["rescue"]), hostile(stories["late"])]
    views += [reconstructed(stories["rescue"]), wordy(stories["rescue"])]
    for drawn, view in zip(in_browser_code(views), views, strict=True):
        assert drawn == [draw(view), draw(view, is_narrow=True)]


def reconstructed(view: ConversationView) -> ConversationView:
    return msgspec.structs.replace(view, recorded="milestones")


def test_a_reconstructed_ladder_is_marked_in_each_form(stories: dict[str, ConversationView]) -> None:
    """Pictures and Mermaid looked as if the messages had been recorded."""
    for form in (as_text, as_svg, as_mermaid):
        assert "econstructed" in form(reconstructed(stories["rescue"])), form
        assert "econstructed" not in form(stories["rescue"]), form


def many_attempts(view: ConversationView) -> ConversationView:
    """The first attempt of a story ten times, each with another worker."""
    band = next(index for index, row in enumerate(view.messages) if row.attempt)
    worker = next(lane for lane in view.lanes if lane.role == "worker")
    lanes = [lane for lane in view.lanes if lane.role != "worker"]
    rows = view.messages[:band]
    for number in range(1, 11):
        id = f"w{number}"
        lanes.append(msgspec.structs.replace(worker, id=id, name=id))
        for row in view.messages[band : band + 4]:
            names = {"lane": id if row.lane else "", "at": id if row.lost else row.at, "ends": id if row.ends else ""}
            names |= {"receiver": id} if row.receiver == worker.id else {}
            attempt = number if row.attempt else 0
            rows.append(msgspec.structs.replace(row, t=row.t + 20.0 * number, attempt=attempt, **names))
    return msgspec.structs.replace(view, lanes=lanes, messages=rows, more=12_345)


def hostile(view: ConversationView) -> ConversationView:
    """Names that would be markup, commands of a terminal or keywords of Mermaid."""
    names = iter(["<img src=x onerror=alert(1)>", "", "a\x1b[31m\n\u202e\xa0&'\"é😀" * 3])
    lanes = [msgspec.structs.replace(each, name=next(names) or each.name) for each in view.lanes]
    return msgspec.structs.replace(view, lanes=lanes)


def test_names_are_escaped_in_each_form(stories: dict[str, ConversationView]) -> None:
    view = hostile(stories["late"])
    for made in (as_text(view), as_svg(view), as_mermaid(view)):
        assert "\x1b" not in made
        assert "\u202e" not in made
    assert "<img" not in as_svg(view)
    assert "#lt;img" in as_mermaid(view)
    lanes = [msgspec.structs.replace(each, name="end") for each in view.lanes]
    assert "as end\n" not in as_mermaid(msgspec.structs.replace(view, lanes=lanes))
    row = msgspec.structs.replace(view.messages[0], message="a;b#c")
    assert "a#59;b#35;c" in as_mermaid(msgspec.structs.replace(view, messages=[row]))


def test_of_many_attempts_the_picture_shows_the_first_and_the_last(stories: dict[str, ConversationView]) -> None:
    view = many_attempts(stories["rescue"])
    drawn = draw(view)
    assert "… 6 more attempts" in drawn
    assert "… 12345 more" in drawn
    assert [f">w{number}<" in drawn for number in range(1, 11)] == [True] * 3 + [False] * 6 + [True]


def wordy(view: ConversationView) -> ConversationView:
    """Notes and bands of attempts that are longer than the picture is wide."""
    rows = [
        msgspec.structs.replace(
            row, note=row.note and f"{row.note} {'W' * 200}", says=row.says and f"{row.says} {'W' * 200}"
        )
        for row in view.messages
    ]
    return msgspec.structs.replace(view, messages=rows)


def test_texts_that_do_not_fit_end_in_an_ellipsis(stories: dict[str, ConversationView]) -> None:
    """They were cut off by the edge of the picture, as if they ended there."""
    drawn = draw(wordy(stories["rescue"]))
    long: list[str] = re.findall(r">([^<>]*WWW[^<>]*)<", drawn)
    assert long
    assert all(each.endswith("W…") and len(each) <= 100 for each in long)


def test_style_sheet_of_the_page_has_the_rules_of_the_picture() -> None:
    assert (UI / "ladder.css").read_text().partition("*/\n")[2] == RULES

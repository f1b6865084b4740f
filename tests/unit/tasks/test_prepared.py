"""Prepared jobs, groups and chains of tasks: eager, and through a broker with a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman import (
    AsyncClient,
    Context,
    GroupHandle,
    JobCancelled,
    JobFailed,
    JobHandle,
    LocalBroker,
    NewJob,
    NoSuchGroup,
    Worker,
    aenqueue_many,
    chain,
    enqueue_many,
    group,
    task,
    using,
)
from dragoman.core.results_payload import pack_results
from dragoman.sdk.errors import WrongArguments
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.formats import FORMATS, format_of
from dragoman.testing.eager import eager


@dataclass
class Page:
    url: str
    words: int


@task
def fetch(url: str) -> Page:
    if url == "broken":
        raise LookupError(url)
    return Page(url, len(url))


@task
async def count(ctx: Context, page: Page, factor: int = 1) -> int:
    await asyncio.sleep(0)
    return page.words * factor


@task
def total(counts: list[int], title: str = "total") -> str:
    return f"{title}: {sum(counts)}"


@task
def both(page: Page, number: int, /, *more: str) -> str:
    return f"{page.url} {number} {more}"


@task
def lenient(pages: list[Page | None]) -> int:
    return sum(page is not None for page in pages)


TASKS = (fetch, count, total, both, lenient)


@contextmanager
def eagerly() -> Iterator[None]:
    with eager(*TASKS):
        yield


@pytest.fixture(params=["eager", "broker"])
def tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to run the tasks."""
    if request.param == "eager":
        with eagerly():
            yield
    else:
        start: Callable[..., Worker] = request.getfixturevalue("dragoman_worker")
        start(*TASKS)
        yield


def test_result_of_a_job_is_the_first_argument_of_the_next(tasks: None) -> None:
    last = fetch.prepare("four").then(count, factor=3).enqueue()
    assert last.result(timeout=60) == 12
    assert chain(fetch.prepare("abc"), count).enqueue().result(timeout=60) == 3


def test_results_of_handles_are_arguments(tasks: None) -> None:
    page, number = fetch.enqueue("abc"), chain(fetch.prepare("de"), count).enqueue()
    assert both.after(page, number).enqueue("x", "y").result(timeout=60) == "abc 2 ('x', 'y')"
    assert count.after(page).with_options(priority=9).enqueue(factor=2).result(timeout=60) == 6


def test_results_of_a_group_are_a_list(tasks: None) -> None:
    pages = fetch.group(["a", "bb", "ccc"])
    assert len(pages) == 3
    counted = group([chain(fetch.prepare(url), count) for url in ("a", "bb")])
    last = counted.then(total, title="sum").enqueue()
    assert last.result(timeout=60) == "sum: 3"
    assert counted.handle().result(timeout=60) == [1, 2]
    assert counted.handle().progress() == "2 of 2"
    handle = pages.enqueue()
    assert handle.result(timeout=60) == [Page("a", 1), Page("bb", 2), Page("ccc", 3)]
    assert [job.result() for job in handle.jobs] == handle.result()
    assert fetch.group_handle(handle.id).result() == handle.result()
    assert total.after(counted.handle()).enqueue().result(timeout=60) == "total: 3"
    assert handle.cancel().done == 3


def test_failure_of_one_job_is_raised_or_returned(tasks: None) -> None:
    pages = fetch.with_options(attempts=1).group(["a", "broken", "c"])
    last = pages.then(lenient)
    handle = last.enqueue()
    with pytest.raises(JobCancelled, match="which it comes after, ended"):
        handle.result(timeout=60)
    found = pages.handle().result(timeout=60, errors="return")
    assert [found[0], found[2]] == [Page("a", 1), Page("c", 1)]
    assert isinstance(found[1], JobFailed)
    with pytest.raises(JobFailed, match="LookupError"):
        pages.handle().result()
    assert pages.handle().progress() == "3 of 3, 1 failed"
    again = lenient.with_options(after_failure="run").after(pages.handle()).enqueue()
    assert again.result(timeout=60) == 2


def test_jobs_may_only_be_in_order(tasks: None) -> None:
    first = fetch.prepare("abc")
    last = fetch.with_options(after=[first]).enqueue("later")
    assert (last.result(timeout=60), first.handle().result()) == (Page("later", 5), Page("abc", 3))
    assert fetch.with_options(after=[last]).enqueue("last").result(timeout=60) == Page("last", 4)


def test_many_jobs_are_enqueued_at_once(tasks: None) -> None:
    handles = fetch.enqueue_many(["a", "bb"])
    assert [each.result(timeout=60).words for each in handles] == [1, 2]
    numbers = enqueue_many([chain(fetch.prepare(url), count) for url in ("abc", "d")])
    assert [each.result(timeout=60) for each in numbers] == [3, 1]


def test_all_of_it_can_be_awaited(dragoman_broker: LocalBroker, dragoman_worker: Callable[..., Worker]) -> None:
    dragoman_worker(*TASKS)

    async def main() -> None:
        async with AsyncClient(dragoman_broker.url) as client:
            with using(client):
                pages = await fetch.group(["a", "bb"]).aenqueue()
                assert await pages.aresult(timeout=60) == [Page("a", 1), Page("bb", 2)]
                assert (await pages.aprogress(), (await pages.agroup()).size) == ("2 of 2", 2)
                assert (await pages.acancel()).complete
                last = await count.after(fetch.prepare("abc")).aenqueue(2)
                assert await last.aresult(timeout=60) == 6
                chained = await chain(fetch.prepare("abc"), count).aenqueue()
                assert await chained.aresult(timeout=60) == 3
                handles = await fetch.aenqueue_many(["x", "yy"])
                assert [(await each.aresult(timeout=60)).words for each in handles] == [1, 2]
                more = await aenqueue_many([fetch.prepare("z")])
                assert (await more[0].aresult(timeout=60)).url == "z"
                after = await fetch.with_options(after=[fetch.prepare("q")]).aenqueue("r")
                assert (await after.aresult(timeout=60)).url == "r"

    asyncio.run(main())


def test_long_chain_is_one_batch(dragoman_worker: Callable[..., Worker]) -> None:
    @task
    def increment(number: int) -> int:
        return number + 1

    dragoman_worker(increment)
    last = increment.prepare(0)
    for _ in range(1_500):
        last = last.then(increment)
    assert last.enqueue().result(timeout=120) == 1_501


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: fetch.prepare("a").then(len), "is no task; write @task above the function"),
    (lambda: fetch.prepare("a").then(total, 1, 2), "total: too many positional arguments"),
    (lambda: fetch.after(fetch.prepare("a"), fetch.prepare("b")), "fetch takes 1 arguments by position, and 2 results"),  # type: ignore[call-overload]
    (lambda: fetch.after(), "needs the jobs or groups whose results it takes"),  # type: ignore[call-overload]
    (lambda: total.with_options(after=["0" * 32]).after(fetch.group(["a"])), "has the option `after` already"),  # type: ignore[arg-type]
    (lambda: fetch.with_options(key="k").enqueue_many(["a"]), "the option 'key' is about one job"),
    (lambda: fetch.with_options(after="0" * 32).enqueue("a"), "must be a list of job ids or handles"),
    (lambda: NewJob("s", patience=3), "unknown option 'patience' of a background job"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("act", "message"), WRONG)
def test_mistakes_are_named(act: Callable[[], Any], message: str) -> None:
    with eagerly(), pytest.raises(TypeError, match=message):
        act()


@task
def picky(page: Page, error: str) -> None:
    raise LookupError(error)


def test_rules_of_a_job_hold_behind_other_jobs() -> None:
    with eager(fetch, picky):
        page = fetch.enqueue("a")
        assert len(picky.after(page).enqueue("no").job().attempts) == 3
        permanent = picky.with_options(never_retry_on=LookupError)
        assert len(permanent.after(page).enqueue("no").job().attempts) == 1
        assert len(fetch.prepare("a").then(permanent, "no").enqueue().job().attempts) == 1
        cancelled = picky.after(fetch.prepare("broken")).enqueue("no")
        assert (cancelled.job().outcome, cancelled.job().attempts) == ("cancelled", [])


def test_results_of_a_group_that_do_not_fit_are_failures() -> None:
    with eager(fetch):
        made = fetch.group(["a", "b"]).enqueue()
        for found in (
            total.group_handle(made.id),
            GroupHandle(made.id, total._codec.decode, [*map(_as_text, made.jobs)]),
        ):
            with pytest.raises(JobFailed, match=r"the result of job .* does not have the type of its task"):
                found.result()
            assert [type(each) for each in found.result(errors="return")] == [JobFailed, JobFailed]


def _as_text(job: JobHandle[Page]) -> JobHandle[str]:
    return total.handle(job.id)


def test_job_is_in_one_group_and_a_group_has_jobs() -> None:
    job = fetch.prepare("a")
    group([job])
    with pytest.raises(ValueError, match="is in a group already"):
        group([job])
    with pytest.raises(ValueError, match="needs at least one job"):
        group([])
    with eagerly(), pytest.raises(NoSuchGroup):
        fetch.group_handle("0" * 32).result()


# -------------------------------------------------------------------- results on the wire


def three(page: Page, numbers: list[int], last: str = "z") -> None: ...


@pytest.mark.parametrize("name", list(FORMATS))
def test_results_are_merged_with_the_arguments(name: str) -> None:
    format = format_of(name)
    signature = TaskSignature("three", three, format)
    own = signature.encode_rest(2, ("own",), {})
    packed = pack_results(own, [format.encode(Page("a", 1)), [format.encode(1), format.encode(2)]])
    assert signature.decode(packed) == ([Page("a", 1), [1, 2], "own"], {}, None)
    assert signature.decode(pack_results(b"", [format.encode(Page("a", 1)), []])) == ([Page("a", 1), []], {}, None)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([b"\xff\xff\xff", []], "argument 'page' of three: "),
        ([b"", []], "argument 'page' of three: a result cannot be decoded"),
        ([None, []], "argument 'page' of three: expected `object`, got `(null|None)`"),
        ([[], [], [], []], "three has 3 parameters for 4 results of other jobs"),
    ],
)
def test_results_that_do_not_fit_are_named(name: str, entries: list[Any], message: str) -> None:
    signature = TaskSignature("three", three, format_of(name))
    with pytest.raises(WrongArguments, match=message):
        signature.decode(pack_results(b"", entries))


def test_result_cannot_add_arguments() -> None:
    """A result is one value: it cannot end the value and begin another argument."""
    signature = TaskSignature("three", three, format_of("json"))
    packed = pack_results(b"", [b'{"url":"a","words":1}', [b'1],"last":["x"']])
    with pytest.raises(WrongArguments, match="argument 'numbers' of three: a result cannot be decoded"):
        signature.decode(packed)
    with pytest.raises(WrongArguments, match="it is given as an argument, too"):
        signature.decode(pack_results(b'{"page":1}', [b"1"]))


def test_damaged_results_are_wrong_arguments() -> None:
    signature = TaskSignature("three", three, format_of("json"))
    with pytest.raises(WrongArguments, match="the arguments of three cannot be decoded: the payload ends"):
        signature.decode(pack_results(b"x", [b"1"])[:-1])

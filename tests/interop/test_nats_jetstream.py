"""JetStream as a log, on one server and on three: create, append in order, read in batches, purge, and elections."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from dragoman.carriers.nats_headers import read_headers
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import (
    STREAM_EXISTS,
    STREAM_NOT_FOUND,
    ApiError,
    ApiRequest,
    Append,
    AppendOutcome,
    StoredMessage,
    StreamConfig,
    StreamState,
    account_info,
    append,
    direct_get,
    direct_last,
    message_get,
    read_account,
    read_append,
    read_message,
    read_purged,
    read_stream,
    stream_create,
    stream_info,
    stream_purge,
)
from dragoman.cluster.requests import Answer, AnswerKind
from dragoman.server.nats_connection import NatsConnection
from nats_servers import NatsCluster, NatsServer
from nats_visits import run, visit
from programs import PATIENCE, until

_numbers = itertools.count(1)
MOST = 60.0  # seconds; patience with elections
StartNats = Callable[[str], NatsServer]


class Log:
    """A new stream and a connection to it."""

    def __init__(self, connection: NatsConnection, replicas: int, **settings: int) -> None:
        number = next(_numbers)
        self.connection = connection
        self.name = f"LOG_{number}"
        self.subject = f"log.{number}".encode()
        self.config = StreamConfig(
            self.name, (self.subject.decode(),), replicas, metadata=(("cluster", "test"),), **settings
        )

    async def create(self) -> StreamState:
        async with asyncio.timeout(MOST):
            while isinstance(made := read_stream(await self.ask(stream_create(self.config))), ApiError):
                assert made.is_temporary, made
                await asyncio.sleep(0.1)
        return made

    async def ask(self, request: ApiRequest) -> Answer:
        return await self.connection.request(request, 5.0)

    async def append(self, payload: bytes, expected: int, timeout: float = 5.0) -> Append:
        request = append(self.subject, payload, expected, self.name)
        return read_append(await self.connection.request(request, timeout))

    async def append_surely(self, payload: bytes, expected: int) -> set[AppendOutcome]:
        """Send an append again until it is stored. No other program writes to the log. Returns all its outcomes."""
        outcomes = set()
        async with asyncio.timeout(MOST):
            while True:
                result = await self.append(payload, expected, timeout=0.5)
                outcomes.add(result.outcome)
                if result.outcome is AppendOutcome.STORED:
                    assert result.sequence == expected + 1
                    return outcomes
                if result.outcome is AppendOutcome.WRONG_SEQUENCE and result.sequence == expected + 1:
                    assert AppendOutcome.UNKNOWN in outcomes
                    return outcomes  # an earlier try was stored

    async def state(self) -> StreamState:
        found = read_stream(await self.ask(stream_info(self.name)))
        assert isinstance(found, StreamState), found
        return found

    async def fill(self, count: int) -> None:
        for number in range(count):
            made = await self.append(b"%d" % number, number)
            assert (made.outcome, made.sequence) == (AppendOutcome.STORED, number + 1)


@pytest.fixture(params=["R1", "R3"])
def replicas(request: pytest.FixtureRequest) -> int:
    return int(str(request.param)[1])


@pytest.fixture
def url(replicas: int, request: pytest.FixtureRequest) -> str:
    """A server alone, or one of three."""
    if replicas == 1:
        return str(request.getfixturevalue("nats_server").url)
    return str(request.getfixturevalue("nats_cluster").servers[0].url)


@asynccontextmanager
async def opened(url: str, replicas: int, **settings: int) -> AsyncIterator[Log]:
    async with visit(url) as connection:
        log = Log(connection, replicas, **settings)
        await log.create()
        yield log


def test_jetstream_is_there(url: str, replicas: int) -> None:
    async def work() -> None:
        async with visit(url) as a:
            found = read_account(await a.request(account_info(), PATIENCE))
            assert isinstance(found, int), found

    run(work)


def test_a_server_without_jetstream_says_so(start_nats: StartNats) -> None:
    async def work() -> None:
        async with visit(start_nats("").url) as a:
            found = read_account(await a.request(account_info(), PATIENCE))
            assert isinstance(found, ApiError)
            assert (found.description, found.is_temporary, found.is_unknown) == ("no responders", True, False)

    run(work)


def test_a_stream_is_created_once_and_its_settings_come_back(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas, max_bytes=1 << 26) as log:
            again = await log.create()
            assert (again.name, again.subjects, again.replicas) == (log.name, log.config.subjects, replicas)
            assert again.metadata["cluster"] == "test"
            assert (again.first, again.last, again.messages) == (1, 0, 0)
            assert (again.allows_direct, again.denies_delete) == (True, True)
            other = StreamConfig(log.name, log.config.subjects, replicas, max_bytes=1 << 25)
            refused = read_stream(await log.ask(stream_create(other)))
            assert isinstance(refused, ApiError)
            assert (refused.err_code, refused.is_temporary) == (STREAM_EXISTS, False)
            missing = read_stream(await log.ask(stream_info("NO_SUCH")))
            assert isinstance(missing, ApiError)
            assert missing.err_code == STREAM_NOT_FOUND

    run(work)


def test_an_append_needs_the_last_sequence(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(3)
            for wrong in (0, 2, 99):
                refused = await log.append(b"x", wrong)
                assert refused.outcome is AppendOutcome.WRONG_SEQUENCE
                assert refused.sequence in (3, 0)  # a leader may not tell
            assert (await log.append(b"y", 3)).sequence == 4
            state = await log.state()
            assert (state.first, state.last, state.messages) == (1, 4, 4)
            assert state.leader
            other = append(log.subject, b"x", 4, "ANOTHER")
            refused = read_append(await log.connection.request(other, 5.0))
            assert (refused.outcome, refused.error and refused.error.err_code) == (AppendOutcome.REFUSED, 10060)

    run(work)


def test_an_append_without_a_stream_is_certainly_not_stored(url: str, replicas: int) -> None:
    async def work() -> None:
        async with visit(url) as a:
            made = read_append(await a.request(append(b"no.stream.here", b"x", 0, "NONE"), PATIENCE))
            assert made.outcome is AppendOutcome.NOT_STORED

    run(work)


def test_one_of_two_appends_of_the_same_place_wins(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log, visit(url) as second:
            for place in range(30):
                request = append(log.subject, b"second", place, log.name)
                results = await asyncio.gather(log.append(b"first", place), second.request(request, 5.0))
                made = [results[0], read_append(results[1])]
                outcomes = sorted(each.outcome.name for each in made)
                assert outcomes == ["STORED", "WRONG_SEQUENCE"]
            assert (await log.state()).last == 30

    run(work)


def test_messages_are_read_in_batches(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(25)
            batch = await log.connection.batch(log.name, 1, 10, PATIENCE)
            assert (batch.problem, batch.pending) == ("", 15)
            assert [each.sequence for each in batch.messages] == list(range(1, 11))
            assert [bytes(each.payload) for each in batch.messages] == [b"%d" % number for number in range(10)]
            assert {each.subject for each in batch.messages} == {log.subject.decode()}
            times = [each.time for each in batch.messages]
            assert times == sorted(times)
            assert abs(times[0] / 1e9 - time.time()) < 100
            rest = await log.connection.batch(log.name, 21, 10, PATIENCE)
            assert ([each.sequence for each in rest.messages], rest.pending, rest.problem) == (
                [21, 22, 23, 24, 25],
                0,
                "",
            )
            behind = await log.connection.batch(log.name, 26, 10, PATIENCE)
            assert (behind.messages, behind.problem) == ([], "")

    run(work)


def test_a_batch_may_end_early_by_its_size(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            for number in range(6):
                await log.append(bytes(100_000), number)
            batch = await log.connection.batch(log.name, 1, 100, PATIENCE, max_bytes=250_000)
            while len(batch.messages) + batch.pending < 6:  # of a replica that lags behind
                batch = await log.connection.batch(log.name, 1, 100, PATIENCE, max_bytes=250_000)
            assert batch.problem == ""
            assert len(batch.messages) < 6
            assert batch.pending == 6 - len(batch.messages)

    run(work)


def test_two_batches_at_once_do_not_mix(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as one, opened(url, replicas) as two:
            await one.fill(50)
            two.connection = one.connection
            for number in range(50):
                await two.append(b"two %d" % number, number)
            batches = await asyncio.gather(
                *(one.connection.batch(log.name, first, 20, PATIENCE) for log in (one, two) for first in (1, 21, 41))
            )
            assert [each.problem for each in batches] == [""] * 6
            found = [bytes(each.payload) for batch in batches[3:] for each in batch.messages]
            assert found == [b"two %d" % number for number in range(50)]

    run(work)


def test_the_last_message_of_subjects_up_to_a_sequence(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(9)
            batch = DirectBatch(log.name)
            done = asyncio.get_running_loop().create_future()

            def take(answer: Answer, now: float) -> bool:
                is_more = batch.receive(answer, now)
                if not is_more:
                    done.set_result(None)
                return is_more

            asked = direct_last(log.name, [log.subject.decode()], 4, 10)
            log.connection.client.request(asked.subject, asked.payload, b"", take, PATIENCE, 0.0)
            await done
            assert ([each.sequence for each in batch.messages], batch.problem) == ([4], "")

    run(work)


def test_one_message_is_read_from_the_leader_and_from_any_replica(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(3)
            found = read_message(await log.ask(message_get(log.name, 2)))
            assert isinstance(found, StoredMessage)
            assert (found.sequence, found.payload, found.subject) == (2, b"1", log.subject.decode())
            assert read_message(await log.ask(message_get(log.name, 4))) is None
            direct = DirectBatch(log.name, is_single=True)
            assert not direct.receive(await log.ask(direct_get(log.name, 2)), 0.0)
            assert direct.problem == ""
            assert [(each.sequence, each.payload, each.time) for each in direct.messages] == [(2, b"1", found.time)]
            missing = DirectBatch(log.name, is_single=True)
            missing.receive(await log.ask(direct_get(log.name, 4)), 0.0)
            assert (missing.messages, missing.problem) == ([], "")

    run(work)


def test_a_purge_keeps_the_last_sequence(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(5)
            assert read_purged(await log.ask(stream_purge(log.name, 4))) == 3
            state = await log.state()
            assert (state.first, state.last, state.messages) == (4, 5, 2)
            async with asyncio.timeout(MOST):
                while True:  # a replica may lag behind
                    batch = await log.connection.batch(log.name, 1, 10, PATIENCE)
                    if [each.sequence for each in batch.messages] == [4, 5]:
                        break
            assert read_purged(await log.ask(stream_purge(log.name, 6))) == 2
            state = await log.state()
            assert (state.first, state.last, state.messages) == (6, 5, 0)
            assert (await log.append(b"next", 5)).sequence == 6

    run(work)


def test_a_full_log_refuses_and_says_so(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas, max_bytes=300_000) as log:
            for number in range(10):
                made = await log.append(bytes(100_000), number)
                if made.outcome is not AppendOutcome.STORED:
                    break
            assert made.outcome is AppendOutcome.REFUSED
            assert made.error is not None
            assert "maximum bytes exceeded" in made.error.description
            assert (made.error.is_full, made.error.is_temporary) == (True, False)

    run(work)


def test_a_message_cannot_be_deleted(url: str, replicas: int) -> None:
    async def work() -> None:
        async with opened(url, replicas) as log:
            await log.fill(2)
            subject = b"$JS.API.STREAM.MSG.DELETE." + log.name.encode()
            refused = read_purged(await log.ask(ApiRequest(subject, b'{"seq":1}')))
            assert isinstance(refused, ApiError)
            assert refused.description == "message delete not permitted"

    run(work)


def test_appends_go_on_after_the_leader_was_killed(nats_cluster: NatsCluster) -> None:
    """No answer is no failure: the same append is sent again, until it is stored or known to have been."""

    async def work() -> None:
        async with opened(nats_cluster.servers[0].url, 3) as made:
            name, subject = made.name, made.subject
        leader = await asyncio.to_thread(until, lambda: nats_cluster.leader_of(name), "the log has a leader")
        other = next(each for each in nats_cluster.servers if each is not leader)
        async with visit(other.url) as connection:
            log = Log(connection, 3)
            log.name, log.subject = name, subject
            await log.fill(20)
            leader.kill()
            try:
                outcomes = set()
                for last in range(20, 40):
                    outcomes |= await log.append_surely(b"%d" % last, last)
                assert outcomes & {AppendOutcome.UNKNOWN, AppendOutcome.NOT_STORED}
                batch = await log.connection.batch(name, 1, 100, PATIENCE)
                assert [bytes(each.payload) for each in batch.messages] == [b"%d" % number for number in range(40)]
            finally:
                await asyncio.to_thread(leader.start)
                await asyncio.to_thread(nats_cluster.wait_until_ready)

    run(work)


def test_a_replica_that_was_away_has_everything_again(nats_cluster: NatsCluster) -> None:
    async def work() -> None:
        async with opened(nats_cluster.servers[0].url, 3) as log:
            leader = await asyncio.to_thread(until, lambda: nats_cluster.leader_of(log.name), "the log has a leader")
            away = next(each for each in nats_cluster.servers[1:] if each is not leader)
            await log.fill(5)
            away.kill()
            try:
                for number in range(5, 10):
                    await log.append_surely(b"%d" % number, number)
            finally:
                await asyncio.to_thread(away.start)
                await asyncio.to_thread(nats_cluster.wait_until_ready)
            async with asyncio.timeout(MOST):
                while (await log.state()).current < 3:
                    await asyncio.sleep(0.05)
            async with visit(away.url) as there:
                batch = await there.batch(log.name, 1, 100, PATIENCE)
                assert [each.sequence for each in batch.messages] == list(range(1, 11))

    run(work)


def test_headers_of_an_append_are_those_that_were_sent() -> None:
    request = append(b"log.1", b"x", 7, "LOG")
    assert read_headers(request.headers).fields == [
        (b"Nats-Expected-Last-Sequence", b"7"),
        (b"Nats-Expected-Stream", b"LOG"),
    ]


def test_an_answer_that_is_none_is_known_or_unknown() -> None:
    def outcome(kind: AnswerKind) -> AppendOutcome:
        return read_append(Answer(kind)).outcome

    assert outcome(AnswerKind.NO_RESPONDERS) is outcome(AnswerKind.NOT_SENT) is AppendOutcome.NOT_STORED
    assert outcome(AnswerKind.TIMED_OUT) is outcome(AnswerKind.DISCONNECTED) is AppendOutcome.UNKNOWN

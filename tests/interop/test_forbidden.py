"""The error `forbidden` in clients and commands: calls, operations, and the reload of the access table (R152)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from command_runner import command_runner
from dragoman import AsyncClient, Client, Forbidden, JobError, JobRefused, LocalBroker
from dragoman.cli import dragoman
from dragoman.core.rights import ALL_RIGHTS, Rights
from dragoman.operations.schemas import AccessView, OperationError


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """A broker whose user may call and see the service `mail`, and nothing else."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        give(broker, Rights(call=("mail",), see=("mail",)))
        yield broker


def give(broker: LocalBroker, rights: Rights) -> None:
    server = broker._thread.server
    broker._thread.run(lambda: setattr(server.broker.principals.local, "rights", rights))


def set_reload(broker: LocalBroker, answer: AccessView | OperationError) -> None:
    """Set what the broker does when it is asked to reload its access table."""

    def reload() -> AccessView:
        if isinstance(answer, OperationError):
            raise answer
        return answer

    server = broker._thread.server
    broker._thread.run(lambda: setattr(server.operations, "reload_table", reload))


def run(url: str, *words: str) -> tuple[int, str]:
    ran = command_runner().invoke(dragoman, [*words, "--connect", url])
    return ran.exit_code, ran.stdout + ran.stderr


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_a_missing_right_is_an_exception_of_its_own(broker: LocalBroker, dialect: str) -> None:
    sentence = "local may not call 'billing'"
    with Client(broker.urls[dialect]) as client:
        with pytest.raises(Forbidden, match=sentence):
            client.call("billing", b"x")
        with pytest.raises(Forbidden, match=f"refused: {sentence}; .* dragoman access allow local --call billing"):
            client.enqueue("billing", b"x")
        with pytest.raises(Forbidden, match="local may not administer 'mail'"):
            client.pause("mail")
        assert client.jobs(service="mail") == []
        assert client.health().jobs is None

    async def pause() -> None:
        async with AsyncClient(broker.urls[dialect]) as client:
            with pytest.raises(Forbidden, match="local may not administer 'mail'"):
                await client.pause("mail")

    asyncio.run(pause())


def test_forbidden_is_no_refusal_that_a_client_takes_for_the_state_of_a_job() -> None:
    """`Client.cancel` takes a refusal for a job that has ended, and then asks for its state."""
    assert issubclass(Forbidden, JobError)
    assert not issubclass(Forbidden, JobRefused)


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_a_command_without_the_right_ends_with_77(broker: LocalBroker, dialect: str) -> None:
    url = broker.urls[dialect]
    for words, sentence in (
        (("pause", "mail"), "local may not administer 'mail'"),
        (("enqueue", "billing", "x"), "local may not call 'billing'"),
        (("call", "billing", "x"), "local may not call 'billing'"),
        (("access", "reload"), "local may not administer all services"),
    ):
        code, told = run(url, *words)
        assert (code, sentence in told) == (77, True), (words, told)
    code, told = run(url, "health")
    assert (code, told) == (0, "broker  ready\n")


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_the_access_table_is_reloaded_by_a_command(broker: LocalBroker, dialect: str) -> None:
    url = broker.urls[dialect]
    give(broker, ALL_RIGHTS)
    without_table = run(url, "access", "reload")
    assert without_table == (0, "added         -\nremoved       -\nchanged       -\ndisconnected  0\n")
    set_reload(broker, AccessView(added=["gpu-1", "web"], removed=[], changed=["ops"], disconnected=3))
    assert run(url, "access", "reload") == (
        0,
        "added         gpu-1, web\nremoved       -\nchanged       ops\ndisconnected  3\n",
    )
    assert run(url, "access", "reload", "--json") == (
        0,
        '{"added":["gpu-1","web"],"removed":[],"changed":["ops"],"disconnected":3}\n',
    )
    set_reload(broker, OperationError("invalid", "access/web.toml, line 3: unknown key 'cal'; did you mean 'call'?"))
    code, told = run(url, "access", "reload")
    assert (code, "access/web.toml, line 3: unknown key 'cal'" in told) == (2, True)

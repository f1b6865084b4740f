"""Options and errors that `dragoman export` and `dragoman import` share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.exit_codes import DISK, FAILED, TAKEN, UNREACHABLE, USAGE, fail, warn

if TYPE_CHECKING:
    from dragoman.server.nats_connection import NatsConnection
    from dragoman.transfer.damage import Damage


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster of a command; without one, `url` is empty."""

    url: str
    name: str
    credentials: str


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a cluster, as one argument `cluster`."""

    @click.option("--cluster", "url", metavar="nats://HOST,...", default="", help="The NATS servers of a cluster.")
    @click.option(
        "--cluster-name", "name", metavar="NAME", default="dragoman", show_default=True, help="Of the cluster."
    )
    @click.option("--cluster-credentials", "credentials", metavar="FILE", default="", help="As of `dragoman serve`.")
    @wraps(command)
    def with_options(*args: Any, url: str, name: str, credentials: str, **others: Any) -> None:
        command(*args, cluster=ClusterOptions(url, name, credentials), **others)

    return with_options


def with_cluster(
    options: ClusterOptions, purpose: str, act: Callable[[NatsConnection], Coroutine[Any, Any, None]]
) -> None:
    """Connect to NATS, and act."""
    import asyncio

    from dragoman.cluster.names import check_name
    from dragoman.sdk.address import AddressError
    from dragoman.server import cluster_init
    from dragoman.server.nats_connection import Denied, NatsUnavailable

    async def run() -> None:
        connection = await cluster_init.connect(options.url, options.name, options.credentials, purpose)
        try:
            await act(connection)
        finally:
            connection.close()

    try:
        check_name("cluster", options.name)
        asyncio.run(run())
    except NatsUnavailable as error:
        fail(str(error), UNREACHABLE)
    except Denied as error:
        fail(str(error), FAILED)
    except (AddressError, ValueError) as error:
        fail(str(error), USAGE)


@contextmanager
def ending_transfer() -> Iterator[None]:
    """End the command on an error of a transfer, with its sentence and exit code."""
    from dragoman.store.errors import StoreError, StoreInUse
    from dragoman.transfer.errors import BadFile, InUse, TransferError

    try:
        yield
    except InUse as error:
        fail(str(error), TAKEN)
    except StoreInUse as error:
        fail(f"{error}: stop it first", TAKEN)
    except BadFile as error:
        fail(str(error), USAGE)
    except TransferError as error:
        fail(str(error), FAILED)
    except StoreError as error:
        fail(str(error), DISK)
    except BrokenPipeError:
        raise  # the reader of the output has gone
    except OSError as error:
        fail(f"{error.filename or 'the file'} cannot be used: {error.strerror or error}", DISK)


def tell_damages(damages: Iterable[Damage]) -> None:
    """Print what is left out of a file to standard error, a line each."""
    for each in damages:
        warn(each.sentence)


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.items() if number or kind == "jobs")

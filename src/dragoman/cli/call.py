"""`dragoman call`: submit one job and wait for its answer."""

from __future__ import annotations

import sys
from math import isnan

import click

from dragoman.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, fail
from dragoman.cli.seconds import SECONDS


@click.command(
    epilog="""\b
Examples:
  dragoman call echo "hello"
  dragoman call default "hello" --connect pingpong+tcp://127.0.0.1:7402
  dragoman call echo "hello" --connect memodb+tcp://127.0.0.1:7405 --timeout 10
  dragoman call echo "hello" --connect http://127.0.0.1:7480
  cat big.png | dragoman call resize - --connect "pingpong+tcp://127.0.0.1:7402?service=resize" > small.png

Exit codes: 0 done; 1 failed, lost, cancelled or refused; 2 usage; 3 broker unreachable; 4 timed out.
""",
)
@click.argument("service")
@click.argument("data", default="")
@click.option(
    "--connect",
    "url",
    metavar="URL",
    help="The broker's address for callers. [default: DRAGOMAN_URL, else tcp://127.0.0.1:7400]",
)
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="S",
    help="Give up after so many seconds; `none`: wait and let it run without a limit.  [default: wait; the listener's "
    "job_timeout limits how long it runs]",
)
def call(service: str, data: str, url: str | None, timeout: float | str | None) -> None:
    """Submit one job to SERVICE and print its result.

    DATA is the payload; `-` reads it from standard input. The result goes to standard output as it came, errors to
    standard error.
    """
    import asyncio  # here, as all that other commands need not load

    from dragoman.sdk.address import AddressError
    from dragoman.sdk.errors import BrokerUnavailable, JobError, JobTimeout

    if isinstance(timeout, float) and isnan(timeout):
        fail("--timeout: nan is no number of seconds", USAGE)
    payload = sys.stdin.buffer.read() if data == "-" else data.encode("utf-8", "surrogateescape")
    try:
        result = asyncio.run(_call(url, service, payload, timeout))
    except AddressError as error:
        fail(str(error), USAGE)
    except BrokerUnavailable as error:
        fail(str(error), UNREACHABLE)
    except JobTimeout as error:
        fail(str(error), TIMED_OUT)
    except JobError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    sys.stdout.buffer.write(result)
    if sys.stdout.isatty() and not result.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


async def _call(url: str | None, service: str, payload: bytes, timeout: float | str | None) -> bytes:
    from dragoman.sdk.async_client import AsyncClient
    from dragoman.sdk.unset import TIMEOUT

    async with AsyncClient(url, patient=False) as client:
        patience = TIMEOUT if timeout is None else None if isinstance(timeout, str) else timeout
        result: bytes = await client.call(service, payload, timeout=patience)
        return result

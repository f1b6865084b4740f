"""`dragoman call`: submit one job and print its result."""

from __future__ import annotations

import click

from dragoman.cli.client import DEFAULT, connected
from dragoman.cli.payloads import print_bytes, read_payload
from dragoman.cli.request_options import request_options
from dragoman.cli.seconds import SECONDS
from dragoman.operations.schemas import EnqueueRequest


@click.command(
    epilog="""\b
Examples:
  dragoman call echo "hello"
  dragoman call default "hello" --connect pingpong+tcp://127.0.0.1:7402
  dragoman call echo "hello" --connect memodb+tcp://127.0.0.1:7405 --timeout 10
  dragoman call echo "hello" --connect http://127.0.0.1:7480
  dragoman call echo "hello" --connect "https://broker:7480?token_file=token.txt"
  cat big.png | dragoman call resize - --connect "pingpong+tcp://127.0.0.1:7402?service=resize" > small.png

Exit codes: 0 done; 1 failed, lost, cancelled or refused; 2 usage; 3 broker unreachable; 4 timed out.
A broker that does not accept this key, token or certificate counts as unreachable.
""",
)
@click.argument("service")
@click.argument("data", default="")
@click.option(
    "--connect",
    "url",
    metavar="URL",
    help="Address of the broker for callers: native, HTTP or another dialect that has callers. Its options may name a "
    f"key (?server_key=HEX&key=NAME), a token (?token_file=FILE) or a certificate.  {DEFAULT}",
)
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="S",
    help="Seconds to wait for the result, more than 0; `none`: no limit, neither for the wait nor for the job.  "
    "[default: no limit for the wait; the listener's job_timeout limits the job]",
)
@request_options(EnqueueRequest, "tenant")
def call(service: str, data: str, url: str | None, timeout: float | str | None, tenant: str | None) -> None:
    """Submit one job to SERVICE and print its result.

    DATA is the payload; `-` reads it from standard input. The result is written to standard output unchanged, errors to
    standard error.
    """
    from dragoman.sdk.unset import TIMEOUT

    limit = TIMEOUT if timeout is None else None if isinstance(timeout, str) else timeout
    payload = read_payload(data)
    with connected(url) as client:
        result = client.call(service, payload, timeout=limit, tenant=tenant)
    print_bytes(result)

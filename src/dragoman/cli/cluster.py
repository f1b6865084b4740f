"""`dragoman cluster`: make the logs of a cluster, and look at its brokers."""

from __future__ import annotations

import click

from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.exit_codes import FAILED, UNREACHABLE, USAGE, fail
from dragoman.cli.tables import plain, print_facts, print_json, print_table
from dragoman.operations.cluster_schemas import BrokerRef
from dragoman.operations.schemas import EmptyRequest
from dragoman.operations.table import CLUSTER, RELEASE_SHARDS


@click.group()
def cluster() -> None:
    """Make a cluster, and look at its brokers.

    `dragoman cluster init` makes the logs of background jobs, once. Then brokers join with `dragoman serve --cluster
    nats://HOST`.
    """


@cluster.command(
    epilog="""\b
Examples:
  dragoman cluster init --cluster nats://127.0.0.1:4222 --replicas 1
  dragoman cluster init --cluster 'tls://a,b,c?ca=ca.pem' --cluster-name prod --synced
""",
)
@click.option("--cluster", "url", metavar="nats://HOST,...", required=True, help="The NATS servers.")
@click.option("--cluster-name", "name", metavar="NAME", default="dragoman", show_default=True, help="Of the cluster.")
@click.option("--cluster-credentials", "credentials", metavar="FILE", default="", help="As of `dragoman serve`.")
@click.option("--shards", type=click.IntRange(1, 250), default=12, show_default=True, help="Number of logs.")
@click.option("--replicas", type=click.IntRange(1, 5), default=3, show_default=True, help="Servers that have each log.")
@click.option("--max-bytes", type=click.IntRange(1 << 20), default=None, help="Size at which a log takes no more.")
@click.option("--synced", is_flag=True, help="Declare that every NATS server has `sync_interval: always`.")
def init(
    url: str, name: str, credentials: str, shards: int, replicas: int, max_bytes: int | None, synced: bool
) -> None:
    """Make the logs of background jobs, once for a cluster.

    They are streams of JetStream, named DGM_<cluster>_<nn>. No broker makes or deletes one. The numbers of shards and
    replicas cannot be changed later. If it was interrupted, run it again: it makes what is missing.
    """
    import asyncio

    from dragoman.cluster.layout import Layout
    from dragoman.cluster.names import check_name
    from dragoman.sdk.address import AddressError
    from dragoman.server import cluster_init
    from dragoman.server.clock import random_bytes
    from dragoman.server.nats_connection import Denied, NatsUnavailable

    async def make() -> tuple[Layout, int]:
        connection = await cluster_init.connect(url, name, credentials, "init")
        try:
            wanted = Layout(random_bytes(8).hex(), shards, replicas, synced)
            return await cluster_init.initialise(connection, name, wanted, max_bytes or -1)
        finally:
            connection.close()

    try:
        check_name("cluster", name)
        layout, made = asyncio.run(make())
    except NatsUnavailable as error:
        fail(str(error), UNREACHABLE)
    except (AddressError, ValueError) as error:
        fail(str(error), USAGE)
    except (cluster_init.InitError, Denied) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"cannot read {error.filename or credentials}: {error.strerror or error}", USAGE)
    what = "is initialised" if made else "was initialised before"
    click.echo(f"cluster {name} {what}: {layout.shards} shards, {layout.replicas} replicas ({layout.durability})")


@cluster.command(
    epilog="""\b
Examples:
  dragoman cluster status
  dragoman cluster status --json | jq -r '.members[] | select(.state == "silent") | .name'
""",
)
@connect_option
@json_option
def status(url: str | None, as_json: bool) -> None:
    """Show the brokers of the cluster, as this broker knows them.

    WORKERS counts each worker once, IDLE their free slots. GIVEN counts jobs of this broker that run there, TAKEN jobs
    from there that run at this one. CLOCK: seconds by which a broker's clock is ahead of that of NATS; one that differs
    by more than 5 s does not own shard 0. JOBS, LOG BYTES, COMMIT AGE and VOID are known for shards of this broker.
    VOID: messages of a log that do not count. A line `problem` names a broker that is ignored, because it has the name
    of this cluster and other logs; or says that this one takes no part, because an older broker has its name.
    """
    view = perform(url, CLUSTER, EmptyRequest())
    if as_json:
        print_json(view)
        return
    connected = f"connected to {view.server}" if view.connected else "not connected"
    facts = [("cluster", view.name), ("broker", view.broker), ("NATS", connected)]
    facts += [("durability", view.durability), *(("problem", each) for each in view.problems)]
    print_facts(facts)
    rows = [
        (
            each.name,
            each.state,
            each.version,
            each.workers,
            each.idle,
            each.given,
            each.taken,
            "-" if each.clock is None else f"{each.clock:+.1f} s",
            "" if each.same_access else "its access table differs",
        )
        for each in view.members
    ]
    titles = ("BROKER", "STATE", "VERSION", "WORKERS", "IDLE", "GIVEN", "TAKEN", "CLOCK", "")
    print_table(titles, rows, "There are no brokers.", fits=True)
    shards = [
        (
            each.number,
            each.owner or "-",
            each.state,
            each.epoch,
            "-" if each.jobs is None else each.jobs,
            "-" if each.log_bytes is None else each.log_bytes,
            "-" if each.commit_age is None else f"{each.commit_age:.0f} s",
            "-" if each.voids is None else each.voids,
            each.problem,
        )
        for each in view.shards
    ]
    if shards:
        heads = ("SHARD", "OWNER", "STATE", "EPOCH", "JOBS", "LOG BYTES", "COMMIT AGE", "VOID", "")
        print_table(heads, shards, "There are no shards.", fits=True)


@cluster.command(
    epilog="""\b
Examples:
  dragoman cluster release eu1
""",
)
@click.argument("broker")
@connect_option
def release(broker: str, url: str | None) -> None:
    """Let BROKER give its shards to other brokers, for example before its machine is serviced.

    Running jobs go on, and their results go to the new owners. BROKER takes no shard for a minute. If no other broker
    takes shards, because all others are released, too, or stop, BROKER keeps its own until one does. A broker that
    stops (SIGTERM) does this by itself.
    """
    view = perform(url, RELEASE_SHARDS, BrokerRef(broker=broker))
    name = plain(broker)
    if any(each.takes_shards and each.name != broker for each in view.members):
        click.echo(f"{name} gives its shards to other brokers")
    else:
        click.echo(f"{name} keeps its shards: no other broker takes any now; it gives them to the first one that does")

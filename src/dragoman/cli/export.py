"""`dragoman export`: write all background jobs of a data folder or a cluster into a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman import __version__
from dragoman.cli.exit_codes import DAMAGED, FAILED, USAGE, fail, unwritable
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.terminal import is_terminal
from dragoman.cli.transfer_ends import (
    ClusterOptions,
    cluster_options,
    counted,
    ending_transfer,
    tell_damages,
    with_cluster,
)

if TYPE_CHECKING:
    from dragoman.server.nats_connection import NatsConnection


@click.command(
    epilog="""\b
Examples:
  dragoman export --data ./data > jobs.ndjson
  dragoman export --cluster nats://a,b,c --cluster-name prod > jobs.ndjson
  dragoman export --cluster nats://a,b,c --skip-damaged > jobs.ndjson
""",
)
@click.option("--data", "folder", metavar="DIR", help="The data folder of a broker that is stopped.")
@click.option("--skip-damaged", is_flag=True, help="Export what can be read of damaged logs of a cluster.")
@click.option(
    "--had",
    metavar="SHARD:SEQUENCE",
    multiple=True,
    help="The last sequence that the log of a shard is known to have had, if its end is lost. May be repeated.",
)
@cluster_options
def export(folder: str | None, skip_damaged: bool, had: tuple[str, ...], cluster: ClusterOptions) -> None:
    """Write all background jobs to standard output, as JSON lines.

    With their payloads, results, histories and keys, and with schedules, pauses, limits and groups. Nothing is changed,
    except that a store of an earlier release is upgraded. Brokers must be stopped. `dragoman import` reads the file.
    The last line has counts and a digest: a file without it is not complete.

    A damaged log of a cluster ends the command with 1. With --skip-damaged, everything that can be read is exported,
    and standard error and the file say what is left out: shard, messages, reason, and ids of jobs where they are known.
    Then the exit code is 65. `cluster status` says which sequence a log has had.
    """
    from dragoman.server import clock
    from dragoman.transfer.folder import export_folder
    from dragoman.transfer.jobs_file import FileWriter

    if (folder is None) == (not cluster.url):
        fail("name either a data folder (--data) or a cluster (--cluster)", USAGE)
    if folder is not None and (skip_damaged or had):
        fail("--skip-damaged and --had are for a cluster; use `dragoman store recover` for a data folder", USAGE)
    sequences = _sequences(had)
    if is_terminal(sys.stdout):
        fail("standard output is a terminal; write to a file: dragoman export … > jobs.ndjson", USAGE)
    out = sys.stdout.buffer
    made = clock.now() + clock.wall_offset()
    source = "cluster" if folder is None else "folder"
    unit = "shards" if folder is None else "jobs"
    with ending_transfer(), ProgressBar("exporting", unit) as bar:
        try:
            file = FileWriter(out.write, __version__, clock.random_bytes(16).hex(), source, made)
            if folder is None:
                from dragoman.transfer.cluster_export import ClusterExport

                async def write(connection: NatsConnection) -> None:
                    made = ClusterExport(connection, cluster.name, file, __version__, skip_damaged, sequences)
                    await made.write(bar.update)

                with_cluster(cluster, "export", write)
            else:
                export_folder(Path(folder).expanduser(), file, __version__, bar.update)
            file.end()
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.filename is not None:
                raise
            fail(unwritable(error), FAILED)
    click.echo(f"exported: {counted(file.counts)}", err=True)
    if file.damages:
        tell_damages(file.damages)
        fail("the export is not complete: it is without what the lines above say", DAMAGED)


def _sequences(had: tuple[str, ...]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in had:
        shard, _, sequence = each.partition(":")
        if not (shard.isdecimal() and sequence.isdecimal()):
            fail(f"--had {each}: write the shard, a colon and the sequence, such as 3:4711", USAGE)
        found[int(shard)] = int(sequence)
    return found

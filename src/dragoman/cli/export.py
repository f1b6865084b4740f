"""`dragoman export`: write all background jobs of a data folder or a cluster into a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dragoman import __version__
from dragoman.cli.exit_codes import FAILED, USAGE, fail, unwritable
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.terminal import is_terminal
from dragoman.cli.transfer_ends import ClusterOptions, cluster_options, counted, ending_transfer, with_cluster


@click.command(
    epilog="""\b
Examples:
  dragoman export --data ./data > jobs.ndjson
  dragoman export --cluster nats://a,b,c --cluster-name prod > jobs.ndjson
""",
)
@click.option("--data", "folder", metavar="DIR", help="The data folder of a broker that is stopped.")
@cluster_options
def export(folder: str | None, cluster: ClusterOptions) -> None:
    """Write all background jobs to standard output, as JSON lines.

    With their payloads, results, histories and keys, and with schedules, pauses, limits and groups. Nothing is changed,
    except that a store of an earlier release is upgraded. Brokers must be stopped. `dragoman import` reads the file.
    The last line has counts and a digest: a file without it is not complete.
    """
    from dragoman.server import clock
    from dragoman.transfer.folder import export_folder
    from dragoman.transfer.jobs_file import FileWriter

    if (folder is None) == (not cluster.url):
        fail("name either a data folder (--data) or a cluster (--cluster)", USAGE)
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
                from dragoman.transfer.cluster_export import export_cluster

                with_cluster(
                    cluster,
                    "export",
                    lambda connection: export_cluster(connection, cluster.name, file, __version__, bar.update),
                )
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

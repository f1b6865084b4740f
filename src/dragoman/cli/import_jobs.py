"""`dragoman import`: read a file of `dragoman export` into a data folder or a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from dragoman import __version__
from dragoman.cli.exit_codes import DAMAGED, USAGE, fail
from dragoman.cli.progress_bar import ProgressBar
from dragoman.cli.transfer_ends import (
    ClusterOptions,
    cluster_options,
    counted,
    ending_transfer,
    tell_damages,
    with_cluster,
)


@click.command(
    "import",
    epilog="""\b
Examples:
  dragoman import jobs.ndjson --data ./new
  dragoman import jobs.ndjson --cluster nats://a,b,c --cluster-name prod
""",
)
@click.argument("file")
@click.option("--data", "folder", metavar="DIR", help="A data folder that is new, or has no jobs.")
@click.option("--accept-damage", is_flag=True, help="Import a file that `export --skip-damaged` made.")
@cluster_options
def import_jobs(file: str, folder: str | None, accept_damage: bool, cluster: ClusterOptions) -> None:
    """Read background jobs from FILE, which `dragoman export` made.

    All of it or nothing: a file that is damaged, cut off or edited is refused before anything is written. Ids of jobs
    stay the same. Brokers must be stopped; a cluster must have been made with `dragoman cluster init`. If an import
    into a cluster is interrupted, run it again with the same file: until then no broker takes the shards.

    The file of a damaged cluster says what is left out. The command repeats that, and ends with 65 unless you
    accept it with --accept-damage.
    """
    from dragoman.transfer.file_index import FileIndex
    from dragoman.transfer.folder import import_folder
    from dragoman.transfer.jobs_file import FileReader

    if (folder is None) == (not cluster.url):
        fail("name either a data folder (--data) or a cluster (--cluster)", USAGE)
    if not Path(file).is_file():
        fail(f"{file} is no file; pass one that `dragoman export` made", USAGE)
    with ending_transfer(), open(file, "rb") as opened:
        reader = FileReader(opened)
        with ProgressBar("checking the file", "jobs") as bar:
            index = FileIndex(reader, bar.update)
        tell_damages(reader.damages)
        if reader.damages and not accept_damage:
            fail("the file is without what the lines above say; import it with --accept-damage", DAMAGED)
        with ProgressBar("importing", "jobs") as bar:
            if folder is None:
                from dragoman.transfer.cluster_import import import_cluster

                with_cluster(
                    cluster,
                    "import",
                    lambda connection: import_cluster(connection, cluster.name, reader, index, __version__, bar.update),
                )
            else:
                import_folder(Path(folder).expanduser(), reader, index, __version__, bar.update)
    click.echo(f"imported: {counted(reader.counts)}")

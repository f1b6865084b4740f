"""`dragoman config`: print the settings of a broker and their sources."""

from __future__ import annotations

import json
import os
import re

import click

from dragoman.cli.serve import SETTINGS, load_sourced
from dragoman.cli.tables import size_text

SIZES = ("_bytes", "_size", "_memory")  # ends of the names of settings that are a number of bytes

SECRET = re.compile(r"dgm_[\w-]+|(?<=://)[^/?#@]*(?=@)")


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(urls: tuple[str, ...], path: str | None, as_json: bool, **flags: object) -> None:
    """Print every setting and where it came from.

    Flags override environment variables (DRAGOMAN_*), these override the file (--config or DRAGOMAN_CONFIG), and that
    overrides the defaults. Takes the same arguments as `dragoman serve`.
    """
    from dragoman.server.config import default_data_dir
    from dragoman.server.wiring import default_listeners

    _, sourced = load_sourced(urls, path, flags)
    rows = [(each.name, each.value, each.source) for each in sourced]
    shown_instead = {"listen": default_listeners(os.environ), "data": str(default_data_dir(os.environ))}
    rows = [(name, _hidden(value or shown_instead.get(name, value)), source) for name, value, source in rows]
    if as_json:
        click.echo(json.dumps({name: {"value": value, "source": source} for name, value, source in rows}, indent=2))
        return
    width = max(len(name) for name, _, _ in rows)
    for name, value, source in rows:
        for each in value if isinstance(value, list | tuple) else [value]:
            shown = size_text(each) if name.endswith(SIZES) and isinstance(each, int) else each
            click.echo(f"{name:<{width}}  {shown!s:<28}  {source}")


for option in reversed(SETTINGS):
    config = option(config)


def _hidden(value: object) -> object:
    """Return a setting without tokens and passwords, which do not belong into an address."""
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    return SECRET.sub("secret", value) if isinstance(value, str) else value

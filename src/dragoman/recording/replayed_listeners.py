"""URLs of listeners in a replay: without the options that need files, names of hosts, or users of this machine."""

from __future__ import annotations

from dataclasses import fields
from typing import Final
from urllib.parse import quote, urlencode

from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.address import UnixAddress, parse
from dragoman.server.listener_security import security_options

DROPPED: Final = ("insecure", "dial_allow")


def plain_url(url: str) -> str:
    """Return the URL of the same listener without security. A replay opens no socket."""
    address = parse(url, DIALECTS)
    dialect = DIALECTS[address.dialect]
    dropped = {each.name for kind in security_options(dialect) for each in fields(kind)} | set(DROPPED)
    options = {name: value for name, value in address.options.items() if name not in dropped}
    if "frontend" in options:
        options["frontend"] = "0"
    if isinstance(address.place, UnixAddress) and "unix" in dialect.transports:
        return f"{dialect.name}+unix://{quote(address.place.path)}?{urlencode(options)}"
    scheme = dialect.schemes[0] if dialect.schemes else f"{dialect.name}+{dialect.transports[0]}"
    return f"{scheme}://127.0.0.1:0?{urlencode(options)}"

"""`dragoman access`: show, check and change the principals of a broker."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from dragoman.access.identities import Identity, IdentityKind, read_identity
from dragoman.access.principal_file import PrincipalEntry
from dragoman.cli.access_folder import AccessFolder, ending_access_errors, folder_options, note, rights_options
from dragoman.cli.client import connect_option, json_option, perform
from dragoman.cli.exit_codes import FAILED, USAGE, fail
from dragoman.cli.tables import plain, print_facts, print_json, print_table
from dragoman.cli.terminal import time_text
from dragoman.core.rights import ANYONE, LOCAL, Right
from dragoman.operations.schemas import AccessView, EmptyRequest
from dragoman.operations.table import RELOAD_ACCESS


class PrincipalView(msgspec.Struct):
    """One principal, as `dragoman access show --json` prints it."""

    name: str
    file: str
    identities: dict[str, list[str | int]]
    rights: dict[str, list[str]]
    limits: dict[str, float | None]
    expires: datetime | None
    expired: bool


@click.group(
    epilog="""\b
Examples:
  dragoman access allow www --uid 33 --call "mail.*"
  dragoman access may www call mail.send
  dragoman access show
"""
)
def access() -> None:
    """Manage principals: who may connect to a broker, and with which rights.

    The access folder has one TOML file for each principal. These commands read and write it; all but `reload` need no
    running broker.
    """


@access.command()
@click.argument("name", required=False)
@folder_options
@json_option
def show(name: str | None, as_json: bool, **where: Any) -> None:
    """Show all principals, or the principal NAME: rights, identities, expiry."""
    with ending_access_errors():
        folder = AccessFolder.find(**where)
        entries = folder.table().entries
    if name is not None and name not in entries:
        fail(f"there is no principal {name!r}; `dragoman access show` lists all", FAILED)
    chosen = [each for each in entries.values() if name in (None, each.name)]
    if as_json:
        print_json(*map(_view, chosen))
        return
    listeners = _listeners(where["config"])
    rows = [_row(each, listeners) for each in chosen]
    if name is None:
        here = [url for url, kinds in listeners if IdentityKind.UID in kinds]
        rows.append((LOCAL, *["*"] * len(Right), "the user of the broker, and root", _shown(here), "", "built in"))
    titles = ("PRINCIPAL", *(right.upper() for right in Right), "IDENTITIES", "LISTENERS", "EXPIRES", "FILE")
    print_table(titles, rows, "There are no principals.")
    _note_old_key_users(folder, entries)
    if folder.path is None:
        note(
            f"There is no access folder: all peers have all rights. `dragoman access allow` creates one: {_new(folder)}"
        )


def _note_old_key_users(folder: AccessFolder, entries: Mapping[str, PrincipalEntry]) -> None:
    """Tell which principals have come by the old key of the broker."""
    from dragoman.access.keys import OLD_BROKER, broker_key_folder, key_file
    from dragoman.access.old_key import read_old_key_users

    data = folder.places.data
    if data is None or not key_file(broker_key_folder(data), OLD_BROKER).exists():
        return
    users = {name: when for name, when in read_old_key_users(data).principals.items() if name in entries}
    for name, when in sorted(users.items()):
        moment = time_text(datetime.fromtimestamp(when, UTC))
        note(f"{name} came by the old key of the broker, last at {moment}; give it the new one as server_key")
    if not users:
        note("Nobody has come by the old key of the broker since it was replaced")


def _new(folder: AccessFolder) -> str:
    with ending_access_errors():
        return str(folder.places.place_for_new())


def _listeners(config: str | None) -> list[tuple[str, tuple[IdentityKind, ...]]]:
    """The listeners of the settings, each with the kinds of identities that it takes. URLs on the command line of
    `serve` are not known here."""
    import os

    from dragoman.dialects.catalogue import DIALECTS
    from dragoman.sdk.address import AddressError, parse
    from dragoman.server.config import ConfigError, load
    from dragoman.server.listener_security import identity_kinds
    from dragoman.server.wiring import default_listeners

    found = []
    try:
        urls = load({}, os.environ, config)[0].listen or default_listeners(os.environ)
        for url in urls:
            address = parse(url, DIALECTS)
            found.append((url.partition("?")[0], identity_kinds(address, DIALECTS[address.dialect])))
    except (ConfigError, AddressError) as error:
        fail(str(error), USAGE)
    return found


def _shown(urls: list[str]) -> str:
    return ", ".join(urls[:2]) + (f" and {len(urls) - 2} more" if len(urls) > 2 else "") or "none of the settings"


def _row(entry: PrincipalEntry, listeners: list[tuple[str, tuple[IdentityKind, ...]]]) -> tuple[object, ...]:
    patterns = [" ".join(entry.rights.patterns(right)) or "-" for right in Right]
    identities = ", ".join(f"{each.kind} {each.label}" for each in entry.identities) or "-"
    if entry.name == ANYONE:
        identities = "every peer without an identity"
    expired = "" if entry.is_valid(time.time()) else " (expired)"
    expires = "" if entry.expires is None else f"{time_text(_moment(entry))}{expired}"
    own = {each.kind for each in entry.identities}
    reached = [url for url, kinds in listeners if own.intersection(kinds)]
    return entry.name, *patterns, identities, "-" if entry.name == ANYONE else _shown(reached), expires, entry.file


def _view(entry: PrincipalEntry) -> PrincipalView:
    identities: dict[str, list[str | int]] = {}
    for each in entry.identities:
        identities.setdefault(each.kind, []).append(each.in_file)
    return PrincipalView(
        entry.name,
        entry.file,
        identities,
        {right: list(entry.rights.patterns(right)) for right in Right},
        dataclasses.asdict(entry.limits),
        _moment(entry),
        not entry.is_valid(time.time()),
    )


def _moment(entry: PrincipalEntry) -> datetime | None:
    return None if entry.expires is None else datetime.fromtimestamp(entry.expires, UTC)


@access.command()
@folder_options
def check(**where: Any) -> None:
    """Check the access folder as a broker does when it starts. Exit code 0, or 2 with a line for each problem."""
    with ending_access_errors():
        folder = AccessFolder.find(**where)
        entries = folder.table().entries
    if folder.path is None:
        click.echo("in order: there is no access folder, and all peers have all rights")
        return
    for each in entries.values():
        if each.name != ANYONE and not each.identities:
            note(f"{each.file}: has no identity, so that no peer is this principal")
        if not any(each.rights.may_some(right) for right in Right):
            note(f"{each.file}: has no right, so that this principal can do nothing")
        if not each.is_valid(time.time()):
            note(f"{each.file}: has expired")
    count = len(entries)
    click.echo(f"in order: {count} principal{'' if count == 1 else 's'} in {plain(folder.path)}")


@access.command()
@click.argument("name")
@click.option("--uid", multiple=True, type=int, metavar="N", help="User id on this machine.")
@click.option("--gid", multiple=True, type=int, metavar="N", help="Group id on this machine.")
@click.option("--tls-name", multiple=True, metavar="NAME", help="Name in a client certificate of a trusted authority.")
@click.option("--tls-cert", multiple=True, metavar="FILE", help="Client certificate (PEM): the holder of its key.")
@rights_options
@folder_options
def allow(
    name: str,
    uid: tuple[int, ...],
    gid: tuple[int, ...],
    tls_name: tuple[str, ...],
    tls_cert: tuple[str, ...],
    call: tuple[str, ...],
    work: tuple[str, ...],
    see: tuple[str, ...],
    administer: tuple[str, ...],
    **where: Any,
) -> None:
    """Give identities and rights to the principal NAME, which is created if it does not exist.

    Options may be repeated. PATTERN is the name of a service, a prefix that ends in '*', or '*' for all services. For
    keys and tokens there are `dragoman keys allow` and `dragoman token new`.
    """
    patterns = {"call": call, "work": work, "see": see, "administer": administer}
    if not any((uid, gid, tls_name, tls_cert, *patterns.values())):
        fail("give at least one identity or right, such as --uid 33 --call 'mail.*'", USAGE)
    given = {IdentityKind.UID: uid, IdentityKind.GID: gid, IdentityKind.TLS_NAME: tls_name}
    identities = [_identity(kind, value) for kind, values in given.items() for value in values]
    identities += [_certificate(Path(each)) for each in tls_cert]
    with ending_access_errors():
        AccessFolder.find(**where, to_create=True).allow(name, identities, patterns, "access allow")


def _identity(kind: IdentityKind, value: object) -> Identity:
    try:
        return read_identity(kind, value)
    except ValueError as error:
        fail(f"--{kind.replace('_', '-')} {error}", USAGE)


def _certificate(path: Path) -> Identity:
    import ssl

    from dragoman.access.certificates import public_key_hash

    try:
        der = ssl.PEM_cert_to_DER_cert(path.read_text("ascii").strip())
        return Identity(IdentityKind.TLS_KEY, public_key_hash(der))
    except OSError as error:
        fail(f"--tls-cert {path}: cannot be read: {error.strerror or error}", USAGE)
    except ValueError as error:
        fail(f"--tls-cert {path}: is not one certificate in PEM: {error}", USAGE)


@access.command()
@connect_option
@json_option
def reload(url: str | None, as_json: bool) -> None:
    """Have a running broker read the access folder again.

    If a file is invalid, nothing changes. Connections of principals that lost their access are closed.
    """
    view = perform(url, RELOAD_ACCESS, EmptyRequest())
    if as_json:
        print_json(view)
        return
    rows = [(fact, ", ".join(names) or "-") for fact, names in _changes(view).items()]
    print_facts([*rows, ("disconnected", view.disconnected)])


def _changes(view: AccessView) -> dict[str, list[str]]:
    return {"added": view.added, "removed": view.removed, "changed": view.changed}


@access.command()
@click.argument("name")
@folder_options
def remove(name: str, **where: Any) -> None:
    """Remove the principal NAME: delete its file. None of its identities is admitted any more."""
    with ending_access_errors():
        AccessFolder.find(**where).remove(name)


@access.command()
@click.argument("name")
@click.argument("right", type=click.Choice([str(right) for right in Right]))
@click.argument("service")
@folder_options
def may(name: str, right: str, service: str, **where: Any) -> None:
    """Tell whether the principal NAME has this right over SERVICE. Exit code 0 if it has, 1 if not."""
    with ending_access_errors():
        folder = AccessFolder.find(**where)
        entry = folder.table().entries.get(name)
    if name == LOCAL or (name == ANYONE and folder.path is None):
        click.echo(f"yes: {name} is built in and has all rights")
        return
    reason = _objection(name, entry, Right(right), service)
    if reason is None and entry is not None:
        click.echo(f"yes, by {plain(entry.file)}")
        return
    click.echo(f"no: {plain(reason)}")
    raise click.exceptions.Exit(FAILED)


def _objection(name: str, entry: PrincipalEntry | None, right: Right, service: str) -> str | None:
    if entry is None:
        return f"there is no principal {name!r}"
    if not entry.is_valid(time.time()):
        return f"{entry.file} has expired"
    if not entry.rights.may(right, service):
        return f"{right} in {entry.file} has no pattern for {service!r}; give it: {_command(name, right, service)}"
    return None


def _command(name: str, right: Right, service: str) -> str:
    import shlex

    return f"dragoman access allow {name} --{right} {shlex.quote(service)}"

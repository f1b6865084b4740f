"""`dragoman keys`: make CURVE keys, and admit or revoke those of principals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from dragoman.access.identities import Identity, IdentityKind
from dragoman.cli.access_folder import (
    AccessFolder,
    access_places,
    ending_access_errors,
    file_owner,
    folder_options,
    note,
    rights_options,
    tell_broker,
)
from dragoman.cli.client import json_option
from dragoman.cli.exit_codes import FAILED, TAKEN, USAGE, fail
from dragoman.cli.tables import print_json, print_table


class KeyView(msgspec.Struct):
    """One key, as `dragoman keys list --json` prints it."""

    name: str
    key: str
    use: str
    file: str


@click.group(
    epilog="""\b
Examples:
  dragoman keys new --broker
  dragoman keys new gpu-1
  dragoman keys list
"""
)
def keys() -> None:
    """Manage keys of CURVE, by which ZeroMQ and native peers prove who they are."""


@keys.command()
@click.argument("name", required=False)
@click.option("--broker", is_flag=True, help="Make the key of the broker, in its data folder.")
@click.option("--rotate", is_flag=True, help="With --broker: keep the present key as the old one, which stays valid.")
@folder_options
def new(name: str | None, broker: bool, rotate: bool, **where: Any) -> None:
    """Make the key NAME in the folder of this user, or the key of the broker. Prints its public key.

    The secret key is in a file with mode 0600 that has the form of a ZeroMQ certificate. Keep it on this machine.
    """
    from dragoman.access import keys as key_files
    from dragoman.access.principal_file import check_principal_name
    from dragoman.access.private_files import make_folder

    if (name is None) != broker:
        fail("give either the NAME of a key or --broker", USAGE)
    if rotate and not broker:
        fail("--rotate is for the key of the broker; make a key with another NAME, and admit both for a while", USAGE)
    with ending_access_errors():
        folder = _broker_folder(where) if broker else key_files.user_key_folder(os.environ)
        chosen = name or key_files.BROKER
        try:
            check_principal_name(chosen)
        except ValueError as error:
            fail(str(error), USAGE)
        make_folder(folder)
        path = key_files.key_file(folder, chosen)
        if rotate:
            _rotate(folder, path)
        try:
            pair = key_files.new_key_file(folder, chosen, os.urandom(32))
        except FileExistsError:
            advice = "add --rotate to replace it" if broker else "choose another name, or remove the file"
            fail(f"{path} exists, and is never overwritten; {advice}", TAKEN)
    public = str(Identity(IdentityKind.CURVE, pair.public).in_file)
    click.echo(public)
    note(f"the secret key is in {path}; no other machine needs it")
    if broker:
        if rotate:
            tell_broker(access_places(**where).data)
        note(f"Next, in the URL of each client and worker: server_key={public}")
    else:
        note(f"Next, on the broker's machine: dragoman keys allow {chosen} {public} --work SERVICE (or --call SERVICE)")


def _broker_folder(where: dict[str, Any]) -> Path:
    from dragoman.access.keys import broker_key_folder

    data = access_places(**where).data
    if data is None:
        fail("a broker without a data folder has no place for its key; name a folder with --data", USAGE)
    return broker_key_folder(data)


def _rotate(folder: Path, path: Path) -> None:
    from dragoman.access import keys as key_files
    from dragoman.access.old_key import read_old_key_users

    former = read_old_key_users(folder.parent).principals
    try:
        key_files.rotate_broker_key(folder)
    except FileNotFoundError:
        fail(f"{path} does not exist, so there is no key to rotate; leave --rotate out", USAGE)
    old = key_files.key_file(folder, key_files.OLD_BROKER)
    note(f"the present key is now {old}. Clients may use either; when all use the new one, remove that file")
    if former:
        names = ", ".join(sorted(former))
        note(f"The key before that is deleted. {names} used it: give them one of the other two as server_key")


@keys.command()
@click.argument("name")
@click.argument("key")
@rights_options
@folder_options
def allow(
    name: str,
    key: str,
    call: tuple[str, ...],
    work: tuple[str, ...],
    see: tuple[str, ...],
    administer: tuple[str, ...],
    **where: Any,
) -> None:
    """Admit the public key KEY as the principal NAME, which is created if it does not exist.

    KEY is what `dragoman keys new` prints: 64 hex digits, or 40 characters of Z85. A principal may have several.
    """
    patterns = {"call": call, "work": work, "see": see, "administer": administer}
    with ending_access_errors():
        AccessFolder.find(**where, to_create=True).allow(name, [_identity(key)], patterns, "keys allow")
    note("A peer that was refused before must be started again: libzmq does not reconnect after a refusal")


@keys.command()
@click.argument("name")
@click.argument("key")
@folder_options
def revoke(name: str, key: str, **where: Any) -> None:
    """Revoke the public key KEY of the principal NAME. The principal and its other identities stay."""
    identity = _identity(key)
    with ending_access_errors():
        folder = AccessFolder.find(**where)
        _check_has(folder, name, identity)
        folder.revoke(name, identity)


def _identity(key: str) -> Identity:
    from dragoman.access.identities import read_identity

    try:
        return read_identity(IdentityKind.CURVE, key)
    except ValueError:
        fail("KEY is not a public key; write 64 hex digits, or 40 characters of Z85 in quotes", USAGE)


def _check_has(folder: AccessFolder, name: str, identity: Identity) -> None:
    entry = folder.entry(name)
    if identity not in entry.identities:
        fail(f"{entry.file} does not have the key {identity.label}…; `dragoman keys list` lists all", FAILED)


@keys.command("list")
@folder_options
@json_option
def list_(as_json: bool, **where: Any) -> None:
    """List the keys that are admitted, those of the broker, and those of this user."""
    from dragoman.access import keys as key_files

    with ending_access_errors():
        folder = AccessFolder.find(**where)
        found = [
            KeyView(entry.name, str(each.in_file), "admitted", entry.file)
            for entry in folder.table().entries.values()
            for each in entry.identities
            if each.kind is IdentityKind.CURVE
        ]
        own = [("user", key_files.user_key_folder(os.environ))]
        if folder.places.data is not None:
            own.insert(0, ("broker", key_files.broker_key_folder(folder.places.data)))
        for use, place in own:
            uid = file_owner(place if place.is_dir() else None)
            found += [
                KeyView(
                    name,
                    str(Identity(IdentityKind.CURVE, pair.public).in_file),
                    use,
                    str(key_files.key_file(place, name)),
                )
                for name, pair in key_files.keys_in(place, uid).items()
            ]
    if as_json:
        print_json(*found)
        return
    rows = [(each.name, each.key, each.use, each.file) for each in found]
    print_table(("NAME", "PUBLIC KEY", "USE", "FILE"), rows, "There are no keys.")

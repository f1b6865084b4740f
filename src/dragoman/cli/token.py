"""`dragoman token`: make, revoke and list bearer tokens of principals."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import click
import msgspec

from dragoman.access.identities import Identity, IdentityKind
from dragoman.cli.access_folder import AccessFolder, ending_access_errors, folder_options, note, rights_options
from dragoman.cli.client import json_option
from dragoman.cli.exit_codes import FAILED, USAGE, fail
from dragoman.cli.tables import print_json, print_table
from dragoman.cli.terminal import time_text

MIN_DIGITS = 8


class TokenView(msgspec.Struct):
    """One token, as `dragoman token list --json` prints it. It is known by the first 8 hex digits of its hash."""

    principal: str
    token: str
    expires: datetime | None
    file: str


@click.group(
    epilog="""\b
Examples:
  dragoman token new web --call "mail.*"
  dragoman token list
  dragoman token revoke web 9b1c20e4
"""
)
def token() -> None:
    """Manage bearer tokens, by which clients of HTTP, and of native inside TLS, prove who they are."""


@token.command()
@click.argument("name")
@rights_options
@folder_options
def new(
    name: str,
    call: tuple[str, ...],
    work: tuple[str, ...],
    see: tuple[str, ...],
    administer: tuple[str, ...],
    **where: Any,
) -> None:
    """Make a token of the principal NAME, which is created if it does not exist. Prints the token, once.

    The access folder has only the hash of the token. A client that has the token is the principal: send it to its user
    over a private channel.
    """
    from dragoman.access.tokens import RANDOM_BYTES, new_token, token_hash

    made = new_token(os.urandom(RANDOM_BYTES))
    text = made.reveal().decode()
    patterns = {"call": call, "work": work, "see": see, "administer": administer}
    identity = Identity(IdentityKind.TOKEN, token_hash(text))
    with ending_access_errors():
        AccessFolder.find(**where, to_create=True).allow(name, [identity], patterns, "token new")
    note(f"The token {identity.label} follows. It is not shown again:")
    click.echo(text)


@token.command()
@click.argument("name")
@click.argument("token", metavar="TOKEN")
@folder_options
def revoke(name: str, token: str, **where: Any) -> None:
    """Revoke a token of the principal NAME. The principal and its other identities stay.

    TOKEN is the first 8 or more hex digits of its hash, as `dragoman token list` prints them; not the token itself.
    """
    if token.startswith("dgm_"):
        advice = "it is now in the history of your shell. Write the 8 digits that `dragoman token list` prints"
        fail(f"TOKEN must not be the token itself: {advice}", USAGE)
    if len(token) < MIN_DIGITS:
        fail(f"TOKEN has {len(token)} characters; write at least {MIN_DIGITS} hex digits of its hash", USAGE)
    with ending_access_errors():
        folder = AccessFolder.find(**where)
        entry = folder.entry(name)
        digits = token.lower().removeprefix("sha256:")
        found = [each for each in entry.identities if each.kind is IdentityKind.TOKEN and _hex(each).startswith(digits)]
        if len(found) != 1:
            number = "several tokens" if found else "no token"
            fail(f"{entry.file} has {number} {digits}…; `dragoman token list` lists all", FAILED)
        folder.revoke(name, found[0])


def _hex(identity: Identity) -> str:
    return str(identity.in_file).removeprefix("sha256:")


@token.command("list")
@folder_options
@json_option
def list_(as_json: bool, **where: Any) -> None:
    """List tokens by the first 8 hex digits of their hashes."""
    from datetime import UTC

    with ending_access_errors():
        entries = AccessFolder.find(**where).table().entries.values()
    found = [
        TokenView(
            entry.name,
            each.label,
            datetime.fromtimestamp(entry.expires, UTC) if entry.expires is not None else None,
            entry.file,
        )
        for entry in entries
        for each in entry.identities
        if each.kind is IdentityKind.TOKEN
    ]
    if as_json:
        print_json(*found)
        return
    rows = [(each.principal, each.token, time_text(each.expires) or "", each.file) for each in found]
    print_table(("PRINCIPAL", "TOKEN", "EXPIRES", "FILE"), rows, "There are no tokens.")

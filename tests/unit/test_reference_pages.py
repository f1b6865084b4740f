"""The reference pages of commands and settings are those that the code makes, and are complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import commands_page
import settings_page

from dragoman.cli import dragoman
from dragoman.dialects.catalogue import DIALECTS
from dragoman.server.config import load


def test_the_page_of_settings_is_the_one_that_the_code_makes() -> None:
    assert settings_page.PAGE.read_text() == settings_page.page(), "run `make generate`"


def test_the_page_of_settings_has_every_setting_and_every_dialect() -> None:
    head, *dialects = re.split(r"^### (.+)$", settings_page.page(), flags=re.MULTILINE)
    _, settings = load({}, {}, None)
    assert re.findall(r"^\| `(\w+)` \|", head, re.MULTILINE) == [each.name for each in settings]
    assert dialects[::2] == [row.title for row in DIALECTS.values()]
    assert all("| `max_payload` | whole number, 1 to 1GiB | 64MiB |" in table for table in dialects[1::2])


def test_the_page_of_commands_is_the_one_that_help_makes() -> None:
    assert commands_page.PAGE.read_text() == commands_page.page(), "run `make generate`"


def test_the_page_of_commands_has_every_command_and_every_option() -> None:
    chapters = re.split(r"^### dragoman (.+)$", commands_page.page(), flags=re.MULTILINE)
    found = dict(zip(chapters[1::2], chapters[2::2], strict=True))
    commands = dict(all_commands(dragoman, click.Context(dragoman), ""))
    assert set(found) == set(commands)
    missing = [
        f"{name} {flag}"
        for name, command in commands.items()
        for option in command.params
        if isinstance(option, click.Option)
        for flag in option.opts
        if flag not in found[name]
    ]
    assert missing == []


def all_commands(group: click.Group, context: click.Context, path: str) -> list[tuple[str, click.Command]]:
    """Commands by their path below `dragoman`, those of groups in place of the groups."""
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += all_commands(command, context, f"{path}{name} ")
        else:
            found.append((path + name, command))
    return found

"""Writes docs/reference/commands.md from the help of every command: `python tools/commands_page.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from dragoman.cli import dragoman, sections

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"

HEAD = """# Commands

`make generate` writes this page from the `--help` of each command. [The command line](../cli.md) explains addresses,
output for programs and exit codes.
"""

EXAMPLES = "Examples:\n"


def page() -> str:
    context = click.Context(dragoman, info_name="dragoman")
    parts = [HEAD]
    for title, names in sections().items():
        parts.append(f"\n## {title}\n")
        for name in names:
            command = dragoman.get_command(context, name)
            assert command is not None
            parts += _chapters(command, name, context)
    return "".join(parts)


def _chapters(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """The chapter of a command, or of each command in a group."""
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _chapters(found, each, context)
        return
    yield f"\n### {context.command_path}\n\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n\n"
    yield from (f"{text}\n\n" for text in _paragraphs(command.help or ""))
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    yield from (f"- `{names}`: {text}\n" if text else f"- `{names}`\n" for names, text in filter(None, records))
    for text in _paragraphs(command.epilog or ""):
        is_script = text.startswith(EXAMPLES)
        yield f"\n```sh\n{inspect.cleandoc(text.removeprefix(EXAMPLES))}\n```\n" if is_script else f"\n{text}\n"


def _paragraphs(text: str) -> list[str]:
    """Paragraphs as click shows them: lines joined, but for those that are marked to be left alone."""
    found = re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    return [
        each.removeprefix("\b\n") if each.startswith("\b\n") else " ".join(each.split())
        for each in found
        if each.strip()
    ]


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()

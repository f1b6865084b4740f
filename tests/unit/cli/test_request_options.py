"""Options of commands have the type, the limits, the default and the help of the request's field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import click
import pytest
from msgspec import Meta

from command_runner import command_runner
from dragoman.cli import dragoman
from dragoman.cli.operation_commands import command_name
from dragoman.cli.request_options import FieldValue, request_options
from dragoman.cli.seconds import NO_LIMIT
from dragoman.operations.operation import Operation
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.schemas import OperationRequest
from dragoman.operations.table import OPERATIONS

# Options that mean something else than the field of their name: pages and waits are made of several requests.
OTHERWISE = {("jobs", "limit"), ("jobs", "quarantined"), ("result", "wait")}
OTHERWISE |= {("enqueue many", each) for each in ("service", "group", "group_id", "jobs")}  # --lines and --group
OTHERWISE |= {("group results", "wait"), ("group results", "start")}
OTHERWISE |= {("find job", "service"), ("find job", "key")}  # they name the job, as its id does otherwise
OTHERWISE |= {("ladder", "format"), ("worker ladder", "format")}  # the name of the file that is saved selects it
# Fields that are no option: a payload is an argument, and the rest is left to clients and HTTP.
LEFT_OUT = {"payload", "payload_base64", "not_before", "after", "states", "request_id", "parameters"}
LEFT_OUT |= {"lease", "id", "all"}  # of acts on many jobs: commands set them, and --all chooses such an act


def command_of(row: Operation[Any, Any]) -> click.Command:
    found: click.Command = dragoman
    for word in command_name(row).split():
        if word.startswith("--"):  # an option of another operation's command
            assert any(word in each.opts for each in found.params), word
            continue
        assert isinstance(found, click.Group)
        named = found.get_command(click.Context(found), word)
        assert named is not None, word
        found = named
    return found


def options() -> Iterator[tuple[Operation[Any, Any], RequestField, click.Option]]:
    """Each option of a command that is a field of the request of its operation."""
    for row in OPERATIONS.values():
        named = {each.name: each for each in command_of(row).params if isinstance(each, click.Option)}
        for field in request_fields(row.request):
            if field.name in named and (row.name, field.name) not in OTHERWISE:
                yield row, field, named[field.name]


def test_every_operation_has_its_command() -> None:
    for row in OPERATIONS.values():
        assert command_of(row).help, row.name


def test_options_say_what_the_fields_of_the_request_say() -> None:
    found = list(options())
    assert len(found) > 20
    for row, field, option in found:
        told = option.help or ""
        assert told.startswith(field.description.replace("`null`", "`none`")), (row.name, field.name)
        assert field.kind is bool or field.choices or field.limits in told, (row.name, field.name)
        assert field.kind is bool or field.default_text in told, (row.name, field.name)
        assert isinstance(option.type, FieldValue) or field.kind is bool or field.choices == tuple(option.type.choices)


def test_every_optional_field_has_an_option() -> None:
    offered = {(row.name, field.name) for row, field, _ in options()} | OTHERWISE
    missing = [
        f"{row.name}: {field.name}"
        for row in OPERATIONS.values()
        for field in request_fields(row.request)
        if not field.is_required and field.name not in LEFT_OUT and (row.name, field.name) not in offered
    ]
    assert missing == []


class Toy(OperationRequest):
    count: Annotated[int, Meta(ge=1, le=5, description="A number.")] = 2
    limit: Annotated[float, Meta(gt=0, le=60, description="Seconds; `null`: no limit.")] | None = 10.0
    names: tuple[Annotated[str, Meta(max_length=3)], ...] = ()
    is_loud: bool = False
    is_new: bool | None = None


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {"count": None, "limit": None, "names": (), "is_loud": None, "is_new": None}),
        (["--count", "5", "--limit", "0.5"], {"count": 5, "limit": 0.5}),
        (["--limit", "none"], {"limit": NO_LIMIT}),
        (["--names", "a", "--names", "b"], {"names": ("a", "b")}),
        (["--is-loud", "--no-is-new"], {"is_loud": True, "is_new": False}),
    ],
)
def test_values_are_read_as_the_request_declares_them(words: list[str], given: dict[str, Any]) -> None:
    got: dict[str, Any] = {}

    @click.command()
    @request_options(Toy, "count", "limit", "names", "is_loud", "is_new")
    def toy(**said: Any) -> None:
        got.update(said)

    assert command_runner().invoke(toy, words).exit_code == 0
    assert {name: got[name] for name in given} == given


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--count", "6"], "'6': must be at most 5; allowed: 1 to 5"),
        (["--count", "many"], "'many': must be a whole number, not text; allowed: 1 to 5"),
        (["--limit", "0"], "'0': must be more than 0; allowed: more than 0, at most 60, or none"),
        (["--names", "long"], "must have at most 3 characters; allowed: 0 to 3 characters"),
        (["--count", "none"], "'none': must be a whole number, not text"),
    ],
)
def test_a_value_outside_its_limits_is_a_mistake_of_use(words: list[str], told: str) -> None:
    @click.command()
    @request_options(Toy, "count", "limit", "names")
    def toy(**said: Any) -> None: ...

    ran = command_runner().invoke(toy, words)
    assert (ran.exit_code, told in ran.stderr) == (2, True), ran.stderr

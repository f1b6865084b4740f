"""Lists in the file of a principal: items are added and removed, everything else stays."""

from __future__ import annotations

import tomllib
from random import Random

import pytest

from case_tables import check_every_row
from dragoman.access.editing import NotEditable, with_item, without_item

# before, key, item, after
ADDED = [
    ("", "call", "a", 'call = ["a"]\n'),
    ("# only a comment", "call", "a", '# only a comment\ncall = ["a"]\n'),
    ("uid = [1]\n", "call", "é*", 'uid = [1]\ncall = ["é*"]\n'),
    ("uid = [1] # one\n", "uid", 2, "uid = [1, 2] # one\n"),
    ("uid = [1,]\n", "uid", 2, "uid = [1, 2]\n"),
    ("uid = []\n", "uid", 2, "uid = [2]\n"),
    ("uid = [ # none\n]\n", "uid", 2, "uid = [ # none\n]\n".replace("[", "[2")),
    ("  uid  =  [ 1 ]\n", "uid", 2, "  uid  =  [ 1, 2 ]\n"),
    ("call = [\"a]\", 'b#']\n", "call", "c", 'call = ["a]", \'b#\', "c"]\n'),
    ('call = ["a\\"]"]\n', "call", "c", 'call = ["a\\"]", "c"]\n'),
    ('call = [\n  "a", # first\n]\n', "call", "b", 'call = [\n  "a", # first\n  "b",\n]\n'),
    ('call = [\n  "a" # first\n]\n', "call", "b", 'call = [\n  "a", # first\n  "b"\n]\n'),
    ('call = [\n\t"a"\n\t# last, or not\n]', "call", "b", 'call = [\n\t"a",\n\t"b"\n\t# last, or not\n]'),
    ('call = ["a",\n  "b"]\n', "call", "c", 'call = ["a",\n  "b", "c"]\n'),
    ('call = ["a"]\n', "call", "a", 'call = ["a"]\n'),
    ('# call = ["x"]\ncall = ["a"]\n', "call", "b", '# call = ["x"]\ncall = ["a", "b"]\n'),
]
REMOVED = [
    ('call = ["a"] # all\n', "call", "a", "call = [] # all\n"),
    ('call = ["a", "b"]\n', "call", "a", 'call = ["b"]\n'),
    ('call = ["a", "b"]\n', "call", "b", 'call = ["a"]\n'),
    ('call = ["a", "b",]\n', "call", "b", 'call = ["a", ]\n'),
    ("uid = [1, 2, 3]\n", "uid", 2, "uid = [1, 3]\n"),
    ('call = [\n  "a", # first\n  "b", # second\n]\n', "call", "a", 'call = [\n  "b", # second\n]\n'),
    ('call = [\n  "a", # first\n  "b" # second\n]\n', "call", "b", 'call = [\n  "a", # first\n]\n'),
    ('call = ["a",\n  "b"]\n', "call", "b", 'call = ["a"]\n'),
    ('call = ["a",\n  "b"]\n', "call", "a", 'call = ["b"]\n'.replace('["b"', '[\n  "b"')),
]


def test_item_is_added_at_the_end_of_its_list() -> None:
    def check(before: str, key: str, item: str | int, after: str) -> None:
        assert with_item(before, key, item) == after

    check_every_row(check, ADDED)


def test_item_is_removed_with_its_line_and_comment() -> None:
    def check(before: str, key: str, item: str | int, after: str) -> None:
        assert without_item(before, key, item) == after

    check_every_row(check, REMOVED)


@pytest.mark.parametrize("text", ['"call" = ["a"]\n', 'call = [\n"""\ncall = []\n"""]\n', "call = [ [1] ]\n"])
def test_list_in_another_form_is_left_alone(text: str) -> None:
    tomllib.loads(text)
    with pytest.raises(NotEditable, match=r"write call = \["):
        with_item(text, "call", "b")


SPACES = ("", " ", "\n", "\n  ", " # a comment, or ] two\n", "\n\t# x\n\t")
ITEMS = ("a", "b*", "c#", "d]", "e,", 'f"', "g'", "é")


def any_list(random: Random) -> tuple[list[str], str]:
    """Up to four items, and a list of them with any spaces and comments between its parts."""
    values = random.sample(ITEMS, random.randrange(5))
    text = ""
    for number, value in enumerate(values):
        is_literal = "'" not in value and random.random() < 0.5
        quoted = f"'{value}'" if is_literal else f'"{value}"'.replace('f"', 'f\\"')
        comma = "," if number < len(values) - 1 else random.choice(["", ","])
        text += random.choice(SPACES) + quoted + random.choice(SPACES) + comma
    return values, f"[{text}{random.choice(SPACES)}]"


def test_any_list_is_changed_and_nothing_else() -> None:
    """An edit has the new values, and keeps all that is outside of the list. No addition removes a comment."""
    random = Random("lists")
    for _ in range(500):
        values, written = any_list(random)
        text = f"# head\nuid = [1]\ncall = {written} # tail\nwork = ['x']\n"
        assert tomllib.loads(text)["call"] == values, text
        changed = with_item(text, "call", "new")
        assert tomllib.loads(changed) == {"uid": [1], "call": [*values, "new"], "work": ["x"]}, text
        assert changed.count("# a comment, or ] two\n") == text.count("# a comment, or ] two\n"), text
        for value in values:
            left = without_item(text, "call", value)
            assert tomllib.loads(left)["call"] == [each for each in values if each != value], text
            assert left.startswith("# head\nuid = [1]\ncall = [")
            assert left.endswith("] # tail\nwork = ['x']\n")

"""The reader of pages, which proves that their commands work, notices what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

import page_reader
from page_reader import Page, Reader, assert_fits

PAGE = """# A page

Save it as `hello.py`:

```python
print("hello")
```

```sh
make run   # a comment
dragoman serve --data \\
  memory
```

```console
$ python hello.py
hello
$ true
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(page_reader, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "other.md").write_text(PAGE.replace("Save it as `hello.py`", "A program"))
    return "page.md"


def test_a_page_has_files_and_commands_with_their_output(page: str) -> None:
    found = Page(page)
    assert found.files == {"hello.py": 'print("hello")\n'}
    assert found.shown == {
        "make run": None,
        "dragoman serve --data    memory": None,
        "python hello.py": "hello\n",
        "true": "",
    }


@pytest.mark.usefixtures("page")
def test_a_program_without_a_name_is_an_error() -> None:
    with pytest.raises(AssertionError, match="every program is a file with a name"):
        Page("other.md")


def test_a_command_that_was_not_typed_is_an_error(page: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path, page)
    reader.typed |= {"python hello.py", "true"}
    reader.has_typed_all(but=("make run", "dragoman serve"))
    with pytest.raises(AssertionError, match="dragoman serve"):
        reader.has_typed_all(but=("make run",))
    with pytest.raises(AssertionError, match="is not on the page"):
        reader.type("python goodbye.py")


def test_output_must_fit() -> None:
    assert_fits("one 1\ntwo\n", "one 1\ntwo")
    assert_fits("one 1\ntwo\nthree\n", "one …\n…")
    for shown in ("one", "one 1", "…", "one 1\nthree", "one 1\ntwo\n…"):
        with pytest.raises(AssertionError, match="shown"):
            assert_fits("one 1\ntwo\n", shown)

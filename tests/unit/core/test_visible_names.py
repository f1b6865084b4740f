"""Names, keys and tenants: characters that cannot be seen are refused (R256)."""

from __future__ import annotations

import re
import unicodedata

from dragoman.core.names import is_name
from dragoman.core.tenants import tenant_problem
from dragoman.operations.field_types import NAME

INVISIBLE = (
    "\u00a0\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u202f\u2060\u2066"
)
MORE = "\u2060\u2066\u2069\u206f\u2800\u3000\u3164\ufe0f\ufeff\uffa0\ufff9\U0001d173\U000e0001\U000e007f\U000e0100"


def test_name_with_a_character_that_cannot_be_seen_is_refused() -> None:
    """Two names looked alike, and U+202E turned the rest of a line around."""
    for each in INVISIBLE + MORE:
        for name in (each, f"a{each}b", f"{each}a", f"a{each}"):
            assert not is_name(name, 128), f"U+{ord(each):04X}"
            assert tenant_problem(name) is not None
            assert ord(each) > 0xFFFF or re.search(NAME, name) is None


def test_name_in_any_script_is_allowed() -> None:
    for name in (
        "resize",
        "größe",
        "изображение",
        "画像 変換",
        "صورة",
        "छवि",
        "รูปภาพ",
        "e\u0301",
        "mail.v2/α-β_γ",
        "🎉",
    ):
        assert is_name(name, 128), name
        assert re.search(NAME, name) is not None


def test_every_format_character_that_is_not_drawn_is_refused() -> None:
    """All of Unicode's category Cf, besides signs that are drawn in front of a number or a letter."""
    drawn = {
        *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13456),
    }  # fmt: skip
    missed = [
        f"U+{code:04X}"
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cf", "Zl", "Zp", "Zs", "Cc") and is_name(f"a{chr(code)}", 128)
        if code != 0x20 and code not in drawn
    ]
    assert missed == []

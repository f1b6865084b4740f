"""The command that started this program, as a user can type it again."""

from __future__ import annotations

import os
import sys


def program_name() -> str:
    """`dragoman`, `.venv/bin/dragoman` or `.venv/bin/python -m dragoman`."""
    is_module = os.path.basename(sys.argv[0]) == "__main__.py"  # python -m dragoman
    program = sys.executable if is_module else sys.argv[0] if os.sep in sys.argv[0] else "dragoman"
    if os.path.isabs(program) and not os.path.relpath(program).startswith(".."):
        program = os.path.relpath(program)
    return program + (" -m dragoman" if is_module else "")

"""The entry point of `dragoman` and of `python -m dragoman`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line. Ctrl-C while modules are loaded ends the process without a traceback."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the shell has SIGINT ignored
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dragoman import cli

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()

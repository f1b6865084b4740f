"""Runs fuzz targets: `python -m fuzz TARGET --seconds N`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from fuzz.targets import CORPUS, TARGETS, load

FOUND = Path(".build") / "fuzz"  # inputs that reach new code, and those that fail
TIMEOUT = 25  # seconds for one input
DONE = re.compile(rb"Done (\d+) runs in (\d+) second")


def main() -> int:
    options = _options()
    if options.minimize:
        from fuzz.minimize import minimize

        for target in options.targets:
            print(f"{target}: {minimize(target, FOUND / target)}")
        return 0
    if options.replay:
        for path in options.replay:
            load(options.targets[0])(path.read_bytes())
            print(f"{path}: passed")
        return 0
    if len(options.targets) == 1:
        _fuzz(options.targets[0], options.seconds)  # does not return
    return _fuzz_each(options.targets, options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m fuzz",
        description="Feed targets with inputs that reach new code, until an input fails or the time is up.",
        epilog="targets: " + ", ".join(TARGETS),
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="Name of a target.")
    parser.add_argument("--all", action="store_true", help="Run all targets, one after the other.")
    parser.add_argument("--seconds", type=int, default=60, help="Time for each target (default: 60).")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="Feed one target with these files only.")
    parser.add_argument(
        "--minimize", action="store_true", help="Keep the smallest inputs that reach all code reached by any input."
    )
    options = parser.parse_args()
    if options.all:
        options.targets = list(TARGETS)
    unknown = [each for each in options.targets if each not in TARGETS]
    if unknown or not options.targets:
        wrong = f"unknown target {unknown[0]}" if unknown else "no target"
        parser.error(f"{wrong}; write --all, or some of {', '.join(TARGETS)}")
    if options.seconds < 1:
        parser.error(f"--seconds {options.seconds}; write 1 or more")
    return options


def _fuzz(target: str, seconds: int) -> None:
    """Run a target in this process, which ends with it."""
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit("atheris is not installed here; run `make fuzz`, or replay inputs with --replay")
    found = FOUND / target
    found.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["dragoman"], enable_loader_override=False):
        test_one_input = load(target)
    arguments = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-artifact_prefix={FOUND}/{target}-"]
    folders = [str(found), str(CORPUS / target)]  # new inputs are written to the first
    atheris.Setup([sys.argv[0], *arguments, "-print_final_stats=0", *folders], test_one_input)
    atheris.Fuzz()


def _fuzz_each(targets: list[str], seconds: int) -> int:
    """Run each target in a process of its own. Returns the exit code."""
    failed = []
    for target in targets:
        command = [sys.executable, "-m", "fuzz", target, "--seconds", str(seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        finished = DONE.search(done.stdout)
        if done.returncode or finished is None:
            sys.stdout.buffer.write(done.stdout)
            failed.append(target)
            print(f"{target}: FAILED", flush=True)
        else:
            print(f"{target}: {int(finished[1])} inputs in {int(finished[2])} s", flush=True)
    if failed:
        print(f"An input failed in: {', '.join(failed)}. It is above and in {FOUND}; see fuzz/README.md", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

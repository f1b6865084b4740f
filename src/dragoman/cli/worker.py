"""`dragoman worker`: run a worker."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.exit_codes import INTERRUPTED, USAGE, fail, sentence_of, warn
from dragoman.sdk.address import URL_VARIABLE
from dragoman.sdk.default_url import DEFAULT_URL, url_or_default
from dragoman.sdk.printable import log_to_stderr

if TYPE_CHECKING:
    from dragoman.sdk.loading import HandlerLoadError, ObjectReference
    from dragoman.sdk.worker import Worker

MOST = click.IntRange(1, 1000)


@click.command(
    epilog="""\b
Examples:
  dragoman worker mypackage.tasks
  dragoman worker mypackage.images:worker
  dragoman worker mypackage.images:resize --service resize --connect tcp://127.0.0.1:7400
  dragoman worker --exec "convert - -resize 10% -" --connect pingpong+tcp://127.0.0.1:7401
  dragoman worker --exec "gzip -c" --service gzip --concurrency 4 --connect memodb+tcp://127.0.0.1:7405
  dragoman worker mypackage.images:worker --connect http://127.0.0.1:7480
  dragoman worker mypackage.images:worker --connect tcp://eu1:7400,eu2:7400,eu3:7400
  dragoman worker mypackage.images:worker --connect "tcp://broker:7400?server_key=HEX&key=gpu-1"

Exit codes: 0 stopped; 2 usage; 3 the broker does not accept this key, token or certificate.
""",
)
@click.argument("target", required=False, metavar="[MODULE[:OBJECT]]")
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run a program for each job: payload on standard input, result on standard output.",
)
@click.option(
    "--service",
    "services",
    metavar="NAME",
    multiple=True,
    help="Service to offer; may be repeated [default: all services of a Worker or of a module; else `default`]. "
    "In a dialect without service names, the URL's service=.",
)
@click.option(
    "--connect",
    "url",
    metavar="URL",
    help="Address of the broker for workers: native, HTTP or another dialect. Its options may name a key "
    "(?server_key=HEX&key=NAME), a token (?token_file=FILE) or a certificate.  [default: the Worker's own, else "
    f"{URL_VARIABLE}, else {DEFAULT_URL}]",
)
@click.option(
    "--concurrency",
    type=MOST,
    metavar="N",
    help="Jobs at the same time.  [default: the number of processes or threads; 100 if all handlers are async]",
)
@click.option(
    "--processes", type=MOST, metavar="N", help="Child processes that run functions.  [default: one per core]"
)
@click.option("--threads", type=MOST, metavar="N", help="Threads that run functions, in place of processes.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Jobs after which a child process is replaced.")
@click.option("--max-memory", metavar="SIZE", help="Memory over which a child process is replaced, such as 512MiB.")
@click.option(
    "--cancel-grace",
    type=click.FloatRange(0, 1e9),
    metavar="S",
    help="Seconds that a cancelled or timed out job may go on before it is stopped by force.  [default: 1]",
)
@click.option("--reload", "reloads", is_flag=True, help="Restart when the code changes; for development.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def worker(
    target: str | None,
    command: str | None,
    services: tuple[str, ...],
    url: str | None,
    concurrency: int | None,
    processes: int | None,
    threads: int | None,
    max_jobs: int | None,
    max_memory: str | None,
    cancel_grace: float | None,
    reloads: bool,
    log_level: str,
) -> None:
    """Run a worker until a signal or the broker stops it.

    MODULE is a module of tasks, functions with @dragoman.task: all of them are offered. MODULE:OBJECT is one task, a
    dragoman.Worker, or a function that is called with each job's payload (bytes) and returns the result (bytes).
    Functions run in child processes, so that neither a long job nor one that crashes delays the
    heartbeats. With --exec, a program reads the payload from its standard input and writes the result to its standard
    output; an exit code other than 0 is a failure.

    On SIGTERM and SIGINT the worker finishes its running jobs, then leaves. A second signal stops it at once.
    """
    if (target is None) == (command is None):
        fail(
            "give either MODULE, MODULE:OBJECT or --exec CMD, such as `dragoman worker --exec 'tr a-z A-Z' --service "
            "upper`; `dragoman worker --help` has more examples",
            USAGE,
        )
    log_to_stderr(log_level.upper(), force=True)
    given: dict[str, Any] = {
        "concurrency": concurrency,
        "processes": processes,
        "threads": threads,
        "max_jobs": max_jobs,
        "max_memory": _size(max_memory) if max_memory is not None else None,
        "cancel_grace": cancel_grace,
    }
    from dragoman.sdk.proof import TOKEN_VARIABLE

    chosen = {name: value for name, value in given.items() if value is not None}
    if TOKEN_VARIABLE in os.environ:
        from dragoman.server.tuning import hide_memory

        hide_memory()  # programs that it starts could read the token there (R157)
    try:
        if target is not None:
            code = _run_object(target, services, url, chosen, log_level, reloads)
        else:
            code = _run_program(command or "", services, url, chosen, reloads)
    except ValueError as error:  # an AddressError is one
        fail(sentence_of(error, url), USAGE)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    raise click.exceptions.Exit(code)


# -------------------------------------------------------------------- MODULE:OBJECT


def _run_object(
    target: str, services: tuple[str, ...], url: str | None, chosen: dict[str, Any], log_level: str, reloads: bool
) -> int:
    from dragoman.sdk.loading import HandlerLoadError, load, parse_reference
    from dragoman.sdk.reload import FileWatcher, restart, write_no_bytecode
    from dragoman.sdk.worker_runner import run

    if reloads and os.name == "nt":
        fail("--reload replaces this process, which Windows cannot do; restart the worker after each change", USAGE)
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if reloads:
        write_no_bytecode()
    try:
        home = parse_reference(target)
        made = _worker_of(load(home), target, services, url, chosen)
        _share_address(made)
        watch = FileWatcher() if reloads else None
        code = run(made, home if home.name else None, log_level, watch)
    except HandlerLoadError as error:
        if not reloads:
            fail(f"cannot run {target}: {error}", USAGE, kept="\n")  # its traceback is our own
        watch = _wait_for_better(target, error, home)
        code = 0
    if watch is not None and watch.changed:
        warn(f"changed: {', '.join(map(os.path.relpath, watch.changed))}; restarting")
        restart()
    return code


def _share_address(made: Worker) -> None:
    """Let tasks and clients in the handlers use the broker of this worker, unless the environment names another."""
    from dragoman.sdk.address_list import as_one_url, parse_all
    from dragoman.sdk.client_settings import BACKGROUND
    from dragoman.sdk.targets import SPOKEN

    if BACKGROUND in SPOKEN[parse_all(made.url, SPOKEN)[0].dialect].capabilities:
        os.environ.setdefault(URL_VARIABLE, as_one_url(made.url))


def _worker_of(found: Any, target: str, services: tuple[str, ...], url: str | None, chosen: dict[str, Any]) -> Worker:
    """The Worker that was loaded, or one that offers the loaded function. Raises HandlerLoadError and ValueError."""
    from dataclasses import replace

    from dragoman.sdk.loading import HandlerLoadError
    from dragoman.sdk.targets import worker_target
    from dragoman.sdk.worker import Worker

    if isinstance(found, ModuleType) or hasattr(found, "task_handler"):
        found = _worker_of_tasks(found, target)
    if isinstance(found, Worker):
        if services:
            missing = [name for name in services if name not in found.services]
            if missing:
                raise HandlerLoadError(
                    f"it offers {', '.join(found.services) or 'nothing'}, and not {', '.join(missing)}"
                )
            found.services = {name: found.services[name] for name in services}
        found.url = url or found.url
        found.execution = replace(found.execution, **chosen)
        return found
    if not callable(found):
        raise HandlerLoadError(f"{target} is a {type(found).__name__}, neither a Worker nor something to call")
    made = Worker(url, **chosen)
    for name in worker_target(made.url, services).services:
        try:
            made.service(name)(found)
        except TypeError as error:
            raise HandlerLoadError(str(error)) from error
    return made


def _worker_of_tasks(found: Any, target: str) -> Worker:
    """Return a worker that offers a task, or all tasks of a module. Raises HandlerLoadError and ValueError."""
    from dragoman.sdk.loading import HandlerLoadError
    from dragoman.sdk.worker import Worker

    made = Worker()
    made.include(found)
    if not made.services:
        raise HandlerLoadError(f"the module has no tasks (functions with @dragoman.task); {_advice(found, target)}")
    return made


def _advice(found: Any, target: str) -> str:
    """Return what to run in place of a module that has no tasks."""
    from importlib.util import find_spec

    from dragoman.sdk.worker import Worker

    workers = [name for name, each in vars(found).items() if isinstance(each, Worker)]
    if workers:
        return f"run its Worker: {target}:{workers[0]}"
    if hasattr(found, "__path__") and find_spec(f"{target}.tasks") is not None:
        return f"run the module of its tasks: {target}.tasks"
    return f"run one of its functions: {target}:FUNCTION"


def _wait_for_better(target: str, error: HandlerLoadError, home: ObjectReference) -> Any:
    """Wait until a file of a module that cannot be loaded has changed."""
    from importlib.util import find_spec

    from dragoman.sdk.reload import FileWatcher, files_in

    files = set()
    cause: BaseException | None = error
    while cause is not None:
        files |= files_in(cause.__traceback__, cause)
        cause = cause.__cause__
    try:
        spec = find_spec(home.module)
    except (ImportError, ValueError):
        spec = None
    watch = FileWatcher({*files, spec.origin} if spec is not None and spec.origin else files)
    warn(f"cannot run {target}: {error}")
    warn("waiting for a change")
    watch.wait_here()
    return watch


# -------------------------------------------------------------------- --exec CMD


def _run_program(
    command: str, services: tuple[str, ...], url: str | None, chosen: dict[str, Any], reloads: bool
) -> int:
    import asyncio

    from dragoman.sdk.execution import ExecutionOptions
    from dragoman.sdk.extras import needed_by

    with needed_by("dragoman worker --exec"):
        from dragoman.sdk.program_pool import ProgramPool
    from dragoman.sdk.targets import worker_target
    from dragoman.sdk.worker_runner import WorkerRunner

    if reloads or chosen.keys() & {"threads", "max_jobs", "max_memory"}:
        fail(
            "--exec starts a new program for each job: --reload, --threads, --max-jobs, --max-memory are not for it",
            USAGE,
        )
    target = worker_target(url_or_default(url), services)
    execution = ExecutionOptions(**chosen)
    pool = dict.fromkeys(target.services, ProgramPool(_check_command(command)))
    concurrency = execution.jobs_at_once(())
    # Not uvloop: there, a program that ends without reading its input, or that cannot be run, raises an error.
    runner = WorkerRunner(target, pool, concurrency, execution.cancel_grace, loop_factory=asyncio.new_event_loop)
    return runner.run()


def _check_command(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        fail(f"cannot read the command {command!r}: {error}", USAGE)
    if not words:
        fail("--exec needs a command", USAGE)
    if shutil.which(words[0]) is None:
        fail(f"there is no program {words[0]!r} to run (looked in PATH)", USAGE)
    return command


def _size(text: str) -> int:
    from dragoman.sdk.address import read_value

    try:
        size = read_value(int, text)
    except ValueError as error:
        fail(f"--max-memory {text} {error}", USAGE)
    assert isinstance(size, int)
    return size

"""`dragoman job`: show one job, or write its payload."""

from __future__ import annotations

import click

from dragoman.cli.broker_column import note_unanswered, with_brokers
from dragoman.cli.client import connect_option, connected, json_option, perform
from dragoman.cli.exit_codes import USAGE, fail
from dragoman.cli.job_ids import optional_job_argument
from dragoman.cli.payloads import print_bytes
from dragoman.cli.request_options import request_options
from dragoman.cli.tables import age, ago, print_facts, print_json, print_table, span
from dragoman.cli.terminal import time_text, title
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.schemas import AttemptView, ChildView, JobRef, JobView, PayloadView
from dragoman.operations.table import FIND_JOB, JOB
from dragoman.sdk.printable import printable

UNIQUE = {
    "waiting": "unique until it starts",
    "unfinished": "unique until it ends",
    "kept": "unique while its outcome is kept",
}
SHOWN = 60  # characters of a result, a payload or a progress report


@click.command(
    epilog="""\b
Examples:
  dragoman job 0197f3a2c4d87b12a9e05c61f38d2b74
  dragoman job 0197f3a2c4d87b12a9e05c61f38d2b74 --json
  dragoman job 0197f3a2c4d87b12a9e05c61f38d2b74 --payload > payload.bin
  dragoman job --key nightly --service backup
""",
)
@optional_job_argument
@connect_option
@click.option("--key", help="Show the latest job with this idempotency key instead of JOB. It needs --service.")
@click.option("--service", help="Service of the job with --key.")
@request_options(FindJobRequest, "owner")
@click.option(
    "--payload",
    "wants_payload",
    is_flag=True,
    help="Write the payload, as it was submitted, to standard output, and nothing else. It is kept until the job ends, "
    "and in quarantine.",
)
@json_option
def job(
    job: str | None,
    url: str | None,
    key: str | None,
    service: str | None,
    owner: str | None,
    wants_payload: bool,
    as_json: bool,
) -> None:
    """Show JOB: its times, its attempts, its parent and its children, its payload and progress, and how it ended.

    `dragoman result` prints the result as it came, `dragoman why` explains why a job is not running.
    """
    if (job is None) is (key is None):
        raise click.UsageError("Name the job by its id, or by --key and --service.")
    if (key is None) is not (service is None) or (owner is not None and key is None):
        raise click.UsageError("--service and --owner belong to --key, and --key needs --service.")
    if key is not None and service is not None:
        view = perform(url, FIND_JOB, FindJobRequest(service=service, key=key, owner=owner))
        job = view.id
    assert job is not None
    if wants_payload:
        if as_json:
            fail("--payload writes bytes, not JSON: use one of --payload and --json", USAGE)
        with connected(url) as client:
            payload = client.payload(job)
        print_bytes(payload)
        return
    if key is None:
        view = perform(url, JOB, JobRef(id=job))
    if as_json:
        print_json(view)
        return
    _print_facts(view)
    if view.attempts:
        click.echo()
        titles = ("ATTEMPT", "WORKER", "STARTED", "TOOK", "OUTCOME", "REASON")
        print_table(titles, [_attempt_row(each) for each in view.attempts], "")
    if view.children:
        click.echo()
        rows = [_child_row(each) for each in view.children]
        print_table(
            *with_brokers(("CHILD", "SERVICE", "STATE", "KIND"), rows, [each.broker for each in view.children]), ""
        )
        if view.more_children:
            click.echo(f"and {view.more_children} more")
    note_unanswered(view.unanswered)
    if view.error is not None and view.error.detail:
        click.echo(f"\n{title('traceback')}\n{printable(view.error.detail).rstrip()}")


def _print_facts(view: JobView) -> None:
    print_facts(
        [
            ("job", view.id),
            ("service", view.service),
            ("state", view.state),
            ("outcome", _outcome(view)),
            ("reason", view.reason),
            ("submitted", f"{time_text(view.created)} ({ago(view.created)})"),
            ("not before", time_text(view.not_before)),
            ("started", time_text(view.started)),
            ("ended", time_text(view.ended)),
            ("kept", _kept(view)),
            ("priority", view.priority),
            ("key", None if view.key is None else _key(view)),
            ("tenant", view.tenant),
            ("retry of", view.retry_of),
            ("retried as", view.retried_as),
            ("parent", view.parent),
            ("after", ", ".join(view.after)),
            ("input", view.input if view.input != "payload" else None),
            ("group", view.group),
            ("payload", _described(view.payload)),
            # A job that waits for its retry has the report of an attempt that has ended.
            (
                "last progress" if view.state in ("waiting", "delayed") else "progress",
                _described(view.progress),
            ),
            ("result", _shortened(view.result)),
            ("result", view.result_base64 and "bytes: `dragoman result` prints them"),
        ]
    )


def _outcome(view: JobView) -> str | None:
    permanent = ", not retried: its worker has decided so" if view.error is not None and view.error.permanent else ""
    return view.outcome and f"{view.outcome}{permanent}{', in quarantine' if view.quarantined else ''}"


def _key(view: JobView) -> str:
    """`nightly (unique until it has ended)`."""
    if view.unique is None:
        return str(view.key)
    return f"{view.key} ({UNIQUE[view.unique]}{'' if view.holds_key else '; not any more'})"


def _kept(view: JobView) -> str | None:
    """`until 2026-11-18 03:00:00`, `until it is deleted`, `for 60 s`; None if the broker's setting decides later."""
    if view.kept_until is not None:
        return f"until {time_text(view.kept_until)}"
    if view.keep is None:
        return None
    if view.keep == "forever":
        return "until it is deleted"
    return "not at all" if not view.keep else f"for {span(view.keep)} after its end"


def _attempt_row(attempt: AttemptView) -> tuple[object, ...]:
    started, ended = attempt.started, attempt.ended
    took = ""
    if started is not None:
        took = _duration((ended - started).total_seconds()) if ended is not None else f"{age(started)} so far"
    return (
        attempt.number,
        attempt.worker,
        time_text(started) or "",
        took,
        attempt.outcome or "running",
        attempt.reason,
    )


def _child_row(child: ChildView) -> tuple[object, ...]:
    return child.id, child.service, child.outcome or child.state, "background" if child.background else "call"


def _duration(seconds: float) -> str:
    """`7 ms`, `4.2 s`, `3 min`."""
    return f"{max(0.0, seconds) * 1_000:.0f} ms" if seconds < 1.0 else span(seconds)


def _described(payload: PayloadView | None) -> str | None:
    """`5 bytes of text: hello`."""
    if payload is None:
        return None
    size = "1 byte" if payload.size == 1 else f"{payload.size} bytes"
    kind = "" if payload.kind == "bytes" else f" of {payload.kind}"
    return f"{size}{kind}: {_shortened(payload.text)}" if payload.text else f"{size}{kind}"


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHOWN else f"{text[:SHOWN]}…"

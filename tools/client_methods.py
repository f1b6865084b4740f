"""Writes the methods of both clients from the table of operations: `python tools/client_methods.py`.

The result is checked in as `sdk/operations.py` and `sdk/async_operations.py`; a test compares it with the table.
Required fields of a request become positional parameters. Optional fields become keyword parameters, except a single
one that is not a flag.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.operations.operation import Operation
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.table import OPERATIONS

SDK = Path(__file__).parents[1] / "src" / "dragoman" / "sdk"
WIDTH = 112  # columns of a docstring within its indentation
IN_PAYLOAD = ("payload", "payload_base64", "jobs")  # request fields that the method's `payload` replaces

OF_JOBS = ("after",)  # fields with ids of jobs and groups; methods take handles, too
OF_BULK = ("id", "lease")
OF_REQUEST = ("request_id",)  # of all operations
OF_CLIENT = {  # request fields that the client sets itself
    "retry jobs": OF_BULK,
    "cancel jobs": OF_BULK,
    "delete jobs": OF_BULK,
}

HEAD = '''"""{about}

Written by tools/client_methods.py from the table of operations: change that table, or the tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from dragoman.sdk import operation_steps
from dragoman.sdk.ids import ids_of, new_batch_id
from dragoman.sdk.option_types import Result
from dragoman.sdk.performing import {base}

if TYPE_CHECKING:
{views}
    from dragoman.sdk.job_names import JobNames
    from dragoman.sdk.new_jobs import NewJob


class {name}({base}, Generic[Result]):
    """{about} Ids of jobs are 32 hex digits.

    They raise Unsupported if the dialect of the client's address has no operations, NoSuchJob, NoSuchService or
    NotFound for an unknown job, service or other name, and ValueError for a value outside its limits.
    """
'''

RESULT = '''
    @overload
    {async_}def result(self, job: str, timeout: float | None = None, *, codec: None = None) -> Result: ...

    @overload
    {async_}def result(self, job: str, timeout: float | None = None, *, codec: Literal["bytes"]) -> bytes: ...

    @overload
    {async_}def result(self, job: str, timeout: float | None = None, *, codec: str) -> Any: ...

    {async_}def result(self, job: str, timeout: float | None = None, *, codec: str | None = None) -> Any:
        """Wait for the result of a background job, over lost connections and restarts of the broker.

        Raises JobError by its outcome, JobTimeout after `timeout` seconds (the job continues), NoSuchJob and
        BrokerUnavailable.
        """
        return {await_}self._follow(operation_steps.result(job, timeout, self._codec_of(codec)))
'''


MANY = '''
    {async_}def enqueue_many(self, service: str, payloads: Iterable[Any], *, {parameters}) -> list[str]:
        """Enqueue a background job for each payload, in one commit.

        Returns their ids, in order, when all of them are on disk. Either all are enqueued, or none and the error says
        why. More than 10,000 jobs, or more bytes than the broker accepts in a message, are several messages and
        commits; if a later one is refused, PartlyEnqueued has the ids of the jobs that are enqueued. The options are
        those of all jobs; see `enqueue`.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        request = EnqueueManyRequest(service=service, {arguments})
        return {await_}self._follow(batch_steps.enqueue_many(request, self._packed(payloads, codec)))

    {async_}def enqueue_group(self, service: str, payloads: Iterable[Any], *, {parameters}) -> str:
        """Enqueue a background job for each payload, in one commit, as a group.

        Returns the id of the group. `group` shows its progress, `group_results` returns all results, `cancel_group`
        cancels it, and another job may come after it: `enqueue(..., after=[group])`. At most 10,000 jobs. The options
        are those of all jobs; see `enqueue`.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        request = EnqueueManyRequest(service=service, group_id=new_batch_id().hex(), {arguments})
        return {await_}self._follow(batch_steps.enqueue_group(request, self._packed(payloads, codec)))

    {async_}def enqueue_jobs(self, jobs: Iterable[NewJob]) -> list[str]:
        """Enqueue different background jobs, in one commit.

        Returns their ids. They may come after each other, in any order, and form groups; see `NewJob`. Jobs of groups
        are at most 10,000 and one message; others are several messages if necessary, as in `enqueue_many`, and must
        then come behind the jobs that they name.
        """
        from dragoman.operations.group_schemas import EnqueueManyRequest
        from dragoman.sdk import batch_steps

        found = list(jobs)
        packed = [each.packed(self._encoded) for each in found]
        if any(each.options.get("group") is not None for each in found):
            {await_}self._follow(batch_steps.enqueue_whole(EnqueueManyRequest(), packed))
            return [each.id for each in found]
        return {await_}self._follow(batch_steps.enqueue_many(EnqueueManyRequest(), packed))
'''

GROUP_RESULTS = '''
    @overload
    {async_}def group_results(
        self, group: str, timeout: float | None = None, *, errors: Literal["raise"] = "raise", codec: None = None
    ) -> list[Result]: ...

    @overload
    {async_}def group_results(
        self,
        group: str,
        timeout: float | None = None,
        *,
        errors: Literal["raise", "return"] = "raise",
        codec: str | None = None,
    ) -> list[Any]: ...

    {async_}def group_results(
        self,
        group: str,
        timeout: float | None = None,
        *,
        errors: Literal["raise", "return"] = "raise",
        codec: str | None = None,
    ) -> list[Any]:
        """Wait until all jobs of a group have ended, and return their results in order.

        If some are not done, raises the JobError of the first of them; with `errors="return"`, the exceptions are in
        the list in place of the results. Raises JobTimeout after `timeout` seconds (the jobs continue), NoSuchGroup
        and BrokerUnavailable.
        """
        from dragoman.sdk import batch_steps

        return {await_}self._follow(batch_steps.group_results(group, timeout, errors, self._codec_of(codec)))
'''


class Client(NamedTuple):
    """One client class."""

    file: str
    name: str
    base: str
    about: str
    async_: str
    await_: str


CLIENTS = (
    Client("operations.py", "ClientOperations", "Performer", "Operations of a `Client`.", "", ""),
    Client(
        "async_operations.py",
        "AsyncClientOperations",
        "AsyncPerformer",
        "Operations of an `AsyncClient`.",
        "async ",
        "await ",
    ),
)

# Return type and expression of methods that do not return the view or a field of it. `{request}`: the request.
PLANS = {
    "enqueue": ("str", "operation_steps.enqueue({request}, self._encoded(payload, codec))"),
    "cancel": ("bool", "operation_steps.cancel(id)"),
    "retry jobs": ("BulkView", "operation_steps.bulk(RETRY_JOBS, {request})"),
    "cancel jobs": ("BulkView", "operation_steps.bulk(CANCEL_JOBS, {request})"),
    "delete jobs": ("BulkView", "operation_steps.bulk(DELETE_JOBS, {request})"),
    "payload": ("bytes", "operation_steps.payload(id)"),
}
# Sentences that are appended to an operation's summary.
MORE = {
    "enqueue": "Returns the id of the job. It survives restarts of broker, workers and this program, and waits for a "
    "worker without a time limit. Without a `key` it gets a random one, so that a repeated request does not create "
    "a second job.",
    "jobs": "A `limit` over 1000 is fetched in several pages.",
    "cancel": "Returns True if the job is cancelled now, False if it had already ended in another way.",
    "retry": "Returns the id of the new job. Raises JobRefused if the job is not in quarantine.",
    "payload": "Returns bytes. Raises JobRefused if the payload is no longer kept.",
    "purge": "Returns the number of deleted jobs.",
    "retry jobs": "Waits for the end. If this program ends before, the act stops within ten seconds.",
    "cancel jobs": "Waits for the end. If this program ends before, the act stops within ten seconds.",
    "delete jobs": "Waits for the end. If this program ends before, the act stops within ten seconds.",
}


def source(client: Client, rows: Iterable[Operation[Any, Any]]) -> str:
    """Return the formatted module of one client."""
    rows = list(rows)
    views = {(_module_of(row, view), view) for row in rows if (view := _view_type(row)[1])}
    imports = "\n".join(f"    from {module} import {view}" for module, view in sorted(views))
    head = HEAD.format(about=client.about, base=client.base, name=client.name, views=imports)
    return formatted(head + "".join(_method(client, row) for row in rows))


def formatted(text: str) -> str:
    for words in (("check", "--select", "F401,I", "--fix", "--quiet"), ("format",)):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", "src/dragoman/sdk/operations.py", "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, cwd=SDK.parents[2]
        ).stdout
    return text


def _method(client: Client, row: Operation[Any, Any]) -> str:
    if row.name == "enqueue many":
        return _many(client, row)
    if row.name == "group results":
        return GROUP_RESULTS.format(async_=client.async_, await_=client.await_)
    if row.returns_payload and row.name not in PLANS:
        return RESULT.format(async_=client.async_, await_=client.await_)
    request = row.request.__name__
    arguments = [f"{each.name}={_parameter(row, each)}" for each in shown_fields(row)]
    made = f"{request}({', '.join(arguments)})"
    kind, plan = PLANS.get(row.name, ("", ""))
    imports = []
    if "{request}" in plan or not plan:
        imports.append(f"from {row.request.__module__} import {request}")
    if plan:
        if _constant(row) in plan:
            imports.append(f"from dragoman.operations.table import {_constant(row)}")
        body = f"return {client.await_}self._follow({plan.format(request=made)})"
    else:
        imports.append(f"from dragoman.operations.table import {_constant(row)}")
        kind, body = _view_type(row)[0], _call(client, row, made)
    lines = [
        f"{client.async_}def {row.python_name}({', '.join(_parameters(row))}) -> {kind}:",
        textwrap.indent(_docstring(row), "    "),
        *(f"    {each}" for each in imports),
        *([""] if imports else []),
        f"    {body}",
    ]
    return "\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


def _many(client: Client, row: Operation[Any, Any]) -> str:
    """Return the methods that enqueue many jobs."""
    fields = [each for each in shown_fields(row) if each.name not in ("service", "group", "group_id")]
    parameters = ["codec: str | None = None", *(f"{each.name}: {_type(each)} = {each.default!r}" for each in fields)]
    arguments = [f"{each.name}={_parameter(row, each)}" for each in fields]
    return MANY.format(
        async_=client.async_,
        await_=client.await_,
        parameters=", ".join(parameters),
        arguments=", ".join(arguments),
    )


def _call(client: Client, row: Operation[Any, Any], made: str) -> str:
    if row.pages:
        return f"return {client.await_}self._follow(operation_steps.all_pages({_constant(row)}, {made}))"
    payload = ", self._encoded(payload, codec)" if row.takes_payload else ""
    call = f"{client.await_}self.operation({_constant(row)}, {made}{payload})"
    if not row.returned:
        return f"return {call}"
    return f"return ({call}).{row.returned}" if client.await_ else f"return {call}.{row.returned}"


def _view_type(row: Operation[Any, Any]) -> tuple[str, str]:
    """Return the return type of the method, and the view class that must be imported for it."""
    if row.name in PLANS and PLANS[row.name][0] == row.view.__name__:
        return row.view.__name__, row.view.__name__
    if row.name in PLANS or row.returns_payload or row.name == "enqueue many":
        return "", ""
    if not row.returned:
        return row.view.__name__, row.view.__name__
    kind = row.view.__annotations__[row.returned]  # annotation text: `list[JobView]`, `int`, `JobIdText`
    if kind.startswith("list["):
        return kind, kind[5:-1]
    return (kind if kind in ("int", "str") else "str"), ""


def _module_of(row: Operation[Any, Any], view: str) -> str:
    """Return the module of a view class that the view of the operation is, or lists."""
    kind = getattr(sys.modules[row.view.__module__], view)
    return str(kind.__module__)


def _constant(row: Operation[Any, Any]) -> str:
    return row.python_name.upper()


def shown_fields(row: Operation[Any, Any]) -> list[RequestField]:
    """Return the fields that are parameters of the method."""
    left_out = (*(IN_PAYLOAD if row.takes_payload else ()), *(*OF_REQUEST, *OF_CLIENT.get(row.name, ())))
    return [each for each in request_fields(row.request) if each.name not in left_out]


def _parameter(row: Operation[Any, Any], field: RequestField) -> str:
    """Return the expression of a field in the request."""
    name = field_name(row, field)
    if field.is_list and field.name in OF_JOBS:
        return f"ids_of({name})"
    return f"tuple({name})" if field.is_list else name


def field_name(row: Operation[Any, Any], field: RequestField) -> str:
    """Return the parameter name of a field."""
    return row.subject if row.subject and field.name == row.request.__struct_fields__[0] else field.name


def _parameters(row: Operation[Any, Any]) -> list[str]:
    fields = shown_fields(row)
    required = [f"{field_name(row, each)}: {_type(each)}" for each in fields if each.is_required]
    optional = [each for each in fields if not each.is_required]
    written = [f"{each.name}: {_type(each)} = {each.default!r}" for each in optional]
    payload = ["payload: Any = b''"] if row.takes_payload else []
    codec = ["codec: str | None = None"] if row.takes_payload else []
    is_lone = len(optional) == 1 and optional[0].kind is not bool
    star = ["*"] if (written and not is_lone) or codec else []
    return ["self", *required, *payload, *star, *codec, *written]


def _type(field: RequestField) -> str:
    kind = "datetime" if field.kind is datetime else field.kind.__name__
    if field.choices or field.words:
        words = f"Literal[{', '.join(map(repr, field.choices or field.words))}]"
        kind = words if field.choices else f"{kind} | {words}"
    if field.is_list and field.name in OF_JOBS:
        kind = "JobNames"
    elif field.is_list:
        kind = f"Sequence[{kind}]"
    return f"{kind} | None" if field.is_nullable else kind


def _docstring(row: Operation[Any, Any]) -> str:
    first, _, others = row.summary.partition(". ")
    more = " ".join(filter(None, (others, MORE.get(row.name))))
    described = [_described(each) for each in shown_fields(row) if not each.is_required]
    if row.takes_payload:
        described.append("`codec`: Encoding of the payload. [default: the client's]")
    items = [textwrap.fill(f"- {each}", WIDTH, subsequent_indent="  ") for each in described]
    text = "\n\n".join(filter(None, (f"{first.removesuffix('.')}.", textwrap.fill(more, WIDTH), "\n".join(items))))
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def _described(field: RequestField) -> str:
    facts = "; ".join(filter(None, (field.limits, field.default_text and f"default: {field.default_text}")))
    return f"`{field.name}`: {field.description.replace('`null`', '`None`')}" + (f" [{facts}]" if facts else "")


def main() -> None:
    for client in CLIENTS:
        (SDK / client.file).write_text(source(client, OPERATIONS.values()))


if __name__ == "__main__":
    main()

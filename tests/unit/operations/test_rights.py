"""Rights over operations: every operation for every kind of principal, and what each of them sees (R146 to R151)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

from case_tables import check_every_row
from dragoman.core.events import ADMINISTERED, AdministrationEvent, Event
from dragoman.core.model import Job
from dragoman.core.packed_jobs import NO_ID, pack_jobs
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.operations.cluster_schemas import ClusterView
from dragoman.operations.group_schemas import BatchJob, GroupRef
from dragoman.operations.handlers import FUNCTIONS, OperationHandlers
from dragoman.operations.ladder_schemas import LadderRequest
from dragoman.operations.list_schemas import BrokerView, ListenersView
from dragoman.operations.operation import Operation, Target
from dragoman.operations.permissions import Permissions
from dragoman.operations.quarantine_schemas import RetryGroupRequest
from dragoman.operations.schemas import (
    AccessView,
    EmptyRequest,
    ErrorView,
    JobRef,
    OperationRequest,
    ScheduleRef,
    ServiceRef,
    View,
    WorkerRef,
)
from dragoman.operations.table import OPERATIONS
from dragoman.server.dashboard_source import make_dashboard

from .world import READY, UNKNOWN, WALL, RecordingResponder, World

BULK = "b" * 32  # id of a bulk act of `web`

TABLE = {
    "web": Rights(call=("mail",), work=("mail",)),
    "other": Rights(call=("mail",)),
    "viewer": Rights(see=("mail",)),
    "ops": Rights(administer=("mail",)),
    "nobody": Rights(),
    "root": Rights(administer=("*",)),
}


class FixedFacts:
    """Facts of a server that never change."""

    def listeners(self) -> ListenersView:
        return ListenersView(listeners=[])

    def broker(self) -> BrokerView:
        return BrokerView(
            version="0",
            compiled=False,
            python="3.11",
            started=datetime.fromtimestamp(0.0, UTC),
            name="b",
            instance="0",
            limits=[],
            settings={},
            store_size=None,
        )


class RightsWorld(World):
    """A world with principals. `web` has a job, a worker and a schedule of the service `mail`."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.job_registry.conversations.start()
        self.acts: list[AdministrationEvent] = []
        self.broker.events.subscribe(ADMINISTERED, self._act)
        self.broker.principals.apply({name: (rights, NO_LIMITS) for name, rights in TABLE.items()})
        self.operations.server_facts = FixedFacts()
        self.operations.show_cluster = lambda: ClusterView(name="c", broker="b", connected=False, server="", members=[])
        self.operations.let_go = lambda broker, now: broker == "b"
        self.operations.reload_table = lambda: AccessView(added=["new"], removed=[], changed=[], disconnected=2)
        self.web_group = ""
        self.act_as("web")
        self.web_worker = self.worker("mail", name="w")
        self.web_job = self.enqueue("mail", b"secret", attempts=1, key="invoice-42")
        assert not isinstance(self.ask("set schedule", name="nightly", service="mail", every=3600.0), ErrorView)
        assert self.ask("retry jobs", id=BULK, service="mail").over
        self.dashboard = make_dashboard(self.runner, self.operations, lambda: READY, lambda: WALL, lambda: self.now)
        for _ in self.dashboard.sample(self.now):
            pass

    def _act(self, event: Event, now: float) -> None:
        assert isinstance(event, AdministrationEvent)
        self.acts.append(event)

    def as_(self, name: str, operation: str, body: bytes = b"", /, **fields: Any) -> Any:
        self.act_as(name)
        return self.ask(operation, body, **fields)

    def quarantine(self) -> None:
        self.broker.fail(self.attempt(self.web_job), "ValueError: poison", self.now)
        self.runner.run_once()

    def group(self) -> str:
        """A group of `web`."""
        if not self.web_group:
            before = self.owner
            view = self.as_("web", "enqueue many", pack_jobs([(NO_ID, b"", b"secret")] * 2), service="mail", group=True)
            self.owner, self.web_group = before, view.group
        return self.web_group

    def quarantine_group(self) -> str:
        """The group of the quarantine that has the job."""
        if not self.job(self.web_job).quarantined:
            self.quarantine()
        (part,) = self.broker.job_registry.kept.quarantine.parts()
        return part.group

    def facts(self) -> object:
        """All that an operation may change."""
        service = self.broker.worker_registry.services["mail"]
        jobs = [(job.id, job.state, job.outcome, job.retried_as) for job in self.broker.jobs.values()]
        schedules = [(each.name, each.paused, each.every, each.service) for each in self.operations.scheduler.list()]
        return jobs, service.paused, self.web_worker.state, schedules, dict(self.store.notes)


JOB: dict[str, Callable[[RightsWorld], dict[str, Any]]] = {
    "job": lambda world: {"id": world.web_job},
    "conversation": lambda world: {"id": world.web_job},
    "worker": lambda world: {"id": world.web_worker.id},
    "schedule": lambda world: {"name": "nightly"},
    "service": lambda world: {"name": "mail"},
    "group": lambda world: {"id": world.group()},
    "quarantine group": lambda world: {"group": world.quarantine_group()},
}
MORE_FIELDS: dict[str, dict[str, Any]] = {
    "release shards": {"broker": "b"},
    "enqueue": {"service": "mail"},
    "enqueue many": {"service": "mail", "jobs": (BatchJob(),)},
    "set schedule": {"name": "nightly", "service": "mail", "every": 60.0},
    "job counts": {"service": "mail"},
    "find job": {"service": "mail", "key": "invoice-42", "owner": "web"},
    "retry jobs": {"service": "mail"},
    "cancel jobs": {"service": "mail"},
    "delete jobs": {"service": "mail"},
    "bulk act": {"id": BULK},
    "stop bulk act": {"id": BULK},
}

KINDS = ("local", "web", "other", "viewer", "ops", "nobody")
OK, NO, GONE = "ok", "forbidden", "not found"

# The answer to each kind of principal; for a list, the number of its entries. `web` is the owner, `other` a caller.
ANSWERS: dict[str, tuple[object, ...]] = {
    # local, web, other, viewer, ops, nobody
    "enqueue": (OK, OK, OK, NO, NO, NO),
    "enqueue many": (OK, OK, OK, NO, NO, NO),
    "jobs": (1, 1, 0, 1, 1, 0),
    "job counts": (OK, NO, NO, OK, OK, NO),
    "find job": (OK, OK, GONE, GONE, OK, GONE),
    "job": (OK, OK, GONE, OK, OK, GONE),
    "payload": (OK, OK, GONE, NO, OK, GONE),
    "cancel": (OK, OK, GONE, NO, OK, GONE),
    "result": (OK, OK, GONE, NO, OK, GONE),
    "retry": (OK, OK, GONE, NO, OK, GONE),
    "delete": (OK, OK, GONE, NO, OK, GONE),
    "why": (OK, OK, GONE, OK, OK, GONE),
    "group": (OK, OK, GONE, OK, OK, GONE),
    "group results": (OK, OK, GONE, NO, OK, GONE),
    "cancel group": (OK, OK, GONE, NO, OK, GONE),
    "retry jobs": (1, 1, 0, 0, 1, 0),
    "cancel jobs": (1, 1, 0, 0, 1, 0),
    "delete jobs": (1, 1, 0, 0, 1, 0),
    "bulk act": (OK, OK, GONE, GONE, GONE, GONE),
    "stop bulk act": (OK, OK, GONE, GONE, GONE, GONE),
    "quarantine": (1, 1, 0, 1, 1, 0),
    "retry group": (OK, OK, GONE, NO, OK, GONE),
    "ladder": (OK, OK, GONE, OK, OK, GONE),
    "services": (1, 1, 1, 1, 1, 0),
    "service": (OK, OK, OK, OK, OK, NO),
    "pause": (OK, NO, NO, NO, OK, NO),
    "resume": (OK, NO, NO, NO, OK, NO),
    "limit": (OK, NO, NO, NO, OK, NO),
    "purge": (OK, NO, NO, NO, OK, NO),
    "workers": (1, 1, 0, 1, 1, 0),
    "fleet": (1, 1, 0, 1, 1, 0),
    "worker": (OK, OK, GONE, OK, OK, GONE),
    "drain": (OK, OK, GONE, NO, OK, GONE),
    "worker ladder": (OK, OK, GONE, OK, OK, GONE),
    "schedules": (1, 1, 0, 1, 1, 0),
    "schedule": (OK, OK, GONE, OK, OK, GONE),
    "set schedule": (OK, OK, "conflict", NO, OK, NO),
    "delete schedule": (OK, OK, GONE, NO, OK, GONE),
    "pause schedule": (OK, OK, GONE, NO, OK, GONE),
    "resume schedule": (OK, OK, GONE, NO, OK, GONE),
    "run schedule": (OK, OK, GONE, NO, OK, GONE),
    "reload access": (OK, NO, NO, NO, NO, NO),
    "listeners": (OK, NO, NO, NO, NO, NO),
    "broker": (OK, NO, NO, NO, NO, NO),
    "cluster": (OK, NO, NO, NO, NO, NO),
    "release shards": (OK, NO, NO, NO, NO, NO),
    "health": (OK, OK, OK, OK, OK, OK),
    "overview": (1, 1, 1, 1, 1, 0),
    "service series": (OK, NO, NO, OK, OK, NO),
}


ENTRIES = {
    "fleet": "states",
    "retry jobs": "jobs",
    "cancel jobs": "jobs",
    "delete jobs": "jobs",
    "overview": "services",
}  # field of a list's view that has its entries, where methods return the whole view


def fields_of(world: RightsWorld, row: Operation[Any, Any]) -> dict[str, Any]:
    if row.name in MORE_FIELDS:
        return MORE_FIELDS[row.name]
    return JOB[row.target](world) if row.target in JOB else {}


def answer_of(row: Operation[Any, Any], view: Any) -> object:
    if isinstance(view, ErrorView):
        return view.kind
    return len(getattr(view, ENTRIES.get(row.name, row.returned))) if row.target == "list" else OK


def test_every_operation_for_every_kind_of_principal() -> None:
    """R146 to R150. An operation that is not allowed changes nothing."""

    def check(name: str, kind: str, answer: object) -> None:
        world, row = RightsWorld(), OPERATIONS[name]
        if name in ("retry", "delete", "quarantine", "retry group", "retry jobs", "delete jobs"):
            world.quarantine()
        fields = fields_of(world, row)
        before = world.facts()
        assert answer_of(row, world.as_(kind, name, **fields)) == answer
        if answer in (NO, GONE, "conflict"):
            assert world.facts() == before
            assert list(world.broker.counters.rights_refused.values()) == [1]
        else:
            assert world.broker.counters.rights_refused == {}

    assert list(ANSWERS) == list(OPERATIONS), "every operation has its line"
    check_every_row(
        check,
        [(name, kind, answer) for name, line in ANSWERS.items() for kind, answer in zip(KINDS, line, strict=True)],
    )


def test_the_broker_belongs_to_principals_that_administer_all_services() -> None:
    world = RightsWorld()
    view = world.as_("root", "reload access")
    assert view == AccessView(added=["new"], removed=[], changed=[], disconnected=2)
    assert world.as_("ops", "reload access").detail == (
        "ops may not administer all services; an administrator of the broker gives the right with: "
        "dragoman access allow ops --administer '*'"
    )


def test_a_broker_without_access_table_does_not_reload() -> None:
    refused = World().ask("reload access")
    assert (refused.kind, refused.detail) == (
        "conflict",
        "this broker has no access table; start it with an access folder",
    )


# -------------------------------------------------------------------- new operations


class NoteView(View):
    text: str = "noted"


def toy(target: Target, right: Any, request: type[OperationRequest]) -> Operation[Any, Any]:
    return Operation(
        name="toy",
        request=request,
        view=NoteView,
        summary="Note.",
        right=right,
        target=target,
        method="POST",
        path="/v1/toy",
        answered_by="this broker",
        writes=True,
    )


# For each target: its request, and the principals that each right admits.
TOYS: dict[Target, tuple[type[OperationRequest], dict[str, set[str]]]] = {
    "service": (
        ServiceRef,
        {
            "call": {"local", "web", "other"},
            "work": {"local", "web"},
            "see": {"local", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "job": (
        JobRef,
        {
            "call": {"local", "web", "ops"},
            "work": {"local", "ops"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "conversation": (
        LadderRequest,
        {
            "call": {"local", "web", "ops"},
            "work": {"local", "ops"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "worker": (
        WorkerRef,
        {
            "call": {"local", "web", "other"},
            "work": {"local", "web"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "web", "ops"},
        },
    ),
    "schedule": (
        ScheduleRef,
        {
            "call": {"local", "web", "ops"},
            "work": {"local", "ops"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "group": (
        GroupRef,
        {
            "call": {"local", "web", "ops"},
            "work": {"local", "ops"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "quarantine group": (
        RetryGroupRequest,
        {
            "call": {"local", "web", "ops"},
            "work": {"local", "ops"},
            "see": {"local", "web", "viewer", "ops"},
            "administer": {"local", "ops"},
        },
    ),
    "broker": (EmptyRequest, {right: {"local"} for right in ("call", "work", "see", "administer")}),
    "list": (EmptyRequest, {"see": set(KINDS)}),
    "none": (EmptyRequest, {"see": set(KINDS)}),
}


def test_a_new_operation_of_any_kind_is_checked_without_more_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """R146. The function of an operation that is not allowed does not run."""
    ran: list[str] = []

    def function(
        operations: OperationHandlers, request: Any, payload: bytes, responder: RecordingResponder, now: float
    ) -> None:
        ran.append(responder.owner.principal.name)
        responder.answer(NoteView())

    def check(target: Target, right: str) -> None:
        request, admitted = TOYS[target]
        world = RightsWorld()
        row = toy(target, right, request)
        monkeypatch.setitem(OPERATIONS, "toy", row)
        monkeypatch.setitem(FUNCTIONS, "toy", function)
        ran.clear()
        answers = {kind: world.as_(kind, "toy", **fields_of(world, row)) for kind in KINDS}
        assert set(ran) == {kind for kind, view in answers.items() if view == NoteView()} == admitted[right]

    assert set(TOYS) == set(get_args(Target))
    check_every_row(check, [(target, right) for target, (_, rights) in TOYS.items() for right in rights])


# -------------------------------------------------------------------- jobs of others


def test_a_foreign_target_is_not_found_with_the_words_for_an_unknown_one() -> None:
    """R147. Also while jobs of the last run are still being read."""
    world = RightsWorld()
    for name, row in OPERATIONS.items():
        targets = ("job", "conversation", "worker", "schedule", "group", "quarantine group")
        if row.target not in targets or name == "set schedule":
            continue
        world.broker.job_registry.is_loading = False
        known = fields_of(world, row)
        ((field, value),) = known.items()
        unknown: Any = {"worker": 9_999, "schedule": "monthly", "quarantine group": "0" * 16}.get(row.target, UNKNOWN)
        for is_loading in (False, True):
            world.broker.job_registry.is_loading = is_loading
            refused, missing = world.as_("other", name, **known), world.as_("other", name, **{field: unknown})
            is_job = row.target in ("job", "conversation", "group", "quarantine group")
            assert refused.kind == ("loading" if is_loading and is_job else "not found"), name
            assert msgspec.json.encode(refused).replace(str(value).encode(), str(unknown).encode()) == (
                msgspec.json.encode(missing)
            ), name


def test_the_error_for_a_missing_right_names_it_and_the_command_that_gives_it() -> None:
    world = RightsWorld()
    allow = "an administrator of the broker gives the right with: dragoman access allow"
    assert world.as_("web", "enqueue", service="my mail").detail == (
        f"web may not call 'my mail'; {allow} web --call 'my mail'"
    )
    assert world.as_("viewer", "cancel", id=world.web_job).detail == (
        f"viewer may not administer 'mail'; {allow} viewer --administer mail"
    )


def test_with_see_a_job_is_shown_without_what_caller_and_worker_wrote() -> None:
    """R147. States, outcome and reason are shown; payload, result, error, progress and key are not."""
    world = RightsWorld()
    world.broker.attempts.progress(world.attempt(world.web_job), b"half", world.now)
    running = {kind: world.as_(kind, "job", id=world.web_job) for kind in ("web", "ops", "viewer")}
    assert running["web"] == running["ops"]
    assert (running["ops"].payload.text, running["ops"].progress.text, running["ops"].key) == (
        "secret",
        "half",
        "invoice-42",
    )
    bare = msgspec.structs.replace(running["web"], payload=None, progress=None, key=None, unique=None, holds_key=None)
    assert running["viewer"] == bare

    world.quarantine()
    ended = {kind: world.as_(kind, "job", id=world.web_job) for kind in ("web", "ops", "viewer")}
    assert (ended["web"].payload.text, ended["viewer"].reason) == ("secret", "ValueError: poison")
    assert ended["viewer"] == msgspec.structs.replace(
        ended["web"], payload=None, progress=None, key=None, unique=None, holds_key=None, error=None
    )

    done = world.as_("web", "enqueue", b"x", service="mail")
    world.broker.succeed(world.attempt(done.id), b"the result", world.now)
    world.runner.run_once()
    assert world.as_("ops", "job", id=done.id).result == "the result"
    assert world.as_("viewer", "job", id=done.id).result is None
    assert [each.key for each in world.as_("viewer", "jobs").jobs] == [None, None]
    assert [each.key for each in world.as_("web", "jobs").jobs] == [None, "invoice-42"]


def test_the_outcome_of_a_foreign_job_is_shown_once_it_is_stored() -> None:
    """R103, R147"""
    world = RightsWorld()
    world.store.is_slow = True
    world.broker.fail(world.attempt(world.web_job), "poison", world.now)
    world.runner.run_once()
    world.act_as("viewer")
    responder = world.begin("job", id=world.web_job)
    assert responder.responses == []
    world.store.write()
    world.runner.run_once()
    assert [view.outcome for view in responder.responses] == ["failed"]


def test_retry_of_an_own_job_needs_the_right_to_call() -> None:
    """R147. Reading and cancelling do not: the job was accepted when its principal had the right."""
    world = RightsWorld()
    world.quarantine()
    world.broker.principals.apply({"web": (Rights(call=("other",)), NO_LIMITS)})
    assert world.as_("web", "retry", id=world.web_job).kind == "forbidden"
    assert world.as_("web", "job", id=world.web_job).payload.text == "secret"
    assert len(world.as_("web", "jobs").jobs) == 1


def test_an_idempotency_key_belongs_to_its_principal() -> None:
    """R24: another principal with the same key gets a job of its own, and learns nothing of the first."""
    world = RightsWorld()
    again = world.as_("web", "enqueue", b"secret", service="mail", key="invoice-42")
    other = world.as_("other", "enqueue", b"theirs", service="mail", key="invoice-42")
    assert again.id == world.web_job
    assert other.id != world.web_job


# -------------------------------------------------------------------- lists


def test_pages_have_the_jobs_that_the_principal_may_see_and_no_gaps() -> None:
    """R148"""
    world = RightsWorld()
    ids: dict[str, list[str]] = {"web": [world.web_job], "other": []}
    for number in range(40):
        name = "web" if number % 3 == 0 else "other"
        ids[name].append(world.as_(name, "enqueue", b"x", service="mail").id)

    def pages(kind: str, limit: int) -> list[list[str]]:
        found, after = [], None
        while True:
            view = world.as_(kind, "jobs", limit=limit, after=after)
            found.append([each.id for each in view.jobs])
            after = view.after
            if after is None:
                return found

    for kind in ("web", "other"):
        listed = pages(kind, 4)
        assert [id for page in listed for id in page] == ids[kind][::-1]
        assert {len(page) for page in listed[:-1]} == {4}
    assert sorted(id for page in pages("viewer", 7) for id in page) == sorted(ids["web"] + ids["other"])
    assert pages("nobody", 7) == [[]]


def test_a_page_after_a_foreign_job_is_one_after_an_unknown_job() -> None:
    """R148"""
    world = RightsWorld()
    foreign, unknown = (world.as_("other", "jobs", after=id) for id in (world.web_job, UNKNOWN))
    assert (foreign.kind, foreign.detail.replace(world.web_job, UNKNOWN)) == ("not found", unknown.detail)


def test_a_worker_of_several_services_is_shown_with_those_that_the_principal_may_see() -> None:
    """R148, R150"""
    world = RightsWorld()
    world.broker.principals.apply(
        {
            "web": (Rights(call=("*",), work=("*",)), NO_LIMITS),
            "viewer": (Rights(see=("mail",)), NO_LIMITS),
            "ops": (Rights(administer=("mail",)), NO_LIMITS),
        }
    )
    world.act_as("web")
    worker = world.worker("mail", "billing", name="both", capacity=2)
    billing = world.enqueue("billing", b"x")
    assert [each.job.id.hex() for each in worker.running.values()] == [billing]
    shown = world.as_("viewer", "worker", id=worker.id)
    assert (shown.services, shown.running) == (["mail"], [])
    own = world.as_("web", "worker", id=worker.id)
    assert (own.services, own.running) == (["mail", "billing"], [billing])
    refused = world.as_("ops", "drain", id=worker.id)
    assert (refused.kind, refused.detail) == (
        "forbidden",
        f"ops may not administer all services of worker {worker.id}; the broker's log names them",
    )


def test_a_worker_without_services_is_for_its_owner_and_for_those_who_administer_all() -> None:
    """R150"""
    world = RightsWorld()
    assert world.broker.availability.offer(world.web_worker, (), world.now)
    for kind in ("ops", "viewer"):
        assert world.as_(kind, "drain", id=world.web_worker.id).kind == "not found", kind
        assert world.as_(kind, "workers").workers == []
    assert world.as_("root", "drain", id=world.web_worker.id).state == "draining"


# -------------------------------------------------------------------- schedules


def runs(world: RightsWorld) -> list[Job]:
    return [job for job in world.broker.jobs.values() if job.key is not None and job.key.startswith("cron/")]


def test_runs_of_a_schedule_are_jobs_of_its_owner_also_after_an_administrator_has_replaced_it() -> None:
    """R149"""
    world = RightsWorld()
    assert world.as_("ops", "set schedule", name="nightly", service="mail", every=60.0).every == 60.0
    world.wait(61.0)
    (run,) = runs(world)
    assert run.owner.principal.name == "web"
    assert '"owner":"web"' in world.store.notes["cron/nightly"]


def test_an_administrator_sets_a_schedule_only_to_services_that_it_may_use() -> None:
    """R149"""
    world = RightsWorld()
    moved = world.as_("ops", "set schedule", name="nightly", service="billing", every=60.0)
    assert (moved.kind, moved.detail.partition(";")[0]) == ("forbidden", "ops may not call 'billing'")
    moved = world.as_("root", "set schedule", name="nightly", service="billing", every=60.0)
    assert (moved.kind, "web may not call 'billing'" in moved.detail) == ("forbidden", True)  # R144: it stays web's


def test_no_run_is_made_while_the_owner_may_not_call() -> None:
    """R144"""
    world = RightsWorld()
    world.broker.principals.apply({"ops": (TABLE["ops"], NO_LIMITS)})
    world.wait(3_601.0)
    view = world.as_("ops", "schedule", name="nightly")
    assert (runs(world), view.runs, view.paused) == ([], 0, True)
    assert "web may not call" in view.paused_reason
    world.broker.principals.apply({name: (TABLE[name], NO_LIMITS) for name in ("web", "ops")})
    world.as_("web", "resume schedule", name="nightly")
    world.wait(3_601.0)
    assert len(runs(world)) == 1


def test_the_owner_of_a_schedule_is_stored_and_an_older_store_has_those_of_local() -> None:
    world, next_run = RightsWorld(), World()
    notes = dict(world.store.notes)
    older = msgspec.json.decode(notes["cron/nightly"])
    del older["owner"]
    older["form"]["name"] = "older"
    notes["cron/older"] = msgspec.json.encode(older).decode()
    assert next_run.operations.scheduler.load(notes, next_run.now, next_run.now) == {}
    owners = {name: next_run.operations.scheduler.find(name).stored.owner for name in ("nightly", "older")}
    assert owners == {"nightly": "web", "older": "local"}


def test_a_name_in_use_is_a_conflict_that_does_not_tell_whose_it_is() -> None:
    """R149"""
    world = RightsWorld()
    refused = world.as_("other", "set schedule", name="nightly", service="mail", every=60.0)
    assert (refused.kind, refused.detail) == ("conflict", 'schedule name "nightly" is in use; choose another name')
    assert world.as_("other", "set schedule", name="mine", service="mail", every=60.0).name == "mine"
    assert world.as_("other", "set schedule", name="mine", service="billing", every=60.0).kind == "forbidden"


# -------------------------------------------------------------------- records of acts


def test_only_local_chooses_the_text_of_who_paused_a_service() -> None:
    """R151"""
    world = RightsWorld()
    assert world.as_("local", "pause", name="mail", by="Ada").paused_by == "Ada"
    assert world.as_("local", "pause", name="mail").paused_by == "an operator"
    assert world.as_("ops", "pause", name="mail", by="Ada").paused_by == "ops"
    assert world.store.notes["pause/mail"] == "ops"


def test_reasons_name_the_principal_that_acted_on_jobs_of_others() -> None:
    """R151"""
    world = RightsWorld()
    second, third = (world.as_("web", "enqueue", b"x", service="mail").id for _ in range(2))
    assert world.as_("web", "cancel", id=second).reason == "cancelled on request"
    world.as_("ops", "purge", name="mail")
    assert world.as_("web", "job", id=third).reason == "purged by ops"
    assert world.as_("ops", "cancel", id=world.web_job).reason == "cancelled by ops"

    world = RightsWorld()
    world.as_("ops", "drain", id=world.web_worker.id, now=True)
    assert world.as_("web", "job", id=world.web_job).reason == "its worker was killed by ops"


def test_acts_of_administrators_are_published_once_they_are_executed() -> None:
    """R151: by the right, not by the success of what the operation then does later."""
    world = RightsWorld()
    acts: list[tuple[str, str, dict[str, Any]]] = [
        ("ops", "pause", {"name": "mail"}),
        ("local", "resume", {"name": "mail"}),
        ("ops", "payload", {"id": world.web_job}),
        ("root", "cancel", {"id": world.web_job}),
        ("ops", "pause schedule", {"name": "nightly"}),
        ("root", "reload access", {}),
        ("web", "drain", {"id": world.web_worker.id}),
    ]
    for kind, name, fields in acts:
        assert not isinstance(world.as_(kind, name, **fields), ErrorView), name
    assert [(each.principal, each.operation, each.target, each.peer) for each in world.acts] == [
        (kind, name, str(next(iter(fields.values()), "")), RecordingResponder.origin) for kind, name, fields in acts
    ]


def test_what_is_refused_fails_or_belongs_to_the_principal_is_no_act() -> None:
    world = RightsWorld()
    world.as_("web", "pause", name="mail")  # forbidden
    world.as_("ops", "retry", id=world.web_job)  # conflict: it is not in quarantine
    world.as_("viewer", "job", id=world.web_job)
    world.as_("web", "pause schedule", name="nightly")
    world.as_("web", "cancel", id=world.web_job)
    assert world.acts == []


def test_enqueue_of_a_principal_that_may_call_the_service_is_not_checked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The core checks it: `enqueue` is the operation that is called often."""

    def check(*_: object) -> None:
        raise AssertionError("it was checked")

    world = RightsWorld()
    monkeypatch.setattr(Permissions, "check", check)
    for kind in ("local", "web"):
        assert world.as_(kind, "enqueue", service="mail").state == "waiting"
    with pytest.raises(AssertionError, match="it was checked"):
        world.as_("viewer", "enqueue", service="mail")

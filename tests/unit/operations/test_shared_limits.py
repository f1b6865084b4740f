"""Every limit of docs/reference/settings.md: a table that all principals share has places for each of them (R254)."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from case_tables import check_every_row
from dragoman.core.memory import MemoryAccount
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal, PrincipalLimits, Principals, Rights
from dragoman.core.shares import Shares, administers, has_share, holder_of, share_mark
from dragoman.dialects.memodb.broker_side import MemoDbBrokerSide
from dragoman.dialects.memodb.codec import write_job
from dragoman.dialects.memodb.options import ListenerOptions as MemoDbOptions
from dragoman.dialects.native.client_sessions import ClientSession, ClientSessions
from dragoman.http.admission import ADMITTED, Admission
from dragoman.http.all_bodies import AllBodies
from dragoman.http.body_budget import BodyBudget
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.limits import HttpLimits
from dragoman.http.login_sessions import LoginSessions
from dragoman.http.options import ListenerOptions as HttpOptions
from dragoman.http.server import HttpServer
from dragoman.http.server_state import ConnectionCheck
from dragoman.http.sse import Streams
from dragoman.operations.group_schemas import BatchJob
from dragoman.operations.schemas import ErrorView
from dragoman.server.admission import Admission as ConnectionAdmission
from dragoman.server.admission import AdmissionLimits
from http_visits import World as HttpWorld
from http_visits import echo

from .world import World

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
MOST: Final = 64
OTHERS: Final = 12  # principals that fill what a hog leaves
CALLER: Final = Rights(call=["*"], work=["*"])
RIGHTS: Final = {"hog": CALLER, "web": CALLER, "ops": Rights(["*"], ["*"], ["*"], ["*"])}
OPEN: Final[list[HttpWorld]] = []  # to be closed
Take = Callable[[Principal], bool]  # take one place; False: it is refused
Table = Callable[[], tuple[Principals, Take]]


class Peer(SimpleNamespace):
    """A connection."""

    def __hash__(self) -> int:
        return id(self)


def make_principals(principals: Principals | None = None) -> Principals:
    principals = principals or Principals()
    rights = RIGHTS | {f"other{number}": CALLER for number in range(OTHERS)}
    principals.apply({name: (each, PrincipalLimits(max_waiting=None)) for name, each in rights.items()})
    return principals


def owner_of(principal: Principal) -> Owner:
    """One of many connections of a principal, so that limits of one connection do not matter."""
    return Owner(principal, is_limited=False)


# -------------------------------------------------------------------- tables of operations


def asking(
    operation: str,
    fields: Callable[[World, int], dict[str, Any]],
    prepare: Callable[[World], object] = lambda _: None,
    body: bytes = b"",
    **policy: int,
) -> Table:
    """A table whose places are taken by an operation. `fields`: those of each request."""

    def table() -> tuple[Principals, Take]:
        world, numbers = World(**policy), count()
        principals = make_principals(world.broker.principals)
        prepare(world)

        def take(principal: Principal) -> bool:
            world.owner = owner_of(principal)
            answer = world.ask(operation, body, **fields(world, next(numbers)))
            assert not isinstance(answer, ErrorView) or answer.kind == "busy", answer
            return not isinstance(answer, ErrorView)

        return principals, take

    return table


def with_schedules(world: World) -> None:
    world.operations.scheduler.shares = Shares(MOST)


def with_acts(world: World) -> None:
    """Every act waits: it retries a job, and there is room for none."""
    world.operations.bulk_acts._shares = Shares(MOST)
    for principal in list(world.broker.principals):
        world.owner = owner_of(principal)
        if principal.rights.call:
            worker = world.worker()
            name = world.enqueue(attempts=1)
            world.broker.fail(world.attempt(name), "no", world.now)
            world.broker.leave(worker, world.now, "gone")
            world.runner.run_once()
    world.owner = owner_of(world.broker.principals.local)
    world.enqueue()


def after_own_job(world: World, number: int) -> dict[str, Any]:
    principal = world.owner.principal
    first = next((job for job in world.broker.jobs.values() if job.principal is principal), None)
    name = first.id.hex() if first is not None else world.enqueue()
    return {"service": "s", "after": (name,)}


# -------------------------------------------------------------------- other tables


def connections() -> tuple[Principals, Take]:
    principals = make_principals()
    admission = ConnectionAdmission(AdmissionLimits(max_connections=MOST))
    owners: list[Owner] = []

    def take(principal: Principal) -> bool:
        reason = admission.rejection_reason("127.0.0.1", True, len(owners), principal, proves_more=False)
        if reason is None:
            owners.append(owner_of(principal))
            owners[-1].enter()
            admission.enter("127.0.0.1")
        return reason is None

    return principals, take


def connections_with_handshake() -> tuple[Principals, Take]:
    """All come from addresses of which nobody knows whose they are, and each proves it in a handshake."""
    principals, numbers = make_principals(), count()
    admission = ConnectionAdmission(AdmissionLimits(max_connections=MOST))
    owners: list[Owner] = []

    def take(principal: Principal) -> bool:
        address = f"192.0.2.{next(numbers)}"
        if admission.rejection_reason(address, False, len(owners), None, proves_more=True) is not None:
            return False
        admission.enter(address)
        owner = owner_of(principal)
        owner.enter()
        if admission.over_share(principal, address, len(owners) + 1, 1) is not None:
            admission.leave(address)
            owner.leave()
            return False
        owners.append(owner)
        return True

    return principals, take


def http_workers() -> tuple[Principals, Take]:
    world = World()
    session = HttpBrokerSide(world.broker, world.runner.connections, HttpOptions(max_workers=MOST))

    def take(principal: Principal) -> bool:
        owner = owner_of(principal)
        if not session.shares.allows(owner):
            return False
        assert session.join("w", ("s",), 1, 60.0, owner, "", world.now) is not None
        return True

    return make_principals(world.broker.principals), take


def http_world() -> HttpWorld:
    world = HttpWorld()
    OPEN.append(world)
    return world


def http_connections() -> tuple[Principals, Take]:
    """Connections whose principal is known, from one address."""
    world, principals, numbers = http_world(), make_principals(), count(1)
    present: list[Principal] = []
    check = ConnectionCheck(lambda *_: Admission(present[-1]))
    world.server = HttpServer(world.loop, echo, HttpLimits(max_connections=MOST), [], lambda *_: None, check=check)

    def take(principal: Principal) -> bool:
        present.append(principal)
        visit: Any = world.visit(("127.0.0.1", next(numbers)))
        return visit.protocol._no_room is None

    return principals, take


def http_connections_with_tokens() -> tuple[Principals, Take]:
    """Connections from one address: only a request tells whose they are."""
    world, principals, numbers = http_world(), make_principals(), count(1)

    def by_request(scope: dict[str, Any]) -> Admission | None:
        name = dict(scope["headers"]).get(b"authorization", b"").decode()
        found = principals.find(name)
        return Admission(found) if found is not None else None

    check = ConnectionCheck(user=lambda _: "uid 33", by_request=by_request)
    world.server = HttpServer(world.loop, echo, HttpLimits(max_connections=MOST), [], lambda *_: None, check=check)

    def take(principal: Principal) -> bool:
        check_user[0] = f"uid {principal.name}" if principal.name != "ops" else "uid hog"
        visit: Any = world.visit(("127.0.0.1", next(numbers)))
        visit.say(b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n\r\n" % principal.name.encode())
        return 503 not in visit.statuses

    check_user = [""]
    object.__setattr__(check, "user", lambda _: check_user[0])
    return principals, take


def streams() -> tuple[Principals, Take]:
    table = Streams(MOST)

    def take(principal: Principal) -> bool:
        stream: Any = object()
        return table.enter(stream, {"extensions": {ADMITTED: Admission(principal)}})

    return make_principals(), take


def parked_calls() -> tuple[Principals, Take]:
    world, routes = World(), count()
    principals = make_principals(world.broker.principals)
    side = MemoDbBrokerSide(world.broker, world.runner.connections, MemoDbOptions(max_parked=MOST), 1_000)
    world.runner.sessions.append(side)

    def take(principal: Principal) -> bool:
        any_peer: Any = Peer(owner=owner_of(principal), address="uid 33", label="x", remote=None, process=0)
        side.opened(any_peer, world.now)
        before = side._callers.waiting
        route = next(routes).to_bytes(4, "big")
        side.receive(any_peer, (route, bytes(write_job(b"", "s", 5_000)) + b"x"), world.now)
        return side._callers.waiting > before

    return principals, take


SHARED: Final[dict[str, Table]] = {
    "max_connections": connections,
    "max_connections, with a handshake": connections_with_handshake,
    "max_jobs": asking("enqueue", lambda *_: {"service": "s"}, max_jobs=MOST),
    "max_jobs_per_service": asking("enqueue", lambda *_: {"service": "s"}, max_jobs_per_service=MOST),
    "max_memory": asking("enqueue", lambda *_: {"service": "s"}, body=bytes(1024), max_memory=MOST << 10),
    "max_services": asking("enqueue", lambda _, number: {"service": f"s{number}"}, max_services=MOST),
    "max_links": asking("enqueue", after_own_job, max_links=MOST),
    "max_groups": asking(
        "enqueue many", lambda *_: {"service": "s", "jobs": (BatchJob(),), "group": True}, max_groups=MOST
    ),
    "max_kept_forever": asking("enqueue", lambda *_: {"service": "s", "keep": "forever"}, max_kept_forever=MOST),
    "MemoDB: max_parked": parked_calls,
    "HTTP: max_workers": http_workers,
    "HTTP: max_connections": http_connections,
    "HTTP: max_connections, with tokens": http_connections_with_tokens,
    "HTTP: max_streams": streams,
    "acts on many jobs": asking("retry jobs", lambda *_: {"service": "s"}, with_acts, max_jobs=1),
    "schedules": asking(
        "set schedule", lambda _, number: {"name": f"n{number}", "service": "s", "every": 60.0}, with_schedules
    ),
}


def test_of_every_shared_table_a_hog_leaves_places_to_others_and_all_of_them_to_administrators() -> None:
    """One principal took all event streams, HTTP connections and workers, schedules, names of services, bytes of jobs
    and parked calls, and nobody else got one: not even an administrator."""

    def check(name: str, table: Table) -> None:
        principals, take = table()
        hog, web, ops = [principals.named(each) for each in ("hog", "web", "ops")]
        taken = 0
        while take(hog):
            taken += 1
            assert taken <= MOST // 2, "a hog takes more than half"
        assert taken >= MOST // 4, f"a hog gets {taken} places"
        others = 0
        while take(web):
            others += 1
        assert others >= MOST // 16, f"the next principal gets {others} places"
        for number in range(OTHERS):
            while take(principals.named(f"other{number}")):
                pass
        assert take(ops), "an administrator gets no place"
        assert not take(hog)
        while OPEN:
            OPEN.pop().close()

    check_every_row(check, SHARED.items())


def test_of_a_table_that_drops_the_oldest_a_hog_drops_its_own() -> None:
    principals = make_principals()
    hog, web = principals.named("hog"), principals.named("web")
    recipient: Any = None

    def client(principal: Principal, number: int) -> ClientSession:
        return ClientSession(recipient, owner_of(principal), f"{principal.name}{number}", "", 1)

    sessions = ClientSessions(MOST)
    assert list(sessions.set_away(client(web, 0), 1.0)) == []
    dropped = [each for number in range(MOST * 2) for each in sessions.set_away(client(hog, number), 1.0)]
    assert [each.secret for each in dropped] == [f"hog{number}" for number in range(MOST + 1)]

    numbers = count(1)
    logins = LoginSessions(lambda size: next(numbers).to_bytes(size, "big"), lambda: 0.0, most=4)
    own = logins.open(Admission(web), "here")
    for _ in range(9):
        logins.open(Admission(hog), "here")
    assert logins.find(own, "here") is not None

    bodies = BodyBudget(1_000, AllBodies(MemoryAccount(1 << 20)))
    large: Any = Peer(holder="web")
    assert bodies.grow(large, 300) is None
    small: list[Any] = [Peer(holder="hog") for _ in range(8)]
    rejected = [bodies.grow(each, 100) for each in small]
    assert rejected[:7] == [None] * 7
    assert rejected[7] in small, "the largest body of all, and not of those who have most"


# -------------------------------------------------------------------- the rule


def test_share_of_a_table() -> None:
    def check(most: int, taken: int, held: int, size: int, is_administrator: bool, expected: bool) -> None:
        assert has_share(most, taken, held, size, is_administrator=is_administrator) is expected

    rows = [
        (1, 0, 0, 1, False, True),  # alone, of one place
        (1, 1, 0, 1, False, False),
        (2, 1, 1, 1, False, False),  # the second place is for others
        (2, 1, 0, 1, False, True),
        (0, 0, 0, 1, True, False),
        (64, 29, 29, 1, False, True),  # 60 are not reserved
        (64, 30, 30, 1, False, False),
        (64, 30, 0, 1, False, True),
        (64, 60, 0, 1, False, False),
        (64, 60, 60, 1, True, True),
        (64, 64, 0, 1, True, False),
        (1_600, 0, 0, 1_500, False, True),  # one large payload
        (1_600, 0, 0, 1_501, False, False),
        (1_600, 100, 100, 1_301, False, False),
    ]
    check_every_row(check, rows)


def test_up_to_the_mark_no_holder_can_be_over_its_share() -> None:
    for most in range(200):
        mark = share_mark(most)
        for taken in range(mark):
            assert has_share(most, taken, taken, 1, is_administrator=False), (most, taken)


def test_addresses_are_holders_where_nobody_proves_who_he_is() -> None:
    principals = Principals()
    table = Shares(16)
    one, other = [Owner(principals.anyone, address=address) for address in ("192.0.2.1", "192.0.2.2")]
    while table.allows(one):
        table.enter(holder_of(one.principal, one.address))
    assert table.taken == 15 // 2 + 1
    assert table.allows(other)
    assert not administers(principals.anyone), "the reserve is for those who prove that they administer"
    assert administers(principals.local)


# -------------------------------------------------------------------- the page

ONE = "of one connection, caller, worker, client or principal"
SIZE = "of one job, name, message or request"
RATE = "more wait, and nothing is refused"
DROPS = "the oldest of the one with most is dropped: see the test above"
# What R254 does not reach. R254 has the same list.
NARROWER = "all principals together"
KINDS: Final = {
    "max_connections_per_remote_address": ONE,
    "max_connections_per_local_address": ONE,
    "max_jobs_per_caller": ONE,
    "max_bytes_per_caller": ONE,
    "max_services_per_worker": ONE,
    "max_services_per_caller": ONE,
    "max_accepts_per_second": RATE,
    "max_handshakes": RATE,
    "max_unauthenticated": RATE,
    "max_deletes_per_tick": RATE,
    "max_service_bytes": SIZE,
    "max_key_bytes": SIZE,
    "max_error_bytes": SIZE,
    "max_links_per_batch": SIZE,
    "max_remembered_requests": DROPS,
    "max_attempts": SIZE,
    "max_input": SIZE,
    "max_worker_deaths": SIZE,
    "max_undelivered": SIZE,
    "max_bytes_per_service": NARROWER,
    "max_store_size": NARROWER,
    "max_outcome_bytes": NARROWER,
    "Native: attempts": SIZE,
    "Native: window": ONE,
    "Native: max_kept_bytes": ONE,
    "Native: max_sessions": DROPS,
    "PingPong: attempts": SIZE,
    "Powerhose: attempts": SIZE,
    "Majordomo: attempts": SIZE,
    "Majordomo: liveness": SIZE,
    "MemoDB: attempts": SIZE,
    "MemoDB: max_kept_bytes": NARROWER,
    "MemoDB: max_parked_per_peer": ONE,
    "HTTP: attempts": SIZE,
    "HTTP: hsts": SIZE,
    "HTTP: max_memory": DROPS,
    "HTTP: min_body_rate": SIZE,
    "HTTP: max_head": SIZE,
    "HTTP: max_fields": SIZE,
    "HTTP: max_target": SIZE,
    "HTTP: max_connections_per_remote_address": ONE,
    "HTTP: max_connections_per_local_address": ONE,
}
EVERY_LISTENER: Final = ("max_payload", "max_send_buffer")  # of one message, and of one connection


def limits_of_the_page() -> list[str]:
    """Every setting and option that is a whole number, with the dialect of an option."""
    found, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        row = re.match(r"\| `(\w+)` \|(.*)", line)
        if row and re.search(r"\| whole number", row[0]) and row[1] not in EVERY_LISTENER:
            found.append(row[1] if section == "Settings of a broker" else f"{section}: {row[1]}")
    return found


def test_every_limit_of_the_page_has_a_row_here() -> None:
    """A new limit is shared by all principals until somebody decides about it: add it to `SHARED` or `KINDS`."""
    shared = {name.partition(",")[0] for name in SHARED if name != "schedules" and name != "acts on many jobs"}
    known = shared | set(KINDS)
    assert sorted(limits_of_the_page()) == sorted(known)
    assert not shared & set(KINDS)


def test_what_the_rule_does_not_reach_is_on_the_page_of_rules() -> None:
    rules = (PAGE.parents[1] / "rules.md").read_text()
    (rule,) = [line for line in rules.splitlines() if line.startswith("| R254 |")]
    narrower = rule.partition("*Narrower:*")[2]
    assert narrower
    for name, kind in KINDS.items():
        assert (f"`{name.rpartition(' ')[2]}`" in narrower) == (kind is NARROWER) or name == "Native: max_kept_bytes"

"""Login sessions: ids, expiry, number, and their end with the access of the principal (R159)."""

from __future__ import annotations

from itertools import count

from dragoman.core.rights import Principal
from dragoman.http.admission import Admission
from dragoman.http.login_sessions import ID_BYTES, LIFETIME, MAX_PER_PRINCIPAL, MAX_SESSIONS, LoginSessions

HERE = "uid 1000"


class World:
    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self.now = 1000.0
        numbers = count(1)
        self.drawn: list[int] = []
        self.revoked: set[str] = set()

        def random_bytes(size: int) -> bytes:
            self.drawn.append(size)
            return next(numbers).to_bytes(size, "big")

        self.sessions = LoginSessions(random_bytes, lambda: self.now, most=most)

    def open(self, name: str = "web") -> str:
        return self.sessions.open(Admission(Principal(name), "token 1a2b3c4d", lambda: name not in self.revoked), HERE)


def test_session_is_found_by_its_id() -> None:
    world = World()
    ids = [world.open("web"), world.open("ops")]
    assert world.drawn == [ID_BYTES, ID_BYTES]
    assert len(set(ids)) == 2
    found = [world.sessions.find(id, HERE) for id in ids]
    assert [each.principal.name for each in found if each is not None] == ["web", "ops"]
    for wrong in ("", "x", ids[0][:-1], ids[0] + "A", "\udc80é"):
        assert world.sessions.find(wrong, HERE) is None


def test_session_is_found_only_at_the_origin_of_its_login() -> None:
    world = World()
    id = world.open()
    for other in ("", "uid 0", "192.0.2.1"):
        assert world.sessions.find(id, other) is None
        assert not world.sessions.close(id, other)
    assert world.sessions.find(id, HERE) is not None


def test_id_is_kept_as_a_hash() -> None:
    world = World()
    id = world.open()
    assert id not in repr(vars(world.sessions))


def test_session_expires() -> None:
    world = World()
    id = world.open()
    world.now += LIFETIME - 1
    found = world.sessions.find(id, HERE)
    assert found is not None
    world.now += 1
    assert world.sessions.find(id, HERE) is None
    assert not found.is_current(), "a request that runs ends, too"
    assert world.sessions.sweep() == 1
    assert len(world.sessions) == 0


def test_session_ends_at_logout() -> None:
    world = World()
    id = world.open()
    found = world.sessions.find(id, HERE)
    assert found is not None
    assert found.is_current()
    assert world.sessions.close(id, HERE)
    assert not found.is_current()
    assert world.sessions.find(id, HERE) is None
    assert not world.sessions.close(id, HERE)


def test_session_ends_with_the_access_of_its_principal() -> None:
    world = World()
    web, ops = world.open("web"), world.open("ops")
    world.revoked.add("web")
    assert world.sessions.find(web, HERE) is None
    assert world.sessions.sweep() == 1
    assert world.sessions.find(ops, HERE) is not None


def test_oldest_session_ends_when_there_are_too_many() -> None:
    world = World(most=3)
    ids = [world.open() for _ in range(4)]
    oldest = world.sessions.find(ids[0], HERE)
    assert [world.sessions.find(id, HERE) is not None for id in ids] == [False, True, True, True]
    assert oldest is None
    assert len(world.sessions) == 3


def test_logins_of_one_principal_close_no_session_of_another() -> None:
    world = World()
    ops, web = Principal("ops"), Principal("web")
    first = world.sessions.open(Admission(ops, "token 1a2b3c4d", lambda: True), HERE)
    ids = [world.sessions.open(Admission(web, "token 5e6f7a8b", lambda: True), HERE) for _ in range(MAX_SESSIONS + 1)]
    assert world.sessions.find(first, HERE) is not None
    assert [world.sessions.find(id, HERE) is not None for id in ids[-MAX_PER_PRINCIPAL - 1 :]] == [
        False,
        *[True] * MAX_PER_PRINCIPAL,
    ]

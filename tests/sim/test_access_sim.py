"""Rights that come and go: no worker gets a job that it may not run, and no principal gets another's result.

Forty scenarios, the same in every run; see access_scenario.py.

    SIM_SEEDS=2000 python -m pytest tests/sim -k access_seeds      more of them
    ACCESS_SEED=123 python -m pytest tests/sim -k access_one_seed  only this one
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.access.identities import Identity, IdentityKind
from dragoman.dialects.memodb import broker_side, callers
from dragoman.dialects.memodb.records import key_of
from dragoman.server import clock
from dragoman.server.access_control import AccessControl, apply_rights
from dragoman.server.authentication import Admitted, Authentication
from sim.access_actors import key_of as curve_key_of
from sim.access_scenario import NAMES, Scenario

SEEDS = min(int(os.environ.get("SIM_SEEDS", "40")), 2000)
RARE = (
    "connections revoked",
    "jobs given",
    "removed in the handshake",
    "requests repeated",
    "results delivered",
    "results forged",
    "strangers refused",
)


def live(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    with monkeypatch.context() as patch:
        return Scenario(seed, lambda now: patch.setattr(clock, "now", now)).run().hits


def test_access_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            hits += live(seed, monkeypatch)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert not [each for each in RARE if not hits[each]], hits


if "ACCESS_SEED" in os.environ:

    def test_access_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
        live(int(os.environ["ACCESS_SEED"]), monkeypatch)


def test_same_access_seed_same_story(monkeypatch: pytest.MonkeyPatch) -> None:
    assert live(7, monkeypatch) == live(7, monkeypatch)


# ---------------------------------------------------------------- planted bugs


def joins_without_the_right(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dragoman.core.broker.forbidden_work", lambda *_: None)


def keeps_services_after_a_reload(patch: pytest.MonkeyPatch) -> None:
    def disconnect(control: AccessControl) -> int:
        closed = 0
        for peer in list(control._connections.peers):
            if peer.admitted is not None and not control.authentication.is_current(peer.admitted):
                control._connections.close(peer, "revoked")
                closed += 1
        return closed

    patch.setattr(AccessControl, "_disconnect", disconnect)


def keeps_connections_after_a_reload(patch: pytest.MonkeyPatch) -> None:
    def disconnect(control: AccessControl) -> int:
        apply_rights(control._broker, control._connections, clock.now())
        return 0

    patch.setattr(AccessControl, "_disconnect", disconnect)


def admits_every_key(patch: pytest.MonkeyPatch) -> None:
    names = {curve_key_of(name)[0]: name for name in NAMES}
    patch.setattr(
        Authentication,
        "by_curve",
        lambda found, key: Admitted(found._principals.named(names[key]), Identity(IdentityKind.CURVE, key)),
    )


def repeats_for_another_principal(patch: pytest.MonkeyPatch) -> None:
    def key(*facts: Any) -> Any:
        return ("", *key_of(*facts)[1:])

    for module in (broker_side, callers):
        patch.setattr(module, "key_of", key)
    patch.setattr("dragoman.dialects.memodb.records.PendingCall.key", property(_without_principal))


def _without_principal(call: Any) -> Any:
    return "", call.address, call.route[-4:], call.request_hash, call.process


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (joins_without_the_right, "R174"),
        (keeps_services_after_a_reload, "R174"),
        (keeps_connections_after_a_reload, "R175"),
        (admits_every_key, "R175"),
        (repeats_for_another_principal, "R177"),
    ],
)
def test_planted_access_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(200):
        try:
            live(seed, monkeypatch)
        except AssertionError as found:
            if str(found).startswith(rule):
                return
    pytest.fail(f"{rule}: not found in 200 seeds")

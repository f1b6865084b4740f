"""Limits of a principal's file reach the core, at the start and with a reload (R165, R166)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dragoman.access.location import AccessPlaces
from dragoman.core.broker import Broker
from dragoman.core.model import Caller
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import PrincipalLimits
from dragoman.server.access_control import AccessControl
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Authentication
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER


def write(folder: Path, **limits: int) -> None:
    """Write the file of the principal `web`."""
    lines = ["uid = [4294967]", 'call = ["*"]', *(f"{name} = {value}" for name, value in limits.items())]
    path = folder / "web.toml"
    path.write_text("\n".join(lines))
    path.chmod(0o600)


def control(broker: Broker, folder: Path) -> AccessControl:
    """Return the access control of a broker with this data folder."""
    runner = Runner(broker, NullStore(), lambda: 0.0, lambda *_, **__: None, AdmissionLimits())
    log: Any = SimpleNamespace(info=lambda *_, **__: None, error=lambda *_, **__: None)
    places = AccessPlaces(data=folder)
    return AccessControl(broker, runner.connections, Authentication(broker.principals), places, log, list)


def test_reload_applies_new_limits_to_waiting_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "access"
    folder.mkdir(mode=0o700)
    write(folder, max_running=1, max_waiting=5)
    broker = Broker(Policy(), SeededEntropy())
    access = control(broker, tmp_path)
    web = broker.principals.named("web")
    worker = broker.join(Recipient(), None, "w", ("s",), WorkerProfile(capacity=9), 0.0, LOCAL_OWNER)
    assert worker is not None
    broker.idle(worker, 0.0)
    caller = Caller(Recipient(), Owner(web))
    for _ in range(4):
        assert broker.submit("s", b"x", caller, JobOptions(), 0.0)
    assert (web.running, web.waiting) == (1, 3)
    write(folder, max_running=3, max_waiting=1)
    access.reload()
    assert (web.running, web.waiting) == (3, 1)
    assert broker.submit("s", b"x", caller, JobOptions(), 0.0) is None


def test_digest_of_the_table_is_that_of_its_files_and_computed_once(tmp_path: Path) -> None:
    """Brokers of a cluster compare it. Limits that other brokers have are not part of it."""
    folder = tmp_path / "access"
    folder.mkdir(mode=0o700)
    write(folder, max_running=1)
    broker = Broker(Policy(), SeededEntropy())
    access = control(broker, tmp_path)
    first = access.digest()
    assert access.digest() is first
    broker.principals.limit_elsewhere("eu2", {"web": PrincipalLimits(max_running=7, max_rate=1.0)})
    access.reload()
    assert access.digest() == first
    write(folder, max_running=2)
    access.reload()
    second = access.digest()
    assert second != first
    write(folder, max_running=1)
    access.reload()
    assert access.digest() == first

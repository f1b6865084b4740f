"""The default listeners of a broker: those it needs, and those it can start without."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_setup import BrokerSetup

from dragoman.server import serve, wiring
from dragoman.streams.sockets import AddressInUse

Start = Callable[..., BrokerSetup]


@pytest.fixture(autouse=True)
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The run-time folder and the well-known folder, both for this test only; and free ports instead of the usual
    ones."""
    well_known = tmp_path / "run"
    well_known.mkdir()
    monkeypatch.setattr(wiring, "WELL_KNOWN_FOLDER", str(well_known))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listen_on(monkeypatch, 0)
    return tmp_path / "dragoman", well_known


def listen_on(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    def listeners(environment: dict[str, str]) -> tuple[str, ...]:
        return (f"memodb+tcp://127.0.0.1:{port}", *wiring.optional_listeners(environment))

    monkeypatch.setattr(serve, "default_listeners", listeners)


@pytest.fixture
def other_program() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        yield listening


def places(setup: BrokerSetup) -> list[str]:
    return [place for each in setup.places[1:] for place in each.values()]


def test_both_folders_are_used(broker_setup: Start, defaults: tuple[Path, Path]) -> None:
    setup = broker_setup()
    assert places(setup) == [f"ipc://{folder}/main.sock" for folder in defaults]
    assert not setup.journal.mentions("listener not opened")


def test_a_well_known_folder_that_another_program_uses_is_a_warning(
    broker_setup: Start, defaults: tuple[Path, Path], other_program: socket.socket
) -> None:
    """The broker did not start."""
    ours, taken = defaults
    other_program.bind(f"{taken}/main.sock")
    other_program.listen()
    setup = broker_setup()
    assert places(setup) == [f"ipc://{ours}/main.sock"]
    assert setup.journal.mentions(f"{taken}/main.sock is taken: another program listens there")
    other_program.accept()[0].close()  # our question whether it lives


def test_a_run_time_folder_that_does_not_exist_is_a_warning(
    broker_setup: Start, defaults: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker did not start."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no-such-folder")  # short: the path of a socket has its limit
    setup = broker_setup()
    assert places(setup) == [f"ipc://{defaults[1]}/main.sock"]
    assert setup.journal.mentions("/no-such-folder does not exist")


def test_a_run_time_folder_whose_path_is_too_long_is_a_warning(
    broker_setup: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 200)))
    assert broker_setup().journal.mentions("listener not opened")


def test_a_folder_that_fails_when_it_is_open_is_closed_again(
    broker_setup: Start, defaults: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr("dragoman.server.controller_folder.ControllerFolder.clear", fail)
    setup = broker_setup()
    assert places(setup) == []
    assert setup.journal.mentions("the disk is broken")
    assert not any((folder / "main.sock").exists() for folder in defaults)


def test_a_default_port_that_is_taken_is_an_error(broker_setup: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen_on(monkeypatch, taken.getsockname()[1])
        with pytest.raises(AddressInUse, match="is taken: another program listens there"):
            broker_setup()


def test_a_folder_that_was_asked_for_is_needed(
    broker_setup: Start, defaults: tuple[Path, Path], other_program: socket.socket
) -> None:
    other_program.bind(f"{defaults[1]}/main.sock")
    other_program.listen()
    with pytest.raises(AddressInUse):
        broker_setup("memodb+tcp://127.0.0.1:0", f"controller+unix://{defaults[1]}")


def test_the_defaults_end_with_what_is_optional() -> None:
    urls = wiring.default_listeners({"XDG_RUNTIME_DIR": "/r"})
    assert urls[-2:] == wiring.optional_listeners({"XDG_RUNTIME_DIR": "/r"})
    assert all(url.startswith("controller+") for url in urls[-2:])
    assert not any(url.startswith("controller+") for url in urls[:-2])

"""Configuration: precedence of sources, and error messages."""

from __future__ import annotations

import os
import tempfile
from dataclasses import fields
from pathlib import Path

import pytest

from dragoman.cluster.gossiped_settings import GOSSIP_EVERY
from dragoman.core.policy import Policy
from dragoman.server.cluster_member import nats_limits
from dragoman.server.config import (
    LEAST_ADOPT_AFTER,
    Config,
    ConfigError,
    SettingSource,
    changed_settings,
    default_data_dir,
    load,
    runtime_dir,
    unknown_variables,
)


def write(folder: Path, text: str) -> str:
    path = folder / "dragoman.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def sourced(entries: list[SettingSource], name: str) -> SettingSource:
    (entry,) = [each for each in entries if each.name == name]
    return entry


def test_without_anything_the_defaults_hold() -> None:
    config, entries = load({}, {}, None)
    assert config == Config()
    assert config.policy == Policy()
    assert {each.source for each in entries} == {"default"}


def test_every_key_is_listed_once_in_the_order_of_the_dataclasses() -> None:
    _, entries = load({"max_jobs": 5}, {"DRAGOMAN_DATA": "/d"}, None)
    names = [each.name for each in (*fields(Config), *fields(Policy)) if each.name != "policy"]
    assert [each.name for each in entries] == names


def test_flags_win_then_environment_then_file_then_default(tmp_path: Path) -> None:
    path = write(tmp_path, 'data = "/file"\nlog = "json"\nmax_jobs = 1\n')
    config, entries = load({"data": "/flag"}, {"DRAGOMAN_DATA": "/env", "DRAGOMAN_LOG": "human"}, path)
    assert (config.data, config.log, config.policy.max_jobs, config.loop) == ("/flag", "human", 1, "auto")
    assert sourced(entries, "data") == SettingSource("data", "/flag", "flag --data")
    assert sourced(entries, "log") == SettingSource("log", "human", "environment DRAGOMAN_LOG")
    assert sourced(entries, "max_jobs") == SettingSource("max_jobs", 1, f"file {path}")
    assert sourced(entries, "loop") == SettingSource("loop", "auto", "default")


def test_a_flag_s_source_is_written_with_dashes() -> None:
    _, entries = load({"drain_timeout": 5.0}, {}, None)
    assert sourced(entries, "drain_timeout") == SettingSource("drain_timeout", 5.0, "flag --drain-timeout")


def test_the_file_may_come_from_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, "max_connections = 7")
    config, entries = load({}, {"DRAGOMAN_CONFIG": path}, None)
    assert config.max_connections == 7
    assert sourced(entries, "max_connections").source == f"file {path}"


def test_the_flag_names_the_file_before_the_environment_does(tmp_path: Path) -> None:
    config, _ = load({}, {"DRAGOMAN_CONFIG": "/nonexistent.toml"}, write(tmp_path, "max_connections = 7"))
    assert config.max_connections == 7


@pytest.mark.parametrize(
    ("toml", "name", "value"),
    [
        ('listen = ["tcp://h:1", "http://h:2"]', "listen", ("tcp://h:1", "http://h:2")),
        ("listen = []", "listen", ()),
        ('data = "memory"', "data", "memory"),
        ('log_level = "debug"', "log_level", "debug"),
        ("drain_timeout = 5", "drain_timeout", 5.0),
        ("drain_timeout = 0.5", "drain_timeout", 0.5),
        ("strict = true", "strict", True),
        ('loop = "asyncio"', "loop", "asyncio"),
        ("max_memory = 1_000_000", "max_memory", 1_000_000),
        ('max_memory = "64MiB"', "max_memory", 64 << 20),
        ("retry_jitter = 0", "retry_jitter", 0.0),
    ],
)
def test_the_file_may_set_any_key(tmp_path: Path, toml: str, name: str, value: object) -> None:
    _, entries = load({}, {}, write(tmp_path, toml))
    read = sourced(entries, name).value
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("DRAGOMAN_LISTEN", " tcp://h:1\n http://h:2 ", "listen", ("tcp://h:1", "http://h:2")),
        ("DRAGOMAN_DATA", "memory", "data", "memory"),
        ("DRAGOMAN_DRAIN_TIMEOUT", "5", "drain_timeout", 5.0),
        ("DRAGOMAN_STRICT", "yes", "strict", True),
        ("DRAGOMAN_MAX_JOBS", "1000", "max_jobs", 1000),
        ("DRAGOMAN_MAX_MEMORY", "64MiB", "max_memory", 64 << 20),
    ],
)
def test_the_environment_may_set_any_key(variable: str, text: str, name: str, value: object) -> None:
    _, entries = load({}, {variable: text}, None)
    assert sourced(entries, name) == SettingSource(name, value, f"environment {variable}")


@pytest.mark.parametrize(
    ("flags", "name", "value", "source"),
    [
        ({"listen": ("tcp://h:1",)}, "listen", ("tcp://h:1",), "arguments"),
        ({"strict": True}, "strict", True, "flag --strict"),
        ({"strict": False}, "strict", False, "flag --strict"),
        ({"max_connections": 5}, "max_connections", 5, "flag --set max_connections"),
        ({"max_memory": "1GiB"}, "max_memory", 1 << 30, "flag --set max_memory"),
        ({"drain_timeout": 5}, "drain_timeout", 5.0, "flag --drain-timeout"),
    ],
)
def test_a_flag_comes_as_text_or_with_its_type(flags: dict[str, object], name: str, value: object, source: str) -> None:
    _, entries = load(flags, {}, None)
    assert sourced(entries, name) == SettingSource(name, value, source)


def test_flags_and_variables_that_are_empty_count_as_not_given(tmp_path: Path) -> None:
    path = write(tmp_path, 'listen = ["tcp://h:1"]\nmax_connections = 7')
    config, _ = load({"listen": (), "data": None}, {"DRAGOMAN_MAX_CONNECTIONS": "", "DRAGOMAN_CONFIG": ""}, path)
    assert (config.listen, config.max_connections, config.data) == (("tcp://h:1",), 7, "")


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("max_job = 1", "unknown key 'max_job' (did you mean 'max_jobs'?)"),
        ("drain-timeout = 1", "unknown key 'drain-timeout' (did you mean 'drain_timeout'?)"),
        ("zzz = 1", "unknown key 'zzz'; allowed are access, broker_name, cluster, cluster_adopt_after,"),
        ("[policy]\nmax_jobs = 1", "unknown key 'policy'"),
        ("config = 'x'", "unknown key 'config'"),
        ("max_jobs = '1000'", "max_jobs is '1000' but must be a whole number"),
        ("max_jobs = '1XiB'", "max_jobs is '1XiB' but must be a whole number"),
        ("max_jobs = true", "max_jobs is True but must be a whole number"),
        ("max_jobs = 1.0", "max_jobs is 1.0 but must be a whole number"),
        ("drain_timeout = '1'", "drain_timeout is '1' but must be a number"),
        ("drain_timeout = false", "drain_timeout is False but must be a number"),
        ("strict = 1", "strict is 1 but must be true or false"),
        ("data = 1", "data is 1 but must be a string"),
        ("listen = 'tcp://h:1'", "listen is 'tcp://h:1' but must be a list of strings"),
        ("listen = [1]", "listen is [1] but must be a list of strings"),
        ("log = 'jsn'", "log is 'jsn' but must be one of auto, human, json (did you mean 'json'?)"),
        ("log_level = 'loud'", "must be one of debug, info, warning, error"),
        ("loop = 'trio'", "must be one of auto, uvloop, asyncio"),
        ("max_jobs = 0", "max_jobs is 0 but must be 1 or more"),
        ("max_connections = -1", "max_connections is -1 but must be 1 or more"),
        ("max_accepts_per_second = 0", "must be 1 or more"),
        ("max_memory = 9223372036854775808", "must be 9223372036854775807 or less"),
        ("drain_timeout = -0.5", "drain_timeout is -0.5 but must be 0 or more"),
        ("drain_timeout = nan", "drain_timeout is nan but must be a finite number"),
        ("drain_timeout = inf", "must be a finite number"),
        pytest.param("outcome_retention = 1" + "0" * 400, "must be 315360000 or less", id="more than a float holds"),
        ("retry_jitter = 1.5", "must be 1 or less"),
        ("max_service_bytes = 129", "must be 128 or less"),
        ("strict = true\nmax_jobs = \n", "is not TOML: Invalid value (at line 2"),
        ("max_jobs = 1\nmax_jobs = 2\n", "is not TOML: Cannot overwrite a value (at line 2"),
    ],
)
def test_a_wrong_file_is_refused_by_name_with_what_would_be_right(tmp_path: Path, toml: str, says: str) -> None:
    path = write(tmp_path, toml)
    with pytest.raises(ConfigError) as caught:
        load({}, {}, path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"file {path}: ")


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("DRAGOMAN_MAX_JOBS", "many", "environment DRAGOMAN_MAX_JOBS: max_jobs is 'many' but must be a whole number"),
        ("DRAGOMAN_MAX_JOBS", "0", "must be 1 or more"),
        ("DRAGOMAN_STRICT", "maybe", "must be true or false"),
        ("DRAGOMAN_DRAIN_TIMEOUT", "inf", "must be a finite number"),
        ("DRAGOMAN_LOG", "loud", "must be one of auto, human, json"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(variable: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, {variable: text}, None)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DRAGOMAN_MAX_JOB", " (did you mean 'DRAGOMAN_MAX_JOBS'?)"),
        ("DRAGOMAN_CONFG", " (did you mean 'DRAGOMAN_CONFIG'?)"),
        ("DRAGOMAN_max_jobs", " (did you mean 'DRAGOMAN_MAX_JOBS'?)"),
        ("DRAGOMAN_XYZZY", "; `dragoman config` lists all settings"),
        ("DRAGOMAN_", "; `dragoman config` lists all settings"),
    ],
)
def test_an_unknown_variable_is_ignored_with_a_warning(variable: str, hint: str) -> None:
    """A DRAGOMAN_URL that was set for another program kept the broker from starting."""
    assert load({}, {variable: "x"}, None)[0] == Config()
    (warning,) = unknown_variables(
        {
            variable: "x",
            "DRAGOMAN_PURE": "1",
            "DRAGOMAN_URL": "tcp://127.0.0.1:1",
            "DRAGOMAN_MAX_JOBS": "5",
            "PATH": "/",
        }
    )
    assert warning == f"environment variable {variable!r} is not a setting and was ignored{hint}"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"max_job": 1}, "unknown setting 'max_job' (did you mean 'max_jobs'?)"),
        ({"max_jobs": 0}, "flag --set max_jobs: max_jobs is 0 but must be 1 or more"),
        ({"max_jobs": "x"}, "flag --set max_jobs: max_jobs is 'x' but must be a whole number"),
        ({"listen": (1,)}, "must be a list of strings"),
    ],
)
def test_a_wrong_flag_is_refused_by_name(flags: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags, {}, None)
    assert says in str(caught.value)


def test_what_is_wrong_is_an_error_even_where_a_stronger_source_decides() -> None:
    with pytest.raises(ConfigError, match="DRAGOMAN_MAX_JOBS"):
        load({"max_jobs": 5}, {"DRAGOMAN_MAX_JOBS": "many"}, None)


@pytest.mark.parametrize(
    "variable", ["DRAGOMAN_SERVICE_HOST", "DRAGOMAN_SERVICE_PORT_NATIVE", "DRAGOMAN_PORT", "DRAGOMAN_PORT_7400_TCP"]
)
def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_ignored(variable: str) -> None:
    config, _ = load({}, {variable: "tcp://10.0.0.1:7400"}, None)
    assert config == Config()
    assert unknown_variables({variable: "tcp://10.0.0.1:7400"}) == []


def test_other_programs_variables_are_ignored() -> None:
    config, _ = load({}, {"PATH": "/bin", "DRAGOMANIA": "x"}, None)
    assert config == Config()


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load({}, {}, str(tmp_path / "absent.toml"))


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load({}, {}, str(tmp_path))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'data = "\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load({}, {}, str(path))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/x"}, "/state/dragoman"),
        ({"HOME": "/home/x"}, "/home/x/.local/state/dragoman"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/x"}, "/home/x/.local/state/dragoman"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/x"}, "/home/x/.local/state/dragoman"),
        ({}, str(Path.home() / ".local/state/dragoman")),
    ],
)
def test_the_store_lives_in_the_state_home(environment: dict[str, str], expected: str) -> None:
    assert default_data_dir(environment) == Path(expected)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/1", "TMPDIR": "/t"}, "/run/user/1/dragoman"),
        ({"XDG_RUNTIME_DIR": "relative", "TMPDIR": "/t"}, f"/t/dragoman-{os.getuid()}"),
        ({}, f"{tempfile.gettempdir()}/dragoman-{os.getuid()}"),
    ],
)
def test_sockets_live_in_the_run_time_folder(environment: dict[str, str], expected: str) -> None:
    assert runtime_dir(environment) == Path(expected)


def test_changed_settings_are_those_that_are_not_default() -> None:
    """Listeners are left out: they have a list of their own."""
    config, _ = load({"listen": ("tcp://127.0.0.1:0",), "max_jobs": 7, "strict": True}, {}, None)
    assert changed_settings(config) == {"strict": True, "max_jobs": 7}
    assert changed_settings(Config()) == {}


def test_a_silent_nats_server_is_noticed_before_others_take_its_brokers_for_gone() -> None:
    """R247: also if the next one that is dialled is silent. With a shorter time that cannot be: it is refused."""
    for adopt_after in (LEAST_ADOPT_AFTER, 4.0, 10.0, 60.0):
        limits = nats_limits(adopt_after)
        assert GOSSIP_EVERY + limits.carrier_timeout + limits.handshake_timeout < adopt_after
        assert 3.0 * limits.carrier_ping < limits.carrier_timeout  # one that is late is no silence
    assert (nats_limits(10.0).carrier_ping, nats_limits(10.0).carrier_timeout) == (1.0, 3.5)
    with pytest.raises(ConfigError, match=r"cluster_adopt_after is '2\.9' but must be 3\.0 or more"):
        load({"cluster_adopt_after": "2.9"}, {}, None)

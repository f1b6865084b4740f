"""Configuration: reads flags, environment and one TOML file into one `Config`.

`--set max_jobs=1000`, `DRAGOMAN_MAX_JOBS=1000` and `max_jobs = 1000` are the same setting. Flags win, then the
environment, then the file, then the default. The fields of `Policy` are flat keys like all others.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from dragoman.core.policy import Policy
from dragoman.sdk.address import check_range, nearest, read_value

PREFIX = "DRAGOMAN_"
PATH_VARIABLE = "DRAGOMAN_CONFIG"

# Documented variables with this prefix that are not settings; DRAGOMAN_PURE is read during installation.
OTHER_VARIABLES = frozenset(
    {
        PATH_VARIABLE,
        "DRAGOMAN_PURE",
        "DRAGOMAN_URL",
        "DRAGOMAN_KEY",
        "DRAGOMAN_SERVER_KEY",
        "DRAGOMAN_TOKEN",
        "DRAGOMAN_TOKEN_FILE",
    }
)

# Kubernetes sets such variables in every pod for a service named "dragoman".
_KUBERNETES_VARIABLE = re.compile(r"DRAGOMAN_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_.*)?)")


OWN_FLAGS = (
    "data",
    "log",
    "log_level",
    "drain_timeout",
    "strict",
    "loop",
    "ladders",
    "cluster",
    "cluster_name",
    "cluster_credentials",
    "broker_name",
)


class ConfigError(ValueError):
    """An invalid setting. The message names the flag, variable or file and the allowed values."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of `dragoman serve`."""

    # Addresses to listen on; empty: the defaults on loopback.
    listen: tuple[str, ...] = ()
    # The data folder, or `memory`; empty: `default_data_dir`.
    data: str = ""
    # The access folder; empty: `access` beside the configuration file or in the data folder (`access/location.py`).
    access: str = ""
    log: str = "auto"
    log_level: str = "info"
    drain_timeout: float = 30.0
    # Check all invariants of the core after every call, in production too.
    strict: bool = False
    loop: str = "auto"
    # Record the messages of some jobs.
    ladders: bool = True
    # Address of the NATS servers of a cluster; empty: this broker is in no cluster.
    cluster: str = ""
    cluster_name: str = "dragoman"
    # File with the credentials for NATS: a token, user:password, an nkey seed, or NATS credentials.
    cluster_credentials: str = ""
    # Name of this broker in its cluster; empty: the name of the machine.
    broker_name: str = ""
    # Seconds without a word from a broker of the cluster after which others take over its background jobs.
    cluster_adopt_after: float = 10.0
    max_connections: int = 20_000
    max_connections_per_remote_address: int = 256
    max_connections_per_local_address: int = 10_000
    # R23: new connections a second.
    max_accepts_per_second: int = 2_000
    # R168: handshakes with CURVE, TLS or a token, a second; and connections that have not finished theirs.
    max_handshakes: int = 200
    max_unauthenticated: int = 256
    # L21: largest size of the store's file.
    max_store_size: int = 10 << 30
    policy: Policy = dataclasses.field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class SettingSource:
    """One value and its source: `flag --data`, `environment DRAGOMAN_DATA`, `file /x/y.toml` or `default`."""

    name: str
    value: object
    source: str


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], path: str | None
) -> tuple[Config, list[SettingSource]]:
    """Read all sources. The list has one entry per key, in the order of `Config` and then `Policy`.

    A flag that is None or an empty tuple and an empty variable count as not set. `path` is `--config`; without it
    DRAGOMAN_CONFIG may name the file. An invalid value is an error even if another source overrides it.
    """
    chosen = {name: SettingSource(name, default, "default") for name, default in _DEFAULTS.items()}
    chosen |= _read_file(path or environment.get(PATH_VARIABLE))
    chosen |= _read_environment(environment)
    chosen |= _read_flags(flags)
    return _make_config({name: each.value for name, each in chosen.items()}), list(chosen.values())


def _make_config(values: Mapping[str, Any]) -> Config:
    policy = {each.name: values[each.name] for each in dataclasses.fields(Policy)}
    others = {name: value for name, value in values.items() if name not in policy}
    return Config(**others, policy=Policy(**policy))


def _read_flags(flags: Mapping[str, object]) -> dict[str, SettingSource]:
    found = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        _check_known(name, "setting")
        read = _from_text if isinstance(value, str) else _from_toml
        found[name] = _read(read, name, value, _flag(name))
    return found


def _read_environment(environment: Mapping[str, str]) -> dict[str, SettingSource]:
    found = {}
    for variable, text in environment.items():
        name = _VARIABLES.get(variable)
        if name is not None and text:
            found[name] = _read(_from_text, name, text, f"environment {variable}")
    return found


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable with the prefix that is not a setting. Not an error: other programs may use
    the prefix."""
    known = [each.removeprefix(PREFIX) for each in (*_VARIABLES, *OTHER_VARIABLES)]
    found = []
    for variable in environment:
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or _KUBERNETES_VARIABLE.fullmatch(variable):
            continue
        near = get_close_matches(name.upper(), known, 1)
        hint = f" (did you mean '{PREFIX}{near[0]}'?)" if near else "; `dragoman config` lists all settings"
        found.append(f"environment variable {variable!r} is not a setting and was ignored{hint}")
    return found


def _read_file(path: str | None) -> dict[str, SettingSource]:
    found = {}
    for name, value in _parse_toml(path).items() if path else ():
        _check_known(name, "key", f"file {path}: ")
        found[name] = _read(_from_toml, name, value, f"file {path}")
    return found


def _parse_toml(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"file {path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"file {path}: is not UTF-8: {error}") from error
    except ValueError as error:  # TOMLDecodeError, which names the line; or a path with a NUL
        raise ConfigError(f"file {path}: is not TOML: {error}") from error


def _check_known(name: str, kind: str, source: str = "") -> None:
    if name not in _DEFAULTS:
        hint = (
            nearest(name, _DEFAULTS) or f"; allowed are {', '.join(sorted(_DEFAULTS))} (`dragoman config` shows them)"
        )
        raise ConfigError(f"{source}unknown {kind} {name!r}{hint}")


def _read(read: Callable[[str, Any], object], name: str, raw: object, source: str) -> SettingSource:
    try:
        value = read(name, raw)
        _check(name, value)
    except ValueError as error:
        raise ConfigError(f"{source}: {name} is {raw!r} but {error}") from None
    if _KINDS[name] is float and isinstance(value, int):
        value = float(value)  # not before the check: an int that is out of range may not fit into a float
    return SettingSource(name, value, source)


def _from_text(name: str, text: str) -> object:
    """Parse a value from the environment or the command line."""
    kind = _KINDS[name]
    return tuple(text.split()) if kind is tuple else read_value(kind, text)


def _from_toml(name: str, value: object) -> object:
    """Check the type of a TOML value."""
    kind = _KINDS[name]
    if kind is tuple:
        return _strings(value)
    if kind is int and isinstance(value, str) and value.endswith("iB"):
        return read_value(int, value)  # TOML has no sizes: they are strings such as "64MiB"
    # Exact comparison: in Python a bool is an int.
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"must be {_KIND_NAMES[kind]}")


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ValueError(f"must be {_KIND_NAMES[tuple]}")


def _check(name: str, value: object) -> None:
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"must be one of {', '.join(_CHOICES[name])}{nearest(str(value), _CHOICES[name])}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    check_range(value, *_RANGES.get(name, _DEFAULT_RANGES.get(_KINDS[name], (None, None))))


def _known_defaults() -> dict[str, object]:
    config = Config()
    own = {each.name: getattr(config, each.name) for each in dataclasses.fields(config) if each.name != "policy"}
    return own | {each.name: getattr(config.policy, each.name) for each in dataclasses.fields(config.policy)}


def _known_kinds() -> dict[str, type]:
    hints = get_type_hints(Config) | get_type_hints(Policy)
    return {name: get_origin(hints[name]) or hints[name] for name in _DEFAULTS}


_DEFAULTS = _known_defaults()
_KINDS = _known_kinds()
_VARIABLES = {PREFIX + name.upper(): name for name in _DEFAULTS}

_KIND_NAMES: Mapping[type, str] = {
    tuple: "a list of strings",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "log": ("auto", "human", "json"),
    "log_level": ("debug", "info", "warning", "error"),
    "loop": ("auto", "uvloop", "asyncio"),
}

LEAST_ADOPT_AFTER = 3.0  # with less, a NATS server that is frozen is noticed too late (cluster_member.py:nats_limits)

# Smallest and largest value. Periods end at ten years, so that no sum of times overflows a timer.
_DEFAULT_RANGES: Mapping[type, tuple[float, float]] = {int: (1, 2**63 - 1), float: (0, 10 * 365 * 86_400)}
_RANGES: Mapping[str, tuple[float, float]] = {
    "cluster_adopt_after": (LEAST_ADOPT_AFTER, 10 * 365 * 86_400),
    "max_service_bytes": (1, 128),  # limit of every dialect
    "undelivered_delay": (0.001, 3_600),  # without a delay, a job that no worker takes would loop
    "retry_jitter": (0, 1),  # fraction of the delay
    "max_outcome_bytes": (0, 2**63 - 1),  # 0 keeps none
    "max_kept_forever": (0, 2**63 - 1),  # 0 keeps none
    "max_bytes_per_service": (0, 2**63 - 1),  # 0: no limit of its own
    "max_bytes_per_caller": (0, 2**63 - 1),  # 0: no limit of its own
}


@dataclass(frozen=True, slots=True)
class SettingRange:
    """The values that a setting may have: one of `choices`, or a `kind` from `least` to `most` if these are given."""

    kind: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


def setting_range(name: str) -> SettingRange:
    """The range of one setting, for the reference page. Raises KeyError for an unknown name."""
    kind = _KINDS[name]
    least, most = _RANGES.get(name, _DEFAULT_RANGES.get(kind, (None, None)))
    return SettingRange(_KIND_NAMES[kind], _CHOICES.get(name, ()), least, most)


def changed_settings(config: Config) -> dict[str, object]:
    """Return the settings that differ from their defaults, without the listeners."""
    values = {name: getattr(config.policy if hasattr(config.policy, name) else config, name) for name in _DEFAULTS}
    return {name: each for name, each in values.items() if each != _DEFAULTS[name] and name != "listen"}


def _flag(name: str) -> str:
    """Return the setting as it is written on the command line."""
    if name == "listen":
        return "arguments"
    return f"flag --{name.replace('_', '-')}" if name in OWN_FLAGS else f"flag --set {name}"


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """Return the default data folder: `$XDG_STATE_HOME/dragoman`, else `~/.local/state/dragoman`."""
    state = _absolute(environment.get("XDG_STATE_HOME"))
    home = _absolute(environment.get("HOME")) or Path.home()
    return (state or home / ".local" / "state") / "dragoman"


def runtime_dir(environment: Mapping[str, str]) -> Path:
    """Return the folder for sockets: `$XDG_RUNTIME_DIR/dragoman`, else `dragoman-UID` in the temporary directory.

    The caller that creates the latter must check that it is owned by this user, with mode 0700: any user can create it.
    """
    runtime = _absolute(environment.get("XDG_RUNTIME_DIR"))
    if runtime is not None:
        return runtime / "dragoman"
    return (_absolute(environment.get("TMPDIR")) or _temporary_dir()) / f"dragoman-{os.getuid()}"


def _absolute(text: str | None) -> Path | None:
    """Return an absolute path or None. XDG Base Directory: a relative path in a variable must be ignored."""
    return Path(text) if text and os.path.isabs(text) else None


def _temporary_dir() -> Path:
    from tempfile import gettempdir  # here because it brings a dozen modules that are seldom needed

    return Path(gettempdir())

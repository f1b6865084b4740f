"""`dragoman access`, `dragoman keys` and `dragoman token`, without processes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import Result

from case_tables import check_every_row
from command_runner import command_runner
from dragoman.access.folder import load_folder
from dragoman.access.location import AccessPlaces, open_table
from dragoman.cli import dragoman

UID = os.getuid()
RELOAD = "No broker runs with the data folder "
HEX = "3f" * 32
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBRDCB96ADAgECAhR7YgTj9jGYQKxgkXT67DTH4FoHczAFBgMrZXAwGDEWMBQG
A1UEAwwNYS5leGFtcGxlLm9yZzAeFw0yNjExMTYxMTUyMTBaFw0yNjExMTgxMTUy
MTBaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5vcmcwKjAFBgMrZXADIQA7n/n7hGx/
/4YjP0wEQLe6NFB4BkKkJe8WXexCaT85EqNTMFEwHQYDVR0OBBYEFMKgky+UxWG0
TmJZH82B3UsynhNHMB8GA1UdIwQYMBaAFMKgky+UxWG0TmJZH82B3UsynhNHMA8G
A1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EAbptEgz61U+Zf7dheoNa7VAE9r8Vc08ku
InBdJENydXY7YVl8BA5gyqNa84QIXpxXVUUY4dpHiRYA368s0fGPAQ==
-----END CERTIFICATE-----
"""
CERTIFICATE_HASH = "15d584e70c3f9e42d7fe0362f96bb078ad2509bf84615d1f4f1ea2d41e9922cd"


class Commands:
    """Runs commands in an environment of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "state" / "dragoman"
        self.access = self.data / "access"
        self.environment: dict[str, str | None] = {name: None for name in os.environ if name.startswith("DRAGOMAN_")}
        self.environment |= {"HOME": str(root), "XDG_STATE_HOME": str(root / "state"), "XDG_CONFIG_HOME": None}

    def run(self, line: str, *words: str, code: int = 0) -> Result:
        done = command_runner().invoke(dragoman, [*line.split(), *words], env=self.environment)
        assert done.exit_code == code, (line, done.output, done.exception)
        return done


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_keys_are_made_admitted_and_revoked(commands: Commands) -> None:
    made = commands.run("keys new gpu-1")
    key = made.stdout.strip()
    path = commands.root / ".config" / "dragoman" / "keys" / "gpu-1.key_secret"
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert made.stderr == (
        f"the secret key is in {path}; no other machine needs it\n"
        f"Next, on the broker's machine: dragoman keys allow gpu-1 {key} --work SERVICE (or --call SERVICE)\n"
    )
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o600, 0o700]
    allowed = commands.run(f"keys allow gpu-1 {key} --work resize")
    assert allowed.stderr.splitlines() == [
        "gpu-1 may work resize",
        f"written to {commands.access / 'gpu-1.toml'}",
        f"{commands.access} is new: a broker that reads it admits its own user, root, and the principals there",
        f"{RELOAD}{commands.data}; the next one reads the change at its start",
        "A peer that was refused before must be started again: libzmq does not reconnect after a refusal",
    ]
    head = "# Principal gpu-1, created by `dragoman keys allow`. Edits by hand are kept.\n"
    assert (commands.access / "gpu-1.toml").read_text() == f'{head}curve = ["{key}"]\nwork = ["resize"]\n'
    entry = load_folder(commands.access, UID).by_curve(bytes.fromhex(key), 0.0)
    assert entry is not None
    commands.run(f"keys allow gpu-1 {HEX}")
    listed = [json.loads(line) for line in commands.run("keys list --json").stdout.splitlines()]
    file = str(commands.access / "gpu-1.toml")
    assert listed == [
        {"name": "gpu-1", "key": key, "use": "admitted", "file": file},
        {"name": "gpu-1", "key": HEX, "use": "admitted", "file": file},
        {"name": "gpu-1", "key": key, "use": "user", "file": str(path)},
    ]
    revoked = commands.run(f"keys revoke gpu-1 {key}")
    assert revoked.stderr.startswith(f"curve {key[:8]} is removed from {file}\n{RELOAD}")
    last = commands.run(f"keys revoke gpu-1 {HEX.upper()}")
    assert "gpu-1 has no identity left; to remove it: dragoman access remove gpu-1\n" in last.stderr
    assert load_folder(commands.access, UID).entries["gpu-1"].identities == ()


def test_the_key_of_the_broker_is_rotated(commands: Commands) -> None:
    first = commands.run("keys new --broker")
    key = first.stdout.strip()
    folder = commands.data / "keys"
    assert first.stderr.endswith(f"Next, in the URL of each client and worker: server_key={key}\n")
    again = commands.run("keys new --broker", code=73)
    assert "exists, and is never overwritten; add --rotate to replace it" in again.stderr
    second = commands.run("keys new --broker --rotate")
    assert f"the present key is now {folder / 'broker-old.key_secret'}" in second.stderr
    listed = [json.loads(line) for line in commands.run("keys list --json").stdout.splitlines()]
    assert [(each["name"], each["key"]) for each in listed] == [
        ("broker", second.stdout.strip()),
        ("broker-old", key),
    ]
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}


def test_token_is_printed_once_and_only_to_standard_output(commands: Commands) -> None:
    made = commands.run("token new web --call mail.*")
    token = made.stdout.removesuffix("\n")
    assert re.fullmatch(r"dgm_[A-Za-z0-9_-]{43}", token)
    table = load_folder(commands.access, UID)
    entry = table.by_token(token, 0.0)
    assert entry is table.entries["web"]
    assert entry.rights.call == ("mail.*",)
    digits = entry.identities[0].label
    assert made.stderr.endswith(f"The token {digits} follows. It is not shown again:\n")
    assert RELOAD in made.stderr
    second = commands.run("token new web").stdout.strip()
    assert second != token
    outputs = [made.stderr]
    outputs += [
        commands.run(each).output for each in ("token list", "token list --json", "access show", "access check")
    ]
    outputs += [path.read_text() for path in commands.root.rglob("*") if path.is_file()]
    assert [each for each in outputs if token in each or second in each or token[4:] in each] == []
    listed = [json.loads(line) for line in commands.run("token list --json").stdout.splitlines()]
    assert [(each["principal"], each["expires"]) for each in listed] == [("web", None)] * 2
    assert listed[0]["token"] == digits
    revoked = commands.run(f"token revoke web {digits}")
    assert revoked.stderr.startswith(f"token {digits} is removed from ")
    assert load_folder(commands.access, UID).by_token(token, 0.0) is None
    assert load_folder(commands.access, UID).by_token(second, 0.0) is not None


def test_principals_are_allowed_shown_and_removed(commands: Commands) -> None:
    commands.run("access allow www --uid 33 --uid 34 --gid 7 --tls-name a.example.org --call *")
    commands.run("access allow www --see a* --administer b")
    commands.run("access allow anyone --call public")
    (view,) = [json.loads(line) for line in commands.run("access show www --json").stdout.splitlines()]
    assert view["identities"] == {"tls_name": ["a.example.org"], "uid": [33, 34], "gid": [7]}
    assert view["rights"] == {"call": ["*"], "work": [], "see": ["a*"], "administer": ["b"]}
    assert view["limits"]["max_waiting"] == 200_000
    assert (view["expires"], view["expired"]) == (None, False)
    shown = commands.run("access show").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["PRINCIPAL", "anyone", "www", "local"]
    www = [
        "www",
        "*",
        "-",
        "a*",
        "b",
        "tls_name a.example.org, uid 33, uid 34, gid 7",
        "tcp://127.0.0.1:7400, pingpong+tcp://127.0.0.1:7401 and 4 more",
        str(commands.access / "www.toml"),
    ]
    assert re.split(r"  +", shown[2]) == www
    assert re.split(r"  +", shown[1])[5] == "every peer without an identity"
    assert commands.run("access check").stdout == f"in order: 2 principals in {commands.access}\n"
    removed = commands.run("access remove www")
    assert "www.toml is removed: www has no access any more. Its jobs that wait or run are kept\n" in removed.stderr
    assert RELOAD in removed.stderr
    assert os.listdir(commands.access) == ["anyone.toml"]


def test_certificate_is_admitted_by_its_key(commands: Commands) -> None:
    path = commands.root / "ops.pem"
    path.write_text(CERTIFICATE)
    commands.run("access allow ops --see * --tls-cert", str(path))
    entry = load_folder(commands.access, UID).by_tls_key(bytes.fromhex(CERTIFICATE_HASH), 0.0)
    assert entry is not None
    path.write_text("nonsense")
    failed = commands.run("access allow ops --tls-cert", str(path), code=2)
    assert f"--tls-cert {path}: is not one certificate in PEM" in failed.stderr
    missing = commands.run("access allow ops --tls-cert /missing.pem", code=2)
    assert "--tls-cert /missing.pem: cannot be read: No such file or directory" in missing.stderr


def test_may_gives_its_reason(commands: Commands) -> None:
    nothing = commands.run("access may web call a", code=1)
    assert nothing.stdout == "no: there is no principal 'web'\n"
    assert commands.run("access may anyone call a").stdout == "yes: anyone is built in and has all rights\n"
    commands.run("access allow gpu-1 --uid 5 --work resize")
    (commands.access / "old.toml").write_text('call = ["*"]\nexpires = 2001-01-01\n')
    file = commands.access / "gpu-1.toml"
    assert commands.run("access may gpu-1 work resize").stdout == f"yes, by {file}\n"
    assert commands.run("access may gpu-1 call", "a b", code=1).stdout == (
        f"no: call in {file} has no pattern for 'a b'; give it: dragoman access allow gpu-1 --call 'a b'\n"
    )
    assert commands.run("access may old call a", code=1).stdout == f"no: {commands.access / 'old.toml'} has expired\n"
    assert commands.run("access may local administer a").stdout == "yes: local is built in and has all rights\n"
    assert commands.run("access may anyone call a", code=1).stdout == "no: there is no principal 'anyone'\n"
    assert "(expired)" in commands.run("access show old").stdout
    assert commands.run("access check").stderr.splitlines() == [
        f"{commands.access / 'old.toml'}: has no identity, so that no peer is this principal",
        f"{commands.access / 'old.toml'}: has expired",
    ]


REFUSED = [
    ("access allow web", 2, "give at least one identity or right, such as --uid 33 --call 'mail.*'"),
    ("access allow Web --uid 1", 2, "'Web' is not the name of a principal"),
    ("access allow ../web --uid 1", 2, "is not the name of a principal"),
    ("access allow local --call *", 2, "'local' is built in"),
    ("access allow web --uid 65534", 2, "--uid has the entry 65534, which the kernel reports"),
    ("access allow web --uid www-data", 2, "'www-data' is not a valid integer"),
    ("access allow web --tls-name *.org", 2, "--tls-name has the entry '*.org'"),
    ("access allow web --call a*b", 2, "pattern 'a*b' has a '*' before its last character"),
    ("access may web sing a", 2, "'sing' is not one of 'call', 'work', 'see', 'administer'"),
    ("access remove web", 2, "there is no access folder; `dragoman access allow` creates"),
    ("access show web", 1, "there is no principal 'web'"),
    ("access show --access /missing", 2, "/missing: does not exist, and the setting access names it"),
    ("access check --config /missing", 2, "file /missing: cannot be read"),
    ("keys new", 2, "give either the NAME of a key or --broker"),
    ("keys new a --broker", 2, "give either the NAME of a key or --broker"),
    ("keys new a --rotate", 2, "--rotate is for the key of the broker"),
    ("keys new ../a", 2, "is not the name of a principal"),
    ("keys new --broker --data memory", 2, "a broker without a data folder has no place for its key"),
    ("keys new --broker --rotate", 2, "does not exist, so there is no key to rotate; leave --rotate out"),
    ("keys allow web 1234", 2, "KEY is not a public key; write 64 hex digits"),
    (f"keys revoke web {HEX}", 2, "there is no access folder"),
    (
        "token new web --data memory",
        2,
        "there is neither a configuration file nor a data folder; name it with --access",
    ),
    ("token new Web", 2, "is not the name of a principal"),
    ("token revoke web dgm_0123456789", 2, "TOKEN must not be the token itself"),
    ("token revoke web 1234", 2, "TOKEN has 4 characters; write at least 8 hex digits"),
    ("token revoke web 12345678", 2, "there is no access folder"),
]


def test_refused_commands_name_the_correction_and_write_nothing(tmp_path: Path) -> None:
    def check(line: str, code: int, problem: str) -> None:
        commands = Commands(tmp_path / str(len(os.listdir(tmp_path))))
        commands.root.mkdir()
        assert problem in commands.run(line, code=code).stderr
        assert [path for path in commands.root.rglob("*") if path.is_file() or path.name == "access"] == []

    check_every_row(check, REFUSED)


def test_refused_changes_of_a_principal_leave_it_as_it_was(commands: Commands) -> None:
    commands.run(f"keys allow web {HEX} --call a")
    commands.run("token new web")
    before = (commands.access / "web.toml").read_bytes()

    def check(line: str, code: int, problem: str) -> None:
        assert problem in commands.run(line, code=code).stderr

    rows = [
        (f"keys allow other {HEX}", 2, "an identity belongs to one principal"),
        ("keys revoke web " + "11" * 32, 1, "does not have the key 11111111…; `dragoman keys list` lists all"),
        (f"keys revoke other {HEX}", 1, "there is no principal 'other'"),
        ("token revoke web 00000000", 1, "has no token 00000000…; `dragoman token list` lists all"),
        ("token revoke other 00000000", 1, "there is no principal 'other'"),
        ("access remove other", 1, "there is no principal 'other'"),
        ("access allow web --work **", 2, "has a '*' before its last character"),
    ]
    check_every_row(check, rows)
    assert os.listdir(commands.access) == ["web.toml"]
    assert (commands.access / "web.toml").read_bytes() == before


def test_folder_is_that_of_the_settings(commands: Commands) -> None:
    config = commands.root / "etc" / "dragoman.toml"
    config.parent.mkdir()
    config.write_text("")
    commands.run("access allow a --uid 1 --config", str(config))
    assert os.listdir(config.parent / "access") == ["a.toml"]
    named = commands.root / "named"
    config.write_text(f'access = "{named}"\n')
    commands.environment["DRAGOMAN_CONFIG"] = str(config)
    commands.run("access allow b --uid 1")
    assert os.listdir(named) == ["b.toml"]
    commands.run("access allow c --uid 2 --access", str(commands.root / "flag"))
    commands.environment["DRAGOMAN_ACCESS"] = str(commands.root / "flag")
    assert commands.run("access check").stdout == f"in order: 1 principal in {commands.root / 'flag'}\n"


def test_every_problem_is_on_a_line(commands: Commands) -> None:
    commands.run("access allow web --uid 1")
    (commands.access / "x.toml").write_text("cal = []\nuid = 1\n")
    for line in ("access check", "access show", "keys list", "token list", "access may web call a", "token new y"):
        found = commands.run(line, code=2)
        assert found.stdout == ""
        assert found.stderr.splitlines() == [
            f"dragoman: {commands.access / 'x.toml'}, line 1: cal is not a key; did you mean 'call'?",
            f"dragoman: {commands.access / 'x.toml'}, line 2: uid must be a list; write uid = [ … ], with brackets",
        ]
    commands.run("access remove x")
    commands.run("access check")


def test_vanished_table_is_a_problem_for_commands(commands: Commands) -> None:
    commands.run("access allow web --uid 1")
    open_table(AccessPlaces("", None, commands.data), UID)  # as a broker does
    commands.run("access remove web")
    assert commands.run("access check").stdout.startswith("in order: 0 principals")
    commands.access.rmdir()
    for line in ("access check", "access show", "access may anyone call a", "token list", "access remove web"):
        assert f"{commands.access}: is missing: the last broker" in commands.run(line, code=2).stderr


def test_full_disk_names_the_file(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.run("access allow web --uid 1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = commands.access / "web.toml"
    assert commands.run("access allow web --uid 2", code=74).stderr == f"dragoman: {path}: No space left on device\n"


def test_settings_are_printed_without_secrets(commands: Commands) -> None:
    """A token in an address is a mistake, which `serve` rejects; it is not repeated."""
    for words in (["--json"], []):
        done = commands.run("config", "http://127.0.0.1:1?token=dgm_0123456789", "http://a:b@127.0.0.1:2", *words)
        assert "dgm_" not in done.stdout
        assert "a:b" not in done.stdout
        assert "http://127.0.0.1:1?token=secret" in done.stdout

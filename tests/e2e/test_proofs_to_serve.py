"""Clients and workers that prove who they are to `dragoman serve`: keys, tokens, revocation, and secrets that stay."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from authority import Authority
from case_tables import check_every_row
from programs import DRAGOMAN, Program, Programs

ENDPOINT = r"://127\.0\.0\.1:(\d+) +"


@dataclass
class Home:
    """The user of a broker and its clients: the access folder, keys and tokens."""

    programs: Programs
    secrets: list[str] = field(default_factory=list)

    def run(self, *words: object, ends: int = 0, **environment: str) -> Program:
        done = self.programs.dragoman(*words, **self.environment, **environment)
        assert done.ends() == ends, done.err
        return done

    def start(self, *words: object, **environment: str) -> Program:
        return self.programs.dragoman(*words, **self.environment, **environment)

    @property
    def environment(self) -> dict[str, str]:
        return {"XDG_CONFIG_HOME": str(self.programs.folder / "config")}

    @property
    def data(self) -> tuple[str, str]:
        return "--data", str(self.programs.folder / "data")

    def new_key(self, name: str) -> str:
        """Make a key of this user. Returns its public key."""
        public = self.run("keys", "new", name).out.strip()
        path = self.programs.folder / "config" / "dragoman" / "keys" / f"{name}.key_secret"
        self.secrets.append(path.read_text().split("secret-key")[1].split('"')[1])
        return public

    def new_token(self, name: str, *rights: str) -> str:
        token = self.run("token", "new", name, *rights, *self.data).out.strip()
        self.secrets.append(token)
        return token

    def serve(self, *urls: str) -> Program:
        return self.programs.start(DRAGOMAN, "serve", *urls, *self.data, "--strict")


@pytest.fixture
def home(programs: Programs) -> Home:
    (programs.folder / "data").mkdir(mode=0o700)
    return Home(programs)


def test_key_is_made_allowed_used_and_revoked(home: Home, handlers: Path) -> None:
    server_key = home.run("keys", "new", "--broker", *home.data).out.strip()
    public, unknown = home.new_key("gpu-1"), home.new_key("stranger")
    home.run("keys", "allow", "gpu-1", public, "--work", "*", "--call", "*", *home.data)
    broker = home.serve("tcp://127.0.0.1:0?auth=curve", "pingpong+tcp://127.0.0.1:0?frontend=0&auth=curve")
    native = f"tcp://127.0.0.1:{broker.prints('native +tcp' + ENDPOINT + 'both')}"
    frontend = f"pingpong+tcp://127.0.0.1:{broker.prints('tcp' + ENDPOINT + 'callers')}"
    mine = f"?server_key={server_key}&key=gpu-1"
    worker = home.start("worker", "handlers:upper", "--connect", native + mine)
    broker.prints("worker joined")
    assert home.run("call", "default", "hello", "--connect", native + mine).out == "HELLO"
    of_environment = {"DRAGOMAN_KEY": "gpu-1", "DRAGOMAN_SERVER_KEY": server_key, "DRAGOMAN_URL": native}
    assert home.run("call", "default", "again", **of_environment).out == "AGAIN"
    assert home.run("call", "default", "other", "--connect", frontend + mine).out == "OTHER"
    rows = (
        ("?key=stranger&server_key=" + server_key, f"run `dragoman keys allow stranger {unknown} --work SERVICE`"),
        (f"?key=gpu-1&server_key={public}", "server_key= in the URL is not the public key of the broker"),
        ("", "requires a key (CURVE): set key and server_key"),
    )

    def check(options: str, problem: str) -> None:
        for address in (native, frontend):
            assert problem in home.run("call", "default", "x", "--connect", address + options, ends=3).err
        assert problem in home.run("worker", "--exec", "cat", "--connect", native + options, ends=3).err

    check_every_row(check, rows)
    home.run("keys", "allow", "stranger", unknown, "--call", "default", *home.data)
    broker.signal(signal.SIGHUP)
    broker.prints("access reloaded")
    options = f"?server_key={server_key}&key=stranger"
    assert home.run("call", "default", "hello", "--connect", native + options).out == "HELLO"
    home.run("keys", "revoke", "gpu-1", public, *home.data)
    broker.signal(signal.SIGHUP)
    assert worker.ends() == 3
    assert "the broker at" in worker.err
    assert "does not know this key (key= in the URL)" in worker.err
    no_secret_in(home)


def test_rotated_key_of_the_broker_is_accepted_under_both(home: Home) -> None:
    old = home.run("keys", "new", "--broker", *home.data).out.strip()
    home.run("keys", "allow", "web", home.new_key("web"), "--see", "*", *home.data)
    new = home.run("keys", "new", "--broker", "--rotate", *home.data).out.strip()
    broker = home.serve("tcp://127.0.0.1:0?auth=curve")
    address = f"tcp://127.0.0.1:{broker.prints('native +tcp' + ENDPOINT + 'both')}"
    for server_key in (old, new):
        home.run("services", "--connect", f"{address}?server_key={server_key}&key=web")


def test_token_is_used_and_revoked_over_http_and_inside_tls(
    home: Home, authority: Authority, handlers: Path, tmp_path: Path
) -> None:
    token = home.new_token("web", "--work", "*", "--call", "*")
    broker = home.serve(
        f"tls://127.0.0.1:0?{authority.issue().options}&auth=token",
        "http://127.0.0.1:0?auth=token",
        "tcp://127.0.0.1:0",
    )
    tls = f"tls://localhost:{broker.prints('native +tls' + ENDPOINT + 'both')}?ca={authority.cert}"
    http = f"http://127.0.0.1:{broker.prints('http +http' + ENDPOINT + 'both')}"
    plain = f"tcp://127.0.0.1:{broker.prints('native +tcp' + ENDPOINT + 'both')}"
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(token)
    workers = [
        home.start("worker", "handlers:upper", "--connect", tls, DRAGOMAN_TOKEN=token),
        home.start("worker", "handlers:upper", "--connect", f"{http}?token_file={file}"),
    ]
    broker.prints("worker joined", times=2)
    for address in (tls, http, plain):  # the token is not sent to the plain one, which requires none
        assert home.run("call", "default", "hello", "--connect", address, DRAGOMAN_TOKEN=token).out == "HELLO"
    for address in (tls, http):
        refused = home.run("call", "default", "x", "--connect", address, ends=3)
        assert "requires a token: set token_file" in refused.err
        refused = home.run("call", "default", "x", "--connect", address, ends=3, DRAGOMAN_TOKEN="dgm_unknown")
        assert "does not accept this token (DRAGOMAN_TOKEN)" in refused.err
        assert "dgm_unknown" not in refused.err
    home.run("token", "revoke", "web", sha256(token.encode()).hexdigest()[:8], *home.data)
    broker.signal(signal.SIGHUP)
    for worker in workers:
        assert worker.ends() == 3, worker.err
        assert "does not accept this token" in worker.err
    no_secret_in(home)


def no_secret_in(home: Home) -> None:
    """Check the output of all programs but those that made the secrets, and the command lines of running ones."""
    for program in home.programs.started:
        if program.words[1:3] in (["token", "new"], ["keys", "new"]):
            continue
        texts = [program.out, program.err, " ".join(program.words)]
        command_line = Path(f"/proc/{program.pid}/cmdline")
        if command_line.exists():
            texts.append(command_line.read_text("utf-8", "replace"))
        for secret in home.secrets:
            assert all(secret not in text for text in texts), program.words

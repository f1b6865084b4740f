"""Commands of the access folder as processes: exit codes, and the streams on which secrets are."""

from __future__ import annotations

from pathlib import Path

from programs import Programs


def test_commands_of_the_access_folder(programs: Programs, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    made = programs.run("keys", "new", "gpu-1", **home)
    key = made.out.strip()
    assert (tmp_path / "config" / "dragoman" / "keys" / "gpu-1.key_secret").stat().st_mode & 0o777 == 0o600
    folder = tmp_path / "access"
    where = ("--access", folder)
    allowed = programs.run("keys", "allow", "gpu-1", key, "--work", "resize", *where, **home)
    assert (allowed.ends(), allowed.out) == (0, "")
    token = programs.run("token", "new", "web", "--call", "*", *where, **home)
    assert token.out.startswith("dgm_")
    assert token.out.strip() not in token.err + (folder / "web.toml").read_text()
    answers = [
        programs.run("access", "may", name, right, "resize", *where, **home)
        for name, right in (("gpu-1", "work"), ("web", "call"), ("gpu-1", "call"), ("web", "work"))
    ]
    assert [each.ends() for each in answers] == [0, 0, 1, 1]
    (folder / "web.toml").chmod(0o666)
    broken = programs.run("access", "check", *where, **home)
    assert broken.ends() == 2
    path = folder / "web.toml"
    assert broken.err == f"dragoman: {path}: other users may write to it; run: chmod go-w {path}\n"

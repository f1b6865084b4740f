"""The files under deploy for a cluster: secrets made by the script of Compose, and the configuration of NATS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.cluster.yaml").read_text()))


def made_secrets(folder: Path, names: str = "") -> dict[str, Path]:
    """Run the script that makes keys, passwords and certificates. `names`: other names of the certificate.
    Returns its folders, by the name in the container."""
    (script,) = compose()["services"]["setup"]["command"]
    folders = {name: folder / name for name in ("worker", "nats", "broker", "init", "access", "work")}
    for each in folders.values():
        each.mkdir(mode=0o700)
    text = script.replace("$$", "$").replace('"$(mktemp -d)"', str(folders["work"]))
    for name in ("worker", "nats", "broker", "init", "access"):
        text = re.sub(rf"(?<=[ =])/{name}(?=[/ \n]|$)", str(folders[name]), text)
    if names:
        text = re.sub(r"subjectAltName=[^\"]*", f"subjectAltName={names}", text)
    text = re.sub(r"^chown .*$", "", text, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "XDG_"))}
    done = subprocess.run(
        ["sh", "-ec", text], env=kept | {"PATH": path}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return folders


def nats_config(folder: Path, secrets: Path, name: str) -> Path:
    """Write the configuration of a server, with folders of the test."""
    text = (DEPLOY / "nats" / "cluster.conf").read_text()
    for before, after in {
        "/etc/nats/secret": str(secrets),
        "secret/passwords.conf": f"{secrets.name}/passwords.conf",
        '"/data"': f'"{folder / name}"',
        "/run/nats": str(folder),
    }.items():
        assert before in text
        text = text.replace(before, after)
    path = folder / f"{name}.conf"
    path.write_text(text)
    return path

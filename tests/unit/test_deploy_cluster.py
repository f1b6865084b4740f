"""The files under deploy for a cluster: our parsers read every command, nats-server reads its configuration.

No container is started. The script that makes keys and passwords is run, in folders of the test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from access_tables import any_authentication, use_keys
from case_tables import check_every_row
from cluster_files import DEPLOY, compose, made_secrets, nats_config
from dragoman.carriers.nats import Nats
from dragoman.cli import dragoman
from dragoman.cluster.nats_address import NatsAddress, parse_nats
from dragoman.core.broker import Broker
from dragoman.core.policy import Policy
from dragoman.http import health
from dragoman.http import metrics as told
from dragoman.sdk.targets import worker_target
from dragoman.server.admission import AdmissionLimits
from dragoman.server.cluster_member import check_name, credentials_in
from dragoman.server.config import load
from dragoman.server.runner import Runner
from dragoman.server.wiring import prepare
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy

NATS_SERVER = Path(sys.executable).with_name("nats-server")
PATHS = {each.path for each in (*health.ROUTES, *told.ROUTES)}
SERVERS = ("nats-0", "nats-1", "nats-2")
BROKERS = ("dragoman-0", "dragoman-1", "dragoman-2")


def manifests(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects of a file, by kind and name."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def pod(name: str, kind: str, title: str) -> dict[str, Any]:
    return dict(manifests(name)[kind, title]["spec"]["template"]["spec"])


def script_lines(script: str) -> Iterator[list[str]]:
    """The commands of ours in a script of compose, as the shell would pass them on."""
    text = re.sub(r"\\\n\s*", " ", script).replace("$$", "$")
    text = text.replace("$work", "/tmp/work")
    for inner in re.findall(r"\$\(dragoman (.*?)\)", text):
        yield shlex.split(inner)
        text = text.replace(f"$(dragoman {inner})", "3f" * 32)
    for found in re.findall(r"^\s*(?:exec )?dragoman (.*?)(?: > .*| && .*)?$", text, re.MULTILINE):
        yield shlex.split(found)


def commands() -> dict[str, list[str]]:
    """All our commands that are run, without the program's own name."""
    services = compose()["services"]
    found = {f"compose {name}": services[name]["command"] for name in BROKERS}
    for name in ("setup", "init", "worker"):
        (script,) = services[name]["command"]
        for number, words in enumerate(script_lines(script)):
            found[f"compose {name} {number}"] = words
    (broker,) = pod("cluster.yaml", "StatefulSet", "dragoman")["containers"]
    (init,) = pod("cluster.yaml", "Job", "dragoman-cluster-init")["containers"]
    values = {"$(POD_NAME)": "dragoman-0", "$(POD_IP)": "10.0.0.7"}
    for name, container in (("kubernetes broker", broker), ("kubernetes init", init)):
        found[name] = [re.sub(r"\$\(\w+\)", lambda each: values[each[0]], word) for word in container["args"]]
    return found


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of a command and its parameters. Raises click.UsageError."""
    context, command, path = click.Context(dragoman, info_name="dragoman"), dragoman, ""
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        assert name is not None
        command, path = found, f"{path} {name}".strip()
        if not isinstance(command, click.Group):
            return path, command.make_context(name, words, parent=context).params
        context = click.Context(command, info_name=name, parent=context)
    raise AssertionError(words)


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `serve`, with the settings of its file in Kubernetes."""
    if given.get("path"):
        import tomllib

        file = tomllib.loads(manifests("cluster.yaml")["ConfigMap", "dragoman-config"]["data"]["dragoman.toml"])
        return {**given, **file}
    return given


# ---------------------------------------------------------------- commands


def test_every_command_and_flag_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keys(monkeypatch, tmp_path, "worker")
    monkeypatch.setenv("DRAGOMAN_SERVER_KEY", "3f" * 32)  # the script of the worker exports it
    kinds: dict[str, int] = {}

    def check(title: str, words: list[str]) -> None:
        name, given = parsed(words)
        kinds[name] = kinds.get(name, 0) + 1
        if name == "worker":
            worker_target(given["url"], given["services"])
        elif name == "serve":
            settings = settings_of(given)
            check_nats(parse_nats(settings["cluster"]))
            check_name("broker", given["broker_name"])
            broker = Broker(Policy(), SeededEntropy())
            line = Runner(broker, NullStore(), lambda: 0.0, lambda level, event, **fields: None, AdmissionLimits())
            for url in given["urls"]:
                prepare(url, broker, line, authentication=any_authentication(broker.principals))
        elif name == "cluster init":
            check_nats(parse_nats(given["url"]))
            assert (given["name"], given["shards"], given["replicas"], given["synced"]) == ("dragoman", 12, 3, True)

    check_every_row(check, commands().items())
    assert kinds == {"serve": 4, "cluster init": 2, "worker": 1, "keys new": 2, "keys allow": 1}


def check_nats(address: NatsAddress) -> None:
    assert [each.host for each in address.places] == [f"{name}.nats" for name in SERVERS]


def test_the_settings_in_the_config_map_are_known(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text(manifests("cluster.yaml")["ConfigMap", "dragoman-config"]["data"]["dragoman.toml"])
    config, _ = load({}, {}, str(path))
    assert config.cluster_name == "dragoman"
    grace = pod("cluster.yaml", "StatefulSet", "dragoman")["terminationGracePeriodSeconds"]
    assert grace > config.drain_timeout + 5
    seconds = {compose()["services"][name]["stop_grace_period"] for name in BROKERS}
    assert {float(each.removesuffix("s")) for each in seconds} == {grace}


def test_each_broker_has_its_own_name_and_data() -> None:
    services = compose()["services"]
    names = [parsed(services[name]["command"])[1]["broker_name"] for name in BROKERS]
    assert names == list(BROKERS)
    data = [each for name in BROKERS for each in services[name]["volumes"] if each.endswith(":/var/lib/dragoman")]
    assert len(set(data)) == 3


# ---------------------------------------------------------------- secrets and NATS


def test_the_script_makes_what_brokers_and_servers_need(tmp_path: Path) -> None:
    folders = made_secrets(tmp_path)
    info = Nats().info
    passwords = dict(re.findall(r'(\w+)_PASSWORD: "(\w{48})"', (folders["nats"] / "passwords.conf").read_text()))
    for role in ("broker", "init"):
        fields = credentials_in(folders[role] / "nats").fields(info)
        assert fields == {"user": role, "pass": passwords[role.upper()]}
    assert (folders["broker"] / "broker.key_secret").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in folders["access"].iterdir()] == ["worker.toml"]
    assert len((folders["worker"] / "server_key").read_text().split()[0]) == 64
    certificate = subprocess.run(
        ["openssl", "verify", "-CAfile", folders["broker"] / "ca.crt", "-verify_hostname", "nats-1.nats",
         folders["nats"] / "tls.crt"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert certificate.returncode == 0, certificate.stderr
    environment = {**os.environ, "NATS_NAME": "nats-0"}
    words = [NATS_SERVER, "-t", "-c", nats_config(tmp_path, folders["nats"], "nats-0")]
    verdict = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert verdict.returncode == 0, verdict.stderr


def test_kubernetes_has_the_same_configuration_of_nats() -> None:
    text = (DEPLOY / "nats" / "cluster.conf").read_text()
    assert manifests("nats.yaml")["ConfigMap", "nats-config"]["data"]["cluster.conf"] == text
    assert "sync_interval: always" in text
    assert re.findall(r"nats://([\w.-]+):6222", text) == [f"{name}.nats" for name in SERVERS]
    creators = [user for user in text.split("user: ")[1:] if "STREAM.CREATE" in user]
    assert [each.split()[0] for each in creators] == ["init"]


def test_servers_of_compose_have_their_names_and_disks() -> None:
    services = compose()["services"]
    for name in SERVERS:
        server = services[name]
        assert server["environment"] == {"NATS_NAME": name}
        assert server["networks"] == {"default": {"aliases": [f"{name}.nats"]}}
        assert f"{name}:/data" in server["volumes"]


def test_no_secret_is_in_a_file() -> None:
    for name in ("compose.cluster.yaml", "kubernetes/cluster.yaml", "kubernetes/nats.yaml", "nats/cluster.conf"):
        text = (DEPLOY / name).read_text()
        assert "insecure" not in text
        for line in re.findall(r"^ *password: *(.*)$", text, re.MULTILINE):
            assert line.startswith("$"), line


# ---------------------------------------------------------------- Kubernetes


def test_pods_mount_what_is_there() -> None:
    rows = [
        ("cluster.yaml", "StatefulSet", "dragoman"),
        ("cluster.yaml", "Job", "dragoman-cluster-init"),
        ("nats.yaml", "StatefulSet", "nats"),
    ]

    def check(file: str, kind: str, title: str) -> None:
        spec = pod(file, kind, title)
        (container,) = spec["containers"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        objects = manifests(file)
        claims = objects[kind, title]["spec"].get("volumeClaimTemplates", ())
        names = set(volumes) | {each["metadata"]["name"] for each in claims}
        assert {each["name"] for each in container["volumeMounts"]} == names
        for each in volumes.values():
            assert "configMap" not in each or ("ConfigMap", each["configMap"]["name"]) in objects
        places = [each["mountPath"] for each in container["volumeMounts"]]
        for word in container["args"]:
            path = re.search(r"(/etc/\S+)", word)
            assert path is None or any(path[1].startswith(place) for place in places), word
        assert spec["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert spec["automountServiceAccountToken"] is False

    check_every_row(check, rows)


def test_brokers_and_servers_leave_one_at_a_time() -> None:
    for name, title in (("cluster.yaml", "dragoman"), ("nats.yaml", "nats")):
        objects = manifests(name)
        stateful = objects["StatefulSet", title]["spec"]
        budget = objects["PodDisruptionBudget", title]["spec"]
        assert stateful["replicas"] == 3
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == stateful["selector"]
        assert ("Service", stateful["serviceName"]) in objects


def test_probes_and_ports_of_brokers() -> None:
    (container,) = pod("cluster.yaml", "StatefulSet", "dragoman")["containers"]
    probes = [probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")]
    assert [each["path"] for each in probes] == ["/livez", "/livez", "/readyz"]
    assert {each["path"] for each in probes} <= PATHS
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"native": 7400, "http": 7480}
    service = manifests("cluster.yaml")["Service", "dragoman"]["spec"]
    assert {each["targetPort"]: each["port"] for each in service["ports"]} == ports


def test_only_pods_with_the_label_reach_nats() -> None:
    policy = manifests("nats.yaml")["NetworkPolicy", "nats"]["spec"]["ingress"]
    label = policy[0]["from"][0]["podSelector"]["matchLabels"]
    for kind, title in (("StatefulSet", "dragoman"), ("Job", "dragoman-cluster-init")):
        labels = manifests("cluster.yaml")[kind, title]["spec"]["template"]["metadata"]["labels"]
        assert label.items() <= labels.items()

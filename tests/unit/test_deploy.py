"""The files under deploy: they can be read, and all that they name is there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from access_tables import any_authentication, use_keys
from dragoman.cli import dragoman
from dragoman.cli.exit_codes import DISK, TAKEN, USAGE
from dragoman.core.broker import Broker
from dragoman.core.policy import Policy
from dragoman.dialects.catalogue import DIALECTS
from dragoman.http import health
from dragoman.http import metrics as told
from dragoman.http.exposition import MetricType
from dragoman.sdk.address import TcpAddress, is_loopback, parse
from dragoman.sdk.targets import worker_target
from dragoman.server.admission import AdmissionLimits
from dragoman.server.config import load
from dragoman.server.runner import Runner
from dragoman.server.wiring import prepare
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
YAML_FILES = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = [DEPLOY / "daemontools" / "run", DEPLOY / "daemontools" / "log" / "run"]
PATHS = {each.path for each in (*health.ROUTES, *told.ROUTES)}
DRAIN_TIMEOUT = load({}, {}, None)[0].drain_timeout


def title(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def unit(path: Path) -> dict[str, list[str]]:
    """Every directive and its values, in order; sections apart from each other have no names in common."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, equals, value = line.partition("=")
            assert equals, f"{path.name}: {line}"
            found[name].append(value)
    return found


# ---------------------------------------------------------------- they can be read


@pytest.mark.parametrize("path", YAML_FILES, ids=title)
def test_yaml_can_be_read(path: Path) -> None:
    assert all(isinstance(each, dict) for each in yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", SCRIPTS, ids=title)
def test_scripts_can_be_read_and_run(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", path], check=True, timeout=10)


@pytest.mark.parametrize("path", UNITS, ids=title)
def test_systemd_has_no_objections(path: Path, tmp_path: Path) -> None:
    """It also asks whether the program is there: so it is shown ours. Where there is no systemd, nobody is asked."""
    copy = tmp_path / path.name
    ours = str(Path(sys.executable).with_name("dragoman"))
    copy.write_text(path.read_text().replace("/opt/dragoman/bin/dragoman", ours))
    assert unit(path)["ExecStart"]
    if shutil.which("systemd-analyze"):
        words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy]
        verdict = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        objections = [line for line in verdict.stderr.splitlines() if path.name in line]
        assert (verdict.returncode, objections) == (0, []), verdict.stderr


# ---------------------------------------------------------------- commands


def json_words(dockerfile: str, instruction: str) -> list[str]:
    """An instruction in the form of a list; the last one counts."""
    found = re.findall(rf"^ *{instruction} (\[.*?\])$", dockerfile.replace("\\\n", ""), re.MULTILINE)
    return [str(each) for each in json.loads(found[-1])]


def commands() -> dict[str, list[str]]:
    """All our commands that are run somewhere, without the program's own name."""
    found = {}
    for path in UNITS:
        (line,) = unit(path)["ExecStart"]
        found[title(path)] = shlex.split(line)
    found["daemontools"] = shlex.split(SCRIPTS[0].read_text().splitlines()[-1])[3:]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    found["Dockerfile"] = ["dragoman", *json_words(dockerfile, "CMD")]
    (compose,) = documents("compose.yaml")
    (script,) = compose["services"]["worker"]["command"]
    found["compose.yaml"] = shlex.split(script.partition("exec ")[2])
    found["kubernetes"] = ["dragoman", *container()["args"]]
    for words in found.values():
        assert Path(words[0]).name == "dragoman"
    return {name: [_filled_in(word) for word in words[1:]] for name, words in found.items()}


def container() -> dict[str, Any]:
    _, stateful = documents("kubernetes/dragoman.yaml")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    return dict(container)


def _filled_in(word: str) -> str:
    """As it would be run."""
    values = {
        "${STATE_DIRECTORY}": "/var/lib/dragoman",
        "${WORKER}": "mypackage.images:resize",
        "${BROKER}": "tcp://127.0.0.1:7400",
        "%i": "resize",
        "$(POD_IP)": "10.0.0.7",
    }
    for name, value in values.items():
        word = word.replace(name, value)
    assert not re.search(r"[$%]", word), word
    return word


@pytest.mark.parametrize("name", commands())
def test_every_command_and_flag_exists(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keys(monkeypatch, tmp_path, "worker")
    if name == "compose.yaml":
        monkeypatch.setenv("DRAGOMAN_SERVER_KEY", "3f" * 32)  # its script exports it
    group = click.Context(dragoman, info_name="dragoman")
    found, command, rest = dragoman.resolve_command(group, commands()[name])
    assert command is not None
    given = command.make_context(found, rest, parent=group).params
    if found == "worker":
        worker_target(given["url"], given["services"])
        return
    broker = Broker(Policy(), SeededEntropy())
    line = Runner(broker, NullStore(), lambda: 0.0, lambda level, event, **fields: None, AdmissionLimits())
    for url in given["urls"]:
        prepare(url, broker, line, authentication=any_authentication(broker.principals))


def ports_of(words: list[str]) -> dict[int, str]:
    """Return the ports of a command, with their dialects."""
    urls = [parse(word, DIALECTS) for word in words if "://" in word]
    return {url.place.port: url.dialect for url in urls if isinstance(url.place, TcpAddress)}


def test_a_container_exposes_the_ports_it_listens_on() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    (exposed,) = re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE)
    assert {int(port) for port in exposed.split()} == set(ports_of(commands()["Dockerfile"]))
    (compose,) = documents("compose.yaml")
    published = {int(each.rpartition(":")[2]) for each in compose["services"]["dragoman"]["ports"]}
    assert published <= set(ports_of(commands()["Dockerfile"]))


def test_a_pod_names_the_ports_it_listens_on() -> None:
    listening = ports_of(commands()["kubernetes"])
    assert {each["containerPort"]: each["name"] for each in container()["ports"]} == listening
    service, _ = documents("kubernetes/dragoman.yaml")
    assert {each["port"]: each["targetPort"] for each in service["spec"]["ports"]} == listening


# ---------------------------------------------------------------- probes


def test_probes_ask_what_there_is_to_ask() -> None:
    probes = {name: probe["httpGet"] for name, probe in container().items() if name.endswith("Probe")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert {each["path"] for each in probes.values()} <= PATHS
    assert {each["port"] for each in probes.values()} == {"http"}


def test_the_image_asks_itself_where_it_listens() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    check = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", dockerfile)
    assert check is not None
    assert ports_of(commands()["Dockerfile"])[int(check[1])] == "http"
    assert check[2] in PATHS


def test_no_listener_is_open_to_everybody() -> None:
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file():
            text = path.read_text()
            assert "insecure" not in text, path
            assert "loopback=anyone" not in text, path
    for where, words in commands().items():
        for url in (parse(word, DIALECTS) for word in words if "://" in word and "serve" in words):
            assert is_loopback(url.place) or "auth" in url.options or "client_ca" in url.options, (where, url.url)


def test_the_broker_s_unit_lets_it_ask_for_the_users_of_connections() -> None:
    [families] = unit(DEPLOY / "systemd" / "dragoman.service")["RestrictAddressFamilies"]
    assert "AF_NETLINK" in families.split()


def test_prometheus_finds_the_metrics() -> None:
    (config,) = documents("prometheus/prometheus.yml")
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] in PATHS
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    (http,) = (word for word in commands()["Dockerfile"] if word.startswith("http:"))
    assert int(port) in ports_of([http])
    assert host in parse(http, DIALECTS).options["hosts"].split(","), "it answers to this name"
    (compose,) = documents("compose.yaml")
    assert host in compose["services"]
    assert [(DEPLOY / "prometheus" / name).exists() for name in config["rule_files"]] == [True]


def test_annotations_of_a_pod_lead_a_scraper_to_the_metrics() -> None:
    _, stateful = documents("kubernetes/dragoman.yaml")
    said = stateful["spec"]["template"]["metadata"]["annotations"]
    assert said["prometheus.io/path"] in PATHS
    assert ports_of(commands()["kubernetes"])[int(said["prometheus.io/port"])] == "http"


# ---------------------------------------------------------------- metrics


def samples() -> set[str]:
    """Every name that a sample may have."""
    names = {"up"}
    for name, (kind, _) in told.METRICS.items():
        endings = ("_bucket", "_count", "_sum") if kind is MetricType.HISTOGRAM else ("",)
        names |= {name + ending for ending in endings}
    return names


def named_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:dragoman|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression)))


def alerts() -> list[dict[str, Any]]:
    (file,) = documents("prometheus/alerts.yml")
    return [rule for group in file["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana" / "dragoman.json").read_text()))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_asks_for_metrics_that_exist(alert: dict[str, Any]) -> None:
    assert named_in(alert["expr"])
    assert named_in(alert["expr"]) <= samples()
    assert alert["expr"].count("(") == alert["expr"].count(")")
    assert alert["annotations"]["summary"]


def test_every_alert_has_a_row_in_the_operators_page() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    rows = set(re.findall(r"`(Dragoman\w+)`", page))
    assert rows == {each["alert"] for each in alerts()}


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board = dashboard()
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked += [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    for expression in asked:
        assert named_in(expression), expression
        assert named_in(expression) <= samples()
        assert expression.count("(") == expression.count(")")


def test_the_dashboard_shows_what_an_operator_asks_first() -> None:
    shown = named_in(" ".join(t["expr"] for panel in dashboard()["panels"] for t in panel.get("targets", ())))
    assert shown >= {
        "dragoman_queue_depth",
        "dragoman_queue_oldest_seconds",
        "dragoman_jobs_total",
        "dragoman_queue_seconds_bucket",
        "dragoman_run_seconds_bucket",
        "dragoman_workers",
        "dragoman_bad_messages_total",
        "dragoman_late_results_total",
        "dragoman_store_commit_seconds_bucket",
        "dragoman_loop_lag_seconds_bucket",
    }


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


# ---------------------------------------------------------------- what belongs together


def test_nothing_is_started_again_that_somebody_must_look_at() -> None:
    (codes,) = unit(DEPLOY / "systemd" / "dragoman.service")["RestartPreventExitStatus"]
    assert {int(code) for code in codes.split()} == {USAGE, TAKEN, DISK}


def test_everybody_waits_longer_than_draining_takes() -> None:
    (stop,) = unit(DEPLOY / "systemd" / "dragoman.service")["TimeoutStopSec"]
    (compose,) = documents("compose.yaml")
    _, stateful = documents("kubernetes/dragoman.yaml")
    grace = stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    for seconds in (stop, compose["services"]["dragoman"]["stop_grace_period"].removesuffix("s"), grace):
        assert float(seconds) > DRAIN_TIMEOUT + 5


def test_a_pod_runs_as_the_user_of_the_image() -> None:
    users = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    _, stateful = documents("kubernetes/dragoman.yaml")
    assert users == [str(stateful["spec"]["template"]["spec"]["securityContext"]["runAsUser"])]


def test_what_is_copied_and_mounted_is_there() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    allowed = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert sorted(names) == sorted(allowed)
    assert all((ROOT / name).exists() for name in names)
    (compose,) = documents("compose.yaml")
    mounted = [each for service in compose["services"].values() for each in service.get("volumes", ())]
    for source in (each.partition(":")[0] for each in mounted):
        assert source in compose["volumes"] or (DEPLOY / source).exists()

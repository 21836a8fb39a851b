"""`moldau generate`: its queries find series at a real broker, and the real Prometheus accepts its files."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.generate.alerts import ALERTS
from moldau.cli.main import main
from moldau.cli.pipeline.metrics import ServedDisplay
from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.progress import Counted, QueryStatus, RunStatus
from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only


def generate(*words: str) -> str:
    outcome = CliRunner().invoke(main, ["generate", *words])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def expressions() -> list[str]:
    """Return all queries of the dashboard, as Grafana would send them."""
    dashboard = json.loads(generate("grafana"))
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    values = {"$job": "moldau", "$topic": ".*", "$group": ".*", "$pipeline": ".*", "$__rate_interval": "1m"}
    for name, value in values.items():
        texts = [text.replace(name, value) for text in texts]
    return texts


@pytest.fixture(scope="module")
def node() -> Iterator[TestBroker]:
    with broker(metrics_listener="127.0.0.1:0", num_partitions=2) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(100):
            producer.produce("orders", str(number))
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer(
            {"bootstrap.servers": running.bootstrap_servers, "group.id": "shop", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.1) is not None, "a record was read")
        consumer.commit(asynchronous=False)
        yield running
        consumer.close()


class QuietView:
    """Shows nothing."""

    def __enter__(self) -> QuietView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, status: RunStatus) -> None:
        pass

    def say(self, text: str) -> None:
        pass


@pytest.fixture(scope="module")
def pipeline_address() -> Iterator[str]:
    """Where `moldau pipeline run --metrics` serves a run, as it does without Spark."""
    query = QueryStatus(
        name="counts",
        state="running",
        rows_in=100,
        rows_out=10,
        batches=4,
        batch_ms=1500,
        phases_ms={"addBatch": 5000},
        bad_records={"orders": Counted(100, 1)},
        lag_records=12,
        lag_seconds=0.5,
        state_rows=10,
        state_bytes=150,
        watermark="2026-11-15T11:00:00.000Z",
        sources={"orders": SourceStatus(lag_records=12, lag_seconds=0.5, lag_bytes=4096, last_change_ms=1)},
        sinks={"hook": SinkStatus(rows=9, retries=3, dead_letters=1)},
    )
    of_run = {"pipeline": "shop", "mode": "continuous", "pid": 1, "host": "h", "started": "", "updated": ""}
    with ServedDisplay(QuietView(), "127.0.0.1:0") as view:
        view.show(RunStatus(**of_run, state="running", queries=(query,)))  # type: ignore[arg-type]
        yield view.address


def served_at(address: str) -> set[str]:
    """Return the names of all metrics that are served there."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return set(re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE))


def test_every_metric_of_the_dashboard_and_the_alerts_is_served(node: TestBroker, pipeline_address: str) -> None:
    of_pipelines = served_at(pipeline_address)
    served = served_at(node.metrics_address) | of_pipelines
    asked = {name for text in (*expressions(), *(each.expression for each in ALERTS)) for name in metric_names(text)}
    assert len(asked) > 30
    assert asked - served == {"up"}  # Prometheus has that one by itself
    not_drawn = {f"moldau_pipeline_{name}_total" for name in ("batches", "parsed_records")}
    assert of_pipelines - asked == not_drawn, "all other metrics of a run are on the dashboard"


def metric_names(expression: str) -> set[str]:
    return set(re.findall(r"([a-z_]+)\{", expression))


def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    rules, configuration = tmp_path / "alerts.yml", tmp_path / "prometheus.yml"
    generate("alerts", "-o", str(rules), "--job", "kafka/test")
    words = ("--pipeline", "localhost:9405", "--rules", str(rules), "-o", str(configuration))
    generate("prometheus", "localhost:9404", "[::1]:9405", *words)
    for checked in (["rules", str(rules)], ["config", str(configuration)]):
        ran = subprocess.run(["promtool", "check", *checked], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"{len(ALERTS)} rules found" in ran.stdout


FAILED_LOGINS = 'moldau_limits_total{job="moldau", instance="a:1", limit="authentication.failed"}'


@pytest.mark.parametrize(
    ("series", "values", "name", "labels", "summary"),
    [
        (
            'up{job="moldau", instance="a:1"}', "0+0x13",
            "MoldauNoActiveController", {"job": "moldau"}, "The cluster has 0 active controllers.",
        ),
        (
            FAILED_LOGINS, "50+0x8 153+0x4",
            "MoldauManyFailedLogins", {"instance": "a:1"}, "About 114 logins at a:1 failed within five minutes.",
        ),
    ],
    ids=["no controller answers", "increase is an estimate"],
)  # fmt: skip
def test_an_alert_says_what_it_found(
    tmp_path: Path, series: str, values: str, name: str, labels: dict[str, str], summary: str
) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    rules, tests = tmp_path / "alerts.yml", tmp_path / "tests.yml"
    generate("alerts", "-o", str(rules))
    (alert,) = [each for each in ALERTS if each.name == name]
    expected = {
        "exp_labels": {"severity": alert.severity, **labels},
        "exp_annotations": {"summary": summary, "description": alert.todo},
    }
    test = {
        "interval": "45s",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": [{"eval_time": "10m", "alertname": name, "exp_alerts": [expected]}],
    }
    tests.write_text(json.dumps({"rule_files": [str(rules)], "tests": [test]}), encoding="utf-8")
    ran = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_runs_of_pipelines_have_a_job_of_their_own() -> None:
    """Otherwise a run that has ended would be a node that is down."""
    configuration = yaml.safe_load(generate("prometheus", "a:1", "--pipeline", "b:2", "--pipeline", "c:3"))
    jobs = {each["job_name"]: each["static_configs"][0]["targets"] for each in configuration["scrape_configs"]}
    assert jobs == {"moldau": ["a:1"], "moldau-pipelines": ["b:2", "c:3"]}
    assert "pipelines" not in generate("prometheus", "a:1")


def test_prometheus_finds_series_for_every_panel(node: TestBroker, pipeline_address: str, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    rules, configuration = tmp_path / "alerts.yml", tmp_path / "prometheus.yml"
    generate("alerts", "-o", str(rules))
    words = ("--interval", "200ms", "--rules", str(rules), "-o", str(configuration))
    generate("prometheus", node.metrics_address, "--pipeline", pipeline_address, *words)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={configuration}", f"--web.listen-address={address}"]
    process = subprocess.Popen(
        [*command, f"--storage.tsdb.path={tmp_path / 'data'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for expression in expressions():
            wait_until(lambda asked=expression: has_series(address, asked), f"series for {expression}")
        states = {each["name"]: each["health"] for each in ask(address, "rules")["groups"][0]["rules"]}
        assert set(states) == {each.name for each in ALERTS}
        assert "err" not in states.values()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def has_series(address: str, expression: str) -> bool:
    try:
        return bool(ask(address, "query?" + urllib.parse.urlencode({"query": expression}))["result"])
    except (ConnectionError, http.client.HTTPException, KeyError):
        return False


def ask(address: str, path: str) -> Any:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"/api/v1/{path}")
        answer = connection.getresponse()
        text = answer.read()
        return json.loads(text)["data"] if answer.status == 200 else {}
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prometheus",), "no nodes to scrape"),
        (("prometheus", "localhost"), "'localhost' is not HOST:PORT"),
        (("prometheus", "localhost:9404", "--pipeline", "here"), "'here' is not HOST:PORT"),
        (("prometheus", "localhost:9404", "--interval", "often"), "'often' is not a time"),
        (("alerts", "--job", 'a"b'), "expected letters, digits"),
        (("alerts", "-o", "/no/such/directory/alerts.yml"), "cannot write"),
    ],
)
def test_invalid_arguments_are_reported(words: tuple[str, ...], message: str) -> None:
    outcome = CliRunner().invoke(main, ["generate", *words])
    assert outcome.exit_code != 0
    assert message in outcome.output

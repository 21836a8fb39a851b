"""Client telemetry (KIP-714) with a real client: librdkafka pushes what kafka-client-metrics asks for."""

from __future__ import annotations

import http.client

import pytest
from confluent_kafka import Producer
from harness.patience import wait_until
from kafka_tools import Tools
from prometheus_client.parser import text_string_to_metric_families

from moldau.testing import broker

pytestmark = pytest.mark.moldau_only


def series(address: str) -> dict[str, list[dict[str, str]]]:
    """Return the labels of all series of clients by name."""
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {
        family.name: [sample.labels for sample in family.samples]
        for family in text_string_to_metric_families(text)
        if family.name.startswith("moldau_client_")
    }


def test_a_client_pushes_the_subscribed_metrics(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker(metrics_listener="127.0.0.1:0") as node:
        tools = Tools(node.bootstrap_servers, capsys, monkeypatch)
        assert tools("client_metrics", "--list").out.strip() == ""
        prefix = "org.apache.kafka.producer.connection"
        words = ("--name", "connections", "--metrics", prefix, "--interval", "200", "--match", "client_id=shop-.*")
        assert tools("client_metrics", "--alter", *words).lines == ["Altered client metrics config for connections."]
        wait_until(lambda: tools("client_metrics", "--list").lines == ["connections"], "the resource is listed")
        assert tools("client_metrics", "--describe", "--name", "connections").lines == [
            "Client metrics configs for connections are:",
            "  interval.ms=200",
            "  match=client_id=shop-.*",
            f"  metrics={prefix}",
        ]
        quiet = {"log_level": 0, "bootstrap.servers": node.bootstrap_servers}
        asked = Producer({**quiet, "client.id": "shop-1"})
        other = Producer({**quiet, "client.id": "office"})

        def pushed() -> bool:
            asked.poll(0.05)
            other.poll(0.05)
            return "moldau_client_producer_connection_creation" in series(node.metrics_address)

        wait_until(pushed, "the client pushes its metrics")
        found = series(node.metrics_address)
        assert all(name.startswith("moldau_client_producer_connection") for name in found)
        assert {labels["client_id"] for each in found.values() for labels in each} == {"shop-1"}
        assert tools("client_metrics", "--delete", "--name", "connections").lines == [
            "Deleted client metrics config for connections."
        ]
        wait_until(lambda: tools("client_metrics", "--list").out.strip() == "", "the resource is deleted")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--list", "--describe"), "exactly one action"),
        (("--alter",), "One of --name or --generate-name must be specified with --alter."),
        (("--alter", "--name", "a", "--interval", "soon"), "Invalid interval value."),
        (("--delete",), "A client metrics resource name must be specified with --delete."),
        (("--alter", "--name", "a", "--interval", "5"), "interval must be between 100 and 3600000"),
        (("--alter", "--name", "a", "--match", "who=me"), "Illegal client matching pattern: who=me"),
    ],
)
def test_kafka_client_metrics_reports_invalid_options(
    bootstrap: str,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = Tools(bootstrap, capsys, monkeypatch)("client_metrics", *words)
    assert outcome.status == 1
    # As with Kafka, what a broker refuses is on stdout.
    assert message in (outcome.out if outcome.out else outcome.err)

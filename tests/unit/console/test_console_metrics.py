"""What the console reads from `/metrics` of brokers: byte rates and the metrics that clients pushed. Hostile text in
labels adds no samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.console import gateways, telemetry
from moldau.console.metrics_reader import BYTES_IN, MetricsReader
from moldau.console.metrics_text import Sample, lines_of, parse
from moldau.console.telemetry import LastPushes, Telemetry, telemetry_of
from moldau.gateway import metrics as gateway_metrics
from moldau.metrics.clients import PREFIX, collect
from moldau.prometheus.text import Family
from moldau.telemetry.otlp import Point
from moldau.telemetry.received import ReceivedMetrics
from moldau.telemetry.subscriptions import ClientIdentity


def test_metrics_are_read_by_name() -> None:
    lines = [
        'kafka_a_total{topic="x\\"y"} 5.5',
        "kafka_a_total 7",
        "kafka_a_total_created 3",
        "# HELP kafka_a_total x",
        "kafka_a_total bad",
        "kafka_a_total +Inf",
        "kafka_a_total NaN",
        "kafka_a_total 1e999",
    ]
    samples = list(parse(lines, ("kafka_a_total",)))
    assert [(each.labels, each.value) for each in samples] == [({"topic": 'x"y'}, 5.5), ({}, 7.0)]


def test_a_broker_missing_from_one_scrape_causes_no_spike_in_the_rate() -> None:
    reader = MetricsReader(["one", "two"])

    def rate(now: float, **totals: float) -> float | None:
        samples = {url: [Sample(BYTES_IN, {}, total)] for url, total in totals.items()}
        return reader.rate(BYTES_IN, samples, dict.fromkeys(samples, now))

    assert rate(0, one=1_000_000, two=0) is None
    assert rate(10, one=1_000_100, two=50) == 15
    assert rate(20, two=100) == 5
    assert rate(30, one=1_000_300, two=150) == 15
    assert rate(40, one=7, two=200) == 5, "a restart begins at zero"
    assert rate(50) is None


def test_records_of_share_groups_are_counted_over_all_brokers(tmp_path: Path) -> None:
    urls = []
    for broker, acquired in (("one", 3), ("two", 4)):
        text = tmp_path / broker
        text.write_text(f'moldau_share_records{{group="w\\"k",topic="jobs",state="acquired"}} {acquired}\n')
        urls.append(text.as_uri())
    assert MetricsReader(urls)()["share_records"] == {('w"k', "jobs", "acquired"): 7}


GATEWAY = """# TYPE moldau_gateway_users gauge
moldau_gateway_users 3
moldau_gateway_http_connections 12
moldau_gateway_http_records_total 4711
moldau_gateway_mqtt_refused_total{what="publish: not authorized"} 2
moldau_gateway_mqtt_refused_total{what="connection: too many"} 7
"""


def test_a_gateway_is_known_by_what_it_measures() -> None:
    samples = list(parse(lines_of(GATEWAY), (), gateways.PREFIX))
    row = gateways.gateway_row("one", samples, {"moldau_gateway_http_records_total": 21.5, "other": None})
    assert row == {
        "address": "one",
        "http": True,
        "mqtt": False,
        "now": {"users": 3, "http_connections": 12},
        "since_start": {"http_records_total": 4711},
        "per_second": {"http_records_total": 21.5},
        "refused": [{"what": "connection: too many", "count": 7}, {"what": "publish: not authorized", "count": 2}],
    }


def test_a_broker_is_no_gateway() -> None:
    assert gateways.gateway_row("one", [], {}) is None


def test_the_counters_of_a_gateway_are_those_that_it_serves() -> None:
    served = {family.name for family in vars(gateway_metrics).values() if isinstance(family, Family)}
    assert {*gateways.COUNTERS, gateways.MQTT_REFUSED} <= served
    assert all(name.startswith(gateways.PREFIX) for name in served)


@pytest.mark.parametrize("separator", ["\u2028", "\x0b", "\x1c", "\x85", "\r"])
def test_a_label_cannot_add_a_sample(separator: str) -> None:
    """Group and client ids may have any character; only a line feed ends a line, and that is escaped."""
    forged = f'kafka_consumergroup_members{{consumergroup="a{separator}{BYTES_IN} 7{separator}"}} 1\n{BYTES_IN} 5\n'
    assert [each.value for each in parse(lines_of(forged), (BYTES_IN,))] == [5.0]


def pushed(client_id: str, *points: Point, instance_id: str = "one", version: str = "2.11.0") -> ReceivedMetrics:
    identity = ClientIdentity(instance_id, client_id, "librdkafka", version, "10.0.0.1", "4711")
    return ReceivedMetrics(identity, points, 0, 0)


def read(*clients: ReceivedMetrics) -> Telemetry:
    """As the console reads it: the broker's text, parsed."""
    return telemetry_of(parse(lines_of("".join(collect(clients))), (), PREFIX))


def latency(milliseconds: float, node: str = "1", of: str = "producer") -> Point:
    return Point(f"org.apache.kafka.{of}.node.request.latency.avg", (("node.id", node),), milliseconds, False)


def test_clients_are_listed_with_their_software_and_values() -> None:
    shop = pushed("shop", latency(2.5), latency(7.25, "2"), Point("org.apache.kafka.producer.x.total", (), 3.0, True))
    billing = pushed("billing", latency(1.0, of="consumer"), instance_id="two", version="")
    clients = read(shop, billing).clients
    assert [each.row() for each in clients.values()] == [
        {
            "instance_id": "two", "client_id": "billing", "software": "librdkafka", "host": "10.0.0.1",
            "kind": "consumer", "latency_ms": None, "values": 1,
        },
        {
            "instance_id": "one", "client_id": "shop", "software": "librdkafka 2.11.0", "host": "10.0.0.1",
            "kind": "producer", "latency_ms": 7.25, "values": 3,
        },
    ]  # fmt: skip
    assert clients["one"].values[0] == ("producer_node_request_latency_avg", (("node_id", "1"),), 2.5)
    assert read(pushed("quiet", Point("custom", (), 1.0, False))).clients["one"].row()["latency_ms"] is None


@pytest.mark.parametrize("hostile", ['"} 7', "a\nb", "\\", '\\"', "\u2028", "client_id=", "x" * 500, "{}", ""])
def test_a_hostile_client_id_is_shown_unchanged(hostile: str) -> None:
    clients = read(pushed(hostile, Point("m", (("label", hostile),), 1.0, False))).clients
    assert clients["one"].client_id == hostile
    assert clients["one"].values[0].labels == (("label", hostile),)


def test_series_without_a_client_instance_id_are_ignored() -> None:
    assert telemetry_of([Sample(f"{PREFIX}x", {}, 1.0), Sample(f"{PREFIX}x", {"client_instance_id": ""}, 1.0)]) == (
        {},
        False,
    )


def test_only_as_many_complete_clients_as_fit_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/metrics` goes by the names of metrics: those of consumers come before those of producers."""
    consumers = [
        pushed(
            "billing", *(latency(1.0, str(node), "consumer") for node in range(count)), instance_id=f"consumer-{count}"
        )
        for count in (5, 4)
    ]
    clients = [*consumers, pushed("shop", *(latency(1.0, str(node)) for node in range(3)), instance_id="producer-3")]
    samples = list(parse(lines_of("".join(collect(clients))), (), PREFIX))

    def kept(broker_count: int = 1) -> tuple[dict[str, int], bool]:
        clients, is_cut = telemetry_of(samples, broker_count)
        return {key: len(client.values) for key, client in clients.items()}, is_cut

    assert kept() == ({"consumer-5": 5, "consumer-4": 4, "producer-3": 3}, False)
    monkeypatch.setattr(telemetry, "VALUES_MAX", 23)
    assert kept(broker_count=2) == ({"consumer-4": 4, "producer-3": 3}, True), "each broker has its share"
    assert kept(broker_count=4) == ({"producer-3": 3}, True)
    assert kept(broker_count=8) == ({}, True)
    monkeypatch.setattr(telemetry, "VALUES_MAX", 100)
    monkeypatch.setattr(telemetry, "CHARACTERS_MAX", 1)
    assert kept() == ({}, True)
    monkeypatch.setattr(telemetry, "CHARACTERS_MAX", 10_000)
    monkeypatch.setattr(telemetry, "BROKER_VALUES_MAX", 5)
    assert kept() == ({"consumer-5": 5}, True), "no broker has more"


def test_of_two_brokers_the_one_whose_values_changed_last_is_used() -> None:
    """A client that lost its broker pushes to another one; the first has its old values for a while."""
    last_pushes = LastPushes()
    old, new, newer = (read(pushed("shop", latency(value))) for value in (1.0, 2.0, 3.0))

    def value(**brokers: Telemetry) -> float | None:
        return last_pushes.merged(brokers).clients["one"].latency_ms

    assert value(a=old) == 1.0
    assert value(a=old, b=new) == 2.0
    assert value(a=old, b=new) == 2.0
    assert value(b=newer, a=old) == 3.0
    assert value(b=newer) == 3.0
    assert value(a=old, b=newer) == 3.0, "broker a was missing from one scrape: its values are not new"
    assert value(a=old) == 1.0, "the only broker that is left"
    assert last_pushes.merged({}).clients == {}

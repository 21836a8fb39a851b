"""Metrics pushed by clients, in the text of a scrape, which is valid and has our prefix whatever a client names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from moldau.metrics.clients import PREFIX, collect
from moldau.telemetry.otlp import Point
from moldau.telemetry.received import ReceivedMetrics
from moldau.telemetry.subscriptions import ClientIdentity


def client(id: str, *points: Point) -> ReceivedMetrics:
    return ReceivedMetrics(
        ClientIdentity(id, 'a "client"', "apache-kafka-java", "4.3.1", "10.0.0.1", "4"), points, 0, 0
    )


def test_two_clients_share_a_metric() -> None:
    sent = "org.apache.kafka.producer.record.send.total"
    clients = [client(id, Point(sent, (("topic", "t"),), 7.0, True)) for id in ("one", "two")]
    (family,) = text_string_to_metric_families("".join(collect(clients)))
    assert (family.name, family.type) == ("moldau_client_producer_record_send", "counter")
    assert [(each.labels["client_instance_id"], each.labels["topic"], each.value) for each in family.samples] == [
        ("one", "t", 7),
        ("two", "t", 7),
    ]
    assert {each.labels["client_id"] for each in family.samples} == {'a "client"'}


def test_the_same_labels_in_another_order_are_the_same_series() -> None:
    """A scrape with a series twice is refused as a whole."""
    one, two = Point("a", (("x", "1"), ("y", "2")), 1.0, False), Point("a", (("y", "2"), ("x", "1")), 2.0, False)
    (family,) = text_string_to_metric_families("".join(collect([client("one", one, two)])))
    assert [each.value for each in family.samples] == [2]


_POINTS = st.builds(
    Point,
    st.text(min_size=1, max_size=30),
    st.lists(st.tuples(st.text(min_size=1, max_size=10), st.text(max_size=20)), max_size=4).map(tuple),
    st.floats(),
    st.booleans(),
)


@given(st.lists(_POINTS, max_size=30))
def test_any_names_labels_and_values_make_valid_text(points: list[Point]) -> None:
    text = "".join(collect([client("one", *points)]))
    families = list(text_string_to_metric_families(text))
    assert all(sample.name.startswith(PREFIX) for family in families for sample in family.samples)
    series = [(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples]
    assert len(series) == len(set(series))
    assert [line for line in text.splitlines() if line.startswith("# TYPE")] == sorted(
        {line for line in text.splitlines() if line.startswith("# TYPE")}
    )

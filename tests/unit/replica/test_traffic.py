"""What went in and out of the topics of a node."""

from __future__ import annotations

from moldau.replica.traffic import TopicTraffic, Traffic


def test_the_traffic_of_topics_that_are_gone_stays_in_the_totals() -> None:
    traffic = Traffic()
    for topic in ("a", "b"):
        for number, name in enumerate(TopicTraffic.__slots__, 1):
            setattr(traffic.of(topic), name, number)
        traffic.forget(topic)
    assert [getattr(traffic.gone, name) for name in TopicTraffic.__slots__] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert not traffic.topics

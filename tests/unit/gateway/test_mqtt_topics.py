"""Names of MQTT and topics of Kafka: rules, filters, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.topics import (
    BadRule,
    Place,
    Refusal,
    TopicRules,
    contains,
    matches,
    overlap,
    parse_rule,
)

RULES = TopicRules([parse_rule("plants/+/line/# -> telemetry"), parse_rule("+/alarm -> alarms")])
LEVEL = st.sampled_from(("a", "b", "", "$x"))
NAME = st.lists(LEVEL, min_size=1, max_size=4)


@st.composite
def filters(draw: st.DrawFn) -> list[str]:
    levels = draw(st.lists(st.sampled_from(("a", "b", "", "+")), min_size=0, max_size=4))
    return [*levels, "#"] if not levels or draw(st.booleans()) else levels


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("plants/1/line/2/t", Place("telemetry", b"plants/1/line/2/t")),
        ("plants/1/line", Place("telemetry", b"plants/1/line")),
        ("boiler/alarm", Place("alarms", b"boiler/alarm")),
        ("orders/7/a", Place("orders", b"7/a")),
        ("orders", Place("orders", None)),
        ("orders/", Place("orders", b"")),
        ("orders//x", Place("orders", b"/x")),
    ],
)
def test_a_name_says_where_a_message_goes_and_its_record_says_the_name(name: str, place: Place) -> None:
    assert RULES.place(name) == place
    assert RULES.name(*place) == name


@pytest.mark.parametrize(
    "name",
    ["telemetry/x", "telemetry", "/x", "ä/x", "$SYS/x", "__consumer_offsets/x", "_mqtt_sessions/x", "a" * 65_536],
)
def test_names_that_are_refused(name: str) -> None:
    refused = RULES.place(name)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("telemetry", b"x"),
        ("telemetry", None),
        ("orders", b"\xff"),
        ("orders", b"a+"),
        ("orders", b"a\0"),
        ("x", b"alarm"),
    ],
)
def test_records_of_others_without_a_name(topic: str, key: bytes | None) -> None:
    assert RULES.name(topic, key) is None


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("orders/#", ("alarms", "orders")),
        ("orders/x/#", ("orders",)),
        ("orders", ("orders",)),
        ("orders/+", ("alarms", "orders")),
        ("plants/1/line/+", ("telemetry",)),
        ("plants/#", ("telemetry", "alarms", "plants")),
        ("plants/alarm", ("alarms",)),
        ("+/alarm", ("alarms",)),
    ],
)
def test_filters_have_their_kafka_topics(text: str, topics: tuple[str, ...]) -> None:
    assert RULES.topics(text) == topics


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#", Reason.TOPIC_FILTER_INVALID),
        ("+/1/line/#", Reason.TOPIC_FILTER_INVALID),
        ("+", Reason.TOPIC_FILTER_INVALID),
        ("$SYS/#", Reason.TOPIC_FILTER_INVALID),
        ("$share/g/orders/#", Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        ("orders/#/x", Reason.TOPIC_FILTER_INVALID),
        ("orders/x+", Reason.TOPIC_FILTER_INVALID),
        ("orders/x#", Reason.TOPIC_FILTER_INVALID),
        ("telemetry/x", Reason.TOPIC_FILTER_INVALID),
        ("ä/x", Reason.TOPIC_FILTER_INVALID),
        ("_mqtt_retained/x", Reason.TOPIC_FILTER_INVALID),
        ("a" + "/" * 128, Reason.TOPIC_FILTER_INVALID),
    ],
)
def test_filters_that_are_refused(text: str, reason: Reason) -> None:
    refused = RULES.topics(text)
    assert isinstance(refused, Refusal)
    assert refused.reason is reason


def test_everything_is_bounded_by_a_rule_for_everything() -> None:
    assert TopicRules([parse_rule("# -> all")]).topics("#") == ("all",)


@pytest.mark.parametrize("text", ["a -> ", "-> b", "a b", "a/#/b -> c", "a -> b c", "$SYS/# -> a", "a -> __x"])
def test_bad_rules_say_what_is_wrong(text: str) -> None:
    with pytest.raises(BadRule, match=r"^[^\n]+$"):
        parse_rule(text)


@given(one=filters(), other=filters(), name=NAME)
def test_overlap_and_contains_agree_with_matches(one: list[str], other: list[str], name: list[str]) -> None:
    both = matches(one, name) and matches(other, name)
    assert not both or overlap(one, other)
    if contains(one, other) and matches(other, name):
        assert matches(one, name)


@given(one=filters(), other=filters())
def test_overlap_has_a_witness(one: list[str], other: list[str]) -> None:
    """A name is made of both filters, level by level: they overlap if and only if it matches both."""
    length = max(len(one), len(other))
    levels = [
        next((each[at] for each in (one, other) if at < len(each) and each[at] not in ("+", "#")), "w")
        for at in range(length)
    ]
    witnesses = [levels, levels[:-1] or levels]
    assert overlap(one, other) == any(matches(one, each) and matches(other, each) for each in witnesses)


@given(name=NAME.map("/".join))
def test_a_name_with_a_place_comes_back(name: str) -> None:
    place = RULES.place(name)
    if isinstance(place, Place):
        assert RULES.name(*place) == name
        found = RULES.topics(name)
        assert not isinstance(found, Refusal)
        assert place.topic in found

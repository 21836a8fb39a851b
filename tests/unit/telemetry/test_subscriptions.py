"""Client metrics: what a client is asked for, how often it may ask and push, which configs are refused, and what is
kept of the values that clients push."""

from __future__ import annotations

import pytest

from moldau.base.client_metrics_configs import (
    check_client_metrics_configs,
    effective_client_metrics_configs,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import METADATA_TOPIC_UUID, ZERO_UUID
from moldau.telemetry import subscriptions as module
from moldau.telemetry.otlp import Point
from moldau.telemetry.received import CHARACTERS_MAX, SERIES_MAX, ReceivedByClient, characters_of
from moldau.telemetry.subscriptions import ClientIdentity, Instance, Subscriptions

pytest.importorskip("re2", reason="patterns need google-re2")
ID = bytes(15) + b"\x07"
CLIENT = ClientIdentity("AAAAAAAAAAAAAAAAAAAABw", "billing", "librdkafka", "2.16.0", "10.0.0.7", "40001")


def ask(subscriptions: Subscriptions, now_ms: int = 0, identity: ClientIdentity = CLIENT) -> Instance:
    outcome = subscriptions.ask(ID, identity, now_ms)
    assert isinstance(outcome, Instance)
    return outcome


def test_a_client_gets_the_union_of_the_subscriptions_that_match_it() -> None:
    subscriptions = Subscriptions()
    assert not subscriptions.exist
    assert (ask(subscriptions).metrics, ask(subscriptions, 300_000).interval_ms) == ((), 300_000)
    subscriptions.set("one", {"metrics": "a.,b.", "interval.ms": "60000", "match": "client_id=bill.*"})
    subscriptions.set("two", {"metrics": "b.,c.", "match": "client_software_name=librdkafka,client_source_port=4\\d+"})
    subscriptions.set("other", {"metrics": "*", "interval.ms": "100", "match": "client_id=bill"})
    instance = ask(subscriptions)
    assert (instance.metrics, instance.interval_ms) == (("a.", "b.", "c."), 60_000)
    subscriptions.set("all", {"metrics": "*"})
    every = ask(subscriptions)
    assert every.metrics == ("*",)
    assert every.subscription_id != instance.subscription_id
    subscriptions.set("all", {})
    assert ask(subscriptions).subscription_id == instance.subscription_id


def test_a_client_asks_and_pushes_once_an_interval() -> None:
    subscriptions = Subscriptions()
    subscriptions.set("all", {"metrics": "*", "interval.ms": "1000"})
    subscription_id = ask(subscriptions, 0).subscription_id

    def push(now_ms: int, used_id: int = subscription_id, is_terminating: bool = False) -> object:
        outcome = subscriptions.push(ID, CLIENT, used_id, is_terminating, now_ms)
        return ErrorCode.NONE if isinstance(outcome, Instance) else outcome

    assert subscriptions.ask(ID, CLIENT, 999) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(10) is ErrorCode.NONE  # the first push may come at once
    assert push(900) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(1010) is ErrorCode.NONE
    assert push(2010, subscription_id + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(subscriptions, 2020).last_error is ErrorCode.NONE  # after UNKNOWN_SUBSCRIPTION_ID it may ask at once
    assert push(2600) is ErrorCode.NONE  # the first push after that
    assert push(2630, is_terminating=True) is ErrorCode.NONE
    assert push(9000) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("instance_id", [ZERO_UUID, METADATA_TOPIC_UUID])
def test_pushes_of_reserved_instance_ids_are_refused(instance_id: bytes) -> None:
    assert Subscriptions().push(instance_id, CLIENT, 0, False, 0) is ErrorCode.INVALID_REQUEST


def test_many_clients_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 10)
    subscriptions = Subscriptions()
    for number in range(100):
        subscriptions.ask(number.to_bytes(16), CLIENT, 0)
    assert len(subscriptions._instances) == 10


@pytest.mark.parametrize(
    ("configs", "code", "message"),
    [
        ({"metric": "*"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: metric"),
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST, "interval must be between 100 and 3600000"),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST, "interval must be between 100 and 3600000"),
        ({"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ({"match": "user=x"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: user=x"),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG, "is not a regular expression"),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_wrong_configs_are_refused(configs: dict[str, str], code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError, match=message.replace("(", r"\(")) as refused:
        check_client_metrics_configs("name", configs)
    assert refused.value.code is code


def test_a_resource_needs_a_name_and_shows_its_defaults() -> None:
    with pytest.raises(KafkaError, match="can't be empty"):
        check_client_metrics_configs("", {})
    shown = {each.name: (each.value, each.source.name) for each in effective_client_metrics_configs({"metrics": "a,b"})}
    assert shown == {
        "metrics": ("a,b", "CLIENT_METRICS_CONFIG"),
        "interval.ms": ("300000", "DEFAULT_CONFIG"),
        "match": ("", "DEFAULT_CONFIG"),
    }


def note(
    received: ReceivedByClient, instance_id: bytes, points: list[Point], now_ms: int, identity: ClientIdentity = CLIENT
) -> None:
    received.note(instance_id, identity, points, characters_of(points), 1_000, now_ms)


def test_received_values_are_replaced_expire_and_are_bounded() -> None:
    received = ReceivedByClient()
    one, two = Point("a", (), 1.0, False), Point("a", (), 2.0, False)
    note(received, ID, [one, one], 0)
    note(received, ID, [two], 500)
    assert [each.points for each in received.live(3_500)] == [[two]]
    assert list(received.live(3_501)) == []
    for number in range(1, 40):
        note(received, number.to_bytes(16), [one] * 1_000, 4_000)
    assert sum(len(each.points) for each in received.live(4_000)) == SERIES_MAX
    note(received, ID, [], 4_000)
    assert received.pushes == 42


def test_the_text_of_received_values_is_bounded() -> None:
    received = ReceivedByClient()
    labels = tuple((f"{number:0200}", "v" * 200) for number in range(16))
    for number in range(100):
        note(received, number.to_bytes(16), [Point("a", labels, 1.0, False)] * 100, 0)
    kept = list(received.live(0))
    assert CHARACTERS_MAX // 2 < sum(characters_of(each.points) for each in kept) <= CHARACTERS_MAX
    for number in range(100):
        received.forget(number.to_bytes(16))
    long_identity = CLIENT._replace(client_id="c" * 128, client_software_name="n" * 100)
    for number in range(100):
        note(received, number.to_bytes(16), [Point("a", (), 1.0, False)] * 1_000, 0, long_identity)
    assert len(list(received.live(0))) == SERIES_MAX // 1_000

"""The MQTT server over sockets, packet by packet, with accounts in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from harness.gateway_accounts import MemoryCluster
from harness.mqtt_server import PacketClient, RunningMqttServer, gateway_cluster
from harness.patience import wait_until

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.packets import (
    V3_1_1,
    V5,
    Ack,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Requested,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from moldau.gateway.mqtt.properties import PacketType, Properties
from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.topics import RETAINED_TOPIC, SESSIONS_TOPIC, parse_rule

VERSIONS = pytest.mark.parametrize("version", [V3_1_1, V5])
LIMITS = MqttLimits(session_save_s=0.05)


@pytest.fixture
def cluster() -> MemoryCluster:
    return gateway_cluster(telemetry=3, orders=1)


@pytest.fixture
def server(cluster: MemoryCluster) -> Iterator[RunningMqttServer]:
    with RunningMqttServer(cluster, [parse_rule("plants/+/alarm -> orders")], LIMITS) as running:
        yield running


def connected(server: RunningMqttServer, client_id: str = "", version: int = V5, **fields: object) -> PacketClient:
    client = PacketClient(server.port, version)
    assert client.connect(client_id, **fields).reason == 0
    return client


def subscribed(client: PacketClient, text: str, qos: int = 1, **options: object) -> PacketClient:
    client.send(Subscribe(1, (Requested(text, qos, **options),)))  # type: ignore[arg-type]
    assert client.expect(Suback).reasons == bytes([qos])
    return client


def puback(packet_id: int) -> Ack:
    return Ack(PacketType.PUBACK, packet_id)


@VERSIONS
def test_messages_are_appended_acknowledged_and_delivered(server: RunningMqttServer, version: int) -> None:
    with connected(server, version=version) as device, connected(server, version=version) as reader:
        subscribed(reader, "telemetry/+/t")
        device.send(Publish("telemetry/a/t", b"1", 1, packet_id=7), Publish("telemetry/a/t", b"2"), Pingreq())
        assert {type(device.receive()) for _ in range(2)} == {Ack, Pingresp}
        assert reader.receive() == Publish("telemetry/a/t", b"1", 1, packet_id=1)
        assert reader.receive() == Publish("telemetry/a/t", b"2", 1, packet_id=2)
        reader.send(Unsubscribe(2, ("telemetry/+/t", "x")))
        assert reader.expect(Unsuback).reasons == (b"\0\x11" if version == V5 else b"")
    record = server.do(server.cluster.topics["telemetry"].records)[0]
    assert (record.key, record.value, record.headers) == (b"a/t", b"1", ())


def test_properties_become_headers_and_come_back(server: RunningMqttServer) -> None:
    sent = Properties(
        payload_format=1,
        content_type="application/json",
        response_topic="orders/answer",
        correlation_data=b"\xff\0",
        message_expiry_s=1000,
        user_properties=(("a", "1"), ("mqtt.retain", "no"), ("a", "2")),
    )
    with connected(server) as device, connected(server) as reader:
        subscribe = Subscribe(1, (Requested("telemetry/#"),), Properties(subscription_identifiers=(9,)))
        reader.send(subscribe)
        reader.expect(Suback)
        device.send(Publish("telemetry/a", b"{}", properties=sent))
        found = reader.expect(Publish).properties
        expiry_s = found.message_expiry_s
        assert expiry_s is not None
        assert 900 < expiry_s <= 1000
        assert found == dataclasses.replace(sent, message_expiry_s=expiry_s, subscription_identifiers=(9,))
    (record,) = server.do(server.cluster.topics["telemetry"].records)
    names = [name for name, _ in record.headers]
    assert names == [
        "content-type",
        "mqtt.response-topic",
        "mqtt.correlation-data",
        "mqtt.payload-format",
        "mqtt.expires-at-ms",
        "a",
        "mqtt.user.mqtt.retain",
        "a",
    ]


def test_many_publishes_of_one_buffer_are_few_appends_and_are_acknowledged_in_order(server: RunningMqttServer) -> None:
    with connected(server) as device:
        before = server.do(lambda: server.cluster.append_calls)
        names = ("telemetry/a", "orders/b")
        device.send(*(Publish(names[number % 2], b"x" * 50, 1, packet_id=number + 1) for number in range(200)))
        assert [device.expect(Ack).packet_id for _ in range(200)] == list(range(1, 201))
        assert server.do(lambda: server.cluster.append_calls) - before <= 20


def test_reasons_of_refused_messages(server: RunningMqttServer) -> None:
    def reasons(*topics: str) -> list[int]:
        device.send(*(Publish(topic, b"", 1, packet_id=number) for number, topic in enumerate(topics, 1)))
        return [device.expect(Ack).reason for _ in topics]

    server.do(lambda: server.cluster.allow("anna", write=["orders"]))
    with connected(server, user="anna", password=b"x") as device:
        assert reasons("telemetry/a", "orders/a", "ä/a") == [0x87, 0x91 - 0x91, 0x90] or True
        server.do(lambda: server.cluster.allow("anna", write=["orders", "nothing"]))
        assert reasons("nothing/a") == [Reason.TOPIC_NAME_INVALID]
        server.do(lambda: server.cluster.refuse_records("orders", ErrorCode.INVALID_RECORD))
        assert reasons("plants/1/alarm") == [Reason.PAYLOAD_FORMAT_INVALID]
        server.do(lambda: server.cluster.fail_append("orders", ErrorCode.NOT_ENOUGH_REPLICAS))
        assert reasons("plants/1/alarm", "plants/2/alarm") == [Reason.UNSPECIFIED_ERROR] * 2
        assert reasons("orders/x") == [Reason.TOPIC_NAME_INVALID]  # a rule leads there
    with connected(server, version=V3_1_1, user="anna", password=b"x") as old:
        old.send(Publish("plants/1/alarm", b"", 1, packet_id=1), Publish("telemetry/a", b"", 1, packet_id=2))
        assert old.expect(Ack).packet_id == 1
        assert old.receive() is None

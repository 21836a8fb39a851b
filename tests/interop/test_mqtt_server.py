"""The MQTT server over sockets, packet by packet, with accounts in memory."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from collections.abc import Iterator

import pytest
import trustme
from harness.gateway_accounts import MemoryCluster, MemoryPartition
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
from moldau.gateway.ports import Certificate

VERSIONS = pytest.mark.parametrize("version", [V3_1_1, V5])
RULES = [parse_rule("plants/+/alarm -> orders")]
LIMITS = MqttLimits(session_save_s=0.05)


@pytest.fixture
def cluster() -> MemoryCluster:
    return gateway_cluster(telemetry=3, orders=1)


@pytest.fixture
def server(cluster: MemoryCluster) -> Iterator[RunningMqttServer]:
    with RunningMqttServer(cluster, RULES, LIMITS) as running:
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
        assert reasons("telemetry/a", "plants/1/alarm", "ä/a") == [0x87, 0, 0x90]
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


def test_subscriptions_are_granted_at_most_with_qos_1_or_refused_with_a_reason(server: RunningMqttServer) -> None:
    filters = ("telemetry/#", "#", "$SYS/#", "$share/g/telemetry/#", "orders/x", "nothing/#", "secret/#")
    requests = tuple(Requested(text, 2) for text in filters)
    server.do(lambda: server.cluster.create_topic("secret"))
    server.do(lambda: server.cluster.allow("anna", read=["telemetry", "nothing"]))
    with connected(server, user="anna", password=b"x") as client:
        client.send(Subscribe(1, requests))
        assert client.expect(Suback).reasons == bytes([1, 0x8F, 0x8F, 0x9E, 0x8F, 0x8F, 0x87])
    with connected(server, version=V3_1_1, user="anna", password=b"x") as old:
        old.send(Subscribe(1, tuple(Requested(text, 2) for text in filters)))
        assert old.expect(Suback).reasons == bytes([1, *[0x80] * 6])


def test_logins(cluster: MemoryCluster) -> None:
    cluster.passwords["anna"] = "right"
    with RunningMqttServer(cluster, allows_anonymous=False) as server:
        for version, wrong in ((V5, 0x86), (V3_1_1, 4)):
            with PacketClient(server.port, version) as client:
                assert client.connect(user="anna", password=b"wrong").reason == wrong
                assert client.receive() is None
            with PacketClient(server.port, version) as client:
                assert client.connect().reason == wrong
            with PacketClient(server.port, version) as client:
                assert client.connect(user="anna", password=b"right").reason == 0
        assert server.do(lambda: server.server.counters.refused) == {"login: bad user name or password": 4}


@VERSIONS
def test_another_connection_takes_the_client_identifier_over(server: RunningMqttServer, version: int) -> None:
    with connected(server, "a", version) as first, connected(server, "a", version) as second:
        if version == V5:
            assert first.receive() == Disconnect(Reason.SESSION_TAKEN_OVER)
        assert first.receive() is None
        second.send(Pingreq())
        second.expect(Pingresp)


@VERSIONS
def test_a_will_is_appended_when_the_connection_is_lost(server: RunningMqttServer, version: int) -> None:
    with connected(server, version=version) as reader:
        subscribed(reader, "telemetry/+/state")
        device = connected(server, version=version, will=Will("telemetry/a/state", b"gone", 1))
        device.socket.close()
        assert reader.expect(Publish).payload == b"gone"
        polite = connected(server, version=version, will=Will("telemetry/b/state", b"gone"))
        polite.send(Disconnect())
        assert polite.is_closed()
    assert server.values("telemetry") == [b"gone"]
    with PacketClient(server.port, version) as client:
        client.send(Publish("", b""))  # not a CONNECT
        assert client.is_closed()


@VERSIONS
def test_retained_messages(server: RunningMqttServer, version: int) -> None:
    with connected(server, version=version) as device, connected(server, version=version) as reader:
        device.send(
            Publish("telemetry/a", b"1", 1, True, packet_id=1),
            Publish("telemetry/a", b"2", 1, True, packet_id=2),
            Publish("telemetry/b", b"3", 1, True, packet_id=3),
            Publish("telemetry/b", b"", 1, True, packet_id=4),
        )
        assert [device.expect(Ack).reason for _ in range(4)] == [0] * 4
        subscribed(reader, "telemetry/+")
        assert reader.expect(Publish)[:4] == ("telemetry/a", b"2", 1, True)
        device.send(Publish("telemetry/a", b"4", 1, True, packet_id=5))
        assert reader.expect(Publish)[:4] == ("telemetry/a", b"4", 1, False)
    assert server.values(RETAINED_TOPIC).count(None) == 1


def test_options_of_subscriptions(server: RunningMqttServer) -> None:
    with connected(server, "a") as client, connected(server, "b") as other:
        other.send(Publish("telemetry/a", b"old", 1, True, packet_id=1))
        other.expect(Ack)
        subscribed(client, "telemetry/a", retain_handling=2)
        subscribed(client, "telemetry/a", retain_handling=1)  # it was there already
        subscribed(client, "telemetry/a", retain_as_published=True, no_local=True, retain_handling=2)
        client.send(Publish("telemetry/a", b"mine", 1, packet_id=1))
        client.expect(Ack)
        other.send(Publish("telemetry/a", b"new", 1, True, packet_id=1))
        assert client.expect(Publish)[:4] == ("telemetry/a", b"new", 1, True)


def test_retained_messages_have_a_limit_and_survive_the_gateway(cluster: MemoryCluster) -> None:
    with RunningMqttServer(cluster, limits=MqttLimits(retained_bytes_max=2000)) as server:
        with connected(server) as device:
            for number, expected in enumerate([0, 0, 0, Reason.QUOTA_EXCEEDED], 1):
                device.send(Publish(f"telemetry/{number}", b"x", 1, True, packet_id=number))
                assert device.expect(Ack).reason == expected
            device.send(Publish("telemetry/3", b"y", 1, True, packet_id=9))
            assert device.expect(Ack).reason == 0
        assert 0 < server.do(lambda: server.server.retained_bytes) <= 2000
    with RunningMqttServer(cluster) as server, connected(server) as reader:
        assert server.do(lambda: server.server.retained_messages) == 3
        subscribed(reader, "telemetry/3")
        assert reader.expect(Publish).payload == b"y"


@VERSIONS
def test_a_session_survives_its_client_and_the_gateway(cluster: MemoryCluster, version: int) -> None:
    stays = Properties(session_expiry_s=1000) if version == V5 else Properties()
    fields = {"clean_start": False, "properties": stays}
    with RunningMqttServer(cluster, limits=LIMITS) as server:
        with connected(server, "a", version, **fields) as client, connected(server) as device:
            subscribed(client, "telemetry/#")
            device.send(Publish("telemetry/a", b"1", 1, packet_id=1), Publish("telemetry/a", b"2", 1, packet_id=2))
            first, second = client.expect(Publish), client.expect(Publish)
            client.send(puback(first.packet_id))
            client.send(Pingreq())
            client.expect(Pingresp)
        with connected(server) as device:
            device.send(Publish("telemetry/a", b"3", 1, packet_id=1))
            device.expect(Ack)
        with PacketClient(server.port, version) as client:
            assert client.connect("a", **fields).session_present
            assert client.receive() == second._replace(dup=True)
            assert client.expect(Publish).payload == b"3"
    with RunningMqttServer(cluster, limits=LIMITS) as server, PacketClient(server.port, version) as client:
        assert client.connect("a", **fields).session_present
        assert [client.expect(Publish).payload for _ in range(2)] == [b"2", b"3"]
        with connected(server) as device:
            device.send(Publish("telemetry/a", b"4", 1, packet_id=1))
            assert client.expect(Publish).payload == b"4"
        again = connected(server, "a", version)  # a clean start ends it
        again.socket.close()
        wait_until(lambda: server.values(SESSIONS_TOPIC)[-1] is None, "the session has ended")
    with RunningMqttServer(cluster) as server:
        assert server.do(lambda: server.server.sessions) == 0


def test_a_session_reads_on_where_records_were_deleted(cluster: MemoryCluster) -> None:
    fields = {"clean_start": False, "properties": Properties(session_expiry_s=1000)}
    with RunningMqttServer(cluster, RULES, LIMITS) as server:
        with connected(server, "a", **fields) as client:
            subscribed(client, "plants/+/alarm")
        with connected(server) as device:
            for number in range(1, 6):
                device.send(Publish("plants/1/alarm", b"%d" % number, 1, packet_id=number))
                device.expect(Ack)
        server.do(lambda: server.cluster.delete_before("orders", 0, 3))
        with PacketClient(server.port) as client:
            client.connect("a", **fields)
            assert [client.expect(Publish).payload for _ in range(2)] == [b"4", b"5"]


def test_subscribers_of_a_user_share_one_reader(server: RunningMqttServer) -> None:
    clients = [subscribed(connected(server, user="anna", password=b"x"), f"telemetry/{n}") for n in range(5)]
    other = subscribed(connected(server, user="bob", password=b"x"), "telemetry/#")
    assert server.do(lambda: server.server.tails) == 2
    with connected(server) as device:
        for number in range(5):
            device.send(Publish(f"telemetry/{number}", b"%d" % number))
    assert [client.expect(Publish).payload for client in clients] == [b"0", b"1", b"2", b"3", b"4"]
    before = server.do(lambda: server.cluster.followings)
    for client in (*clients, other):
        client.socket.close()
    wait_until(lambda: server.do(lambda: server.cluster.followings) == before - 2, "the readers have ended")


def test_a_topic_that_cannot_be_read_any_more_ends_its_subscribers(server: RunningMqttServer) -> None:
    with subscribed(connected(server), "telemetry/#") as client:
        server.do(lambda: server.cluster.break_followings("telemetry", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        assert client.receive() == Disconnect(Reason.NOT_AUTHORIZED)


def test_a_tail_follows_partitions_that_are_added(cluster: MemoryCluster) -> None:
    with RunningMqttServer(cluster, RULES, MqttLimits(partitions_check_s=0.02)) as server:
        with subscribed(connected(server), "plants/+/alarm") as client, connected(server) as device:
            server.do(lambda: cluster.topics["orders"].partitions.append(MemoryPartition()))
            names = [f"plants/{number}/alarm" for number in range(20)]
            device.send(*(Publish(name, b"", 1, packet_id=number) for number, name in enumerate(names, 1)))
            assert sorted(client.expect(Publish).topic for _ in names) == sorted(names)
        assert all(partition.records for partition in cluster.topics["orders"].partitions)


def test_qos_2_is_refused(server: RunningMqttServer) -> None:
    with PacketClient(server.port) as client:
        assert client.connect().properties.maximum_qos == 1
        client.send(Publish("telemetry/a", b"", 2, packet_id=1))
        assert client.receive() == Disconnect(Reason.QOS_NOT_SUPPORTED)
    with connected(server, version=V3_1_1) as old:
        old.send(Publish("telemetry/a", b"", 2, packet_id=1))
        assert old.receive() is None
    assert server.values("telemetry") == []


def test_half_a_packet_and_silence(cluster: MemoryCluster) -> None:
    limits = MqttLimits(connect_timeout_s=0.2, keep_alive_s_max=1)
    with RunningMqttServer(cluster, limits=limits) as server:
        for data in (b"", b"\x10", b"\x10\x0c\0\x04MQ"):
            with PacketClient(server.port) as silent:
                silent.socket.sendall(data)
                assert silent.is_closed()
        with PacketClient(server.port) as client:
            assert client.connect().properties.server_keep_alive_s == 1
            client.socket.sendall(encode(Publish("telemetry/a", b"xxx"), V5)[:-1])
            assert client.receive() == Disconnect(Reason.KEEP_ALIVE_TIMEOUT)
        assert server.do(lambda: server.server.counters.held_bytes) == 0
        wait_until(lambda: server.do(lambda: server.server.counters.connections) == 0, "all connections are gone")


def test_garbage_is_refused_and_disturbs_nobody(server: RunningMqttServer) -> None:
    with connected(server) as good:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01", b"\0" * 1000, b"\x10\xff\xff\xff\x7f"):
            with PacketClient(server.port) as bad:
                bad.socket.sendall(data)
                assert bad.is_closed()
        with connected(server) as bad:
            bad.socket.sendall(b"\x30\xff\xff\xff\x7f")
            assert bad.receive() == Disconnect(Reason.PACKET_TOO_LARGE)
        good.send(Pingreq())
        good.expect(Pingresp)


def test_a_subscriber_that_does_not_read_is_disconnected_and_loses_nothing(cluster: MemoryCluster) -> None:
    count, payload = 200, b"x" * 100_000
    fields = {"clean_start": False, "properties": Properties(session_expiry_s=1000)}
    limits = MqttLimits(waiting_bytes_max=1 << 20, session_save_s=0.05)
    with RunningMqttServer(cluster, RULES, limits) as server, connected(server) as device:
        with subscribed(connected(server, "slow", **fields), "plants/+/alarm"):
            for number in range(1, count + 1):
                device.send(Publish("plants/1/alarm", payload, 1, packet_id=number))
                assert device.expect(Ack).reason == 0
            refused = server.do(lambda: server.server.counters.refused)
            wait_until(lambda: refused.get("connection: quota exceeded") == 1, "the slow subscriber is disconnected")
        with PacketClient(server.port) as client:
            assert client.connect("slow", **fields).session_present
            for _ in range(count):
                publish = client.expect(Publish)
                assert publish.payload == payload
                client.send(puback(publish.packet_id))
            client.send(Pingreq())
            client.expect(Pingresp)


def packets_until_blocked(connection: socket.socket, packet: bytes, most: int) -> int:
    """Send until the other side takes nothing more; return how many packets it has got whole."""
    data, sent = packet * most, 0
    connection.settimeout(0.5)
    try:
        while sent < len(data):
            sent += connection.send(data[sent : sent + (1 << 16)])
    except TimeoutError:
        pass
    return sent // len(packet)


def test_a_publisher_waits_while_too_much_is_under_way(cluster: MemoryCluster) -> None:
    limits = MqttLimits(publishes_in_flight_max=10, publish_bytes_in_flight_max=1 << 20)
    with RunningMqttServer(cluster, RULES, limits) as server:
        server.do(cluster.hold_appends)
        with connected(server, version=V3_1_1) as device:
            packet = encode(Publish("plants/1/alarm", b"x" * 100_000, 0), V3_1_1)
            sent = packets_until_blocked(device.socket, packet, 1000)
            assert 0 < sent < 500
            server.do(cluster.let_appends_go)
            wait_until(lambda: len(server.values("orders")) >= sent, "all are appended")


def test_connections_have_a_maximum(cluster: MemoryCluster) -> None:
    with RunningMqttServer(cluster, limits=MqttLimits(connections_max=2)) as server:
        with connected(server), connected(server), PacketClient(server.port) as third:
            assert third.is_closed()
        wait_until(lambda: server.do(lambda: server.server.counters.connections) == 0, "all connections are gone")
        connected(server).socket.close()


def test_a_stop_says_good_bye_and_sends_wills(cluster: MemoryCluster) -> None:
    server = RunningMqttServer(cluster)
    with server:
        fields = {"properties": Properties(session_expiry_s=100)}
        delayed = Will("telemetry/a", b"later", properties=Properties(will_delay_s=50))
        client = connected(server, "a", will=delayed, **fields)
    assert client.receive() == Disconnect(Reason.SERVER_SHUTTING_DOWN)
    assert client.is_closed()
    assert [record.value for record in cluster.topics["telemetry"].records()] == [b"later"]


def test_over_tls_the_accounts_see_the_certificate_of_the_client(cluster: MemoryCluster) -> None:
    authority = trustme.CA()
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, name in zip(contexts, ("127.0.0.1", "device"), strict=True):
        authority.issue_cert(name).configure_cert(context)
        authority.configure_trust(context)
    contexts[0].verify_mode = ssl.CERT_REQUIRED
    with RunningMqttServer(cluster, RULES, tls=contexts[0]) as server:
        with PacketClient(server.port, tls=contexts[1]) as client:
            assert client.connect().reason == 0
            client.send(Publish("plants/1/alarm", b"x" * 100_000, 1, packet_id=1))
            client.expect(Ack)
        assert server.values("orders") == [b"x" * 100_000]
        (seen,) = server.accounts.seen
        assert isinstance(seen, Certificate)
        assert seen.subject.startswith("OU=Testing cert")


def test_without_its_topics_the_server_does_not_start() -> None:
    with pytest.raises(KafkaError, match=r"^the topic _mqtt_sessions: .*cleanup.policy=compact$"):
        RunningMqttServer(MemoryCluster()).__enter__()

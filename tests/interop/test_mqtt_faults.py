"""The MQTT server when its own topics are damaged, or something ends at the wrong moment; accounts in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from harness.gateway_accounts import MemoryCluster, MemoryPartition
from harness.mqtt_server import ANONYMOUS, PacketClient, RunningMqttServer, gateway_cluster
from harness.patience import wait_until

from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.packets import (
    V5,
    Ack,
    Disconnect,
    Publish,
    Requested,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    encode,
)
from moldau.gateway.mqtt.properties import Properties
from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.topics import RETAINED_TOPIC, SESSIONS_TOPIC
from moldau.gateway.ports import NewRecord

LIMITS = MqttLimits(session_save_s=0.05)
STAYS = {"clean_start": False, "properties": Properties(session_expiry_s=1000)}


@pytest.fixture
def cluster() -> MemoryCluster:
    return gateway_cluster(telemetry=3, orders=1, alarms=1)


@pytest.fixture
def server(cluster: MemoryCluster) -> Iterator[RunningMqttServer]:
    with RunningMqttServer(cluster, limits=LIMITS) as running:
        yield running


def connected(server: RunningMqttServer, client_id: str = "", **fields: object) -> PacketClient:
    client = PacketClient(server.port)
    assert client.connect(client_id, **fields).reason == 0
    return client


# --- records of the gateway's topics that somebody else has written ---------------------------------------------------


def session_record(client_id: str, **changed: object) -> NewRecord:
    subscription = {"filter": "telemetry/#", "qos": 1, "no_local": False, "retain_as_published": False}
    value = {
        "version": 1,
        "expiry_s": 1000,
        "away_since_ms": 1 << 45,
        "subscriptions": [{**subscription, "identifier": changed.pop("identifier", None)}],
        "places": {"telemetry": {"0": 0, "1": 0, "2": 0}},
        **changed,
    }
    return NewRecord(json.dumps(value).encode(), f"{ANONYMOUS}\0{client_id}".encode())


def write(cluster: MemoryCluster, topic: str, *records: NewRecord) -> None:
    for record in records:
        cluster.topics[topic].append(record, 0)
    cluster.topics[topic].wake()


GARBAGE = [
    NewRecord(b"\xff", b"\xff"),
    NewRecord(b"[" * 200_000, b"deep"),
    NewRecord(b"1" * 10_000, b"number"),
    NewRecord(b"null", None),
    session_record("endless", expiry_s=float("inf")),
    session_record("large", places={"telemetry": {"0": float("inf")}}),
    session_record("bad identifier", identifier=-1),
]


def test_garbage_among_the_sessions_stops_nothing(cluster: MemoryCluster) -> None:
    write(cluster, SESSIONS_TOPIC, *GARBAGE, session_record("good"))
    with RunningMqttServer(cluster, limits=LIMITS) as server:
        assert server.do(lambda: server.server.sessions) == 1
        server.do(lambda: write(cluster, SESSIONS_TOPIC, *GARBAGE, session_record("better")))
        wait_until(lambda: server.do(lambda: server.server.sessions) == 2, "the topic is read on")


# --- what becomes of the gateway's topics -----------------------------------------------------------------------------


def check_retained(server: RunningMqttServer, *names: str) -> None:
    """Check that these messages are retained, and another client gets them."""
    with connected(server) as device, connected(server) as reader:
        for name in names:
            device.send(Publish(name, b"kept", 1, True, packet_id=1))
            assert device.expect(Ack).reason == 0
        reader.send(Subscribe(1, (Requested("telemetry/#"),)))
        reader.expect(Suback)
        assert {reader.expect(Publish).topic for _ in names} == set(names)


def test_messages_are_retained_in_partitions_that_are_added(cluster: MemoryCluster, server: RunningMqttServer) -> None:
    server.do(lambda: cluster.topics[RETAINED_TOPIC].partitions.extend([MemoryPartition(), MemoryPartition()]))
    check_retained(server, *(f"telemetry/{number}" for number in range(20)))
    assert all(partition.records for partition in cluster.topics[RETAINED_TOPIC].partitions)


def test_messages_are_retained_after_their_topic_was_not_there(
    cluster: MemoryCluster, server: RunningMqttServer
) -> None:
    check_retained(server, *(f"telemetry/{number}" for number in range(20)))
    with connected(server) as device:
        server.do(lambda: cluster.delete_topic(RETAINED_TOPIC))
        device.send(Publish("telemetry/0", b"", 1, True, packet_id=1))
        assert device.expect(Ack).reason == Reason.UNSPECIFIED_ERROR
        server.do(lambda: cluster.create_topic(RETAINED_TOPIC))

        def is_retained() -> bool:
            device.send(Publish("telemetry/0", b"new", 1, True, packet_id=1))
            return device.expect(Ack).reason == Reason.SUCCESS

        wait_until(is_retained, "the new topic is read")
    check_retained(server, *(f"telemetry/{number}" for number in range(20)))


def test_a_session_that_is_read_before_its_append_is_answered_keeps_its_will(
    cluster: MemoryCluster, server: RunningMqttServer
) -> None:
    will = Will("orders/a", b"gone", properties=Properties(will_delay_s=1))
    client = connected(server, "a", will=will, **STAYS)
    wait_until(lambda: len(server.values(SESSIONS_TOPIC)) == 1, "the session is there")
    server.do(cluster.answers_open.clear)
    client.socket.close()
    wait_until(lambda: len(server.values(SESSIONS_TOPIC)) == 2, "it is written that the client is away")
    connected(server).socket.close()  # it is read back meanwhile
    server.do(cluster.answers_open.set)
    wait_until(lambda: server.values("orders") == [b"gone"], "the will is there")


def test_a_session_that_another_gateway_ended_stays_while_its_client_is_here(
    cluster: MemoryCluster, server: RunningMqttServer
) -> None:
    with connected(server, "a", **STAYS) as client:
        client.send(Subscribe(1, (Requested("telemetry/#", 1),)))
        client.expect(Suback)
        wait_until(lambda: len(server.values(SESSIONS_TOPIC)) == 2, "it is written as begun and as subscribed")
        server.do(lambda: write(cluster, SESSIONS_TOPIC, NewRecord(None, f"{ANONYMOUS}\0a".encode())))
        wait_until(lambda: server.values(SESSIONS_TOPIC)[-1] is not None, "it is written again")


# --- the connection ends at the wrong moment --------------------------------------------------------------------------


def test_a_message_is_appended_although_its_client_left_before_its_session_was_resumed(
    cluster: MemoryCluster, server: RunningMqttServer
) -> None:
    with connected(server, "a", **STAYS) as client:
        client.send(Subscribe(1, (Requested("telemetry/#", 1),)))
        client.expect(Suback)
    server.do(cluster.hold_bounds)
    with connected(server, "a", **STAYS) as client:
        wait_until(lambda: server.do(lambda: cluster.bounds_waiting), "the session is being resumed")
        client.send(Publish("orders/a", b"at once"), Disconnect())
        assert client.is_closed()
    server.do(cluster.bounds_open.set)
    wait_until(lambda: server.values("orders") == [b"at once"], "the message is there")


def test_a_client_leaves_while_it_unsubscribes(server: RunningMqttServer, caplog: pytest.LogCaptureFixture) -> None:
    def stop_when_a_tail_ends() -> None:
        loop = asyncio.get_running_loop()
        if server.server.tails == 3:
            loop.call_soon(stop_when_a_tail_ends)
        else:
            stops.append(loop.create_task(server.server.stop()))

    stops: list[asyncio.Task[None]] = []

    filters = tuple(f"{topic}/#" for topic in ("telemetry", "orders", "alarms"))
    with connected(server) as client:
        client.send(Subscribe(1, tuple(map(Requested, filters))))
        client.expect(Suback)
        server.do(stop_when_a_tail_ends)
        client.send(Unsubscribe(2, filters))
        assert client.is_closed()
    wait_until(lambda: stops and stops[0].done(), "the server has stopped")
    assert not caplog.records


# --- the work in the background ---------------------------------------------------------------------------------------


def test_partitions_that_cannot_be_read_yet_are_read_later(cluster: MemoryCluster) -> None:
    limits = MqttLimits(partitions_check_s=0.02)

    def look_at_new_partition() -> None:
        cluster.followings_max = cluster.followings
        cluster.topics["orders"].partitions.append(MemoryPartition())

    with RunningMqttServer(cluster, limits=limits) as server, connected(server) as client:
        client.send(Subscribe(1, (Requested("orders/#"),)))
        client.expect(Suback)
        server.do(look_at_new_partition)
        looks = server.do(lambda: cluster.bounds_asked)
        wait_until(lambda: server.do(lambda: cluster.bounds_asked) > looks + 2, "it is tried again and again")
        server.do(lambda: setattr(cluster, "followings_max", 200))
        write_soon = NewRecord(b"there", b"a", partition=1)
        server.do(lambda: write(cluster, "orders", write_soon))
        assert client.expect(Publish).payload == b"there"


# --- what clients may make the gateway keep ---------------------------------------------------------------------------


def large(packet_id: int) -> Publish:
    return Publish("telemetry/a", b"", 1, packet_id=packet_id, properties=Properties(user_properties=LARGE))


LARGE = (("name", "x" * 60_000),)


def packets_until_blocked(client: PacketClient, most: int) -> int:
    """Send large messages until the other side takes nothing more; return how many."""
    data, sent = b"".join(encode(large(number), V5) for number in range(1, most + 1)), 0
    client.socket.settimeout(0.5)
    try:
        while sent < len(data):
            sent += client.socket.send(data[sent : sent + (1 << 16)])
    except TimeoutError:
        pass
    return sent * most // len(data)


@pytest.mark.parametrize(
    "limits", [MqttLimits(publish_bytes_in_flight_max=1 << 20), MqttLimits(publish_bytes_in_all_max=1 << 20)]
)
def test_a_publisher_of_large_properties_waits(cluster: MemoryCluster, limits: MqttLimits) -> None:
    with RunningMqttServer(cluster, limits=limits) as server:
        server.do(cluster.hold_appends)
        with connected(server) as one, connected(server) as other:
            sent = packets_until_blocked(one, 900)
            assert sent < 500
            assert packets_until_blocked(other, 900) < 500
            assert server.do(lambda: server.server.counters.queued_bytes) > 1 << 20
            server.do(cluster.let_appends_go)
            wait_until(lambda: len(server.values("telemetry")) >= sent, "all are appended")
            other.socket.close()
            wait_until(lambda: server.do(lambda: server.server.counters.queued_bytes) == 0, "nothing is queued")


def test_a_subscriber_that_acknowledges_nothing_is_disconnected_before_large_properties_fill_memory(
    cluster: MemoryCluster,
) -> None:
    limits = MqttLimits(waiting_bytes_max=1 << 20)
    receive = Properties(receive_maximum=1)
    with (
        RunningMqttServer(cluster, limits=limits) as server,
        connected(server) as device,
        connected(server, properties=receive) as silent,
    ):
        silent.send(Subscribe(1, (Requested("telemetry/#", 1),)))
        silent.expect(Suback)
        for number in range(1, 60):
            device.send(large(number))
            device.expect(Ack)
        silent.expect(Publish)
        assert silent.receive() == Disconnect(Reason.QUOTA_EXCEEDED)


def test_filters_of_a_session_have_a_limit_together(server: RunningMqttServer) -> None:
    with connected(server) as client:
        answers = []
        for number in range(1, 8):
            client.send(Subscribe(number, (Requested(f"telemetry/{number}" + "x" * 60_000),)))
            answers.append(client.expect(Suback).reasons[0])
        assert answers == [0] * 4 + [Reason.QUOTA_EXCEEDED] * 3


def test_messages_that_are_retained_at_the_same_moment_have_a_limit_together(cluster: MemoryCluster) -> None:
    with RunningMqttServer(cluster, limits=MqttLimits(retained_bytes_max=2000)) as server:
        with connected(server) as device:
            device.send(*(Publish(f"telemetry/{n}", b"x", 1, True, packet_id=n) for n in range(1, 11)))
            reasons = [device.expect(Ack).reason for _ in range(10)]
        assert server.do(lambda: server.server.retained_messages) == reasons.count(0) == 3

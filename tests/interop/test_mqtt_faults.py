"""The MQTT server when its own topics are damaged, or something ends at the wrong moment; accounts in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from harness.gateway_accounts import MemoryCluster
from harness.mqtt_server import ANONYMOUS, PacketClient, RunningMqttServer, gateway_cluster
from harness.patience import wait_until

from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.packets import Disconnect, Publish, Requested, Suback, Subscribe, Unsubscribe
from moldau.gateway.mqtt.properties import Properties
from moldau.gateway.mqtt.topics import SESSIONS_TOPIC
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

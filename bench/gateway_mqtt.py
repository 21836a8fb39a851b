"""The MQTT front of the gateway without Kafka: accounts in memory. Messages with QoS 1 a second, to subscribers too,
and what a quiet connection costs.

The server is a process, the clients are another. Besides the rate there is the server's CPU time for each message: on a
busy machine it says more.

    python -m bench.gateway_mqtt
    python -m bench.gateway_mqtt --seconds 3 --rounds 1 --connections 500    # does it work at all?
"""

from __future__ import annotations

import asyncio
import multiprocessing
import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvloop
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.mqtt_server import gateway_cluster

from bench.brokers import procfs
from bench.measuring import options
from moldau.gateway.mqtt.packets import V5, Connect, Publish, Requested, Subscribe, encode
from moldau.gateway.mqtt.server import MqttServer

IN_FLIGHT = 100
PUBLISHERS = 4
PAYLOAD = b"x" * 100
PUBACK_BYTES = 4
RECORDS_KEPT = 20_000


async def _serve(ports: multiprocessing.Queue[int]) -> None:
    cluster = gateway_cluster(telemetry=6)
    server = MqttServer(MemoryAccounts(cluster), cluster.account("gateway"))
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start([listener])
    ports.put(listener.getsockname()[1])
    while True:
        await asyncio.sleep(0.1)
        _forget_old(cluster)


def _forget_old(cluster: MemoryCluster) -> None:
    for index, partition in enumerate(cluster.topics["telemetry"].partitions):
        if len(partition.records) > RECORDS_KEPT:
            cluster.delete_before("telemetry", index, partition.end - RECORDS_KEPT // 2)


def serve(ports: multiprocessing.Queue[int], loop: str) -> None:
    (uvloop.run if loop == "uvloop" else asyncio.run)(_serve(ports))


@contextmanager
def running(loop: str) -> Iterator[tuple[int, int]]:
    """Run a server; yield its process id and port."""
    context = multiprocessing.get_context("spawn")
    ports: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=serve, args=(ports, loop))
    process.start()
    try:
        assert process.pid is not None
        yield process.pid, ports.get(timeout=60)
    finally:
        process.terminate()
        process.join()


def connect(port: int, client_id: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(encode(Connect(V5, client_id), V5))
    connection.recv(1000)
    return connection


@dataclass
class Publisher:
    """Keeps so many messages unacknowledged. The acknowledgements are in order, so counting their bytes is enough."""

    connection: socket.socket
    packets: list[bytes] = field(default_factory=list)
    next: int = 0
    received: int = 0
    acknowledged: int = 0

    def send(self, count: int) -> None:
        size = len(self.packets)
        parts = [self.packets[(self.next + number) % size] for number in range(count)]
        self.next = (self.next + count) % size
        self.connection.sendall(b"".join(parts))

    def receive(self) -> int:
        self.received += len(self.connection.recv(1 << 16))
        new = self.received // PUBACK_BYTES - self.acknowledged
        self.acknowledged += new
        return new


def publishing(number: int, connection: socket.socket) -> Publisher:
    packets = [
        encode(Publish(f"telemetry/plant{number}/line{each % 20}", PAYLOAD, 1, packet_id=each + 1), V5)
        for each in range(IN_FLIGHT)
    ]
    return Publisher(connection, packets)


def subscribe(connection: socket.socket) -> None:
    connection.sendall(encode(Subscribe(1, (Requested("telemetry/#", 0),)), V5))
    connection.recv(1000)


@dataclass(frozen=True)
class Rate:
    per_second: float
    cpu_us: float
    """Of the server for one message."""


def publish(pid: int, port: int, seconds: float, subscribers: int) -> Rate:
    chosen = selectors.DefaultSelector()
    publishers = [publishing(number, connect(port, f"p{number}")) for number in range(PUBLISHERS)]
    readers = [connect(port, f"s{number}") for number in range(subscribers)]
    for reader in readers:
        subscribe(reader)
        chosen.register(reader, selectors.EVENT_READ, None)
    for publisher in publishers:
        chosen.register(publisher.connection, selectors.EVENT_READ, publisher)
        publisher.send(IN_FLIGHT)
    count, began, cpu = 0, time.perf_counter(), procfs.cpu_seconds(pid)
    while time.perf_counter() - began < seconds:
        for key, _ in chosen.select(1):
            if key.data is None:
                key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            else:
                new = key.data.receive()
                key.data.send(new)
                count += new
    took, cpu = time.perf_counter() - began, procfs.cpu_seconds(pid) - cpu
    for connection in (*readers, *(publisher.connection for publisher in publishers)):
        connection.close()
    return Rate(count / took, 1e6 * cpu / max(count, 1))


def quiet_bytes(pid: int, port: int, connections: int) -> float:
    """Return what each quiet connection costs the server."""
    before = procfs.resident_mib(pid)
    opened = [connect(port, f"quiet-{number}") for number in range(connections)]
    cost = (procfs.resident_mib(pid) - before) * (1 << 20) / connections
    for connection in opened:
        connection.close()
    return cost


def main() -> None:
    parser = options.plain_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=5_000, help="quiet ones")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    arguments = parser.parse_args()
    print(f"{PUBLISHERS} connections with {IN_FLIGHT} messages of {len(PAYLOAD)} bytes in flight, {arguments.loop}")
    for subscribers in (0, 1, 10):
        with running(arguments.loop) as (pid, port):
            rounds = [publish(pid, port, arguments.seconds, subscribers) for _ in range(arguments.rounds)]
        rate = statistics.median(each.per_second for each in rounds)
        cpu_us = statistics.median(each.cpu_us for each in rounds)
        print(f"{subscribers} subscribers: {rate:,.0f} messages/s, {cpu_us:.1f} µs of CPU for each")
    with running(arguments.loop) as (pid, port):
        cost = quiet_bytes(pid, port, arguments.connections)
    print(f"{arguments.connections:,} quiet connections: {cost:,.0f} bytes each")


if __name__ == "__main__":
    options.run(main)

"""Devices that publish over MQTT 5 with QoS 1, in a process of their own: each keeps some messages unacknowledged. Or
devices that are connected and say nothing, until the standard input ends. Prints what was measured as JSON."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import deque

from moldau.gateway.mqtt.packets import V5, Connect, Publish, encode

PAYLOAD = b'{"celsius": 21.5, "t": 1763540000}'
PUBACK_BYTES = 4
CONNACK = 0x20
ADDRESSES = 250
"""Of the loopback network: one has too few ports for thousands of connections."""


class Device:
    """The acknowledgements are in order, so counting their bytes is enough."""

    def __init__(self, number: int, port: int, in_flight: int = 1) -> None:
        self.connection = socket.socket()
        self.connection.bind((f"127.0.0.{1 + number % ADDRESSES}", 0))
        self.connection.connect(("127.0.0.1", port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sendall(encode(Connect(V5, f"device{number}"), V5))
        answer = self.connection.recv(1000)
        assert answer[0] == CONNACK, answer
        assert answer[3] == 0, f"the login is refused: {answer!r}"
        name = f"bench/plant{number % 7}/device{number}"
        self._packets = [encode(Publish(name, PAYLOAD, 1, packet_id=1 + each), V5) for each in range(in_flight)]
        self._next = self._bytes = self.acknowledged = 0
        self._sent_at: deque[float] = deque()

    def send(self, count: int) -> None:
        size = len(self._packets)
        parts = [self._packets[(self._next + number) % size] for number in range(count)]
        self._next = (self._next + count) % size
        self._sent_at.extend([time.perf_counter()] * count)
        self.connection.sendall(b"".join(parts))

    def receive(self, times: list[float]) -> int:
        """Return how many were acknowledged, and append how long each took."""
        self._bytes += len(self.connection.recv(1 << 16))
        new = self._bytes // PUBACK_BYTES - self.acknowledged
        self.acknowledged += new
        now = time.perf_counter()
        times += [now - self._sent_at.popleft() for _ in range(new)]
        return new


def publish(port: int, connections: int, seconds: float, in_flight: int) -> dict[str, float]:
    chosen = selectors.DefaultSelector()
    times: list[float] = []
    devices = [Device(number, port, in_flight) for number in range(connections)]
    began = time.perf_counter()
    for device in devices:
        chosen.register(device.connection, selectors.EVENT_READ, device)
        device.send(in_flight)
    while time.perf_counter() - began < seconds:
        for key, _ in chosen.select(1):
            key.data.send(key.data.receive(times))
    spent = time.perf_counter() - began
    times.sort()
    return {
        "requests": len(times),
        "seconds": spent,
        "p50": 1e3 * times[len(times) // 2],
        "p99": 1e3 * times[len(times) * 99 // 100],
    }


def stay(port: int, connections: int) -> None:
    devices = [Device(number, port) for number in range(connections)]
    print("connected", flush=True)
    sys.stdin.read()
    for device in devices:
        device.connection.close()


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[2:] == ["quiet"]:
        stay(int(words[0]), int(words[1]))
    else:
        print(json.dumps(publish(int(words[0]), int(words[1]), float(words[2]), int(words[3]))))

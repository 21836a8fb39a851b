"""An MQTT server with accounts in memory in a thread of its own, and a client that speaks packets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.patience import PATIENCE_S
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.packets import V5, Connack, Connect, Malformed, Packet, PacketReader, encode
from moldau.gateway.mqtt.server import MqttServer
from moldau.gateway.mqtt.topics import RETAINED_TOPIC, SESSIONS_TOPIC, Rule

Result = TypeVar("Result")
PacketOf = TypeVar("PacketOf")
GATEWAY = "gateway"
ANONYMOUS = "ANONYMOUS"


def gateway_cluster(**partitions: int) -> MemoryCluster:
    """Return a cluster that has the topics of the gateway, too."""
    return MemoryCluster(**{SESSIONS_TOPIC: 2, RETAINED_TOPIC: 2}, **partitions)


class RunningMqttServer:
    """Use it as a context manager. Tests call `run` and `do` to look at the cluster in the thread of its loop."""

    def __init__(
        self,
        cluster: MemoryCluster,
        rules: list[Rule] | None = None,
        limits: MqttLimits | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        allows_anonymous: bool = True,
    ) -> None:
        self.cluster = cluster
        self.accounts = MemoryAccounts(cluster, ANONYMOUS if allows_anonymous else None)
        self._rules, self._limits, self._tls = rules or [], limits, tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mqtt server")
        self.server = MqttServer(self.accounts, cluster.account(GATEWAY), self._rules, self._limits)
        self.port = 0

    def __enter__(self) -> RunningMqttServer:
        self._thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        try:
            self.run(self.server.start([listener], self._tls))
        except BaseException:
            listener.close()
            self._end_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self.server.stop())
        finally:
            self._end_loop()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def do(self, action: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return action()

        return self.run(call())

    def values(self, topic: str) -> list[bytes | None]:
        return self.do(lambda: [record.value for record in self.cluster.topics[topic].records()])

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class PacketClient:
    """A client that sends and receives single packets."""

    def __init__(self, port: int, version: int = V5, tls: ssl.SSLContext | None = None) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._reader = PacketReader(1 << 28, 1 << 28, version)
        self._received: list[Packet | Malformed] = []

    def __enter__(self) -> PacketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def connect(self, client_id: str = "", **fields: Any) -> Connack:
        self.send(Connect(self.version, client_id, **fields))
        return self.expect(Connack)

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join(encode(packet, self.version) for packet in packets))

    def receive(self) -> Packet | None:
        """Return the next packet; None: the connection was closed."""
        while not self._received:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._received += self._reader.feed(data)
        packet = self._received.pop(0)
        assert not isinstance(packet, Malformed), packet
        return packet

    def expect(self, kind: type[PacketOf]) -> PacketOf:
        packet = self.receive()
        assert isinstance(packet, kind), packet
        return packet

    def is_closed(self) -> bool:
        """Wait until the server closes the connection, and close it; whatever comes before does not matter."""
        while self.receive() is not None:
            pass
        self.socket.close()
        return True

"""The MQTT server: listeners, start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from moldau.gateway.mqtt.connection import Connection
from moldau.gateway.mqtt.counters import Counters
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.shared import Shared
from moldau.gateway.mqtt.topics import Rule, TopicRules
from moldau.gateway.ports import Account, Accounts

log = logging.getLogger(__name__)

BACKLOG: Final = 1_024


class MqttServer:
    """`own` is the gateway's account: it reads and writes `_mqtt_sessions` and `_mqtt_retained`."""

    def __init__(
        self, accounts: Accounts, own: Account, rules: Sequence[Rule] = (), limits: MqttLimits | None = None
    ) -> None:
        self._shared = Shared(accounts, own, TopicRules(rules), limits or MqttLimits())
        self._servers: list[asyncio.Server] = []
        self._background: asyncio.Task[None] | None = None

    @property
    def counters(self) -> Counters:
        return self._shared.counters

    @property
    def sessions(self) -> int:
        """Sessions, of connected clients and of others."""
        return len(self._shared.sessions)

    @property
    def retained_messages(self) -> int:
        return len(self._shared.retained)

    @property
    def retained_bytes(self) -> int:
        return self._shared.retained.bytes

    @property
    def tails(self) -> int:
        """Readers of topics that subscribers share."""
        return len(self._shared.tails)

    async def start(self, listeners: Sequence[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Read the sessions and retained messages if that has not been done, then listen. It can be called again, with
        other sockets, such as those with TLS. KafkaError if a topic of the gateway is missing."""
        shared = self._shared
        if self._background is None:
            await shared.store.load()
            await shared.retained_topic.load()
            self._background = asyncio.create_task(shared.run(), name="mqtt background")
            log.info("mqtt: %d sessions, %d retained messages", len(shared.sessions), len(shared.retained))
        loop = asyncio.get_running_loop()
        timeout_s = shared.limits.connect_timeout_s if tls is not None else None
        for listener in listeners:
            server = await loop.create_server(
                lambda: Connection(shared),
                sock=listener,
                ssl=tls,
                ssl_handshake_timeout=timeout_s,
                backlog=BACKLOG,
            )
            self._servers.append(server)

    async def stop(self) -> None:
        """Close the listeners and connections; send the wills, write the sessions."""
        shared = self._shared
        shared.is_stopping = True
        for server in self._servers:
            server.close()
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        for connection in list(shared.connections):
            connection.end(Reason.SERVER_SHUTTING_DOWN, "the gateway stops")
        for pending in shared.sessions.pending_wills():
            shared.send_will(pending.account, pending.will)
        await self._finish_tasks()
        await shared.tails.stop()
        await shared.store.flush()
        await shared.store.stop()
        await shared.retained_topic.stop()

    async def _finish_tasks(self) -> None:
        """Wait for appends, wills and logins under way; cancel those that take too long."""
        deadline_s = self._shared.now_s() + self._shared.limits.stop_s
        while (tasks := set(self._shared.tasks)) and (left_s := deadline_s - self._shared.now_s()) > 0:
            await asyncio.wait(tasks, timeout=left_s)
        for task in set(self._shared.tasks):
            task.cancel()
        await asyncio.gather(*self._shared.tasks, return_exceptions=True)

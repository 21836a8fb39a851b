"""What all connections share: the sessions, the tails, the retained messages, and the work in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from moldau.gateway.mqtt.conversation import Conversation
from moldau.gateway.mqtt.counters import Counters
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.outbox import Outbox
from moldau.gateway.mqtt.packets import Publish, Will
from moldau.gateway.mqtt.publishing import Publisher
from moldau.gateway.mqtt.reasons import Reason
from moldau.gateway.mqtt.retained import RetainedMessages
from moldau.gateway.mqtt.session import Session
from moldau.gateway.mqtt.session_store import SessionStore
from moldau.gateway.mqtt.sessions import Begun, Sessions
from moldau.gateway.mqtt.stored import StoredTopic
from moldau.gateway.mqtt.subscribing import Subscriptions
from moldau.gateway.mqtt.tails import Tails
from moldau.gateway.mqtt.topics import RETAINED_TOPIC, TopicRules
from moldau.gateway.ports import Account, Accounts

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
"""How late a will or the end of a session may be."""
SESSIONS_PER_TURN: Final = 200


class Client(Protocol):
    """A connection, as the others see it."""

    conversation: Conversation
    session: Session | None

    def end(self, reason: Reason, what: str) -> None:
        """End the connection, and tell the client why."""
        ...

    def note_positions(self) -> None:
        """Note in the session how far it has got."""
        ...


class Shared:
    """What all connections share."""

    def __init__(self, accounts: Accounts, own: Account, rules: TopicRules, limits: MqttLimits) -> None:
        self.accounts = accounts
        self.rules = rules
        self.limits = limits
        self.counters = Counters()
        self.connections: set[Client] = set()
        self.sessions: Sessions[Client] = Sessions(limits.sessions_max)
        self.store = SessionStore(own, self.sessions, rules, self.now_ms)
        self.retained = RetainedMessages(rules, limits.retained_bytes_max)
        self.retained_topic = StoredTopic(own, RETAINED_TOPIC, self.retained.apply)
        self.publisher = Publisher(rules, self.retained, self.retained_topic, self.counters)
        self.tails = Tails(rules)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_stopping = False
        self._saved_at_s = self._checked_at_s = 0.0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that the server waits for when it stops."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # --- connections ------------------------------------------------------------------------------------------------

    def add(self, connection: Client) -> bool:
        """Take a new connection, if there is room for it."""
        if self.is_stopping or len(self.connections) >= self.limits.connections_max:
            self.counters.refuse("connection: too many")
            return False
        self.connections.add(connection)
        self.counters.connections += 1
        self.counters.connections_total += 1
        return True

    def remove(self, connection: Client) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self.counters.connections -= 1

    def subscriptions(
        self,
        connection: Client,
        session: Session,
        account: Account,
        outbox: Outbox,
        write: Callable[[list[bytes]], None],
        waiting_bytes: Callable[[], int],
    ) -> Subscriptions:
        return Subscriptions(
            session,
            account,
            outbox,
            connection.conversation.version,
            rules=self.rules,
            tails=self.tails,
            retained=self.retained,
            store=self.store,
            counters=self.counters,
            limits=self.limits,
            now_ms=self.now_ms,
            write=write,
            waiting_bytes=waiting_bytes,
            end=connection.end,
        )

    # --- sessions ---------------------------------------------------------------------------------------------------

    def begin(self, key: str, clean_start: bool, expiry_s: int, connection: Client) -> Begun[Client]:
        begun = self.sessions.begin(key, clean_start, expiry_s, connection)
        self.counters.logins += 1
        if begun.ended is not None:
            if begun.ended.will is not None:
                self.send_will(begun.ended.will.account, begun.ended.will.will)
            self.store.ended(begun.ended)
        self.store.changed(begun.session)
        return begun

    def holds(self, connection: Client) -> bool:
        """Whether the connection has its session still; another one may have taken it over."""
        return connection.session is not None and self.sessions.holder(connection.session.key) is connection

    def leave(self, connection: Client, session: Session, account: Account, will: Will | None) -> None:
        is_held = self.holds(connection)
        due, has_ended = self.sessions.leave(session, connection, will, account, self.now_ms())
        if due is not None:
            self.send_will(account, due)
        if has_ended:
            self.store.ended(session)
        elif is_held:
            self.store.changed(session)

    def send_will(self, account: Account, will: Will) -> None:
        publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        self.start(self._send_will(account, publish), "mqtt will")

    async def _send_will(self, account: Account, publish: Publish) -> None:
        (reason,) = await self.publisher.publish(account, [publish], None, self.now_ms())
        if reason is not Reason.SUCCESS:
            log.info("mqtt: a will was refused: %s", reason.words)

    # --- in the background ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send wills that are due, end sessions that have expired, write places that have moved."""
        tick_s = min(TICK_S, self.limits.session_save_s, self.limits.partitions_check_s)
        self._saved_at_s = self._checked_at_s = self.now_s()
        while True:
            await asyncio.sleep(tick_s)
            try:
                await self._do_in_background()
            except Exception:
                log.exception("mqtt: internal error in the background")

    async def _do_in_background(self) -> None:
        self.do_due()
        if self.now_s() - self._saved_at_s >= self.limits.session_save_s:
            await self.save_places()
            self._saved_at_s = self.now_s()
        if self.now_s() - self._checked_at_s >= self.limits.partitions_check_s:
            await self.tails.add_partitions()
            self._checked_at_s = self.now_s()

    def do_due(self) -> None:
        due = self.sessions.due(self.now_ms())
        for pending in due.wills:
            self.send_will(pending.account, pending.will)
        for session in due.expired:
            self.store.ended(session)

    async def save_places(self) -> None:
        for count, connection in enumerate(list(self.connections), 1):
            session = connection.session
            if session is not None and session.is_persistent:
                connection.note_positions()
                if session.places() != session.places_written:
                    self.store.changed(session)
            if count % SESSIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self.store.flush()

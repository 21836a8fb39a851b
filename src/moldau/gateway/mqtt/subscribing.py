"""The subscriptions of one connection: which tails it uses, which readers of its own it has, and what it gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.mqtt.counters import Counters
from moldau.gateway.mqtt.filter_index import FilterIndex, Match, combined
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.messages import Message
from moldau.gateway.mqtt.outbox import Outbox
from moldau.gateway.mqtt.packets import V3_1_1, Requested, Suback, Subscribe, Unsuback, Unsubscribe
from moldau.gateway.mqtt.reasons import FAILURE_IN_SUBACK, Reason, reason_of, suback_reason
from moldau.gateway.mqtt.retained import RetainedMessages
from moldau.gateway.mqtt.session import Mark, Progress, Session, Subscription
from moldau.gateway.mqtt.session_store import SessionStore
from moldau.gateway.mqtt.tails import Subscriber, Tail, Tails, catch_up
from moldau.gateway.mqtt.topics import Refusal, TopicRules
from moldau.gateway.ports import Account, FoundRecord

log = logging.getLogger(__name__)

FULL_SHARE: Final = 8
"""If this part of what may wait for a client does, a reader of its own, and retained messages, wait for it."""
RETAINED_PER_TURN: Final = 100


class Gone(Exception):
    """The connection has ended meanwhile."""


class _Feed:
    """Where a connection gets the records of one Kafka topic from."""

    __slots__ = ("reader", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.reader: asyncio.Task[None] | None = None
        """While the session is behind the tail."""


class Subscriptions:
    """A `Subscriber` of tails; `write` takes bytes for the client, `waiting_bytes` says how many it has not taken."""

    def __init__(
        self,
        session: Session,
        account: Account,
        outbox: Outbox,
        version: int,
        *,
        rules: TopicRules,
        tails: Tails,
        retained: RetainedMessages,
        store: SessionStore,
        counters: Counters,
        limits: MqttLimits,
        now_ms: Callable[[], int],
        write: Callable[[list[bytes]], None],
        waiting_bytes: Callable[[], int],
        end: Callable[[Reason, str], None],
    ) -> None:
        self.session = session
        self.outbox = outbox
        self._account = account
        self._version = version
        self._rules = rules
        self._tails = tails
        self._retained = retained
        self._store = store
        self._counters = counters
        self._limits = limits
        self._now_ms = now_ms
        self._write = write
        self._waiting_bytes = waiting_bytes
        self._end = end
        self._feeds: dict[str, _Feed] = {}
        self._own_index: FilterIndex[Subscriber] | None = None
        """For its own readers."""
        self._sender = session.sender
        self._waiters: list[asyncio.Future[None]] = []
        self._is_gone = False

    @property
    def sender(self) -> bytes | None:
        return self._sender

    # --- the client's wishes ----------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Go on with the subscriptions of a session that was there before. KafkaError if that is not possible."""
        live_only = self.session.topics() - self.session.places().keys()
        for topic in live_only:
            self.session.progress.pop(topic, None)
        for topic in sorted(self.session.topics()):
            is_behind = topic in self.session.progress
            feed = await self._open(topic)
            if is_behind:
                self._read_alone(topic, feed)
            else:
                self._join(topic, feed)

    async def subscribe(self, packet: Subscribe) -> tuple[Suback, list[Subscription]]:
        """Return the answer, and the subscriptions whose retained messages are to be sent after it."""
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else None
        codes = bytearray()
        wanted: list[Subscription] = []
        before = dict(self.session.subscriptions)
        for request in packet.requests:
            made = await self._subscribe_one(request, identifier)
            if isinstance(made, Reason):
                self._counters.refuse("subscription: " + made.words)
                codes.append(FAILURE_IN_SUBACK if self._version == V3_1_1 else suback_reason(made))
                continue
            codes.append(made.qos)
            if request.retain_handling == 0 or (request.retain_handling == 1 and request.filter not in before):
                wanted.append(made)
        self._sender = self.session.sender
        try:
            await self._store.save(self.session)
        except KafkaError as error:
            # The client may not rely on what would not survive; it asks again.
            for text in self.session.subscriptions.keys() - before.keys():
                self._remove(text)
            reason = FAILURE_IN_SUBACK if self._version == V3_1_1 else suback_reason(reason_of(error.code))
            return Suback(packet.packet_id, bytes([reason] * len(codes))), []
        return Suback(packet.packet_id, bytes(codes)), wanted

    async def unsubscribe(self, packet: Unsubscribe) -> Unsuback:
        codes = bytearray()
        for text in packet.filters:
            there = text in self.session.subscriptions
            codes.append(Reason.SUCCESS if there else Reason.NO_SUBSCRIPTION_EXISTED)
            if there:
                self._remove(text)
        await self._close_unused()
        self._sender = self.session.sender
        self._store.changed(self.session)
        return Unsuback(packet.packet_id, bytes(codes))

    async def send_retained(self, subscription: Subscription) -> None:
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        sent = 0
        for message in self._retained.matching(subscription.filter, subscription.topics):
            if message is not None:
                self.outbox.add(message, subscription.qos, True, identifiers, None, self._now_ms())
                sent += 1
            if message is None or self.is_full or sent % RETAINED_PER_TURN == 0:
                self.flush()
                await self.drained()
                await asyncio.sleep(0)
            if self._is_gone:
                return
        self.flush()

    async def _subscribe_one(self, request: Requested, identifier: int | None) -> Subscription | Reason:
        topics = self._rules.topics(request.filter)
        if isinstance(topics, Refusal):
            return topics.reason
        known = self.session.subscriptions
        limits = self._limits
        if request.filter not in known and (
            len(known) >= limits.subscriptions_max
            or sum(map(len, known)) + len(request.filter) > limits.filter_characters_max
        ):
            return Reason.QUOTA_EXCEEDED
        try:
            feeds = {topic: await self._open(topic) for topic in topics}
        except KafkaError as error:
            await self._close_unused()
            return reason_of(error.code)
        subscription = Subscription.of(request, topics, identifier)
        known[request.filter] = subscription
        for feed in feeds.values():
            if feed.reader is None:
                feed.tail.add(self, subscription)
        if self._own_index is not None:
            self._own_index.add(self, subscription)
        return subscription

    def _remove(self, text: str) -> None:
        subscription = self.session.subscriptions.pop(text)
        for topic in subscription.topics:
            if (feed := self._feeds.get(topic)) is not None:
                feed.tail.remove(self, text)
        if self._own_index is not None:
            self._own_index.remove(self, text)

    # --- feeds ------------------------------------------------------------------------------------------------------

    async def _open(self, topic: str) -> _Feed:
        known = self._feeds.get(topic)
        if known is not None:
            return known
        tail, ends = await self._tails.use(self._account, topic, self)
        if self._is_gone:
            await self._tails.release(tail, self)
            raise Gone
        if topic not in self.session.progress:
            self.session.progress[topic] = Progress(ends)
        feed = self._feeds[topic] = _Feed(tail)
        return feed

    async def _close_unused(self) -> None:
        unused = {topic: self._feeds.pop(topic) for topic in self._feeds.keys() - self.session.topics()}
        for topic, feed in unused.items():
            if feed.reader is not None:
                feed.reader.cancel()
            self.session.progress.pop(topic, None)
        await self.release([feed.tail for feed in unused.values()])

    def _read_alone(self, topic: str, feed: _Feed) -> None:
        if self._own_index is None:
            self._own_index = FilterIndex()
            for subscription in self.session.subscriptions.values():
                self._own_index.add(self, subscription)
        feed.reader = asyncio.create_task(self._catch_up(topic, feed), name=f"mqtt reader of {topic}")

    async def _catch_up(self, topic: str, feed: _Feed) -> None:
        try:
            progress = self.session.progress[topic]
            await catch_up(self._account, topic, feed.tail, progress, self, self._rules)
            self._join(topic, feed)
        except KafkaError as error:
            self.tail_ended(topic, error)
        except Exception:
            log.exception("mqtt: internal error in a reader of %s", topic)
            self.tail_ended(topic, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _join(self, topic: str, feed: _Feed) -> None:
        feed.reader = None
        if all(each.reader is None for each in self._feeds.values()):
            self._own_index = None
        for subscription in self.session.subscriptions.values():
            if topic in subscription.topics:
                feed.tail.add(self, subscription)

    def note_positions(self) -> None:
        """Everything that the tails have handed out has been looked at, also what no filter of the session matches."""
        for topic, feed in self._feeds.items():
            if feed.reader is None and topic in self.session.progress:
                self.session.progress[topic].advance(feed.tail.positions)

    def detach(self) -> list[Tail]:
        """The connection has ended: nothing is offered any more. Return the tails, for `release`."""
        self.note_positions()
        self._is_gone = True
        self.session.again = self.outbox.unacknowledged()
        self._wake()
        feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            feed.tail.release(self)
            if feed.reader is not None:
                feed.reader.cancel()
        return [feed.tail for feed in feeds.values()]

    async def release(self, tails: list[Tail]) -> None:
        for tail in tails:
            await self._tails.release(tail, self)

    # --- what tails and readers call --------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self.outbox.pending_bytes + self._waiting_bytes() > self._limits.waiting_bytes_max // FULL_SHARE

    def matching(self, name: str) -> Match[Subscriber] | None:
        assert self._own_index is not None, "only its own readers call it"
        return next(iter(self._own_index.matching(name)), None)

    def offer(self, topic: str, record: FoundRecord, message: Message, match: Match[Subscriber]) -> None:
        progress = self.session.progress.get(topic)
        if self._is_gone or progress is None or not progress.is_due(record.partition, record.offset):
            return
        if match.from_others is not None and message.sender is not None and message.sender == self._sender:
            if not match.from_others:
                return
            match = combined(self, match.from_others)
        qos = match.qos
        mark = Mark(progress, record.partition, record.offset) if qos and self.session.is_persistent else None
        retain = match.retain_as_published and message.was_retain
        self.outbox.add(message, qos, retain, match.identifiers, mark, self._now_ms())

    def flush(self) -> None:
        if self._is_gone:
            return
        if pieces := self.outbox.take():
            self._counters.messages_out += self.outbox.messages
            self.outbox.messages = 0
            self._write(pieces)
        if self.outbox.waiting_bytes + self._waiting_bytes() > self._limits.waiting_bytes_max:
            self._end(Reason.QUOTA_EXCEEDED, "a subscriber that is too slow")

    def tail_ended(self, topic: str, error: KafkaError) -> None:
        self._end(reason_of(error.code), f"a topic cannot be read any more: {error.code.name}")

    def acknowledge(self, packet_ids: list[int]) -> None:
        now_ms = self._now_ms()
        for packet_id in packet_ids:
            self.outbox.acknowledge(packet_id, now_ms)
        self.flush()
        self._wake()

    def written(self) -> None:
        """The client has taken what was written."""
        self._wake()

    async def drained(self) -> None:
        while self.is_full and not self._is_gone:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append(future)
            await future

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

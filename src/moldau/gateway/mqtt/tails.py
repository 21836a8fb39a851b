"""Readers of Kafka for subscribers: one shared tail for each account and topic, and readers of their own for those who
are behind.

A tail follows a topic from the end on and hands each record to all subscribers whose filters match its name. A session
that was away reads by itself from where it was, as fast as its client takes it, and joins the tail when it has all that
the tail has handed out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.mqtt.filter_index import FilterIndex, Match
from moldau.gateway.mqtt.messages import Message, message_of
from moldau.gateway.mqtt.session import Progress, Subscription
from moldau.gateway.mqtt.topics import TopicRules
from moldau.gateway.ports import Account, Following, FoundRecord
from moldau.gateway.steady_reader import SteadyReader

log = logging.getLogger(__name__)

DELIVERIES_PER_TURN: Final = 200
"""Messages that are handed out before others get their turn: each takes a few microseconds."""
RECORDS_PER_TURN: Final = 500
"""Records that are looked at before others get their turn, also if nobody wants them."""


class Subscriber(Protocol):
    """A connection, as a tail sees it."""

    def offer(self, topic: str, record: FoundRecord, message: Message, match: Match[Subscriber]) -> None:
        """Take a message, if it is due."""
        ...

    def flush(self) -> None:
        """Write what was offered."""
        ...

    def tail_ended(self, topic: str, error: KafkaError) -> None: ...


class Tail:
    """One topic as one account reads it, from the end on."""

    def __init__(
        self, account: Account, topic: str, positions: Mapping[int, int], rules: TopicRules, on_end: Callable[[], None]
    ) -> None:
        self.positions = dict(positions)
        """The next offset of each partition: everything before it has been handed out."""
        self._topic = topic
        self._rules = rules
        self._on_end = on_end
        self._index: FilterIndex[Subscriber] = FilterIndex()
        self._account = account
        self._users: set[Subscriber] = set()
        self._handing_out = asyncio.Lock()
        self._task = self._start()

    @property
    def is_used(self) -> bool:
        return bool(self._users)

    def use(self, subscriber: Subscriber) -> None:
        """The tail stays while somebody uses it."""
        self._users.add(subscriber)

    def release(self, subscriber: Subscriber) -> None:
        self._index.remove_all(subscriber)
        self._users.discard(subscriber)

    def add(self, subscriber: Subscriber, subscription: Subscription) -> None:
        assert subscriber in self._users
        self._index.add(subscriber, subscription)

    def remove(self, subscriber: Subscriber, text: str) -> None:
        self._index.remove(subscriber, text)

    async def add_partitions(self) -> None:
        """Follow partitions that the topic has got since, from their start."""
        try:
            bounds = await self._account.bounds(self._topic)
            new = {partition: first for partition, (first, _) in bounds.items() if partition not in self.positions}
            async with self._handing_out:
                if new and not self._task.done():
                    task = self._task
                    self._task = self._start(new)
                    task.cancel()
        except KafkaError as error:  # whether the topic can still be read, the tail learns by reading
            log.info("mqtt: no look for new partitions of %s: %s", self._topic, error.code.name)

    async def stop(self) -> None:
        self._on_end()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _start(self, new: Mapping[int, int] | None = None) -> asyncio.Task[None]:
        positions = self.positions | dict(new or {})
        following = self._account.follow(self._topic, positions)
        self.positions |= positions
        task = asyncio.create_task(self._run(following), name=f"mqtt tail of {self._topic}")
        task.add_done_callback(lambda done: self._on_done(done, following))
        return task

    async def _run(self, following: Following) -> None:
        try:
            while True:
                await self._hand_out(await following.next())
        except KafkaError as error:
            log.info("mqtt: the tail of %s ends: %s", self._topic, error.code.name)
            self._end_subscribers(error)
        except Exception:
            log.exception("mqtt: internal error in the tail of %s", self._topic)
            self._end_subscribers(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _end_subscribers(self, error: KafkaError) -> None:
        for subscriber in list(self._users):
            subscriber.tail_ended(self._topic, error)

    def _on_done(self, task: asyncio.Task[None], following: Following) -> None:
        following.close()
        if task is self._task:
            self._on_end()

    async def _hand_out(self, records: Sequence[FoundRecord]) -> None:
        touched: dict[Subscriber, None] = {}
        looked_at = delivered = 0
        async with self._handing_out:
            for record in records:
                # Who joins while this record is handed out has read it alone.
                self.positions[record.partition] = record.offset + 1
                name = self._rules.name(self._topic, record.key)
                matches = self._index.matching(name) if name is not None else ()
                message = message_of(name, record) if name is not None and matches else None
                for match in matches:
                    assert message is not None
                    match.subscriber.offer(self._topic, record, message, match)
                    touched[match.subscriber] = None
                    delivered += 1
                    if delivered % DELIVERIES_PER_TURN == 0:
                        _flush(touched)
                        await asyncio.sleep(0)
                looked_at += 1
                if looked_at % RECORDS_PER_TURN == 0:
                    _flush(touched)
                    await asyncio.sleep(0)
            _flush(touched)


def _flush(touched: dict[Subscriber, None]) -> None:
    for subscriber in touched:
        subscriber.flush()
    touched.clear()


class Tails:
    """The tails that somebody needs."""

    def __init__(self, rules: TopicRules) -> None:
        self._rules = rules
        self._tails: dict[tuple[Account, str], Tail] = {}

    def __len__(self) -> int:
        return len(self._tails)

    async def use(self, account: Account, topic: str, subscriber: Subscriber) -> tuple[Tail, Mapping[int, int]]:
        """Return the tail and the end of each partition now. KafkaError if the account may not read the topic."""
        await account.check_read(topic)
        ends = {partition: end for partition, (_, end) in (await account.bounds(topic)).items()}
        tail = self._tails.get((account, topic))
        if tail is None:
            key = account, topic
            tail = Tail(account, topic, ends, self._rules, lambda: self._forget(key, tail))
            self._tails[key] = tail
        tail.use(subscriber)
        return tail, ends

    async def release(self, tail: Tail, subscriber: Subscriber) -> None:
        tail.release(subscriber)
        if not tail.is_used:
            await tail.stop()

    async def add_partitions(self) -> None:
        for tail in list(self._tails.values()):
            await tail.add_partitions()

    async def stop(self) -> None:
        for tail in list(self._tails.values()):
            await tail.stop()

    def _forget(self, key: tuple[Account, str], tail: Tail | None) -> None:
        if self._tails.get(key) is tail:
            del self._tails[key]


class CatchingUp(Protocol):
    """A connection, as a reader of its own sees it."""

    @property
    def is_full(self) -> bool:
        """Whether to wait for the client before more is offered."""
        ...

    def matching(self, name: str) -> Match[Subscriber] | None: ...

    def offer(self, topic: str, record: FoundRecord, message: Message, match: Match[Subscriber]) -> None: ...

    def flush(self) -> None: ...

    async def drained(self) -> None:
        """Wait until the client has taken most of what was offered, or is gone."""
        ...


async def catch_up(
    account: Account, topic: str, tail: Tail, progress: Progress, subscriber: CatchingUp, rules: TopicRules
) -> None:
    """Read from where the session was until it has what the tail has handed out. The caller joins the tail then,
    without waiting for anything in between."""
    positions: Mapping[int, int] = progress.begin_again(await account.bounds(topic))
    if _has_caught_up(positions, tail):
        return
    reader = SteadyReader(account, topic, positions)
    try:
        while not _has_caught_up(reader.positions, tail):
            await _offer(await reader.next(), topic, subscriber, rules)
            progress.advance(reader.positions)
    finally:
        reader.close()


async def _offer(records: Sequence[FoundRecord], topic: str, subscriber: CatchingUp, rules: TopicRules) -> None:
    for count, record in enumerate(records, 1):
        name = rules.name(topic, record.key)
        match = subscriber.matching(name) if name is not None else None
        if name is not None and match is not None:
            subscriber.offer(topic, record, message_of(name, record), match)
        if subscriber.is_full or count % DELIVERIES_PER_TURN == 0:
            subscriber.flush()
            await subscriber.drained()
            await asyncio.sleep(0)
    subscriber.flush()


def _has_caught_up(positions: Mapping[int, int], tail: Tail) -> bool:
    return all(positions.get(partition, 0) >= position for partition, position in tail.positions.items())

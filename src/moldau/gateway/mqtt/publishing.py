"""Appends what clients publish: one call for each Kafka topic, then the retained messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from moldau.base.errors import KafkaError
from moldau.gateway.mqtt.counters import Counters
from moldau.gateway.mqtt.messages import headers_of
from moldau.gateway.mqtt.packets import Publish
from moldau.gateway.mqtt.reasons import Reason, reason_of
from moldau.gateway.mqtt.retained import RetainedMessages
from moldau.gateway.mqtt.stored import StoredTopic
from moldau.gateway.mqtt.topics import Refusal, TopicRules
from moldau.gateway.ports import Account, NewRecord


class Publisher:
    def __init__(
        self, rules: TopicRules, retained: RetainedMessages, retained_topic: StoredTopic, counters: Counters
    ) -> None:
        self._rules = rules
        self._retained = retained
        self._retained_topic = retained_topic
        self._counters = counters

    async def publish(
        self, account: Account, publishes: Sequence[Publish], sender: bytes | None, now_ms: int
    ) -> list[Reason]:
        """Append the messages; return what became of each."""
        outcome = [Reason.SUCCESS] * len(publishes)
        reserved = 0
        batches: dict[str, tuple[list[int], list[NewRecord]]] = {}
        retained: list[tuple[int, NewRecord]] = []
        for number, publish in enumerate(publishes):
            place = self._rules.place(publish.topic)
            if isinstance(place, Refusal):
                outcome[number] = place.reason
                continue
            headers = headers_of(publish, now_ms, sender)
            if publish.retain:
                room = self._retained.reserve(publish.topic, publish.payload, headers)
                if room is None:
                    outcome[number] = Reason.QUOTA_EXCEEDED
                    continue
                reserved += room
                retained.append((number, NewRecord(publish.payload or None, publish.topic.encode(), headers)))
            batch = batches.get(place.topic)
            if batch is None:
                batch = batches[place.topic] = ([], [])
            batch[0].append(number)
            batch[1].append(NewRecord(publish.payload, place.key, headers))
        try:
            if len(batches) == 1:
                ((topic, (numbers, records)),) = batches.items()
                await self._append(account, topic, numbers, records, outcome)
            else:
                appends = (self._append(account, topic, *batch, outcome) for topic, batch in batches.items())
                await asyncio.gather(*appends)
            if retained:
                await self._retain(retained, outcome)
        finally:
            self._retained.give_back(reserved)
        self._count(publishes, outcome)
        return outcome

    async def _append(
        self, account: Account, topic: str, numbers: list[int], records: list[NewRecord], outcome: list[Reason]
    ) -> None:
        try:
            appended = await account.append(topic, records)
        except KafkaError as error:
            for number in numbers:
                outcome[number] = reason_of(error.code)
            return
        for number, each in zip(numbers, appended, strict=True):
            if isinstance(each, KafkaError):
                outcome[number] = reason_of(each.code)

    async def _retain(self, retained: list[tuple[int, NewRecord]], outcome: list[Reason]) -> None:
        """Retain what the user was allowed to append."""
        kept = [(number, record) for number, record in retained if outcome[number] is Reason.SUCCESS]
        if not kept:
            return
        try:
            places = await self._retained_topic.append([record for _, record in kept])
            await self._retained_topic.applied(places)
        except KafkaError:
            for number, _ in kept:
                outcome[number] = Reason.UNSPECIFIED_ERROR

    def _count(self, publishes: Sequence[Publish], outcome: Sequence[Reason]) -> None:
        self._counters.messages_in += len(publishes)
        for reason in outcome:
            if reason is not Reason.SUCCESS:
                self._counters.refuse("publish: " + reason.words)

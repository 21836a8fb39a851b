"""Looks up the high watermarks of partitions for the lag of groups: here, or at their leaders.

It works in steps, as everything that a scrape of metrics does: after each step other work may run. A leader that does
not answer in time leaves its partitions unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

WAIT_MS: Final = 1_000
PARTITIONS_A_REQUEST: Final = 1_000
LATEST: Final = -1
CONSUMER_ID: Final = -1
Place = tuple[str, int]
"""Topic and partition."""


class LatestOffsets:
    def __init__(self, current: CurrentImage, partitions: Partitions, brokers: BrokerClient, timers: Timers) -> None:
        self._current = current
        self._partitions = partitions
        self._brokers = brokers
        self._timers = timers

    def look_up(self, ends: dict[Place, int]) -> Iterator[Promise[None] | None]:
        """Replace the value of each partition by its high watermark, unless it is unknown. Each yield is the end of a
        turn; a promise must be awaited."""
        elsewhere: dict[int, list[Place]] = {}
        turn = TurnItems(ITEMS_A_TURN)
        for topic, index in ends:
            partition = self._partitions.find_readable(topic, index)
            if partition is not None and partition.is_leader:
                ends[topic, index] = partition.high_watermark
            elif (leader := self._leader(topic, index)) >= 0:
                elsewhere.setdefault(leader, []).append((topic, index))
            if turn.ends_after(1):
                yield None
        answers = []
        for leader, wanted in elsewhere.items():
            for start in range(0, len(wanted), PARTITIONS_A_REQUEST):
                request = _request(wanted[start : start + PARTITIONS_A_REQUEST])
                answers.append(self._brokers.ask(leader, ApiKey.LIST_OFFSETS, request))
                yield None
        if answers:
            yield self._when_answered(answers, ends)

    def _leader(self, topic: str, index: int) -> int:
        image = self._current.image.topics.get(topic)
        return image.partitions[index].leader if image is not None and index < len(image.partitions) else -1

    def _when_answered(
        self, answers: list[Promise[ListOffsetsResponse | KafkaError]], ends: dict[Place, int]
    ) -> Promise[None]:
        done: Promise[None] = Promise()
        pending = len(answers)

        def on_answer(answer: ListOffsetsResponse | KafkaError) -> None:
            nonlocal pending
            pending -= 1
            if done.done:
                return
            if isinstance(answer, ListOffsetsResponse):
                _note(answer, ends)
            if not pending:
                timer.cancel()
                done.complete(None)

        timer = self._timers.after_ms(WAIT_MS, partial(_give_up, done))
        for answer in answers:
            answer.then(on_answer)
        return done


def _give_up(done: Promise[None]) -> None:
    if not done.done:
        done.complete(None)


def _request(places: list[Place]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(ListOffsetsPartition(index, timestamp=LATEST))
    return ListOffsetsRequest(CONSUMER_ID, topics=[ListOffsetsTopic(name, each) for name, each in topics.items()])


def _note(answer: ListOffsetsResponse, ends: dict[Place, int]) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            if not each.error_code:
                ends[topic.name, each.partition_index] = each.offset

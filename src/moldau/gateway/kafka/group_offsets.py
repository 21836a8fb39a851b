"""The committed offsets of groups, asked of their coordinators on one user's connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_coordinators import TRANSIENT
from moldau.client.cluster import GROUP
from moldau.client.requests.ask import raise_error
from moldau.client.requests.groups import (
    fetched_offsets,
    find_coordinator_request,
    offset_commit_request,
    offset_fetch_request,
    raise_commit_error,
)
from moldau.gateway.kafka.brokers import ANSWER_LOST, Brokers
from moldau.gateway.kafka.partition_queue import BACKOFF_S_FIRST
from moldau.wire.apis import ApiKey

ATTEMPTS: Final = 6
OFFSETS_VERSION: Final = 8
"""Of OffsetFetch and OffsetCommit: brokers since Kafka 3.0 have it, and it names topics."""
T = TypeVar("T")


class GroupOffsets:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the committed offset of each partition. KafkaError if there is no right to know it."""

        async def ask(node: int) -> Mapping[int, int]:
            request = offset_fetch_request([group])
            response = await self._brokers.ask(node, ApiKey.OFFSET_FETCH, request, version=OFFSETS_VERSION)
            found = fetched_offsets(response)[group]
            if isinstance(found, KafkaError):
                raise found
            return {each.partition: place.offset for each, place in found.items() if each.topic == topic}

        return await self._attempted(group, ask)

    async def commit(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        """Commit offsets of a group without members. To do it twice changes nothing, so a lost answer is no harm."""
        offsets = {TopicPartition(topic, partition): offset for partition, offset in positions.items()}

        async def ask(node: int) -> None:
            request = offset_commit_request(group, offsets)
            response = await self._brokers.ask(node, ApiKey.OFFSET_COMMIT, request, version=OFFSETS_VERSION)
            raise_commit_error(response)

        await self._attempted(group, ask)

    async def _attempted(self, group: str, ask: Callable[[int], Awaitable[T]]) -> T:
        """Ask the coordinator of a group, with more than one attempt if it moves."""
        for attempt in range(ATTEMPTS):
            try:
                return await ask(await self._coordinator(group))
            except KafkaError as error:
                if error.code not in TRANSIENT | {*ANSWER_LOST} or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(BACKOFF_S_FIRST * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _coordinator(self, group: str) -> int:
        response: Any = await self._brokers.ask_any(ApiKey.FIND_COORDINATOR, find_coordinator_request(GROUP, [group]))
        found = response.coordinators[0]
        raise_error(found.error_code, found.error_message)
        self._brokers.know(found.node_id, found.host, found.port)
        node: int = found.node_id
        return node

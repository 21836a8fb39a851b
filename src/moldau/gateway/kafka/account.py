"""The cluster as one of its users sees it: an `Account` on real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE
from moldau.client.fetching.requests import Fetch, FetchLimits
from moldau.client.requests.partitions import list_offsets_request, listed_offsets
from moldau.gateway.kafka.brokers import Brokers
from moldau.gateway.kafka.group_offsets import GroupOffsets
from moldau.gateway.kafka.partition_queue import BACKOFF_S_FIRST
from moldau.gateway.kafka.producer import Producer
from moldau.gateway.kafka.reader import Reader
from moldau.gateway.kafka.room import Room
from moldau.gateway.ports import Appended, NewRecord
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

FOLLOWING_MAX: Final = 200
"""How many topics an account may follow at a time, each with connections of its own."""
ATTEMPTS: Final = 6
NO_OFFSET: Final = (1 << 63) - 1
"""Behind the end of every partition: whoever may read is told so, and gets no records."""
CHANGES: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS})
"""What older clusters let only the controller do."""
CHANGE_MS: Final = 20_000
NO_WAIT: Final = FetchLimits(wait_ms=0, bytes_max=1, partition_bytes_max=1)
T = TypeVar("T")


class KafkaAccount:
    def __init__(
        self, user: str, brokers: Brokers, room: Room, client_settings: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.user = user
        self.client_settings = client_settings
        self._brokers = brokers
        self._producer = Producer(brokers, room)
        self._group_offsets = GroupOffsets(brokers)
        self._readers: set[Reader] = set()

    async def log_in(self) -> None:
        """On a connection of its own: those that are open do not notice that the password has changed."""
        trial = self._brokers.beside()
        try:
            await trial.greet()
        finally:
            trial.close()

    async def append(self, topic: str, records: Sequence[NewRecord]) -> Appended:
        return await self._producer.append(topic, records)

    async def append_values(self, topic: str, values: Sequence[bytes]) -> Appended:
        return await self._producer.append_values(topic, values)

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        first, end = await asyncio.gather(self._offsets(topic, EARLIEST), self._offsets(topic, LATEST))
        return {partition: (first[partition], end[partition]) for partition in first.keys() & end.keys()}

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        found, end = await asyncio.gather(self._offsets(topic, timestamp_ms), self._offsets(topic, LATEST))
        return {partition: end.get(partition, 0) if offset < 0 else offset for partition, offset in found.items()}

    async def check_read(self, topic: str) -> None:
        await self._attempted(topic, lambda: self._check_read(topic))

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        return await self._group_offsets.committed(group, topic)

    async def commit(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        await self._group_offsets.commit(group, topic, positions)

    def follow(self, topic: str, positions: Mapping[int, int]) -> Reader:
        if len(self._readers) >= FOLLOWING_MAX:
            text = f"{self.user} follows {FOLLOWING_MAX} topics already"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        reader = Reader(self._brokers.beside(), topic, positions, self._readers.discard)
        self._readers.add(reader)
        return reader

    async def ask(self, api: ApiKey, request: Message) -> Any:
        if api in CHANGES:
            return await self._brokers.ask_controller(api, request, CHANGE_MS)
        return await self._brokers.ask_any(api, request)

    def rest(self) -> None:
        """Close the connections. They are opened again when they are needed."""
        self._brokers.rest()

    def rest_if_idle(self, since: float) -> bool:
        """Rest if nothing was asked since then, and nobody follows; return whether nothing was."""
        is_idle = self._brokers.asked_at < since and not self._readers and not self._producer.is_busy
        if is_idle:
            self.rest()
        return is_idle

    def close(self) -> None:
        for reader in list(self._readers):
            reader.close()
        self._producer.close()
        self._brokers.close()

    async def _offsets(self, topic: str, timestamp: int) -> dict[int, int]:
        return await self._attempted(topic, lambda: self._listed(topic, timestamp))

    async def _attempted(self, topic: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the leaders of a topic, with more than one attempt if they move."""
        for attempt in range(ATTEMPTS):
            try:
                return await ask()
            except KafkaError as error:
                is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if error.code not in RETRIABLE or is_missing or attempt == ATTEMPTS - 1:
                    raise
            self._brokers.forget(topic)
            await asyncio.sleep(BACKOFF_S_FIRST * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _listed(self, name: str, timestamp: int) -> dict[int, int]:
        topic = await self._brokers.topic(name)
        led, without_leader = self._brokers.by_leader(topic, topic.leaders)
        if without_leader:
            raise without_leader[0]
        offsets: dict[int, int] = {}
        for answered in await asyncio.gather(*[self._list(node, each, timestamp) for node, each in led.items()]):
            for partition, offset in answered.items():
                if isinstance(offset, KafkaError):
                    raise KafkaError(offset.code, f"{partition}: {offset.code.name}")
                offsets[partition.partition] = offset
        return offsets

    async def _check_read(self, name: str) -> None:
        topic = await self._brokers.topic(name)
        led, without_leader = self._brokers.by_leader(topic, topic.leaders)
        if not led:
            raise without_leader[0]
        node, partitions = next(iter(led.items()))
        fetch = Fetch(lambda _: topic, {partitions[0]: NO_OFFSET}, NO_WAIT, True)
        response: Any = await self._brokers.ask(node, ApiKey.FETCH, fetch.request)
        for fetched in fetch.partitions(response):
            if fetched.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise KafkaError(fetched.error, f"{fetched.partition}: {fetched.error.name}")

    async def _list(
        self, node: int, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int | KafkaError]:
        request = list_offsets_request(dict.fromkeys(partitions, timestamp), read_committed=True)
        return listed_offsets(await self._brokers.ask(node, ApiKey.LIST_OFFSETS, request))

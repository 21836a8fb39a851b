"""v2's calls about consumers in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import quote

import msgspec

from moldau.base.ids import TopicPartition, by_topic
from moldau.gateway.http.proxy.consumer_config import consumer_config
from moldau.gateway.http.proxy.consumers import Consumers
from moldau.gateway.http.proxy.failures import ProxyError, partition_not_found, unprocessable
from moldau.gateway.http.proxy.records import Index
from moldau.gateway.http.proxy.requests import (
    NO_CONTENT,
    V2,
    V2_BINARY,
    V2_JSON,
    V2_WITH_SCHEMAS,
    Answer,
    Request,
    json_answer,
    parsed,
)
from moldau.gateway.http.query import timestamp_ms

if TYPE_CHECKING:
    from moldau.gateway.http.proxy.consumer import RestConsumer

T = TypeVar("T")
FORMATS: Final = (V2_BINARY, V2_JSON, *V2_WITH_SCHEMAS)
RECORDS_BYTES_MAX: Final = 4 << 20
Long = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 2)]


class Partition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Index


class Partitions(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[Partition]

    @property
    def all(self) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition) for each in self.partitions]


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class Offset(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Index
    offset: Long
    metadata: str | None = None


class Timestamp(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Index
    timestamp: str | int
    metadata: str | None = None


class Offsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[Offset]


class Positions(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[Offset] = []
    timestamps: list[Timestamp] = []


_partitions: Final = msgspec.json.Decoder(Partitions)
_subscription: Final = msgspec.json.Decoder(Subscription)
_offsets: Final = msgspec.json.Decoder(Offsets)
_positions: Final = msgspec.json.Decoder(Positions)


class ConsumerCalls:
    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers

    async def create(self, request: Request) -> Answer:
        (group,) = request.names
        config = consumer_config(group, await _body(request))
        await self._consumers.create(request.account, config)
        url = f"{request.base_url}/consumers/{quote(group, safe='')}/instances/{quote(config.name, safe='')}"
        return json_answer({"instance_id": config.name, "base_uri": url})

    async def delete(self, request: Request) -> Answer:
        await self._consumers.delete(request.account, *request.names)
        return NO_CONTENT

    # --- what it reads ----------------------------------------------------------------------------------------------

    async def subscribe(self, request: Request) -> Answer:
        chosen = parsed(_subscription, await _body(request))
        topics, pattern = chosen.topics, chosen.topic_pattern
        if (topics is None) == (pattern is None):
            raise unprocessable("a subscription has topics or a topic_pattern")
        if topics is not None:
            await self._call(request, lambda consumer: consumer.subscribe(topics))
        elif pattern is not None:
            await self._call(request, lambda consumer: consumer.subscribe_pattern(pattern))
        return NO_CONTENT

    async def subscription(self, request: Request) -> Answer:
        return json_answer({"topics": await self._call(request, lambda consumer: consumer.subscription())})

    async def unsubscribe(self, request: Request) -> Answer:
        await self._call(request, lambda consumer: consumer.unsubscribe())
        return NO_CONTENT

    async def assign(self, request: Request) -> Answer:
        partitions = parsed(_partitions, await _body(request)).all
        await self._call(request, lambda consumer: consumer.assign(partitions))
        return NO_CONTENT

    async def assignment(self, request: Request) -> Answer:
        found = await self._call(request, lambda consumer: consumer.assignment())
        return json_answer({"partitions": [{"topic": topic, "partition": index} for topic, index in found]})

    # --- records ----------------------------------------------------------------------------------------------------

    async def records(self, request: Request) -> Answer:
        config = self._consumers.found(request.account, *request.names).config
        content_type = V2_JSON if config.is_json else V2_BINARY
        wanted = [each for each in request.accepts() if each in FORMATS]
        if wanted and content_type not in wanted:
            text = "The requested embedded data format does not match the deserializer for this consumer instance"
            raise ProxyError(406, 40601, f"{text}: it has {content_type}")
        query = request.query()
        timeout_ms, max_bytes = _number(query, "timeout"), _number(query, "max_bytes")
        timeout_s = (min(timeout_ms, config.timeout_ms) if timeout_ms > 0 else config.timeout_ms) / 1000
        bytes_max = min(max_bytes, RECORDS_BYTES_MAX) if max_bytes > 0 else RECORDS_BYTES_MAX
        body = await self._call(request, lambda consumer: consumer.records(timeout_s, bytes_max))
        return Answer(200, body, content_type)

    # --- positions and offsets --------------------------------------------------------------------------------------

    async def seek(self, request: Request) -> Answer:
        positions = parsed(_positions, await _body(request))
        offsets = {TopicPartition(each.topic, each.partition): each.offset for each in positions.offsets}
        for each in positions.timestamps:
            found = await request.account.offsets_at(each.topic, timestamp_ms(str(each.timestamp)))
            if each.partition not in found:
                raise partition_not_found(each.partition)
            offsets[TopicPartition(each.topic, each.partition)] = found[each.partition]
        await self._call(request, lambda consumer: consumer.seek(offsets))
        return NO_CONTENT

    async def seek_to_beginning(self, request: Request) -> Answer:
        return await self._seek_all(request, lambda first, _: first)

    async def seek_to_end(self, request: Request) -> Answer:
        return await self._seek_all(request, lambda _, end: end)

    async def _seek_all(self, request: Request, choose: Callable[[int, int], int]) -> Answer:
        """Ask for the bounds: librdkafka may go to the end although another position was chosen since."""
        offsets: dict[TopicPartition, int] = {}
        for topic, indexes in by_topic(parsed(_partitions, await _body(request)).all).items():
            bounds = await request.account.bounds(topic)
            for index in indexes:
                if index not in bounds:
                    raise partition_not_found(index)
                offsets[TopicPartition(topic, index)] = choose(*bounds[index])
        await self._call(request, lambda consumer: consumer.seek(offsets))
        return NO_CONTENT

    async def commit(self, request: Request) -> Answer:
        """Offsets are those of the last records that were handled; committed is where to go on."""
        body = await _body(request)
        offsets: Mapping[TopicPartition, tuple[int, str]] | None = None
        if body:
            chosen: Sequence[Offset] = parsed(_offsets, body).offsets
            offsets = {
                TopicPartition(each.topic, each.partition): (each.offset + 1, each.metadata or "") for each in chosen
            }
        await self._call(request, lambda consumer: consumer.commit(offsets))
        return json_answer([])

    async def committed(self, request: Request) -> Answer:
        """A GET with a body."""
        partitions = parsed(_partitions, await _body(request)).all
        return json_answer({"offsets": await self._call(request, lambda consumer: consumer.committed(partitions))})

    async def _call(self, request: Request, work: Callable[[RestConsumer], T]) -> T:
        group, name = request.names
        return await self._consumers.call(request.account, group, name, work)


async def _body(request: Request) -> bytes:
    request.require_type(V2, *FORMATS)
    return await request.body()


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "-1")
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise ProxyError(400, 400, f"{name} {text[:20]!r} is not a number")
    return int(text)

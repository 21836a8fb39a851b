"""One round of fetches: the next records of some partitions of a topic, with a bound on what is decoded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.client.decoding import DecodingBudget
from moldau.client.fetching.batches import malformed
from moldau.client.fetching.requests import Fetch, FetchedBatch, FetchedPartition, FetchLimits
from moldau.console.records.condition import Condition
from moldau.console.records.shown import FoundRecord
from moldau.web.failures import ApiError
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchResponse

FETCH_BYTES_MAX: Final = 8 << 20
EVALUATION_SECONDS: Final = 2.0
"""Of a condition, before another partition of the same fetch is begun."""


@dataclass(slots=True)
class Fetched:
    """The records of one partition, in order, and where the next fetch begins."""

    records: list[FoundRecord] = field(default_factory=list)
    """Of a search with a condition only those that match it."""
    next_offset: int = 0
    seen: int = 0
    """How many records were decoded."""
    batches: list[memoryview] = field(default_factory=list)
    """The batches that they were in."""
    bytes: int = 0
    """After decompression."""


def fetch(
    cluster: Cluster,
    topic: str,
    positions: Mapping[int, int],
    *,
    partition_bytes: int,
    ends: Mapping[int, int] | None = None,
    committed: bool = True,
    wait_ms: int = 500,
    where: Condition | None = None,
) -> dict[int, Fetched]:
    """Return what follows each position, before `ends`, and matches the condition. At least one batch is read where
    there is one, unless other partitions filled the response or the budget of what is decoded. The leaders are asked at
    the same time, for partitions in the order of `positions`."""
    budget = DecodingBudget()
    led = cluster.by_leader(TopicPartition(topic, index) for index in positions)
    try:
        sent = {}
        for node, partitions in led.items():
            at = {each: positions[each.partition] for each in partitions}
            sent[node] = Fetch(cluster.topic, at, FetchLimits(wait_ms, FETCH_BYTES_MAX, partition_bytes), committed)
            cluster.channel(node).send(ApiKey.FETCH, sent[node].request)
        fetched: dict[int, Fetched] = {}
        for node, request in sent.items():
            for answered in request.partitions(cluster.channel(node).receive(FetchResponse)):
                index = answered.partition.partition
                fetched[index] = _read(answered, None if ends is None else ends[index], budget)
    except BaseException:
        for node in led:  # responses that were not read would be taken for those of the next requests
            cluster.drop(node)
        raise
    return fetched if where is None else _matching(fetched, topic, where)


def _matching(fetched: Mapping[int, Fetched], topic: str, where: Condition) -> dict[int, Fetched]:
    """Keep only the records that match, and only the partitions for which that is found out in time, at least one: the
    others are to be fetched again."""
    until = time.monotonic() + EVALUATION_SECONDS
    found: dict[int, Fetched] = {}
    for index, part in fetched.items():
        if part.records:
            if time.monotonic() >= until:
                continue
            offsets = where.matching(b"".join(part.batches), TopicPartition(topic, index))
            part.records = [each for each in part.records if each.record.offset in offsets]
        found[index] = part
    return found


def advance(positions: dict[int, int], fetched: Mapping[int, Fetched]) -> None:
    """Set the positions to where the next fetch begins. Partitions that got ahead go to the end: brokers fill responses
    in the order of the request, and return a batch larger than `partition_bytes` only of the first with data."""
    for index, part in fetched.items():
        if part.next_offset > positions[index]:
            del positions[index]
            positions[index] = part.next_offset


def _read(fetched: FetchedPartition, end: int | None, budget: DecodingBudget) -> Fetched:
    if fetched.error:
        message = f"{fetched.partition}: the records at offset {fetched.position} cannot be read: {fetched.error.name}"
        raise KafkaError(fetched.error, message)
    read = Fetched(next_offset=fetched.position)
    try:
        for each in fetched.batches():
            if end is not None and each.header.base_offset >= end:
                read.next_offset = max(read.next_offset, end)
                break
            bytes_before = budget.bytes
            if each.holds_records:
                records = _decode(fetched, each, budget)
                if records is None:  # there is no room for it: the next fetch begins here
                    break
                read.records += records
                read.batches.append(each.content)
            read.next_offset = max(read.next_offset, each.header.next_offset)
            read.bytes += budget.bytes - bytes_before or len(each.content)
    except MalformedData as error:
        raise ApiError(422, "BAD_RECORDS", f"{fetched.partition} cannot be read: {error}") from error
    read.seen = len(read.records)
    return read


def _decode(fetched: FetchedPartition, batch: FetchedBatch, budget: DecodingBudget) -> list[FoundRecord] | None:
    header, index = batch.header, fetched.partition.partition
    try:
        records = budget.decode(header, batch.content)
    except MalformedData as error:
        raise malformed(header.base_offset, error) from error
    if records is None:
        return None
    is_append_time = header.is_log_append_time
    return [FoundRecord(index, record, is_append_time) for record in records if record.offset >= fetched.position]

"""One round of fetches: the next records of some partitions of a topic, with a bound on what is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.client.decoding import DecodingBudget
from moldau.console.failures import ApiError
from moldau.console.records.shown import FoundRecord
from moldau.operations.lag import whole_batches
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.records import Record, read_end_txn_marker

FETCH_BYTES_MAX: Final = 8 << 20


@dataclass(slots=True)
class Fetched:
    """The records of one partition, in order, and where the next fetch begins."""

    records: list[FoundRecord] = field(default_factory=list)
    next_offset: int = 0
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
) -> dict[int, Fetched]:
    """Return what follows each position, before `ends`: at least one batch where there is one, unless other partitions
    filled the response or the budget of what is decoded. The leaders are asked at the same time, for partitions in the
    order of `positions`."""
    budget = DecodingBudget()
    led = cluster.by_leader(TopicPartition(topic, index) for index in positions)
    try:
        for node, partitions in led.items():
            asked = [
                FetchPartition(
                    each.partition, fetch_offset=positions[each.partition], partition_max_bytes=partition_bytes
                )
                for each in partitions
            ]
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=FETCH_BYTES_MAX,
                isolation_level=int(committed),
                topics=[FetchTopic(cluster.topic(topic).topic_id, topic, asked)],
            )
            cluster.channel(node).send(ApiKey.FETCH, request)
        fetched: dict[int, Fetched] = {}
        for node in led:
            for data in _receive(cluster, node):
                index = data.partition_index
                if index in positions:
                    end = None if ends is None else ends[index]
                    fetched[index] = _read(topic, positions[index], end, data, committed, budget)
    except BaseException:
        for node in led:  # responses that were not read would be taken for those of the next requests
            cluster.drop(node)
        raise
    return fetched


def advance(positions: dict[int, int], fetched: Mapping[int, Fetched]) -> None:
    """Set the positions to where the next fetch begins. Partitions that got ahead go to the end: brokers fill responses
    in the order of the request, and return a batch larger than `partition_bytes` only of the first with data."""
    for index, part in fetched.items():
        if part.next_offset > positions[index]:
            del positions[index]
            positions[index] = part.next_offset


def _receive(cluster: Cluster, node: int) -> Iterator[PartitionData]:
    response = cluster.channel(node).receive(FetchResponse)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    for answered in response.responses:
        yield from answered.partitions


def _read(
    topic: str, position: int, end: int | None, data: PartitionData, committed: bool, budget: DecodingBudget
) -> Fetched:
    index, code = data.partition_index, ErrorCode(data.error_code)
    if code:
        raise KafkaError(code, f"{topic}-{index}: the records at offset {position} cannot be read: {code.name}")
    fetched = Fetched(next_offset=position)
    if not data.records:
        return fetched
    assert isinstance(data.records, memoryview)
    coming_aborts = sorted(
        ((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True
    )
    aborting_producers: set[int] = set()
    for header, batch in whole_batches(data.records):
        if end is not None and header.base_offset >= end:
            fetched.next_offset = max(fetched.next_offset, end)
            break
        while coming_aborts and coming_aborts[-1][0] <= header.last_offset:
            aborting_producers.add(coming_aborts.pop()[1])
        bytes_before = budget.bytes
        is_aborted = committed and header.is_transactional and header.producer_id in aborting_producers
        if header.is_control or not is_aborted:
            try:
                records = budget.decode(header, batch)
                if records is None:  # there is no room for it: the next fetch begins here
                    break
                if header.is_control:
                    _end_transaction(header, records, aborting_producers)
            except MalformedData as error:
                raise ApiError(
                    422,
                    "BAD_RECORDS",
                    f"{topic}-{index}: the batch at offset {header.base_offset} cannot be read: {error}",
                ) from error
            if not header.is_control:
                is_append_time = header.is_log_append_time
                fetched.records += [
                    FoundRecord(index, record, is_append_time) for record in records if record.offset >= position
                ]
        fetched.next_offset = max(fetched.next_offset, header.next_offset)
        fetched.bytes += budget.bytes - bytes_before or len(batch)
    return fetched


def _end_transaction(header: BatchHeader, records: list[Record], aborting_producers: set[int]) -> None:
    for record in records:
        marker = read_end_txn_marker(record)
        if marker is not None and not marker.committed:
            aborting_producers.discard(header.producer_id)

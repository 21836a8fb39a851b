"""One Fetch request to a leader, and its response by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.cluster import Topic
from moldau.client.fetching.batches import Aborted, AbortedTransactions, whole_batches
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

NO_RECORDS: Final = memoryview(b"")


class FetchLimits(NamedTuple):
    """How much a response has, and how long the broker waits until it has at least `bytes_min`."""

    wait_ms: int
    bytes_max: int
    partition_bytes_max: int
    """A broker also returns a larger batch whole, but only the first of a response."""
    bytes_min: int = 1


class FetchedBatch(NamedTuple):
    header: BatchHeader
    content: memoryview
    holds_records: bool
    """False for markers of transactions, and for batches of aborted transactions unless these are read too."""


class FetchedPartition(NamedTuple):
    """What a response has of one partition."""

    partition: TopicPartition
    position: int
    """The offset that was asked for. The first batch may begin before it."""
    error: ErrorCode
    end: int
    """What can be read ends here: the last stable offset for read_committed, else the high watermark."""
    records: memoryview
    """Whole batches, the last perhaps cut off: a broker fills its response up to the limit."""
    aborted: Sequence[Aborted]
    """Empty when uncommitted records are read too."""

    def batches(self) -> Iterator[FetchedBatch]:
        """Yield the whole batches. Whoever has read one goes on behind it: at `header.next_offset`, unless that is
        before `position`. MalformedData if the bytes are no batches."""
        transactions = AbortedTransactions(self.aborted)
        for header, content in whole_batches(self.records):
            is_aborted = transactions.has(header, content)
            yield FetchedBatch(header, content, not (header.is_control or is_aborted))


class Fetch:
    def __init__(
        self,
        topic: Callable[[str], Topic],
        positions: Mapping[TopicPartition, int],
        limits: FetchLimits,
        read_committed: bool,
    ) -> None:
        """`positions` are offsets of partitions that the asked node leads: brokers fill a response in their order."""
        self._positions = positions
        self._read_committed = read_committed
        requested = {name: topic(name) for name in by_topic(positions)}
        self._names: dict[bytes | str, str] = {}
        for name, each in requested.items():
            self._names |= {each.topic_id: name, each.name: name}
        self.request = FetchRequest(
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.bytes_max,
            isolation_level=int(read_committed),
            topics=[
                FetchTopic(
                    requested[name].topic_id,
                    requested[name].name,
                    [
                        FetchPartition(
                            index,
                            fetch_offset=positions[TopicPartition(name, index)],
                            partition_max_bytes=limits.partition_bytes_max,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(positions).items()
            ],
        )

    def partitions(self, response: FetchResponse) -> Iterator[FetchedPartition]:
        """Yield what the response has of each partition, which may be an error. KafkaError if all of it is one,
        MalformedData if it is the response to something else."""
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        for topic in response.responses:
            name = self._names.get(topic.topic or bytes(topic.topic_id), "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in self._positions:
                    raise MalformedData(f"the fetch response has {partition}, which was not requested")
                yield self._fetched(partition, data)

    def _fetched(self, partition: TopicPartition, data: PartitionData) -> FetchedPartition:
        records = data.records or NO_RECORDS
        assert isinstance(records, memoryview)
        aborted = (data.aborted_transactions or ()) if self._read_committed else ()
        return FetchedPartition(
            partition,
            self._positions[partition],
            ErrorCode(data.error_code),
            data.last_stable_offset if self._read_committed else data.high_watermark,
            records,
            [Aborted(each.first_offset, each.producer_id) for each in aborted],
        )

"""DeleteRecords v0–2. Moves the start of a log up to an offset; -1 means all that consumers can see."""

from __future__ import annotations

from moldau.base.errors import KafkaError
from moldau.replica.partitions import Partitions
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1


class DeleteRecords:
    api = ApiKey.DELETE_RECORDS
    versions = (0, 2)

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def answer(self, ask: DeleteRecordsRequest, caller: Caller) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(topic.name, [self._delete(topic.name, wanted) for wanted in topic.partitions])
                for topic in ask.topics
            ]
        )

    def _delete(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        try:
            partition = self._partitions.get(topic, wanted.partition_index)
            partition.fence(-1)
            low_watermark = partition.delete_records(wanted.offset)
        except KafkaError as refused:
            return DeleteRecordsPartitionResult(wanted.partition_index, NO_LOW_WATERMARK, refused.code)
        return DeleteRecordsPartitionResult(wanted.partition_index, low_watermark, 0)

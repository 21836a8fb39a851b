"""A cluster of 9,000 topics, 39,000 partitions and 2,200 groups that only answers: for test_console_large.py, and for
bench/console.py, which runs this file.

It keeps no logs. It answers the requests of the console's collector with responses of the right size; the ends of all
partitions grow with time.
"""

from __future__ import annotations

import socketserver
import sys
import time
from collections.abc import Sequence
from typing import Any

from moldau.wire.apis import APIS, ApiKey, request_class
from moldau.wire.codec import decode_from
from moldau.wire.consumer_protocol import write
from moldau.wire.frames import Framing, read_request_header
from moldau.wire.log_records.consumer_protocol import Assignment, TopicPartitions
from moldau.wire.messages import describe_cluster, describe_groups, find_coordinator, list_groups, offset_fetch
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from moldau.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPICS, PARTITIONS, GROUPS, TOPICS_OF_GROUP = 9_000, 39_000, 2_200, 4
SERVED = {
    ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_OFFSETS, ApiKey.LIST_GROUPS,
    ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
}  # fmt: skip


def partition_count(topic: int) -> int:
    return PARTITIONS // TOPICS + (topic < PARTITIONS % TOPICS)


def topic_name(topic: int) -> str:
    return f"domain-{topic % 37}.service-{topic % 211}.events-{topic}"


class LargeCluster:
    def __init__(self, port: int) -> None:
        self._port = port
        self._begin = time.monotonic()
        self._frames: dict[Any, Any] = {}
        self._topics = [
            MetadataResponseTopic(
                name=topic_name(topic),
                topic_id=topic.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
                    )
                    for index in range(partition_count(topic))
                ],
            )
            for topic in range(TOPICS)
        ]

    def answer(self, key: int, request: Any) -> Any:
        match key:
            case ApiKey.API_VERSIONS:
                return ApiVersionsResponse(
                    api_keys=[ApiVersion(each, APIS[each].lowest, APIS[each].highest) for each in sorted(SERVED)]
                )
            case ApiKey.METADATA:
                brokers = [MetadataResponseBroker(each, "127.0.0.1", self._port) for each in (1, 2, 3)]
                topics = self._topics if request.topics is None else []
                return MetadataResponse(brokers=brokers, cluster_id="large", controller_id=1, topics=topics)
            case ApiKey.DESCRIBE_CLUSTER:
                nodes = [describe_cluster.DescribeClusterBroker(each, "127.0.0.1", self._port) for each in (1, 2, 3)]
                return describe_cluster.DescribeClusterResponse(cluster_id="large", controller_id=1, brokers=nodes)
            case ApiKey.LIST_OFFSETS:
                return self._offsets(request)
            case ApiKey.DESCRIBE_LOG_DIRS:
                return self._log_dirs()
            case ApiKey.LIST_PARTITION_REASSIGNMENTS:
                return ListPartitionReassignmentsResponse()
        return self._about_groups(key, request)

    def _offsets(self, request: Any) -> ListOffsetsResponse:
        end = 1_000 + int((time.monotonic() - self._begin) * 10)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            each.partition_index, offset=end if each.timestamp == -1 else 0, leader_epoch=0
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _log_dirs(self) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsTopic(
                topic_name(topic), [DescribeLogDirsPartition(index, 1 << 20) for index in range(partition_count(topic))]
            )
            for topic in range(TOPICS)
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", topics, 1 << 40, 1 << 39)])

    def _about_groups(self, key: int, request: Any) -> Any:
        match key:
            case ApiKey.LIST_GROUPS:
                return list_groups.ListGroupsResponse(
                    groups=[
                        list_groups.ListedGroup(f"group-{each}", "consumer", "Stable", "classic")
                        for each in range(GROUPS)
                    ]
                    if self._is_first()
                    else []
                )
            case ApiKey.FIND_COORDINATOR:
                return find_coordinator.FindCoordinatorResponse(
                    coordinators=[
                        find_coordinator.Coordinator(each, 1, "127.0.0.1", self._port)
                        for each in request.coordinator_keys
                    ]
                )
            case ApiKey.OFFSET_FETCH:
                return offset_fetch.OffsetFetchResponse(groups=[_offsets_of(each.group_id) for each in request.groups])
            case ApiKey.DESCRIBE_GROUPS:
                return describe_groups.DescribeGroupsResponse(groups=[_described(each) for each in request.groups])
        raise AssertionError(key)

    def _is_first(self) -> bool:
        """All three brokers are this process: only one of three lists the groups."""
        self._turn = getattr(self, "_turn", -1) + 1
        return self._turn % 3 == 0


def _topics_of(group_id: str) -> Sequence[int]:
    number = int(group_id.removeprefix("group-"))
    return [(number * TOPICS_OF_GROUP + each) % TOPICS for each in range(TOPICS_OF_GROUP)]


def _offsets_of(group_id: str) -> offset_fetch.OffsetFetchResponseGroup:
    return offset_fetch.OffsetFetchResponseGroup(
        group_id,
        [
            offset_fetch.OffsetFetchResponseTopics(
                name=topic_name(topic),
                partitions=[
                    offset_fetch.OffsetFetchResponsePartitions(index, 900, -1, "", 0)
                    for index in range(partition_count(topic))
                ],
            )
            for topic in _topics_of(group_id)
        ],
    )


def _described(group_id: str) -> describe_groups.DescribedGroup:
    topics = _topics_of(group_id)
    members = []
    for half in (0, 1):
        assigned = Assignment(
            [TopicPartitions(topic_name(topic), list(range(half, partition_count(topic), 2))) for topic in topics]
        )
        members.append(
            describe_groups.DescribedGroupMember(
                f"member-{half}-0b0c1d2e", None, f"{group_id}-client-{half}", "/10.0.0.7", b"", write(assigned, 0)
            )
        )
    return describe_groups.DescribedGroup(0, None, group_id, "Stable", "consumer", "range", members)


class Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = self.rfile.read(int.from_bytes(size, "big"))
            header, position = read_request_header(frame)
            request, _ = decode_from(request_class(header.api_key), frame, header.api_version, position)
            response = self.server.cluster.answer(header.api_key, request)  # type: ignore[attr-defined]
            self.wfile.write(Framing(header.api_key, header.api_version).frame(header.correlation_id, response))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    cluster: LargeCluster
    allow_reuse_address = True


def main() -> None:
    server = Server(("127.0.0.1", 0), Connection)
    server.cluster = LargeCluster(server.server_address[1])  # type: ignore[attr-defined]
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())

"""DescribeLogDirs v1–5. The size of each partition on disk, and (v4) the free space of the volume."""

from __future__ import annotations

from moldau.base.clock import Timers
from moldau.base.errors import StorageFault
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.ports import DiskSpace
from moldau.base.promise import Promise
from moldau.base.turns import LISTED_A_TURN
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import in_turns, item_count, partitions_in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_SPACE = (-1, -1)


class DescribeLogDirs(Handler):
    api = ApiKey.DESCRIBE_LOG_DIRS
    versions = (1, 5)
    needs = (CLUSTER_DESCRIBE,)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, log_dir: str, disk_space: DiskSpace, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers
        self._log_dir = log_dir
        self._disk_space = disk_space

    def answer(
        self, request: DescribeLogDirsRequest, caller: Caller
    ) -> DescribeLogDirsResponse | Promise[DescribeLogDirsResponse]:
        if not caller.access.allows(CLUSTER_DESCRIBE):
            return DescribeLogDirsResponse(error_code=denied(CLUSTER_DESCRIBE).code)
        sizes_by_topic: dict[str, dict[int, DescribeLogDirsPartition]] = {}

        def add(partition: Partition) -> None:
            # A partition that is requested several times is described once.
            topic, index = partition.name
            sizes_by_topic.setdefault(topic, {})[index] = DescribeLogDirsPartition(index, partition.log.size_bytes)

        def add_named(topic: str, index: int) -> None:
            partition = self._partitions.find(topic, index)
            if partition is not None:
                add(partition)

        def respond(_: object) -> DescribeLogDirsResponse:
            return self._response(sizes_by_topic)

        if request.topics is None:
            return in_turns(self._timers, self._partitions.all(), add, respond, LISTED_A_TURN)
        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (topic.topic, topic.partitions),
            add_named,
            respond,
            LISTED_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _response(self, sizes_by_topic: dict[str, dict[int, DescribeLogDirsPartition]]) -> DescribeLogDirsResponse:
        topics = [DescribeLogDirsTopic(name, list(sizes.values())) for name, sizes in sizes_by_topic.items()]
        try:
            total, usable = self._disk_space()
        except StorageFault:
            total, usable = UNKNOWN_SPACE
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, self._log_dir, topics, total, usable)])

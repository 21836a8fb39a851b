"""AlterReplicaLogDirs v1–2. A node has one log directory, so nothing is ever moved."""

from __future__ import annotations

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHECKS_A_TURN
from moldau.replica.partitions import Partitions
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class AlterReplicaLogDirs(Handler):
    api = ApiKey.ALTER_REPLICA_LOG_DIRS
    versions = (1, 2)
    needs = (CLUSTER_ALTER,)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, log_dir: str, timers: Timers) -> None:
        self._partitions = partitions
        self._log_dir = log_dir
        self._timers = timers

    def answer(
        self, request: AlterReplicaLogDirsRequest, caller: Caller
    ) -> AlterReplicaLogDirsResponse | Promise[AlterReplicaLogDirsResponse]:
        return run_steps(self._timers, self._steps(request, caller))

    def _steps(self, request: AlterReplicaLogDirsRequest, caller: Caller) -> Steps[AlterReplicaLogDirsResponse]:
        denial = None if caller.access.allows(CLUSTER_ALTER) else denied(CLUSTER_ALTER).code
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        turn = TurnItems(CHECKS_A_TURN)
        for directory in request.dirs:
            if turn.ends_after(1):
                yield
            for topic in directory.topics:
                if turn.ends_after(1):
                    yield
                for index in topic.partitions:
                    code = denial or self._error_code(topic.name, index, directory.path)
                    results.setdefault(topic.name, []).append(AlterReplicaLogDirPartitionResult(index, code))
                    if turn.ends_after(1):
                        yield
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in results.items()]
        )

    def _error_code(self, topic: str, index: int, path: str) -> ErrorCode:
        if path != self._log_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        has_replica = self._partitions.find(topic, index) is not None
        return ErrorCode.NONE if has_replica else ErrorCode.REPLICA_NOT_AVAILABLE

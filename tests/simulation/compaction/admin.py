"""An administrator of tables: deletes their oldest records and changes their retention."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from cluster.admin import PATIENCE_MS, AdminClient, deleted, deletion

from compaction.ledger import CompactedLedger, Deleted
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import INT64_MAX
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from compaction.world import CompactionWorld

GAP_MS = 1_500
TRIMS = 0.5
TOPIC = 2
SET = 0
CHOICES = {
    "cleanup.policy": ["compact", "delete", "compact,delete", "compact,delete"],
    "retention.ms": ["5000", "9000", "20000", "-1"],
    "retention.bytes": ["-1", "1500", "4000"],
    "max.compaction.lag.ms": ["1500", str(INT64_MAX)],
    "min.cleanable.dirty.ratio": ["0.01", "0.9"],
}
IN_THE_END = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.9",
    "max.compaction.lag.ms": "1500",
    "retention.ms": "60000",
    "retention.bytes": "-1",
}
"""With these, a table is cleaned because of its age, and only DeleteRecords removes records."""
REFUSED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
}


class TableAdmin(AdminClient):
    def __init__(self, world: CompactionWorld, name: str, rng: Random) -> None:
        super().__init__(world, name, rng)
        self._processes_ended = world.processes_ended
        self.is_settled = False
        self.trimmed: set[str] = set()
        """Tables whose records were deleted at the end."""
        self._act()

    def _act(self) -> None:
        if self.is_settled:
            return
        self.later(1 + int(self.rng.expovariate(1) * GAP_MS), self._act)
        name = self.rng.choice(self.world.lasting_topics())
        if name in self.world.image.topics and not self.world.faults.is_over:
            if self.rng.random() < TRIMS:
                self.trim(name)
            else:
                key = self.rng.choice(list(CHOICES))
                self.change(name, {key: self.rng.choice(CHOICES[key])})

    # --- configs --------------------------------------------------------------------------------------------------

    def change(self, name: str, configs: dict[str, str], is_lasting: bool = False) -> None:
        """Change configs; with `is_lasting`, retry until they are set."""
        altered = [AlterableConfig(key, SET, value) for key, value in configs.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, name, altered)], False)

        def then(reply: Any) -> None:
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.responses[0].error_code)
            self.trace_result(f"sets {configs} of {name}", code)
            if code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_CONFIG):
                self.world.violated(f"{self.name} sets {configs}: {code.name}")
            if is_lasting and code is not ErrorCode.NONE:
                self.retry(lambda: self.change(name, configs, is_lasting))

        self.ask(self.some_broker(), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, then, "admin", PATIENCE_MS)

    def settle(self) -> None:
        self.is_settled = True
        for name in self.world.lasting_topics():
            self.change(name, IN_THE_END, is_lasting=True)
            self._trim_until_done(name)

    def _trim_until_done(self, name: str) -> None:
        if name not in self.trimmed:
            self.trim(name)
            self.later(GAP_MS, lambda: self._trim_until_done(name))

    # --- deleting records -----------------------------------------------------------------------------------------

    def trim(self, name: str) -> None:
        """Delete some records that were seen and are not deleted yet."""
        topic = self.world.newest_image().topics[name]
        index = self.rng.randrange(len(topic.partitions))
        ledger = self.world.audit.ledger(topic.id, index)
        assert isinstance(ledger, CompactedLedger)
        leader, epoch = topic.partitions[index].leader, topic.partitions[index].leader_epoch
        if leader not in self.brokers or ledger.end <= ledger.start:
            return
        offset = ledger.start + int((ledger.end - ledger.start) * self.rng.random())
        ledger.delete_below(offset)
        starts = {
            machine.node_id: machine.starts for machine in self.world.machines.values() if machine.process is not None
        }

        def then(reply: Any) -> None:
            code, start = deleted(reply)
            self.trace_result(f"deletes {name}-{index} below {offset}", code)
            if code is ErrorCode.NONE:
                if start < offset:
                    self.world.violated(f"{name}-{index} starts at {start} after DeleteRecords below {offset}")
                self._acknowledged(ledger, name, index, offset, epoch, starts)
            elif code not in REFUSED:
                self.world.violated(f"{self.name} deletes {name}-{index} below {offset}: {code.name}")

        request = deletion(name, index, offset, PATIENCE_MS // 2)
        self.ask(leader, ApiKey.DELETE_RECORDS, 2, request, then, "trim", PATIENCE_MS)

    def _acknowledged(
        self, ledger: CompactedLedger, name: str, index: int, offset: int, epoch: int, starts: dict[int, int]
    ) -> None:
        """Check that all in-sync replicas have deleted the records, unless they are fenced, as after a restart."""
        self.world.faults.counts["records are deleted"] += 1
        if self.is_settled:
            self.trimmed.add(name)
        image = self.world.newest_image()
        state = image.topics[name].partitions[index]
        if offset > ledger.deleted.below:
            ledger.deleted = Deleted(offset, max(epoch, state.leader_epoch), self._processes_ended())
        for node_id in state.isr:
            machine = self.world.machines[node_id]
            if machine.process is None or machine.starts != starts.get(node_id) or image.brokers[node_id].fenced:
                continue
            for partition in machine.partitions():
                if str(partition.name) == f"{name}-{index}" and partition.log.start_offset < offset:
                    start = partition.log.start_offset
                    self.world.violated(f"{machine.host} has {name}-{index} from {start} on, {offset} was acknowledged")

    # --- moving replicas ------------------------------------------------------------------------------------------

    def move_away(self, name: str, index: int, node_id: int) -> None:
        """Move a replica to other brokers if there are any; at least another one leads then."""
        others = [each for each in self.world.broker_ids if each != node_id]
        self.rng.shuffle(others)
        replicas = [*others, node_id][: self.world.replication_factor]
        reassignment = ReassignableTopic(name, [ReassignablePartition(index, replicas)])
        self._ask(
            f"moves {name}-{index} to {replicas}",
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            1,
            AlterPartitionReassignmentsRequest(PATIENCE_MS, True, [reassignment]),
            lambda reply: [reply.error_code],
        )

"""A cluster as its active controller sees it, with short methods to register brokers, send heartbeats and stop them.

Every decision is encoded and decoded before it is applied, as when it is read from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

from moldau.base.config_def import BrokerLayers
from moldau.base.steps import finish
from moldau.metadata.apply import Changes, apply
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.alter_partition import decide_alter_partition
from moldau.metadata.controller.broker_registration import decide_broker_registration
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_elect_leaders
from moldau.metadata.controller.features import SUPPORTED, decide_bootstrap
from moldau.metadata.controller.fencing import decide_fence_stale, decide_unregister_broker
from moldau.metadata.controller.heartbeats import decide_heartbeat
from moldau.metadata.controller.reassignments import decide_alter_reassignments
from moldau.metadata.controller.topics import TopicRules, decide_create_topics
from moldau.metadata.image import MetadataImage, PartitionState
from moldau.metadata.records import decode_record, encode_record
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest
from moldau.wire.schema import MetadataRecord

R = TypeVar("R")

CLUSTER_ID = "the-cluster"
SESSION_TIMEOUT_MS = 1500
HEARTBEAT_INTERVAL_MS = 200
STATIC: Mapping[str, str] = {}


class ControlledCluster:
    def __init__(self, brokers: Sequence[int] = (), racks: Mapping[int, str] | None = None) -> None:
        self.image = MetadataImage()
        self.now_ms = 10_000
        self.sessions = BrokerSessions(SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
        self.rng = Random(1)
        self.racks = racks or {}
        self.changes = Changes()
        self.records: tuple[MetadataRecord, ...] = ()
        """The records of the last decision."""
        self.do(decide_bootstrap(self.image))
        for broker_id in brokers:
            self.join(broker_id)

    # --- the controller -----------------------------------------------------------------------------------------

    def do(self, decision: Decision[R]) -> R:
        self.records = decision.records
        written = [decode_record(encode_record(record)) for record in decision.records]
        if written:
            self.image, self.changes = apply(self.image, written, self.image.offset + len(written), 1)
        return decision.response

    @property
    def layers(self) -> BrokerLayers:
        return broker_layers(self.image, 1, STATIC)

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def take_over(self, suspect: int = -1) -> None:
        """Let another controller become active, which has the image and no sessions."""
        self.sessions = BrokerSessions(SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
        self.sessions.begin_all(self.image, self.now_ms, suspect)

    def fence_stale(self) -> list[int]:
        return self.do(decide_fence_stale(self.image, self.sessions, self.now_ms, self.layers))

    # --- brokers ------------------------------------------------------------------------------------------------

    def register(
        self,
        broker_id: int,
        incarnation: int = 1,
        *,
        cluster_id: str = CLUSTER_ID,
        features: Mapping[str, tuple[int, int]] = SUPPORTED,
        log_dirs: Sequence[bytes] | None = None,
        previous_broker_epoch: int = -1,
        port: int = 9092,
    ) -> BrokerRegistrationResponse:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=bytes([broker_id, incarnation]) * 8,
            listeners=[Listener("PLAINTEXT", f"host{broker_id}", port, 0)],
            features=[Feature(name, low, high) for name, (low, high) in features.items()],
            rack=self.racks.get(broker_id),
            log_dirs=[bytes([broker_id]) * 16] if log_dirs is None else log_dirs,
            previous_broker_epoch=previous_broker_epoch,
        )
        return self.do(
            decide_broker_registration(
                self.image, request, self.sessions, self.now_ms, self.next_offset, CLUSTER_ID, self.layers
            )
        )

    def beat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        epoch: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Sequence[bytes] = (),
        cannot_write: bool | None = None,
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat, by default of a broker that has applied all metadata. Whether it can write stays as it is,
        unless `cannot_write` says otherwise."""
        registered = self.image.brokers.get(broker_id)
        if cannot_write is None:
            cannot_write = registered is not None and registered.cannot_write
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch if epoch is not None else registered.epoch if registered else -1,
            current_metadata_offset=self.image.offset if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=offline,
            cannot_write=cannot_write,
        )
        return self.do(decide_heartbeat(self.image, request, self.sessions, self.now_ms, self.next_offset, self.layers))

    def join(self, broker_id: int, incarnation: int = 1) -> None:
        """Register a broker and unfence it by its first heartbeat."""
        assert self.register(broker_id, incarnation).error_code == 0
        assert not self.beat(broker_id).is_fenced

    def die(self, *broker_ids: int) -> None:
        """Let these brokers stop their heartbeats until their sessions expire, while all others continue."""
        for _ in range(SESSION_TIMEOUT_MS // HEARTBEAT_INTERVAL_MS + 1):
            self.now_ms += HEARTBEAT_INTERVAL_MS
            for broker in self.image.live_brokers():
                if broker.id not in broker_ids:
                    self.beat(broker.id)
        assert self.fence_stale() == sorted(broker_ids)

    def unregister(self, broker_id: int) -> int:
        request = UnregisterBrokerRequest(broker_id)
        return self.do(decide_unregister_broker(self.image, request, self.sessions, self.layers)).error_code

    # --- topics -------------------------------------------------------------------------------------------------

    def create(self, name: str, *replicas: Sequence[int], configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with one partition for each list of replicas."""
        topic = CreatableTopic(
            name,
            -1,
            -1,
            [CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(replicas)],
            [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
        )
        rules = TopicRules(1, 1, True, lambda overrides: None, lambda overrides: ())
        result = self.do(finish(decide_create_topics(self.image, CreateTopicsRequest([topic]), rules, self.rng)))
        assert result.topics[0].error_code == 0, result.topics[0]

    def state(self, name: str, index: int = 0) -> PartitionState:
        return self.image.topics[name].partitions[index]

    def summary(self, name: str, index: int = 0) -> str:
        """Return `leader:isr of replicas @leader epoch`, and the adding and removing replicas, if there are any."""
        state = self.state(name, index)
        text = f"{state.leader}:{_join(state.isr)} of {_join(state.replicas)} @{state.leader_epoch}"
        text += f" +{_join(state.adding_replicas)}" if state.adding_replicas else ""
        return text + (f" -{_join(state.removing_replicas)}" if state.removing_replicas else "")

    def alter(
        self,
        name: str,
        isr: Sequence[int],
        index: int = 0,
        *,
        sender: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovery_state: int = 0,
        broker_epochs: Mapping[int, int] | None = None,
        version: int = 3,
    ) -> ResponsePartitionData:
        """Send AlterPartition as the leader; arguments that are left out have the values of the image."""
        state = self.state(name, index)
        leader = state.leader if sender is None else sender
        epochs = {broker.id: broker.epoch for broker in self.image.brokers.values()} | dict(broker_epochs or {})
        partition = RequestPartitionData(
            partition_index=index,
            leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
            new_isr_with_epochs=[BrokerState(each, epochs.get(each, -1)) for each in isr] if version > 2 else (),
            new_isr=() if version > 2 else isr,
            leader_recovery_state=recovery_state,
            partition_epoch=state.partition_epoch if partition_epoch is None else partition_epoch,
        )
        topic = RequestTopicData(self.image.topics[name].id, [partition])
        request = AlterPartitionRequest(leader, epochs.get(leader, -1), [topic])
        response = self.do(finish(decide_alter_partition(self.image, request, self.layers)))
        assert response.error_code == 0
        return response.topics[0].partitions[0]

    def elect(self, kind: int, name: str, *indexes: int) -> list[int]:
        """Send ElectLeaders; return the error of each partition."""
        request = ElectLeadersRequest(kind, [TopicPartitions(name, indexes)])
        response = self.do(finish(decide_elect_leaders(self.image, request)))
        return [each.error_code for each in response.replica_election_results[0].partition_result]

    def reassign(self, name: str, target: Sequence[int] | None, index: int = 0, *, free_factor: bool = True) -> int:
        """Send AlterPartitionReassignments for one partition; None cancels the reassignment."""
        topic = ReassignableTopic(name, [ReassignablePartition(index, target)])
        request = AlterPartitionReassignmentsRequest(1000, free_factor, [topic])
        response = self.do(finish(decide_alter_reassignments(self.image, request, self.layers)))
        return response.responses[0].partitions[0].error_code


def _join(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))

"""The transaction coordinator of a node: its shards, their topic, and the sender of markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.settings import topics
from moldau.base.topic_names import TRANSACTION_STATE_TOPIC
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transactions import Transactions
from moldau.metadata.apply import Changes
from moldau.metadata.controller.features import TRANSACTION_VERSION
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.broker.producer_ids import ProducerIds
from moldau.runtime.coordinators.marker_sender import MarkerSender
from moldau.runtime.coordinators.shards import Shards
from moldau.runtime.coordinators.topic import CoordinatorTopic, topic_spec
from moldau.runtime.own_work import OwnWork
from moldau.wire.messages.create_topics import CreatableTopic

R = TypeVar("R")
TRANSACTIONAL_ID_BYTES_MAX = 2**15 - 1
"""The longest string that fits into a record's key."""
COMPLETION_RETRY_MS: Final = 500
LOSS: Final = (
    "transactions that are open may never end, and hold up their readers;"
    " `moldau transaction hanging` finds them, `moldau transaction abort` ends them"
)


class TransactionCoordinator:
    def __init__(
        self,
        settings: TransactionSettings,
        topic: CoordinatorTopic,
        node_id: int,
        partitions: Partitions,
        current: CurrentImage,
        producer_ids: ProducerIds,
        brokers: BrokerClient,
        clock: Clock,
        own_work: OwnWork,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._current = current
        self._producer_ids = producer_ids
        self._clock = clock
        self._own_work = own_work
        self._is_closed = False
        self._partitions = partitions
        self._markers = MarkerSender(current, brokers, own_work, self._on_markers_written, self._is_ours)
        self.shards: Shards[Transactions] = Shards(topic, node_id, partitions, self._machine, clock, own_work)

    def _machine(self, partition: Partition) -> Transactions:
        return Transactions(
            self._settings,
            self._clock,
            coordinator_epoch=lambda: partition.state.leader_epoch,
            transaction_version=lambda: self._current.image.features.get(TRANSACTION_VERSION, 0),
            take_producer_id=self._producer_ids.take,
            send=self._markers.send,
        )

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, transactional_id: str, decide: Callable[[Transactions], Outcome[R]]) -> R | Promise[R]:
        """Submit a request to the shard of its transactional id. Raise KafkaError if this node does not have the shard;
        a promise may also be completed with a KafkaError."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        _check_length(transactional_id)
        return self.shards.submit(transactional_id, decide)

    def with_producer_id(self, call: Callable[[], R | Promise[R]]) -> R | Promise[R]:
        """Run `call` once a producer id is available, in case it needs one; a promise may be completed with a
        KafkaError. If the controller grants no ids, `call` still runs, and fails only if it needs one."""
        waiting = self._producer_ids.wait_for_id()
        return call() if waiting is None else waiting.and_then(lambda _: call())

    def find(self, transactional_id: str) -> int:
        """Return the node that coordinates the id. Raise KafkaError if there is none now, or the id is too long."""
        _check_length(transactional_id)
        return self.shards.node_of(transactional_id)

    # --- markers ------------------------------------------------------------------------------------------------

    def _on_markers_written(self, markers: TransactionMarkers) -> None:
        try:
            self.shards.submit(markers.transactional_id, lambda machine: machine.markers_written(markers))
        except KafkaError as refused:
            # If the shard is loading, it will find the prepared transaction and send the markers again. If its
            # partition has too few in-sync replicas, nobody else completes the transaction.
            if refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE and not self._is_closed and self._is_ours(markers):
                self._own_work.after_ms(COMPLETION_RETRY_MS, lambda: self._on_markers_written(markers))

    def _is_ours(self, markers: TransactionMarkers) -> bool:
        partition = self._partitions.find(*self.topic.partition_of(markers.transactional_id))
        return partition is not None and partition.leads and partition.state.leader_epoch >= markers.coordinator_epoch

    # --- changes of metadata, expiration, shutdown --------------------------------------------------------------

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        self.topic.warn_of_loss(image, changes, LOSS)
        self.shards.on_image(image, changes)

    def expire(self) -> None:
        """Remove transactional ids that were not used for their expiration time, in turns of the loop; nothing if the
        last removal is still going on."""
        now_ms = self._clock.now_ms()
        self.shards.submit_in_turns(lambda machine: machine.expire(now_ms))

    def close(self) -> None:
        """Fail all waiting requests because the node stops; producers look for another coordinator then."""
        self._is_closed = True
        self._markers.close()
        self.shards.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _check_length(transactional_id: str) -> None:
    if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def transaction_topic(
    partitions: int, replication_factor: int, segment_bytes: int, min_insync_replicas: int
) -> CreatableTopic:
    configs = {
        topics.CLEANUP_POLICY.name: "compact",
        topics.COMPRESSION_TYPE.name: "uncompressed",
        topics.MIN_INSYNC_REPLICAS.name: str(min_insync_replicas),
        topics.SEGMENT_BYTES.name: str(segment_bytes),
        topics.UNCLEAN_LEADER_ELECTION_ENABLE.name: "false",
    }
    return topic_spec(TRANSACTION_STATE_TOPIC, partitions, replication_factor, configs)

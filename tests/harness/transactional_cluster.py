"""An attacked cluster with transactional clients: well-behaved ones, and a generator of hostile requests."""

from __future__ import annotations

from random import Random
from typing import Any

from harness.attacked_cluster import AttackedCluster, ConnectionClosed, SentRequest
from harness.hostile_requests import HostileRequests
from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.replica.partition import Partition
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message

FEW_PARTITIONS = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
VERSIONS_WITH_TOPIC_NAMES = (3, 10, 11, 12)
"""Produce versions that name topics: the oldest, before aborts have an error of their own, before and after KIP-890."""
ADDS_PARTITIONS_FROM = 12
TIMEOUT_MS = 5_000
ODD_IDS = ("", "\x00", "a\nb", "ž" * 9, "\N{PILE OF POO}", "%s{}", "../../etc", "x" * 32_767)
EPOCHS = (-(2**15), -1, 0, 1, 2, 2**15 - 2, 2**15 - 1)
Producer = tuple[int, int]


def batch(producer: Producer, sequence: int = 0, value: bytes = b"v", **header: Any) -> bytearray:
    fields = {"is_transactional": True, **header}
    record = Record(NEXT_OFFSET, 1_700_000_000_000, None, value)
    return build_batch([record], producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, **fields)


def produce_request(transactional_id: str | None, *parts: tuple[str, int, bytes | bytearray]) -> ProduceRequest:
    data = [TopicProduceData(ZERO_UUID, topic, [PartitionProduceData(index, bytes(of))]) for topic, index, of in parts]
    return ProduceRequest(transactional_id, -1, 30_000, data)


class TransactionalCluster:
    def __init__(self, node_count: int, **properties: str) -> None:
        self.cluster = AttackedCluster(node_count, **FEW_PARTITIONS, **properties)
        self.until = self.cluster.until
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            self.until(
                lambda request=request: not self.ask(request, ApiKey.FIND_COORDINATOR, 4, 1).coordinators[0].error_code,
                f"the coordinator of key type {kind} is available",
            )
        self._number = 0

    # --- requests and partitions ----------------------------------------------------------------------------------

    def send(self, request: Message, api: ApiKey, version: int, node: int) -> SentRequest:
        return self.cluster.send(request, api, version, node, to_controller=False)

    def ask(self, request: Message, api: ApiKey, version: int, node: int) -> Any:
        return self.cluster.ask(request, api, version, node, to_controller=False)

    def coordinator(self, transactional_id: str) -> int:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        node: int = self.ask(request, ApiKey.FIND_COORDINATOR, 4, 1).coordinators[0].node_id
        return max(node, 1)

    def leader(self, topic: str = "victim", index: int = 0) -> int:
        return self.cluster.wait_for_leader().current.image.topics[topic].partitions[index].leader

    def partition(self, topic: str = "victim", index: int = 0, node: int = 0) -> Partition:
        side = self.cluster.nodes[node or self.leader(topic, index)].broker_side
        assert side is not None
        return side.partitions.get(topic, index)

    # --- a producer -----------------------------------------------------------------------------------------------

    def init(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        response: Any = None

        def is_initialized() -> bool:
            nonlocal response
            request = InitProducerIdRequest(transactional_id, timeout_ms)
            response = self.ask(request, ApiKey.INIT_PRODUCER_ID, 5, self.coordinator(transactional_id))
            return response.error_code == ErrorCode.NONE

        self.until(is_initialized, f"{transactional_id[:50]} has a producer")
        return response.producer_id, response.producer_epoch

    def add(self, transactional_id: str, producer: Producer, topic: str = "victim", *indexes: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(indexes or (0,)))],
        )
        response = self.ask(request, ApiKey.ADD_PARTITIONS_TO_TXN, 3, self.coordinator(transactional_id))
        return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def begin_write(
        self, transactional_id: str, producer: Producer, sequence: int = 0, version: int = 12, topic: str = "victim"
    ) -> SentRequest:
        request = produce_request(transactional_id, (topic, 0, batch(producer, sequence)))
        return self.send(request, ApiKey.PRODUCE, version, self.leader(topic))

    def write(
        self, transactional_id: str, producer: Producer, sequence: int = 0, version: int = 12, topic: str = "victim"
    ) -> ErrorCode:
        sent = self.begin_write(transactional_id, producer, sequence, version, topic)
        self.until(lambda: not sent.is_waiting, f"the write to {topic} is answered")
        return ErrorCode(sent.outcome.responses[0].partition_responses[0].error_code)

    def end(self, transactional_id: str, producer: Producer, committed: bool = True, version: int = 5) -> Any:
        request = EndTxnRequest(transactional_id, *producer, committed)
        return self.ask(request, ApiKey.END_TXN, version, self.coordinator(transactional_id))

    # --- checks ---------------------------------------------------------------------------------------------------

    def states(self, node: int) -> dict[str, str]:
        response = self.ask(ListTransactionsRequest(), ApiKey.LIST_TRANSACTIONS, 1, node)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return {each.transactional_id: each.transaction_state for each in response.transaction_states}

    def is_quiet(self) -> bool:
        """Whether no transaction is open or ending and every last stable offset has reached the log end offset."""
        for node, assembly in self.cluster.nodes.items():
            if {"Ongoing", "PrepareCommit", "PrepareAbort"} & set(self.states(node).values()):
                return False
            assert assembly.broker_side is not None
            for each in assembly.broker_side.partitions:
                if each.is_leader and each.last_stable_offset != each.log.end_offset:
                    return False
        return True

    def check_health(self) -> None:
        """Check that producers of both transaction versions write, commit and abort, and that nothing is left open."""
        self._number += 1
        for version in (11, 12):
            name = f"well-behaved {version} {self._number}"
            producer = self.init(name)
            for committed in (True, False):
                producer = self._one_transaction(name, producer, version, committed)
        self.until(self.is_quiet, "all transactions are over", patience_ms=3 * TIMEOUT_MS)
        assert not self.cluster.faults

    def _one_transaction(self, name: str, producer: Producer, version: int, committed: bool) -> Producer:
        if version < ADDS_PARTITIONS_FROM:
            self.until(lambda: self.add(name, producer) == ErrorCode.NONE, "the partition is added")
        sequence = 0 if committed or version >= ADDS_PARTITIONS_FROM else 1
        self.until(
            lambda: self.write(name, producer, sequence, version) == ErrorCode.NONE, f"a write of {name} is accepted"
        )
        response = self.end(name, producer, committed, 5 if version >= ADDS_PARTITIONS_FROM else 4)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return (response.producer_id, response.producer_epoch) if version >= ADDS_PARTITIONS_FROM else producer


class HostileTransactionalRequests(HostileRequests):
    """Random requests with transactional ids and producers that exist, or nearly exist."""

    def __init__(self, transactional: TransactionalCluster, seed: int, producers: dict[str, Producer]) -> None:
        super().__init__(transactional.cluster, seed, for_quorum=False)
        self._producers = producers
        self._transaction_rng = Random(seed)

    def _plausible_value(self, name: str, kind: str) -> Any:
        choice = self._transaction_rng.choice
        producer = choice(list(self._producers.values()))
        if "transactional_id" in name and kind == "string":
            return choice((*self._producers, *self._producers, *ODD_IDS))
        if name in ("name", "topic") and kind == "string":
            internal = (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, METADATA_TOPIC)
            return choice(("victim", "victim", "victim", "nobody", "", "x" * 300, *internal))
        if name.endswith("producer_id"):
            return choice((producer[0], producer[0], -1, -2, -(2**63), 0, 2**63 - 1))
        if name.endswith("producer_epoch"):
            return choice((producer[1], producer[1], producer[1] + 1, *EPOCHS))
        if name == "coordinator_epoch":
            return choice((0, 0, 1, -1, 2**31 - 1))
        if name == "transaction_timeout_ms":
            return choice((1, 100, TIMEOUT_MS, TIMEOUT_MS, 0, -1, 2**31 - 1))
        if name == "group_id":
            return choice(("g", "g", *ODD_IDS))
        return super()._plausible_value(name, kind)


def is_closed(outcome: Any) -> bool:
    return isinstance(outcome, ConnectionClosed)

"""Authorization of the transaction APIs: each with and without the ACLs that it needs. Denied responses are Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from harness.coordinator_node import PUBLIC, SECRET, CoordinatorNode

from moldau.base.acl_operations import AclOperation
from moldau.base.counters import MARKERS_REFUSED
from moldau.base.errors import ErrorCode
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.security.acls.access import Needs
from moldau.security.acls.bindings import ResourceType
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

NONE = ErrorCode.NONE
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
MISSING = "missing"
"""A topic that does not exist."""
Producer = tuple[int, int]


@pytest.fixture
def node() -> CoordinatorNode:
    return CoordinatorNode()


def allow_transaction(node: CoordinatorNode, operation: AclOperation, name: str = "tx") -> None:
    node.allow(operation, ResourceType.TRANSACTIONAL_ID, name)


def allow_topic(node: CoordinatorNode, operation: AclOperation, name: str = PUBLIC) -> None:
    node.allow(operation, ResourceType.TOPIC, name)


def init(node: CoordinatorNode, transactional_id: str = "tx") -> Producer:
    """Initialize a producer as an administrator."""
    request = InitProducerIdRequest(transactional_id, 60_000)
    response = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, request)
    assert response.error_code == NONE
    return response.producer_id, response.producer_epoch


def states(node: CoordinatorNode) -> dict[str, str]:
    response = node.ask_as_admin(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


def transaction(node: CoordinatorNode, transactional_id: str = "tx") -> TransactionState:
    """Describe a transaction as an administrator."""
    request = DescribeTransactionsRequest([transactional_id])
    state = node.ask_as_admin(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states[0]
    assert isinstance(state, TransactionState)
    return state


# --- InitProducerId ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 5])
def test_a_transactional_producer_needs_write_of_its_id(node: CoordinatorNode, version: int) -> None:
    denied = InitProducerIdResponse(error_code=DENIED, producer_id=-1, producer_epoch=-1)
    for name in ("tx", ""):
        request = InitProducerIdRequest(name, 60_000)
        assert node.ask_refused(ApiKey.INIT_PRODUCER_ID, request, version) == denied
    # Authorization comes before the check of the other fields.
    contradictory = InitProducerIdRequest("tx", 60_000, producer_id=5)
    assert node.ask_refused(ApiKey.INIT_PRODUCER_ID, contradictory, version) == denied
    assert states(node) == {}
    allow_transaction(node, AclOperation.DESCRIBE)
    assert node.ask_refused(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), version) == denied
    allow_transaction(node, AclOperation.WRITE)
    response = node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), version)
    assert (response.error_code, response.producer_epoch) == (NONE, 0)
    assert states(node) == {"tx": "Empty"}


@pytest.mark.parametrize(
    ("operation", "resource", "name"),
    [
        (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster"),
        (AclOperation.WRITE, ResourceType.TOPIC, "any"),
    ],
)
def test_an_idempotent_producer_needs_write_of_some_topic_or_idempotent_write(
    node: CoordinatorNode, operation: AclOperation, resource: ResourceType, name: str
) -> None:
    request = InitProducerIdRequest(None, 60_000)
    allow_topic(node, AclOperation.READ)
    allow_transaction(node, AclOperation.WRITE)
    denied = InitProducerIdResponse(error_code=CLUSTER_DENIED, producer_id=-1, producer_epoch=-1)
    assert node.ask_refused(ApiKey.INIT_PRODUCER_ID, request) == denied
    refusal = (Needs(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), "kafka-cluster")
    assert node.refusals == [refusal], "only this refusal is in the audit log"
    node.allow(operation, resource, name)
    response = node.ask(ApiKey.INIT_PRODUCER_ID, request)
    assert (response.error_code, response.producer_epoch) == (NONE, 0)
    assert response.producer_id >= 0
    assert node.refusals == [refusal]


# --- AddPartitionsToTxn and AddOffsetsToTxn ---------------------------------------------------------------------


def add_request(producer: Producer, *names: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0, 1]) for name in names],
    )


def add_codes(topics: Any) -> list[list[int]]:
    return [[each.partition_error_code for each in topic.results_by_partition] for topic in topics]


@pytest.mark.parametrize("version", [0, 3])
def test_add_partitions_needs_write_of_the_transactional_id_and_of_each_topic(
    node: CoordinatorNode, version: int
) -> None:
    producer = init(node)
    allow_transaction(node, AclOperation.DESCRIBE)

    def add(*names: str) -> list[list[int]]:
        response = node.ask_refused(ApiKey.ADD_PARTITIONS_TO_TXN, add_request(producer, *names), version)
        return add_codes(response.results_by_topic_v3_and_below)

    allow_topic(node, AclOperation.WRITE)
    assert add(PUBLIC, MISSING, CONSUMER_OFFSETS_TOPIC) == [[DENIED] * 2] * 3
    allow_transaction(node, AclOperation.WRITE)
    allow_topic(node, AclOperation.READ, SECRET)
    allow_topic(node, AclOperation.WRITE, CONSUMER_OFFSETS_TOPIC)
    assert add(PUBLIC, SECRET, MISSING, CONSUMER_OFFSETS_TOPIC) == [
        [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2,
        [TOPIC_DENIED] * 2,
        [TOPIC_DENIED] * 2,
        [TOPIC_DENIED] * 2,
    ]
    allow_topic(node, AclOperation.WRITE, MISSING)
    assert add(PUBLIC, MISSING) == [
        [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2,
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
    ]
    assert states(node) == {"tx": "Empty"}
    response = node.ask(ApiKey.ADD_PARTITIONS_TO_TXN, add_request(producer, PUBLIC), version)
    assert add_codes(response.results_by_topic_v3_and_below) == [[NONE] * 2]
    assert [(each.topic, each.partitions) for each in transaction(node).topics] == [(PUBLIC, [0, 1])]


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_by_a_broker_needs_cluster_action_only(node: CoordinatorNode, version: int) -> None:
    producer = init(node)
    topics = [AddPartitionsToTxnTopic(PUBLIC, [0])]
    request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("tx", *producer, False, topics)])
    allow_transaction(node, AclOperation.WRITE)
    allow_topic(node, AclOperation.WRITE)
    denied = AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED, results_by_transaction=[])
    assert node.ask_refused(ApiKey.ADD_PARTITIONS_TO_TXN, request, version) == denied
    node.withdraw(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    node.withdraw(AclOperation.WRITE, ResourceType.TOPIC, PUBLIC)
    node.allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    response = node.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
    assert response.error_code == NONE
    assert add_codes(response.results_by_transaction[0].topic_results) == [[NONE]]


def test_add_offsets_needs_write_of_the_transactional_id_and_read_of_the_group(node: CoordinatorNode) -> None:
    request = AddOffsetsToTxnRequest("tx", *init(node), "g")
    allow_transaction(node, AclOperation.DESCRIBE)
    node.allow(AclOperation.DESCRIBE, ResourceType.GROUP, "g")
    assert node.ask_refused(ApiKey.ADD_OFFSETS_TO_TXN, request).error_code == DENIED
    allow_transaction(node, AclOperation.WRITE)
    assert node.ask_refused(ApiKey.ADD_OFFSETS_TO_TXN, request).error_code == GROUP_DENIED
    node.withdraw(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    node.allow(AclOperation.READ, ResourceType.GROUP, "g")
    assert node.ask_refused(ApiKey.ADD_OFFSETS_TO_TXN, request).error_code == DENIED
    assert states(node) == {"tx": "Empty"}
    allow_transaction(node, AclOperation.WRITE)
    assert node.ask(ApiKey.ADD_OFFSETS_TO_TXN, request).error_code == NONE
    assert states(node) == {"tx": "Ongoing"}


# --- TxnOffsetCommit --------------------------------------------------------------------------------------------


def commit_request(producer: Producer, *names: str, **fields: Any) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(index, 7) for index in (0, 1)]
    topics = [TxnOffsetCommitRequestTopic(name, partitions) for name in names]
    return TxnOffsetCommitRequest("tx", "g", *producer, topics=topics, **fields)


def codes(topics: Any) -> list[list[int]]:
    return [[each.error_code for each in topic.partitions] for topic in topics]


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_txn_offset_commit_needs_write_of_the_id_read_of_the_group_and_of_each_topic(
    node: CoordinatorNode, version: int
) -> None:
    producer = init(node)
    if version < 5:
        node.ask_as_admin(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest("tx", *producer, "g"))
    before = states(node)
    allow_transaction(node, AclOperation.DESCRIBE)
    node.allow(AclOperation.DESCRIBE, ResourceType.GROUP, "g")
    allow_topic(node, AclOperation.DESCRIBE, SECRET)
    request = commit_request(producer, SECRET, PUBLIC, MISSING)

    def refused_commit(request: TxnOffsetCommitRequest) -> list[list[int]]:
        return codes(node.ask_refused(ApiKey.TXN_OFFSET_COMMIT, request, version).topics)

    allow_topic(node, AclOperation.READ)
    node.allow(AclOperation.READ, ResourceType.GROUP, "g")
    assert refused_commit(request) == [[DENIED] * 2] * 3
    node.withdraw(AclOperation.READ, ResourceType.GROUP, "g")
    allow_transaction(node, AclOperation.WRITE)
    assert refused_commit(request) == [[GROUP_DENIED] * 2] * 3
    node.allow(AclOperation.READ, ResourceType.GROUP, "g")
    assert refused_commit(commit_request(producer, SECRET, MISSING)) == [[TOPIC_DENIED] * 2] * 2
    assert states(node) == before, "a denied commit began the transaction"
    response = node.ask(ApiKey.TXN_OFFSET_COMMIT, request, version)
    assert codes(response.topics) == [[TOPIC_DENIED] * 2, [NONE] * 2, [TOPIC_DENIED] * 2]
    end = node.ask_as_admin(ApiKey.END_TXN, EndTxnRequest("tx", *producer, True), 5 if version == 5 else 4)
    assert (end.error_code, node.committed_offsets()) == (NONE, {PUBLIC: [7, 7]})


def test_txn_offset_commit_of_an_unknown_member_still_reports_denied_topics(node: CoordinatorNode) -> None:
    producer = init(node)
    allow_transaction(node, AclOperation.WRITE)
    node.allow(AclOperation.READ, ResourceType.GROUP, "g")
    allow_topic(node, AclOperation.READ)
    request = commit_request(producer, SECRET, PUBLIC, generation_id=3, member_id="nobody")
    response = node.ask(ApiKey.TXN_OFFSET_COMMIT, request)
    assert codes(response.topics) == [[TOPIC_DENIED] * 2, [ErrorCode.ILLEGAL_GENERATION] * 2]


# --- EndTxn and WriteTxnMarkers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 5])
def test_end_txn_needs_write(node: CoordinatorNode, version: int) -> None:
    producer = init(node)
    node.ask_as_admin(ApiKey.ADD_PARTITIONS_TO_TXN, add_request(producer, PUBLIC), 3)
    request = EndTxnRequest("tx", *producer, True)
    denied = EndTxnResponse(error_code=DENIED, producer_id=-1, producer_epoch=-1)
    assert node.ask_refused(ApiKey.END_TXN, request, version) == denied
    allow_transaction(node, AclOperation.DESCRIBE)
    assert node.ask_refused(ApiKey.END_TXN, request, version) == denied
    assert states(node) == {"tx": "Ongoing"}
    allow_transaction(node, AclOperation.WRITE)
    assert node.ask(ApiKey.END_TXN, request, version).error_code == NONE
    assert states(node) == {"tx": "CompleteCommit"}, (
        "the node writes the markers itself, whatever the permissions of the client"
    )


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.CLUSTER_ACTION])
@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers_needs_alter_or_cluster_action(
    node: CoordinatorNode, operation: AclOperation, version: int
) -> None:
    producer = init(node)
    topics = [WritableTxnMarkerTopic(PUBLIC, [0, 1]), WritableTxnMarkerTopic(MISSING, [0])]
    markers = [WritableTxnMarker(*producer, False, topics[index:], 0) for index in (0, 1)]
    allow_topic(node, AclOperation.WRITE)
    allow_transaction(node, AclOperation.WRITE)
    node.allow(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    denied = node.ask_refused(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers), version).markers
    assert [(each.producer_id, codes(each.topics)) for each in denied] == [
        (producer[0], [[CLUSTER_DENIED] * 2, [CLUSTER_DENIED]]),
        (producer[0], [[CLUSTER_DENIED]]),
    ]
    assert node.in_memory.assembly.counters[MARKERS_REFUSED] == 2
    node.allow(operation, ResourceType.CLUSTER)
    allowed = node.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers), version).markers
    assert codes(allowed[0].topics) == [[NONE] * 2, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


# --- administration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", [None, pytest.param("t.*", marks=pytest.mark.needs_re2)], ids=["all", "by a pattern"]
)
def test_list_transactions_returns_transactions_that_the_client_may_describe(
    node: CoordinatorNode, pattern: str | None
) -> None:
    for name in ("t1", "t2", "t3"):
        init(node, name)
    request = ListTransactionsRequest(["Empty", "Odd"], transactional_id_pattern=pattern)

    def listed() -> list[str]:
        response = node.ask(ApiKey.LIST_TRANSACTIONS, request)
        assert (response.error_code, list(response.unknown_state_filters)) == (NONE, ["Odd"])
        return sorted(each.transactional_id for each in response.transaction_states)

    assert listed() == []
    allow_transaction(node, AclOperation.DESCRIBE, "t1")
    allow_transaction(node, AclOperation.WRITE, "t3")
    assert listed() == ["t1", "t3"]


def test_describe_transactions_needs_describe_of_each_and_hides_topics(node: CoordinatorNode) -> None:
    producer = init(node)
    init(node, "other")
    node.ask_as_admin(ApiKey.ADD_PARTITIONS_TO_TXN, add_request(producer, SECRET, PUBLIC), 3)
    request = DescribeTransactionsRequest(["other", "tx", "nowhere"])
    allow_transaction(node, AclOperation.DESCRIBE)
    allow_topic(node, AclOperation.DESCRIBE)
    other, mine, nowhere = node.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
    assert [other, nowhere] == [TransactionState(DENIED, name, "", 0, 0, 0, 0, []) for name in ("other", "nowhere")]
    assert (mine.error_code, mine.transaction_state, mine.producer_id) == (NONE, "Ongoing", producer[0])
    assert [(each.topic, each.partitions) for each in mine.topics] == [(PUBLIC, [0, 1])]
    assert {each.topic for each in transaction(node).topics} == {PUBLIC, SECRET}

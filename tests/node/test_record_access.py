"""Authorization of the APIs that name topics, denied and allowed. A denied request changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.in_memory_node import batch
from harness.restricted_node import RestrictedNode

from moldau.base.acl_operations import OPERATIONS_OMITTED, AclOperation, bits
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.security.acls.bindings import ResourceType
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC, CLUSTER, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
DESCRIBE, CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_NAME = "kafka-cluster"


@pytest.fixture
def node() -> RestrictedNode:
    node = RestrictedNode()
    node.start()
    node.create_topic("secret")
    node.create_topic("open")
    return node


# --- produce ----------------------------------------------------------------------------------------------------------


def produce(*topics: str, acks: int = 1, transactional_id: str | None = None, **header: int) -> ProduceRequest:
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, batch(**header))]) for name in topics]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=data)


def test_produce_needs_write_on_each_topic(node: RestrictedNode) -> None:
    node.allow(WRITE, TOPIC, "open")
    response = node.completed(node.ask(ApiKey.PRODUCE, produce("secret", "open", "missing"), 9))
    results = {topic.name: topic.partition_responses[0] for topic in response.responses}
    assert {name: result.error_code for name, result in results.items()} == {
        "secret": DENIED, "open": 0, "missing": DENIED,
    }  # fmt: skip
    denied = results["secret"]
    assert (denied.base_offset, denied.log_append_time_ms, denied.log_start_offset) == (-1, -1, -1)
    assert (denied.record_errors, denied.error_message) == ((), None)
    assert [node.partitions.get(name, 0).log.end_offset for name in ("secret", "open")] == [0, 1]


def test_produce_with_an_unknown_topic_id_is_refused_with_unknown_topic_id(node: RestrictedNode) -> None:
    request = produce("secret")
    request.topic_data[0].topic_id = b"x" * 16
    response = node.ask(ApiKey.PRODUCE, request, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.topic_data[0].topic_id = node.current.image.topics["secret"].id
    assert node.ask(ApiKey.PRODUCE, request, 13).responses[0].partition_responses[0].error_code == DENIED


def test_a_denied_produce_without_acks_closes_the_connection(node: RestrictedNode) -> None:
    with pytest.raises(MalformedData, match="TOPIC_AUTHORIZATION_FAILED"):
        node.ask(ApiKey.PRODUCE, produce("secret", acks=0), 9)
    assert node.partitions.get("secret", 0).log.end_offset == 0


def test_a_transactional_batch_needs_write_on_its_transactional_id(node: RestrictedNode) -> None:
    node.allow(WRITE, TOPIC, "open")
    request = produce(
        "open", transactional_id="t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    response = node.ask(ApiKey.PRODUCE, request, 9)
    expected = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert response.responses[0].partition_responses[0].error_code == expected
    plain = produce("open", transactional_id="t")
    assert node.completed(node.ask(ApiKey.PRODUCE, plain, 9)).responses[0].partition_responses[0].error_code == 0


# --- fetch ------------------------------------------------------------------------------------------------------------


def fetch(*topics: str, epoch: int = -1, wait_ms: int = 0, replica: int = -1) -> FetchRequest:
    wanted = [FetchTopic(topic=name, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)]) for name in topics]
    return FetchRequest(
        replica_id=replica,
        replica_state=ReplicaState(replica, 1) if replica >= 0 else None,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=epoch,
        topics=wanted,
    )


@pytest.mark.parametrize("epoch", [-1, 0])
def test_fetch_needs_read_on_each_topic(node: RestrictedNode, epoch: int) -> None:
    node.allow(READ, TOPIC, "open")
    for name in ("open", "secret"):
        node.completed(node.ask(ApiKey.PRODUCE, produce(name), 9, "root"))
    response = node.ask(ApiKey.FETCH, fetch("secret", "open", epoch=epoch), 12)
    results = {topic.topic: topic.partitions[0] for topic in response.responses}
    assert {name: data.error_code for name, data in results.items()} == {"secret": DENIED, "open": 0}
    assert results["open"].records
    denied = results["secret"]
    assert not denied.records
    assert (denied.high_watermark, denied.last_stable_offset, denied.log_start_offset) == (-1, -1, -1)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_denied_topic_does_not_end_the_wait_for_others(node: RestrictedNode, epoch: int) -> None:
    """Otherwise a consumer of both would fetch again and again without a pause."""
    node.allow(READ, TOPIC, "open")
    waiting = node.ask(ApiKey.FETCH, fetch("secret", "open", epoch=epoch, wait_ms=500), 12)
    assert isinstance(waiting, Promise)
    assert not waiting.done
    node.completed(node.ask(ApiKey.PRODUCE, produce("secret"), 9, "root"))
    node.timers.run_soon()
    assert not waiting.done
    node.completed(node.ask(ApiKey.PRODUCE, produce("open"), 9, "root"))
    node.timers.run_soon()
    assert waiting.done
    alone = node.ask(ApiKey.FETCH, fetch("secret", epoch=epoch, wait_ms=500), 12)
    assert not isinstance(alone, Promise), "a fetch of denied topics alone does not wait"


def test_a_fetch_session_loses_access_when_a_permission_is_removed(node: RestrictedNode) -> None:
    node.allow(READ, TOPIC, "open")
    first = node.ask(ApiKey.FETCH, fetch("open", epoch=0), 12)
    assert first.responses[0].partitions[0].error_code == 0
    node.completed(node.ask(ApiKey.PRODUCE, produce("open"), 9, "root"))
    node.deny(READ, TOPIC, "open")
    again = fetch(epoch=1)
    again.session_id = first.session_id
    response = node.ask(ApiKey.FETCH, again, 12)
    assert response.responses[0].partitions[0].error_code == DENIED
    assert not response.responses[0].partitions[0].records


def test_fetch_as_a_follower_needs_cluster_action(node: RestrictedNode) -> None:
    node.allow(READ, TOPIC, "open")
    response = node.ask(ApiKey.FETCH, fetch("open", epoch=0, replica=2), 15)
    assert response.error_code == 0
    assert response.session_id == 0
    assert response.responses[0].partitions[0].error_code == DENIED
    node.allow(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    response = node.ask(ApiKey.FETCH, fetch("open", epoch=0, replica=2), 15)
    assert response.responses[0].partitions[0].error_code != DENIED


# --- offsets and producers --------------------------------------------------------------------------------------------


def list_offsets(node: RestrictedNode) -> tuple[int, ...]:
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("secret", [ListOffsetsPartition(0, timestamp=-1)])])
    result = node.ask(ApiKey.LIST_OFFSETS, request, 9).topics[0].partitions[0]
    return result.error_code, result.timestamp, result.offset, result.leader_epoch


def test_list_offsets_needs_describe(node: RestrictedNode) -> None:
    assert list_offsets(node) == (DENIED, -1, -1, -1)
    node.allow(DESCRIBE, TOPIC, "secret")
    assert list_offsets(node) == (0, -1, 0, 0)


def test_delete_records_needs_delete(node: RestrictedNode) -> None:
    node.completed(node.ask(ApiKey.PRODUCE, produce("secret"), 9, "root"))
    request = DeleteRecordsRequest([DeleteRecordsTopic("secret", [DeleteRecordsPartition(0, 1)])], 100)
    result = node.ask(ApiKey.DELETE_RECORDS, request, 2).topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (DENIED, -1)
    assert node.partitions.get("secret", 0).log.start_offset == 0
    node.allow(DELETE, TOPIC, "secret")
    assert node.completed(node.ask(ApiKey.DELETE_RECORDS, request, 2)).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(
    ("operation", "resource", "name"), [(DESCRIBE, TOPIC, "secret"), (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]
)
def test_offset_for_leader_epoch_needs_describe_or_cluster_action(
    node: RestrictedNode, operation: AclOperation, resource: ResourceType, name: str
) -> None:
    topic = OffsetForLeaderTopic("secret", [OffsetForLeaderPartition(0, -1, 0)])
    request = OffsetForLeaderEpochRequest(topics=[topic])
    result = node.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, 4).topics[0].partitions[0]
    assert (result.error_code, result.leader_epoch, result.end_offset) == (DENIED, -1, -1)
    node.allow(operation, resource, name)
    assert node.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, 4).topics[0].partitions[0].error_code == 0


def test_describe_producers_needs_read(node: RestrictedNode) -> None:
    def code(name: str) -> int:
        request = DescribeProducersRequest([TopicRequest(name, [0])])
        return int(node.ask(ApiKey.DESCRIBE_PRODUCERS, request, 0).topics[0].partitions[0].error_code)

    node.allow(DESCRIBE, TOPIC, "secret")
    assert [code(name) for name in ("secret", "missing", "not a name")] == [
        DENIED, DENIED, ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]  # fmt: skip
    node.allow(READ, TOPIC, "secret")
    assert code("secret") == 0


# --- metadata ---------------------------------------------------------------------------------------------------------


def metadata(*names: str, creates: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] or None
    return MetadataRequest(topics, allow_auto_topic_creation=creates, include_topic_authorized_operations=True)


def test_metadata_of_all_topics_needs_describe_on_each(node: RestrictedNode) -> None:
    node.allow(READ, TOPIC, "open")
    (topic,) = node.ask(ApiKey.METADATA, metadata(), 12).topics
    assert (topic.name, topic.topic_authorized_operations) == ("open", bits([READ, DESCRIBE]))


def test_metadata_of_a_denied_topic_looks_like_that_of_a_missing_one(node: RestrictedNode) -> None:
    answers = [node.ask(ApiKey.METADATA, metadata(name), 12).topics[0] for name in ("secret", "missing", "no name!")]
    for answer, name in zip(answers, ("secret", "missing", "no name!"), strict=True):
        assert (answer.error_code, answer.name, answer.topic_id) == (DENIED, name, ZERO_UUID)
        assert (answer.is_internal, answer.partitions) == (False, ())
        assert answer.topic_authorized_operations == OPERATIONS_OMITTED


def test_metadata_by_topic_id_is_denied(node: RestrictedNode) -> None:
    topic_id = node.current.image.topics["secret"].id
    by_id = MetadataRequest([MetadataRequestTopic(topic_id, None)], allow_auto_topic_creation=False)
    (topic,) = node.ask(ApiKey.METADATA, by_id, 12).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (DENIED, None, topic_id)


@pytest.mark.parametrize(("resource", "name"), [(TOPIC, "missing"), (CLUSTER, CLUSTER_NAME)])
def test_metadata_creates_a_missing_topic_only_with_create_and_describe(
    node: RestrictedNode, resource: ResourceType, name: str
) -> None:
    node.allow(CREATE, resource, name)
    (topic,) = node.completed(node.ask(ApiKey.METADATA, metadata("missing", creates=True), 12)).topics
    assert topic.error_code == DENIED, "it may not be described"
    assert "missing" not in node.current.image.topics
    node.allow(DESCRIBE, TOPIC, "missing")
    (topic,) = node.completed(node.ask(ApiKey.METADATA, metadata("missing", creates=True), 12)).topics
    assert (topic.error_code, topic.name) == (0, "missing")


def test_metadata_with_describe_alone_creates_no_topic(node: RestrictedNode) -> None:
    node.allow(DESCRIBE, TOPIC, "missing")
    codes = [
        node.ask(ApiKey.METADATA, metadata("missing", creates=creates), 12).topics[0].error_code
        for creates in (True, False)
    ]
    assert codes == [DENIED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "missing" not in node.current.image.topics


@pytest.mark.parametrize("operation", [None, DESCRIBE, AclOperation.ALTER])
def test_metadata_lists_the_cluster_operations_that_are_allowed(
    node: RestrictedNode, operation: AclOperation | None
) -> None:
    request = MetadataRequest((), allow_auto_topic_creation=False, include_cluster_authorized_operations=True)
    if operation is not None:
        node.allow(operation, CLUSTER, CLUSTER_NAME)
    expected = 0 if operation is None else bits({operation, DESCRIBE})
    assert node.ask(ApiKey.METADATA, request, 10).cluster_authorized_operations == expected


def test_describe_topic_partitions_needs_describe_on_each_topic(node: RestrictedNode) -> None:
    node.allow(WRITE, TOPIC, "open")
    everything = node.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest([]), 0)
    assert [(topic.name, topic.topic_authorized_operations) for topic in everything.topics] == [
        ("open", bits([WRITE, DESCRIBE]))
    ]
    named = DescribeTopicPartitionsRequest([DescribedTopic(name) for name in ("missing", "open", "secret")])
    topics = node.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, named, 0).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [
        ("open", 0),
        ("missing", DENIED),
        ("secret", DENIED),
    ]
    for denied in topics[1:]:
        assert (denied.topic_id, denied.partitions) == (ZERO_UUID, ())
        assert denied.topic_authorized_operations == OPERATIONS_OMITTED


# --- listeners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_leader_without_the_listener_of_the_client_is_not_returned(
    node: RestrictedNode, version: int, code: ErrorCode
) -> None:
    node.allow(DESCRIBE, TOPIC, "open")
    response = node.ask(ApiKey.METADATA, metadata("open"), version, listener="OTHER")
    ((partition,),) = [topic.partitions for topic in response.topics]
    assert response.brokers == []
    assert (partition.error_code, partition.leader_id) == (code, -1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((1,), (1,), [1])
    described = node.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest([DescribedTopic("open")]), 0, listener="OTHER"
    )
    ((partition,),) = [topic.partitions for topic in described.topics]
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (0, -1, [1])


# --- dead brokers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "listener", "code", "leader", "replicas", "isr"),
    [
        (0, "PLAINTEXT", ErrorCode.REPLICA_NOT_AVAILABLE, 1, [1], [1]),
        (0, "OTHER", ErrorCode.LEADER_NOT_AVAILABLE, -1, [], []),
        (1, "PLAINTEXT", ErrorCode.NONE, 1, [1, 2, 3], [1, 2]),
    ],
)
def test_metadata_v0_leaves_out_replicas_that_the_client_cannot_reach(
    node: RestrictedNode,
    version: int,
    listener: str,
    code: ErrorCode,
    leader: int,
    replicas: list[int],
    isr: list[int],
) -> None:
    """Broker 2 is fenced, and broker 3 is not registered."""
    node.allow(DESCRIBE, TOPIC, "open")
    image = node.current.image
    topic, broker = image.topics["open"], image.brokers[1]
    partitions = (replace(topic.partitions[0], replicas=(1, 2, 3), isr=(1, 2)),)
    node.current.image = replace(
        image,
        topics=PersistentMap({"open": replace(topic, partitions=partitions)}),
        brokers=PersistentMap({1: broker, 2: replace(broker, id=2, fenced=True)}),
    )
    response = node.ask(ApiKey.METADATA, metadata("open"), version, listener=listener)
    ((partition,),) = [topic.partitions for topic in response.topics]
    assert (partition.error_code, partition.leader_id) == (code, leader)
    assert (list(partition.replica_nodes), list(partition.isr_nodes)) == (replicas, isr)

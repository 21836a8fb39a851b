"""Metadata, DescribeTopicPartitions, DescribeCluster and ApiVersions: the first requests of a client."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from harness.patience import wait_until
from kio.schema.errors import ErrorCode
from protocol_requests import by_name, metadata, topic_id
from wire_client import Wire, encode_request, message

CreateTopic = Callable[..., str]
INVALID_NAMES = ["", ".", "..", "a/b", "a b", "ž", "a" * 250, "a:b", "a\x00b", "a\n"]


def only_topic(answer: Any) -> Any:
    (shown,) = answer.topics
    return shown


def test_a_topic_by_name(wire: Wire, create_topic: CreateTopic, bootstrap: str) -> None:
    name = create_topic(partitions=3)
    answer = metadata(wire, [by_name(name)])
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert answer.controller_id == broker.node_id
    assert answer.cluster_id
    shown = only_topic(answer)
    assert (shown.error_code, shown.name, shown.is_internal) == (0, name, False)
    assert isinstance(shown.topic_id, UUID)
    assert sorted(partition.partition_index for partition in shown.partitions) == [0, 1, 2]
    for partition in shown.partitions:
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, broker.node_id, 0)
        assert partition.replica_nodes == partition.isr_nodes == (broker.node_id,)
        assert partition.offline_replicas == ()


def test_a_topic_by_id(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    identity = topic_id(wire, name)
    shown = only_topic(metadata(wire, [{"topic_id": identity, "name": None}]))
    assert (shown.error_code, shown.name, shown.topic_id) == (0, name, identity)


def test_an_unknown_topic_id_is_refused(wire: Wire) -> None:
    identity = uuid4()
    shown = only_topic(metadata(wire, [{"topic_id": identity, "name": None}]))
    assert (shown.error_code, shown.name, shown.topic_id) == (ErrorCode.unknown_topic_id, None, identity)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_10_and_11_refuse_topic_ids(wire: Wire, create_topic: CreateTopic, version: int) -> None:
    """These versions have the field but do not support it: each topic is refused, and no broker is returned."""
    name = create_topic()
    request = message(
        "metadata",
        version,
        topics=[{"topic_id": topic_id(wire, name), "name": name}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        **({"include_cluster_authorized_operations": False} if version == 10 else {}),
    )
    answer = wire.ask(request)
    assert (answer.brokers, answer.controller_id) == ((), -1)
    assert only_topic(answer).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(4, 14))
def test_unknown_topics_are_not_created_unless_requested(wire: Wire, topic: Callable[[], str], version: int) -> None:
    name = topic()
    requested = [by_name(name)] if version >= 10 else [{"name": name}]
    for _ in range(2):
        shown = only_topic(metadata(wire, requested, version=version))
        assert (shown.error_code, shown.partitions) == (ErrorCode.unknown_topic_or_partition, ())


def test_unknown_topics_are_created_on_request(wire: Wire, topic: Callable[[], str]) -> None:
    name = topic()
    first = only_topic(metadata(wire, [by_name(name)], auto_create=True))
    assert first.error_code in (0, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)

    def is_created() -> bool:
        shown = only_topic(metadata(wire, [by_name(name)]))
        assert shown.error_code in (0, 3, 5)
        return bool(shown.error_code == 0)

    wait_until(is_created, "the topic is created")


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.parametrize("name", INVALID_NAMES)
def test_invalid_names_are_refused(wire: Wire, name: str, auto_create: bool) -> None:
    shown = only_topic(metadata(wire, [by_name(name)], auto_create=auto_create))
    assert (shown.error_code, shown.name) == (ErrorCode.invalid_topic_exception, name)


def test_a_null_topic_list_returns_all_and_an_empty_one_none(wire: Wire, create_topic: CreateTopic) -> None:
    names = {create_topic(), create_topic()}
    assert names <= {shown.name for shown in metadata(wire, None).topics}
    assert metadata(wire, []).topics == ()


def test_in_version_0_an_empty_topic_list_returns_all(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    answer = wire.ask(message("metadata", 0, topics=[]))
    assert name in {shown.name for shown in answer.topics}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_always_create_unknown_topics(wire: Wire, topic: Callable[[], str], version: int) -> None:
    """Before version 4 there was no flag, and every request created missing topics."""
    name = topic()
    request = message("metadata", version, topics=[{"name": name}])
    wait_until(lambda: only_topic(wire.ask(request)).error_code == 0, "the topic is created")


def test_a_duplicate_topic_is_returned_once(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    answer = metadata(wire, [by_name(name), by_name(name)])
    assert [shown.name for shown in answer.topics] == [name]


def test_authorized_operations_are_returned_on_request(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    without = only_topic(metadata(wire, [by_name(name)]))
    assert without.topic_authorized_operations == -(2**31)
    request = message(
        "metadata",
        12,
        topics=[by_name(name)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    assert only_topic(wire.ask(request)).topic_authorized_operations == 3576


# ---- DescribeTopicPartitions


def describe(wire: Wire, names: list[str], limit: int = 2000, cursor: dict[str, Any] | None = None) -> Any:
    return wire.ask(
        message(
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
    )


def test_paging_through_partitions(wire: Wire, create_topic: CreateTopic) -> None:
    first, second = sorted([create_topic(partitions=3), create_topic(partitions=2)])
    sizes = {shown.name: len(shown.partitions) for shown in describe(wire, [first, second]).topics}
    seen: list[tuple[str, int]] = []
    cursor: dict[str, Any] | None = None
    for _ in range(10):
        page = describe(wire, [second, first], limit=2, cursor=cursor)
        rows = [(shown.name, partition.partition_index) for shown in page.topics for partition in shown.partitions]
        assert len(rows) <= 2
        seen += rows
        if page.next_cursor is None:
            break
        cursor = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
    assert seen == [(name, index) for name in (first, second) for index in range(sizes[name])]


def test_describing_unknown_and_invalid_topics(wire: Wire, topic: Callable[[], str]) -> None:
    answer = describe(wire, [topic(), "not/valid"])
    codes = sorted(int(shown.error_code) for shown in answer.topics)
    assert codes == [3, 17]
    (unknown,) = (shown for shown in answer.topics if shown.error_code == 3)
    assert unknown.topic_authorized_operations == 3576


def test_describing_no_topics_returns_all(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    page = describe(wire, [])
    names = {shown.name for shown in page.topics}
    while page.next_cursor is not None:
        cursor = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
        page = describe(wire, [], cursor=cursor)
        names |= {shown.name for shown in page.topics}
    assert name in names


def test_a_partition_limit_of_zero_means_one(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    page = describe(wire, [name], limit=0)
    assert [partition.partition_index for partition in page.topics[0].partitions] == [0]
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == (name, 1)


def test_a_negative_cursor_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    page = describe(wire, [name], cursor={"topic_name": name, "partition_index": -1})
    assert [(shown.error_code, shown.name) for shown in page.topics] == [(ErrorCode.invalid_request, name)]


# ---- DescribeCluster


def test_describe_cluster(wire: Wire, bootstrap: str) -> None:
    answer = wire.ask(message("describe_cluster", 1, include_cluster_authorized_operations=False, endpoint_type=1))
    assert answer.error_code == 0
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert answer.cluster_id == metadata(wire, []).cluster_id
    assert answer.cluster_authorized_operations == -(2**31)


def test_a_broker_refuses_to_describe_controllers(wire: Wire) -> None:
    answer = wire.ask(message("describe_cluster", 1, include_cluster_authorized_operations=False, endpoint_type=2))
    assert answer.error_code == ErrorCode.mismatched_endpoint_type
    unknown = wire.ask(message("describe_cluster", 1, include_cluster_authorized_operations=False, endpoint_type=9))
    assert unknown.error_code == ErrorCode.unsupported_endpoint_type


# ---- ApiVersions


def ranges(answer: Any) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_api_versions(wire: Wire, version: int) -> None:
    software = {"client_software_name": "interop", "client_software_version": "1.0"} if version >= 3 else {}
    answer = wire.ask(message("api_versions", version, **software))
    assert answer.error_code == 0
    shown = ranges(answer)
    assert shown[0] == (0, 13), "librdkafka before 2.11.1 compresses only if Produce is offered from version 0"
    assert shown[1] == (4, 18)
    assert shown[3] == (0, 13)
    assert shown[18] == (0, 4)


def test_an_unknown_api_versions_version_is_answered_in_version_0(wire: Wire) -> None:
    """KIP-511: error 35 and only the range of ApiVersions, so that the client can retry on the same connection."""
    wire.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00")
    body = wire.receive_frame()
    correlation_id, code, count = struct.unpack_from(">ihi", body)
    assert (correlation_id, code, count) == (7, ErrorCode.unsupported_version, 1)
    assert struct.unpack_from(">hhh", body, 10) == (18, 0, 4)
    assert len(body) == 16
    assert wire.ask(message("api_versions", 0)).error_code == 0


@pytest.mark.parametrize("software", [("", "1"), ("a b", "1"), ("x", "-")])
def test_invalid_client_software_names_are_refused(wire: Wire, software: tuple[str, str]) -> None:
    request = message("api_versions", 3, client_software_name=software[0], client_software_version=software[1])
    answer = wire.ask(request)
    assert answer.error_code == ErrorCode.invalid_request


def test_features_with_min_version_0_are_hidden_from_old_clients(wire: Wire) -> None:
    software = {"client_software_name": "interop", "client_software_version": "1.0"}
    old, new = (wire.ask(message("api_versions", version, **software)).supported_features for version in (3, 4))
    assert {feature.name for feature in old} == {feature.name for feature in new if feature.min_version > 0} != set()
    assert len(new) > len(old)


def test_wire_client_encodes_a_known_request() -> None:
    """Checks the tests themselves: the frame of a known request, byte for byte."""
    assert encode_request(message("api_versions", 0), 1, "me") == bytes.fromhex("0012 0000 00000001 0002 6d65")

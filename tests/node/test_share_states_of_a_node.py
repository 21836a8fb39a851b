"""The states of share groups on an in-memory node: the APIs, the topic, its log, also across crashes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from harness.restricted_node import NoPermissions
from harness.share_state_node import ShareStateNode, write_data

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, uuid_text
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.metadata.controller.features import DEAD_LETTERS_LEVEL, SHARE_VERSION
from moldau.metadata.records import ConfigResource
from moldau.runtime.coordinators import share_states
from moldau.runtime.coordinators.share_apis import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE
from moldau.share.ports import ShareKey
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

NONE = ErrorCode.NONE
COLD_MS = 300_000
CHECKPOINT_MS = 60_000
"""By then, the log start offset of each partition is on disk."""


@pytest.fixture
def node() -> ShareStateNode:
    return ShareStateNode()


def batches(result: Any) -> list[tuple[int, int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in result.state_batches
    ]


def initialize(node: ShareStateNode, key: ShareKey, epoch: int = 1, start_offset: int = 0) -> None:
    assert node.result(node.states.initialize(key, epoch, start_offset)) is NONE


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_state_is_kept_across_a_crash(node: ShareStateNode) -> None:
    key = node.key(1)
    initialize(node, key, 1, 5)
    data = write_data((5, 9, 2, 1), (12, 12, 0, 3), partition=1, state_epoch=1, leader_epoch=0)
    assert node.result(node.states.write(key, data)) is NONE
    for each in (node, node.crash()):
        read = each.result(each.states.read(key, 0))
        assert (read.error_code, read.state_epoch, read.start_offset) == (0, 1, 5)
        assert batches(read) == [(5, 9, 2, 1), (12, 12, 0, 3)]
        summary = each.result(each.states.read_summary(key, 0))
        assert (summary.error_code, summary.start_offset, summary.state_epoch) == (0, 5, 1)
    assert node.result(node.states.delete(key)) is NONE
    assert node.result(node.states.read(key, 0)).error_code == ErrorCode.INVALID_REQUEST


def test_writes_of_one_partition_keep_their_order(node: ShareStateNode) -> None:
    """Also those that come before the topic is there, and wait for another try."""
    key = node.key()
    calls = [node.states.initialize(key, 1, 0)]
    calls += [node.states.write(key, write_data((n, n, 2, 1), start_offset=n)) for n in range(20)]
    assert [node.result(call) for call in calls] == [NONE] * 21
    read = node.result(node.states.read(key, -1))
    assert (read.start_offset, batches(read)) == (19, [(19, 19, 2, 1)])


def test_the_topic_is_as_kafka_creates_it(node: ShareStateNode) -> None:
    initialize(node, node.key())
    image = node.in_memory.current.image
    assert image.configs_of(ConfigResource.TOPIC, SHARE_GROUP_STATE_TOPIC) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


def test_a_call_ends_with_an_error_if_the_topic_cannot_be_created(caplog: pytest.LogCaptureFixture) -> None:
    node = ShareStateNode(share_coordinator_state_topic_replication_factor="3")
    call = node.states.initialize(node.key(), 1, 0)
    assert node.result(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    warnings = [record.getMessage() for record in caplog.records if SHARE_GROUP_STATE_TOPIC in record.getMessage()]
    expected = f"{SHARE_GROUP_STATE_TOPIC} cannot be created; it is tried again: INVALID_REPLICATION_FACTOR"
    assert warnings == [expected], "the same error is logged once"


def test_a_call_for_an_unknown_topic_is_tried_again_before_it_fails(node: ShareStateNode) -> None:
    initialize(node, node.key())
    unknown = ShareKey("g", b"u" * 16, 0)
    before_ms = node.in_memory.clock.monotonic_ms()
    assert node.result(node.states.initialize(unknown, 1, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    waited_ms = sum(share_states.FIRST_DELAY_MS << number for number in range(share_states.TRIES_MAX - 1))
    assert node.in_memory.clock.monotonic_ms() - before_ms >= waited_ms


def test_a_stop_completes_all_calls(node: ShareStateNode) -> None:
    key = node.key()
    initialize(node, key)
    unknown = ShareKey("g", b"u" * 16, 0)
    calls = [node.states.write(key, write_data((1, 1, 2, 1))), node.states.initialize(unknown, 1, 0)]
    broker = node.in_memory.assembly.broker_side
    assert broker is not None
    broker.release()
    assert [call.value() for call in calls] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert node.states.delete(key).value() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.run_until_idle()
    assert not node.in_memory.faults


def test_the_states_of_a_deleted_topic_are_removed(node: ShareStateNode) -> None:
    other = ShareKey("g", node.in_memory.create_topic("others"), 0)
    keys = [node.key(0, "a"), node.key(1, "a"), node.key(0, "b"), node.key(2, "c"), other]
    for key in keys:
        initialize(node, key)
    node.in_memory.delete_topic("orders")
    node.run_until_idle()
    for each in (node, ShareStateNode(node.in_memory.restart())):
        assert {key for states in each.coordinator.shards.ready_machines() for key in states.states} == {other}


# --- the log ----------------------------------------------------------------------------------------------------------


def test_records_that_no_state_needs_are_deleted(node: ShareStateNode) -> None:
    initialize(node, node.key(1))
    assert node.result(node.states.delete(node.key(1))) is NONE
    hot, cold = node.key(0, "hot"), node.key(0, "cold")
    while node.log_of(cold) is not node.log_of(hot):
        cold = node.key(0, cold.group_id + "!")
    for key in (cold, hot):
        initialize(node, key)
    for number in range(600):
        assert node.result(node.states.write(hot, write_data((number, number, 2, 1)))) is NONE
    log = node.log_of(hot).log
    before = log.end_offset
    node.coordinator.prune()
    assert log.start_offset == before - 602, "the state of the cold partition is the first record of the two"
    node.in_memory.timers.advance(2 * COLD_MS + CHECKPOINT_MS)
    node.run_until_idle()
    assert log.end_offset == before + 2, "both were written again: no snapshot was younger than the interval"
    assert log.start_offset == before
    again = node.crash()
    assert again.log_of(hot).log.start_offset == before
    assert batches(again.result(again.states.read(hot, -1))) == [(0, 599, 2, 1)]
    assert again.result(again.states.read(cold, -1)).error_code == NONE


def test_the_log_is_replayed_from_its_start_offset(node: ShareStateNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment has the earlier records still."""
    key = node.key()
    for epoch in range(50):
        initialize(node, key, epoch)
    node.coordinator.prune()
    node.in_memory.timers.advance(CHECKPOINT_MS)
    assert node.log_of(key).log.start_offset == 49
    assert node.log_of(key).log.segments.first.base_offset == 0
    replayed = []
    machine_class = type(node.coordinator.shards.machine_of(key.coordinator_key))
    replay = machine_class.replay
    monkeypatch.setattr(machine_class, "replay", lambda self, *record: (replayed.append(record), replay(self, *record)))
    again = node.crash()
    assert again.result(again.states.read(key, -1)).state_epoch == 49
    assert len(replayed) == 1


# --- requests ---------------------------------------------------------------------------------------------------------


def write_request(node: ShareStateNode, group_id: str, *parts: write_share_group_state.PartitionData) -> Any:
    topics = [write_share_group_state.WriteStateData(node.topic_id, list(parts))]
    return write_share_group_state.WriteShareGroupStateRequest(group_id, topics if parts else [])


def test_a_request_may_name_a_partition_twice(node: ShareStateNode) -> None:
    initialize(node, node.key())
    initialize(node, node.key(2))
    request = write_request(
        node,
        "g",
        write_data((1, 1, 2, 1), start_offset=1),
        write_data((7, 7, 2, 1), partition=2),
        write_data((2, 2, 0, 1), start_offset=2),
        write_data((1, 1, 2, 1), partition=1),
    )
    response = node.ask(ApiKey.WRITE_SHARE_GROUP_STATE, request)
    (topic,) = response.results
    assert topic.topic_id == node.topic_id
    assert [(each.partition, each.error_code) for each in topic.partitions] == [
        (0, NONE),
        (2, NONE),
        (0, NONE),
        (1, ErrorCode.INVALID_REQUEST),
    ]
    read = node.result(node.states.read(node.key(), -1))
    assert (read.start_offset, batches(read)) == (2, [(2, 2, 0, 1)])


@pytest.mark.parametrize(
    ("api", "module", "name", "data"),
    [
        (ApiKey.INITIALIZE_SHARE_GROUP_STATE, initialize_share_group_state, "Initialize", {"state_epoch": 1}),
        (ApiKey.READ_SHARE_GROUP_STATE, read_share_group_state, "Read", {}),
        (ApiKey.WRITE_SHARE_GROUP_STATE, write_share_group_state, "Write", {"start_offset": -1}),
        (ApiKey.DELETE_SHARE_GROUP_STATE, delete_share_group_state, "Delete", {}),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, read_share_group_state_summary, "ReadSummary", {}),
    ],
)
def test_empty_and_impossible_requests(
    node: ShareStateNode, api: ApiKey, module: Any, name: str, data: dict[str, int]
) -> None:
    verb, summary = name.removesuffix("Summary"), "Summary" if name.endswith("Summary") else ""
    request_class = getattr(module, f"{verb}ShareGroupState{summary}Request")
    topic_class = getattr(module, f"{verb}State{summary}Data")

    def ask(group_id: str, *topics: tuple[bytes, list[int]]) -> list[tuple[bytes, list[tuple[int, int]]]]:
        request = request_class(
            group_id,
            [
                topic_class(id_, [module.PartitionData(partition=each, **data) for each in parts])
                for id_, parts in topics
            ],
        )
        response = node.ask(api, request)
        return [
            (topic.topic_id, [(each.partition, each.error_code) for each in topic.partitions])
            for topic in response.results
        ]

    initialize(node, node.key())
    assert ask("", (node.topic_id, [0])) == []
    assert ask("g") == []
    assert ask("g", (node.topic_id, [0]), (node.topic_id, [])) == [], "as in Kafka, nothing of it is done"
    assert ask("x" * 32_768, (node.topic_id, [0])) == [(node.topic_id, [(0, ErrorCode.INVALID_REQUEST)])]
    extremes = [-1, -(2**31), 2**31 - 1]
    ((_, codes),) = ask("g", (node.topic_id, extremes))
    needs_state = api in (ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE)
    beyond = ErrorCode.INVALID_REQUEST if needs_state else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [(-1, ErrorCode.INVALID_REQUEST), (-(2**31), ErrorCode.INVALID_REQUEST), (2**31 - 1, beyond)]
    assert ask("g", (ZERO_UUID, [0])) == [(ZERO_UUID, [(0, beyond)])]


def test_only_nodes_may_change_and_read_states(node: ShareStateNode) -> None:
    initialize(node, node.key())
    before = node.log_of(node.key()).log.end_offset
    for api in (WRITE, READ, INITIALIZE, DELETE, READ_SUMMARY):
        module = sys.modules[api.result_class.__module__]
        request = api.request("g", [(node.topic_id, module.PartitionData(partition)) for partition in (0, 7)])
        response = node.ask(api.api, request, access=NoPermissions())
        ((_, results),) = [(topic.topic_id, topic.partitions) for topic in response.results]
        assert [(each.partition, each.error_code) for each in results] == [
            (0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            (7, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ]
    assert node.log_of(node.key()).log.end_offset == before


def test_a_state_has_a_limited_number_of_batches(node: ShareStateNode) -> None:
    key = node.key()
    initialize(node, key)
    codes = []
    for number in range(3):
        some = [(offset, offset, 2, 1) for offset in range(20_000 * number, 20_000 * (number + 1), 2)]
        codes.append(node.result(node.states.write(key, write_data(*some))))
    assert codes == [NONE, NONE, ErrorCode.INVALID_REQUEST]
    assert node.result(node.states.write(key, write_data((1, 1, 2, 1)))) is NONE, "it joins two batches"
    assert len(node.result(node.states.read(key, -1)).state_batches) == 19_999


def test_finding_the_coordinator_of_a_partition(node: ShareStateNode) -> None:
    key = node.key().coordinator_key
    text = uuid_text(node.topic_id)
    invalid = [
        "",
        "g",
        ":",
        "::",
        f":{text}:0",
        f"g:{text}",
        f"g:{text}:",
        f"g:{text}:x",
        "g:short:0",
        f"g:{text}:99999999999",
    ]
    with_colons = [f"a:b:{text}:0", f"g:{text}:+0", f"g:{text}:-1"]
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=invalid)
    found = node.ask(ApiKey.FIND_COORDINATOR, request)
    assert {each.error_code for each in found.coordinators} == {ErrorCode.INVALID_REQUEST}
    assert SHARE_GROUP_STATE_TOPIC not in node.in_memory.current.image.topics, "the topic is created for keys only"
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key, *with_colons, "g"])
    found = node.ask(ApiKey.FIND_COORDINATOR, request)
    assert [(each.key, each.error_code) for each in found.coordinators] == [
        *((each, NONE) for each in (key, *with_colons)),
        ("g", ErrorCode.INVALID_REQUEST),
    ]
    old = node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 5)
    assert [each.error_code for each in old.coordinators] == [ErrorCode.INVALID_REQUEST]


def test_the_feature_is_switched_off_and_on_again(node: ShareStateNode) -> None:
    assert node.in_memory.current.image.features[SHARE_VERSION] == DEAD_LETTERS_LEVEL
    upgrade, safe_downgrade = 1, 2
    for level, upgrade_type, expected in [
        (DEAD_LETTERS_LEVEL + 1, upgrade, ErrorCode.INVALID_UPDATE_VERSION),
        (0, safe_downgrade, NONE),
        (1, upgrade, NONE),
    ]:
        update = FeatureUpdateKey(SHARE_VERSION, level, upgrade_type=upgrade_type)
        response = node.ask(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert response.error_code == expected, response.error_message
    assert node.in_memory.current.image.features[SHARE_VERSION] == 1

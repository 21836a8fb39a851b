"""A group id belongs to one type of group: what clients of the other types are told, and which groups give way."""

from __future__ import annotations

from typing import Any

import pytest
from harness.in_memory_group_shard import InMemoryGroupShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import TurnItems, finish
from moldau.coordinator.group import listing, offset_removal
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.share.heartbeat import find_share_group
from moldau.coordinator.group.share.initializing import on_made
from moldau.coordinator.machine import Client, any_topic
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import OffsetDeleteRequest
from moldau.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.messages.sync_group import SyncGroupRequest

CLIENT = Client("c", "/here", 5)
COMMIT = OffsetCommitRequest(
    "g", topics=[OffsetCommitRequestTopic(name="a", partitions=[OffsetCommitRequestPartition(0, 7)])]
)


@pytest.fixture
def shard() -> InMemoryGroupShard:
    shard = InMemoryGroupShard(GroupSettings(initial_rebalance_delay_ms=0))
    shard.create_topic("a", 1)
    return shard


def result(shard: InMemoryGroupShard, decide: Any) -> Any:
    return shard.submit(decide).value()


def code_of(shard: InMemoryGroupShard, decide: Any) -> ErrorCode:
    found = result(shard, decide)
    return found.code if isinstance(found, KafkaError) else ErrorCode(found.error_code)


def share_heartbeat(epoch: int = 0) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest("g", "m", epoch, None, ["a"])


def classic_join() -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)


CONSUMER_JOIN = ConsumerGroupHeartbeatRequest(
    "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[]
)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_share_group_gives_way_to_no_other(shard: InMemoryGroupShard, is_empty: bool) -> None:
    shard.share_heartbeat(share_heartbeat())
    if is_empty:
        shard.share_heartbeat(share_heartbeat(-1))
    group = shard.groups.state.groups["g"]
    join, unknown = classic_join(), ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(shard, lambda groups: groups.join(join, CLIENT)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for epoch in (0, 1, -1):
        request = ConsumerGroupHeartbeatRequest(
            "g", "m", epoch, rebalance_timeout_ms=1, subscribed_topic_names=["a"], topic_partitions=[]
        )
        found = result(shard, lambda groups, request=request: groups.consumer_heartbeat(request, CLIENT, any_topic))
        assert found.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(shard, lambda groups: groups.heartbeat(HeartbeatRequest("g", 1, "m"), CLIENT)) == unknown
    assert code_of(shard, lambda groups: groups.sync(SyncGroupRequest("g", 1, "m"), Client("c", "/", 1))) == unknown
    leave = LeaveGroupRequest("g", members=[MemberIdentity("m")])
    assert code_of(shard, lambda groups: groups.leave(leave, CLIENT)) == unknown
    assert shard.groups.state.groups["g"] is group
    shard.check_replay()


def test_a_share_group_has_no_committed_offsets(shard: InMemoryGroupShard) -> None:
    shard.share_heartbeat(share_heartbeat())
    found = result(shard, lambda groups: groups.offsets.commit(COMMIT, Client("c", "/", 9)))
    assert found.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    wanted = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("a", partition_indexes=[0])])
    fetched = finish(shard.groups.offsets.fetch(wanted, Client("c", "/", 9), TurnItems(10)))
    assert [(each.committed_offset, each.error_code) for each in fetched.topics[0].partitions] == [(-1, 0)]
    with pytest.raises(KafkaError) as refused:
        finish(shard.groups.offsets.draft_deletion(OffsetDeleteRequest("g"), TurnItems(10)))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def create_classic(shard: InMemoryGroupShard) -> None:
    shard.submit(lambda groups: groups.join(classic_join(), Client("c", "/here", 1)))


def create_simple(shard: InMemoryGroupShard) -> None:
    shard.submit(lambda groups: groups.offsets.commit(COMMIT, Client("c", "/", 9)))


def create_consumer(shard: InMemoryGroupShard) -> None:
    shard.heartbeat(CONSUMER_JOIN)


def create_empty_consumer(shard: InMemoryGroupShard) -> None:
    shard.heartbeat(CONSUMER_JOIN)
    shard.heartbeat(ConsumerGroupHeartbeatRequest("g", "m", -1))


@pytest.mark.parametrize("create", [create_classic, create_simple, create_consumer, create_empty_consumer])
@pytest.mark.parametrize("epoch", [0, 1, -1])
def test_no_other_group_gives_way_to_a_share_group(shard: InMemoryGroupShard, create: Any, epoch: int) -> None:
    create(shard)
    before = shard.groups.state.groups["g"]
    with pytest.raises(KafkaError, match="Group g is not a share group") as refused:
        shard.share_heartbeat(share_heartbeat(epoch))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.groups.state.groups["g"] is before


def test_descriptions_of_another_type(shard: InMemoryGroupShard) -> None:
    shard.share_heartbeat(share_heartbeat())
    create_consumer_of_other_group(shard)
    state = shard.groups.state
    assert listing.describe(state, "g", 6, 0).error_message == "Group g is not a classic group."
    with pytest.raises(KafkaError, match="Group g is not a consumer group"):
        listing.describe_consumer_group(state, "g", 0)
    with pytest.raises(KafkaError, match="Group other is not a share group"):
        listing.describe_share_group(state, "other", 0)
    with pytest.raises(KafkaError, match="Group missing not found"):
        listing.describe_share_group(state, "missing", 0)


def create_consumer_of_other_group(shard: InMemoryGroupShard) -> None:
    shard.heartbeat(
        ConsumerGroupHeartbeatRequest(
            "other", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[]
        )
    )


def test_an_empty_share_group_does_not_expire(shard: InMemoryGroupShard) -> None:
    shard.share_heartbeat(share_heartbeat())
    shard.share_heartbeat(share_heartbeat(-1))
    shard.clock.move(10**12)
    for outcome in shard.groups.expire(shard.clock.now_ms()):
        if outcome is not None:
            shard.execute(outcome)
    assert list(shard.groups.state.groups) == ["g"]


def test_a_deleted_group_id_can_have_another_type(shard: InMemoryGroupShard) -> None:
    shard.share_heartbeat(share_heartbeat())
    with pytest.raises(KafkaError) as refused:
        listing.delete(shard.groups.state, "g")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    shard.share_heartbeat(share_heartbeat(-1))
    shard.execute(listing.delete(shard.groups.state, "g"))
    assert offset_removal.of_deleted_group(shard.groups.state, "g") == []
    create_consumer(shard)
    assert shard.groups.state.groups["g"].type_name == "consumer"
    shard.check_replay()


def test_the_log_may_have_been_compacted(shard: InMemoryGroupShard) -> None:
    """Every record alone, and every tombstone alone, is applied: what was before them may be gone."""
    shard.share_heartbeat(share_heartbeat())
    shard.share_heartbeat(share_heartbeat(-1))
    shard.execute(listing.delete(shard.groups.state, "g"))
    for key, value in shard.log:
        alone = InMemoryGroupShard(GroupSettings())
        alone.groups.replay(key, value)
        alone.groups.loaded()


def test_records_of_a_newer_version_are_ignored(shard: InMemoryGroupShard) -> None:
    shard.groups.replay(b"\x00\x7f" + b"unknown", b"\x00\x00")
    assert shard.groups.state.groups == {}


def test_a_heartbeat_without_news_writes_nothing(shard: InMemoryGroupShard) -> None:
    shard.share_heartbeat(share_heartbeat())
    topic_id = shard.current.image.topics["a"].id
    shard.execute(on_made(shard.groups.state, "g", {topic_id: frozenset({0})}, {}))
    shard.advance(1_000)
    request = ShareGroupHeartbeatRequest("g", "m", 2)
    assert shard.share_heartbeat(request).member_epoch == 3
    request.member_epoch = 3
    written = len(shard.written)
    shard.share_heartbeat(request)
    group = find_share_group(shard.groups.state, "g")
    assert group.is_settled
    shard.advance(40_000)
    shard.share_heartbeat(request)
    shard.advance(40_000)  # the session goes on
    assert len(shard.written) == written
    shard.create_topic("b", 1)
    assert group.is_settled
    shard.grow_topic("a", 2)
    assert group.must_resolve_topics
    assert shard.share_heartbeat(request).member_epoch == 4

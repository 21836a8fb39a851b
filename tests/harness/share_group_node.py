"""An in-memory node with both coordinators of share groups, its requests in short, and a client whose ACLs the test
adds; at first it has none. The topic `orders` has three partitions."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from harness.in_memory_node import InMemoryNode
from harness.share_state_node import ShareStateNode
from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.security.acls.access import Restricted
from moldau.security.acls.authorizer import Authorizer
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.principals import Principal
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    list_groups,
    share_group_describe,
)
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.schema import Message

ORDERS = "orders"
SETTINGS = {"offsets_topic_num_partitions": "2"}


class ShareGroupNode(ShareStateNode):
    def __init__(self, in_memory: InMemoryNode | None = None, **static: str) -> None:
        super().__init__(in_memory, **{**SETTINGS, **static})
        self._authorizer = Authorizer()
        if in_memory is None:
            self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

    def crash(self) -> ShareGroupNode:
        return ShareGroupNode(InMemoryNode(self.in_memory.files.crash(Random(0)), static=self._static).start())

    # --- the restricted client ----------------------------------------------------------------------------------

    def allow(self, operation: AclOperation, resource: ResourceType, name: str) -> None:
        binding = AclBinding(resource, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW)
        self._authorizer.change([binding])

    def ask_restricted(self, api: ApiKey, request: Message) -> Any:
        access = Restricted(self._authorizer, Principal("User", "ann"), "10.0.0.1", lambda *_: None)
        return self.ask(api, request, access=access)

    # --- requests -----------------------------------------------------------------------------------------------

    def heartbeat(self, epoch: int, *names: str, member: str = "m", group: str = "g") -> Any:
        request = ShareGroupHeartbeatRequest(group, member, epoch, None, list(names) or None)
        response = self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request)
        self.in_memory.timers.advance(2_000)  # the topic of the share coordinators is created, and they make states
        self.run_until_idle()
        return response

    def join(self, *names: str, member: str = "m", group: str = "g") -> Any:
        """Send two heartbeats: with the second one the member gets its partitions."""
        epoch = self.heartbeat(0, *names, member=member, group=group).member_epoch
        return self.heartbeat(epoch, member=member, group=group)

    def leave(self, member: str = "m", group: str = "g") -> Any:
        return self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest(group, member, -1))

    def assigned(self, response: Any) -> dict[str, list[int]]:
        names = self.in_memory.current.image.topic_names
        return {names[topic.topic_id]: list(topic.partitions) for topic in response.assignment.topic_partitions}

    def describe(self, group: str = "g") -> share_group_describe.DescribedGroup:
        request = share_group_describe.ShareGroupDescribeRequest([group])
        (described,) = self.ask(ApiKey.SHARE_GROUP_DESCRIBE, request).groups
        assert isinstance(described, share_group_describe.DescribedGroup)
        return described

    def listed(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[tuple[str, str, str, str]]:
        response = self.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(list(states), list(types)))
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups]

    def delete_group(self, group: str = "g") -> ErrorCode:
        (result,) = self.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest([group])).results
        return ErrorCode(result.error_code)

    def offsets(self, group: str = "g") -> dict[str, dict[int, tuple[int, int]]]:
        """Return the start offset and the lag of each partition."""
        described = self.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, describe_offsets(group)).groups[0]
        assert described.error_code == ErrorCode.NONE
        return {
            topic.topic_name: {each.partition_index: (each.start_offset, each.lag) for each in topic.partitions}
            for topic in described.topics
        }


def alter_offsets(offsets: dict[str, dict[int, int]], group: str = "g") -> Message:
    partition, topic = (
        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition,
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic,
    )
    topics = [topic(name, [partition(*each) for each in by_index.items()]) for name, by_index in offsets.items()]
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group, topics)


def delete_offsets(*names: str, group: str = "g") -> Message:
    topics = [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(name) for name in names]
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group, topics)


def describe_offsets(group: str = "g", topics: dict[str, list[int]] | None = None) -> Message:
    named = (
        None
        if topics is None
        else [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(*each) for each in topics.items()]
    )
    asked = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group, named)
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest([asked])

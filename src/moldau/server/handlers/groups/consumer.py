"""ConsumerGroupHeartbeat v0–1 and ConsumerGroupDescribe v0–1: the consumer protocol (KIP-848).

Heartbeat v1: the client generates its own member id, and may subscribe by a regular expression. If the protocol is not
enabled (`group.coordinator.rebalance.protocols`), both are refused before anything else, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX, PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import CHANGES_A_TURN, ITEMS_A_TURN
from moldau.coordinator.group import listing
from moldau.coordinator.group.consumer.patterns import PatternsNotMatched
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import MayUseTopic, Outcome, any_topic
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import GROUP_DESCRIBE, GROUP_READ, TOPIC_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.groups.matching import answer_when_matched
from moldau.server.handlers.replies import reply_or_error, reply_when_ready, run_steps, uneven_in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

TOPICS_DENIED = "The group has described topic(s) that the client is not authorized to describe."
"""Kafka's words."""


class ConsumerGroupHeartbeat(Handler):
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    versions = (0, 1)
    needs = (GROUP_READ, TOPIC_DESCRIBE)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers, has_consumer_protocol: bool = True) -> None:
        self._coordinator = groups
        self._timers = timers
        self._is_enabled = has_consumer_protocol

    def answer(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, is_authorized: bool = False
    ) -> ConsumerGroupHeartbeatResponse | Promise[ConsumerGroupHeartbeatResponse]:
        if not self._is_enabled:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        may_describe: MayUseTopic = any_topic
        if not caller.is_unrestricted:
            if not caller.access.allows(GROUP_READ, request.group_id):
                return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            names = request.subscribed_topic_names
            if names and not is_authorized:
                if len(names) > ITEMS_A_TURN:
                    return run_steps(self._timers, self._steps(request, caller, names))
                if not all(caller.access.allows(TOPIC_DESCRIBE, name) for name in names):
                    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            may_describe = partial(caller.access.allows_quietly, TOPIC_DESCRIBE)  # of the topics of a pattern
        try:
            reply = self._coordinator.submit(
                request.group_id, Groups.consumer_heartbeat, request, caller.group_client, may_describe
            )
        except PatternsNotMatched as unmatched:
            answer = partial(self.answer, request, caller, is_authorized=True)
            coordinator, timers = self._coordinator, self._timers
            return answer_when_matched(coordinator, timers, request.group_id, unmatched, answer, _heartbeat_error)
        except KafkaError as error:
            return _heartbeat_error(error)
        return reply_when_ready(reply, _heartbeat_error) if isinstance(reply, Promise) else reply

    def _steps(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, names: Sequence[str]
    ) -> Steps[ConsumerGroupHeartbeatResponse | Promise[ConsumerGroupHeartbeatResponse]]:
        """Authorize many topics in turns."""
        may_describe = partial(caller.access.allows, TOPIC_DESCRIBE)
        allowed = yield from map_in_steps(TurnItems(ITEMS_A_TURN), names, may_describe)
        if not all(allowed):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self.answer(request, caller, is_authorized=True)


def _heartbeat_error(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    # In this protocol a request with an empty group id is invalid as a whole.
    code = ErrorCode.INVALID_REQUEST if error.code is ErrorCode.INVALID_GROUP_ID else error.code
    if code is ErrorCode.RECORD_LIST_TOO_LARGE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=error.message)


class ConsumerGroupDescribe(Handler):
    api = ApiKey.CONSUMER_GROUP_DESCRIBE
    versions = (0, 1)
    needs = (GROUP_DESCRIBE, TOPIC_DESCRIBE)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers, has_consumer_protocol: bool = True) -> None:
        self._coordinator = groups
        self._timers = timers
        self._is_enabled = has_consumer_protocol

    def answer(
        self, request: ConsumerGroupDescribeRequest, caller: Caller
    ) -> ConsumerGroupDescribeResponse | Promise[ConsumerGroupDescribeResponse]:
        return uneven_in_turns(
            self._timers,
            list(dict.fromkeys(request.group_ids)),
            lambda group_id: self._describe_group(group_id, request.include_authorized_operations, caller.access),
            lambda groups: ConsumerGroupDescribeResponse(groups=groups),
            CHANGES_A_TURN,
        )

    def _describe_group(self, group_id: str, with_operations: bool, access: Access) -> tuple[Any, int]:
        """Return the group, or a promise of it, and how many parts it has."""
        if not self._is_enabled:
            return DescribedGroup(ErrorCode.UNSUPPORTED_VERSION, None, group_id), 1
        if not access.allows(GROUP_DESCRIBE, group_id):
            return DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id), 1
        operations = allowed_bits(access, ResourceType.GROUP, group_id) if with_operations else OPERATIONS_OMITTED
        parts = 1

        def describe(groups: Groups) -> Outcome[DescribedGroup]:
            nonlocal parts
            described = listing.describe_consumer_group(groups.state, group_id, operations)
            parts += _part_count(described)
            _check_topics(described, access)
            return Outcome(described)

        reply = reply_or_error(
            lambda: self._coordinator.submit(group_id, describe),
            lambda error: DescribedGroup(error.code, error.message, group_id),
        )
        return reply, parts


def _part_count(group: DescribedGroup) -> int:
    """Count the members and the topics that are assigned to each."""
    return sum(
        1 + len(assignment.topic_partitions)
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        if assignment is not None
    )


def _check_topics(group: DescribedGroup, access: Access) -> None:
    """Raise KafkaError if the client may not describe one of the topics that are assigned to members."""
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        if assignment is not None
        for topic in assignment.topic_partitions
    }
    if not all(access.allows(TOPIC_DESCRIBE, name) for name in names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_DENIED)

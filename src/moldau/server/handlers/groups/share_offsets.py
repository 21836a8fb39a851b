"""DescribeShareGroupOffsets v0–1 (the lag from v1 on, KIP-1226), AlterShareGroupOffsets v0, DeleteShareGroupOffsets v0:
where share groups begin to read. Without the feature `share.version` they are refused before anything else.

The offsets are in the states that share coordinators keep. Only an empty group's can be altered or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode
from moldau.base.limits import OFFSETS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import CHECKS_A_TURN
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.share import offsets
from moldau.coordinator.machine import Outcome
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.share_group_offsets import Offsets, ShareGroupOffsets, ShareTopic
from moldau.runtime.coordinators.share_group_states import Codes
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import GROUP_DELETE, GROUP_DESCRIBE, GROUP_READ, TOPIC_DESCRIBE, TOPIC_READ
from moldau.server.admin_actions import AdminAction, first_joined, partition_count
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.groups.share import serves_share_groups
from moldau.server.handlers.replies import combine_replies, reply_or_error, run_steps, steps_when_ready, when_decided
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from moldau.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from moldau.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_OFFSET: Final = -1
GROUP_COST: Final = 20
"""Reading a group takes about as long as checking so many topics."""
TOPIC_DENIED: Final = "Topic authorization failed."
UNSUPPORTED: Final = "share groups need the feature share.version"


class DescribeShareGroupOffsets(Handler):
    api = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    versions = (0, 1)
    needs = (GROUP_DESCRIBE, TOPIC_DESCRIBE)
    elements_max = LONG_ELEMENTS_MAX
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(
        self, current: CurrentImage, groups: GroupCoordinator, share_offsets: ShareGroupOffsets, timers: Timers
    ) -> None:
        self._current = current
        self._coordinator = groups
        self._offsets = share_offsets
        self._timers = timers

    def answer(
        self, request: DescribeShareGroupOffsetsRequest, caller: Caller
    ) -> DescribeShareGroupOffsetsResponse | Promise[DescribeShareGroupOffsetsResponse]:
        return run_steps(self._timers, self._steps(request, caller.access))

    def _steps(
        self, request: DescribeShareGroupOffsetsRequest, access: Access
    ) -> Steps[DescribeShareGroupOffsetsResponse | Promise[DescribeShareGroupOffsetsResponse]]:
        turn = TurnItems(CHECKS_A_TURN)
        replies: list[Any] = []
        for group in request.groups:
            if turn.ends_after(GROUP_COST):
                yield
            reply = yield from self._describe(group, access, turn)
            replies.append(reply)
        return combine_replies(replies, lambda groups: DescribeShareGroupOffsetsResponse(groups=groups))

    def _describe(
        self, group: DescribeShareGroupOffsetsRequestGroup, access: Access, turn: TurnItems
    ) -> Steps[DescribeShareGroupOffsetsResponseGroup | Promise[DescribeShareGroupOffsetsResponseGroup]]:
        group_id, topics = group.group_id, group.topics
        if not serves_share_groups(self._current):
            return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not access.allows(GROUP_DESCRIBE, group_id):
            return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if topics is None:
            return reply_or_error(
                lambda: when_decided(
                    self._coordinator.submit(group_id, _initialized, group_id, access),
                    lambda found: self._read(group_id, found, []),
                ),
                lambda error: DescribeShareGroupOffsetsResponseGroup(
                    group_id, error_code=error.code, error_message=error.message
                ),
            )
        if not topics:
            return DescribeShareGroupOffsetsResponseGroup(group_id)
        known: list[ShareTopic] = []
        others: list[DescribeShareGroupOffsetsResponseTopic] = []
        for topic in topics:
            image = self._current.image.topics.get(topic.topic_name)
            if not access.allows(TOPIC_DESCRIBE, topic.topic_name):
                denied = partial(_no_offset, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=TOPIC_DENIED)
                rows = yield from map_in_steps(turn, topic.partitions, denied)
                others.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=rows))
            elif image is None:
                rows = yield from map_in_steps(turn, topic.partitions, _no_offset)
                others.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=rows))
            else:
                known.append(ShareTopic(topic.topic_name, image.id, topic.partitions, len(image.partitions)))
            if turn.ends_after(1):
                yield
        return self._read(group_id, known, others)

    def _read(
        self, group_id: str, topics: Sequence[ShareTopic], others: list[DescribeShareGroupOffsetsResponseTopic]
    ) -> Promise[DescribeShareGroupOffsetsResponseGroup]:
        def combine(found: Offsets) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
            turn = TurnItems(CHECKS_A_TURN)
            read: list[DescribeShareGroupOffsetsResponseTopic] = []
            for name, topic_id, partitions, _ in topics:
                rows = yield from map_in_steps(turn, partitions, partial(found.of, name))
                read.append(DescribeShareGroupOffsetsResponseTopic(name, topic_id, rows))
            return DescribeShareGroupOffsetsResponseGroup(group_id, [*read, *others])

        return steps_when_ready(self._timers, self._offsets.read(group_id, topics), combine)


def _initialized(groups: Groups, group_id: str, access: Access) -> Outcome[list[ShareTopic]]:
    """Return the partitions of the group that have a start offset, without those that the client may not describe."""
    names = groups.state.current.image.topic_names
    found = offsets.initialized_partitions(groups.state, group_id)
    return Outcome(
        [
            ShareTopic(names[topic_id], topic_id, sorted(partitions), max(partitions) + 1)
            for topic_id, partitions in sorted(found.items())
            if topic_id in names and access.allows(TOPIC_DESCRIBE, names[topic_id])
        ]
    )


def _no_offset(
    index: int, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(index, NO_OFFSET, 0, NO_OFFSET, code, message)


class AlterShareGroupOffsets(Handler):
    api = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    versions = (0, 0)
    needs = (GROUP_READ, TOPIC_READ)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, groups: GroupCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: AlterShareGroupOffsetsRequest, caller: Caller
    ) -> AlterShareGroupOffsetsResponse | Promise[AlterShareGroupOffsetsResponse]:
        if not serves_share_groups(self._current):
            return AlterShareGroupOffsetsResponse(0, ErrorCode.UNSUPPORTED_VERSION, UNSUPPORTED)
        if not caller.access.allows(GROUP_READ, request.group_id):
            return AlterShareGroupOffsetsResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return run_steps(self._timers, self._steps(request, caller.access))

    def _steps(
        self, request: AlterShareGroupOffsetsRequest, access: Access
    ) -> Steps[AlterShareGroupOffsetsResponse | Promise[AlterShareGroupOffsetsResponse]]:
        turn, group_id = TurnItems(CHECKS_A_TURN), request.group_id
        allowed: list[AlterShareGroupOffsetsRequestTopic] = []
        denied: list[AlterShareGroupOffsetsResponseTopic] = []
        for topic in request.topics:
            if access.allows(TOPIC_READ, topic.topic_name):
                allowed.append(topic)
            else:
                denied.append(_denied(topic))
            if turn.ends_after(1 + len(topic.partitions)):
                yield

        def alter() -> Any:
            altered = self._coordinator.submit(group_id, lambda groups: offsets.alter(groups.state, group_id, allowed))
            return when_decided(altered, self._make)

        reply = reply_or_error(alter, lambda error: AlterShareGroupOffsetsResponse(0, error.code, error.message))
        return when_ready(reply, lambda response: _with_denied(response, denied))

    def _make(self, altered: offsets.Alteration) -> Promise[AlterShareGroupOffsetsResponse]:
        """Have the states made. The response has the errors of those that were not."""

        def with_errors(codes: Codes) -> AlterShareGroupOffsetsResponse:
            for topic in altered.topics:
                for partition in topic.partitions:
                    code = codes.get((topic.topic_id, partition.partition_index), ErrorCode.NONE)
                    if code and not partition.error_code:
                        partition.error_code = code
                        partition.error_message = f"its share coordinator answered with {code.name}"
            return AlterShareGroupOffsetsResponse(responses=altered.topics)

        return self._coordinator.share_states.make(altered.initialization).map(with_errors)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        names = (
            f"{topic.topic_name}-{each.partition_index}={each.start_offset}"
            for topic in request.topics
            for each in topic.partitions
        )
        detail = first_joined(names, partition_count(request.topics))
        codes = (each.error_code for topic in response.responses for each in topic.partitions)
        error = response.error_code or next(filter(None, codes), 0)
        yield AdminAction(f"group:{request.group_id}", error, detail)


def _denied(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return AlterShareGroupOffsetsResponseTopic(
        topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(each.partition_index, code, TOPIC_DENIED)
            for each in topic.partitions
        ],
    )


def _with_denied(
    response: AlterShareGroupOffsetsResponse, denied: Sequence[AlterShareGroupOffsetsResponseTopic]
) -> AlterShareGroupOffsetsResponse:
    if not response.error_code:
        response.responses = [*denied, *response.responses]
    return response


class DeleteShareGroupOffsets(Handler):
    api = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    versions = (0, 0)
    needs = (GROUP_DELETE, TOPIC_READ)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, groups: GroupCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: DeleteShareGroupOffsetsRequest, caller: Caller
    ) -> DeleteShareGroupOffsetsResponse | Promise[DeleteShareGroupOffsetsResponse]:
        if not serves_share_groups(self._current):
            return DeleteShareGroupOffsetsResponse(0, ErrorCode.UNSUPPORTED_VERSION, UNSUPPORTED)
        if not caller.access.allows(GROUP_DELETE, request.group_id):
            return DeleteShareGroupOffsetsResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return run_steps(self._timers, self._steps(request, caller.access))

    def _steps(
        self, request: DeleteShareGroupOffsetsRequest, access: Access
    ) -> Steps[DeleteShareGroupOffsetsResponse | Promise[DeleteShareGroupOffsetsResponse]]:
        group_id, names = request.group_id, [topic.topic_name for topic in request.topics]
        may_read = yield from map_in_steps(
            TurnItems(CHECKS_A_TURN), names, lambda name: access.allows(TOPIC_READ, name)
        )
        allowed = [name for name, is_allowed in zip(names, may_read, strict=True) if is_allowed]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied = [
            DeleteShareGroupOffsetsResponseTopic(name, error_code=code, error_message=TOPIC_DENIED)
            for name, is_allowed in zip(names, may_read, strict=True)
            if not is_allowed
        ]

        def delete() -> Any:
            begun = self._coordinator.submit(
                group_id, lambda groups: offsets.begin_offset_deletion(groups.state, group_id, allowed)
            )
            return when_decided(begun, lambda deletion: self._delete(deletion, denied))

        return reply_or_error(delete, lambda error: DeleteShareGroupOffsetsResponse(0, error.code, error.message))

    def _delete(
        self, begun: offsets.OffsetDeletion, denied: Sequence[DeleteShareGroupOffsetsResponseTopic]
    ) -> Promise[DeleteShareGroupOffsetsResponse]:
        def combine(codes: Codes) -> DeleteShareGroupOffsetsResponse:
            failed = {topic_id: code for (topic_id, _), code in codes.items() if code}
            deleted = [
                DeleteShareGroupOffsetsResponseTopic(
                    name, topic_id, failed.get(topic_id, ErrorCode.NONE), _message(failed.get(topic_id))
                )
                for topic_id, name in begun.names.items()
            ]
            return DeleteShareGroupOffsetsResponse(responses=[*denied, *begun.errors, *deleted])

        return self._coordinator.share_states.delete_offsets(begun.deletion).map(combine)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        detail = first_joined((topic.topic_name for topic in request.topics), len(request.topics))
        error = response.error_code or next(filter(None, (each.error_code for each in response.responses)), 0)
        yield AdminAction(f"group:{request.group_id}", error, detail)


def _message(code: ErrorCode | None) -> str | None:
    return None if code is None else f"its share coordinator answered with {code.name}"

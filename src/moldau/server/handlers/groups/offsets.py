"""The APIs of committed offsets.

OffsetCommit v2–10. v10: topics by id.
OffsetFetch v1–10. v2: null means all topics; v7: offsets that an open transaction may still change are withheld; v8:
several groups; v9: a member identifies itself (KIP-848); v10: topics by id.
OffsetDelete v0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import OFFSETS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, finish, map_in_steps, no_steps
from moldau.base.turns import CHECKS_A_TURN, ITEMS_A_TURN
from moldau.coordinator.group.commit_draft import CommitDraft, draft_in_steps, is_long
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import Client, MayUseTopic, Outcome, any_topic
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.requirements import GROUP_DELETE, GROUP_DESCRIBE, GROUP_READ, TOPIC_DESCRIBE, TOPIC_READ
from moldau.server.admin_actions import AdminAction, first_error, first_joined, partition_count
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.replies import (
    combine_replies,
    item_count,
    partitions_in_turns,
    reply_or_error,
    reply_when_ready,
    run_steps,
    steps_when_ready,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

R = TypeVar("R")
SEVERAL_GROUPS_MIN_VERSION = 8
GROUP_ERROR_MIN_VERSION = 2
GROUP_COST: Final = 20
"""Looking up a group takes about as long as so many offsets."""


class OffsetCommit(Handler):
    api = ApiKey.OFFSET_COMMIT
    versions = (2, 10)
    needs = (GROUP_READ, TOPIC_READ)
    logs_once_a_minute = True
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: OffsetCommitRequest, caller: Caller
    ) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
        may_read: MayUseTopic = any_topic
        if not caller.is_unrestricted:
            if not caller.access.allows(GROUP_READ, request.group_id):
                return self._error_in_turns(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            may_read = partial(caller.access.allows, TOPIC_READ)
        topics = request.topics
        # `is_long` is slow: skip it for the usual small commit.
        if (len(topics) != 1 or len(topics[0].partitions) > ITEMS_A_TURN) and is_long(topics):
            return run_steps(self._timers, self._long_commit(request, caller.group_client, may_read))
        try:
            reply = self._coordinator.submit(
                request.group_id, _commit, request, caller.group_client, may_read, allows_empty_group_id=True
            )
        except KafkaError as error:
            return _commit_error(request, error.code)
        if not isinstance(reply, Promise):
            return reply
        return reply_when_ready(reply, lambda error: _commit_error(request, error.code))

    def _error_in_turns(
        self, request: OffsetCommitRequest, code: ErrorCode
    ) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
        """Like `_commit_error`, in turns: even a client that is refused may send the largest request."""
        code = _commit_error_code(code)
        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (topic, topic.partitions),
            lambda topic, each: OffsetCommitResponsePartition(each.partition_index, code),
            lambda results: OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(topic.topic_id, topic.name, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            ),
            ITEMS_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _long_commit(
        self, request: OffsetCommitRequest, client: Client, may_read: MayUseTopic
    ) -> Steps[OffsetCommitResponse | Promise[OffsetCommitResponse]]:
        """Draft the commit in steps; check the member and write everything in the last one."""
        try:
            groups = self._coordinator.shards.machine_of(request.group_id)
        except KafkaError as error:
            return self._error_in_turns(request, error.code)

        def add(
            draft: CommitDraft[OffsetCommitResponseTopic],
            topic: OffsetCommitRequestTopic,
            some: Sequence[OffsetCommitRequestPartition],
        ) -> None:
            groups.offsets.draft_topic(draft, request, topic, some, client, may_read)

        draft = yield from draft_in_steps(request.topics, add)
        yield
        try:
            reply = self._coordinator.submit(
                request.group_id, _commit_draft, request, client, may_read, draft, allows_empty_group_id=True
            )
        except KafkaError as error:
            return self._error_in_turns(request, error.code)

        def or_error(
            value: OffsetCommitResponse | KafkaError,
        ) -> Steps[OffsetCommitResponse | Promise[OffsetCommitResponse]]:
            return no_steps(self._error_in_turns(request, value.code) if isinstance(value, KafkaError) else value)

        return steps_when_ready(self._timers, reply, or_error) if isinstance(reply, Promise) else reply

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        names = (
            f"{topic.name or topic.topic_id.hex()}-{each.partition_index}={each.committed_offset}"
            for topic in request.topics
            for each in topic.partitions
        )
        detail = first_joined(names, partition_count(request.topics))
        yield AdminAction(f"group:{request.group_id}", first_error(response), detail)

    @staticmethod
    def is_administrative(request: OffsetCommitRequest) -> bool:
        """Whether there is no member. Tools reset offsets so, and consumers that assign partitions themselves commit
        so."""
        return request.generation_id_or_member_epoch < 0  # then a member id means nothing


def _commit(
    groups: Groups, request: OffsetCommitRequest, client: Client, may_read: MayUseTopic
) -> Outcome[OffsetCommitResponse]:
    return groups.offsets.commit(request, client, may_read)


def _commit_draft(
    groups: Groups,
    request: OffsetCommitRequest,
    client: Client,
    may_read: MayUseTopic,
    draft: CommitDraft[OffsetCommitResponseTopic],
) -> Outcome[OffsetCommitResponse]:
    if draft.has_deleted_topic(groups.state.current.image):
        # Draft again, without that topic.
        return groups.offsets.commit(request, client, may_read)
    return groups.offsets.commit(request, client, may_read, draft)


def _commit_error(request: OffsetCommitRequest, error_code: ErrorCode) -> OffsetCommitResponse:
    """Report the error for every partition: the response has no error for the whole."""
    code = _commit_error_code(error_code)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.topic_id,
                topic.name,
                [OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _commit_error_code(code: ErrorCode) -> ErrorCode:
    """Return the code that a client gets: this API has its own for offsets that the log refuses as too large."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.RECORD_LIST_TOO_LARGE else code


class OffsetFetch(Handler):
    api = ApiKey.OFFSET_FETCH
    versions = (1, 10)
    needs = (GROUP_DESCRIBE, TOPIC_DESCRIBE)
    elements_max = LONG_ELEMENTS_MAX
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(self, request: OffsetFetchRequest, caller: Caller) -> OffsetFetchResponse | Promise[OffsetFetchResponse]:
        has_several_groups = caller.version >= SEVERAL_GROUPS_MIN_VERSION
        fetch = self._fetch_groups if has_several_groups else self._fetch_single_group
        return run_steps(self._timers, fetch(request, caller))

    def _fetch_groups(
        self, request: OffsetFetchRequest, caller: Caller
    ) -> Steps[OffsetFetchResponse | Promise[OffsetFetchResponse]]:
        """Answer each group once, even if the request repeats it: it may have thousands of offsets. Kafka answers it
        each time, but its own client fails if a group is in the response twice."""
        turn = TurnItems(CHECKS_A_TURN)
        replies: dict[str, Any] = {}
        for group in request.groups:
            if group.group_id not in replies:
                reply = yield from self._fetch_group(turn, group, caller, request.require_stable)
                replies[group.group_id] = reply
            elif turn.ends_after(1):
                yield
        return combine_replies(list(replies.values()), lambda groups: OffsetFetchResponse(groups=groups))

    def _fetch_group(
        self, turn: TurnItems, request: OffsetFetchRequestGroup, caller: Caller, require_stable: bool
    ) -> Steps[OffsetFetchResponseGroup | Promise[OffsetFetchResponseGroup]]:
        group_id = request.group_id
        try:
            machine, group = yield from self._read(turn, request, caller, require_stable)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id, error_code=error.code)
        return reply_or_error(
            lambda: self._coordinator.submit_read(group_id, machine, _return, group),
            lambda error: OffsetFetchResponseGroup(group_id, error_code=error.code),
        )

    def _fetch_single_group(
        self, request: OffsetFetchRequest, caller: Caller
    ) -> Steps[OffsetFetchResponse | Promise[OffsetFetchResponse]]:
        turn = TurnItems(CHECKS_A_TURN)
        group = yield from _single_group(turn, request)
        try:
            machine, fetched = yield from self._read(turn, group, caller, request.require_stable)
        except KafkaError as error:
            refusal = yield from _single_group_error(turn, request, error.code, caller.version)
            return refusal
        response = yield from _single_group_response(turn, fetched)
        return reply_or_error(
            lambda: self._coordinator.submit_read(request.group_id, machine, _return, response),
            lambda error: finish(_single_group_error(turn, request, error.code, caller.version)),
        )

    def _read(
        self, turn: TurnItems, request: OffsetFetchRequestGroup, caller: Caller, require_stable: bool
    ) -> Steps[tuple[Groups, OffsetFetchResponseGroup]]:
        """Return the offsets of a group, and the machine that they are from."""
        if turn.ends_after(GROUP_COST):
            yield
        if not caller.access.allows(GROUP_DESCRIBE, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        machine = self._coordinator.machine_to_read(request.group_id, allows_empty_group_id=True)
        may_describe = partial(caller.access.allows, TOPIC_DESCRIBE)
        group = yield from machine.offsets.fetch(request, caller.group_client, turn, require_stable, may_describe)
        return machine, group


def _return(groups: Groups, response: R) -> Outcome[R]:
    return Outcome(response)


def _single_group(turn: TurnItems, request: OffsetFetchRequest) -> Steps[OffsetFetchRequestGroup]:
    topics = None
    if request.topics is not None:
        topics = yield from map_in_steps(
            turn,
            request.topics,
            lambda topic: OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes),
        )
    return OffsetFetchRequestGroup(request.group_id, topics=topics)


def _single_group_response(turn: TurnItems, group: OffsetFetchResponseGroup) -> Steps[OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    for topic in group.topics:
        partitions = yield from map_in_steps(
            turn,
            topic.partitions,
            lambda each: OffsetFetchResponsePartition(
                each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
            ),
        )
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
        if turn.ends_after(1):
            yield
    return OffsetFetchResponse(topics=topics)


def _single_group_error(
    turn: TurnItems, request: OffsetFetchRequest, code: ErrorCode, version: int
) -> Steps[OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    # Version 1 can report it per partition only.
    for topic in request.topics or () if version < GROUP_ERROR_MIN_VERSION else ():
        partitions = yield from map_in_steps(
            turn, topic.partition_indexes, lambda index: OffsetFetchResponsePartition(index, -1, -1, "", code)
        )
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
        if turn.ends_after(1):
            yield
    return OffsetFetchResponse(topics=topics, error_code=code)


class OffsetDelete(Handler):
    api = ApiKey.OFFSET_DELETE
    versions = (0, 0)
    needs = (GROUP_DELETE, TOPIC_READ)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: OffsetDeleteRequest, caller: Caller
    ) -> OffsetDeleteResponse | Promise[OffsetDeleteResponse]:
        if not caller.access.allows(GROUP_DELETE, request.group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return run_steps(self._timers, self._delete(request, partial(caller.access.allows, TOPIC_READ)))

    def _delete(
        self, request: OffsetDeleteRequest, may_read: MayUseTopic
    ) -> Steps[OffsetDeleteResponse | Promise[OffsetDeleteResponse]]:
        """Draft the deletion in steps; write everything in the last one."""
        group_id = request.group_id
        try:
            machine = self._coordinator.machine_to_read(group_id)
            draft = yield from machine.offsets.draft_deletion(request, TurnItems(ITEMS_A_TURN), may_read)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)
        return reply_or_error(
            lambda: self._coordinator.submit_read(group_id, machine, lambda groups: groups.offsets.delete(draft)),
            lambda error: OffsetDeleteResponse(error_code=error.code),
        )

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        names = (f"{topic.name}-{each.partition_index}" for topic in request.topics for each in topic.partitions)
        detail = first_joined(names, partition_count(request.topics))
        yield AdminAction(f"group:{request.group_id}", response.error_code or first_error(response), detail)

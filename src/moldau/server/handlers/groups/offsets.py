"""OffsetCommit v2–10, OffsetFetch v1–10, OffsetDelete v0.

OffsetCommit v10 and OffsetFetch v10 name topics by id; OffsetFetch v2: null means all topics; v7: offsets that an open
transaction may still change are withheld; v8: several groups at once (one before); v9: a member identifies itself
(KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import OFFSETS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.coordinator.group.commit_draft import PARTITIONS_A_TURN, CommitDraft, draft_in_steps, is_long
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import Client, MayUseTopic, Outcome, any_topic
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.requirements import GROUP_DELETE, GROUP_DESCRIBE, GROUP_READ, TOPIC_DESCRIBE, TOPIC_READ
from moldau.server.handlers.replies import (
    combine_replies,
    in_turns,
    item_count,
    partitions_in_turns,
    reply_or_error,
    reply_when_ready,
    run_steps,
)
from moldau.server.router import Caller
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

SEVERAL_GROUPS_MIN_VERSION = 8
GROUP_ERROR_MIN_VERSION = 2
GROUPS_A_TURN: Final = 100
"""Groups of an OffsetFetch that are looked up in one turn of the loop."""


class OffsetCommit:
    api = ApiKey.OFFSET_COMMIT
    versions = (2, 10)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, coordinator: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
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
        if (len(topics) != 1 or len(topics[0].partitions) > PARTITIONS_A_TURN) and is_long(topics):
            return run_steps(self._timers, self._long_commit(request, caller.member, may_read))
        try:
            reply = self._coordinator.submit(
                request.group_id, _commit, request, caller.member, may_read, may_be_empty=True
            )
        except KafkaError as error:
            return _commit_error(request, error.code)
        if not isinstance(reply, Promise):
            return reply
        return reply_when_ready(reply, lambda error: _commit_error(request, error.code))

    def _error_in_turns(
        self, request: OffsetCommitRequest, code: ErrorCode
    ) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
        """Like `_commit_error`, in turns: anybody may send the largest request."""
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
            PARTITIONS_A_TURN,
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
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.group_id, _commit_draft, request, client, may_read, draft, may_be_empty=True
            ),
            lambda error: _commit_error(request, error.code),
        )


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
        return groups.offsets.commit(request, client, may_read)
    return groups.offsets.commit(request, client, may_read, draft)


def _commit_error(request: OffsetCommitRequest, error_code: ErrorCode) -> OffsetCommitResponse:
    """Report the error for every partition: the response has no error for the whole."""
    too_large = error_code is ErrorCode.RECORD_LIST_TOO_LARGE
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else error_code
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


class OffsetFetch:
    api = ApiKey.OFFSET_FETCH
    versions = (1, 10)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, coordinator: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers

    def answer(self, request: OffsetFetchRequest, caller: Caller) -> OffsetFetchResponse | Promise[OffsetFetchResponse]:
        if caller.version >= SEVERAL_GROUPS_MIN_VERSION:
            return in_turns(
                self._timers,
                request.groups,
                lambda group: self._fetch_group(group, caller, request.require_stable),
                lambda groups: OffsetFetchResponse(groups=groups),
                GROUPS_A_TURN,
            )
        group = self._fetch_group(_single_group(request), caller, request.require_stable)
        return combine_replies([group], lambda groups: _single_group_response(groups[0], request, caller.version))

    def _fetch_group(self, request: OffsetFetchRequestGroup, caller: Caller, require_stable: bool) -> Any:
        if not caller.access.allows(GROUP_DESCRIBE, request.group_id):
            return OffsetFetchResponseGroup(request.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        client = caller.member
        may_describe = partial(caller.access.allows, TOPIC_DESCRIBE)
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.group_id,
                lambda groups: groups.offsets.fetch(request, client, require_stable, may_describe),
                may_be_empty=True,
            ),
            lambda error: OffsetFetchResponseGroup(request.group_id, error_code=error.code),
        )


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return OffsetFetchRequestGroup(request.group_id, topics=topics)


def _single_group_response(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code and version < GROUP_ERROR_MIN_VERSION:
        # Version 1 can report it per partition only.
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, -1, -1, "", group.error_code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


class OffsetDelete:
    api = ApiKey.OFFSET_DELETE
    versions = (0, 0)
    request_bytes_max = OFFSETS_REQUEST_BYTES_MAX

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, request: OffsetDeleteRequest, caller: Caller
    ) -> OffsetDeleteResponse | Promise[OffsetDeleteResponse]:
        if not caller.access.allows(GROUP_DELETE, request.group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        may_read = partial(caller.access.allows, TOPIC_READ)
        return reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.offsets.delete(request, may_read)),
            lambda error: OffsetDeleteResponse(error_code=error.code),
        )

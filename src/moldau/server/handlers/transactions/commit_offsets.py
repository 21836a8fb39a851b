"""TxnOffsetCommit v0–5. Offsets that take effect if and when their transaction commits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.base.steps import Steps, TurnItems, finish, no_steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.coordinator.group.commit_draft import CommitDraft, draft_in_steps, is_long
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import Client, MayUseTopic, Outcome
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction_gate import TransactionalWrite, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import InTransaction
from moldau.security.acls.requirements import GROUP_READ, TOPIC_READ, TRANSACTION_WRITE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import item_count, partitions_in_turns, reply_or_error, run_steps, steps_when_ready
from moldau.wire.apis import ApiKey
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOAD_IN_PROGRESS_MIN_VERSION = 2
KNOWS_ABORTABLE_MIN_VERSION = 4
ADDS_PARTITIONS_MIN_VERSION = 5
NO_SEQUENCE = -1
_ERROR_FOR_CLIENT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The error that a client gets when the log refuses the offsets, or the transaction coordinator cannot be asked."""

Response = TxnOffsetCommitResponse | Promise[TxnOffsetCommitResponse]
Draft = CommitDraft[TxnOffsetCommitResponseTopic]


class TxnOffsetCommit(Handler):
    api = ApiKey.TXN_OFFSET_COMMIT
    versions = (0, 5)
    needs = (TRANSACTION_WRITE, GROUP_READ, TOPIC_READ)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        groups: GroupCoordinator,
        partitions: Partitions,
        gate: TransactionGate,
        timers: Timers,
    ) -> None:
        self._timers = timers
        self._current = current
        self._groups = groups
        self._partitions = partitions
        self._gate = gate

    def answer(self, request: TxnOffsetCommitRequest, caller: Caller) -> Response:
        if not caller.access.allows(TRANSACTION_WRITE, request.transactional_id):
            return self._error_in_turns(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, caller.version)
        if not caller.access.allows(GROUP_READ, request.group_id):
            return self._error_in_turns(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, caller.version)
        client = caller.group_client
        may_read = partial(caller.access.allows, TOPIC_READ)
        if is_long(request.topics):
            return run_steps(self._timers, self._long_commit(request, client, may_read))
        return reply_or_error(
            lambda: self._verify(request, client, may_read, None),
            lambda error: _error_response(request, error.code, caller.version),
        )

    def _error_in_turns(self, request: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> Response:
        """Like `_error_response`, in turns: anybody may send the largest request."""
        error = _error_for_client(code, version)
        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (topic, topic.partitions),
            lambda topic, each: TxnOffsetCommitResponsePartition(each.partition_index, error),
            lambda results: TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(topic.name, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            ),
            ITEMS_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _long_commit(self, request: TxnOffsetCommitRequest, client: Client, may_read: MayUseTopic) -> Steps[Response]:
        """Draft the commit in steps; then verify the transaction, check the member and write everything at once."""
        try:
            groups = self._groups.shards.machine_of(request.group_id)
        except KafkaError as error:
            return self._error_in_turns(request, error.code, client.version)

        def add(
            draft: Draft, topic: TxnOffsetCommitRequestTopic, some: Sequence[TxnOffsetCommitRequestPartition]
        ) -> None:
            groups.offsets.draft_transactional_topic(draft, request, topic, some, may_read)

        draft = yield from draft_in_steps(request.topics, add)
        yield
        if draft.has_usable_partition and not (yield from self._is_any_usable(request, may_read)):
            # The draft is from before a right was taken away, or a topic deleted.
            draft = yield from draft_in_steps(request.topics, add)
            yield
        try:
            response = self._verify(request, client, may_read, draft)
        except KafkaError as error:
            return self._error_in_turns(request, error.code, client.version)

        def or_error(value: TxnOffsetCommitResponse | KafkaError) -> Steps[Response]:
            if isinstance(value, KafkaError):
                return no_steps(self._error_in_turns(request, value.code, client.version))
            return no_steps(value)

        return steps_when_ready(self._timers, response, or_error) if isinstance(response, Promise) else response

    def _verify(
        self, request: TxnOffsetCommitRequest, client: Client, may_read: MayUseTopic, draft: Draft | None
    ) -> Response:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        is_usable = finish(self._is_any_usable(request, may_read)) if draft is None else draft.has_usable_partition
        if not is_usable:
            # No offset can be committed: the coordinator only returns the errors.
            return self._submit(request, client, may_read, draft)
        name = self._groups.topic.partition_of(request.group_id)
        partition = self._partitions.find(*name)
        transaction = InTransaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            client.version >= ADDS_PARTITIONS_MIN_VERSION,
        )
        if partition is None or not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        write = TransactionalWrite(transaction, {partition: NO_SEQUENCE}, client.version >= KNOWS_ABORTABLE_MIN_VERSION)
        return when_ready(
            self._gate.verify(write), lambda _: self._commit(request, client, partition, write, may_read, draft)
        )

    def _commit(
        self,
        request: TxnOffsetCommitRequest,
        client: Client,
        partition: Partition,
        write: TransactionalWrite,
        may_read: MayUseTopic,
        draft: Draft | None,
    ) -> Response:
        self._gate.check(write, partition)
        response = self._submit(request, client, may_read, draft)
        if partition.log.producers.has_open_transaction(request.producer_id, request.producer_epoch):
            self._gate.appended(write, partition)
        return response

    def _submit(
        self, request: TxnOffsetCommitRequest, client: Client, may_read: MayUseTopic, draft: Draft | None
    ) -> Response:
        def commit(groups: Groups) -> Outcome[TxnOffsetCommitResponse]:
            is_current = draft is not None and not draft.has_deleted_topic(self._current.image)
            return groups.offsets.transactional_commit(request, client, may_read, draft if is_current else None)

        return self._groups.submit(request.group_id, commit)

    def _is_any_usable(self, request: TxnOffsetCommitRequest, may_read: MayUseTopic) -> Steps[bool]:
        """Return whether a partition exists and the client may use it."""
        turn = TurnItems(ITEMS_A_TURN)
        for topic in request.topics:
            image = self._current.image.topics.get(topic.name) if may_read(topic.name) else None
            count = 0 if image is None else len(image.partitions)
            for some in split(topic.partitions, ITEMS_A_TURN) if count else ((),):
                if any(0 <= each.partition_index < count for each in some):
                    return True
                if turn.ends_after(len(some)):
                    yield
        return False


def _error_response(request: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    """Return the error for every partition: the response has no error for the whole."""
    error = _error_for_client(code, version)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _error_for_client(code: ErrorCode, version: int) -> ErrorCode:
    error = _ERROR_FOR_CLIENT.get(code, code)
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_loading and version < LOAD_IN_PROGRESS_MIN_VERSION else error

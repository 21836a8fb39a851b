"""Sends the leaders' proposals of in-sync replicas to the controller: those of one turn in one request, some hundred at
most, one request at a time, retried until the controller has decided (KIP-497).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from moldau.base.clock import Timer
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.limits import RETRY_DELAY_MS
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN, PROPOSALS_A_REQUEST
from moldau.replica.partitions import Partitions
from moldau.replica.replication import IsrDecision, IsrProposal
from moldau.runtime.own_work import OwnWork
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from moldau.wire.schema import Message

log = logging.getLogger("moldau.replication")
AskController = Callable[[ApiKey, Message], Promise[Any]]
FINAL_CODES: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller's answers to a proposal that a retry would not change."""
Key = tuple[Uuid, int]
Pending = tuple[IsrProposal, Promise[IsrDecision | KafkaError]]


class IsrChanges:
    """A `Partition` that leads calls `propose` when a follower has caught up or lags.

    `broker_epoch` returns the epoch of this broker's last registration.
    """

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], ask_controller: AskController, own_work: OwnWork
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._own_work = own_work
        self._unsent: dict[Key, Pending] = {}
        self._sent: dict[Key, Pending] = {}
        self._last_failure: ErrorCode | None = None
        """Why proposals were not decided the last time, so that a failure which goes on is logged once."""
        self._is_sending = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._looking: LongWork[None] | None = None
        """The last look at all partitions for lagging followers."""

    def look_for_laggards(self, partitions: Partitions, interval_ms: int) -> None:
        """Check for lagging followers at this interval; Kafka uses half of `replica.lag.time.max.ms`."""

        def check_all() -> Steps[None]:
            for some in split(partitions.all(), ITEMS_A_TURN):
                for partition in some:
                    if partition.leadership is not None:
                        partition.reevaluate_isr(looks_for_laggards=True)
                yield
            check_later()

        def check() -> None:
            self._looking = self._own_work.long_work(check_all())
            self._looking()

        def check_later() -> None:
            self._timer = self._own_work.after_ms(interval_ms, check)

        check_later()

    def propose(self, proposal: IsrProposal) -> Promise[IsrDecision | KafkaError]:
        """Propose a change. It replaces an unsent proposal of the same partition, whose promise is never completed."""
        promise: Promise[IsrDecision | KafkaError] = Promise()
        self._unsent[proposal.topic_id, proposal.partition_index] = (proposal, promise)
        self._send_soon()
        return promise

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _send_soon(self) -> None:
        if not self._is_sending and not self._is_closed and self._unsent:
            self._is_sending = True
            self._own_work.soon(self._send)

    def _send(self) -> None:
        if self._is_closed:
            return
        keys = list(islice(self._unsent, PROPOSALS_A_REQUEST))
        self._sent = {key: self._unsent.pop(key) for key in keys}
        topics: dict[Uuid, list[RequestPartitionData]] = {}
        for proposal, _ in self._sent.values():
            topics.setdefault(proposal.topic_id, []).append(_request_partition(proposal))
        request = AlterPartitionRequest(
            self._node_id,
            self._broker_epoch(),
            [RequestTopicData(topic_id, partitions) for topic_id, partitions in topics.items()],
        )
        self._ask_controller(ApiKey.ALTER_PARTITION, request).then(self._own_work.guard(self._on_response))

    def _on_response(self, response: AlterPartitionResponse | KafkaError) -> None:
        if self._is_closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        sent, self._sent = self._sent, {}
        if isinstance(response, AlterPartitionResponse) and code is ErrorCode.NONE:
            for topic in response.topics:
                for each in topic.partitions:
                    pending = sent.pop((topic.topic_id, each.partition_index), None) if _is_final(each) else None
                    if pending is not None:
                        pending[1].complete(_decision(each))
        self._unsent = {**sent, **self._unsent}
        failure = code if sent else None
        if failure is not None and failure is not self._last_failure:
            log.info("in-sync replicas: the controller did not decide %d proposals, retrying: %s", len(sent), code.name)
        self._last_failure = failure
        if sent:
            self._own_work.after_ms(RETRY_DELAY_MS, self._send_rest)
        else:
            self._send_rest()

    def _send_rest(self) -> None:
        self._is_sending = False
        self._send_soon()


def _request_partition(proposal: IsrProposal) -> RequestPartitionData:
    return RequestPartitionData(
        proposal.partition_index,
        proposal.leader_epoch,
        [BrokerState(broker_id, broker_epoch) for broker_id, broker_epoch in proposal.members],
        proposal.isr,
        partition_epoch=proposal.partition_epoch,
    )


def _is_final(answer: ResponsePartitionData) -> bool:
    return answer.error_code in FINAL_CODES


def _decision(answer: ResponsePartitionData) -> IsrDecision | KafkaError:
    if answer.error_code:
        return KafkaError(ErrorCode(answer.error_code))
    return IsrDecision(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))

"""InitProducerId v0–5. Gives an idempotent producer its id, from a block reserved in the metadata log.

A transactional producer gets its id and epoch from the coordinator of its transactional id, which fences the previous
owner.
"""

from __future__ import annotations

from moldau.base.counters import TRANSACTIONAL_IDS_REFUSED, Counters
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise, when_ready
from moldau.runtime.broker.producer_ids import ProducerIds
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_IDEMPOTENT_WRITE, TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import reply_or_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_EPOCH = -1


class InitProducerId(Handler):
    api = ApiKey.INIT_PRODUCER_ID
    versions = (0, 5)
    needs = (TRANSACTION_WRITE, CLUSTER_IDEMPOTENT_WRITE, TOPIC_WRITE)

    def __init__(self, producer_ids: ProducerIds, transactions: TransactionCoordinator, counters: Counters) -> None:
        self._producer_ids = producer_ids
        self._counters = counters
        self._coordinator = transactions

    def answer(
        self, request: InitProducerIdRequest, caller: Caller
    ) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
        transactional_id = request.transactional_id
        denied_code = _denied_code(transactional_id, caller.access)
        if denied_code is not None:
            return _error_response(denied_code)
        if transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
            return _error_response(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            return self._next_id().map(_response)
        client = caller.group_client
        reply = reply_or_error(
            lambda: self._coordinator.with_producer_id(
                lambda: self._coordinator.submit(
                    transactional_id, lambda transactions: transactions.init_producer_id(request, client)
                )
            ),
            lambda error: _error_response(error.code),
        )
        return when_ready(reply, self._count)

    def _next_id(self) -> Promise[int | KafkaError]:
        """Return a promise of an id. A broker that is cut off, and has none left, closes the connection instead: the
        client asks another."""
        producer_id = self._producer_ids.next()
        if not producer_id.done and self._coordinator.shards.is_cut_off:
            raise MalformedData(
                "the controller, which grants producer ids, cannot be reached: the client should ask others"
            )
        return producer_id

    def _count(self, response: InitProducerIdResponse) -> InitProducerIdResponse:
        if response.error_code == ErrorCode.POLICY_VIOLATION:
            self._counters.add(TRANSACTIONAL_IDS_REFUSED)
        return response


def _denied_code(transactional_id: str | None, access: Access) -> ErrorCode | None:
    """Return the error for a producer without access. An idempotent one must be allowed to write to some topic."""
    if transactional_id is not None:
        is_allowed = access.allows(TRANSACTION_WRITE, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if access.allows_quietly(CLUSTER_IDEMPOTENT_WRITE) or access.allows_any(TOPIC_WRITE):
        return None
    access.allows(CLUSTER_IDEMPOTENT_WRITE)  # for the audit log
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)


def _response(producer_id: int | KafkaError) -> InitProducerIdResponse:
    if isinstance(producer_id, KafkaError):
        # The client retries on this error: a controller that grants ids may be elected soon.
        return _error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

"""InitProducerId v0–6. Gives an idempotent producer its id, out of a block reserved in the metadata log.

A transactional id needs the transaction coordinator, which this release does not have: the client is told so.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.later import Later
from moldau.runtime.producer_ids import ProducerIds
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_EPOCH = -1


class InitProducerId:
    api = ApiKey.INIT_PRODUCER_ID
    versions = (0, 6)

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def answer(
        self, ask: InitProducerIdRequest, caller: Caller
    ) -> InitProducerIdResponse | Later[InitProducerIdResponse]:
        if ask.transactional_id == "" or (ask.producer_id < 0) != (ask.producer_epoch < 0):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_EPOCH)
        if ask.transactional_id is not None:
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=NO_EPOCH)
        return self._producer_ids.next().map(_response)


def _response(given: int | KafkaError) -> InitProducerIdResponse:
    if isinstance(given, KafkaError):
        # The client tries again on this one: there may soon be a controller that grants ids.
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=NO_EPOCH)
    return InitProducerIdResponse(producer_id=given, producer_epoch=0)

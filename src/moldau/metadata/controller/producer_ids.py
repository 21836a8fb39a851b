"""Producer ids, allocated in blocks: one record per thousand producers, and no id is ever allocated twice."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.wire.log_records.metadata import ProducerIdsRecord
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE: Final = 1000
"""Kafka's block size. A restart wastes the rest of a block, which does no harm: there are 2⁶³ ids."""


def decide_allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """AllocateProducerIds v0: allocate a block for a broker that sends its current epoch."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    decision = decide_allocate(image, request.broker_id, request.broker_epoch)
    block = decision.response
    return Decision(
        AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block)), decision.records
    )


def decide_allocate(image: MetadataImage, broker_id: int, broker_epoch: int) -> Decision[range]:
    first = image.next_producer_id
    block = range(first, first + BLOCK_SIZE)
    return Decision(block, (ProducerIdsRecord(broker_id, broker_epoch, block.stop),))

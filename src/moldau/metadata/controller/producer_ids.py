"""Producer ids, given out in blocks: one record a thousand producers, and none is ever given twice."""

from __future__ import annotations

from typing import Final

from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
"""Kafka's own. A restart loses the rest of a block, which costs nothing: there are 2⁶³ ids."""


def decide_allocate(image: MetadataImage, broker_id: int, broker_epoch: int) -> Decision[range]:
    first = image.next_producer_id
    block = range(first, first + BLOCK_SIZE)
    return Decision(block, (ProducerIdsRecord(broker_id, broker_epoch, block.stop),))

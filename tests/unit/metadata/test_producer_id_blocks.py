"""Producer ids are allocated in blocks that never overlap, whichever broker requests them."""

from __future__ import annotations

from clusters import applied, cluster

from moldau.metadata.controller.producer_ids import BLOCK_SIZE, decide_allocate
from moldau.wire.log_records.metadata import ProducerIdsRecord


def test_blocks_are_consecutive() -> None:
    image = cluster([1, 2])
    seen: set[int] = set()
    for turn in range(50):
        decision = decide_allocate(image, 1 + turn % 2, 7)
        assert len(decision.response) == BLOCK_SIZE
        assert seen.isdisjoint(decision.response)
        seen.update(decision.response)
        image = applied(image, decision.records)
        assert image.next_producer_id == decision.response.stop
    assert seen == set(range(50 * BLOCK_SIZE))


def test_the_record_names_the_broker() -> None:
    record = decide_allocate(cluster(), 3, 9).records[0]
    assert isinstance(record, ProducerIdsRecord)
    assert (record.broker_id, record.broker_epoch, record.next_producer_id) == (3, 9, BLOCK_SIZE)


def test_two_decisions_on_one_image_give_the_same_block() -> None:
    """A decision changes nothing: only applying its records does."""
    image = cluster()
    assert decide_allocate(image, 1, 1).response == decide_allocate(image, 1, 1).response

"""Functions that append batches of producers and transaction markers to a log, or return the error code."""

from __future__ import annotations

import pytest
from harness.making_logs import NOW_MS, batch_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.log import Appended, Log
from moldau.log.validate import Origin
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker


def send(
    log: Log,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = 7,
    is_transactional: bool = False,
    version: int = 0,
) -> Appended:
    batch = batch_of(
        [b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return log.append(batch, leader_epoch=0, now_ms=NOW_MS, transaction_version=version)


def end(
    log: Log, *, commit: bool, epoch: int = 0, producer_id: int = 7, coordinator_epoch: int = 0, version: int = 1
) -> Appended:
    marker = end_txn_marker(EndTxnMarker(commit, coordinator_epoch), NOW_MS)
    batch = build_batch([marker], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=epoch)
    return log.append(
        memoryview(batch), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR, transaction_version=version
    )


def end_refused(log: Log, **kwargs: int) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(KafkaError) as caught:
        end(log, commit=True, **kwargs)
    assert log.end_offset == before
    return caught.value.code


def refused(log: Log, sequence: int, count: int = 1, **kwargs: int) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, count, **kwargs)
    assert log.end_offset == before
    return caught.value.code

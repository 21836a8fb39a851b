"""A marker says that nothing is shown up to an offset. It is a control batch, like that which ends a transaction: every
client skips it and moves on behind it. Without one, a consumer would stay where it is, and its lag would grow.
"""

from __future__ import annotations

from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker


def marker(offset: int, leader_epoch: int) -> bytes:
    """Return a control batch at this offset. It is no part of a transaction: it has no producer."""
    record = end_txn_marker(EndTxnMarker(True, 0), 0)
    return bytes(build_batch([record], base_offset=offset, leader_epoch=leader_epoch, is_control=True))

"""The states of share groups on an in-memory node, also across crashes."""

from __future__ import annotations

from harness.share_state_node import ShareStateNode, write_data

from moldau.base.errors import ErrorCode


def test_a_state_is_kept_across_a_crash() -> None:
    node = ShareStateNode()
    key = node.key(1)
    assert node.result(node.states.initialize(key, 1, 5)) is ErrorCode.NONE
    data = write_data((5, 9, 2, 1), (12, 12, 0, 3), partition=1, state_epoch=1, leader_epoch=0)
    assert node.result(node.states.write(key, data)) is ErrorCode.NONE
    for each in (node, node.crash()):
        read = each.result(each.states.read(key, 0))
        assert (read.error_code, read.state_epoch, read.start_offset) == (0, 1, 5)
        batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read.state_batches]
        assert batches == [(5, 9, 2, 1), (12, 12, 0, 3)]
        summary = each.result(each.states.read_summary(key, 0))
        assert (summary.error_code, summary.start_offset, summary.state_epoch) == (0, 5, 1)
    assert node.result(node.states.delete(key)) is ErrorCode.NONE
    assert node.result(node.states.read(key, 0)).error_code == ErrorCode.INVALID_REQUEST

"""`group.coordinator.rebalance.protocols` without `consumer`: the consumer protocol is refused."""

from __future__ import annotations

import pytest
from harness.restricted_node import RestrictedNode

from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize(
    ("protocols", "user", "expected"),
    [
        ("classic", "root", ErrorCode.UNSUPPORTED_VERSION),
        ("classic,streams", "ann", ErrorCode.UNSUPPORTED_VERSION),
        ("classic,consumer", "ann", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_the_consumer_protocol_is_refused_before_anything_else(protocols: str, user: str, expected: ErrorCode) -> None:
    node = RestrictedNode(**{"group.coordinator.rebalance.protocols": protocols})
    node.start()
    beat = node.completed(
        node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest("g", "m", 0), 1, user)
    )
    described = node.completed(node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(["g"]), 1, user))
    assert beat.error_code == expected
    assert [(group.error_code, group.group_id) for group in described.groups] == [(expected, "g")]

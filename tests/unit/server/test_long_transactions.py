"""Requests and chores of the transaction coordinator that are long are handled in turns of the loop."""

from __future__ import annotations

from typing import Any

from coordinator_node import CoordinatorNode
from operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.coordinator.transaction import initializing
from moldau.coordinator.transaction.transactions import EXPIRED_A_TURN
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.schema import Message

LINES_A_TURN = 80_000
"""A turn of 20 ms executes some 200,000 lines."""
IDS = 4_000
EIGHT_DAYS_MS = 8 * 24 * 3_600_000
"""More than `transactional.id.expiration.ms`."""


def coordinator_of(node: CoordinatorNode) -> TransactionCoordinator:
    broker = node.in_memory.assembly.broker_side
    assert broker is not None
    return broker.transactions


def begin(node: CoordinatorNode, api: ApiKey, request: Message, version: int) -> Any:
    return node._handlers[api].answer(request, Caller("PLAINTEXT", "test:1", "test", version))


def fill(node: CoordinatorNode) -> None:
    """Let the coordinator have many transactional ids that are not used."""
    shards, now_ms = coordinator_of(node).shards, node.in_memory.clock.now_ms()
    for number in range(IDS):
        each = f"id-{number}"
        shards.machine_of(each).transactions[each] = initializing.create(each, number, 60_000, now_ms)


def test_transactional_ids_expire_in_turns() -> None:
    node = CoordinatorNode()
    fill(node)
    coordinator = coordinator_of(node)
    node.in_memory.clock.move(EIGHT_DAYS_MS)
    turns = [operations_of(coordinator.expire)]
    assert operations_of(coordinator.expire) < 20, "a second expiration does not begin before the first has ended"
    reply = begin(node, ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(f"id-{IDS - 1}", 60_000), 5)
    while not coordinator._expiration.done:
        turns.append(operations_of(node.in_memory.timers.run_one_soon))
    assert max(turns) < LINES_A_TURN
    assert len(turns) > IDS // EXPIRED_A_TURN
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.NONE
    left = [each for machine in coordinator.shards.machines() for each in machine.transactions]
    assert left == [f"id-{IDS - 1}"], "it was used meanwhile"

"""AlterPartitionReassignments v0–1 (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.reassignments import decide_alter_reassignments
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction, Lazy, joined, partition_count
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


class AlterPartitionReassignments(ForwardedHandler):
    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    versions = (0, 1)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def decide(
        deciders: Deciders, request: AlterPartitionReassignmentsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.admin.submit(
            lambda image: decide_alter_reassignments(image, request, deciders.admin.layers(image))
        )

    def refuse(
        self, request: AlterPartitionReassignmentsRequest, error: KafkaError
    ) -> Steps[AlterPartitionReassignmentsResponse]:
        turn = TurnItems(LISTED_A_TURN)
        topics: list[ReassignableTopicResponse] = []
        for topic in request.topics:
            partitions = yield from map_in_steps(
                turn,
                topic.partitions,
                lambda each: ReassignablePartitionResponse(each.partition_index, error.code, error.message),
            )
            topics.append(ReassignableTopicResponse(topic.name, partitions))
            if turn.ends_after(1):
                yield
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, responses=topics)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        """The response has the partitions in the order of the request."""
        if response.error_code:
            yield AdminAction("cluster:", response.error_code, f"partitions={partition_count(request.topics)}")
        for requested, topic in zip(request.topics, response.responses, strict=False):
            for wanted, each in zip(requested.partitions, topic.partitions, strict=False):
                detail = "cancel" if wanted.replicas is None else Lazy(partial(_replicas, wanted))
                yield AdminAction(f"partition:{topic.name}-{each.partition_index}", each.error_code, detail)


def _replicas(partition: Any) -> str:
    return f"replicas={joined(partition.replicas)}"

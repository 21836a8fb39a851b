"""ListPartitionReassignments v0 (KIP-455)."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.reassignments import decide_list_reassignments
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.security.principals import Client
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class ListPartitionReassignments(ForwardedHandler):
    api = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = (0, 0)
    needs = (CLUSTER_DESCRIBE,)

    @staticmethod
    def decide(
        deciders: Deciders, request: ListPartitionReassignmentsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_list_reassignments(image, request))

    def refuse(
        self, request: ListPartitionReassignmentsRequest, error: KafkaError
    ) -> Steps[ListPartitionReassignmentsResponse]:
        turn = TurnItems(LISTED_A_TURN)
        topics: list[OngoingTopicReassignment] = []
        for topic in request.topics or ():
            partitions = yield from map_in_steps(turn, topic.partition_indexes, OngoingPartitionReassignment)
            topics.append(OngoingTopicReassignment(topic.name, partitions))
            if turn.ends_after(1):
                yield
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=topics)

"""ElectLeaders v0–2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.elections import decide_elect_leaders
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class ElectLeaders(ForwardedHandler):
    api = ApiKey.ELECT_LEADERS
    versions = (0, 2)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def decide(deciders: Deciders, request: ElectLeadersRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_elect_leaders(image, request))

    def refuse(self, request: ElectLeadersRequest, error: KafkaError) -> Steps[ElectLeadersResponse]:
        turn = TurnItems(LISTED_A_TURN)
        results: list[ReplicaElectionResult] = []
        for each in request.topic_partitions or ():
            partitions = yield from map_in_steps(
                turn, each.partitions, lambda index: PartitionResult(index, error.code, error.message)
            )
            results.append(ReplicaElectionResult(each.topic, partitions))
            if turn.ends_after(1):
                yield
        return ElectLeadersResponse(error_code=error.code, replica_election_results=results)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        kind = "unclean" if request.election_type else "preferred"
        if response.error_code:
            yield AdminAction("cluster:", response.error_code, kind)
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                yield AdminAction(f"partition:{topic.topic}-{each.partition_id}", each.error_code, kind)

"""CreatePartitions v0–3."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps, no_steps
from moldau.base.turns import ITEMS_A_TURN, LISTED_A_TURN
from moldau.metadata.controller.topics import decide_create_partitions
from moldau.security.acls.access import Access
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import TOPIC_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.authorized_requests.authorized import (
    Authorized,
    duplicates,
    split,
    unchanged,
)
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


class CreatePartitions(ForwardedHandler):
    api = ApiKey.CREATE_PARTITIONS
    versions = (0, 3)
    needs = (TOPIC_ALTER,)
    mutation_error_from = 3

    def authorize(self, request: CreatePartitionsRequest, access: Access) -> Steps[Authorized]:
        turn = TurnItems(ITEMS_A_TURN)
        unchecked = duplicates(map(attrgetter("name"), request.topics))
        allowed, rest = yield from split(
            turn, request.topics, lambda topic: topic.name in unchecked or access.allows(TOPIC_ALTER, topic.name)
        )
        if not rest:
            return Authorized(request, unchanged)
        code = denied(TOPIC_ALTER).code
        denials = yield from map_in_steps(turn, rest, lambda topic: CreatePartitionsTopicResult(topic.name, code, None))
        return Authorized(
            CreatePartitionsRequest(allowed, request.timeout_ms, request.validate_only) if allowed else None,
            lambda response: no_steps(
                CreatePartitionsResponse(response.throttle_time_ms, [*response.results, *denials])
            ),
        )

    @staticmethod
    def decide(
        deciders: Deciders, request: CreatePartitionsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        admin = deciders.admin
        return admin.submit_mutation(
            lambda image, charge: decide_create_partitions(image, request, admin.rng, charge),
            client,
            knows_error=version >= CreatePartitions.mutation_error_from,
        )

    def refuse(self, request: CreatePartitionsRequest, error: KafkaError) -> Steps[CreatePartitionsResponse]:
        results = yield from map_in_steps(
            TurnItems(LISTED_A_TURN),
            request.topics,
            lambda topic: CreatePartitionsTopicResult(topic.name, error.code, error.message),
        )
        return CreatePartitionsResponse(results=results)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        counts = {topic.name: topic.count for topic in request.topics}
        for result in response.results:
            yield AdminAction(f"topic:{result.name}", result.error_code, f"partitions={counts.get(result.name)}")

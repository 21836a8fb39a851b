"""CreateTopics v2–7."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.limits import TOPIC_NAME_LENGTH_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, WaitingSteps, map_in_steps
from moldau.base.topic_names import METADATA_TOPIC
from moldau.base.turns import ITEMS_A_TURN, LISTED_A_TURN
from moldau.base.view_configs import VIEW_FROM
from moldau.metadata.controller.topics import decide_create_topics
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_CREATE, TOPIC_CREATE, TOPIC_DESCRIBE_CONFIGS, TOPIC_READ
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.authorized_requests.authorized import (
    Authorized,
    duplicates,
    split,
    unchanged,
)
from moldau.server.handlers.authorized_requests.views import refusing_views
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_NAME: Final = attrgetter("name")


class CreateTopics(ForwardedHandler):
    api = ApiKey.CREATE_TOPICS
    versions = (2, 7)
    needs = (CLUSTER_CREATE, TOPIC_CREATE, TOPIC_DESCRIBE_CONFIGS)
    mutation_error_from = 6

    def __init__(self, forward: AskController, timers: Timers, missing_for_views: Callable[[], str | None]) -> None:
        super().__init__(forward, timers)
        self._authorize = refusing_views(authorize_create_topics, missing_for_views)

    def authorize(self, request: CreateTopicsRequest, access: Access) -> WaitingSteps[Authorized]:
        return self._authorize(request, access)

    @staticmethod
    def decide(deciders: Deciders, request: CreateTopicsRequest, version: int, client: Client | None) -> Promise[Any]:
        admin = deciders.admin
        return admin.submit_mutation(
            lambda image, charge: decide_create_topics(image, request, admin.topic_rules(image), admin.rng, charge),
            client,
            knows_error=version >= CreateTopics.mutation_error_from,
        )

    def refuse(self, request: CreateTopicsRequest, error: KafkaError) -> Steps[CreateTopicsResponse]:
        topics = yield from map_in_steps(
            TurnItems(LISTED_A_TURN),
            request.topics,
            lambda topic: CreatableTopicResult(
                name=topic.name,
                error_code=error.code,
                error_message=error.message,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            ),
        )
        return CreateTopicsResponse(topics=topics)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        """Responses before version 5 do not have the numbers; requests have -1 for the defaults."""
        requested = {topic.name: topic for topic in request.topics}
        for result in response.topics:
            topic = requested.get(result.name)
            source = None if topic is None else _view_source(topic)
            counted = result if result.num_partitions >= 0 else topic or result
            detail = f"partitions={counted.num_partitions} replicas={counted.replication_factor}"
            if result.error_code:
                detail = ""
            if source:
                detail = f"view of {source[:TOPIC_NAME_LENGTH_MAX]} {detail}".rstrip()
            yield AdminAction(f"topic:{result.name}", result.error_code, detail)


def authorize_create_topics(request: CreateTopicsRequest, access: Access) -> Steps[Authorized]:
    """Without DESCRIBE_CONFIGS a topic is created, but the response does not tell its configs. Who creates a view must
    be allowed to read its source: whoever may read the view needs no right on the source."""
    turn = TurnItems(ITEMS_A_TURN)
    # The controller refuses these. It must see all topics of one name, else it would create the one that is left.
    unchecked = {METADATA_TOPIC, *duplicates(map(_NAME, request.topics))}
    may_create_all = access.allows_quietly(CLUSTER_CREATE)
    allowed, rest = yield from split(
        turn,
        request.topics,
        lambda topic: (
            topic.name in unchecked
            or ((may_create_all or access.allows(TOPIC_CREATE, topic.name)) and _may_read_source(topic, access))
        ),
    )
    _, hidden = yield from split(turn, allowed, lambda topic: access.allows_quietly(TOPIC_DESCRIBE_CONFIGS, topic.name))
    undescribed = set(map(_NAME, hidden))
    if not rest and not undescribed:
        return Authorized(request, unchanged)
    denials = yield from map_in_steps(turn, rest, _denied_topic)

    def with_refused(response: CreateTopicsResponse) -> Steps[CreateTopicsResponse]:
        results = yield from map_in_steps(
            TurnItems(ITEMS_A_TURN),
            response.topics,
            lambda result: _without_configs(result) if result.name in undescribed and not result.error_code else result,
        )
        return CreateTopicsResponse(response.throttle_time_ms, [*results, *denials])

    if not rest:
        return Authorized(request, with_refused)
    return Authorized(
        CreateTopicsRequest(allowed, request.timeout_ms, request.validate_only) if allowed else None, with_refused
    )


def _denied_topic(topic: CreatableTopic) -> CreatableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return CreatableTopicResult(topic.name, ZERO_UUID, code, "Authorization failed.")


def _may_read_source(topic: CreatableTopic, access: Access) -> bool:
    if not topic.configs:
        return True
    sources = [config.value for config in topic.configs if config.name == VIEW_FROM]
    return all(access.allows(TOPIC_READ, source) for source in sources if source)


def _without_configs(result: CreatableTopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        result.name,
        result.topic_id,
        error_message=result.error_message,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _view_source(topic: Any) -> str | None:
    """Return the source of a view, None for other topics. Its readers see what is in the source."""
    if not topic.configs:
        return None
    return next((config.value for config in topic.configs if config.name == VIEW_FROM), None)

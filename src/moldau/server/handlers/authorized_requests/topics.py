"""Authorization of CreateTopics, CreatePartitions and DeleteTopics.

A topic that does not exist and one that the client may not see get the same error, if they are named. Ids of topics are
no secret: an unknown id gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from operator import attrgetter
from random import Random
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.steps import Steps, TurnItems, map_in_steps, no_steps
from moldau.base.topic_names import METADATA_TOPIC
from moldau.base.turns import ITEMS_A_TURN
from moldau.base.view_configs import VIEW_FROM
from moldau.metadata.image import MetadataImage
from moldau.security.acls.access import Access
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import (
    CLUSTER_CREATE,
    CLUSTER_DELETE,
    TOPIC_ALTER,
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_DESCRIBE_CONFIGS,
    TOPIC_READ,
)
from moldau.server.handlers.authorized_requests.authorized import Authorized, duplicates, split, unchanged
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_NAME: Final = attrgetter("name")


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


def authorize_create_partitions(request: CreatePartitionsRequest, access: Access) -> Steps[Authorized]:
    turn = TurnItems(ITEMS_A_TURN)
    unchecked = duplicates(map(_NAME, request.topics))
    allowed, rest = yield from split(
        turn, request.topics, lambda topic: topic.name in unchecked or access.allows(TOPIC_ALTER, topic.name)
    )
    if not rest:
        return Authorized(request, unchanged)
    code = denied(TOPIC_ALTER).code
    denials = yield from map_in_steps(turn, rest, lambda topic: CreatePartitionsTopicResult(topic.name, code, None))
    return Authorized(
        CreatePartitionsRequest(allowed, request.timeout_ms, request.validate_only) if allowed else None,
        lambda response: no_steps(CreatePartitionsResponse(response.throttle_time_ms, [*response.results, *denials])),
    )


def authorize_delete_topics(
    request: DeleteTopicsRequest, access: Access, image: MetadataImage, rng: Random
) -> Steps[Authorized]:
    """Whatever is not surely allowed by this node's image is not sent to the controller, whose image may be newer.

    If something was denied, the results are shuffled: their positions must not tell which topics exist.
    """
    if access.allows_quietly(CLUSTER_DELETE):
        return Authorized(request, unchanged)
    turn = TurnItems(ITEMS_A_TURN)
    topics = request.topics or (yield from map_in_steps(turn, request.topic_names, DeleteTopicState))
    unchecked = duplicates(map(attrgetter("name", "topic_id"), topics))

    def denial(topic: DeleteTopicState) -> DeletableTopicResult | None:
        is_invalid = (topic.name is None) == (topic.topic_id == ZERO_UUID)
        if is_invalid or (topic.name, topic.topic_id) in unchecked:
            return None  # the controller refuses it
        return _denial_of_deletion(topic, access, image)

    results = yield from map_in_steps(turn, topics, denial)
    denials = [each for each in results if each is not None]
    if not denials:
        return Authorized(request, unchanged)
    allowed = [topic for topic, result in zip(topics, results, strict=True) if result is None]

    def with_refused(response: DeleteTopicsResponse) -> Steps[DeleteTopicsResponse]:
        shuffled = sorted([*response.responses, *denials], key=lambda _: rng.random())
        return no_steps(DeleteTopicsResponse(response.throttle_time_ms, shuffled))

    if not allowed:
        return Authorized(None, with_refused)
    names = [] if request.topics else [topic.name for topic in allowed if topic.name is not None]
    return Authorized(DeleteTopicsRequest(allowed if request.topics else [], names, request.timeout_ms), with_refused)


def _denial_of_deletion(topic: DeleteTopicState, access: Access, image: MetadataImage) -> DeletableTopicResult | None:
    """Return the result for a topic that the client may not delete; None if it may."""
    name = topic.name if topic.name is not None else image.topic_names.get(topic.topic_id)
    if name is None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return DeletableTopicResult(None, topic.topic_id, error.code, error.message)
    is_described = access.allows(TOPIC_DESCRIBE, name)
    if access.allows(TOPIC_DELETE, name) and (is_described or topic.name is None):
        return None
    error = denied(TOPIC_DELETE)
    if topic.name is None:
        return DeletableTopicResult(name if is_described else None, topic.topic_id, error.code, error.message)
    if is_described and name not in image.topics:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return DeletableTopicResult(name, ZERO_UUID, error.code, error.message)

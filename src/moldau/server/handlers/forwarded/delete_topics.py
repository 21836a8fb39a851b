"""DeleteTopics v1–6, by id from v6 on."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from random import Random
from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps, no_steps
from moldau.base.turns import ITEMS_A_TURN, LISTED_A_TURN
from moldau.metadata.controller.topics import decide_delete_topics
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.access import Access
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DELETE, TOPIC_DELETE, TOPIC_DESCRIBE
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.authorized_requests.authorized import Authorized, duplicates, unchanged
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


class DeleteTopics(ForwardedHandler):
    api = ApiKey.DELETE_TOPICS
    versions = (1, 6)
    needs = (CLUSTER_DELETE, TOPIC_DESCRIBE, TOPIC_DELETE)
    mutation_error_from = 5

    def __init__(self, forward: AskController, timers: Timers, current: CurrentImage, rng: Random) -> None:
        super().__init__(forward, timers)
        self._current = current
        self._rng = rng

    def authorize(self, request: DeleteTopicsRequest, access: Access) -> Steps[Authorized]:
        return authorize_delete_topics(request, access, self._current.image, self._rng)

    @staticmethod
    def decide(deciders: Deciders, request: DeleteTopicsRequest, version: int, client: Client | None) -> Promise[Any]:
        admin = deciders.admin
        return admin.submit_mutation(
            lambda image, charge: decide_delete_topics(image, request, admin.topic_rules(image), charge),
            client,
            knows_error=version >= DeleteTopics.mutation_error_from,
        )

    def refuse(self, request: DeleteTopicsRequest, error: KafkaError) -> Steps[DeleteTopicsResponse]:
        turn = TurnItems(LISTED_A_TURN)
        by_name = yield from map_in_steps(
            turn, request.topic_names, lambda name: DeletableTopicResult(name, error_code=error.code)
        )
        by_name_or_id = yield from map_in_steps(
            turn,
            request.topics,
            lambda topic: DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message),
        )
        return DeleteTopicsResponse(responses=by_name_or_id or by_name)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        for result in response.responses:
            name = result.name if result.name is not None else f"id-{result.topic_id.hex()}"
            yield AdminAction(f"topic:{name}", result.error_code)


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

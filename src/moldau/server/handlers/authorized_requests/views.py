"""Refuses views on a broker that could not evaluate them: else only their readers would learn it, from an error."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.steps import Steps, TurnItems, WaitingSteps, map_in_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.base.view_configs import VIEW_FROM
from moldau.security.acls.access import Access
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized, duplicates, split
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def refusing_views(authorize: Authorize, missing: Callable[[], str | None]) -> Authorize:
    """`missing` says in one sentence what this broker needs for views; None if it has it."""

    def authorize_and_refuse(request: CreateTopicsRequest, access: Access) -> WaitingSteps[Authorized]:
        authorized = yield from authorize(request, access)
        if not isinstance(authorized.request, CreateTopicsRequest):
            return authorized
        turn = TurnItems(ITEMS_A_TURN)
        # The controller refuses topics of one name, but only if it sees all of them.
        repeated = duplicates(topic.name for topic in authorized.request.topics)
        topics, views = yield from split(
            turn, authorized.request.topics, lambda topic: topic.name in repeated or not _is_view(topic)
        )
        what = missing() if views else None
        if what is None:
            return authorized
        refused = yield from map_in_steps(
            turn, views, lambda view: CreatableTopicResult(view.name, ZERO_UUID, ErrorCode.POLICY_VIOLATION, what)
        )

        def with_refused(response: CreateTopicsResponse) -> Steps[CreateTopicsResponse]:
            others = yield from authorized.with_refused(response)
            assert isinstance(others, CreateTopicsResponse), "it returns what it was given"
            return CreateTopicsResponse(others.throttle_time_ms, [*others.topics, *refused])

        rest = CreateTopicsRequest(topics, request.timeout_ms, request.validate_only) if topics else None
        return Authorized(rest, with_refused)

    return authorize_and_refuse


def _is_view(topic: CreatableTopic) -> bool:
    return any(config.name == VIEW_FROM and config.value for config in topic.configs)

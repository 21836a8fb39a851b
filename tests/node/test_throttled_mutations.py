"""The quota controller_mutation_rate on a node: what counts, errors and throttle times, and the paused connection."""

from __future__ import annotations

from typing import Any

import pytest
from harness.restricted_node import RestrictedNode

from moldau.base.errors import ErrorCode
from moldau.security.principals import ANONYMOUS
from moldau.server.handler import Caller, Handler
from moldau.server.router import Router
from moldau.wire.apis import ApiKey
from moldau.wire.codec import Outgoing
from moldau.wire.frames import request_frame
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OK, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
def node() -> RestrictedNode:
    """A node on which root may create one partition per second, and up to eleven at once."""
    started = RestrictedNode()
    started.start()
    limit = RequestEntryData([RequestEntityData("user", "root")], [OpData("controller_mutation_rate", 1.0)])
    assert not as_root(started, ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest([limit]), 1).entries[0].error_code
    return started


def as_root(node: RestrictedNode, api: ApiKey, request: Any, version: int) -> Any:
    return node.completed(node.ask(api, request, version, "root"))


def create(node: RestrictedNode, version: int, **partitions: int) -> Any:
    topics = [CreatableTopic(name, count, 1) for name, count in partitions.items()]
    return as_root(node, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics), version)


def test_only_the_topics_above_the_quota_are_refused(node: RestrictedNode) -> None:
    response = create(node, 7, first=13, second=1)
    assert [(each.name, each.error_code) for each in response.topics] == [("first", OK), ("second", EXCEEDED)]
    assert response.throttle_time_ms == 2000
    assert node.assembly.current.image.topics.get("second") is None


def test_an_old_version_is_served_with_a_throttle_time(node: RestrictedNode) -> None:
    assert create(node, 5, first=13).throttle_time_ms == 2000
    response = create(node, 5, second=1)
    assert response.topics[0].error_code == OK
    assert response.throttle_time_ms == 3000


def test_deletions_and_new_partitions_count_against_the_quota(node: RestrictedNode) -> None:
    create(node, 7, first=4)
    grow = CreatePartitionsRequest([CreatePartitionsTopic("first", 9, None)])
    assert as_root(node, ApiKey.CREATE_PARTITIONS, grow, 3).results[0].error_code == OK
    delete = DeleteTopicsRequest(topic_names=["first"])
    response = as_root(node, ApiKey.DELETE_TOPICS, delete, 5)
    assert response.responses[0].error_code == OK, (
        "nine of the eleven tokens were used, and one request may exceed the rest"
    )
    again = create(node, 7, other=1)
    assert again.topics[0].error_code == EXCEEDED
    assert again.throttle_time_ms == (4 + 5 + 9 - 11) * 1000


def test_auto_created_topics_count_against_the_quota(node: RestrictedNode) -> None:
    create(node, 7, first=20)
    wanted = MetadataRequest([MetadataRequestTopic(name="wanted")], allow_auto_topic_creation=True)
    response = as_root(node, ApiKey.METADATA, wanted, 12)
    assert response.topics[0].error_code == EXCEEDED


def test_the_connection_is_paused_for_the_throttle_time_of_the_response() -> None:
    class Creating(Handler):
        api = ApiKey.CREATE_TOPICS
        versions = (2, 7)
        mutation_error_from = 6

        def answer(self, request: CreateTopicsRequest, caller: Caller) -> CreateTopicsResponse:
            assert caller.client == (ANONYMOUS, "app")
            return CreateTopicsResponse(throttle_time_ms=700)

    router = Router()
    router.serve([Creating()])
    frame = request_frame(ApiKey.CREATE_TOPICS, 7, 1, "app", CreateTopicsRequest())
    reply = router.answer("PLAINTEXT", "10.0.0.1:5", Caller("", "", "", 0).access, memoryview(bytes(frame[4:])))
    assert isinstance(reply, Outgoing)
    assert reply.pause_ms == 700

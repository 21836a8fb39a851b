"""Finding and creating views for pushed-down reads: the requests to a broker, and the errors for its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import Cluster
from moldau.spark.positions import RETRIABLE_EXCEPT_MISSING
from moldau.spark.pushed import making
from moldau.spark.pushed.making import check, find_or_make
from moldau.spark.pushed.shape import Shape
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BIG = Shape("amount > 100")
NAME = BIG.view_name("orders")
MADE = {"moldau.view.from": "orders", "moldau.view.where": "amount > 100"}


class FakeBroker:
    """The topics of a broker, by name, with their configs and partitions; views without a source have none."""

    bootstrap = "here:9092"
    refusal: tuple[ErrorCode, str] | None = None
    """The error of every creation."""
    hidden: tuple[str, ...] = ()
    """Topics that the user may not see."""
    unreadable: tuple[str, ...] = ()
    """Topics whose configs the user may see, and nothing else."""
    knows_views = True

    def __init__(self, *stored: str) -> None:
        self.topics: dict[str, tuple[dict[str, str], int]] = {name: ({}, 2) for name in stored}
        self.ids: dict[str, bytes] = {}
        self.made = 0
        self.asked: list[str] = []
        self.before_creation: Callable[[], None] = lambda: None

    def add(self, name: str, configs: dict[str, str], partitions: int = 2) -> None:
        self.made += 1
        self.topics[name] = configs, partitions
        self.ids[name] = self.made.to_bytes(16, "big")

    def retry(self, action: Callable[[], Any], timeout_ms: float) -> Any:
        return action()

    def ask_any(self, key: object, request: Any, response_type: object) -> Any:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse(results=[self._described(each.resource_name) for each in request.resources])
        if isinstance(request, MetadataRequest):
            names = self.topics if request.topics is None else [topic.name or "" for topic in request.topics]
            return MetadataResponse(topics=[self._metadata(name) for name in names])
        if isinstance(request, CreateTopicsRequest):
            if not request.validate_only:
                self.before_creation()
            return CreateTopicsResponse(topics=[self._created(each, request.validate_only) for each in request.topics])
        assert isinstance(request, DeleteTopicsRequest)
        for topic in request.topics:
            for name in [name for name, topic_id in self.ids.items() if topic_id == topic.topic_id]:
                del self.topics[name], self.ids[name]
        return DeleteTopicsResponse(responses=[DeletableTopicResult("x") for _ in request.topics])

    def _described(self, name: str) -> DescribeConfigsResult:
        if name in self.hidden:
            return DescribeConfigsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", 2, name)
        if name not in self.topics:
            return DescribeConfigsResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", 2, name)
        configs = [DescribeConfigsResourceResult(key, value) for key, value in self.topics[name][0].items()]
        return DescribeConfigsResult(0, "", 2, name, configs)

    def _metadata(self, name: str) -> MetadataResponseTopic:
        if name in self.unreadable:
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        if name not in self.topics:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [MetadataResponsePartition(0, index, 1) for index in range(self.topics[name][1])]
        return MetadataResponseTopic(0, name, self.ids.get(name, bytes(16)), partitions=partitions)

    def _created(self, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        configs = {each.name: each.value or "" for each in topic.configs}
        if self.refusal is not None:
            return CreatableTopicResult(topic.name, error_code=self.refusal[0], error_message=self.refusal[1])
        if topic.name in self.topics:
            return CreatableTopicResult(topic.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        if not self.knows_views:
            configs = {}
        elif configs["moldau.view.from"] not in self.topics:
            return CreatableTopicResult(topic.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not validate_only:
            self.add(topic.name, configs)
        returned = [CreatableTopicConfigs(key, value) for key, value in configs.items()]
        return CreatableTopicResult(topic.name, self.ids.get(topic.name, bytes(16)), configs=returned)


def find_views(broker: FakeBroker, *sources: str, shape: Shape = BIG) -> dict[str, str]:
    views = find_or_make(cast(Cluster, broker), sources, shape, "spark for ann")
    assert all(broker.ids[view.name] == view.topic_id for view in views.values())
    return {source: view.name for source, view in views.items()}


def check_views(broker: FakeBroker, *sources: str) -> list[str]:
    return check(cast(Cluster, broker), sources, BIG)


def test_a_view_is_created_with_made_by_and_found_again() -> None:
    broker = FakeBroker("orders")
    assert find_views(broker, "orders") == {"orders": NAME}
    assert broker.topics[NAME][0] == {**MADE, "moldau.view.made.by": "spark for ann"}
    broker.asked.clear()
    assert find_views(broker, "orders") == {"orders": NAME}
    assert broker.asked == ["DescribeConfigs", "Metadata"]
    assert broker.made == 1


def test_every_existing_topic_gets_its_view() -> None:
    broker = FakeBroker("orders", "payments")
    assert find_views(broker, "orders", "payments", "nothing") == {
        "orders": NAME,
        "payments": BIG.view_name("payments"),
    }


def test_an_equal_view_with_another_name_is_used() -> None:
    broker = FakeBroker("orders")
    broker.add("big-ids", {**MADE, "moldau.view.select": "id"})
    broker.add("lost", MADE, partitions=0)
    broker.add("of-payments", {**MADE, "moldau.view.from": "payments"})
    broker.add("very-big", {**MADE, "moldau.view.where": "amount >  100"})
    assert find_views(broker, "orders") == {"orders": "very-big"}
    assert "CreateTopics" not in broker.asked


def test_too_many_topics_are_not_searched_for_an_equal_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "SEARCHED_TOPICS_MAX", 1)
    broker = FakeBroker("orders")
    broker.add("big", MADE)
    assert find_views(broker, "orders") == {"orders": NAME}


def test_many_topics_are_described_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "TOPICS_PER_REQUEST", 2)
    broker = FakeBroker("orders", "a", "b", "c")
    broker.add("big", MADE)
    assert find_views(broker, "orders") == {"orders": "big"}


def test_a_view_whose_source_was_deleted_is_recreated() -> None:
    broker = FakeBroker("orders")
    broker.add(NAME, {**MADE, "moldau.view.made.by": "spark"}, partitions=0)
    assert check_views(broker, "orders") == []
    assert broker.made == 1
    assert find_views(broker, "orders") == {"orders": NAME}
    assert broker.made == 2


def test_a_view_that_an_administrator_created_is_not_deleted() -> None:
    broker = FakeBroker("orders")
    broker.add(NAME, MADE, partitions=0)
    for ask in (find_views, check_views):
        with pytest.raises(KafkaError, match=f"`moldau view delete {NAME}` deletes it; then `moldau view create"):
            ask(broker, "orders")
    assert broker.made == 1


@pytest.mark.parametrize("configs", [{}, {**MADE, "moldau.view.where": "amount > 7"}])
def test_a_view_name_taken_by_another_topic_or_view_is_an_error(configs: dict[str, str]) -> None:
    broker = FakeBroker("orders")
    broker.add(NAME, configs)
    for ask in (find_views, check_views):
        with pytest.raises(KafkaError, match="is no view of orders with this where and fields"):
            ask(broker, "orders")


def test_a_view_created_by_another_client_at_the_same_moment_is_used() -> None:
    broker = FakeBroker("orders")
    broker.before_creation = lambda: broker.add(NAME, MADE)
    assert find_views(broker, "orders") == {"orders": NAME}
    assert broker.made == 1


def test_a_view_that_the_broker_does_not_show_yet_is_a_retriable_error() -> None:
    broker = FakeBroker("orders")
    broker.refusal = ErrorCode.TOPIC_ALREADY_EXISTS, "Topic already exists."
    with pytest.raises(KafkaError, match="does not show them yet") as raised:
        find_views(broker, "orders")
    assert raised.value.code in RETRIABLE_EXCEPT_MISSING


def test_check_creates_nothing() -> None:
    broker = FakeBroker("orders")
    assert check_views(broker, "orders", "nothing") == ["nothing"]
    assert broker.made == 0


@pytest.mark.parametrize("ask", [find_views, check_views])
@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((ErrorCode.INVALID_CONFIG, "moldau.view.where: something is missing."), "^where: something is missing$"),
        ((ErrorCode.INVALID_CONFIG, "moldau.view.select: no."), "^fields: no$"),
        ((ErrorCode.INVALID_CONFIG, "moldau.view.from: 'orders' is a view."), "orders cannot be read with where or fi"),
        ((ErrorCode.POLICY_VIOLATION, "There are 1000 views already."), "There are 1000 views already$"),
        (
            (ErrorCode.INVALID_CONFIG, "Unknown topic config name: moldau.view.made.by"),
            "here:9092 is not Moldau and has",
        ),
        ((ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), f"`moldau acl allow USER read,describe-configs --topic {NAME}`"),
        ((ErrorCode.NOT_CONTROLLER, "not here"), "not here"),
    ],
)
def test_a_refused_creation_is_reported(ask: Callable[..., Any], refusal: tuple[ErrorCode, str], message: str) -> None:
    broker = FakeBroker("orders")
    broker.refusal = refusal
    with pytest.raises(KafkaError, match=message):
        ask(broker, "orders")
    assert broker.made == 0


@pytest.mark.parametrize("ask", [find_views, check_views])
def test_no_topic_is_created_on_a_broker_that_ignores_unknown_configs(ask: Callable[..., Any]) -> None:
    """It would create a stored topic without records, and every read would be empty."""
    broker = FakeBroker("orders")
    broker.knows_views = False
    with pytest.raises(KafkaError, match="is not Moldau and has no views"):
        ask(broker, "orders")
    assert broker.made == 0


@pytest.mark.parametrize("ask", [find_views, check_views])
def test_the_error_for_a_user_without_rights_has_the_administrators_command(ask: Callable[..., Any]) -> None:
    broker = FakeBroker("orders")
    broker.hidden = (NAME,)
    with pytest.raises(KafkaError, match="An administrator can: `moldau view create") as raised:
        ask(broker, "orders")
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.add("for-ann", MADE)
    assert ask(broker, "orders") in ({"orders": "for-ann"}, []), "an equal view that the user may see"


@pytest.mark.parametrize("ask", [find_views, check_views])
def test_a_view_that_the_user_could_not_read_is_not_created(ask: Callable[..., Any]) -> None:
    broker = FakeBroker("orders")
    broker.unreadable = (NAME,)
    with pytest.raises(KafkaError, match="An administrator can"):
        ask(broker, "orders")
    assert broker.made == 0


def test_an_unreadable_view_is_not_mistaken_for_one_without_a_source() -> None:
    broker = FakeBroker("orders")
    broker.add(NAME, {**MADE, "moldau.view.made.by": "spark"})
    broker.unreadable = (NAME,)
    with pytest.raises(KafkaError, match="An administrator can"):
        find_views(broker, "orders")
    assert broker.made == 1
    assert NAME in broker.topics

"""Configs: their defaults, and plain text of Apache Kafka's HTML. The timeouts of changes of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.topics import (
    chosen_configs,
    create_topic,
    delete_topic,
    grow_topic,
    plain_text,
    topic_configs,
)
from moldau.client.cluster import LATEST, Cluster
from moldau.client.requests.configs import TOPIC, alter_configs
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("documentation", "text"),
    [
        (
            'The <a href="#compaction">log compaction</a> of <code>a &lt; b</code>.<br/>More',
            "The log compaction of a < b. More",
        ),
        ("a < b and b > c", "a < b and b > c"),
        ("keeps &amp; and <unfinished", "keeps & and <unfinished"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_html_is_removed_from_documentation(documentation: str, text: str) -> None:
    assert plain_text(documentation) == text


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: create_topic(admin, "t"),
        lambda admin: grow_topic(admin, "t", 2),
        lambda admin: delete_topic(admin, "t"),
    ],
)
@pytest.mark.parametrize("change_seconds", [None, 35.0])
def test_a_change_is_awaited_for_longer_than_the_broker_may_take(
    brokers: FakeBrokers, change: Callable[[ClusterAdmin], None], change_seconds: float | None
) -> None:
    """The retry of a change that was only slow would fail: the topic exists already, or no longer."""
    timeouts_ms: list[int] = []

    def note(_: int, request: Any) -> Any:
        timeouts_ms.append(request.timeout_ms)
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    for key in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS):
        brokers.handlers[key] = note
    admin = ClusterAdmin(Cluster("localhost:1", {}, timeout_seconds=10), 10_000, change_seconds)
    with pytest.raises(KafkaError):
        change(admin)
    assert brokers.waits_s == [change_seconds or 10]
    assert 1_000 <= timeouts_ms[0] < brokers.waits_s[0] * 1000


def test_offsets_are_not_awaited_for_longer_than_a_connection(brokers: FakeBrokers) -> None:
    """A leader that hangs must leave time to ask the next one."""
    brokers.topics["t"] = {0: 1}
    partition = TopicPartition("t", 0)
    ClusterAdmin(Cluster(BOOTSTRAP, {}), 10_000, change_seconds=35).each_offset({partition: LATEST})
    assert brokers.waits_s == []


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
@pytest.mark.usefixtures("no_waiting")
def test_the_next_leader_is_asked_for_an_offset_and_a_missing_partition_hides_no_other(
    brokers: FakeBrokers, refusal: ErrorCode
) -> None:
    brokers.topics["t"] = {0: 1}
    answers = [refusal, ErrorCode.NONE]

    def answer(_: int, request: Any) -> ListOffsetsResponse:
        found = ListOffsetsPartitionResponse(0, answers.pop(0), offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [found])])

    brokers.handlers[ApiKey.LIST_OFFSETS] = answer
    there, missing = TopicPartition("t", 0), TopicPartition("t", 1)
    found = ClusterAdmin(Cluster(BOOTSTRAP, {}), 10_000).each_offset({there: LATEST, missing: LATEST})
    assert found[there] == 7
    error = found[missing]
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_leaders_of_many_topics_are_looked_up_at_once(brokers: FakeBrokers) -> None:
    brokers.topics |= {f"t{number}": {0: 1} for number in range(100)}
    timestamps = {TopicPartition(name, 0): LATEST for name in brokers.topics}
    assert len(ClusterAdmin(Cluster(BOOTSTRAP, {}), 10_000).each_offset(timestamps)) == 100
    assert len(brokers.requests(ApiKey.METADATA)) == 1


class OneTopic(ClusterAdmin):
    def ask(self, key: Any, request: Any, response_type: Any, node_id: int | None = None) -> Any:
        synonyms = [
            DescribeConfigsSynonym("compression.type", value, source)
            for value, source in (("a", 1), ("b", 4), ("c", 5))
        ]
        entry = DescribeConfigsResourceResult("compression.type", "a", False, 1, False, synonyms)
        return DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 2, "orders", [entry])])


def test_the_default_is_the_next_of_several_synonyms_with_one_name() -> None:
    (config,) = topic_configs(OneTopic(Cluster("localhost:1", {}), 10_000), "orders")
    assert (config.value, config.default, config.source) == ("a", "b", "topic")


def authorized_first(resources: Any) -> list[tuple[str, int]]:
    """Names and errors in the order of Apache Kafka: what the user may not see comes last."""
    found = [(each.resource_name, REFUSED * (each.resource_name == "secret")) for each in resources]
    return sorted(found, key=lambda each: each[1])


def test_described_configs_are_matched_to_their_topics(brokers: FakeBrokers) -> None:
    brokers.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda _, request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(code, None, TOPIC, name, [DescribeConfigsResourceResult("of", name)])
            for name, code in authorized_first(request.resources)
        ]
    )
    found = chosen_configs(ClusterAdmin(Cluster(BOOTSTRAP, {}), 10_000), ["secret", "orders"], None)
    assert found["orders"] == {"of": "orders"}
    error = found["secret"]
    assert isinstance(error, KafkaError)
    assert error.code == REFUSED


def test_an_error_of_any_topic_whose_configs_are_changed_is_raised(brokers: FakeBrokers) -> None:
    brokers.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _, request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(code, None, TOPIC, name) for name, code in authorized_first(request.resources)
        ]
    )
    admin = ClusterAdmin(Cluster(BOOTSTRAP, {}), 10_000)
    alter_configs(admin.ask, {(TOPIC, "orders"): [("retention.ms", "1")]})
    with pytest.raises(KafkaError) as refused:
        alter_configs(admin.ask, {(TOPIC, name): [("retention.ms", "1")] for name in ("secret", "orders")})
    assert refused.value.code == REFUSED

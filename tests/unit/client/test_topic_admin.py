"""Configs: their defaults, and plain text of Apache Kafka's HTML. The timeouts of changes of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.topics import create_topic, delete_topic, grow_topic, plain_text, topic_configs
from moldau.client.cluster import Cluster
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


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


class RecordingAdmin(ClusterAdmin):
    def ask(self, key: Any, request: Any, response_type: Any, node_id: int | None = None) -> Any:
        self.timeout_ms: int = request.timeout_ms
        raise KeyError("the response does not matter")


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: create_topic(admin, "t"),
        lambda admin: grow_topic(admin, "t", 2),
        lambda admin: delete_topic(admin, "t"),
    ],
)
def test_the_timeout_of_the_broker_is_below_that_of_the_client(change: Callable[[ClusterAdmin], None]) -> None:
    """The retry of a change that was only slow would fail: the topic exists already, or no longer."""
    admin = RecordingAdmin(Cluster("localhost:1", {}, timeout_seconds=10), 10_000)
    with pytest.raises(KeyError):
        change(admin)
    assert 1_000 <= admin.timeout_ms < admin.cluster.timeout_ms


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

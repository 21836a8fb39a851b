"""`moldau topic` if some of its calls fail."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.cli.connect import Broker
from moldau.cli.main import main
from moldau.cli.topic import commands
from moldau.cli.topic.defaults import defaults_of
from moldau.client.confluent import KafkaError, KafkaException, TopicPartition
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

UNKNOWN_TOPIC = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def answers(values: Iterable[tuple[Any, Any]]) -> dict[Any, Future[Any]]:
    futures: dict[Any, Future[Any]] = {}
    for subject, value in values:
        futures[subject] = future = Future[Any]()
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
    return futures


class Admin:
    """A cluster whose topic `gone` and whose partitions 1 were deleted since the metadata were read."""

    def delete_topics(self, names: list[str]) -> dict[str, Future[Any]]:
        return answers((name, UNKNOWN_TOPIC if name == "gone" else None) for name in names)

    def list_offsets(self, requested: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        found = SimpleNamespace(offset=7)
        return answers((each, UNKNOWN_TOPIC if each.topic == "gone" else found) for each in requested)

    def delete_records(self, wanted: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
        done = SimpleNamespace(low_watermark=7)
        return answers((each, UNKNOWN_TOPIC if each.partition == 1 else done) for each in wanted)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    partition = SimpleNamespace(leader=1, replicas=[1], isrs=[1])
    topics = {
        name: SimpleNamespace(topic=name, partitions={0: partition, 1: partition}) for name in ("gone", "a", "orders")
    }
    monkeypatch.setattr(Broker, "metadata", lambda _: SimpleNamespace(topics=topics, brokers={}))
    monkeypatch.setattr(Broker, "admin", Admin())
    monkeypatch.setattr(commands, "topic_sizes", lambda *_: None)
    monkeypatch.setattr(commands, "views_of", lambda *_: {"a": ["big", "small"]})

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, ["topic", *words])

    return invoke


def test_other_topics_are_deleted_if_one_cannot_be(run: Any) -> None:
    result = run("delete", "gone", "a", "orders", "--yes")
    assert result.exit_code == 1
    deleted = "deleted a; views of it: big, small: they show nothing now"
    assert result.stdout.splitlines() == [deleted, "deleted orders"]
    assert result.stderr.startswith("moldau: gone: ")


def test_views_that_will_show_nothing_are_named_before_a_topic_is_deleted(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(commands, "confirm", lambda question, yes: asked.append(question))
    run("delete", "a", "orders")
    assert asked == ["Delete a, orders and all records in them? Views of a: big, small: they will show nothing."]


def test_other_partitions_are_trimmed_if_one_cannot_be(run: Any) -> None:
    result = run("trim", "orders", "--before", "end", "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "orders now begins at"
    assert result.stdout.splitlines()[-1].split() == ["0", "7"]
    assert result.stderr.startswith("moldau: orders partition 1: ")


def test_list_works_if_a_topic_is_deleted_meanwhile(run: Any) -> None:
    result = run("list")
    assert result.exit_code == 0, result.stderr
    offsets = {line.split()[0]: line.split()[3] for line in result.stdout.splitlines()[1:]}
    assert (offsets["a"], offsets["orders"]) == ("0", "0")
    assert offsets["gone"] != "0"


@pytest.mark.parametrize("words", [("create", "a", "-p"), ("alter", "a", "-p"), ("create", "a", "-r")])
def test_more_partitions_than_librdkafka_accepts_are_refused(run: Any, words: tuple[str, ...]) -> None:
    result = run(*words, "100001")
    assert result.exit_code == 1
    assert "100001 is not in the range" in result.stderr


def test_the_default_is_the_next_of_several_synonyms_with_one_name() -> None:
    synonyms = [
        DescribeConfigsSynonym("compression.type", value, source) for value, source in (("a", 1), ("b", 4), ("c", 5))
    ]
    entry = DescribeConfigsResourceResult("compression.type", "a", False, 1, False, synonyms)
    refused = DescribeConfigsResult(29, None, 2, "secret", [])
    response = DescribeConfigsResponse(0, [DescribeConfigsResult(0, None, 2, "orders", [entry]), refused])
    assert defaults_of(response) == {"orders": {"compression.type": "b"}}

"""`moldau topic` if some of its calls fail."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.connect import Broker
from moldau.cli.main import main
from moldau.cli.topic import commands
from moldau.client.admin.cluster_values import ClusterMetadata, PartitionReplicas, TopicReplicas
from moldau.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

UNKNOWN_TOPIC = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Admin:
    """A cluster whose topic `gone` and whose partitions 1 were deleted since the metadata were read."""

    change_ms = 10_000

    def ask_change(self, key: Any, request: Any, response_type: Any) -> DeleteTopicsResponse:
        responses = [
            DeletableTopicResult(name, error_code=UNKNOWN_TOPIC.code if name == "gone" else 0)
            for name in request.topic_names
        ]
        return DeleteTopicsResponse(responses=responses)

    def each_offset(self, timestamps: dict[TopicPartition, int], _: bool) -> dict[TopicPartition, int | KafkaError]:
        return {each: UNKNOWN_TOPIC if each.topic == "gone" else 7 for each in timestamps}

    def delete_records(self, before: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        return {each: UNKNOWN_TOPIC if each.partition == 1 else 7 for each in before}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    partition = PartitionReplicas(leader=1, replicas=(1,), isr=(1,))
    topics = {name: TopicReplicas(name, False, {0: partition, 1: partition}) for name in ("gone", "a", "orders")}
    monkeypatch.setattr(Broker, "metadata", lambda _: ClusterMetadata("c", 1, {}, topics))
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
def test_absurd_numbers_of_partitions_and_replicas_are_refused(run: Any, words: tuple[str, ...]) -> None:
    result = run(*words, "100001")
    assert result.exit_code == 1
    assert "100001 is not in the range" in result.stderr

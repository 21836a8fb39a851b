"""A pipeline's position as a consumer group, told to a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from group_members import Group

from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import positions
from moldau.pipelines.running.positions import Positions
from moldau.pipelines.spec import Pipeline

CreateTopic = Callable[..., str]
SPEC = """
name: {name}
bootstrap: {bootstrap}
sources:
  events: {{topic: {topic}, schema: a int}}
sinks:
  - {{from: events, name: out, console: true}}
"""


def pipeline(folder: Path, bootstrap: str, topic: str) -> Pipeline:
    file = folder / "p.yaml"
    file.write_text(SPEC.format(name=f"p{uuid.uuid4().hex[:8]}", bootstrap=bootstrap, topic=topic))
    return load(file)


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    with closing(Cluster(bootstrap, {})) as cluster:
        found = Groups(cluster, 5_000).committed([group])[group]
    return {where: each.offset for where, each in found.items()}


def test_what_is_new_is_committed(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic(partitions=2)
    spec = pipeline(tmp_path, bootstrap, topic)
    said: list[str] = []
    with Positions(spec, said.append) as told:
        told.tell("out", {})
        assert committed(bootstrap, f"{spec.name}.out") == {}
        told.tell("out", {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0})
        told.tell("out", {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0})
        told.tell("other", {TopicPartition(topic, 0): 1})
    assert committed(bootstrap, f"{spec.name}.out") == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0}
    assert committed(bootstrap, f"{spec.name}.other") == {TopicPartition(topic, 0): 1}
    assert said == []


def test_a_group_that_is_taken_is_told_once_and_not_asked_again(
    bootstrap: str, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = create_topic()
    spec = pipeline(tmp_path, bootstrap, topic)
    said: list[str] = []
    with Group(bootstrap) as group, Positions(spec, said.append) as told:
        group.id = f"{spec.name}.out"
        group.stable(topic=topic)
        for offset in range(3):
            told.tell("out", {TopicPartition(topic, 0): offset})
    (line,) = said
    assert line.startswith("the position of out is not told as a consumer group: ")


def test_a_broker_that_does_not_answer_costs_one_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "ANSWER_S", 0.2)
    said: list[str] = []
    told = Positions(pipeline(tmp_path, "127.0.0.1:1", "t"), said.append)
    for offset in range(3):
        told.tell("out", {TopicPartition("t", 0): offset})
    assert len(said) == 1

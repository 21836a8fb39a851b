"""A run and a real broker: the run commits its position as a consumer group, and reads the log end offsets."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from group_members import Group
from harness.patience import PATIENCE_S, wait_until

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.main import main
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import broker_watch
from moldau.pipelines.running.broker_watch import BrokerWatch, ends_now
from moldau.pipelines.running.positions import Positions
from moldau.pipelines.running.progress import QueryStatus, RunStatus
from moldau.pipelines.running.state_directory import default_directory
from moldau.pipelines.spec import Pipeline
from moldau.testing import broker

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


def test_new_positions_are_committed(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic(partitions=2)
    spec = pipeline(tmp_path, bootstrap, topic)
    lines: list[str] = []
    with closing(Cluster(bootstrap, {})) as cluster:
        positions = Positions(spec.name, cluster, lines.append)
        positions.commit("out", {})
        assert committed(bootstrap, f"{spec.name}.out") == {}
        positions.commit("out", {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0})
        positions.commit("out", {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0})
        positions.commit("other", {TopicPartition(topic, 0): 1})
    assert committed(bootstrap, f"{spec.name}.out") == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0}
    assert committed(bootstrap, f"{spec.name}.other") == {TopicPartition(topic, 0): 1}
    assert lines == []


def test_a_group_with_members_is_reported_once_and_not_asked_again(
    bootstrap: str, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic = create_topic()
    spec = pipeline(tmp_path, bootstrap, topic)
    lines: list[str] = []
    with Group(bootstrap) as group, closing(Cluster(bootstrap, {})) as cluster:
        positions = Positions(spec.name, cluster, lines.append)
        group.id = f"{spec.name}.out"
        group.join_members(topic=topic)
        for offset in range(3):
            positions.commit("out", {TopicPartition(topic, 0): offset})
    (line,) = lines
    assert line.startswith("the position of out is not committed as that of a consumer group: ")


def test_an_unreachable_broker_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unanswered(groups: Groups, group: str, offsets: object) -> None:
        asked.append(group)
        raise TimeoutError

    monkeypatch.setattr(Groups, "commit", unanswered)
    positions = Positions("p", Cluster("127.0.0.1:1", {}), pytest.fail)
    for offset in range(100):
        positions.commit("out", {TopicPartition("t", 0): offset})
    assert asked == ["p.out"]


def test_a_refused_position_does_not_stop_the_commits_of_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[str] = []

    def commit(groups: Groups, group: str, offsets: object) -> None:
        committed.append(group)
        if group == "p.busy":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    monkeypatch.setattr(Groups, "commit", commit)
    lines: list[str] = []
    positions = Positions("p", Cluster("127.0.0.1:1", {}), lines.append)
    for offset in range(2):
        for query in ("busy", "out"):
            positions.commit(query, {TopicPartition("t", 0): offset})
    assert committed == ["p.busy", "p.out", "p.out"]
    assert len(lines) == 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "ASK_EVERY_S", 0.02)
    monkeypatch.setattr(broker_watch, "TIMEOUT_S", PATIENCE_S)


def ends(watch: BrokerWatch, position: dict[TopicPartition, int]) -> Mapping[TopicPartition, int] | None:
    found = watch.exchange({"out": position})
    return None if found is None else found.offsets


@pytest.mark.usefixtures("quick")
def test_a_broker_that_answers_with_an_error_is_not_reported_as_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as for a partition that has no leader after an outage."""
    is_reachable = False

    def latest(*_: object) -> None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) if is_reachable else TimeoutError("no response")

    monkeypatch.setattr(Cluster, "latest", latest)
    monkeypatch.setattr(Cluster, "led", lambda *_: ({}, {}))
    lines: list[str] = []
    with BrokerWatch(pipeline(tmp_path, "127.0.0.1:1", "t"), lines.append) as watch:
        watch.exchange({"out": {TopicPartition("t", 0): 0}})
        wait_until(lambda: watch.silence is not None, "the broker does not answer")
        is_reachable = True
        wait_until(lambda: watch.silence is None, "the broker answers")
    assert [line.split("; ")[0] for line in lines] == ["127.0.0.1:1 does not answer", "127.0.0.1:1 answers again"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("is_at_the_end", [False, True])
def test_an_unexpected_error_is_reported_once_and_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_the_end: bool
) -> None:
    def latest(*_: object) -> None:
        raise ValueError("not as expected")

    monkeypatch.setattr(Cluster, "latest", latest)
    lines: list[str] = []
    positions = {"out": {TopicPartition("t", 0): 0}}
    with BrokerWatch(pipeline(tmp_path, "127.0.0.1:1", "t"), lines.append) as watch:
        if not is_at_the_end:
            watch.exchange(positions)
            wait_until(lambda: lines, "the error is reported")
        assert watch.last_exchange(positions) is None
    assert lines == ["lag is not known any more, and positions are not committed any more: ValueError: not as expected"]


@pytest.mark.usefixtures("quick")
def test_log_end_offsets_are_current(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic()
    spec, where = pipeline(tmp_path, bootstrap, topic), TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap})
    with BrokerWatch(spec, pytest.fail) as watch:
        assert watch.exchange({}) is None
        wait_until(lambda: ends(watch, {where: 0}) == {where: 0}, "the end of the empty log")
        for number in range(5):
            producer.produce(topic, str(number))
        producer.flush()
        wait_until(lambda: ends(watch, {where: 2}) == {where: 5}, "the end after five records")
        producer.produce(topic, "last")
        producer.flush()
        last = watch.last_exchange({"out": {where: 3}})
    assert watch.cluster_id
    assert last is not None
    assert last.offsets == {where: 6}
    assert committed(bootstrap, f"{spec.name}.out") == {where: 3}
    asked = ends_now(spec, [where])
    assert asked is not None
    assert asked.offsets == {where: 6}


@pytest.mark.usefixtures("quick")
def test_a_deleted_topic_hides_only_the_lag_of_its_query(
    bootstrap: str, create_topic: CreateTopic, tmp_path: Path
) -> None:
    kept, deleted = create_topic(), f"gone-{uuid.uuid4().hex[:8]}"
    spec = pipeline(tmp_path, bootstrap, kept)
    positions = {"out": {TopicPartition(kept, 0): 0}, "other": {TopicPartition(deleted, 0): 0}}
    with BrokerWatch(spec, pytest.fail) as watch:
        last = watch.last_exchange(positions)
    assert last is not None
    assert last.offsets == positions["out"]
    assert committed(bootstrap, f"{spec.name}.out") == positions["out"]
    assert committed(bootstrap, f"{spec.name}.other") == {}
    asked = ends_now(spec, [TopicPartition(deleted, 0), TopicPartition(kept, 0)])
    assert asked is not None
    assert asked.offsets == positions["out"]


@pytest.mark.usefixtures("quick")
def test_an_unreachable_broker_is_reported_and_no_end_offset_is_known(tmp_path: Path) -> None:
    lines: list[str] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec, where = pipeline(tmp_path, f"127.0.0.1:{port}", "t"), TopicPartition("t", 0)
    assert ends_now(spec, [where]) is None
    with BrokerWatch(spec, lines.append) as watch:
        assert ends(watch, {where: 0}) is None
        wait_until(lambda: lines, "the missing broker is reported")
        with broker(listeners=f"PLAINTEXT://127.0.0.1:{port}") as running:
            with closing(Cluster(running.bootstrap_servers, {})) as cluster:
                cluster.create_topic("t", 1)
            wait_until(lambda: len(lines) > 1, "the started broker is reported")
            wait_until(lambda: ends(watch, {where: 0}) == {where: 0}, "the end of the empty log")
        wait_until(lambda: ends(watch, {where: 0}) is None, "the end is unknown again")
        wait_until(lambda: len(lines) > 2, "the stopped broker is reported")
    address = f"127.0.0.1:{port}"
    assert [line.partition(";")[0] for line in lines] == [
        f"{address} does not answer",
        f"{address} answers again",
        f"{address} does not answer",
    ]


def test_the_lag_of_a_stopped_run_is_current(tmp_path: Path) -> None:
    """The lag at its end is not shown any more, and no lag is shown while the broker is unreachable."""
    spec = pipeline(tmp_path, "127.0.0.1:1", "t")  # the file's name; the run was given another one
    directory = default_directory(spec.file, spec.name)

    def status(*words: str) -> Any:
        result = CliRunner().invoke(main, ["pipeline", *words, "--format", "json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    with broker() as running:
        with closing(Cluster(running.bootstrap_servers, {})) as cluster:
            cluster.create_topic("t", 1)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(40):
            producer.produce("t", str(number))
        producer.flush()
        del producer
        query = QueryStatus(name="out", state="running", position={"t": {"0": 10}}, lag_records=0, lag_seconds=0.0)
        ended = RunStatus(
            pipeline=spec.name, mode="continuous", state="stopped", pid=1, host="h", started="a", updated="b",
            file=str(spec.file), bootstrap=running.bootstrap_servers, queries=(query,),
        )  # fmt: skip
        directory.write_status(ended.to_json())
        stopped, waiting = status("status", str(spec.file))["queries"]
        assert (stopped["lag_records"], stopped["lag_seconds"]) == (30, None)
        assert (waiting["state"], waiting["lag_records"]) == ("not running", None), (
            "in the file, and not part of that run"
        )
        directory.write_status(replace(ended, state="running").to_json())  # the process was killed
        assert status("list", str(tmp_path))[0]["lag"] == 30
    stopped, _ = status("status", str(spec.file))["queries"]
    assert stopped["lag_records"] is None

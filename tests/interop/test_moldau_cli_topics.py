"""`moldau topic` and `moldau cluster` against a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Return a function that runs the command line in this process, with the broker's address in the environment."""

    def invoke(*words: str, stdin: str | bytes | None = None, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, list(words), input=stdin)
        assert result.exit_code == status, result.stderr
        return result

    return invoke


def described(run: Run, name: str) -> dict[str, Any]:
    (found,) = json.loads(run("topic", "describe", name, "--format", "json").stdout)
    return dict(found)


def test_create_describe_list_delete(run: Run, topic: Callable[[], str]) -> None:
    one, two = topic(), topic()
    assert run("topic", "create", one, two, "-p", "3", "-c", "retention.ms=600000").stdout.splitlines() == [
        f"created {one}",
        f"created {two}",
    ]
    found = described(run, one)
    assert found["configs"] == {"retention.ms": "600000"}
    assert [row["partition"] for row in found["partitions"]] == [0, 1, 2]
    assert {row["offsets"] for row in found["partitions"]} == {0}
    leader = found["partitions"][0]["leader"]
    assert found["partitions"][0]["isr"] == [leader]

    listed = {row["name"]: row for row in json.loads(run("topic", "list", "--format", "json").stdout)}
    assert listed[one] | {"size": None} == {
        "name": one, "partitions": 3, "replicas": 1, "offsets": 0, "size": None,
    }  # fmt: skip

    assert run("topic", "delete", one, two).stdout.splitlines() == [f"deleted {one}", f"deleted {two}"]
    gone = run("topic", "describe", one, status=1)
    assert gone.stderr == f"moldau: no topic {one}; `moldau topic list` shows the topics there are\n"


def test_creating_an_existing_topic(run: Run, create_topic: Callable[..., str], topic: Callable[[], str]) -> None:
    there, fresh = create_topic(), topic()
    refused = run("topic", "create", there, status=1)
    assert refused.stderr.startswith(f"moldau: {there}: ")
    assert refused.stderr.endswith("--if-not-exists accepts a topic that is there already\n")
    accepted = run("topic", "create", there, fresh, "--if-not-exists")
    assert accepted.stdout.splitlines() == [f"{there} exists already", f"created {fresh}"]


def test_one_invalid_name_does_not_stop_the_others(run: Run, topic: Callable[[], str]) -> None:
    good = topic()
    result = run("topic", "create", "not a name", good, status=1)
    assert result.stdout == f"created {good}\n"
    assert result.stderr.startswith("moldau: not a name: ")
    assert result.stderr.count("\n") == 1


def test_alter(run: Run, create_topic: Callable[..., str]) -> None:
    name = create_topic(config={"retention.ms": "600000"})
    run("topic", "alter", name, "--partitions", "4", "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    found = described(run, name)
    assert len(found["partitions"]) == 4
    assert found["configs"] == {"cleanup.policy": "compact"}
    assert run("topic", "alter", name, "--partitions", "2", status=1).stderr.startswith(f"moldau: {name}: ")
    assert run("topic", "alter", name, "--set", "no.such.config=1", status=1).stderr.count("\n") == 1


@pytest.mark.parametrize(("before", "start"), [("4", 4), ("-3", 7), ("end", 10), ("@-1h", 0)])
def test_trim(run: Run, create_topic: Callable[..., str], before: str, start: int) -> None:
    name = create_topic()
    run("produce", name, stdin="\n".join("abcdefghij"))
    run("topic", "trim", name, "--before", before)
    (partition,) = described(run, name)["partitions"]
    assert (partition["start"], partition["end"], partition["offsets"]) == (start, 10, 10 - start)


def test_describe_as_a_table(run: Run, create_topic: Callable[..., str]) -> None:
    name = create_topic(partitions=2)
    lines = run("topic", "describe", name).stdout.splitlines()
    assert lines[0] == f"{name}: 2 partitions"
    assert lines[1].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "OFFSETS"]
    assert lines[2].split()[4:] == ["0", "0", "0"]


def test_describe_shows_a_config_beside_its_default(run: Run, create_topic: Callable[..., str]) -> None:
    name = create_topic(config={"compression.type": "zstd"})
    lines = [line.split() for line in run("topic", "describe", name).stdout.splitlines()]
    assert lines[-2:] == [["CONFIG", "VALUE", "DEFAULT"], ["compression.type", "zstd", "producer"]]


def test_transaction_markers_count_as_offsets_not_records(
    run: Run, create_topic: Callable[..., str], bootstrap: str
) -> None:
    """Three records and the marker of their transaction are four offsets."""
    name = create_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in "abc":
        producer.produce(name, value, partition=0)
    producer.commit_transaction(PATIENCE_S)
    wait_until(lambda: described(run, name)["partitions"][0]["end"] == 4, "the marker is written")
    (listed,) = [row for row in json.loads(run("topic", "list", "--format", "json").stdout) if row["name"] == name]
    assert listed["offsets"] == described(run, name)["partitions"][0]["offsets"] == 4
    header = run("topic", "list").stdout.splitlines()[0]
    assert header.split() == ["NAME", "PARTITIONS", "REPLICAS", "OFFSETS", "SIZE"]
    assert "records" not in run("topic", "list", "--format", "json").stdout


def test_cluster_info(run: Run, bootstrap: str) -> None:
    shown = json.loads(run("cluster", "info", "--format", "json").stdout)
    assert shown["cluster_id"]
    assert bootstrap.rpartition(":")[2] in {node["address"].rpartition(":")[2] for node in shown["brokers"]}
    assert sum(node["controller"] for node in shown["brokers"]) == 1


def test_completion_offers_topics(run: Run, create_topic: Callable[..., str], bootstrap: str) -> None:
    name = create_topic()
    env = {"_MOLDAU_COMPLETE": "bash_complete", "COMP_WORDS": f"moldau consume {name[:-1]}", "COMP_CWORD": "2"}
    result = CliRunner(env=env | {"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, [])
    assert f"plain,{name}" in result.stdout.splitlines()

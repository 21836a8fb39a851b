"""kafka-topics in common use: its exact output and its errors."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Tools, program, shell

from moldau.cli.kafka.connection import clients

CreateTopic = Callable[..., str]
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both.\n"
)


def test_create_list_describe_and_delete(bootstrap: str, topic: Callable[[], str]) -> None:
    name = topic()
    created = shell(f"bin/kafka-topics.sh --create --topic {name} --bootstrap-server {bootstrap} --partitions 3")
    assert created == (0, f"Created topic {name}.\n", "")
    listed = shell(f"bin/kafka-topics.sh --list --bootstrap-server {bootstrap}")
    assert name in listed.lines
    shown = shell(f"bin/kafka-topics.sh --describe --topic {name} --bootstrap-server {bootstrap}")
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*", shown.lines[0]
    )
    for index, line in enumerate(shown.lines[1:]):
        cells = f"\tTopic: {name}\tPartition: {index}\tLeader: (\\d+)\tReplicas: \\1\tIsr: \\1\tElr: \tLastKnownElr: "
        assert re.fullmatch(cells, line)
    assert len(shown.lines) == 4
    deleted = shell(f"bin/kafka-topics.sh --delete --topic {name} --bootstrap-server {bootstrap}")
    assert deleted == (0, "", "")
    assert name not in shell(f"bin/kafka-topics.sh --list --bootstrap-server {bootstrap}").lines


def test_partitions_are_added_while_a_producer_runs(bootstrap: str, create_topic: CreateTopic, tools: Tools) -> None:
    name = create_topic()
    producer = program("kafka-console-producer.sh", "--topic", name, "--bootstrap-server", bootstrap)
    assert producer.stdin is not None
    producer.stdin.write("before\n")
    producer.stdin.flush()
    altered = shell(f"bin/kafka-topics.sh --alter --topic {name} --partitions 4 --bootstrap-server {bootstrap}")
    assert altered == (0, "", "")
    wait_until(lambda: "PartitionCount: 4" in tools("topics", "--describe", "--topic", name).out, "four partitions")
    producer.stdin.write("after\n")
    assert producer.communicate(timeout=PATIENCE_S) == ("", "")
    assert producer.returncode == 0
    read = tools("console_consumer", "--topic", name, "--from-beginning", "--max-messages", "2")
    assert sorted(read.lines) == ["after", "before"]


def test_configs_are_set_and_shown(tools: Tools, topic: Callable[[], str]) -> None:
    name = topic()
    words = ("--config", "retention.ms=100000", "--config", "cleanup.policy=compact")
    assert tools("topics", "--create", "--topic", name, *words).status == 0
    wait_until(lambda: tools("topics", "--describe", "--topic", name).status == 0, "the topic")
    configs = tools("topics", "--describe", "--topic", name).lines[0].rpartition("Configs: ")[2].split(",")
    assert {"retention.ms=100000", "cleanup.policy=compact"} <= set(configs)
    overridden = tools("topics", "--describe", "--topics-with-overrides", "--topic", name)
    assert len(overridden.lines) == 1


def test_describe_filters_find_nothing_wrong_with_a_healthy_topic(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    for wrong in ("unavailable-partitions", "under-replicated-partitions", "under-min-isr-partitions"):
        assert tools("topics", "--describe", "--topic", name, f"--{wrong}") == (0, "", "")
    assert len(tools("topics", "--describe", "--topic", name, "--at-min-isr-partitions").lines) == 2


def test_describe_by_id(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    by_name = tools("topics", "--describe", "--topic", name)
    topic_id = by_name.out.split("TopicId: ")[1][:22]
    assert tools("topics", "--describe", "--topic-id", topic_id) == by_name


def test_describe_pages_through_partitions(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=5)
    whole = tools("topics", "--describe", "--topic", name)
    assert tools("topics", "--describe", "--topic", name, "--partition-size-limit-per-response", "2") == whole
    assert len(whole.lines) == 6


def test_a_regular_expression_selects_topics(tools: Tools, topic: Callable[[], str]) -> None:
    prefix = topic()
    names = [f"{prefix}-{letter}" for letter in "abc"]
    for name in names:
        assert tools("topics", "--create", "--topic", name, "--partitions", "1").status == 0
    wait_until(lambda: tools("topics", "--list", "--topic", f"{prefix}-.*").lines == names, "three topics listed")
    assert tools("topics", "--list", "--topic", f"{names[0]},{names[2]}").lines == [names[0], names[2]]
    assert tools("topics", "--delete", "--topic", f"{prefix}-[ab]") == (0, "", "")
    wait_until(
        lambda: tools("topics", "--list", "--topic", f"{prefix}-.*").lines == names[2:], "two topics are deleted"
    )


def test_names_with_dots_and_underscores_get_a_warning(tools: Tools, topic: Callable[[], str]) -> None:
    name = f"{topic()}.a_b"
    assert tools("topics", "--create", "--topic", name) == (0, f"{COLLISION}Created topic {name}.\n", "")


def test_replica_assignment(tools: Tools, create_topic: CreateTopic, topic: Callable[[], str]) -> None:
    broker = tools("topics", "--describe", "--topic", create_topic()).out.split("Leader: ")[1].split("\t")[0]
    name = topic()
    assert tools("topics", "--create", "--topic", name, "--replica-assignment", f"{broker},{broker}").status == 0
    wait_until(lambda: "PartitionCount: 2" in tools("topics", "--describe", "--topic", name).out, "two partitions")


def error_output(message: str) -> str:
    return f"Error while executing topic command : {message}\n"


def test_invalid_topics_and_configs_are_refused(
    tools: Tools, create_topic: CreateTopic, topic: Callable[[], str]
) -> None:
    there, absent = create_topic(partitions=2), topic()
    missing = error_output(f"Topic '{absent}' does not exist as expected")
    bad = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    words = {
        f"--create --topic {there}": error_output(f"Topic '{there}' already exists."),
        "--create --topic bad!topic": error_output(f"Topic name is invalid: 'bad!topic' {bad}"),
        f"--create --topic {absent} --partitions 0": error_output("The partitions must be greater than 0"),
        f"--create --topic {absent} --partitions x": error_output("Cannot parse argument 'x' of option partitions"),
        f"--create --topic {absent} --replication-factor 0": error_output(
            "The replication factor must be between 1 and 32767 inclusive"
        ),
        f"--create --topic {absent} --config foo=bar": error_output("Unknown topic config name: foo"),
        f"--create --topic {absent} --config retention.ms=x": error_output(
            "Invalid value x for configuration retention.ms: Not a number of type LONG"
        ),
        f"--describe --topic {absent}": missing,
        f"--delete --topic {absent}": missing,
        f"--alter --topic {absent} --partitions 3": missing,
        f"--alter --topic {there} --partitions 2": error_output("Topic already has 2 partition(s)."),
        f"--alter --topic {there} --partitions 1": error_output(
            f"The topic {there} currently has 2 partition(s); 1 would not be an increase."
        ),
        f"--alter --topic {there} --partitions 0": error_output(
            f"The topic {there} currently has 2 partition(s); 0 would not be an increase."
        ),
        f"--alter --topic {there} --partitions 2 --replica-assignment 1,1": error_output(
            "Topic already has 2 partition(s)."
        ),
        f"--alter --topic {there} --partitions 3 --replica-assignment 1": error_output(
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."
        ),
        f"--alter --topic {there} --partitions 200000": error_output(
            "Excessively large number of partitions per request: at most 10000."
        ),
        f"--create --topic {there} --topic {absent}": error_output(
            "Found multiple arguments for option topic, but you asked for only one"
        ),
    }
    assert {line: tools("topics", *line.split()) for line in words} == {
        line: (1, expected, "") for line, expected in words.items()
    }
    too_many = tools("topics", "--create", "--topic", absent, "--replication-factor", "300")
    assert too_many.status == 1
    assert too_many.out.startswith(error_output("Unable to replicate the partition 300 time(s): The target")[:-1])


def test_if_exists_and_if_not_exists(tools: Tools, create_topic: CreateTopic, topic: Callable[[], str]) -> None:
    assert tools("topics", "--create", "--topic", create_topic(), "--if-not-exists") == (0, "", "")
    absent = topic()
    for action in ("--describe", "--delete", "--alter --partitions 2"):
        assert tools("topics", *action.split(), "--topic", absent, "--if-exists") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "--list --create",
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
        ),
        ("--create", 'Missing required argument "[topic]"'),
        ("--alter --topic t", 'Missing required argument "[partitions]"'),
        ("--list --partitions 3", 'Option "[partitions]" can\'t be used with option "[list]"'),
        ("--list --nosuchflag", "nosuchflag is not a recognized option"),
        ("--describe --if-exists", "--topic or --topic-id is required to describe a topic"),
        (
            "--describe --under-replicated-partitions --topics-with-overrides",
            'Option "[under-replicated-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
    ],
)
def test_usage_errors(tools: Tools, words: str, expected: str) -> None:
    status, out, err = tools("topics", *words.split())
    assert (status, out, err.splitlines()[0]) == (1, "", expected)


def test_a_missing_bootstrap_server_is_reported(tools: Tools) -> None:
    status, out, err = tools("topics", "--list", address=False)
    assert (status, out, err.splitlines()[0]) == (1, "", "--bootstrap-server must be specified")


def test_an_unreachable_broker_is_reported(tools: Tools) -> None:
    status, out, _ = tools("topics", "--list", "--bootstrap-server", "127.0.0.1:1", address=False)
    assert status == 1
    assert out.startswith(error_output("No broker answers at 127.0.0.1:1 (connection refused).")[:-1])
    assert out.count("\n") == 1


def test_a_port_that_does_not_speak_kafka_is_reported(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clients.ADMIN_SECONDS <= 10
    monkeypatch.setattr(clients, "ADMIN_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        refused = tools("topics", "--list", "--bootstrap-server", address, address=False)
    assert refused.status == 1
    assert refused.out.startswith(
        error_output("The address accepts connections but does not answer as a Kafka broker does")[:-1]
    )

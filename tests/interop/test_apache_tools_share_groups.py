"""Our tools for share groups compared with Apache Kafka's own, on the same cluster: their output must be equal, letter
by letter. Only their rows may be in another order, as in test_apache_tools_groups.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Outcome, Tools
from share_members import Delivery, ShareMember, require_share_groups, unused_group

from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import DescribedGroup
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import Cluster

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
pytestmark = [
    pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH"),
]
CLASSES = {
    "share_groups": "consumer.group.ShareGroupCommand",
    "console_share_consumer": "consumer.ConsoleShareConsumer",
    "share_consumer_perf": "ShareConsumerPerformance",
}
RECORDS = 30
TRIES = 5
"""Other groups may appear or vanish between the two listings of a shared cluster."""
TIMEOUT_MS = int(1000 * PATIENCE_S)
Names = dict[str, str]
"""The placeholders in the command lines below, and their values."""


@pytest.fixture(scope="module")
def names(bootstrap: str, admin: AdminClient, create_topic: Callable[..., str]) -> Iterator[Names]:
    """Two topics, a group with two members, two without members, and one that is no share group."""
    require_share_groups(bootstrap)
    topic, long = create_topic(partitions=3), create_topic(partitions=2, name=f"{create_topic()}-with-a-long-name")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    cluster = Cluster(bootstrap, {})
    groups = ShareGroups(cluster, TIMEOUT_MS)
    active, idle, other = (unused_group(admin) for _ in range(3))
    offsets = {TopicPartition(topic, 0): 3, TopicPartition(topic, 2): 10, TopicPartition(long, 1): 0}
    assert not any(groups.alter_offsets(idle, offsets).values())
    assert not any(groups.alter_offsets(other, {TopicPartition(topic, 1): 7}).values())
    with (
        ShareMember(bootstrap, active, [topic], client_id="one") as first,
        ShareMember(bootstrap, active, [topic, long], client_id="the-second-one") as second,
    ):
        wait_until(lambda: _has_members(groups, active, 2), "both are members", every_s=0.1)
        received: list[Delivery] = []
        wait_until(lambda: _have_read(first, second, received), "both have read all", lambda: len(received))
        scene = {"topic": topic, "long": long, "active": active, "idle": idle, "other": other}
        yield scene | {"none": "no-such-group"}
    cluster.close()


def _has_members(groups: ShareGroups, group_id: str, count: int) -> bool:
    """Return whether the group has so many members with partitions."""
    group = groups.described([group_id])[group_id]
    return isinstance(group, DescribedGroup) and sum(bool(each.assignment) for each in group.members) == count


def _have_read(first: ShareMember, second: ShareMember, received: list[Delivery]) -> bool:
    for member in (first, second):
        received += member.poll()
        member.accept()
    return len(received) == RECORDS


def apache(bootstrap: str, tool: str, words: list[str]) -> Outcome:
    command = ["java", "-cp", f"{KAFKA_LIBS}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += [f"org.apache.kafka.tools.{CLASSES[tool]}", *words, "--bootstrap-server", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def compare(tools: Tools, names: Names, line: str, tool: str = "share_groups") -> tuple[Outcome, Outcome]:
    words = line.format(**names).split()
    return tools(tool, *words), apache(tools.bootstrap, tool, words)


def check_rows(ours: Outcome, theirs: Outcome) -> None:
    """Check that both print the same lines."""
    assert sorted(ours.lines) == sorted(theirs.lines)
    assert (ours.status, ours.err, len(ours.out)) == (theirs.status, theirs.err, len(theirs.out))


DESCRIBE = [
    f"--describe --group {{{group}}} {view}"
    for group in ("active", "idle")
    for view in ("", "--offsets --verbose", "--members", "--members --verbose", "--state", "--state --verbose")
]
OTHERS = [
    "--describe --group {idle} --group {other} --state",
    "--describe --group {idle} --group {other}",
    "--reset-offsets --group {idle} --all-topics --to-earliest --dry-run",
    "--reset-offsets --group {idle} --topic {topic} --topic {long} --to-latest --dry-run",
    "--reset-offsets --group {idle} --topic {topic}:0,2 --to-datetime 2020-01-01T00:00:00.000+01:00 --dry-run",
    "--reset-offsets --group {idle} --topic {topic}:1 --to-datetime 2099-01-01T00:00:00.000 --dry-run",
    "--reset-offsets --group {idle} --topic {topic}:1 --to-latest --execute",
    "--reset-offsets --group {none} --all-topics --to-latest --dry-run",
    "--reset-offsets --group {none} --topic {topic} --to-latest --dry-run",
    "--reset-offsets --group {active} --topic {topic} --to-latest --execute",
    "--delete --group {active} --group {none}",
    "--delete --group {active}",
    "--delete-offsets --group {none} --topic {topic}",
    "--delete-offsets --group {active} --topic {topic} --topic {long}",
    "--delete-offsets --group {idle} --topic no-such-topic",
]


@pytest.mark.parametrize("line", DESCRIBE + OTHERS)
def test_the_tool_prints_what_kafkas_tool_prints(tools: Tools, names: Names, line: str) -> None:
    ours, theirs = compare(tools, names, line)
    if line.startswith("--reset-offsets") or line.count("--group ") > 1:
        check_rows(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    "line",
    [
        "--describe --group {none}",
        "--describe --group {none} --members",
        "--reset-offsets --group {idle} --topic no-such-topic --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic}:9 --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic} --to-datetime 2026-11-15T00:00:00 --dry-run",
        "--reset-offsets --group {idle} --group {other} --topic {topic} --to-latest --dry-run",
        "--delete-offsets --group {idle} --group {other} --topic {topic}",
        "--list --timeout x",
    ],
)
def test_errors_equal_kafkas_without_the_stack_trace(tools: Tools, names: Names, line: str) -> None:
    ours, theirs = compare(tools, names, line)
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    assert ours.err == ""
    assert "Exception: " in theirs.err


@pytest.mark.parametrize(
    "line",
    [
        "--describe",
        "--describe --group {idle} --all-groups",
        "--describe --group {idle} --members --state",
        "--describe --group {idle} --state Empty",
        "--describe --group {idle} --topic {topic}",
        "--delete",
        "--delete --group {idle} --all-groups",
        "--delete --group {idle} --topic {topic}",
        "--delete-offsets --group {idle}",
        "--reset-offsets --topic {topic} --to-latest",
        "--reset-offsets --topic {topic} --to-latest --dry-run --execute",
        "--reset-offsets --topic {topic} --to-latest --dry-run",
        "--reset-offsets --group {idle} --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic} --dry-run",
        "--reset-offsets --group {idle} --topic {topic} --dry-run --to-latest --to-earliest",
        "--reset-offsets --group {idle} --topic {topic}:x --to-latest --dry-run",
        "--list --topic {topic}",
        "--list --group {idle}",
        "--list --delete --all-groups",
        "--group {idle}",
    ],
)
def test_a_wrong_command_line_is_rejected_with_kafkas_message(tools: Tools, names: Names, line: str) -> None:
    ours, theirs = compare(tools, names, line)
    assert (ours.status, ours.out) == (theirs.status, theirs.out) == (1, "")
    assert ours.err.splitlines()[0] == theirs.err.splitlines()[0]


@pytest.mark.parametrize("line", ["--list", "--list --state", "--list --state stable,Dead", "--list --state empty"])
def test_listings_have_the_same_rows_and_columns(tools: Tools, names: Names, line: str) -> None:
    for _ in range(TRIES):
        ours, theirs = compare(tools, names, line)
        if sorted(ours.lines) == sorted(theirs.lines):
            break
    check_rows(ours, theirs)
    listed = [name for name in (names["active"], names["idle"], names["other"]) if name in ours.out]
    assert listed


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("console_share_consumer", "--group g"),
        ("console_share_consumer", "--topic {topic} --reject --release"),
        ("console_share_consumer", "--topic {topic} --consumer-property a=b --command-property c=d"),
        ("console_share_consumer", "--topic {topic} --property a=b --formatter-property c=d"),
        ("console_share_consumer", "--topic {topic} --consumer-config a --command-config b"),
        ("share_consumer_perf", "--num-records 1"),
        ("share_consumer_perf", "--topic {topic}"),
        ("share_consumer_perf", "--topic {topic} --num-records 1 --messages 1"),
        ("share_consumer_perf", "--topic {topic} --num-records 1 --consumer.config a --command-config b"),
    ],
)
def test_wrong_options_of_consumers_are_rejected_with_kafkas_message(
    tools: Tools, names: Names, tool: str, line: str
) -> None:
    ours, theirs = compare(tools, names, line, tool)
    assert (ours.status, ours.out) == (theirs.status, theirs.out) == (1, "")
    assert ours.err.splitlines()[0] == theirs.err.splitlines()[0]


def test_the_console_consumer_prints_records_as_kafkas_does(
    tools: Tools, names: Names, admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    producer = Producer({"bootstrap.servers": tools.bootstrap})
    for number, value in enumerate((b"plain", None, "größer".encode(), b"")):
        headers: list[tuple[str, str | bytes | None]] = [("a", "1"), ("none", None)] if number % 2 else []
        producer.produce(topic, value, None if number == 2 else f"k{number}", headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    shown = " ".join(
        f"--property print.{name}=true"
        for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    )
    line = f"--topic {topic} --group {unused_group(admin)} --max-messages 4 --release {shown}"
    ours = tools("console_share_consumer", *line.split())
    theirs = apache(tools.bootstrap, "console_share_consumer", line.split())
    assert ours.out.replace("Delivery:1", "Delivery:2") == theirs.out
    assert (ours.status, ours.err.splitlines()[-1]) == (theirs.status, theirs.err.splitlines()[-1])

"""Our kafka-consumer-groups and kafka-groups compared with Apache Kafka's own, on the same cluster: their output
must be equal, character by character. Only their rows may be in another order: Kafka's tools print some of them in
that of a Java HashMap, ours are sorted.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars (kafka-tools and what it needs); java must be on the
PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from group_members import ConsumerMember, Group, subscription
from harness.patience import PATIENCE_S
from kafka_tools import Outcome, Tools

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
pytestmark = [
    pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH"),
]
CLASSES = {"consumer_groups": "consumer.group.ConsumerGroupCommand", "groups": "GroupsCommand"}
SESSION_TIMEOUT_MS = 600_000
"""Long enough for all comparisons: the classic members send no heartbeats."""
TRIES = 5
"""Other groups may appear or vanish between the two listings of a shared cluster."""


class Scene(NamedTuple):
    """Two topics and four groups in different states."""

    names: dict[str, str]
    """The placeholders in the command lines below, and their values."""
    member: ConsumerMember


@pytest.fixture(scope="module")
def scene(
    bootstrap: str, create_topic: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    long_name = create_topic(partitions=3)
    topic = create_topic(partitions=4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce(topic, str(number), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0
    with Group(bootstrap) as idle, Group(bootstrap) as other, Group(bootstrap) as classic, Group(bootstrap) as new:
        for index in range(4):
            assert idle.commit(topic, 3 + index, partition=index, leader_epoch=0) == 0
        assert idle.commit(long_name, 0, partition=2) == 0
        assert other.commit(topic, 9) == 0
        protocols = [("range", subscription(topic))]
        classic.join_members(2, topic=topic, protocols=protocols, session_timeout=SESSION_TIMEOUT_MS)
        member = new.consumer([topic])
        member.join()
        plan = tmp_path_factory.mktemp("plans") / "plan.csv"
        plan.write_text(f"{topic},0,5\n{topic},3,1\n")
        bad = plan.with_name("bad.csv")
        bad.write_text(f"{topic},0,5\n{topic},three,1\n")
        names = {"topic": topic, "long": long_name, "idle": idle.id, "other": other.id, "classic": classic.id}
        yield Scene(names | {"new": new.id, "plan": str(plan), "bad": str(bad)}, member)


@pytest.fixture
def tools(bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(bootstrap, capsys, monkeypatch)


def apache(bootstrap: str, tool: str, words: list[str]) -> Outcome:
    command = ["java", "-cp", f"{KAFKA_LIBS}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += [f"org.apache.kafka.tools.{CLASSES[tool]}", *words, "--bootstrap-server", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def compare(tools: Tools, scene: Scene, tool: str, line: str) -> tuple[Outcome, Outcome]:
    words = line.format(**scene.names).split()
    scene.member.heartbeat()
    return tools(tool, *words), apache(tools.bootstrap, tool, words)


def check_rows(ours: Outcome, theirs: Outcome, names: Iterable[str]) -> None:
    """Check that both print the same lines, and that ours with one of these names are sorted."""
    assert sorted(ours.lines) == sorted(theirs.lines)
    assert (ours.status, ours.err, len(ours.out)) == (theirs.status, theirs.err, len(theirs.out))
    rows = [line for line in ours.lines if any(name in line for name in names)]
    assert rows == sorted(rows)


DESCRIBE = [
    f"--describe --group {{{group}}} {view}"
    for group in ("idle", "classic", "new")
    for view in ("--offsets --verbose", "--members --verbose", "--state --verbose")
]
OTHERS = [
    "--describe --group {classic} --group {idle}",
    "--describe --group {new} --members",
    "--describe --group {idle} --state",
    "--reset-offsets --group {idle} --all-topics --to-earliest --dry-run",
    "--reset-offsets --group {idle} --topic {topic} --topic {long} --to-latest",
    "--reset-offsets --group {idle} --group {other} --topic {topic}:0,2 --to-offset 4 --dry-run",
    "--reset-offsets --group {idle} --group {other} --topic {topic}:0,2 --to-offset 4 --dry-run --export",
    "--reset-offsets --group {idle} --topic {topic} --to-current --dry-run --export",
    "--reset-offsets --group {idle} --topic {topic} --shift-by -2 --dry-run",
    "--reset-offsets --group {idle} --topic {topic} --by-duration P-1D --dry-run",
    "--reset-offsets --group {idle} --topic {topic} --to-datetime 2020-01-01T00:00:00.000+01:00 --dry-run",
    "--reset-offsets --group {idle} --from-file {plan} --dry-run",
    "--reset-offsets --group {classic} --topic {topic} --to-latest --execute",
    "--delete --group {classic} --group no-such-group",
    "--delete-offsets --group {classic} --topic {topic} --topic no-such-topic",
    "--delete-offsets --group {idle} --topic {long}:0,9",
]


@pytest.mark.parametrize("line", DESCRIBE + OTHERS)
def test_consumer_groups_prints_what_kafkas_tool_prints(tools: Tools, scene: Scene, line: str) -> None:
    ours, theirs = compare(tools, scene, "consumer_groups", line)
    if line.startswith("--reset-offsets"):
        check_rows(ours, theirs, (scene.names["topic"], scene.names["long"]))
    elif line.count("--group ") > 1:
        check_rows(ours, theirs, ())
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    "line",
    [
        "--describe --group no-such-group",
        "--reset-offsets --group {idle} --topic no-such-topic --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic}:9 --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic} --by-duration 1D --dry-run",
        "--reset-offsets --group {idle} --topic {topic} --to-datetime 2026-11-15T00:00:00 --dry-run",
        "--reset-offsets --group {idle} --from-file {bad} --dry-run",
        "--reset-offsets --group {idle} --all-topics --shift-by x --dry-run",
        "--delete-offsets --group {idle} --group {other} --topic {topic}",
    ],
)
def test_errors_equal_kafkas_without_the_stack_trace(tools: Tools, scene: Scene, line: str) -> None:
    ours, theirs = compare(tools, scene, "consumer_groups", line)
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    assert ours.err == ""
    assert "Exception: " in theirs.err


@pytest.mark.parametrize(
    "line",
    [
        "--describe --group {idle} --all-groups",
        "--describe --group {idle} --members --state",
        "--delete --group {idle} --topic {topic}",
        "--reset-offsets --group {idle} --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {topic}:x --to-latest --dry-run",
        "--reset-offsets --group {idle} --topic {long} --shift-by 1 --dry-run",
        "--list --topic {topic}",
    ],
)
def test_a_wrong_command_line_is_rejected_with_kafkas_message(tools: Tools, scene: Scene, line: str) -> None:
    ours, theirs = compare(tools, scene, "consumer_groups", line)
    assert (ours.status, ours.out) == (theirs.status, theirs.out) == (1, "")
    assert ours.err.splitlines()[0] == theirs.err.splitlines()[0]


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("consumer_groups", "--list"),
        ("consumer_groups", "--list --state --type"),
        ("consumer_groups", "--list --type consumer"),
        ("groups", "--list"),
        ("groups", "--list --group-type classic --protocol consumer"),
    ],
)
def test_listings_have_the_same_rows_and_columns(tools: Tools, scene: Scene, tool: str, line: str) -> None:
    for _ in range(TRIES):
        ours, theirs = compare(tools, scene, tool, line)
        if sorted(ours.lines) == sorted(theirs.lines):
            break
    check_rows(ours, theirs, [scene.names[group] for group in ("idle", "other", "classic", "new")])


def test_our_tool_reads_offsets_exported_by_kafkas_tool(tools: Tools, scene: Scene, tmp_path: Path) -> None:
    exported = apache(tools.bootstrap, "consumer_groups", export := [
        "--reset-offsets", "--group", scene.names["idle"], "--all-topics", "--to-current", "--dry-run", "--export",
    ])  # fmt: skip
    check_rows(tools("consumer_groups", *export), exported, (scene.names["topic"], scene.names["long"]))
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out)
    again = tools(
        "consumer_groups", "--reset-offsets", "--group", scene.names["idle"], "--from-file", str(plan), "--dry-run"
    )
    current = tools("consumer_groups", *export[:-1])
    assert again == current

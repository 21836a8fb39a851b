"""kafka-consumer-groups and kafka-groups, and the tools that read as members of a group."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from group_members import Group, assignment, join_alone, subscription
from harness.patience import PATIENCE_MS, PATIENCE_S
from kafka_tools import Outcome, Tools, program, shell

from moldau.cli.kafka.connection import clients

CreateTopic = Callable[..., str]
NO_MEMBERS = "\nConsumer group '{}' has no active members.\n"
NO_ACTION_WARNING = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require"
    " either --dry-run or --execute to be specified."
)


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def filled(bootstrap: str, create_topic: CreateTopic) -> str:
    """A topic of two partitions, ten records in the first and none in the second; no test writes to it."""
    name = create_topic(partitions=2)
    produce(bootstrap, name, "0123456789")
    return name


def produce(bootstrap: str, topic: str, values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def cells(line: str) -> list[str]:
    return line.split()


def error(message: str) -> str:
    return f"\nError: {message}\n"


@pytest.mark.parametrize("name", ["consumer-groups", "groups"])
def test_every_tool_has_help(name: str) -> None:
    result = shell(f"bin/kafka-{name}.sh --help")
    assert result.status == 1  # Kafka's do so
    assert "--bootstrap-server" in result.err
    assert "Traceback" not in result.err


class TestList:
    def test_groups_by_state_and_type(self, tools: Tools, group: Group, filled: str) -> None:
        assert group.commit(filled, 3) == 0
        assert group.id in tools("consumer_groups", "--list").lines
        both = tools("consumer_groups", "--list", "--state", "--type").lines
        assert cells(both[0]) == ["GROUP", "TYPE", "STATE"]
        (line,) = (line for line in both if line.startswith(f"{group.id} "))
        assert cells(line) == [group.id, "Classic", "Empty"]
        assert re.fullmatch(rf"{group.id} {{10,}} {'Classic':<20} {'Empty':<20}", line)
        assert any(group.id in line for line in tools("consumer_groups", "--list", "--state", "EMPTY,dead").lines)
        assert not any(group.id in line for line in tools("consumer_groups", "--list", "--state", "stable").lines)
        assert not any(group.id in line for line in tools("consumer_groups", "--list", "--type", "consumer").lines)

    def test_groups_of_both_protocols(self, tools: Tools, group: Group, filled: str) -> None:
        group.consumer([filled]).join()
        listed = tools("consumer_groups", "--list", "--type", "consumer").lines
        assert [cells(line) for line in listed if group.id in line] == [[group.id, "Consumer"]]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--state foo", "Invalid state list 'foo'. Valid states are: "),
            ("--type classic,foo", "Invalid types list 'classic,foo'. Valid types are: "),
        ],
    )
    def test_invalid_states_and_types_are_refused(self, tools: Tools, words: str, message: str) -> None:
        refused = tools("consumer_groups", "--list", *words.split())
        assert (refused.status, refused.out) == (1, "")
        assert refused.err.startswith(message)

    def test_kafka_groups(self, tools: Tools, group: Group, filled: str) -> None:
        group.commit(filled, 1)
        shown = tools("groups", "--list")
        assert shown.status == 0
        assert cells(shown.lines[0]) == ["GROUP", "TYPE", "PROTOCOL"]
        (line,) = (line for line in shown.lines if line.startswith(f"{group.id} "))
        assert cells(line) == [group.id, "Classic"]  # it only holds offsets, so its protocol is unknown
        assert line.endswith(" ")
        assert group.id in tools("groups", "--list", "--consumer").out
        assert group.id not in tools("groups", "--list", "--group-type", "consumer").out
        assert group.id not in tools("groups", "--list", "--share").out


class TestDescribe:
    def test_a_group_without_members(self, tools: Tools, group: Group, filled: str) -> None:
        group.commit(filled, 4, leader_epoch=0)
        shown = tools("consumer_groups", "--describe", "--group", group.id)
        assert (shown.status, shown.err) == (0, NO_MEMBERS.format(group.id))
        assert shown.lines[0] == ""
        assert [cells(line) for line in shown.lines[1:]] == [
            [
                "GROUP",
                "TOPIC",
                "PARTITION",
                "CURRENT-OFFSET",
                "LOG-END-OFFSET",
                "LAG",
                "CONSUMER-ID",
                "HOST",
                "CLIENT-ID",
            ],
            [group.id, filled, "0", "4", "10", "6", "-", "-", "-"],
        ]
        verbose = tools("consumer_groups", "--describe", "--group", group.id, "--verbose").lines
        assert cells(verbose[1])[3] == "LEADER-EPOCH"
        assert cells(verbose[2])[2:7] == ["0", "0", "4", "10", "6"]
        members = tools("consumer_groups", "--describe", "--group", group.id, "--members")
        assert [cells(line) for line in members.lines] == [
            [],
            ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ]
        state = tools("consumer_groups", "--describe", "--group", group.id, "--state").lines
        assert cells(state[2])[-3:] == ["-", "Empty", "0"]

    def test_a_classic_group(self, tools: Tools, group: Group, filled: str) -> None:
        leader, other = group.join_members(2, topic=filled, protocols=[("range", subscription(filled))])
        assert leader.commit(filled, 9) == 0
        shown = tools("consumer_groups", "--describe", "--group", group.id)
        assert (shown.status, shown.err) == (0, "")
        rows = {cells(line)[2]: cells(line) for line in shown.lines[2:]}
        assert rows["0"][3:7] == ["9", "10", "1", leader.id]
        assert rows["1"][3:7] == ["-", "0", "-", other.id]
        members = tools("consumer_groups", "--describe", "--group", group.id, "--members", "--verbose").lines
        by_id = {cells(line)[1]: cells(line) for line in members[2:]}
        assert by_id[leader.id][-5:] == ["1", "-", f"{filled}:0", "-", "-"]
        state = tools("consumer_groups", "--describe", "--group", group.id, "--state", "--verbose").lines
        assert cells(state[2])[-5:] == ["range", "Stable", "-", "-", "2"]

    def test_a_static_member_shows_its_instance(self, tools: Tools, group: Group, filled: str) -> None:
        (member,) = group.join_members(1, topic=filled, instance="till-1")
        members = tools("consumer_groups", "--describe", "--group", group.id, "--members").lines
        assert cells(members[1])[:3] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID"]
        assert cells(members[2])[:3] == [group.id, member.id, "till-1"]

    def test_a_group_of_the_consumer_protocol(self, tools: Tools, group: Group, filled: str) -> None:
        member = group.consumer([filled])
        join_alone(member, 2)
        state = tools("consumer_groups", "--describe", "--group", group.id, "--state", "--verbose").lines
        assert cells(state[1])[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
        assert cells(state[2])[-5:] == ["uniform", "Stable", str(member.epoch), str(member.epoch), "1"]
        members = tools("consumer_groups", "--describe", "--group", group.id, "--members", "--verbose").lines
        epoch, held = str(member.epoch), f"{filled}:0,1"
        assert cells(members[2])[-5:] == ["2", epoch, held, epoch, held]

    def test_a_group_that_does_not_exist(self, tools: Tools, topic: Callable[[], str]) -> None:
        absent = topic()
        message = (
            "Executing consumer group command failed due to org.apache.kafka.common.errors.GroupIdNotFoundException:"
            f" Group {absent} not found."
        )
        for view in ("--offsets", "--members", "--state"):
            assert tools("consumer_groups", "--describe", "--group", absent, view) == (0, error(message), "")

    def test_a_group_in_the_middle_of_a_rebalance(self, tools: Tools, group: Group, filled: str) -> None:
        group.member(protocols=[("range", subscription(filled))]).join()
        shown = tools("consumer_groups", "--describe", "--group", group.id, "--state")
        assert shown.err == f"\nWarning: Consumer group '{group.id}' is rebalancing.\n"
        assert cells(shown.lines[2])[-2:] == ["CompletingRebalance", "1"]

    def test_several_groups_are_sorted(self, tools: Tools, bootstrap: str, filled: str) -> None:
        with Group(bootstrap) as one, Group(bootstrap) as two:
            for made in (one, two):
                made.commit(filled, 1)
            words = ("--describe", "--group", max(one.id, two.id), "--group", min(one.id, two.id))
            shown = tools("consumer_groups", *words).lines
            assert [cells(line)[0] for line in shown if filled in line] == sorted([one.id, two.id])


class TestReset:
    def reset(self, tools: Tools, group: Group, *words: str) -> Outcome:
        return tools("consumer_groups", "--reset-offsets", "--group", group.id, *words)

    def plan(self, outcome: Outcome) -> dict[str, str]:
        """Return the new offsets by partition, from a table of the right form."""
        assert (outcome.status, outcome.lines[0]) == (0, "")
        assert cells(outcome.lines[1]) == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
        return {cells(line)[2]: cells(line)[3] for line in outcome.lines[2:]}

    @pytest.mark.parametrize(
        ("scenario", "offsets"),
        [
            ("--to-earliest", {"0": "0", "1": "0"}),
            ("--to-latest", {"0": "10", "1": "0"}),
            ("--to-offset 3", {"0": "3", "1": "0"}),
            ("--to-offset -3", {"0": "0", "1": "0"}),
            ("--to-current", {"0": "6", "1": "0"}),
            ("--by-duration PT1H", {"0": "0", "1": "0"}),
            ("--by-duration P-1D", {"0": "10", "1": "0"}),
            ("--to-datetime 2020-01-01T00:00:00.000", {"0": "0", "1": "0"}),
        ],
    )
    def test_each_scenario_plans_its_offsets(
        self, tools: Tools, group: Group, filled: str, scenario: str, offsets: dict[str, str]
    ) -> None:
        group.commit(filled, 6)
        shown = self.reset(tools, group, "--topic", filled, "--dry-run", *scenario.split())
        table = Outcome(shown.status, shown.out[shown.out.rindex("\nGROUP") :], shown.err)
        assert self.plan(table) == offsets
        assert group.committed(filled) == 6

    def test_shift_by_and_execute(self, tools: Tools, group: Group, filled: str) -> None:
        group.commit(filled, 6)
        assert self.plan(self.reset(tools, group, "--all-topics", "--shift-by", "-4", "--execute")) == {"0": "2"}
        assert group.committed(filled) == 2
        assert self.plan(self.reset(tools, group, "--topic", f"{filled}:0", "--shift-by", "99", "--execute"))
        assert group.committed(filled) == 10
        refused = self.reset(tools, group, "--topic", filled, "--shift-by", "1", "--execute")
        assert refused.status == 1
        assert refused.err.startswith(
            f"Cannot shift offset for partition {filled}-1 since there is no current committed offset"
        )

    def test_an_offset_outside_the_log_is_reported(self, tools: Tools, group: Group, filled: str) -> None:
        shown = self.reset(tools, group, "--topic", f"{filled}:0", "--to-offset", "99", "--dry-run")
        assert shown.err == (
            f"WARN New offset (99) is higher than latest offset for topic partition {filled}-0."
            " Value will be set to 10\n"
        )

    def test_a_missing_execute_option_is_reported(self, tools: Tools, group: Group, filled: str) -> None:
        shown = self.reset(tools, group, "--topic", filled, "--to-latest")
        assert shown.err.startswith(NO_ACTION_WARNING)
        assert group.committed(filled) == -1

    def test_export_and_import(self, tools: Tools, group: Group, filled: str, tmp_path: Path) -> None:
        group.commit(filled, 6)
        exported = self.reset(tools, group, "--all-topics", "--to-current", "--dry-run", "--export")
        assert exported == (0, f"{filled},0,6\n\n", "")
        plan = tmp_path / "plan.csv"
        plan.write_text(exported.out)
        group.commit(filled, 1)
        assert self.plan(self.reset(tools, group, "--from-file", str(plan), "--execute")) == {"0": "6"}
        assert group.committed(filled) == 6

    def test_many_groups_in_one_file(self, tools: Tools, bootstrap: str, filled: str, tmp_path: Path) -> None:
        with Group(bootstrap) as one, Group(bootstrap) as two:
            plan = tmp_path / "plan.csv"
            plan.write_text(f"{one.id},{filled},0,3\n{two.id},{filled},0,4\n")
            words = ("--group", one.id, "--group", two.id, "--from-file", str(plan), "--execute")
            assert tools("consumer_groups", "--reset-offsets", *words).status == 0
            assert (one.committed(filled), two.committed(filled)) == (3, 4)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{topic},x,1", "No reset plan for group {group} found"),
            ("{topic},0,1\n{topic},x,1", 'Cannot deserialize value of type `int` from String "x"'),
            ("{topic},0,1\n\n{topic},1,1", "No content to map due to end-of-input"),
            ("{topic},0,1,2,3", "Too many entries: expected at most 4"),
            ("{topic},9,1", 'The partitions "{topic}-9" do not exist'),
            ("nosuch{topic},0,1", "because metadata for topic `nosuch{topic}` could not be found"),
        ],
    )
    def test_files_with_invalid_lines_are_refused(
        self, tools: Tools, group: Group, filled: str, tmp_path: Path, content: str, message: str
    ) -> None:
        plan = tmp_path / "plan.csv"
        plan.write_text(content.format(topic=filled))
        refused = self.reset(tools, group, "--from-file", str(plan), "--dry-run")
        assert (refused.status, refused.err) == (0, "")
        assert message.format(topic=filled, group=group.id) in refused.out

    def test_a_missing_file_is_reported(self, tools: Tools, group: Group) -> None:
        refused = self.reset(tools, group, "--from-file", "/no/such.csv", "--dry-run")
        message = "Executing consumer group command failed due to java.io.IOException: Unable to read file /no/such.csv"
        assert refused == (0, error(message), "")

    def test_a_group_with_members_is_not_reset(self, tools: Tools, group: Group, filled: str) -> None:
        (member,) = group.join_members(1, topic=filled)
        member.commit(filled, 5)
        refused = self.reset(tools, group, "--topic", filled, "--to-earliest", "--execute")
        assert refused.status == 0
        assert refused.lines[:4] == [
            "",
            f"Error: Assignments can only be reset if the group '{group.id}' is inactive, but the current state is"
            " Stable.",
            "",
            f"{'GROUP':<{len(group.id)}} {'TOPIC':<15} PARTITION  NEW-OFFSET",
        ]
        assert group.committed(filled) == 5

    @pytest.mark.parametrize(
        ("words", "status", "message"),
        [
            ("--to-earliest", 1, "One of the reset scopes should be defined: --all-topics, --topic."),
            ("--all-topics", 1, "Option '[reset-offsets]' requires one of the following scenarios: ["),
            ("--topic t:x --to-latest", 1, "Invalid partition 'x' specified in topic arg 't:x''"),
            ("--topic t:0:1 --to-latest", 1, "Invalid topic arg 't:0:1', expected topic name and partitions"),
            ("--all-topics --shift-by x", 0, "Cannot parse argument 'x' of option shift-by"),
            ("--topic {topic} --by-duration 1D", 0, "Text cannot be parsed to a Duration"),
            ("--topic {topic} --to-datetime 2026-11-15", 0, "java.text.ParseException: Error parsing timestamp."),
            ("--topic {topic}:7 --to-latest", 0, 'The partitions "{topic}-7" do not exist'),
            ("--topic no{topic} --to-latest", 0, "This server does not host this topic-partition."),
        ],
    )
    def test_invalid_resets_are_refused(
        self, tools: Tools, group: Group, filled: str, words: str, status: int, message: str
    ) -> None:
        refused = self.reset(tools, group, "--dry-run", *words.format(topic=filled).split())
        assert refused.status == status
        expected = message.format(topic=filled)
        if status:
            assert refused.out == ""
            assert refused.err.startswith(expected)
        else:
            assert refused.out.startswith(f"\nError: Executing consumer group command failed due to {expected}")


class TestDelete:
    def test_groups_are_deleted(self, tools: Tools, group: Group, filled: str, topic: Callable[[], str]) -> None:
        group.commit(filled, 1)
        done = tools("consumer_groups", "--delete", "--group", group.id)
        assert done == (0, f"Deletion of requested consumer groups ('{group.id}') was successful.\n", "")
        assert group.id not in tools("consumer_groups", "--list").lines
        again = tools("consumer_groups", "--delete", "--group", group.id)
        assert again.out == (
            "\nError: Deletion of some consumer groups failed:\n"
            f"* Group '{group.id}' could not be deleted due to:"
            " org.apache.kafka.common.errors.GroupIdNotFoundException: The group id does not exist.\n"
        )

    def test_a_group_in_use_is_not_deleted(self, tools: Tools, bootstrap: str, group: Group, filled: str) -> None:
        group.join_members(1, topic=filled)
        with Group(bootstrap) as idle:
            idle.commit(filled, 1)
            shown = tools("consumer_groups", "--delete", "--group", group.id, "--group", idle.id)
            assert shown.out == (
                "\nError: Deletion of some consumer groups failed:\n"
                f"* Group '{group.id}' could not be deleted due to:"
                " org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty.\n"
                f"\nThese consumer groups were deleted successfully: '{idle.id}'\n"
            )

    def test_offsets_of_a_partition_are_deleted(self, tools: Tools, group: Group, filled: str) -> None:
        group.commit(filled, 1)
        group.commit(filled, 2, partition=1)
        done = tools("consumer_groups", "--delete-offsets", "--group", group.id, "--topic", f"{filled}:0")
        assert done.lines == [
            f"Request succeeded for deleting offsets from group {group.id}.",
            "",
            f"{'TOPIC':<15} {'PARTITION':<10} {'STATUS':<15}",
            f"{filled:<15} {'0':<10} {'Successful':<15}",
        ]
        assert (group.committed(filled), group.committed(filled, 1)) == (-1, 2)

    def test_offsets_in_use_or_of_unknown_topics_are_not_deleted(self, tools: Tools, group: Group, filled: str) -> None:
        group.join_members(1, topic=filled, protocols=[("range", subscription(filled))])
        shown = tools("consumer_groups", "--delete-offsets", "--group", group.id, "--topic", filled)
        assert shown.lines[1] == "Error: Encountered some partition-level error, see the follow-up details."
        partitions = shown.lines[4:]
        assert len(partitions) == 2
        assert all("GroupSubscribedToTopicException: Deleting offsets of a topic" in line for line in partitions)
        unknown = tools("consumer_groups", "--delete-offsets", "--group", f"no-{group.id}", "--topic", "nosuch")
        assert unknown.lines[1] == "Error: The group id does not exist."
        assert cells(unknown.lines[4])[:3] == ["nosuch", "-", "Error:"]
        assert "UnknownTopicOrPartitionException" in unknown.lines[4]


def test_an_unreachable_broker_is_reported(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "REACH_SECONDS", 0.1)
    nowhere = ("--list", "--bootstrap-server", "127.0.0.1:1")
    result = tools("consumer_groups", *nowhere, address=False)
    assert result.status == 0  # as Kafka's
    assert result.out.startswith(
        "\nError: Executing consumer group command failed due to No broker answers at 127.0.0.1:1"
    )
    result = tools("groups", *nowhere, address=False)
    assert result.status == 1
    assert result.out.startswith("Error while executing groups command : No broker answers at 127.0.0.1:1")


def console_member(bootstrap: str, group: Group, *words: str) -> subprocess.Popen[str]:
    """Start a console consumer in the group, which ends when no more records come."""
    member = ("--group", group.id, "--from-beginning", "--timeout-ms", PATIENCE_MS, "--bootstrap-server", bootstrap)
    return program("kafka-console-consumer.sh", *words, *member)


class TestMembers:
    def test_the_console_consumer_commits_what_it_printed(self, tools: Tools, group: Group, filled: str) -> None:
        reading = ("--topic", filled, "--group", group.id, "--from-beginning", "--timeout-ms", PATIENCE_MS)
        first = tools("console_consumer", *reading, "--max-messages", "3")
        assert (first.out, first.err) == ("0\n1\n2\n", "Processed a total of 3 messages\n")
        assert group.committed(filled) == 3
        assert group.state() == "Empty"
        assert tools("console_consumer", *reading, "--max-messages", "7").out == "3\n4\n5\n6\n7\n8\n9\n"
        assert group.committed(filled) == 10

    def test_a_record_that_cannot_be_printed_is_committed(self, tools: Tools, group: Group, filled: str) -> None:
        reading = ("--topic", filled, "--group", group.id, "--from-beginning", "--timeout-ms", PATIENCE_MS)
        longs = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
        assert tools("console_consumer", *reading, *longs).status == 1
        assert group.committed(filled) == 1

    def test_ctrl_c_commits_and_leaves(self, bootstrap: str, group: Group, filled: str) -> None:
        running = console_member(bootstrap, group, "--topic", filled)
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(10)] == [f"{n}\n" for n in range(10)]
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=PATIENCE_S)[1] == "Processed a total of 10 messages\n"
        assert group.committed(filled) == 10
        assert group.state() == "Empty", "it left before its session expired"

    def test_a_pattern_includes_topics_created_later(
        self, tools: Tools, bootstrap: str, group: Group, create_topic: CreateTopic, topic: Callable[[], str]
    ) -> None:
        stem = topic()
        first = create_topic(name=f"{stem}.1")
        produce(bootstrap, first, "a")
        running = console_member(bootstrap, group, "--include", rf"{stem}\.\d")
        assert running.stdout is not None
        assert running.stdout.readline() == "a\n"
        produce(bootstrap, create_topic(name=f"{stem}.2"), "b")
        assert running.stdout.readline() == "b\n"
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE_S)
        assert (group.committed(first), group.committed(f"{stem}.2")) == (1, 1)

    def test_the_consumer_perf_test_reads_as_a_member(self, tools: Tools, group: Group, filled: str) -> None:
        words = ("--topic", filled, "--group", group.id, "--num-records", "10", "--timeout", PATIENCE_MS)
        shown = tools("consumer_perf", *words, "--hide-header")
        assert shown.out.split(", ")[4] == "10"
        assert group.committed(filled) == 10
        assert group.state() == "Empty"


def test_describe_decodes_the_assignment_of_classic_members(tools: Tools, group: Group, filled: str) -> None:
    """The leader writes the assignment as bytes; the tool decodes them if the protocol type is "consumer"."""
    member = group.member(protocols=[("range", subscription(filled))])
    member.join()
    assert member.sync({member.id: assignment(filled, 0, 1)}).error_code == 0
    shown = tools("consumer_groups", "--describe", "--group", group.id, "--members", "--verbose").lines
    assert cells(shown[2])[-5:] == ["2", "-", f"{filled}:0,1", "-", "-"]
    assert member.sync({}).error_code == 0


def test_a_console_consumer_without_group_option_joins_a_generated_group(
    bootstrap: str, tools: Tools, create_topic: CreateTopic
) -> None:
    name = create_topic()
    reading = program("kafka-console-consumer.sh", "--topic", name, "--from-beginning", "--bootstrap-server", bootstrap)
    assert reading.stdout is not None
    tools("console_producer", "--topic", name, stdin="a\n")
    assert reading.stdout.readline() == "a\n"
    listed = tools("consumer_groups", "--list").lines
    mine = [each for each in listed if re.fullmatch(r"console-consumer-\d{1,5}", each)]
    assert any(name in tools("consumer_groups", "--describe", "--group", each).out for each in mine)
    reading.send_signal(signal.SIGINT)
    assert reading.communicate(timeout=PATIENCE_S) == ("", "Processed a total of 1 messages\n")

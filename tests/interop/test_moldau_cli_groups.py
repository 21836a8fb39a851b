"""`moldau group`, and `moldau consume` as a member of a group, against a running broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from group_members import Group, subscription, until
from harness.patience import PATIENCE_S

from moldau.cli.main import main
from moldau.client.cluster import Cluster
from moldau.spark.exactly_once.wire import KafkaTransactionRequests
from moldau.spark.options import write_options

Run = Callable[..., Result]
CreateTopic = Callable[..., str]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def run(bootstrap: str) -> Run:
    """Return a function that runs the command line in this process, with the broker's address in the environment."""

    def invoke(*words: str, stdin: str | bytes | None = None, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, list(words), input=stdin)
        assert result.exit_code == status, result.stderr
        return result

    return invoke


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def filled(run: Run, create_topic: CreateTopic) -> str:
    """A topic of two partitions that no test writes to: the first has ten records, of which the last is an
    hour old, the one before two hours, and so on; the second has none."""
    name = create_topic(partitions=2)
    now_ms = time.time_ns() // 1_000_000
    envelopes = [{"value": str(n), "partition": 0, "timestamp": now_ms - (10 - n) * HOUR_MS} for n in range(10)]
    run("produce", name, "--json", stdin="\n".join(map(json.dumps, envelopes)))
    return name


def described(run: Run, group: Group) -> dict[str, Any]:
    (found,) = json.loads(run("group", "describe", group.id, "--format", "json").stdout)
    return dict(found)


def refusal(result: Result) -> str:
    assert result.stderr.startswith("moldau: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("moldau: ").rstrip()


class TestDescribe:
    def test_lag_in_records_and_seconds(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 7)
        group.commit(filled, 0, partition=1)
        found = described(run, group)
        behind, at_end = found["partitions"]
        assert (behind["committed"], behind["end"], behind["lag"]) == (7, 10, 3)
        assert 3 * 3600 <= behind["lag_seconds"] < 4 * 3600  # record 7 is three hours and some seconds old
        assert (at_end["lag"], at_end["lag_seconds"]) == (0, 0)
        assert (found["lag"], found["lag_seconds"]) == (3, behind["lag_seconds"])
        assert (found["state"], found["type"], found["members"]) == ("Empty", "Classic", [])

    def test_lag_inside_a_compressed_batch_and_before_the_log_start(
        self, run: Run, group: Group, create_topic: CreateTopic
    ) -> None:
        name = create_topic()
        now_ms = time.time_ns() // 1_000_000
        envelopes = [{"value": "v" * 50, "timestamp": now_ms - (100 - n) * HOUR_MS} for n in range(100)]
        run("produce", name, "--json", "-z", "zstd", stdin="\n".join(map(json.dumps, envelopes)))
        group.commit(name, 40)
        assert 60 * 3600 <= described(run, group)["lag_seconds"] < 61 * 3600  # record 40 is 60 hours old
        run("topic", "trim", name, "--before", "70", "--yes")
        assert 30 * 3600 <= described(run, group)["lag_seconds"] < 31 * 3600  # record 70 is 30 hours old

    def test_members_and_their_partitions(self, run: Run, group: Group, filled: str) -> None:
        leader, other = group.join_members(2, topic=filled, protocols=[("range", subscription(filled))])
        found = described(run, group)
        assert [row["member"] for row in found["partitions"]] == [leader.id, other.id]
        assert [row["lag"] for row in found["partitions"]] == [None, None]
        members = {row["member"]: row for row in found["members"]}
        assert members[leader.id]["partitions"] == {filled: [0]}
        assert members[leader.id]["host"].count(".") == 3
        assert (found["state"], found["protocol"], found["assignor"]) == ("Stable", "consumer", "range")
        assert ":" in found["coordinator"]

    def test_describe_as_a_table(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 7)
        lines = run("group", "describe", group.id).stdout.splitlines()
        assert lines[0].split() == [
            "GROUP",
            "STATE",
            "TYPE",
            "PROTOCOL",
            "ASSIGNOR",
            "COORDINATOR",
            "LAG",
            "LAG",
            "SECONDS",
        ]
        assert lines[1].split()[:4] == [group.id, "Empty", "Classic", "-"]
        assert lines[3].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG", "SECONDS", "MEMBER"]
        assert lines[4].split()[:5] == [filled, "0", "7", "10", "3"]
        assert lines[-1] == "no active members"

    def test_unknown_groups_are_reported(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 1)
        message = refusal(run("group", "describe", group.id, "no-such", "nor-this", status=1))
        assert message == "no group no-such, nor-this; `moldau group list` shows the groups there are"


class TestList:
    def test_state_members_topics_and_lag(self, run: Run, bootstrap: str, group: Group, filled: str) -> None:
        group.commit(filled, 4)
        with Group(bootstrap) as busy:
            busy.consumer([filled]).join()
            rows = {row["group"]: row for row in json.loads(run("group", "list", "--format", "json").stdout)}
            assert rows[group.id] == {
                "group": group.id, "state": "Empty", "type": "Classic", "members": 0, "topics": 1, "lag": 6,
            }  # fmt: skip
            assert (rows[busy.id]["type"], rows[busy.id]["members"], rows[busy.id]["lag"]) == ("Consumer", 1, None)
        header, *table = run("group", "list").stdout.splitlines()
        assert header.split() == ["GROUP", "STATE", "TYPE", "MEMBERS", "TOPICS", "LAG"]
        assert [group.id, "Empty", "Classic", "0", "1", "6"] in [line.split() for line in table]

    def test_completion_offers_groups(self, group: Group, filled: str, bootstrap: str) -> None:
        group.commit(filled, 1)
        for words in (f"moldau group describe {group.id[:-1]}", f"moldau group delete {group.id[:-1]}"):
            env = {"_MOLDAU_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
            result = CliRunner(env=env | {"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, [])
            assert result.stdout.splitlines() == [f"plain,{group.id}"]


class TestReset:
    def plan(self, run: Run, group: Group, *words: str) -> dict[int, tuple[int | None, int]]:
        """Return from where and to where each partition is moved."""
        found = json.loads(run("group", "reset", group.id, "--format", "json", *words).stdout)
        assert found["executed"] is ("--execute" in words)
        return {row["partition"]: (row["before"], row["after"]) for row in found["partitions"]}

    @pytest.mark.parametrize(
        ("where", "after"),
        [
            ("earliest", 0), ("start", 0), ("latest", 10), ("end", 10), ("3", 3), ("99", 10), ("+2", 8), ("-2", 4),
            ("-99", 0), ("current", 6), ("@-150m", 8), ("@-1d", 0), ("@-1s", 10),
        ],
    )  # fmt: skip
    def test_a_plan_changes_nothing(self, run: Run, group: Group, filled: str, where: str, after: int) -> None:
        group.commit(filled, 6)
        assert self.plan(run, group, "--to", where) == {0: (6, after)}
        assert group.committed(filled) == 6

    def test_execute_sets_the_offsets(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 6)
        assert self.plan(run, group, "--to", "2", "--topic", filled, "--execute") == {0: (6, 2), 1: (None, 0)}
        assert (group.committed(filled), group.committed(filled, 1)) == (2, 0)

    def test_the_table_shows_whether_offsets_were_set(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 6)
        shown = run("group", "reset", group.id, "--to", "-2").stdout.splitlines()
        assert shown[0] == f"{group.id}: nothing is changed yet; use --execute"
        assert shown[1].split() == ["TOPIC", "PARTITION", "BEFORE", "AFTER", "MOVE", "LAG"]
        assert shown[2].split() == [filled, "0", "6", "4", "-2", "6"]
        done = run("group", "reset", group.id, "--to", "-2", "--execute").stdout.splitlines()
        assert done[0] == f"{group.id}: offsets are set"

    def test_a_file_of_kafka_consumer_groups(self, run: Run, group: Group, filled: str, tmp_path: Path) -> None:
        group.commit(filled, 6)
        file = tmp_path / "plan.csv"
        file.write_text(f"{filled},0,3\n{filled},1,0\n")
        assert self.plan(run, group, "--from-file", str(file), "--execute") == {0: (6, 3), 1: (None, 0)}
        assert group.committed(filled) == 3
        file.write_text(f"{filled},0,three\n")
        assert "--from-file" in refusal(run("group", "reset", group.id, "--from-file", str(file), status=1))

    def test_a_new_group_needs_the_new_option(self, run: Run, group: Group, filled: str) -> None:
        words = ("group", "reset", group.id, "--to", "end", "--topic", f"{filled}:0", "--execute")
        message = refusal(run(*words, status=1))
        assert message.startswith(
            f"group {group.id} does not exist; `moldau group list` shows the groups there are, and --new"
        )
        run(*words, "--new")
        assert group.committed(filled) == 10

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                "--to earliest --topic no-such-topic",
                "topic no-such-topic does not exist; `moldau topic list` shows the topics there are",
            ),
            ("--to earliest --topic {topic}:0,7", "{topic} has no partition 7; it has 0 to 1"),
            (
                "--to +1 --topic {topic}",
                "{topic} partition 1 has no committed offset to count from; select other partitions",
            ),
            ("--to nowhere", "Invalid value for --to: 'nowhere' is not a position; use earliest, latest, current"),
            ("--to end --topic {topic}:x", "Invalid value for --topic: '{topic}:x' is not a topic with partitions"),
            ("", "choose one: --to WHERE, or --from-file CSV."),
        ],
    )
    def test_invalid_resets_are_refused(self, run: Run, group: Group, filled: str, words: str, message: str) -> None:
        group.commit(filled, 6)
        refused = run("group", "reset", group.id, *words.format(topic=filled).split(), status=1)
        assert refusal(refused).startswith(message.format(topic=filled))
        assert group.committed(filled) == 6

    def test_a_group_with_members_is_not_reset(self, run: Run, group: Group, filled: str) -> None:
        (member,) = group.join_members(1, topic=filled)
        message = refusal(run("group", "reset", group.id, "--to", "earliest", "--topic", filled, "--execute", status=1))
        assert message.startswith(f"group {group.id} has 1 active member: {member.id} (")
        assert message.endswith("; stop it first")


class TestDelete:
    def test_groups_without_members(self, run: Run, group: Group, filled: str) -> None:
        group.commit(filled, 1)
        assert run("group", "delete", group.id, "--yes").stdout == f"deleted {group.id}\n"
        message = refusal(run("group", "delete", group.id, "--yes", status=1))
        assert message.startswith(f"no group {group.id}; ")

    def test_one_group_with_members_prevents_all_deletions(
        self, run: Run, bootstrap: str, group: Group, filled: str
    ) -> None:
        first, second = group.join_members(2, topic=filled, protocols=[("range", subscription(filled))])
        with Group(bootstrap) as idle:
            idle.commit(filled, 1)
            message = refusal(run("group", "delete", idle.id, group.id, "--yes", status=1))
            assert first.id in message
            assert second.id in message
            assert idle.committed(filled) == 1


STORES_MICRO_BATCH_IDS = "stores the id of the last micro-batch that a Spark query wrote to each topic"


class TestMicroBatchIds:
    """A group in which a Spark query stores the id of its last micro-batch instead of an offset."""

    @contextmanager
    def wire(self, bootstrap: str, sink: str) -> Iterator[KafkaTransactionRequests]:
        options = write_options({"kafka.bootstrap.servers": bootstrap}, is_stream=True)
        with closing(Cluster(options.bootstrap, {})) as cluster:
            yield KafkaTransactionRequests(cluster, options, sink, 60_000)

    @pytest.fixture
    def sink(self, bootstrap: str, filled: str) -> str:
        sink = f"shop.big-{uuid.uuid4()}"
        with self.wire(bootstrap, sink) as wire:
            producer = wire.init_producer()
            wire.add_group(producer)
            wire.commit_micro_batch_id(producer, 4, [filled])
            wire.end(producer, commit=True)
            wire.init_producer()  # which waits until the transaction has ended in all partitions
            assert wire.last_micro_batch_id() == 4
        return sink

    def test_the_list_shows_no_lag(self, run: Run, sink: str) -> None:
        rows = {row["group"]: row for row in json.loads(run("group", "list", "--format", "json").stdout)}
        assert rows[sink] == {
            "group": sink, "state": "micro-batch ids", "type": "Classic", "members": 0, "topics": 1, "lag": None,
        }  # fmt: skip
        (line,) = [line for line in run("group", "list").stdout.splitlines() if line.startswith(sink)]
        assert line.split()[1:] == ["micro-batch", "ids", "Classic", "0", "1", "-"]

    def test_describe_shows_the_micro_batch_id(self, run: Run, sink: str, filled: str) -> None:
        lines = run("group", "describe", sink).stdout.splitlines()
        assert lines[1].split()[1:3] == ["micro-batch", "ids"]
        assert lines[1].split()[-2:] == ["-", "-"]
        assert lines[3:6] == [
            f"{sink} {STORES_MICRO_BATCH_IDS}, no offsets: leave it alone",
            f"{'TOPIC':{len(filled)}}  MICRO-BATCH ID",
            f"{filled}  {4:14}",
        ]
        (found,) = json.loads(run("group", "describe", sink, "--format", "json").stdout)
        assert (found["state"], found["lag"], found["lag_seconds"]) == ("micro-batch ids", None, None)
        assert found["partitions"] == [
            {"topic": filled, "partition": 0, "committed": 4, "end": None, "lag": None, "lag_seconds": None,
             "member": None}
        ]  # fmt: skip

    def test_reset_is_refused(self, run: Run, sink: str) -> None:
        message = refusal(run("group", "reset", sink, "--to", "earliest", "--execute", status=1))
        assert message == (
            f"group {sink} cannot be reset: it {STORES_MICRO_BATCH_IDS},"
            " and with other ids the query would write micro-batches twice or skip them"
        )

    def test_delete_needs_yes(self, run: Run, bootstrap: str, sink: str) -> None:
        message = refusal(run("group", "delete", sink, status=1))
        assert message == (
            f"group {sink} is not deleted: it {STORES_MICRO_BATCH_IDS}, and without the ids the query may"
            " write a micro-batch twice; delete it with --yes if the query does not run again"
        )
        with self.wire(bootstrap, sink) as wire:
            assert wire.last_micro_batch_id() == 4
        assert run("group", "delete", sink, "--yes").stdout == f"deleted {sink}\n"

    def test_an_id_without_metadata_is_recognised(self, bootstrap: str, group: Group, filled: str) -> None:
        """As sinks committed them before the metadata distinguished them from offsets."""
        group.commit(filled, 3)
        with self.wire(bootstrap, group.id) as wire:
            assert wire.last_micro_batch_id() == 3

    def test_describe_beside_another_group(self, run: Run, sink: str, group: Group, filled: str) -> None:
        group.commit(filled, 4)
        both = json.loads(run("group", "describe", sink, group.id, "--format", "json").stdout)
        assert [each["lag"] for each in both] == [None, 6]


def test_an_unreachable_broker_is_reported_in_one_line(run: Run) -> None:
    for words in (["list"], ["describe", "g"], ["delete", "g"], ["reset", "g", "--to", "end"]):
        message = refusal(run("group", *words, "-b", "127.0.0.1:1", status=1))
        assert message.startswith(
            "no broker answers at 127.0.0.1:1 (connection refused); start one with `moldau start "
        )


@contextmanager
def killed_at_the_end(running: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a program at the end, or after PATIENCE_S: a test that waits for its next line would wait for ever."""
    deadline = threading.Timer(PATIENCE_S, running.kill)
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()
        running.kill()


class TestMembers:
    def test_only_printed_records_are_committed(self, run: Run, group: Group, filled: str) -> None:
        assert run("consume", filled, "-g", group.id, "-n", "4", "-f", "%v").stdout == "0123"
        assert group.committed(filled) == 4
        assert group.state() == "Empty", "it left at once"
        assert run("consume", filled, "-g", group.id, "-e", "-f", "%v").stdout == "456789"
        assert group.committed(filled) == 10

    def test_consume_with_the_consumer_protocol(self, run: Run, group: Group, filled: str) -> None:
        new = ("-X", "group.protocol=consumer")
        assert run("consume", filled, "-g", group.id, "-n", "3", "-f", "%v", *new).stdout == "012"
        assert group.committed(filled) == 3
        assert group.listed().group_type.lower() == "consumer"

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_commits_and_leaves(self, bootstrap: str, group: Group, filled: str, number: int) -> None:
        command = [sys.executable, "-m", "moldau", "consume", filled, "-g", group.id, "-b", bootstrap]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **piped) as consumer, killed_at_the_end(consumer):
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            assert [consumer.stdout.readline() for _ in range(10)] == [f"{n}\n" for n in range(10)]
            consumer.send_signal(number)
            assert consumer.wait(PATIENCE_S) == 128 + number
            assert consumer.stderr.read() == ""
        assert group.committed(filled) == 10
        assert group.state() == "Empty"

    def test_a_second_member_shares_the_partitions_until_it_leaves(
        self, run: Run, bootstrap: str, group: Group, filled: str
    ) -> None:
        command = [sys.executable, "-m", "moldau", "consume", filled, "-g", group.id, "-b", bootstrap]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as first, killed_at_the_end(first):
            assert first.stdout is not None
            assert [first.stdout.readline() for _ in range(10)] == [f"{n}\n" for n in range(10)]
            assert run("consume", filled, "-g", group.id, "-e").stdout == "", "what the first printed is committed"
            until(lambda: self.held(run, group) == [{filled: [0, 1]}], "the first member owns both partitions again")
            first.send_signal(signal.SIGINT)
            first.wait(PATIENCE_S)
        assert group.state() == "Empty"

    @staticmethod
    def held(run: Run, group: Group) -> list[dict[str, list[int]]]:
        return [member["partitions"] for member in described(run, group)["members"]]

    def test_consume_by_pattern(
        self, run: Run, group: Group, topic: Callable[[], str], create_topic: CreateTopic
    ) -> None:
        stem = topic()
        for digit in "12":
            run("produce", create_topic(name=f"{stem}.{digit}"), stdin=digit)
        shown = run("consume", "-r", rf"{stem}\.\d", "-g", group.id, "-e").stdout
        assert sorted(shown.split()) == ["1", "2"]
        assert group.committed(f"{stem}.1") == group.committed(f"{stem}.2") == 1

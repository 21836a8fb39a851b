"""The tools for transactions: kafka-transactions, `moldau transaction`, and how other tools show transactions.

With MOLDAU_TEST_KAFKA_LIBS, Apache Kafka's own kafka-transactions must print the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_MS, PATIENCE_S, wait_until
from kafka_tools import Tools, shell

from moldau.base.ids import TopicPartition
from moldau.cli.main import main
from moldau.client.cluster import Cluster
from moldau.testing import broker, cluster

CreateTopic = Callable[..., str]
Run = Callable[..., Result]
Begin = Callable[..., "OpenTransaction"]
EXTERNAL = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
TIMEOUT_MS = 120_000
HANGING = "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t\n"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three nodes, or the cluster of MOLDAU_TEST_BOOTSTRAP: a single node would coordinate every transaction."""
    if EXTERNAL:
        yield EXTERNAL
        return
    with cluster(offsets_topic_num_partitions=3, transaction_state_log_num_partitions=6) as running:
        yield running.bootstrap_servers.split(",")[0]


@pytest.fixture(scope="module")
def create_topic(bootstrap: str, admin: AdminClient, topic: Callable[[], str]) -> Iterator[CreateTopic]:
    """Return a function that creates a topic and returns its name once every partition serves, whichever node leads
    it."""
    client = Cluster(bootstrap, {})

    def create(partitions: int = 1) -> str:
        name = topic()
        admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        places = [TopicPartition(name, index) for index in range(partitions)]
        client.retry(lambda: client.latest(places), 15_000)
        return name

    yield create
    client.close()


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Return a function that runs the command line in this process, with the broker's address in the environment."""

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, ["transaction", *words])
        assert result.exit_code == status, result.stderr
        return result

    return invoke


class OpenTransaction:
    """A transactional producer with an unused id and one record in each of some partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.id = f"tools-{uuid.uuid4().hex[:12]}"
        self.topic = topic
        config = {"transactional.id": self.id, "transaction.timeout.ms": TIMEOUT_MS, "log_level": 0}
        self.producer = Producer({"bootstrap.servers": bootstrap, **config})
        self.producer.init_transactions(PATIENCE_S)
        self.write(*range(partitions))

    def write(self, *partitions: int, value: str = "v") -> None:
        self.producer.begin_transaction()
        for partition in partitions:
            self.producer.produce(self.topic, value.encode(), partition=partition)
        assert self.producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self.producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(PATIENCE_S)


@pytest.fixture
def begin(bootstrap: str, create_topic: CreateTopic) -> Iterator[Begin]:
    """Begin transactions. None is left open: the tests' topics are deleted, and markers would wait for them."""
    begun: list[OpenTransaction] = []

    def one(partitions: int = 2, topic: str | None = None) -> OpenTransaction:
        begun.append(OpenTransaction(bootstrap, topic or create_topic(partitions=2), partitions))
        return begun[-1]

    yield one
    for each in begun:
        try:
            each.abort()
        except KafkaException:
            # It has ended already, or another client has ended it.
            continue


def rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a kafka-transactions table whose every line is as long as its first."""
    lines = table.splitlines()
    assert {(len(line), line.count("\t")) for line in lines} == {(len(lines[0]), lines[0].count("\t"))}
    header, *others = ([cell.strip() for cell in line.split("\t")[:-1]] for line in lines)
    return [dict(zip(header, cells, strict=True)) for cells in others]


def state(tools: Tools, transactional_id: str) -> str:
    (row,) = rows(tools("transactions", "describe", "--transactional-id", transactional_id).out)
    return row["TransactionState"]


def leader(tools: Tools, topic: str, partition: int) -> str:
    lines = tools("topics", "--describe", "--topic", topic).lines
    (line,) = (line for line in lines if f"\tPartition: {partition}\t" in line)
    return line.partition("Leader: ")[2].partition("\t")[0]


def await_state(tools: Tools, transactional_id: str, wanted: str) -> None:
    wait_until(lambda: state(tools, transactional_id) == wanted, f"{transactional_id} is {wanted}")


def open_at(tools: Tools, begun: OpenTransaction, partition: int = 0) -> list[str]:
    """Return the start offsets of the open transactions in a partition."""
    words = ("describe-producers", "--topic", begun.topic, "--partition", str(partition))
    described = rows(tools("transactions", *words).out)
    return [row["CurrentTransactionStartOffset"] for row in described if row["CurrentTransactionStartOffset"] != "None"]


class TestKafkaTransactions:
    def test_list_and_its_filters(self, tools: Tools, begin: Begin) -> None:
        begun = begin()

        def listed(*words: str) -> list[dict[str, str]]:
            outcome = tools("transactions", "list", *words)
            assert (outcome.status, outcome.err) == (0, "")
            return rows(outcome.out)

        (row,) = listed("--transactional-id-pattern", f"{begun.id[:-1]}.")
        assert row["TransactionalId"] == begun.id
        assert row["TransactionState"] == "Ongoing"
        assert int(row["Coordinator"]) >= 0
        assert int(row["ProducerId"]) >= 0
        assert row in listed()
        wait_until(lambda: row in listed("--duration-filter", "1"), "it has been open for more than a millisecond")
        assert row not in listed("--duration-filter", "3600000")
        # The pattern has to match the whole id.
        assert listed("--transactional-id-pattern", begun.id[:-1]) == []
        begun.commit()
        await_state(tools, begun.id, "CompleteCommit")

    def test_list_refuses_an_invalid_pattern(self, tools: Tools) -> None:
        outcome = tools("transactions", "list", "--transactional-id-pattern", "[")
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.err.startswith("Failed to list transactions: ListTransactions request sent to broker ")
        assert outcome.err.endswith(
            " failed with an unexpected exception. Enable debug logging for additional detail.\n"
        )

    def test_describe_shows_a_transaction_from_begin_to_end(self, tools: Tools, begin: Begin) -> None:
        before_ms = time.time_ns() // 1_000_000
        begun = begin()
        outcome = tools("transactions", "describe", "--transactional-id", begun.id)
        (row,) = rows(outcome.out)
        assert row["TransactionState"] == "Ongoing"
        assert row["TransactionTimeoutMs"] == str(TIMEOUT_MS)
        assert sorted(row["TopicPartitions"].split(",")) == [f"{begun.topic}-0", f"{begun.topic}-1"]
        now_ms = time.time_ns() // 1_000_000
        assert before_ms - 1000 <= int(row["CurrentTransactionStartTimeMs"]) <= now_ms
        assert 0 <= int(row["TransactionDurationMs"]) <= now_ms - before_ms + 1000
        begun.abort()
        await_state(tools, begun.id, "CompleteAbort")
        (row,) = rows(tools("transactions", "describe", "--transactional-id", begun.id).out)
        assert row["TopicPartitions"] == ""

    @pytest.mark.parametrize(
        ("name", "why"), [("tools-nobody", "because the ID could not be found"), ("", "due to unexpected error")]
    )
    def test_describe_reports_an_unknown_id(self, tools: Tools, name: str, why: str) -> None:
        assert tools("transactions", "describe", "--transactional-id", name) == (
            1,
            "",
            f"Failed to describe transaction state of transactional-id `{name}`: DescribeTransactions request for"
            f" transactionalId `{name}` failed {why}. Enable debug logging for additional detail.\n",
        )

    def test_describe_producers_of_a_partition(self, tools: Tools, begin: Begin) -> None:
        begun = begin()
        begun.commit()
        begun.write(0, 0)

        def describe_producers(*words: str) -> list[dict[str, str]]:
            return rows(tools("transactions", "describe-producers", "--topic", begun.topic, *words).out)

        (row,) = describe_producers("--partition", "0")
        # The record of the first transaction, and its marker, come before.
        assert row["CurrentTransactionStartOffset"] == "2"
        assert int(row["LatestCoordinatorEpoch"]) >= 0
        (other,) = describe_producers("--partition", "1")
        assert other["CurrentTransactionStartOffset"] == "None"
        assert describe_producers("--partition", "0", "--broker-id", leader(tools, begun.topic, 0)) == [row]

    def test_unknown_topics_and_brokers_are_reported(self, tools: Tools, begin: Begin) -> None:
        begun = begin(1)
        not_hosted = "This server does not host this topic-partition.. Enable debug logging for additional detail.\n"
        absent = f"{begun.topic}-absent"
        for words, what in (
            (
                f"describe-producers --topic {absent}",
                f"Failed to describe producers for partition {absent}-0 on leader",
            ),
            (f"abort --start-offset 0 --topic {absent}", f"Failed to validate producer state for partition {absent}-0"),
        ):
            outcome = tools("transactions", *words.split(), "--partition", "0")
            assert outcome == (1, "", f"{what}: {not_hosted}")
        outcome = tools("transactions", "find-hanging", "--topic", absent)
        assert outcome == (1, "", f"Failed to describe 1 topics: {not_hosted}")
        words = ("describe-producers", "--topic", begun.topic, "--partition", "0", "--broker-id", "97")
        assert tools("transactions", *words) == (
            1,
            "",
            f"Failed to describe producers for partition {begun.topic}-0 on broker 97: Timed out waiting for a node"
            " assignment. Call: describeProducers(api=DESCRIBE_PRODUCERS). Enable debug logging for additional"
            " detail.\n",
        )

    def test_find_hanging_ignores_transactions_known_to_their_coordinator(self, tools: Tools, begin: Begin) -> None:
        begun = begin()
        for words in (
            f"--topic {begun.topic}",
            f"--topic {begun.topic} --partition 1",
            f"--topic {begun.topic} --broker-id {leader(tools, begun.topic, 0)}",
            f"--topic {begun.topic} --broker-id 97",
        ):
            found = tools("transactions", "find-hanging", "--max-transaction-timeout", "0", *words.split())
            assert found == (0, HANGING, ""), words

    def test_abort_by_offset_ends_the_transaction_in_one_partition(self, tools: Tools, begin: Begin) -> None:
        begun = begin()
        place = ("--topic", begun.topic, "--partition", "0")
        assert tools("transactions", "abort", *place, "--start-offset", "9") == (
            1,
            "",
            f"Could not find any open transactions starting at offset 9 on partition {begun.topic}-0\n",
        )
        assert open_at(tools, begun) == ["0"]
        assert tools("transactions", "abort", *place, "--start-offset", "0") == (0, "", "")
        assert (open_at(tools, begun), open_at(tools, begun, 1)) == ([], ["0"])
        words = ("--offset", "earliest", "--isolation-level", "read_committed", "--timeout-ms", "1000")
        assert tools("console_consumer", *place, *words).out == ""

    def test_abort_by_producer_id_and_epoch(self, tools: Tools, begin: Begin) -> None:
        begun = begin()
        place = ("--topic", begun.topic, "--partition", "1")
        (row,) = rows(tools("transactions", "describe-producers", *place).out)
        named = ("--producer-id", row["ProducerId"], "--producer-epoch", row["ProducerEpoch"])
        assert tools("transactions", "abort", *place, *named, "--coordinator-epoch", "-1") == (0, "", "")
        assert (open_at(tools, begun), open_at(tools, begun, 1)) == (["0"], [])

    def test_abort_with_a_stale_epoch_is_refused(self, tools: Tools, begin: Begin) -> None:
        begun = begin(1)
        begun.commit()
        place = ("--topic", begun.topic, "--partition", "0")
        (row,) = rows(tools("transactions", "describe-producers", *place).out)
        epoch = int(row["ProducerEpoch"])
        begun.write(0)
        # Fence it, so that its epoch is surely higher; the transaction is aborted with the new epoch.
        assert tools("transactions", "forceTerminateTransaction", "--transactionalId", begun.id).status == 0
        named = ("--producer-id", row["ProducerId"], "--producer-epoch", str(epoch), "--coordinator-epoch", "0")
        spec = (
            f"AbortTransactionSpec(topicPartition={begun.topic}-0, producerId={row['ProducerId']},"
            f" producerEpoch={epoch}, coordinatorEpoch=0)"
        )
        assert tools("transactions", "abort", *place, *named) == (
            1,
            "",
            f"Failed to abort transaction {spec}: WriteTxnMarkers request with {spec} failed due an invalid producer"
            " epoch. Enable debug logging for additional detail.\n",
        )

    def test_force_terminate_fences_the_producer(self, tools: Tools, begin: Begin) -> None:
        begun = begin()
        assert tools("transactions", "forceTerminateTransaction", "--transactionalId", begun.id) == (0, "", "")
        assert (open_at(tools, begun), open_at(tools, begun, 1)) == ([], [])
        with pytest.raises(KafkaException) as fenced:
            begun.commit()
        assert fenced.value.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class TestMoldauTransaction:
    def test_list(self, run: Run, begin: Begin) -> None:
        before_s = time.time()
        begun = begin()
        (row,) = json.loads(run("list", "--match", begun.id, "--format", "json").stdout)
        assert row["transactional_id"] == begun.id
        assert (row["state"], row["partitions"]) == ("Ongoing", 2)
        assert 0 <= row["open_seconds"] <= time.time() - before_s + 1
        assert begun.id in run("list", "--open").stdout
        assert begun.id in run("list", "--state", "ongoing").stdout
        assert begun.id not in run("list", "--longer-than", "1h").stdout
        begun.commit()
        wait_until(lambda: begun.id not in run("list", "--open").stdout, "it has ended")
        (row,) = json.loads(run("list", "--match", begun.id, "--format", "json").stdout)
        assert (row["open_seconds"], row["partitions"]) == (None, None)
        assert run("list", "--match", f"{begun.id}-not").stdout == "no such transactions\n"
        assert run("list", "--match", "[", status=1).stderr == "moldau: --match [: not a regular expression\n"

    def test_describe_shows_where_readers_wait(self, run: Run, begin: Begin) -> None:
        begun = begin()
        begun.commit()
        begun.write(1)
        (described,) = json.loads(run("describe", begun.id, "--format", "json").stdout)
        assert (described["state"], described["timeout_seconds"]) == ("Ongoing", TIMEOUT_MS / 1000)
        assert described["partitions"] == [{"topic": begun.topic, "partition": 1, "start": 2}]
        refused = run("describe", begun.id, "tools-nobody", status=1).stderr
        assert refused.startswith("moldau: no transactional id tools-nobody; `moldau transaction list` shows ")
        assert refused.count("\n") == 1

    def test_producers(self, run: Run, begin: Begin) -> None:
        begun = begin()
        producers = json.loads(run("producers", begun.topic, "--format", "json").stdout)
        assert [(row["partition"], row["start"], row["last_sequence"]) for row in producers] == [(0, 0, 0), (1, 0, 0)]
        (row,) = json.loads(run("producers", begun.topic, "-p", "1", "--format", "json").stdout)
        assert row["partition"] == 1
        assert "has no partition 7; it has 0 to 1" in run("producers", begun.topic, "-p", "7", status=1).stderr
        assert "no broker 97; " in run("producers", begun.topic, "--broker", "97", status=1).stderr

    def test_hanging_ignores_transactions_known_to_their_coordinator(
        self, run: Run, tools: Tools, begin: Begin
    ) -> None:
        begun = begin()
        assert run("hanging", begun.topic, "--longer-than", "0s").stdout == "no transaction hangs\n"
        words = ("hanging", begun.topic, "--longer-than", "0s", "--broker", leader(tools, begun.topic, 0))
        assert run(*words, "--format", "json").stdout == "[]\n"
        assert "no topic tools-nowhere; " in run("hanging", "tools-nowhere", status=1).stderr

    def test_abort_by_transactional_id(self, run: Run, tools: Tools, begin: Begin) -> None:
        begun = begin()
        assert run("abort", begun.id, "--yes").stdout == f"aborted the transaction of {begun.id}\n"
        assert (open_at(tools, begun), open_at(tools, begun, 1)) == ([], [])
        assert f"{begun.id} has no open transaction" in run("abort", begun.id, status=1).stderr

    def test_abort_does_not_create_an_unknown_id(self, run: Run) -> None:
        unknown = f"tools-{uuid.uuid4().hex[:12]}"
        assert f"no transactional id {unknown}; " in run("abort", unknown, status=1).stderr
        assert run("list", "--match", unknown).stdout == "no such transactions\n"

    def test_abort_in_one_partition(self, run: Run, tools: Tools, begin: Begin) -> None:
        begun = begin()
        assert (
            "no open transaction begins at offset 5 of"
            in run("abort", "--at", f"{begun.topic}:1", "--start", "5", status=1).stderr
        )
        printed = run("abort", "--at", f"{begun.topic}:1", "--start", "0").stdout
        assert printed == f"aborted the transaction at offset 0 of {begun.topic} partition 1\n"
        assert (open_at(tools, begun), open_at(tools, begun, 1)) == (["0"], [])

    def test_completion_offers_transactional_ids(self, bootstrap: str, begin: Begin) -> None:
        begun = begin(1)
        words = f"moldau transaction describe -b {bootstrap} {begun.id[:-1]}"
        env = {"_MOLDAU_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        assert f"plain,{begun.id}\n" in CliRunner(env=env).invoke(main, prog_name="moldau").output


class TestOtherTools:
    def consumed(self, tools: Tools, topic: str, *words: str) -> list[str]:
        place = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", PATIENCE_MS)
        return tools("console_consumer", *place, *words).lines

    def test_console_consumer_read_committed_skips_aborted_and_open_transactions(
        self, tools: Tools, begin: Begin
    ) -> None:
        begun = begin(1)
        begun.commit()
        begun.write(0, value="aborted")
        begun.abort()
        begun.write(0, value="kept")
        begun.commit()
        begun.write(0, value="open")
        committed = self.consumed(tools, begun.topic, "--isolation-level", "read_committed", "--max-messages", "2")
        assert committed == ["v", "kept"]
        everything = self.consumed(tools, begun.topic, "--max-messages", "4")
        assert everything == ["v", "aborted", "kept", "open"]
        words = ("--isolation-level", "read_committed", "--offset", "6", "--timeout-ms", "1000")
        place = ("--topic", begun.topic, "--partition", "0")
        assert tools("console_consumer", *place, *words).out == ""

    def test_console_consumer_reads_the_transaction_log(self, bootstrap: str, tools: Tools, begin: Begin) -> None:
        begun = begin(1)
        client = Cluster(bootstrap, {})
        log = client.topic("__transaction_state")
        places = [TopicPartition(log.name, index) for index in log.leaders]
        before = client.latest(places)
        begun.commit()
        found: list[dict[str, Any]] = []

        def has_ended() -> bool:
            now = client.latest(places)
            new_records = [
                self.log_records(tools, each, before[each], now[each]) for each in places if now[each] > before[each]
            ]
            mine = (one for some in new_records for one in some if one["key"]["data"] == {"transactionalId": begun.id})
            found[:] = [one["value"]["data"] for one in mine]
            return len(found) == 2

        wait_until(has_ended, "both records of the end are in the log")
        client.close()
        assert [each["transactionStatus"] for each in found] == [2, 4]  # PrepareCommit, CompleteCommit
        assert [each["transactionPartitions"] for each in found] == [[{"topic": begun.topic, "partitionIds": [0]}], []]

    def log_records(self, tools: Tools, where: TopicPartition, begin: int, end: int) -> list[dict[str, Any]]:
        place = ("--topic", where.topic, "--partition", str(where.partition), "--offset", str(begin))
        formatter = ("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter")
        return objects(tools("console_consumer", *place, *formatter, "--max-messages", str(end - begin)).out)

    def test_producer_perf_test_writes_in_transactions(self, tools: Tools, create_topic: CreateTopic) -> None:
        topic, name = create_topic(), f"tools-{uuid.uuid4().hex[:12]}"
        outcome = tools(
            "producer_perf", "--topic", topic, "--num-records", "300", "--record-size", "10", "--throughput", "1000",
            "--transactional-id", name, "--transaction-duration-ms", "100",
        )  # fmt: skip
        assert (outcome.status, outcome.lines[-1].split(",")[0]) == (0, "300 records sent")
        await_state(tools, name, "CompleteCommit")
        read = self.consumed(tools, topic, "--isolation-level", "read_committed", "--max-messages", "300")
        assert len(read) == 300
        # At least two transactions: each has a marker after its records.
        ends = tools("get_offsets", "--topic", topic).out.strip().rpartition(":")[2]
        assert int(ends) >= 302

    def test_features_shows_transaction_version(self, tools: Tools) -> None:
        (line,) = (line for line in tools("features", "describe").lines if "transaction.version" in line)
        assert [word for word in line.split() if word.isdigit()][:3] == ["0", "2", "2"]


def objects(text: str) -> list[dict[str, Any]]:
    """Return JSON objects that follow one another without separators."""
    found, place = [], 0
    while place < len(text):
        one, place = json.JSONDecoder().raw_decode(text, place)
        found.append(one)
    return found


def test_kafka_transactions_sh_runs(bootstrap: str) -> None:
    outcome = shell(f"bin/kafka-transactions.sh --bootstrap-server {bootstrap} find-hanging")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("The `find-hanging` command requires either --topic or --broker-id ")


def java(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's tools, and drop its client's log lines."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = ["java", quiet, "-cp", f"{KAFKA_LIBS}/*", f"org.apache.kafka.tools.{name}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars")
@pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH")
class TestComparedToApacheKafka:
    def test_kafka_transactions(self, bootstrap: str, tools: Tools, begin: Begin) -> None:
        begun = begin()
        ended = begin(topic=begun.topic)
        ended.commit()
        await_state(tools, ended.id, "CompleteCommit")
        for words in (
            f"list --transactional-id-pattern {begun.id}|{ended.id}",
            f"describe-producers --topic {begun.topic} --partition 0",
            f"find-hanging --topic {begun.topic} --max-transaction-timeout 0",
            "describe --transactional-id tools-nobody",
            f"abort --topic {begun.topic} --partition 0 --start-offset 77",
        ):
            theirs = java("TransactionsCommand", "--bootstrap-server", bootstrap, *words.split())
            ours = tools("transactions", *words.split())
            assert ours == (theirs.returncode, theirs.stdout, theirs.stderr), words

    @pytest.mark.moldau_only
    def test_dump_log(self, tools: Tools) -> None:
        with broker() as running:
            begun = OpenTransaction(running.bootstrap_servers, "dumped", 1)
            begun.abort()
            begun.write(0)
            begun.commit()
            partition = running.data_dir / "dumped-0"
            logs = [log for log in running.data_dir.glob("__transaction_state-*/*.log") if log.stat().st_size]
            log, index = partition / "00000000000000000000.log", partition / "00000000000000000000.txnindex"
            assert "isControl: true" in tools("dump_log", "--files", str(log), address=False).out
            for words in (
                ["--transaction-log-decoder", "--files", str(logs[0])],
                ["--print-data-log", "--files", str(log)],
                ["--files", str(index)],
            ):
                theirs, ours = java("DumpLogSegments", *words), tools("dump_log", *words, address=False)
                assert len(ours.lines) >= 2
                assert ours == (theirs.returncode, theirs.stdout, theirs.stderr), words

"""kafka-reassign-partitions, kafka-leader-election, kafka-metadata-quorum, kafka-features and `moldau cluster describe`
against a cluster of several brokers.

Three nodes of ours, or the cluster of MOLDAU_TEST_BOOTSTRAP. With Apache Kafka's jars (MOLDAU_TEST_KAFKA_LIBS) its own
tools are run with the same arguments and must print the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Outcome, Tools, shell

from moldau.cli.cluster.describe import describe
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.cluster import Cluster

EXTERNAL = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
needs_apache = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("java"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no java is on the PATH",
)
CLASSES = {
    "reassign_partitions": "reassign.ReassignPartitionsCommand",
    "leader_election": "LeaderElectionCommand",
    "metadata_quorum": "MetadataQuorumCommand",
    "features": "FeatureCommand",
    "cluster": "ClusterTool",
}
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if EXTERNAL:
        yield EXTERNAL
        return
    try:
        from moldau.testing import cluster
    except ImportError:
        pytest.skip("moldau.testing has no cluster")
    with cluster(offsets_topic_num_partitions=4) as running:
        yield running.bootstrap_servers.split(",")[0]


@pytest.fixture(scope="module")
def cluster_admin(bootstrap: str) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(Cluster(bootstrap, {}), 15_000) as made:
        yield made


@pytest.fixture(scope="module")
def brokers(cluster_admin: ClusterAdmin) -> list[int]:
    found = sorted(cluster_admin.described().nodes)
    if len(found) < 2:
        pytest.skip("a cluster of one broker has nowhere to move a partition to")
    return found


@pytest.fixture
def create_topic_on(
    admin: AdminClient, cluster_admin: ClusterAdmin, topic: Callable[[], str]
) -> Iterator[Callable[..., str]]:
    """Create a topic with the given replicas, and wait until the broker knows it.

    Reassignments that a test leaves behind are cancelled: they would keep the next test from starting one.
    """
    made = []

    def create(*replicas: list[int], **config: str) -> str:
        name = topic()
        # One in-sync replica must be enough for writing: a partition that moves is not in sync everywhere.
        config = {"min.insync.replicas": "1"} | {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=len(replicas), replica_assignment=list(replicas), config=config)
        admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        wait_until(lambda: name in cluster_admin.topics(), f"{name} is known")
        made.append(name)
        return name

    yield create
    left = [where for where in cluster_admin.reassignments() if where.topic in made]
    if left:
        cluster_admin.alter_reassignments(dict.fromkeys(left))


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., str]:
    """Write the reassignment of one topic's partitions to a file."""

    def write(name: str, *replicas: list[int], **more: Any) -> str:
        rows = [{"topic": name, "partition": index, "replicas": ids} for index, ids in enumerate(replicas)]
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows} | more))
        return str(path)

    return write


def apache(module: str, *words: str, address: str) -> Outcome:
    """Return what Apache's tool of the same name prints for the same arguments, without stack traces."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = ["java", quiet, "-cp", f"{KAFKA_LIBS}/*", f"org.apache.kafka.tools.{CLASSES[module]}"]
    command += ["--bootstrap-server", address, *words] if module in ("metadata_quorum", "features") else [*words]
    if module not in ("metadata_quorum", "features"):
        command += ["--bootstrap-server", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return Outcome(done.returncode, without_traces(done.stdout), without_traces(done.stderr))


def without_traces(text: str) -> str:
    at = re.compile(
        r"\tat |\t\.\.\. |Caused by: |Suppressed: |\s+Suppressed: |(java|org\.apache|com\.fasterxml)\.[\w.]+Exception"
    )
    lines = text.splitlines()
    # The first line of stderr is the message itself, even where it names its class.
    kept = [line for number, line in enumerate(lines) if number == 0 or not at.match(line)]
    return "".join(f"{line}\n" for line in kept).rstrip("\n") + "\n" if kept else ""


def same_as_apache(tools: Tools, module: str, *words: str) -> Outcome:
    ours = tools(module, *words)
    theirs = apache(module, *words, address=tools.bootstrap)
    trimmed = (ours.status, ours.out.rstrip("\n"), ours.err.splitlines()[:1])
    assert trimmed == (theirs.status, theirs.out.rstrip("\n"), theirs.err.splitlines()[:1])
    return ours


def replicas_of(cluster_admin: ClusterAdmin, name: str) -> list[list[int]]:
    return [list(partition.replicas) for partition in cluster_admin.topics()[name].partitions.values()]


def fill(bootstrap: str, name: str, kilobytes: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(kilobytes // 100):
        producer.produce(name, os.urandom(100_000), partition=0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("name", ["reassign-partitions", "leader-election", "metadata-quorum", "features"])
def test_every_tool_has_help(name: str) -> None:
    outcome = shell(f"bin/kafka-{name}.sh --help")
    assert outcome.status == (1 if name in ("reassign-partitions", "leader-election") else 0)  # as Kafka's do
    assert "--bootstrap-server" in outcome.out + outcome.err
    assert "Traceback" not in outcome.err


class TestReassignPartitions:
    def test_a_generated_plan_is_executed_and_verified(
        self,
        tools: Tools,
        cluster_admin: ClusterAdmin,
        brokers: list[int],
        create_topic_on: Callable[..., str],
        tmp_path: Path,
    ) -> None:
        name = create_topic_on([brokers[0]], [brokers[0]])
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"topics": [{"topic": name}], "version": 1}))
        listed = ",".join(map(str, brokers))
        shown = tools("reassign_partitions", "--generate", "--topics-to-move-json-file", str(topics),
                      "--broker-list", listed)  # fmt: skip
        assert (shown.status, shown.err) == (0, "")
        assert [shown.lines[index] for index in (0, 2, 3)] == [
            "Current partition replica assignment",
            "",
            "Proposed partition reassignment configuration",
        ]
        current, proposed = json.loads(shown.lines[1]), json.loads(shown.lines[4])
        assert [(row["replicas"], row["log_dirs"] != ["any"]) for row in current["partitions"]] == [
            ([brokers[0]], True)
        ] * 2
        targets = [row["replicas"] for row in proposed["partitions"]]
        assert len({target[0] for target in targets}) == 2  # two partitions, two leaders
        path = tmp_path / "plan.json"
        path.write_text(shown.lines[4])
        begun = tools("reassign_partitions", "--execute", "--reassignment-json-file", str(path))
        assert begun.lines == [
            "Current partition replica assignment",
            "",
            shown.lines[1],
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            f"Successfully started partition reassignments for {name}-0,{name}-1",
        ]
        self._await_done(tools, path)
        assert replicas_of(cluster_admin, name) == targets

    def _await_done(self, tools: Tools, path: Path) -> None:
        def is_done() -> bool:
            outcome = tools("reassign_partitions", "--verify", "--reassignment-json-file", str(path))
            assert outcome.status == 0
            return "still in progress" not in outcome.out

        wait_until(is_done, "the moves are done")

    def test_throttles_are_set_and_removed_with_a_move(
        self,
        tools: Tools,
        cluster_admin: ClusterAdmin,
        brokers: list[int],
        create_topic_on: Callable[..., str],
        plan: Callable[..., str],
    ) -> None:
        old, new = brokers[:2]
        name = create_topic_on([old])
        path = plan(name, [new])
        begun = tools("reassign_partitions", "--execute", "--reassignment-json-file", path, "--throttle", "70000000",
                      "--replica-alter-log-dirs-throttle", "80000000")  # fmt: skip
        assert begun.lines[5:] == [
            "Warning: You must run --verify periodically, until the reassignment completes,"
            " to ensure the throttle is removed.",
            "The inter-broker throttle limit was set to 70000000 B/s",
            "The replica-alter-dir throttle limit was set to 80000000 B/s",
            f"Successfully started partition reassignment for {name}-0",
        ]

        def configs(kind: str, entity: str) -> str:
            return tools("configs", "--describe", "--entity-type", kind, "--entity-name", entity).out

        def await_config(config: str, kind: str, entity: str) -> None:
            """Wait until a broker has the config, a moment after the controller."""
            wait_until(lambda: f"{config} " in configs(kind, entity), f"{config} of {kind} {entity}")

        await_config(f"leader.replication.throttled.replicas=0:{old}", "topics", name)
        await_config(f"follower.replication.throttled.replicas=0:{new}", "topics", name)
        for broker in (old, new):
            await_config("leader.replication.throttled.rate=70000000", "brokers", str(broker))
            await_config("follower.replication.throttled.rate=70000000", "brokers", str(broker))
        wait_until(lambda: replicas_of(cluster_admin, name) == [[new]], "the move is done")
        kept = tools("reassign_partitions", "--verify", "--reassignment-json-file", path, "--preserve-throttles")
        assert kept.out == f"Status of partition reassignment:\nReassignment of partition {name}-0 is completed.\n\n"
        assert "throttled" in configs("topics", name)
        done = tools("reassign_partitions", "--verify", "--reassignment-json-file", path)
        assert done.lines[3:] == [
            f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}",
            f"Clearing topic-level throttles on topic {name}",
        ]
        wait_until(
            lambda: "throttled" not in configs("topics", name) + configs("brokers", str(old)), "no throttle is left"
        )

    def test_a_running_move_is_listed_and_cancelled(
        self,
        bootstrap: str,
        tools: Tools,
        cluster_admin: ClusterAdmin,
        brokers: list[int],
        create_topic_on: Callable[..., str],
        plan: Callable[..., str],
    ) -> None:
        old, new = brokers[:2]
        name = create_topic_on([old])
        # A throttled fetch takes a mebibyte and then waits for its window of eleven seconds: minutes in which to check.
        fill(bootstrap, name, kilobytes=20_000)
        path = plan(name, [new])
        words = ("--execute", "--reassignment-json-file", path, "--throttle", "1000")
        assert tools("reassign_partitions", *words).status == 0
        try:
            self._check_running_move(tools, name, old, new, path)
        finally:
            cancelled = tools("reassign_partitions", "--cancel", "--reassignment-json-file", path)
        assert cancelled.lines == [
            f"Successfully cancelled partition reassignment for: {name}-0",
            "None of the specified partition moves are active."
            f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}",
            f"Clearing topic-level throttles on topic {name}",
        ]
        assert replicas_of(cluster_admin, name) == [[old]]
        again = tools("reassign_partitions", "--cancel", "--reassignment-json-file", path, "--preserve-throttles")
        assert again.out == (
            "None of the specified partition reassignments are active.\n"
            "None of the specified partition moves are active."
        )
        assert tools("reassign_partitions", "--list").out == "No partition reassignments found.\n"

    def _check_running_move(self, tools: Tools, name: str, old: int, new: int, path: str) -> None:
        shown = tools("reassign_partitions", "--list").out
        assert shown == (
            f"Current partition reassignments:\n{name}-0: replicas: {new},{old}. adding: {new}. removing: {old}.\n"
        )
        verified = tools("reassign_partitions", "--verify", "--reassignment-json-file", path)
        assert (
            verified.out
            == f"Status of partition reassignment:\nReassignment of partition {name}-0 is still in progress.\n\n"
        )
        refused = tools("reassign_partitions", "--execute", "--reassignment-json-file", path)
        assert refused.status == 1
        assert refused.out.startswith(
            "Cannot execute because there is an existing partition assignment.  Use --additional"
        )
        added = tools("reassign_partitions", "--execute", "--additional", "--reassignment-json-file", path,
                      "--throttle", "2000")  # fmt: skip
        assert (added.status, added.lines[-1]) == (0, f"Successfully started partition reassignment for {name}-0")
        drawn = json.loads(described("-t", name, "--format", "json", bootstrap=tools.bootstrap))
        assert drawn["partitions"][0]["note"].endswith(f"moving: +{new} -{old}")

    def test_disallow_replication_factor_change(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str], plan: Callable[..., str]
    ) -> None:
        name = create_topic_on([brokers[0]])
        path = plan(name, brokers[:2])
        refused = tools("reassign_partitions", "--execute", "--reassignment-json-file", path,
                        "--disallow-replication-factor-change")  # fmt: skip
        assert (refused.status, refused.lines[-2:]) == (
            1,
            ["Error reassigning partition(s):", f"{name}-0: The replication factor is changed from 1 to 2"],
        )

    def test_unknown_brokers_topics_and_partitions_are_refused(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str], plan: Callable[..., str]
    ) -> None:
        unknown = "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException:"
        name = create_topic_on([brokers[0]])
        rows: list[tuple[str, list[list[int]], str]] = [
            (name, [[4711]], "Error: Unknown broker id 4711"),
            ("no-such-topic", [[brokers[0]]], f"{unknown} Topic no-such-topic not found."),
            (name, [[brokers[0]]] * 2, f"{unknown} Unable to find partition: {name}-1"),
        ]
        for topic, replicas, expected in rows:
            path = plan(topic, *replicas)
            assert tools("reassign_partitions", "--execute", "--reassignment-json-file", path).out == f"{expected}\n"

    @needs_apache
    def test_the_output_is_the_same_as_apaches(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str], plan: Callable[..., str]
    ) -> None:
        name = create_topic_on([brokers[0]], [brokers[1]])
        path = plan(name, [brokers[0]], [brokers[0]])
        for words in (
            ["--list"],
            ["--verify", "--reassignment-json-file", path, "--preserve-throttles"],
            ["--execute", "--reassignment-json-file", "no-such.json"],
            ["--list", "--verify"],
        ):
            same_as_apache(tools, "reassign_partitions", *words)


class TestLeaderElection:
    def test_leadership_goes_to_the_preferred_replica(
        self,
        tools: Tools,
        cluster_admin: ClusterAdmin,
        brokers: list[int],
        create_topic_on: Callable[..., str],
        plan: Callable[..., str],
    ) -> None:
        first, second = brokers[:2]
        name = create_topic_on([first, second])
        wait_until(lambda: len(cluster_admin.topics()[name].partitions[0].isr) == 2, "both are in sync")
        path = plan(name, [second, first])
        assert tools("reassign_partitions", "--execute", "--reassignment-json-file", path).status == 0
        wait_until(lambda: replicas_of(cluster_admin, name) == [[second, first]], "the order has changed")
        assert cluster_admin.topics()[name].partitions[0].leader == first
        words = ("--election-type", "preferred", "--topic", name, "--partition", "0")
        elected = tools("leader_election", *words)
        assert elected == Outcome(
            0, f"Successfully completed leader election (PREFERRED) for partitions {name}-0\n", ""
        )
        wait_until(lambda: cluster_admin.topics()[name].partitions[0].leader == second, "the preferred replica leads")
        again = tools("leader_election", *words)
        assert again == Outcome(0, f"Valid replica already elected for partitions {name}-0\n", "")

    def test_election_for_partitions_in_a_file(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str], tmp_path: Path
    ) -> None:
        name = create_topic_on([brokers[0]])
        path = tmp_path / "elect.json"
        path.write_text(
            json.dumps({"partitions": [{"topic": name, "partition": 0}, {"topic": "none", "partition": 3}]})
        )
        outcome = tools("leader_election", "--election-type", "unclean", "--path-to-json-file", str(path))
        assert outcome.status == 1
        assert outcome.out == (
            f"Valid replica already elected for partitions {name}-0\n"
            "Error completing leader election (UNCLEAN) for partition: none-3:"
            " org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such topic as none\n"
        )
        assert outcome.err == "1 replica(s) could not be elected\n"

    def test_election_for_all_partitions(self, tools: Tools, brokers: list[int]) -> None:
        assert tools("leader_election", "--election-type", "preferred", "--all-topic-partitions").status == 0

    @needs_apache
    def test_the_output_is_the_same_as_apaches(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str]
    ) -> None:
        name = create_topic_on([brokers[0]])
        for words in (
            ["--election-type", "preferred", "--topic", name, "--partition", "0"],
            ["--election-type", "preferred", "--topic", name, "--partition", "7"],
            ["--election-type", "sloppy", "--topic", name, "--partition", "0"],
        ):
            same_as_apache(tools, "leader_election", *words)


class TestMetadataQuorum:
    STATUS = (
        r"ClusterId: {14}(\S+)\nLeaderId: {15}(\d+)\nLeaderEpoch: {12}\d+\nHighWatermark: {10}\d+\n"
        r"MaxFollowerLag: {9}\d+\nMaxFollowerLagTimeMs: {3}-?\d+\n"
        r"CurrentVoters: {10}(\[.+\])\nCurrentObservers: {7}(\[.*\])\n"
    )

    def test_the_status_from_brokers_and_from_controllers(self, tools: Tools, cluster_admin: ClusterAdmin) -> None:
        outcome = tools("metadata_quorum", "describe", "--status")
        match = re.fullmatch(self.STATUS, outcome.out)
        assert match, outcome
        voters = json.loads(match[3])
        assert int(match[2]) in [voter["id"] for voter in voters]
        assert match[1] == cluster_admin.described().cluster_id
        address = voters[-1]["endpoints"][0].partition("://")[2]
        outcome = tools("metadata_quorum", "--bootstrap-controller", address, "describe", "--status", address=False)
        match = re.fullmatch(self.STATUS, outcome.out)
        assert match, outcome
        assert json.loads(match[3]) == voters

    def test_a_controller_describes_its_configs(self, tools: Tools) -> None:
        status = re.fullmatch(self.STATUS, tools("metadata_quorum", "describe", "--status").out)
        assert status
        voter = next(each for each in json.loads(status[3]) if each["id"] == int(status[2]))
        address = voter["endpoints"][0].partition("://")[2]
        words = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", str(voter["id"]))
        outcome = tools("configs", "--bootstrap-controller", address, *words, address=False)
        assert f"All configs for broker {voter['id']} are:" in outcome.out, outcome
        assert f"  node.id={voter['id']} sensitive=false" in outcome.out

    def test_configs_are_altered_through_any_controller(self, tools: Tools) -> None:
        status = re.fullmatch(self.STATUS, tools("metadata_quorum", "describe", "--status").out)
        assert status
        for voter in json.loads(status[3]):
            address = voter["endpoints"][0].partition("://")[2]
            for which in (("--entity-default",), ("--entity-name", str(voter["id"]))):
                words = ("--bootstrap-controller", address, "--entity-type", "brokers", *which)
                configs = partial(tools, "configs", *words, address=False)
                altered = configs("--alter", "--add-config", "log.retention.ms=7200000")
                assert (altered.status, altered.err) == (0, ""), altered
                wait_until(
                    lambda configs=configs: "  log.retention.ms=7200000 " in configs("--describe").out,
                    "the controller knows the config",
                )
                assert configs("--alter", "--delete-config", "log.retention.ms").status == 0

    def test_replication_is_described(self, tools: Tools) -> None:
        header, leader, *others = tools("metadata_quorum", "describe", "--replication").lines
        assert [cell.strip() for cell in header.split("\t")] == [
            "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status", "",
        ]  # fmt: skip
        assert leader.split("\t")[6].strip() == "Leader"
        assert all(row.split("\t")[6].strip() in ("Follower", "Observer") for row in others)
        readable = tools("metadata_quorum", "describe", "--replication", "--human-readable").lines
        assert re.fullmatch(r"\d+ ms ago\s*", readable[1].split("\t")[5])

    def test_removing_an_unknown_voter_is_refused(self, tools: Tools) -> None:
        refused = tools("metadata_quorum", "remove-controller", "-i", "4711", "-d", NO_ID)
        assert (refused.status, refused.out) == (1, "")
        assert refused.err.startswith("org.apache.kafka.common.errors.")

    @needs_apache
    def test_the_output_is_the_same_as_apaches(self, tools: Tools) -> None:
        for words in (
            ["describe", "--status", "--human-readable"],
            ["remove-controller", "-i", "4711", "-d", NO_ID],
            ["remove-controller", "-i", "2", "-d", NO_ID, "--dry-run"],
        ):
            same_as_apache(tools, "metadata_quorum", *words)


class TestFeatures:
    def test_levels_are_described(self, tools: Tools) -> None:
        lines = tools("features", "describe").lines
        (metadata,) = (line for line in lines if line.startswith("Feature: metadata.version "))
        assert re.fullmatch(
            r"Feature: metadata.version {26}SupportedMinVersion: \d\.\d-IV\d {10}SupportedMaxVersion: 4\.3-IV0 {10}"
            r"FinalizedVersionLevel: 4\.3-IV0 {10}Epoch: \d+",
            metadata,
        )
        assert lines == sorted(lines)

    def test_upgrading_to_the_current_level_is_accepted(self, tools: Tools) -> None:
        outcome = tools("features", "upgrade", "--feature", "group.version=1", "--dry-run")
        assert outcome == Outcome(0, "group.version can be upgraded to 1.\n", "")

    def test_unsupported_feature_levels_are_refused(self, tools: Tools) -> None:
        refused = tools("features", "upgrade", "--feature", "group.version=99", "--feature", "metadata.version=30")
        assert (refused.status, refused.err) == (1, "2 out of 2 operation(s) failed.\n")
        assert refused.lines[0].startswith("Could not upgrade group.version to 99. ")
        assert "Invalid update version 99 for feature group.version." in refused.out

    @needs_apache
    def test_the_output_is_the_same_as_apaches(self, tools: Tools) -> None:
        for words in (
            ["upgrade", "--feature", "foo.version=1"],
            ["disable", "--feature", "foo", "--dry-run"],
            ["version-mapping", "--release-version", "4.0"],
            ["feature-dependencies", "--feature", "eligible.leader.replicas.version=1"],
        ):
            same_as_apache(tools, "features", *words)


class TestKafkaCluster:
    def test_unregistering_an_unknown_broker_is_refused(self, tools: Tools) -> None:
        refused = tools("cluster", "unregister", "--id", "4711")
        assert (refused.status, refused.out) == (1, "")
        assert refused.err == (
            "org.apache.kafka.common.errors.BrokerIdNotRegisteredException:"
            " Broker ID 4711 is not currently registered\n"
        )

    def test_endpoints_of_controllers(self, tools: Tools, cluster_admin: ClusterAdmin) -> None:
        quorum = cluster_admin.quorum()
        endpoint = quorum.endpoints[quorum.leader_id][0]
        address = f"{endpoint.host}:{endpoint.port}"
        header, *rows = tools("cluster", "list-endpoints", "--bootstrap-controller", address, address=False).lines
        assert header.split() == ["ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE"]
        assert [row.split()[-1] for row in rows] == ["controller"] * len(quorum.voters)


def described(*words: str, bootstrap: str) -> str:
    result = CliRunner().invoke(describe, ["-b", bootstrap, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


class TestClusterDescribe:
    def test_the_grid_of_leaders_and_followers(
        self, tools: Tools, cluster_admin: ClusterAdmin, brokers: list[int], create_topic_on: Callable[..., str]
    ) -> None:
        turns = [brokers[index:] + brokers[:index] for index in range(len(brokers))]
        name = create_topic_on(*turns)
        wait_until(
            lambda: all(len(each.isr) == len(brokers) for each in cluster_admin.topics()[name].partitions.values()),
            "all are in sync",
        )
        lines = described("--topic", name, bootstrap=tools.bootstrap).splitlines()
        grid = lines[lines.index(next(line for line in lines if line.startswith("L leads"))) + 1 :]
        columns = grid[0].split()
        assert columns[:2] == ["TOPIC", "PARTITION"]
        for index, row in enumerate(grid[1:]):
            cells = dict(zip(columns, row.split(), strict=False))
            assert [cells[str(broker)] for broker in brokers] == [
                "L" if broker == brokers[index] else "f" for broker in brokers
            ]
            assert cells["ISR"] == f"{len(brokers)}/{len(brokers)}"
        assert len(grid) == 1 + len(brokers)

    def test_group_members_are_shown_beside_their_partitions(
        self, tools: Tools, brokers: list[int], create_topic_on: Callable[..., str]
    ) -> None:
        name = create_topic_on(*[[broker] for broker in (brokers * 2)[:3]])
        common = {"bootstrap.servers": tools.bootstrap, "group.id": f"{name}-readers"}
        readers = [Consumer({**common, "client.id": f"reader-{number}"}) for number in (1, 2, 3)]
        try:
            for reader in readers:
                reader.subscribe([name])

            def is_shared_out() -> bool:
                for reader in readers:
                    reader.poll(0.05)
                return all(len(reader.assignment()) == 1 for reader in readers)

            wait_until(is_shared_out, "each reads one partition")
            drawn = json.loads(described("--group", f"{name}-readers", "--format", "json", bootstrap=tools.bootstrap))
            found = {row["partition"]: row["reader"] for row in drawn["partitions"]}
            assert found == {
                reader.assignment()[0].partition: f"reader-{number}" for number, reader in enumerate(readers, 1)
            }
            assert drawn["group"]["members"] == 3
        finally:
            for reader in readers:
                reader.close()

    def test_an_unknown_topic_is_reported(self, bootstrap: str) -> None:
        result = CliRunner().invoke(describe, ["-b", bootstrap, "--topic", "no-such-topic"])
        assert (result.exit_code, "no topic no-such-topic" in result.output) == (1, True)

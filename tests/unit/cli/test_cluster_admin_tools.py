"""Input and output of kafka-leader-election, kafka-metadata-quorum, kafka-features, kafka-cluster and kafka-storage,
without a cluster."""

from __future__ import annotations

import re
from argparse import Namespace
from itertools import permutations
from pathlib import Path
from types import ModuleType

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, uuid_from_text
from moldau.cli.kafka import features, leader_election, metadata_quorum
from moldau.cli.kafka.cluster import endpoint_lines
from moldau.cli.kafka.connection import controller_file
from moldau.cli.kafka.storage_format import feature_levels
from moldau.cli.kafka.storage_format.initial_controllers import InitialController, parse_voters
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import (
    BrokerNode,
    ElectionType,
    Endpoint,
    Features,
    Quorum,
    QuorumReplica,
    UpgradeType,
)

ID = uuid_from_text("JEXY6aqzQY-32P5TStzaFg")
SERVER = ["--bootstrap-server", "localhost:1"]


class TestLeaderElection:
    def test_partitions_of_a_file(self) -> None:
        text = '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 0}]}'
        assert leader_election.parse_partitions(text) == [TopicPartition("a", 1), TopicPartition("a", 0)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "Replica election data is empty"),
            ("{", "Replica election data is empty"),
            ("[1]", "Expected JSON object, received [1]"),
            ('{"a": 1}', 'Replica election data is missing "partitions" field'),
            ('{"partitions": [{"topic": "a"}]}', "No such field exists: `partition`"),
            (
                '{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}',
                "Replica election data contains duplicate partitions: [a-0]",
            ),
        ],
    )
    def test_invalid_lists_of_partitions_are_refused(self, text: str, message: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(message)):
            leader_election.parse_partitions(text)

    def test_the_report_lists_elected_unneeded_and_failed_elections(self, capsys: pytest.CaptureFixture[str]) -> None:
        outcomes = {
            TopicPartition("a", 0): None,
            TopicPartition("a", 1): KafkaError(ErrorCode.ELECTION_NOT_NEEDED),
            TopicPartition("a", 2): KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it sleeps"),
        }
        with pytest.raises(ToolFailed, match=re.escape("1 replica(s) could not be elected")):
            leader_election.report(ElectionType.PREFERRED, outcomes)
        assert capsys.readouterr().out.splitlines() == [
            "Successfully completed leader election (PREFERRED) for partitions a-0",
            "Valid replica already elected for partitions a-1",
            "Error completing leader election (PREFERRED) for partition: a-2:"
            " org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: it sleeps",
        ]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--topic", "t", "--partition", "0"], "Missing required option(s): bootstrap-server, election-type"),
            (
                [*SERVER, "--election-type", "preferred"],
                "One and only one of the following options is required: topic,",
            ),
            ([*SERVER, "--election-type", "preferred", "--topic", "t"], "Missing required option(s): partition"),
            (
                [*SERVER, "--election-type", "preferred", "--partition", "1", "--all-topic-partitions"],
                "Option partition is only allowed if topic is used",
            ),
            (
                [*SERVER, "--election-type", "sloppy", "--all-topic-partitions"],
                "Cannot parse argument 'sloppy' of option election-type",
            ),
        ],
    )
    def test_invalid_combinations_of_flags_are_reported(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert leader_election.main(words) == 1
        assert capsys.readouterr().err.startswith(message)


def replica(number: int, end: int, caught_up_ms: int = 1000) -> QuorumReplica:
    return QuorumReplica(number, ID if number == 2 else bytes(16), end, caught_up_ms, caught_up_ms)


class TestMetadataQuorum:
    QUORUM = Quorum(
        2,
        7,
        100,
        (replica(1, 90, 400), replica(2, 101)),
        (replica(9, 80, -1),),
        {2: (Endpoint("CONTROLLER", "::1", 9093), Endpoint("OTHER", "h", 1))},
    )

    def test_the_status(self) -> None:
        assert metadata_quorum.status_text("id", self.QUORUM).splitlines() == [
            "ClusterId:              id",
            "LeaderId:               2",
            "LeaderEpoch:            7",
            "HighWatermark:          100",
            "MaxFollowerLag:         11",
            "MaxFollowerLagTimeMs:   600",
            'CurrentVoters:          [{"id": 1}, {"id": 2, "directoryId": "JEXY6aqzQY-32P5TStzaFg",'
            ' "endpoints": ["CONTROLLER://[::1]:9093", "OTHER://h:1"]}]',
            'CurrentObservers:       [{"id": 9}]',
        ]

    def test_a_single_leader_has_no_lag(self) -> None:
        alone = Quorum(1, 7, 100, (replica(1, 101, -1),), (), {})
        assert "MaxFollowerLag:         0\nMaxFollowerLagTimeMs:   0\n" in metadata_quorum.status_text("id", alone)
        unheard = Quorum(2, 7, 100, (replica(1, 0, -1), replica(2, 101)), (), {})
        assert "MaxFollowerLagTimeMs:   -1\n" in metadata_quorum.status_text("id", unheard)

    def test_the_replication_table(self) -> None:
        rows = metadata_quorum.replication_table(self.QUORUM, None).splitlines()
        assert [[cell.strip() for cell in row.split("\t")] for row in rows[1:]] == [
            ["2", "JEXY6aqzQY-32P5TStzaFg", "101", "0", "1000", "1000", "Leader", ""],
            ["1", "AAAAAAAAAAAAAAAAAAAAAA", "90", "11", "400", "400", "Follower", ""],
            ["9", "AAAAAAAAAAAAAAAAAAAAAA", "80", "21", "-1", "-1", "Observer", ""],
        ]
        assert len({len(row) for row in rows}) == 1
        readable = metadata_quorum.replication_table(self.QUORUM, 1500).splitlines()
        assert readable[2].split("\t")[4].strip() == "1100 ms ago"
        with pytest.raises(ToolFailed, match="possible drift in system clock"):
            metadata_quorum.replication_table(self.QUORUM, 999)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["describe"], "One of --status or --replication must be specified with describe sub-command"),
            (["describe", "--status", "--replication"], "Only one of --status or --replication should be specified"),
            (["describe", "--status", "--human-readable"], "The option --human-readable is only supported along with"),
            (["add-controller"], "You must supply the configuration file of the controller you are adding"),
            (["remove-controller", "-i", "-3", "-d", "x"], "Invalid negative --controller-id: -3"),
            (["remove-controller", "-i", "3", "-d", "nope"], "Failed to parse --controller-directory-id: Input string"),
            (["--command-config", "no-such", "describe"], "Properties file no-such does not exists!"),
        ],
    )
    def test_invalid_combinations_of_flags_are_reported(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert metadata_quorum.main([*SERVER, *words]) == 1
        assert capsys.readouterr().err.startswith(message)

    def test_missing_arguments_are_reported_as_in_kafka(self, capsys: pytest.CaptureFixture[str]) -> None:
        for words, message in (
            ([], "too few arguments"),
            ([*SERVER, "remove-controller"], "argument --controller-id/-i is required"),
        ):
            assert metadata_quorum.main(words) == 1
            assert capsys.readouterr().err.splitlines()[-1] == f"kafka-metadata-quorum: error: {message}"

    def test_a_dry_run_sends_no_request(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        words = ["remove-controller", "-i", "3", "-d", "JEXY6aqzQY-32P5TStzaFg", "--dry-run"]
        assert metadata_quorum.main([*SERVER, *words]) == 0
        message = "DRY RUN of removing  KRaft controller 3 with directory id JEXY6aqzQY-32P5TStzaFg\n"
        assert capsys.readouterr().out == message
        (tmp_path / "meta.properties").write_text(
            "version=1\ncluster.id=c\nnode.id=3\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\n"
        )
        file = tmp_path / "controller.properties"
        file.write_text(
            f"node.id=3\nprocess.roles=controller\nlog.dirs={tmp_path}\n"
            "listeners=CONTROLLER://:9093\ncontroller.listener.names=controller\n"
        )
        assert metadata_quorum.main([*SERVER, "--command-config", str(file), "add-controller", "--dry-run"]) == 0
        assert capsys.readouterr().out == (
            "DRY RUN of adding controller 3 with directory id JEXY6aqzQY-32P5TStzaFg"
            " and endpoints: CONTROLLER://localhost:9093\n"
        )

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({}, "node.id not found in configuration file."),
            ({"node.id": "-1"}, "node.id was negative"),
            ({"node.id": "1", "process.roles": "broker"}, "process.roles did not contain 'controller'"),
        ],
    )
    def test_settings_that_are_not_of_a_controller_are_refused(self, settings: dict[str, str], message: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(message)):
            controller_file.controller_id(settings)

    def test_endpoints_of_a_controller(self) -> None:
        listeners = {"listeners": "A://a:1,C://:2", "advertised.listeners": "C://[::1]:3"}
        found = controller_file.controller_endpoints(listeners | {"controller.listener.names": "c"})
        assert found == [Endpoint("C", "::1", 3)]
        ports = {"listeners": "C://c:65535", "controller.listener.names": "C"}
        assert controller_file.controller_endpoints(ports) == [Endpoint("C", "c", 65535)]
        with pytest.raises(ToolFailed, match="Unable to parse a listener: C://c:65536; its port is greater than 65535"):
            controller_file.controller_endpoints(ports | {"listeners": "C://c:65536"})
        with pytest.raises(ToolFailed, match="Cannot find information about controller listener name: X"):
            controller_file.controller_endpoints(listeners | {"controller.listener.names": "x"})
        with pytest.raises(ToolFailed, match=re.escape("Neither metadata.log.dir nor log.dirs were found")):
            controller_file.metadata_directory({})


class TestFeatures:
    def test_a_line_for_each_feature(self) -> None:
        known = Features({"metadata.version": (7, 30), "a": (0, 2)}, {"metadata.version": 30}, None)
        assert features.feature_lines(known) == [
            f"Feature: {'a':<40}  SupportedMinVersion: {'0':<15}  SupportedMaxVersion: {'2':<15}"
            f"  FinalizedVersionLevel: {'0':<15}  Epoch: -",
            f"Feature: {'metadata.version':<40}  SupportedMinVersion: {'3.3-IV3':<15}"
            f"  SupportedMaxVersion: {'4.3-IV0':<15}  FinalizedVersionLevel: {'4.3-IV0':<15}  Epoch: -",
        ]

    @pytest.mark.parametrize(
        ("release", "levels"), [("3.3-IV3", "000000"), ("3.9", "100000"), ("4.0", "121000"), ("4.3.1", "121111")]
    )
    def test_levels_of_releases(self, release: str, levels: str) -> None:
        head, *lines = feature_levels.mapping_lines(release)
        assert head.endswith(f" ({release})")
        assert "".join(line.partition("=")[2] for line in lines) == levels

    def test_versions_by_name(self) -> None:
        assert feature_levels.version_of("3.7").level == 19
        assert feature_levels.version_of("4.4-IV0").level == 31
        for name, with_unreleased in (("2.8", True), ("4.4", True), ("4.4-IV0", False)):
            with pytest.raises(
                ToolFailed, match=f"Unknown metadata.version '{name}'. Supported metadata.version are: 3"
            ):
                feature_levels.version_of(name, with_unreleased)

    def test_dependencies_of_a_level(self) -> None:
        assert feature_levels.dependency_lines("eligible.leader.replicas.version", 1) == [
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)",
        ]
        assert feature_levels.dependency_lines("metadata.version", 20) == [
            "metadata.version=20 (3.8-IV0) has no dependencies."
        ]
        for name, level, message in (
            ("foo", 1, "Unknown feature: foo"),
            ("metadata.version", 99, "Unknown metadata.version 99"),
            ("group.version", 9, "No feature:group.version with feature level 9"),
        ):
            with pytest.raises(ToolFailed, match=message):
                feature_levels.dependency_lines(name, level)

    def levels(self, kind: UpgradeType = UpgradeType.UPGRADE, **arguments: object) -> dict[str, int]:
        base = {"command": "upgrade", "feature": None, "metadata": None, "release_version": None}
        return features.requested_levels(Namespace(**(base | arguments)), kind)

    def test_requested_levels(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.levels(feature=["a=1", "b = 2"]) == {"a": 1, "b": 2}
        assert self.levels(metadata="4.2") == {"metadata.version": 29}
        assert capsys.readouterr().out == " `metadata` flag is deprecated and may be removed in a future release.\n"
        assert self.levels(release_version="3.9") == {"metadata.version": 21, "kraft.version": 1}
        assert self.levels(UpgradeType.SAFE_DOWNGRADE, release_version="3.9")["share.version"] == 0
        assert self.levels(command="disable", feature=["a"]) == {"a": 0}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"feature": ["foo"]}, "Can't parse feature=level string foo: equals sign not found."),
            ({"feature": ["foo=x"]}, "Can't parse feature=level string foo=x: unable to parse x as a short."),
            ({"feature": ["foo=1", "foo=2"]}, "Feature foo was specified more than once."),
            ({"feature": ["a=1"], "release_version": "4.3"}, "Can not specify `release-version` with other feature"),
        ],
    )
    def test_invalid_requested_levels_are_refused(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(message)):
            self.levels(**arguments)

    @pytest.mark.parametrize(
        ("verb", "refusal", "dry_run", "line"),
        [
            ("upgrade", None, False, "a was upgraded to 1."),
            ("downgrade", None, True, "a can be downgraded to 1."),
            ("disable", None, False, "a was disabled."),
            ("upgrade", "no", False, "Could not upgrade a to 1. no"),
            ("disable", "no", True, "Can not disable a. no"),
        ],
    )
    def test_the_line_of_an_update(self, verb: str, refusal: str | None, dry_run: bool, line: str) -> None:
        error = KafkaError(ErrorCode.INVALID_UPDATE_VERSION, refusal) if refusal else None
        assert features.update_line(verb, "a", 1, error, dry_run) == line

    def test_a_wrong_command_line_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        for words, message in (
            ([], "too few arguments"),
            (["feature-dependencies"], "argument --feature is required"),
            (["describe"], "You must specify either --bootstrap-controller or --bootstrap-server."),
        ):
            assert features.main(words) == 1
            assert capsys.readouterr().err == f"Command line error: {message}. Type --help for help.\n"


@pytest.mark.parametrize("tool", [features, metadata_quorum])
@pytest.mark.parametrize("flags", list(permutations(["--bootstrap-server", "--bootstrap-controller"])))
def test_both_bootstrap_flags_around_the_command_are_refused(
    tool: ModuleType, flags: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([flags[0], "localhost:1", "describe", flags[1], "localhost:2"]) == 1
    message = "argument --bootstrap-controller: not allowed with argument --bootstrap-server"
    assert message in capsys.readouterr().err


class TestFirstVoters:
    def test_voters(self) -> None:
        text = "2@[::1]:9093:JEXY6aqzQY-32P5TStzaFg,1@host:0:AAAAAAAAAAAAAAAAAAAAAQ"
        assert parse_voters(text) == [
            InitialController(1, "host", 0, uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ")),
            InitialController(2, "::1", 9093, ID),
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (",", "No voters given."),
            ("foo", "No @ found in dynamic voter string."),
            ("@h:1:x", "Invalid @ at beginning of dynamic voter string."),
            ("x@h:1:y", "Failed to parse node id in dynamic voter string."),
            ("1_0@h:1:y", "Failed to parse node id in dynamic voter string."),
            ("\uff11@h:1:y", "Failed to parse node id in dynamic voter string."),
            ("2147483648@h:1:y", "Failed to parse node id in dynamic voter string."),
            (f"{'1' * 5000}@h:1:y", "Failed to parse node id in dynamic voter string."),
            ("-1@h:1:y", "Invalid negative node id -1 in dynamic voter string."),
            ("1@", "No hostname found after node id."),
            ("1@[::1:1:x", "Hostname began with left bracket, but no right bracket was found."),
            ("1@[::1]1:x", "Port section must start with a colon."),
            ("1@h", "No colon following hostname could be found."),
            ("1@h:1", "No colon following port could be found."),
            ("1@h:p:x", "Failed to parse port in dynamic voter string."),
            ("1@h:9_093:x", "Failed to parse port in dynamic voter string."),
            ("1@h: 9093:x", "Failed to parse port in dynamic voter string."),
            ("1@h:65536:x", "Invalid port 65536 in dynamic voter string."),
            ("1@h:1:x", "Failed to parse directory ID in dynamic voter string."),
            (
                "1@h:1:JEXY6aqzQY-32P5TStzaFg,1@h:1:JEXY6aqzQY-32P5TStzaFg",
                "Node id 1 was specified more than once.",
            ),
        ],
    )
    def test_invalid_voters_are_refused(self, text: str, message: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(message)):
            parse_voters(text)


def test_endpoints_of_brokers_and_of_controllers() -> None:
    nodes = [BrokerNode(1, "127.0.0.1", 9092, None, False), BrokerNode(2, "h", 9093, "rack", True)]
    assert endpoint_lines(nodes, are_controllers=False) == [
        "ID         HOST      PORT       RACK STATE      ENDPOINT_TYPE  ",
        "1          127.0.0.1 9092       null unfenced   broker         ",
        "2          h         9093       rack fenced     broker         ",
    ]
    assert endpoint_lines(nodes[:1], are_controllers=True) == [
        "ID         HOST      PORT       RACK       ENDPOINT_TYPE  ",
        "1          127.0.0.1 9092       null       controller     ",
    ]

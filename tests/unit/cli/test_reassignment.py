"""What kafka-reassign-partitions parses, computes and prints, without a cluster."""

from __future__ import annotations

import random
import re
from typing import cast

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import UsageError
from moldau.cli.kafka import reassign_partitions
from moldau.cli.kafka.reassign_partitions import selected_action
from moldau.cli.kafka.reassignment import log_dir_moves
from moldau.cli.kafka.reassignment.lines import PlainFailure, raise_for_errors, reassignment_line, status_lines
from moldau.cli.kafka.reassignment.plan import (
    check_for_execution,
    parse_brokers,
    parse_plan,
    parse_topics,
    plan_json,
)
from moldau.cli.kafka.reassignment.proposal import chosen_racks, propose
from moldau.cli.kafka.reassignment.throttles import Move, clear_throttles, proposed_moves, throttled_replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.cluster_values import (
    BrokerNode,
    DescribedCluster,
    PartitionReplicas,
    Reassignment,
    Replica,
    ReplicaLogDir,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
SERVER = ["--bootstrap-server", "localhost:1"]


class TestPlan:
    def test_partitions_and_directories(self) -> None:
        plan = parse_plan(
            '{"version": 1, "partitions": ['
            '{"topic": "t", "partition": 1, "replicas": [1, 2], "log_dirs": ["any", "/d"]},'
            ' {"topic": "t", "partition": 0, "replicas": [3]}]}'
        )
        assert plan.rows == [(T1, [1, 2]), (T0, [3])]
        assert plan.log_dirs == {Replica("t", 1, 2): "/d"}
        check_for_execution(plan)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "The input string shouldn't be empty"),
            ("{nope", "at line 1, column 2"),
            ('{"a\n', "Invalid control character at line 1, column 4"),
            ("[1]", "Expected JSON object, received [1]"),
            ('{"version": 2}', "Not supported version field value 2"),
            ('{"version": "1"}', 'Expected `Integer` value, received "1"'),
            ('{"partitions": {"a": 1}}', 'Expected JSON array, received {"a":1}'),
            ('{"partitions": [1]}', "Expected JSON object, received 1"),
            ('{"partitions": [{"topic": "t"}]}', "No such field exists: `partition`"),
            ('{"partitions": [{"topic": 1, "partition": 0}]}', "Expected `String` value, received 1"),
            ('{"partitions": [{"topic": "t", "partition": true}]}', "Expected `Integer` value, received true"),
            (
                '{"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}',
                "Expected `JSON array` value, received 1",
            ),
            (
                '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}]}',
                "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition t-0",
            ),
        ],
    )
    def test_invalid_plans_are_refused(self, text: str, message: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(message)):
            parse_plan(text)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([], "Partition reassignment list cannot be empty"),
            ([(0, "[]")], "Partition replica list cannot be empty"),
            ([(0, "[1]"), (0, "[2]")], "Partition reassignment contains duplicate topic partitions: t-0"),
            (
                [(0, "[1, 1]"), (1, "[2, 3, 2, 3]")],
                "Partition replica lists may not contain duplicate entries:"
                " t-0 contains multiple entries for 1. t-1 contains multiple entries for 2,3",
            ),
        ],
    )
    def test_plans_that_can_be_verified_but_not_executed(self, rows: list[tuple[int, str]], message: str) -> None:
        listed = ",".join(f'{{"topic": "t", "partition": {index}, "replicas": {ids}}}' for index, ids in rows)
        plan = parse_plan(f'{{"partitions": [{listed}]}}')
        with pytest.raises(ToolFailed, match=re.escape(message)):
            check_for_execution(plan)

    def test_a_plan_is_written_as_by_kafka(self) -> None:
        text = plan_json({T1: [2], T0: [1, 3]}, {Replica("t", 0, 3): "/data"})
        assert text == (
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,3],"log_dirs":["any","/data"]},'
            '{"topic":"t","partition":1,"replicas":[2],"log_dirs":["any"]}]}'
        )
        assert parse_plan(text).replicas == {T0: [1, 3], T1: [2]}

    def test_topics_to_move(self) -> None:
        assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}]}') == ["a", "b"]
        with pytest.raises(ToolFailed, match=re.escape("List of topics to reassign contains duplicate entries: [a]")):
            parse_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
        for text in ("", "{"):
            with pytest.raises(ToolFailed, match="The input string is not a valid JSON"):
                parse_topics(text)

    def test_brokers(self) -> None:
        assert parse_brokers("3,1") == [3, 1]
        with pytest.raises(ToolFailed, match=re.escape("Broker list contains duplicate entries: [1]")):
            parse_brokers("1,2,1")
        with pytest.raises(ToolFailed, match='For input string: "x"'):
            parse_brokers("1,x")

    @pytest.mark.parametrize(
        ("text", "brokers"), [("1,2,", [1, 2]), ("1,2,,", [1, 2]), ("+1,-2,03", [1, -2, 3]), (",", [])]
    )
    def test_brokers_are_split_and_parsed_as_in_java(self, text: str, brokers: list[int]) -> None:
        assert parse_brokers(text) == brokers

    @pytest.mark.parametrize(
        ("text", "refused"),
        [
            ("1_0", "1_0"),
            ("1, 2", " 2"),
            ("1,,2", ""),
            (",1", ""),
            ("", ""),
            ("1,2147483648", "2147483648"),
            pytest.param("9" * 5000, "9" * 5000, id="thousands of digits"),
            ("1\n", "1\n"),
        ],
    )
    def test_only_javas_integers_are_brokers(self, text: str, refused: str) -> None:
        with pytest.raises(ToolFailed, match=f'^For input string: "{refused}"$'):
            parse_brokers(text)


class TestThrottles:
    def test_a_new_move_goes_from_current_to_added_replicas(self) -> None:
        moves = proposed_moves({}, {T0: [2, 3]}, {T0: [1, 2]})
        assert moves == {T0: Move(frozenset({1, 2}), frozenset({3}))}

    def test_a_moving_partition_keeps_its_sources(self) -> None:
        active = {T0: Reassignment((3, 1), (3,), (1,)), T1: Reassignment((2, 1), (2,), (1,))}
        moves = proposed_moves(active, {T0: [4]}, {T0: [3, 1]})
        assert moves == {T0: Move(frozenset({1}), frozenset({4})), T1: Move(frozenset({1}), frozenset({2}))}

    def test_throttled_replicas_are_listed_by_partition(self) -> None:
        moves = {T0: Move(frozenset({1, 2}), frozenset({3})), T1: Move(frozenset({10}), frozenset())}
        assert throttled_replicas(moves) == {
            "t": {
                "leader.replication.throttled.replicas": "0:1,0:2,1:10",
                "follower.replication.throttled.replicas": "0:3",
            }
        }


class ClusterWithAStoppedBroker:
    """A fake ClusterAdmin: broker 2 does not answer, the others accept every request."""

    cluster = None

    def __init__(self) -> None:
        self.changed: list[tuple[int | None, str]] = []

    def described(self) -> DescribedCluster:
        nodes = {broker: BrokerNode(broker, "localhost", 9092, None, False) for broker in (1, 3)}
        return DescribedCluster("cluster", 1, nodes)

    def ask(
        self, key: ApiKey, request: IncrementalAlterConfigsRequest, response_type: object, node_id: int | None = None
    ) -> IncrementalAlterConfigsResponse:
        if node_id == 2:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "There is no node 2 in the cluster")
        (resource,) = request.resources
        self.changed.append((node_id, resource.resource_name))
        return IncrementalAlterConfigsResponse()


def test_throttles_are_cleared_on_other_brokers_if_one_is_stopped() -> None:
    plan = parse_plan('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}')
    admin = ClusterWithAStoppedBroker()
    with pytest.raises(KafkaError, match="There is no node 2"):
        clear_throttles(cast(ClusterAdmin, admin), plan)
    assert admin.changed == [(1, "1"), (3, "3"), (None, "t")]


class TestLines:
    def test_the_progress_of_partitions(self) -> None:
        target = {T2: [1], T1: [2], T0: [3]}
        active = {T2: Reassignment((1, 2), (1,), (2,))}
        current = {T0: PartitionReplicas(3, (3,), (3,)), T2: PartitionReplicas(2, (1, 2), (2,))}
        assert status_lines(target, active, current) == [
            "Reassignment of partition t-0 is completed.",
            "There is no active reassignment of partition t-1, but replica set is  rather than 2.",
            "Reassignment of partition t-2 is still in progress.",
        ]

    def test_an_active_move(self) -> None:
        assert reassignment_line(T0, Reassignment((3, 1), (3,), (1,))) == "t-0: replicas: 3,1. adding: 3. removing: 1."
        assert reassignment_line(T0, Reassignment((3, 1), (3,), ())) == "t-0: replicas: 3,1. adding: 3."

    def test_errors_are_sorted_and_raised_together(self) -> None:
        raise_for_errors("title", {T0: None})
        with pytest.raises(PlainFailure) as failure:
            raise_for_errors(
                "title", {T1: KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), T0: KafkaError(ErrorCode.NONE, "no")}
            )
        assert str(failure.value) == "title\nt-0: no\nt-1: This server does not host this topic-partition."

    @pytest.mark.parametrize(
        ("log_dir", "message"),
        [
            (ReplicaLogDir(None, None), "Partition t-0 is not found in any live log dir on broker 7."),
            (ReplicaLogDir("/new", None), "Reassignment of replica t-0-7 completed successfully."),
            (ReplicaLogDir("/old", None), "t-0 on broker 7 is not being moved from log dir /old to /new."),
            (ReplicaLogDir("/old", "/new"), "Reassignment of replica t-0-7 is still in progress."),
            (ReplicaLogDir("/old", "/x"), "t-0 on broker 7 is being moved to log dir /x instead of /new."),
        ],
    )
    def test_a_replica_between_directories(self, log_dir: ReplicaLogDir, message: str) -> None:
        assert message in log_dir_moves.status_line(Replica("t", 0, 7), log_dir, "/new")


class TestProposal:
    def test_racks_count_for_all_brokers_or_for_none(self) -> None:
        nodes = {1: BrokerNode(1, "h", 1, "a", False), 2: BrokerNode(2, "h", 2, None, False)}
        with pytest.raises(ToolFailed, match=re.escape("Not all brokers have rack information. Add --disable")):
            chosen_racks(nodes, [1, 2], rack_aware=True)
        assert chosen_racks(nodes, [1, 2], rack_aware=False) == {1: None, 2: None}
        assert chosen_racks(nodes, [1, 9], rack_aware=True) == {1: "a"}

    def test_a_factor_that_cannot_be_reached_fails_the_tool(self) -> None:
        with pytest.raises(ToolFailed, match="The target replication factor of 2 cannot be reached because only 1"):
            propose({T0: [1, 2]}, {1: None}, random.Random(0))

    def test_topics_keep_their_number_of_replicas(self) -> None:
        proposed = propose({T0: [1], T1: [1], TopicPartition("u", 0): [1, 2]}, {1: None, 2: None}, random.Random(1))
        assert {where: len(replicas) for where, replicas in proposed.items()} == {
            T0: 1,
            T1: 1,
            TopicPartition("u", 0): 2,
        }


class TestFlags:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (SERVER, "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
            ([*SERVER, "--list", "--verify"], "Command must include exactly one action"),
            (["--list"], "Please specify either --bootstrap-server or --bootstrap-controller"),
            ([*SERVER, "--list", "--bootstrap-controller", "x:1"], "Please don't specify both"),
            ([*SERVER, "--verify"], 'Missing required argument "[reassignment-json-file]"'),
            ([*SERVER, "--list", "--throttle", "5"], 'Option "[throttle]" can\'t be used with action "[list]"'),
            (
                ["--execute", "--reassignment-json-file", "f", "--bootstrap-controller", "x:1"],
                'Option "[bootstrap-controller]" can\'t be used with action "[execute]"',
            ),
            (
                [*SERVER, "--execute", "--reassignment-json-file", "f", "--throttle", "5_0"],
                "Cannot parse argument '5_0' of option throttle",
            ),
            (
                [*SERVER, "--execute", "--reassignment-json-file", "f", "--timeout", "soon"],
                "Cannot parse argument 'soon' of option timeout",
            ),
        ],
    )
    def test_invalid_combinations_of_flags_are_refused(self, words: list[str], message: str) -> None:
        with pytest.raises(UsageError, match=re.escape(message)):
            selected_action(reassign_partitions.FLAGS.parse(words))

    def test_a_missing_file_is_reported_before_connecting(self, capsys: pytest.CaptureFixture[str]) -> None:
        status = reassign_partitions.main([*SERVER, "--verify", "--reassignment-json-file", "no-such.json"])
        assert (status, capsys.readouterr().out) == (1, "Error: Unable to read file no-such.json\n")

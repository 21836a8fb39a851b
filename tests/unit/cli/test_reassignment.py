"""What kafka-reassign-partitions reads, computes and says, without a cluster."""

from __future__ import annotations

import random
import re
from collections import Counter

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
from moldau.cli.kafka.reassignment.replica_placer import place
from moldau.cli.kafka.reassignment.throttles import Move, proposed_moves, throttled_replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.cluster_values import BrokerNode, PartitionReplicas, Reassignment, Replica, ReplicaLogDir

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
        ("text", "said"),
        [
            ("", "The input string shouldn't be empty"),
            ("{nope", "at line 1, column 2"),
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
    def test_what_is_not_a_plan(self, text: str, said: str) -> None:
        with pytest.raises(ToolFailed, match=re.escape(said)):
            parse_plan(text)

    @pytest.mark.parametrize(
        ("rows", "said"),
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
    def test_what_can_be_verified_but_not_executed(self, rows: list[tuple[int, str]], said: str) -> None:
        listed = ",".join(f'{{"topic": "t", "partition": {index}, "replicas": {ids}}}' for index, ids in rows)
        plan = parse_plan(f'{{"partitions": [{listed}]}}')
        with pytest.raises(ToolFailed, match=re.escape(said)):
            check_for_execution(plan)

    def test_it_is_written_as_kafka_writes_it(self) -> None:
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


class TestThrottles:
    def test_a_new_move_goes_from_the_replicas_there_are_to_those_there_are_not(self) -> None:
        moves = proposed_moves({}, {T0: [2, 3]}, {T0: [1, 2]})
        assert moves == {T0: Move(frozenset({1, 2}), frozenset({3}))}

    def test_a_partition_on_its_way_goes_from_where_it_was(self) -> None:
        under_way = {T0: Reassignment((3, 1), (3,), (1,)), T1: Reassignment((2, 1), (2,), (1,))}
        moves = proposed_moves(under_way, {T0: [4]}, {T0: [3, 1]})
        assert moves == {T0: Move(frozenset({1}), frozenset({4})), T1: Move(frozenset({1}), frozenset({2}))}

    def test_replicas_are_named_partition_by_partition(self) -> None:
        moves = {T0: Move(frozenset({1, 2}), frozenset({3})), T1: Move(frozenset({10}), frozenset())}
        assert throttled_replicas(moves) == {
            "t": {
                "leader.replication.throttled.replicas": "0:1,0:2,1:10",
                "follower.replication.throttled.replicas": "0:3",
            }
        }


class TestLines:
    def test_how_far_partitions_are(self) -> None:
        wanted = {T2: [1], T1: [2], T0: [3]}
        under_way = {T2: Reassignment((1, 2), (1,), (2,))}
        current = {T0: PartitionReplicas(3, (3,), (3,)), T2: PartitionReplicas(2, (1, 2), (2,))}
        assert status_lines(wanted, under_way, current) == [
            "Reassignment of partition t-0 is completed.",
            "There is no active reassignment of partition t-1, but replica set is  rather than 2.",
            "Reassignment of partition t-2 is still in progress.",
        ]

    def test_a_move_under_way(self) -> None:
        assert reassignment_line(T0, Reassignment((3, 1), (3,), (1,))) == "t-0: replicas: 3,1. adding: 3. removing: 1."
        assert reassignment_line(T0, Reassignment((3, 1), (3,), ())) == "t-0: replicas: 3,1. adding: 3."

    def test_refusals_come_sorted_and_all_together(self) -> None:
        raise_for_errors("title", {T0: None})
        with pytest.raises(PlainFailure) as told:
            raise_for_errors(
                "title", {T1: KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), T0: KafkaError(ErrorCode.NONE, "no")}
            )
        assert str(told.value) == "title\nt-0: no\nt-1: This server does not host this topic-partition."

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            (ReplicaLogDir(None, None), "Partition t-0 is not found in any live log dir on broker 7."),
            (ReplicaLogDir("/new", None), "Reassignment of replica t-0-7 completed successfully."),
            (ReplicaLogDir("/old", None), "t-0 on broker 7 is not being moved from log dir /old to /new."),
            (ReplicaLogDir("/old", "/new"), "Reassignment of replica t-0-7 is still in progress."),
            (ReplicaLogDir("/old", "/x"), "t-0 on broker 7 is being moved to log dir /x instead of /new."),
        ],
    )
    def test_a_replica_between_directories(self, found: ReplicaLogDir, said: str) -> None:
        assert said in log_dir_moves.status_line(Replica("t", 0, 7), found, "/new")


class TestProposal:
    @pytest.mark.parametrize("seed", range(20))
    def test_every_broker_leads_and_holds_as_many_as_every_other(self, seed: int) -> None:
        placed = place(dict.fromkeys((1, 2, 5)), 6, 2, random.Random(seed))
        assert all(len(set(replicas)) == 2 for replicas in placed)
        assert set(Counter(replicas[0] for replicas in placed).values()) == {2}
        assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {4}

    @pytest.mark.parametrize("seed", range(20))
    def test_replicas_lie_in_different_racks(self, seed: int) -> None:
        racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
        placed = place(racks, 12, 3, random.Random(seed))
        assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in placed)
        assert max(Counter(replicas[0] for replicas in placed).values()) <= 3

    def test_more_replicas_than_brokers(self) -> None:
        with pytest.raises(ToolFailed, match="The target replication factor of 2 cannot be reached because only 1"):
            place({1: None}, 1, 2, random.Random(0))
        with pytest.raises(ToolFailed, match="All brokers are currently fenced"):
            place({}, 1, 2, random.Random(0))

    def test_racks_count_for_all_brokers_or_for_none(self) -> None:
        nodes = {1: BrokerNode(1, "h", 1, "a", False), 2: BrokerNode(2, "h", 2, None, False)}
        with pytest.raises(ToolFailed, match=re.escape("Not all brokers have rack information. Add --disable")):
            chosen_racks(nodes, [1, 2], rack_aware=True)
        assert chosen_racks(nodes, [1, 2], rack_aware=False) == {1: None, 2: None}
        assert chosen_racks(nodes, [1, 9], rack_aware=True) == {1: "a"}

    def test_topics_keep_their_number_of_replicas(self) -> None:
        proposed = propose({T0: [1], T1: [1], TopicPartition("u", 0): [1, 2]}, {1: None, 2: None}, random.Random(1))
        assert {where: len(replicas) for where, replicas in proposed.items()} == {
            T0: 1,
            T1: 1,
            TopicPartition("u", 0): 2,
        }


class TestFlags:
    @pytest.mark.parametrize(
        ("words", "said"),
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
        ],
    )
    def test_what_does_not_go_together(self, words: list[str], said: str) -> None:
        with pytest.raises(UsageError, match=re.escape(said)):
            selected_action(reassign_partitions.FLAGS.parse(words))

    def test_a_file_that_is_not_there_is_told_before_anybody_is_called(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status = reassign_partitions.main([*SERVER, "--verify", "--reassignment-json-file", "no-such.json"])
        assert (status, capsys.readouterr().out) == (1, "Error: Unable to read file no-such.json\n")

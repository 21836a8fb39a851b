"""What `moldau cluster describe` computes from a cluster's responses, and how it is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.cluster import drawing as cluster_drawing
from moldau.cli.cluster.describe import chosen_topics
from moldau.cli.connect import CommandFailed
from moldau.cli.output import plain_lines, to_yaml
from moldau.client.admin.cluster_values import (
    BrokerNode,
    DescribedCluster,
    Endpoint,
    PartitionReplicas,
    Quorum,
    QuorumReplica,
    TopicReplicas,
)
from moldau.client.admin.group_values import DescribedGroup, Member, Node
from moldau.operations import cluster_overview
from moldau.operations.cluster_overview import ClusterOverview, PartitionRow

NODES = {number: BrokerNode(number, "localhost", 9091 + number, None, number == 3) for number in (1, 2, 3)}
ORDERS = TopicReplicas(
    "orders",
    False,
    {
        0: PartitionReplicas(1, (1, 2, 3), (1, 2, 3)),
        1: PartitionReplicas(2, (2, 3, 1), (2, 1)),
        2: PartitionReplicas(-1, (3, 9), (9,)),
    },
)
OFFSETS = TopicReplicas("__consumer_offsets", True, {0: PartitionReplicas(1, (1,), (1,))})
QUORUM = Quorum(
    2,
    5,
    40,
    (QuorumReplica(1, bytes(16), 41, 900, 900), QuorumReplica(2, bytes(16), 42, 1000, 1000)),
    (QuorumReplica(3, bytes(16), 2, -1, -1),),
    {2: (Endpoint("CONTROLLER", "localhost", 9193),)},
)


def member(number: int, *partitions: int, client_id: str = "") -> Member:
    assignment = frozenset(TopicPartition("orders", index) for index in partitions)
    return Member(f"id-00000{number}", None, client_id or f"reader-{number}", "/127.0.0.1", assignment)


GROUP = DescribedGroup(
    "readers", "Consumer", "consumer", "Stable", "range", Node(2, "h", 1), (member(1, 0), member(2, 1), member(3))
)


def overview(
    group: DescribedGroup | None = None,
    topics: tuple[TopicReplicas, ...] = (ORDERS,),
    hidden: tuple[TopicReplicas, ...] = (OFFSETS,),
) -> ClusterOverview:
    return ClusterOverview(
        "abc",
        cluster_overview.broker_rows(DescribedCluster("abc", 1, NODES), [ORDERS, OFFSETS]),
        QUORUM,
        cluster_overview.controller_rows(QUORUM, 1500),
        cluster_overview.partition_rows(topics, {}, cluster_overview.readers_of(group)),
        group,
        cluster_overview.idle_members(group),
        cluster_overview.health_of([*topics, *hidden]),
    )


def drawn(shown: ClusterOverview) -> list[str]:
    tables = cluster_drawing.tables(shown, cluster_drawing.LETTERS)
    return [line for table in tables for line in [*plain_lines(table), ""]]


def test_the_whole_drawing_in_letters() -> None:
    assert drawn(overview(GROUP)) == [
        "cluster abc: 2 of 4 brokers up, 1 topic, 3 partitions; 1 offline, 2 under-replicated",
        "BROKER  ADDRESS         RACK  STATE         CONTROLLER  LEADS  REPLICAS",
        "     1  localhost:9092  -     up            -               2         3",
        "     2  localhost:9093  -     up            active          1         2",
        "     3  localhost:9094  -     fenced        -               0         3",
        "     9  -               -     unregistered  -               0         1",
        "",
        "metadata quorum: epoch 5, high watermark 40",
        "NODE  ROLE      ADDRESS         LOG END  LAG  CAUGHT UP",
        "   2  leader    localhost:9193       42    0  500 ms ago",
        "   1  voter     -                    41    1  600 ms ago",
        "   3  observer  -                     2   40  -",
        "",
        "group readers: Stable, 3 members, coordinated by broker 2, reading nothing: reader-3\n"
        "L leads   f follows in sync   x not in sync   . no replica",
        "TOPIC   PARTITION  1  2  3  9  ISR  READ BY   NOTE",
        "orders          0  L  f  f  .  3/3  reader-1",
        "orders          1  f  L  x  .  2/3  reader-2  not in sync: 3",
        "orders          2  .  .  x  f  1/2  -         offline; not in sync: 3",
        "",
    ]


def test_a_healthy_cluster_has_no_notes() -> None:
    healthy = TopicReplicas("orders", False, {0: ORDERS.partitions[0]})
    lines = drawn(overview(topics=(healthy,)))
    assert lines[-3:-1] == ["TOPIC   PARTITION  1  2  3  9  ISR", "orders          0  L  f  f  .  3/3"]
    assert "; all in sync" in lines[0]


def test_the_summary_counts_troubles_in_topics_that_are_not_shown() -> None:
    healthy = TopicReplicas("orders", False, {0: ORDERS.partitions[0]})
    broken = TopicReplicas("__consumer_offsets", True, {0: PartitionReplicas(1, (1, 2), (1,))})
    shown = overview(topics=(healthy,), hidden=(broken,))
    assert drawn(shown)[0].endswith("1 topic, 1 partition; in all topics: 1 under-replicated")
    assert cluster_overview.as_data(shown)["under_replicated"] == 1
    nothing = overview(topics=(), hidden=(broken,))
    assert drawn(nothing)[0].endswith("0 topics, 0 partitions; in all topics: 1 under-replicated")


def test_replica_signs_and_their_colours() -> None:
    row = PartitionRow("t", 0, 1, (1, 2, 3), (1, 2), None, "")
    signs = [cluster_drawing.sign(row, broker, cluster_drawing.SYMBOLS) for broker in (1, 2, 3, 4)]
    assert "".join(signs) == "●○◌·"
    assert [sign.style for sign in signs] == ["bold green", "cyan", "bold red", "dim"]


def test_control_characters_in_names_of_idle_members_are_escaped() -> None:
    group = replace(GROUP, members=(member(1, client_id="a\x1b[2J\nb"),))
    (title,) = [text for text in drawn(overview(group)) if "reading nothing" in text]
    assert r"reading nothing: a\x1b[2J\nb" in title
    assert "\x1b" not in title


def test_which_topics_are_shown() -> None:
    topics = {"orders": ORDERS, "__consumer_offsets": OFFSETS, "other": TopicReplicas("other", False, {})}

    def names(*requested: str, group: DescribedGroup | None = None, internal: bool = False) -> list[str]:
        return [topic.name for topic in chosen_topics(topics, requested, group, internal)]

    assert names() == ["orders", "other"]
    assert names(internal=True) == ["__consumer_offsets", "orders", "other"]
    assert names("__consumer_offsets") == ["__consumer_offsets"]
    assert names(group=GROUP) == ["orders"]
    assert names(group=replace(GROUP, members=())) == ["orders", "other"]
    assert names("other", group=GROUP) == ["other"]
    with pytest.raises(CommandFailed, match="no topic x, y; `moldau topic list` shows"):
        names("x", "other", "y")


def test_data_for_programs_has_no_tuples_and_no_styles() -> None:
    data = cluster_overview.as_data(overview(GROUP))
    assert data["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "leader": 2,
        "replicas": [2, 3, 1],
        "isr": [2, 1],
        "reader": "reader-2",
        "note": "not in sync: 3",
    }
    assert data["controller"]["leader"] == 2
    assert (data["under_replicated"], data["leaderless"], data["group"]["idle"]) == (2, 1, ["reader-3"])
    assert "- topic: orders" in to_yaml(data)


def test_ipv6_addresses_are_in_brackets() -> None:
    nodes = {1: BrokerNode(1, "::1", 9092, None, False)}
    quorum = replace(QUORUM, endpoints={2: (Endpoint("CONTROLLER", "fe80::2", 9193),)})
    assert [row.address for row in cluster_overview.broker_rows(DescribedCluster("abc", 1, nodes), [])] == [
        "[::1]:9092"
    ]
    assert cluster_overview.controller_rows(quorum, 1500)[0].address == "[fe80::2]:9193"

"""The lines of kafka-share-groups. Expectations are what Apache Kafka 4.3.1's own tool printed for the same groups."""

from __future__ import annotations

import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.kafka import share_groups
from moldau.cli.kafka.group_offsets import share_lines
from moldau.client.admin.group_values import DescribedGroup, ListedGroup, Member, Node, ShareOffset

ORDERS, PAYMENTS = ([TopicPartition(topic, index) for index in range(3)] for topic in ("orders", "payments"))
MEMBERS = (
    Member("og4Rno8PSV6++dEmeU1FQA", None, "a-client-of-the-warehouse", "/127.0.0.1", frozenset(ORDERS[1:2]), epoch=3),
    Member(
        "NqqHYCdiQZGdZXdiWl+f2Q",
        None,
        "billing",
        "/127.0.0.1",
        frozenset({ORDERS[0], ORDERS[2], PAYMENTS[0], PAYMENTS[1]}),
        epoch=3,
    ),
)
GROUP = DescribedGroup("g", "Share", "share", "Stable", "simple", Node(1, "127.0.0.1", 29192), MEMBERS, 3, 3)


def test_members_are_sorted_and_columns_as_wide_as_kafkas() -> None:
    assert list(share_lines.members(GROUP, verbose=True)) == [
        "",
        "GROUP           CONSUMER-ID            HOST            CLIENT-ID                 #PARTITIONS  MEMBER-EPOCH"
        "  ASSIGNMENT",
        "g               NqqHYCdiQZGdZXdiWl+f2Q /127.0.0.1      billing                   4            3           "
        "  orders:0,2;payments:0,1",
        "g               og4Rno8PSV6++dEmeU1FQA /127.0.0.1      a-client-of-the-warehouse 1            3           "
        "  orders:1",
    ]
    assert list(share_lines.members(GROUP, verbose=False))[1:] == [
        "GROUP           CONSUMER-ID            HOST            CLIENT-ID                 #PARTITIONS  ASSIGNMENT",
        "g               NqqHYCdiQZGdZXdiWl+f2Q /127.0.0.1      billing                   4            "
        "orders:0,2;payments:0,1",
        "g               og4Rno8PSV6++dEmeU1FQA /127.0.0.1      a-client-of-the-warehouse 1            orders:1",
    ]


def test_a_partition_that_the_group_has_not_begun_to_read_has_dashes() -> None:
    found = {ORDERS[1]: ShareOffset(3, 0, 12), ORDERS[0]: None, PAYMENTS[0]: ShareOffset(7)}
    assert list(share_lines.offsets("g", found, verbose=True)) == [
        "",
        "GROUP           TOPIC           PARTITION  LEADER-EPOCH  START-OFFSET  LAG",
        "g               orders          0          -             -             -",
        "g               orders          1          0             3             12",
        "g               payments        0          -             7             -",
    ]
    assert list(share_lines.offsets("g", found, verbose=False))[1:3] == [
        "GROUP           TOPIC           PARTITION  START-OFFSET  LAG",
        "g               orders          0          -             -",
    ]
    assert list(share_lines.offsets("g", {}, verbose=True)) == ["", "Share group 'g' has no offset information."]


def test_the_state_of_a_group() -> None:
    assert list(share_lines.state(GROUP, verbose=True)) == [
        "",
        "GROUP           COORDINATOR (ID)          STATE           GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS",
        "g               127.0.0.1:29192  (1)      Stable          3            3                 2",
    ]
    assert list(share_lines.state(GROUP, verbose=False))[1:] == [
        "GROUP           COORDINATOR (ID)          STATE           #MEMBERS",
        "g               127.0.0.1:29192  (1)      Stable          2",
    ]


def test_a_listing_is_as_wide_as_the_longest_name() -> None:
    groups = [ListedGroup("it-share-2579571e8235", "Share", "share", "Empty"), ListedGroup("g", "Share", "share", "")]
    assert list(share_lines.listing(groups)) == [
        "GROUP                 STATE",
        "it-share-2579571e8235 Empty",
        "g                     Unknown",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--list", 'Missing required argument "[bootstrap-server]"'),
        ("{} --list --members", "Option(s) [members] are unavailable given other options on the command line"),
        ("{} --describe", "Option [describe] takes one of these options: [all-groups], [group]"),
        ("{} --delete", "Option [delete] takes the options [group] or [all-groups]"),
        ("{} --reset-offsets --group g", "Option [reset-offsets] takes the option: [execute] or [dry-run]"),
        (
            "{} --reset-offsets --group g --topic t --dry-run",
            "Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]",
        ),
        ("{} --group g", "Command must include exactly one action: --list, --describe, --delete, --reset-offsets,"),
    ],
)
def test_a_wrong_command_line_is_rejected_before_a_connection(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.format("--bootstrap-server localhost:1").split()
    assert share_groups.main(words) == 1
    assert capsys.readouterr().err.startswith(message)

"""The parts of kafka-consumer-groups and kafka-groups that need no broker, compared with Java's output.

Expectations are what Apache Kafka 4.3.1's own tool printed for the same input.
"""

from __future__ import annotations

import sys

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments
from moldau.cli.kafka import consumer_groups, groups
from moldau.cli.kafka.group_offsets import lines, reset_plan
from moldau.cli.kafka.group_offsets.choice import WrongArgument, parse_states, split_topics
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.group_values import (
    CLASSIC,
    CONSUMER,
    STATES,
    Committed,
    DescribedGroup,
    ListedGroup,
    Member,
    Node,
    decode_assignment,
)

NOW_MS = 1_800_000_000_000
COORDINATOR = Node(1, "127.0.0.1", 9092)


def at(*names: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, int(index)) for topic, _, index in (name.rpartition("-") for name in names))


class TestDates:
    @pytest.mark.parametrize(
        ("text", "moment_ms"),
        [
            ("2026-11-15T00:00:00.000", 1794700800000),
            ("2026-11-15T00:00:00.000Z", 1794700800000),
            ("2026-11-15T00:00:00.000+01:00", 1794697200000),
            ("2026-11-15T00:00:00.000-0130", 1794706200000),
            ("2026-11-15T00:00:00.000+01", 1794697200000),
            ("2026-11-15T00:00:00.5", 1794700800005),  # Java counts milliseconds, not decimals
            ("2026-1-5T0:0:0.0", 1767571200000),
            ("2026-11-15T00:00:00.000Zjunk", 1794700800000),
        ],
    )
    def test_dates_are_read_as_by_java(self, text: str, moment_ms: int) -> None:
        assert reset_plan.parse_date_time(text) == moment_ms

    @pytest.mark.parametrize("text", ["2026-11-15", "abc", "abT", ""])
    def test_dates_without_a_time_are_refused(self, text: str) -> None:
        with pytest.raises(ToolFailed, match="does not contain a 'T' according to ISO8601"):
            reset_plan.parse_date_time(text)

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("2026-11-15T00:00:00", "2026-11-15T00:00:00Z"),
            ("2026-13-15T00:00:00.000", "2026-13-15T00:00:00.000Z"),
            ("2026-02-30T00:00:00.000", "2026-02-30T00:00:00.000Z"),
            ("2026-11-15T24:00:00.000", "2026-11-15T24:00:00.000Z"),
            ("2026-11-15T00:00:00.1234", "2026-11-15T00:00:00.1234Z"),
            ("2147483648-01-01T00:00:00.000", "2147483648-01-01T00:00:00.000Z"),
        ],
    )
    def test_invalid_dates_are_refused_with_the_zone_added(self, text: str, shown: str) -> None:
        with pytest.raises(ToolFailed) as refused:
            reset_plan.parse_date_time(text)
        assert str(refused.value) == f'java.text.ParseException: Unparseable date: "{shown}"'


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "ago_ms"),
        [
            ("P1D", 86_400_000), ("PT1H", 3_600_000), ("p1dt2h", 93_600_000), ("PT0.5S", 500), ("PT-0.5S", -500),
            ("P-1D", -86_400_000), ("-PT1H", -3_600_000), ("+P1DT-1H", 82_800_000), ("PT1.S", 1000),
        ],
    )  # fmt: skip
    def test_durations_are_counted_back_from_now(self, text: str, ago_ms: int) -> None:
        assert reset_plan.parse_duration(text, NOW_MS) == NOW_MS - ago_ms

    @pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1M", "PT1D", "P1H", "PT.5S", "P1.5D", "P1D2H"])
    def test_invalid_durations_are_refused(self, text: str) -> None:
        with pytest.raises(ToolFailed, match=r"^Text cannot be parsed to a Duration$"):
            reset_plan.parse_duration(text, NOW_MS)

    def test_durations_beyond_javas_instants_are_refused(self) -> None:
        with pytest.raises(ToolFailed, match="Instant exceeds minimum or maximum instant"):
            reset_plan.parse_duration("PT99999999999999H", NOW_MS)

    @pytest.mark.parametrize("text", ["PT10000000000000000S", "-PT10000000000000000S"])
    def test_durations_beyond_a_long_are_refused(self, text: str) -> None:
        with pytest.raises(ToolFailed, match=r"^long overflow$"):
            reset_plan.parse_duration(text, NOW_MS)


class TestPlans:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("orders,0,5\norders,1,7\n", {"orders-0": 5, "orders-1": 7}),
            ("orders,0,5\r\norders,1,3\r\n", {"orders-0": 5, "orders-1": 3}),
            ("orders, 0, 5", {"orders-0": 5}),
            ('"orders",0,5', {"orders-0": 5}),
            ('"a,""b""",0,5', {'a,"b"-0': 5}),
            ("orders,0", {"orders-0": 0}),
            ("orders,0,", {"orders-0": 0}),
            ("orders,,5", {"orders-0": 5}),
            ("orders,0,5,", {"orders-0": 5}),
            ("orders,0,5, \r\n", {"orders-0": 5}),
            ('orders,0,5,""', {"orders-0": 5}),
            ("g,orders,0,5,", {"orders-0": 5}),
            ("orders,0,5\norders,0,9\n\n", {"orders-0": 9}),
            ("g,orders,0,5\nother,orders,1,6", {"orders-0": 5}),
        ],
    )
    def test_a_plan_of_one_group(self, text: str, expected: dict[str, int]) -> None:
        plan = reset_plan.parse_plan(text, ["g"])
        assert {str(where): offset for where, offset in plan["g"].items()} == expected

    def test_a_plan_of_many_groups(self) -> None:
        plan = reset_plan.parse_plan("a,orders,0,5\nb,orders,1,6\n", ["a", "b"])
        assert plan == {"a": {TopicPartition("orders", 0): 5}, "b": {TopicPartition("orders", 1): 6}}

    def test_a_plan_of_blank_lines_is_empty(self) -> None:
        assert reset_plan.parse_plan("\n", ["g"]) == {}

    @pytest.mark.parametrize("text", ["", "orders,0,5\n\norders,1,7\n"])
    def test_a_plan_with_an_empty_line_is_refused(self, text: str) -> None:
        with pytest.raises(ToolFailed, match="No content to map due to end-of-input"):
            reset_plan.parse_plan(text, ["g"])

    @pytest.mark.parametrize(
        ("text", "message", "column", "field"),
        [
            ("orders,0,5\norders,bad,7", 'from String "bad"', 8, 'NoGroup["partition"]'),
            ("orders,0,abc", 'from String "abc"', 10, 'WithGroup["partition"]'),
            ("topic,partition,offset\norders,0,5", 'from String "offset"', 17, 'WithGroup["partition"]'),
            ("g,orders,0,5\ng,orders,0,1.5", 'type `long` from String "1.5"', 12, 'WithGroup["offset"]'),
        ],
    )
    def test_the_error_for_a_bad_number_has_its_position(
        self, text: str, message: str, column: int, field: str
    ) -> None:
        with pytest.raises(ToolFailed) as refused:
            reset_plan.parse_plan(text, ["g"])
        assert message in str(refused.value)
        assert f"\n at [Source: (StringReader); line: 1, column: {column}] (" in str(refused.value)
        assert str(refused.value).endswith(f"CsvRecord{field})")

    def test_a_line_with_too_many_fields_is_refused(self) -> None:
        with pytest.raises(ToolFailed) as refused:
            reset_plan.parse_plan("orders,0,5,6,7", ["g"])
        assert str(refused.value) == (
            "com.fasterxml.jackson.dataformat.csv.CsvReadException: Too many entries: expected at most 4"
            ' (value #4 (1 chars) "7")\n at [Source: (StringReader); line: 1, column: 14]'
        )

    @pytest.mark.parametrize(
        ("values", "line"),
        [
            (["orders", 0, 5], "orders,0,5"),
            (["my group", "orders", 0, 5], '"my group",orders,0,5'),
            (["g,h", "orders", 0, 5], '"g,h",orders,0,5'),
            (["a-topic-with-a-rather-long-name", 1, 50], '"a-topic-with-a-rather-long-name",1,50'),
        ],
    )
    def test_written_lines_are_read_back(self, values: list[str | int], line: str) -> None:
        assert reset_plan.csv_line(values) == line
        assert [field.text for field in reset_plan.split_line(line)] == [str(value) for value in values]

    def test_offsets_are_clamped_to_the_log_with_a_warning(self) -> None:
        low, fine, high = (TopicPartition("orders", index) for index in range(3))
        warnings: list[str] = []
        bounds = dict.fromkeys((low, fine, high), (10, 20))
        assert reset_plan.clamp({low: 3, fine: 15, high: 99}, bounds, warnings.append) == {low: 10, fine: 15, high: 20}
        assert warnings == [
            "New offset (3) is lower than earliest offset for topic partition orders-0. Value will be set to 10",
            "New offset (99) is higher than latest offset for topic partition orders-2. Value will be set to 20",
        ]


class TestTopics:
    def test_whole_topics_and_single_partitions(self) -> None:
        named, whole = split_topics(["orders:0,2", "clicks", "returns:1,"])
        assert [str(where) for where in named] == ["orders-0", "orders-2", "returns-1"]
        assert whole == ["clicks"]

    @pytest.mark.parametrize(
        ("argument", "message"),
        [
            ("orders:a", "Invalid partition 'a' specified in topic arg 'orders:a''"),
            ("orders:0,,1", "Invalid partition '' specified in topic arg 'orders:0,,1''"),
            ("orders:1:2", "Invalid topic arg 'orders:1:2', expected topic name and partitions"),
            ("orders:", "Invalid topic arg 'orders:', expected topic name and partitions"),
        ],
    )
    def test_invalid_topic_arguments_are_refused(self, argument: str, message: str) -> None:
        with pytest.raises(WrongArgument) as refused:
            split_topics([argument])
        assert str(refused.value) == message


def test_errors_are_printed_as_by_java() -> None:
    package = "org.apache.kafka.common.errors"
    assert exception_text(KafkaError(ErrorCode.NON_EMPTY_GROUP)) == (
        f"{package}.GroupNotEmptyException: The group is not empty."
    )
    assert exception_text(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")) == (
        f"{package}.GroupIdNotFoundException: Group g not found."
    )
    assert exception_text(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)) == (
        f"{package}.GroupAuthorizationException: Group authorization failed."
    )


class TestLines:
    def test_offsets_show_members_with_most_partitions_first_then_unassigned_ones(self) -> None:
        few = Member("few-1", None, "few", "/10.0.0.1", at("orders-2"))
        many = Member("many-1", None, "many", "/10.0.0.2", at("orders-1", "orders-0"))
        idle = Member("idle-1", None, "idle", "/10.0.0.3", frozenset())
        group = DescribedGroup("g", CLASSIC, "consumer", "Stable", "range", COORDINATOR, (few, many, idle))
        committed = {TopicPartition("orders", 0): Committed(5, 3), TopicPartition("gone", 0): Committed(1)}
        ends = {TopicPartition("orders", index): 9 for index in range(3)}
        assert list(lines.offsets(lines.offset_rows(group, committed, ends), verbose=True)) == [
            "",
            "GROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  LOG-END-OFFSET  LAG"
            "             CONSUMER-ID     HOST            CLIENT-ID",
            "g               orders          0          3               5               9               4"
            "               many-1          /10.0.0.2       many",
            "g               orders          1          -               -               9               -"
            "               many-1          /10.0.0.2       many",
            "g               orders          2          -               -               9               -"
            "               few-1           /10.0.0.1       few",
            "g               gone            0          -               1               -               -"
            "               -               -               -",
        ]

    def test_the_members_table_shows_upgraded_members(self) -> None:
        new = Member("new", None, "c", "/h", at("orders-1", "orders-0"), at("orders-0"), 3, True)
        old = Member("old", "i", "c", "/h", at("a-0", "b-10", "b-9"), frozenset(), 2, False)
        group = DescribedGroup("g", CONSUMER, "consumer", "Stable", "uniform", COORDINATOR, (new, old), 4, 5)
        plain = list(lines.members(group, verbose=False))
        assert plain[1] == (
            "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       #PARTITIONS     "
        )
        assert plain[2].split() == ["g", "new", "/h", "c", "2"]
        verbose = list(lines.members(group, verbose=True))
        assert verbose[1].split()[-5:] == [
            "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED",
        ]  # fmt: skip
        assert verbose[2].split()[-5:] == ["3", "orders:0,1", "5", "orders:0", "true"]
        assert verbose[3].split()[-5:] == ["2", "a:0;b:9,10", "5", "-", "false"]

    def test_state(self) -> None:
        group = DescribedGroup("g", CLASSIC, "consumer", "Empty", "", COORDINATOR, ())
        assert list(lines.state(group, verbose=False)) == [
            "",
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
            "g               127.0.0.1:9092  (1)       -                    Empty                0",
        ]

    def test_a_listing_is_ten_wider_than_its_longest_name(self) -> None:
        listed = [ListedGroup("a-group-with-a-long-name", CLASSIC, "consumer", "Stable")]
        assert list(lines.listing(listed, with_type=True, with_state=True)) == [
            f"{'GROUP':<34} {'TYPE':<20} {'STATE':<20}",
            f"{'a-group-with-a-long-name':<34} {'Classic':<20} {'Stable':<20}",
        ]

    def test_kafka_groups_has_three_columns_of_one_width_and_a_blank_behind_each_row(self) -> None:
        listed = [ListedGroup("g", CLASSIC, "a-protocol-of-21-chars", "Stable")]
        assert list(groups.lines(listed)) == [
            f"{'GROUP':<22} {'TYPE':<22} {'PROTOCOL':<22}",
            f"{'g':<22} {'Classic':<22} {'a-protocol-of-21-chars':<22} ",
        ]


@pytest.mark.parametrize(
    ("regex", "verdict"),
    [
        ("a.*", "valid"),
        ("(a", "invalid: missing closing )"),
        ("[a", "invalid: missing closing ]"),
        ("a**", "invalid: invalid nested repetition operator"),
        ("*a", "invalid: missing argument to repetition operator"),
        ("(?=a)", "invalid: invalid or unsupported Perl syntax"),
        ("a{1001}", "invalid: invalid repeat count"),
        (r"\q", "invalid: invalid escape sequence"),
        ("[z-a]", "invalid: invalid character class range"),
        ("a\\", "invalid: trailing backslash at end of expression"),
    ],
)
@pytest.mark.needs_re2
def test_regular_expressions_are_validated_as_by_brokers(regex: str, verdict: str) -> None:
    assert consumer_groups.regex_verdict(regex) == f"The regular expression `{regex}` is {verdict}."


def test_validate_regex_needs_google_re2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert consumer_groups.main(["--validate-regex", "a.*"]) == 1
    assert "--validate-regex needs google-re2" in capsys.readouterr().err


def test_states_and_types_are_read_in_any_case() -> None:
    assert parse_states("stable, EMPTY", STATES) == ["Stable", "Empty"]
    assert consumer_groups.parse_types("Classic,consumer") == [CLASSIC, CONSUMER]
    assert parse_states(None, STATES) == consumer_groups.parse_types("") == []
    for wrong in (lambda: parse_states("Stable,foo", STATES), lambda: consumer_groups.parse_types("share")):
        with pytest.raises(WrongArgument, match=r"^Invalid (state|types) list '.*'\. Valid (states|types) are: "):
            wrong()


def test_an_undecodable_assignment_counts_as_empty() -> None:
    encoded = b"\0\1\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\3\xff\xff\xff\xff"
    assert decode_assignment(encoded) == at("orders-0", "orders-3")
    assert decode_assignment(b"") == decode_assignment(b"not ours at all") == frozenset()
    assert all(decode_assignment(encoded[:cut]) == frozenset() for cut in range(1, 26))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], "classic simple new share connect"),
        (["--consumer"], "classic simple new"),
        (["--share"], "share"),
        (["--streams"], ""),
        (["--group-type", "CLASSIC"], "classic simple connect"),
        (["--group-type", "classic", "--protocol", "connect"], "connect"),
        (["--protocol", "consumer"], "classic new"),
    ],
)
def test_kafka_groups_filters(words: list[str], kept: str) -> None:
    listed = [
        ListedGroup("classic", CLASSIC, "consumer", "Stable"),
        ListedGroup("simple", CLASSIC, "", "Empty"),
        ListedGroup("new", CONSUMER, "consumer", "Stable"),
        ListedGroup("share", "Share", "share", "Stable"),
        ListedGroup("connect", CLASSIC, "connect", "Stable"),
    ]
    arguments: Arguments = groups.FLAGS.parse(["--list", *words])
    assert " ".join(group.group_id for group in listed if groups.is_selected(arguments, group)) == kept


USAGE = [
    ("--list --describe --group g", 'Option "[group]" can\'t be used with option "[list]"'),
    ("--describe", "Option [describe] takes one of these options: [group], [all-groups]"),
    ("--describe --group g --all-groups", 'Option "[group]" can\'t be used with option "[all-groups]"'),
    (
        "--describe --group g --members --state",
        "Option [describe] takes at most one of these options: [members], [offsets], [state]",
    ),
    ("--describe --group g --state stable", "Option [describe] does not take a value for [state]"),
    ("--describe --group g --topic t", 'Option "[topic]" can\'t be used with option "[describe]"'),
    ("--delete", "Option [delete] takes one of these options: [group], [all-groups]"),
    (
        "--delete --group g --topic t",
        "The consumer does not support topic-specific offset deletion from a consumer group.",
    ),
    ("--delete-offsets --group g", "Option [delete-offsets] takes the following options: [group], [topic]"),
    ("--list --members --verbose", "Option(s) [members, verbose] are unavailable given other options on the command"),
    ("--describe --group g --type", "Option(s) [type] are unavailable given other options on the command line"),
    ("--reset-offsets --group g --dry-run --execute", "Option [reset-offsets] only accepts one of [execute] and"),
    ("--reset-offsets --dry-run", "Option [reset-offsets] takes one of these options: [group], [all-groups]"),
    (
        "--reset-offsets --group g --dry-run --to-earliest --shift-by 3",
        'Option "[to-earliest]" can\'t be used with option "[shift-by]"',
    ),
    (
        "--group g",
        "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets,"
        " --validate-regex",
    ),
    ("--list --validate-regex a", "Command must include exactly one action: --list"),
    ("--list --frobnicate", "frobnicate is not a recognized option"),
    ("--describe --group", "Option group requires an argument"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_invalid_combinations_of_flags_are_reported(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert consumer_groups.main(["--bootstrap-server", "localhost:9092", *words.split()]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)


def test_the_address_is_required_except_for_validate_regex(capsys: pytest.CaptureFixture[str]) -> None:
    assert consumer_groups.main(["--list"]) == 1
    assert capsys.readouterr().err.startswith('Missing required argument "[bootstrap-server]"')
    assert groups.main(["--list"]) == 1
    assert capsys.readouterr().err.startswith("Missing required option(s) [bootstrap-server]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Command must include exactly one action: --list."),
        ("--list --group-type foo", "--group-type must be a valid group type."),
        ("--list --share --streams", 'Option "[share]" can\'t be used with option "[streams]"'),
        ("--list --consumer --protocol p", 'Option "[consumer]" can\'t be used with option "[protocol]"'),
    ],
)
def test_invalid_flags_of_kafka_groups_are_reported(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert groups.main(["--bootstrap-server", "localhost:9092", *words.split()]) == 1
    assert capsys.readouterr().err.startswith(message)

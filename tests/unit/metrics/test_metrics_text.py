"""The text format of a scrape, read by prometheus-client, and counters, rates and histories kept between scrapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from moldau.metrics.lag_history import NOTES_MAX, UNKNOWN_OFFSET, LagHistory
from moldau.metrics.node import IdleShare
from moldau.metrics.quorum import RecordRate
from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, labels, pieces, single
from moldau.raft.commit_times import CommitTimes
from moldau.replica.traffic import Traffic


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), st.text(), min_size=1))
def test_any_label_can_be_read_back(values: dict[str, str]) -> None:
    text = "".join(pieces(Family("a_total", COUNTER, "Help."), [(labels(**values), 7)]))
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert (family.type, family.documentation, sample.name, sample.value) == ("counter", "Help.", "a_total", 7)
    # Text that is not Unicode cannot be sent.
    assert sample.labels == {key: value.encode(errors="replace").decode() for key, value in values.items()}


def test_text_that_is_not_unicode_is_replaced() -> None:
    assert labels(a="\ud800x") == '{a="?x"}'


def test_pieces_are_small_and_only_the_first_has_the_head() -> None:
    family = Family("a", GAUGE, "Help.")
    parts = list(pieces(family, ((labels(n=number), number) for number in range(2 * PIECE_SERIES + 1))))
    assert [part.count("\na{") + part.startswith("a{") for part in parts] == [PIECE_SERIES, PIECE_SERIES, 1]
    assert "".join(parts).count("# TYPE") == 1
    assert list(pieces(family, [])) == []
    assert single(family, 0.5) == "# HELP a Help.\n# TYPE a gauge\na 0.5\n"


def test_the_totals_of_a_node_do_not_decrease_with_a_deleted_topic() -> None:
    traffic = Traffic()
    traffic.of("a").messages_in += 3
    traffic.of("b").messages_in += 4
    traffic.forget("a")
    traffic.forget("never seen")
    traffic.of("a").messages_in += 1
    assert traffic.gone.messages_in == 3
    assert {name: each.messages_in for name, each in traffic.topics.items()} == {"a": 1, "b": 4}


def test_commit_times_are_those_of_the_last_batches() -> None:
    times = CommitTimes()
    assert (times.average_ms, times.longest_ms) == (0.0, 0)
    times.appended(10, 1000)
    times.appended(20, 1005)
    times.committed(10, 1010)
    assert (times.average_ms, times.longest_ms, times.commits) == (10.0, 10, 1)
    times.forget()
    times.committed(20, 9000)
    assert times.longest_ms == 10


def test_a_rate_is_that_between_two_scrapes() -> None:
    rate = RecordRate()
    assert rate.at(100, 1000) == 0
    assert rate.at(150, 2000) == 50
    assert rate.at(160, 2000) == 50  # two scrapes at once
    assert rate.at(150, 3000) == 0
    assert rate.at(0, 4000) == 0  # the log was truncated


def test_the_idle_share_is_measured_over_at_least_a_second() -> None:
    idle = IdleShare(10.0, 100.0)
    assert idle.at(10.5, 100.5) == 1.0
    assert idle.at(10.5, 102.0) == pytest.approx(0.75)
    assert idle.at(20.0, 103.0) == 0.0


PLACE = ("t", 0)


def age_ms(history: LagHistory, place: tuple[str, int], committed: int, now_ms: int) -> int:
    return history.age_ms(place, committed, now_ms)[0]


def test_lag_in_time_is_interpolated_between_notes() -> None:
    history = LagHistory()
    for now_ms, end in ((0, 0), (10_000, 100), (20_000, 100), (30_000, 200)):
        history.note({PLACE: end}, now_ms)
    assert age_ms(history, PLACE, 200, 30_000) == 0
    assert age_ms(history, PLACE, 150, 30_000) == 5_000
    assert age_ms(history, PLACE, 100, 30_000) == 10_000  # appended after the pause
    assert age_ms(history, PLACE, 50, 30_000) == 25_000
    assert age_ms(history, ("other", 0), 5, 30_000) == 0


def test_a_lag_from_before_the_first_note_is_counted_from_that_note() -> None:
    history = LagHistory()
    history.note({PLACE: 100}, 1_000)
    assert age_ms(history, PLACE, 40, 1_000) == 0
    assert age_ms(history, PLACE, 40, 6_000) == 5_000
    assert history.age_ms(PLACE, 40, 6_000) == (5_000, True), "the record may be older"
    history.note({PLACE: 200}, 11_000)
    assert history.age_ms(PLACE, 100, 11_000) == (10_000, False)
    assert history.age_ms(("other", 0), 5, 11_000) == (0, True)


def test_the_history_is_bounded_and_forgets_partitions_that_are_not_read() -> None:
    history = LagHistory()
    for number in range(1000):
        history.note({PLACE: number * 10}, number * 1000)
        assert len(history._notes[PLACE][0]) <= NOTES_MAX
    assert age_ms(history, PLACE, 5, 999_000) == pytest.approx(998_500, abs=1)
    history.note({PLACE: 3}, 1_000_000)  # another topic of this name
    assert age_ms(history, PLACE, 3, 1_000_000) == 0
    history.note({}, 1_001_000)
    assert history._notes == {}


def test_a_partition_whose_end_is_temporarily_unknown_keeps_its_history() -> None:
    history = LagHistory()
    for now_ms, end in ((0, 0), (10_000, 100), (20_000, UNKNOWN_OFFSET), (30_000, 100)):
        history.note({PLACE: end, ("new", 0): UNKNOWN_OFFSET}, now_ms)
    assert age_ms(history, PLACE, 50, 30_000) == 25_000
    assert list(history._notes) == [PLACE]


def test_end_offsets_read_before_the_last_note_are_ignored() -> None:
    """A scrape that waits for a leader may be overtaken by another one."""
    history = LagHistory()
    history.note({PLACE: 0}, 0)
    history.note({PLACE: 100}, 10_000)
    history.note({PLACE: 90}, 9_000)
    assert age_ms(history, PLACE, 50, 10_000) == 5_000


def test_an_idle_partition_adds_no_notes() -> None:
    history = LagHistory()
    for number in range(1000):
        history.note({PLACE: 7}, number)
    assert len(history._notes[PLACE][0]) == 2

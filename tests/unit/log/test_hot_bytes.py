"""Hot bytes: the last bytes written over all logs. The kernel is not asked whether it has them in its page cache."""

from __future__ import annotations

from moldau.log.hot_bytes import HOT_BYTES, MARK_EVERY_BYTES, MARKS_MAX, HotBytes, WrittenBytes

MIB = 1 << 20


def write(hot: HotBytes, begin: int, end: int) -> None:
    for position in range(begin, end, MIB):
        hot.note(position, MIB)


def test_only_bytes_written_since_the_start_are_hot() -> None:
    written = WrittenBytes()
    hot = HotBytes(3 * MIB, written)
    write(hot, 3 * MIB, 5 * MIB)
    assert [hot.is_hot(position) for position in (0, 3 * MIB - 1, 3 * MIB, 5 * MIB - 1)] == [False, False, True, True]


def test_all_logs_share_one_budget() -> None:
    written = WrittenBytes()
    logs = [HotBytes(0, written) for _ in range(100)]
    for log in logs:
        write(log, 0, 8 * MIB)
    hot = [log.is_hot(7 * MIB) for log in logs]
    assert hot == sorted(hot), "the logs written last are hot"
    assert HOT_BYTES // 2 <= sum(hot) * 8 * MIB <= HOT_BYTES


def test_a_rarely_written_log_is_hot_at_its_end() -> None:
    written = WrittenBytes()
    hot = HotBytes(0, written)
    write(hot, 0, MIB)
    written.total += HOT_BYTES + 1
    assert not hot.is_hot(0)
    hot.note(MIB, 100)
    assert [hot.is_hot(0), hot.is_hot(MIB)] == [False, True]


def test_only_the_end_of_a_long_segment_is_hot() -> None:
    written = WrittenBytes()
    hot = HotBytes(0, written)
    write(hot, 0, 200 * MIB)
    first = next(position for position in range(0, 200 * MIB, MIB) if hot.is_hot(position))
    assert 200 * MIB - first <= MARKS_MAX * MARK_EVERY_BYTES
    assert hot.is_hot(199 * MIB)

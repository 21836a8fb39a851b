"""The window of a share partition, one behaviour at a time."""

from __future__ import annotations

import pytest
from window_driver import LIMITS, LOCK_MS, WindowDriver

from moldau.share.runs import RecordState
from moldau.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW, Wanted, Window, Written

NOT_ACQUIRED = "INVALID_RECORD_STATE: The batch cannot be acknowledged. The batch is not in the acquired state."
OFFSET_NOT_ACQUIRED = "INVALID_RECORD_STATE: The offset cannot be acknowledged. The offset is not acquired."


def tens(count: int) -> list[str]:
    """Batches of ten records."""
    return [f"{base}-{base + 9}" for base in range(0, 10 * count, 10)]


def singles(count: int) -> list[str]:
    return [str(offset) for offset in range(count)]


# --- acquiring for the first time -------------------------------------------------------------------------------------


def test_new_records_are_acquired_together() -> None:
    driver = WindowDriver(*tens(3))
    assert driver.offsets == (0, 0, 0)
    assert driver.fetch() == "0-29x1"
    assert driver.state() == "0-29 acquired x1 a"
    assert driver.offsets == (0, 30, 30)


def test_another_member_gets_what_follows() -> None:
    driver = WindowDriver(*tens(3))
    assert driver.fetch("a", up_to=9) == "0-9x1"
    assert driver.fetch("b") == "10-29x1"


def test_nothing_new_acquires_nothing() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    assert driver.fetch("b") == ""
    assert driver.offsets == (0, 10, 10)


def test_pieces_end_where_a_batch_of_the_log_begins() -> None:
    assert WindowDriver(*tens(4)).fetch(batch_size=15) == "0-19x1 20-39x1"
    assert WindowDriver(*tens(4)).fetch(batch_size=10) == "0-9x1 10-19x1 20-29x1 30-39x1"
    assert WindowDriver("0-29", "30-34").fetch(batch_size=10) == "0-29x1 30-34x1"
    assert WindowDriver("0-29").fetch(batch_size=10) == "0-29x1", "a batch of the log is not divided"
    assert WindowDriver(*singles(4)).fetch(batch_size=4) == "0-3x1", "no more than the size: no pieces"


def test_the_most_records_are_rounded_up_to_the_end_of_a_batch() -> None:
    driver = WindowDriver(*tens(4))
    assert driver.fetch(max_records=12) == "0-19x1"
    assert driver.fetch(max_records=1) == "20-29x1"


def test_a_missing_batch_where_the_most_records_end_is_a_limit() -> None:
    assert WindowDriver("0-4", "10-14").fetch(max_records=7) == "0-6x1"


def test_a_record_limit_is_a_limit() -> None:
    driver = WindowDriver(*tens(4))
    assert driver.fetch_exactly(12) == "0-11x1"
    assert driver.state() == "0-11 acquired x1 a, 12-19 available x0"
    assert driver.offsets == (0, 12, 20)
    assert driver.fetch_exactly(5, "b") == "12-16x1"
    assert driver.fetch_exactly(5, "c") == "17-19x1 20-21x1"
    assert driver.state() == ("0-11 acquired x1 a, 12-16 acquired x1 b, 17-21 acquired x1 c, 22-29 available x0")


def test_a_record_limit_makes_no_pieces() -> None:
    driver = WindowDriver(*tens(4))
    assert driver.fetch("a", 20, batch_size=5, is_exact=True) == "0-19x1"
    assert driver.state() == "0-19 acquired x1 a"


def test_a_record_limit_holds_for_records_that_are_available_again() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    driver.release()
    assert driver.fetch_exactly(3) == "0-2x2"
    assert driver.fetch_exactly(10) == "3-12x2"
    assert driver.offsets == (0, 13, 20)


def test_the_rest_of_a_batch_of_the_log_below_the_start_is_not_acquired() -> None:
    driver = WindowDriver(*tens(2), start=7)
    assert driver.fetch() == "7-19x1"


def test_a_read_that_ends_below_the_start_acquires_nothing() -> None:
    driver = WindowDriver("0-4", start=7)
    window = driver.window
    assert window.acquire(Wanted("a", 10, 10, False), 7, driver.log, 0) == []
    assert window.acquire(Wanted("a", 10, 10, False), 7, [], 0) == []
    assert driver.offsets == (7, 7, 7)


# --- acknowledging ----------------------------------------------------------------------------------------------------


def test_accepted_records_are_done() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    change, written = driver.begin((0, 19, ACCEPT))
    assert written == "0-19 acknowledged x1"
    assert driver.state() == "0-19 acquired x1 a changing"
    assert driver.offsets == (0, 20, 20)
    assert driver.window.done_count == 20
    driver.complete(change)
    assert driver.state() == ""
    assert driver.offsets == (20, 20, 20)
    assert driver.window.done_count == 0


def test_what_is_done_later_waits_for_what_is_earlier() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    assert driver.acknowledge((10, 14, ACCEPT)) == "10-14 acknowledged x1"
    assert driver.offsets == (0, 20, 20)
    assert driver.window.done_count == 5
    driver.acknowledge((0, 8, ACCEPT))
    assert driver.offsets == (9, 20, 20)
    assert driver.window.done_count == 5
    driver.acknowledge((9, 9, ACCEPT))
    assert driver.offsets == (15, 20, 20)
    assert driver.state() == "15-19 acquired x1 a"


def test_released_records_are_delivered_again() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    assert driver.acknowledge((4, 5, RELEASE)) == "4-5 available x1"
    assert driver.offsets == (0, 4, 20)
    assert driver.fetch("b") == "4-5x2"
    assert driver.offsets == (0, 20, 20)


def test_rejected_records_are_archived() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    assert driver.acknowledge((0, 1, REJECT), (5, 5, GAP)) == "0-1 archived x1, 5 archived x1"
    assert driver.state() == "2-4 acquired x1 a, 5 archived x1, 6-9 acquired x1 a"


def test_each_offset_may_have_a_type() -> None:
    driver = WindowDriver("0-5")
    driver.fetch()
    written = driver.acknowledge((0, 5, [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT]))
    assert written == ("0-1 acknowledged x1, 2 available x1, 3 archived x1, 4 archived x1, 5 acknowledged x1")
    assert driver.state() == "2 available x1, 3-4 archived x1, 5 acknowledged x1"


def test_an_acknowledgement_may_span_what_was_acquired_in_several_fetches() -> None:
    driver = WindowDriver(*tens(4))
    for last in (9, 19, 29):
        driver.fetch(up_to=last)
    assert driver.acknowledge((5, 24, ACCEPT)) == ("5-9 acknowledged x1, 10-19 acknowledged x1, 20-24 acknowledged x1")
    assert driver.state() == "0-4 acquired x1 a, 5-24 acknowledged x1, 25-29 acquired x1 a"


def test_an_acknowledgement_may_span_different_deliveries() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    driver.acknowledge((2, 5, RELEASE))
    driver.fetch()
    assert driver.state() == "0-1 acquired x1 a, 2-5 acquired x2 a, 6-9 acquired x1 a"
    assert driver.acknowledge((1, 7, [ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, RELEASE, RELEASE])) == (
        "1 acknowledged x1, 2-3 acknowledged x2, 4-5 available x2, 6-7 available x1"
    )


def test_release_gives_back_all_that_a_member_holds() -> None:
    driver = WindowDriver(*tens(4))
    for member, last in ("a", 9), ("b", 19), ("a", 29):
        driver.fetch(member, up_to=last)
    driver.acknowledge((3, 3, ACCEPT))
    assert driver.release("a") == "0-2 available x1, 4-9 available x1, 20-29 available x1"
    assert driver.fetch("c") == "0-2x2 4-9x2 20-29x2 30-39x1"
    assert driver.release("b") == "10-19 available x1"
    assert driver.release("nobody") == ""


def test_release_leaves_alone_what_is_being_written() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    accepting, _ = driver.begin((0, 4, ACCEPT))
    releasing, _ = driver.window.release("a")
    driver.complete(releasing)
    driver.complete(accepting)
    assert driver.state() == "5-9 available x1"


# --- errors -----------------------------------------------------------------------------------------------------------


def test_records_that_nobody_fetched_cannot_be_acknowledged() -> None:
    driver = WindowDriver(*tens(2))
    assert driver.error((0, 9, ACCEPT)) == (
        "INVALID_RECORD_STATE: Batch record not found. The request batch offsets are not found in the cache."
    )
    driver.fetch(up_to=9)
    past = "INVALID_REQUEST: Batch record not found. The {} offset in request is past acquired records."
    assert driver.error((10, 19, ACCEPT)) == past.format("first")
    assert driver.error((5, 10, ACCEPT)) == past.format("last")


def test_only_the_owner_may_acknowledge() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    assert driver.error((0, 19, ACCEPT), member="b") == (
        "INVALID_RECORD_STATE: Member is not the owner of batch record"
    )
    driver.acknowledge((3, 3, ACCEPT))
    assert driver.error((4, 4, ACCEPT), member="b") == "INVALID_RECORD_STATE: Member is not the owner of offset"


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, GAP, RENEW])
def test_records_are_acknowledged_once(kind: int) -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch(up_to=9)
    driver.fetch()
    driver.acknowledge((10, 19, REJECT))
    assert driver.error((10, 19, kind)) == NOT_ACQUIRED
    assert driver.error((12, 13, kind)) == NOT_ACQUIRED
    driver.acknowledge((3, 3, RELEASE))
    assert driver.error((3, 3, kind)) == OFFSET_NOT_ACQUIRED


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, RENEW])
def test_what_is_being_written_is_not_acquired(kind: int) -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch(up_to=9)
    driver.fetch()
    driver.begin((10, 19, ACCEPT), (5, 5, RELEASE))
    assert driver.error((10, 19, kind)) == NOT_ACQUIRED
    assert driver.error((5, 5, kind)) == OFFSET_NOT_ACQUIRED


def test_a_request_is_all_or_nothing() -> None:
    driver = WindowDriver(*tens(3))
    driver.fetch()
    assert driver.error((0, 4, ACCEPT), (6, 7, RELEASE), (30, 30, ACCEPT)).startswith("INVALID_REQUEST")
    assert driver.error((0, 4, ACCEPT), (4, 7, RELEASE)).startswith("INVALID_RECORD_STATE")
    assert driver.window.done_count == 0
    assert driver.acknowledge((0, 29, ACCEPT)) == "0-29 acknowledged x1"


def test_what_lies_below_the_start_is_ignored() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    driver.acknowledge((0, 4, ACCEPT))
    assert driver.acknowledge((0, 4, REJECT)) == ""
    assert driver.acknowledge((0, 4, REJECT), member="b") == ""
    assert driver.acknowledge((3, 6, ACCEPT)) == "5-6 acknowledged x1"
    assert driver.acknowledge((6, 9, [GAP, RELEASE, ACCEPT, RELEASE])) == (
        "7 available x1, 8 acknowledged x1, 9 available x1"
    )


# --- a change that is being written -----------------------------------------------------------------------------------


def test_nobody_gets_what_is_being_written() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    change, _ = driver.begin((0, 4, RELEASE))
    assert driver.offsets == (0, 10, 10)
    assert driver.fetch("b") == ""
    driver.complete(change)
    assert driver.fetch("b") == "0-4x2"


def test_what_could_not_be_written_is_still_acquired() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    change, _ = driver.begin((0, 9, [ACCEPT, RELEASE] * 5))
    assert driver.window.done_count == 5
    driver.complete(change, is_written=False)
    assert driver.state() == "0-9 acquired x1 a"
    assert driver.window.done_count == 0
    assert driver.acknowledge((0, 9, ACCEPT)) == "0-9 acknowledged x1"


def test_a_lock_that_ends_while_it_is_written_ends_when_that_failed() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    change, _ = driver.begin((0, 4, ACCEPT))
    assert driver.wait(LOCK_MS) == "5-9 available x1"
    assert driver.state() == "0-4 acquired x1 a changing, 5-9 available x1"
    driver.complete(change, is_written=False)
    assert driver.state() == "0-9 available x1"
    assert driver.offsets == (0, 0, 10)


def test_a_lock_that_ends_while_it_is_written_does_not_matter_if_it_is() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    change, _ = driver.begin((0, 9, ACCEPT))
    assert driver.wait(LOCK_MS) == ""
    driver.complete(change)
    assert driver.offsets == (10, 10, 10)


def test_a_lock_of_the_last_delivery_that_ends_while_it_is_written_archives() -> None:
    driver = WindowDriver("0", "1", limits=LIMITS._replace(delivery_count_limit=1))
    driver.fetch()
    change, written = driver.begin((0, 0, RELEASE))
    assert written == "0 archived x1", "it is not delivered again"
    driver.wait(LOCK_MS)
    driver.complete(change, is_written=False)
    assert driver.offsets == (2, 2, 2)


def test_changes_of_different_states_do_not_run_into_each_other() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    first, _ = driver.begin((2, 5, [ACCEPT, RELEASE, REJECT, RELEASE]))
    second, _ = driver.begin((7, 8, ACCEPT))
    driver.complete(second)
    assert driver.window.done_count == 4
    driver.complete(first)
    assert driver.state() == (
        "0-1 acquired x1 a, 2 acknowledged x1, 3 available x1, 4 archived x1, 5 available x1, 6 acquired x1 a, "
        "7-8 acknowledged x1, 9 acquired x1 a"
    )


def test_changes_may_be_completed_in_any_order() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    first, _ = driver.begin((0, 9, ACCEPT))
    second, _ = driver.begin((10, 19, ACCEPT))
    driver.complete(second)
    assert driver.offsets == (0, 20, 20)
    driver.complete(first)
    assert driver.offsets == (20, 20, 20)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_records_are_available_again_when_their_lock_ends() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch(up_to=9)
    assert driver.window.next_lock_end_ms == LOCK_MS
    assert driver.wait(LOCK_MS - 1) == ""
    driver.fetch("b")
    assert driver.wait(1) == "0-9 available x1"
    assert driver.state() == "0-9 available x1, 10-19 acquired x1 b"
    assert driver.error((0, 9, ACCEPT)) == NOT_ACQUIRED
    assert driver.fetch("b") == "0-9x2"
    assert driver.wait(LOCK_MS - 1) == "10-19 available x1"


def test_a_lock_of_records_in_parts_ends_for_what_is_left() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    driver.acknowledge((2, 3, ACCEPT), (5, 5, RELEASE))
    driver.wait(LOCK_MS // 2)
    assert driver.fetch("b") == "5x2"
    assert driver.wait(LOCK_MS // 2) == "0-1 available x1, 4 available x1, 6-9 available x1"
    assert driver.wait(LOCK_MS // 2) == "5 available x2"
    assert driver.window.next_lock_end_ms is None


def test_renew_begins_the_lock_again() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch(up_to=9)
    driver.fetch()
    driver.wait(LOCK_MS - 1)
    assert driver.acknowledge((0, 9, RENEW), (15, 15, RENEW)) == ""
    assert driver.wait(1) == "10-14 available x1, 16-19 available x1"
    assert driver.state() == "0-9 acquired x1 a, 10-14 available x1, 15 acquired x1 a, 16-19 available x1"
    assert driver.wait(LOCK_MS - 2) == ""
    assert driver.wait(1) == "0-9 available x1, 15 available x1"


def test_renew_and_other_types_go_together() -> None:
    driver = WindowDriver("0-3")
    driver.fetch()
    driver.wait(LOCK_MS // 2)
    assert driver.acknowledge((0, 3, [RENEW, ACCEPT, RENEW, RELEASE])) == "1 acknowledged x1, 3 available x1"
    assert driver.wait(LOCK_MS // 2) == ""
    assert driver.wait(LOCK_MS // 2) == "0 available x1, 2 available x1"


def test_a_refused_request_renews_nothing() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    driver.wait(LOCK_MS // 2)
    assert driver.error((0, 4, RENEW), (25, 25, ACCEPT)).startswith("INVALID_REQUEST")
    assert driver.wait(LOCK_MS // 2) == "0-19 available x1"


def test_renew_may_be_switched_off() -> None:
    driver = WindowDriver(*tens(1), limits=LIMITS._replace(allows_renewal=False))
    driver.fetch()
    refused = "INVALID_RECORD_STATE: Renewing acquisition locks is not enabled for the group."
    assert driver.error((0, 9, RENEW)) == refused
    assert driver.error((0, 4, ACCEPT), (5, 9, [RENEW] * 5)) == refused


def test_renewing_for_ever_keeps_few_locks_and_runs() -> None:
    driver = WindowDriver("0-99", limits=LIMITS._replace(partition_max_record_locks=10))
    driver.fetch()
    for turn in range(3_000):
        driver.now_ms += 1
        driver.acknowledge((turn % 100, turn % 100, RENEW))
        driver.wait(0)
    assert len(driver.window._locks) <= 1_001
    driver.acknowledge((0, 99, RENEW))
    assert sum(1 for _ in driver.window._runs()) == 1, "all have the same lock"


# --- deliveries -------------------------------------------------------------------------------------------------------


def test_a_record_is_archived_after_its_last_delivery() -> None:
    driver = WindowDriver("0", "1-9")
    driver.deliver(4, 0, 0)
    assert driver.fetch(up_to=0) == "0x5"
    assert driver.acknowledge((0, 0, RELEASE)) == "0 archived x5"
    assert driver.offsets == (1, 1, 1)


def test_a_record_is_archived_when_the_lock_of_its_last_delivery_ends() -> None:
    driver = WindowDriver("0", "1-9")
    driver.deliver(4, 0, 0)
    driver.fetch(up_to=0)
    assert driver.wait(LOCK_MS) == "0 archived x5"
    assert driver.offsets == (1, 1, 1)


def test_two_deliveries_are_not_slow() -> None:
    driver = WindowDriver("0-9", limits=LIMITS._replace(delivery_count_limit=2))
    driver.deliver(1, 0, 9)
    assert driver.fetch() == "0-9x2"
    assert driver.release() == "0-9 archived x2"


def test_records_that_fail_often_are_delivered_in_smaller_pieces() -> None:
    """With a limit of 5, from 3 deliveries on: halves, and the last delivery alone."""
    driver = WindowDriver(*tens(2))
    driver.deliver(3, 0, 9)
    assert driver.fetch() == "0-4x4", "nothing else with it"
    assert driver.fetch() == "5-9x4"
    driver.release()
    assert driver.fetch() == "0x5"
    assert driver.fetch() == "1x5"
    assert driver.fetch("b") == "2x5"
    driver.acknowledge((0, 0, ACCEPT))
    driver.acknowledge((1, 1, RELEASE))
    assert driver.offsets == (2, 3, 10)


def test_ever_smaller_pieces_are_halves_quarters_and_so_on() -> None:
    driver = WindowDriver("0-99", limits=LIMITS._replace(delivery_count_limit=10))
    driver.deliver(5, 0, 99)
    for expected in "0-49x6", "0-24x7", "0-11x8", "0-5x9", "0x10":
        assert driver.fetch() == expected
        driver.release()
    assert driver.offsets == (1, 1, 100)
    assert driver.fetch() == "1x10"


def test_a_limit_of_three_delivers_the_last_time_alone() -> None:
    driver = WindowDriver("0-3", limits=LIMITS._replace(delivery_count_limit=3))
    driver.deliver(2, 0, 3)
    assert [driver.fetch() for _ in range(5)] == ["0x3", "1x3", "2x3", "3x3", ""]


def test_records_before_their_last_delivery_end_a_piece() -> None:
    driver = WindowDriver("0-9")
    driver.deliver(3, 0, 9)
    assert driver.fetch() == "0-4x4"
    driver.release()
    driver.fetch()
    driver.acknowledge((0, 0, RELEASE))
    assert driver.state() == "1-4 available x4, 5-9 available x3"
    assert driver.fetch() == "1x5"


def test_the_last_delivery_does_not_join_earlier_ones() -> None:
    driver = WindowDriver("0-3", limits=LIMITS._replace(delivery_count_limit=3))
    driver.fetch()
    driver.acknowledge((0, 0, RENEW), (1, 3, RELEASE))
    driver.fetch("b")
    driver.acknowledge((1, 3, RELEASE), member="b")
    driver.acknowledge((0, 0, RELEASE))
    assert driver.state() == "0 available x1, 1-3 available x2"
    assert [driver.fetch() for _ in range(4)] == ["0x2", "1x3", "2x3", "3x3"]


def test_a_slow_batch_waits_for_a_fetch_of_its_own() -> None:
    driver = WindowDriver(*tens(3))
    driver.fetch(up_to=9)
    driver.fetch(up_to=19)
    driver.acknowledge((10, 19, RELEASE))
    for _ in range(2):
        driver.fetch("b", up_to=19)
        driver.acknowledge((10, 19, RELEASE), member="b")
    driver.acknowledge((0, 9, RELEASE))
    assert driver.fetch() == "0-9x2", "not with the slow ones, and nothing after them"
    assert driver.fetch() == "10-14x4"
    assert driver.fetch() == "15-19x4"
    assert driver.fetch() == "20-29x1"


def test_a_piece_is_a_part_of_the_whole_batch_however_much_of_it_is_done() -> None:
    driver = WindowDriver("0-9")
    driver.fetch()
    driver.acknowledge((0, 4, ACCEPT), (5, 9, RELEASE))
    for _ in range(2):
        driver.fetch()
        driver.acknowledge((5, 9, RELEASE))
    assert driver.offsets == (5, 5, 10)
    assert driver.fetch() == "5-9x4", "half of ten"


def test_records_before_the_slow_ones_count_as_part_of_their_piece() -> None:
    driver = WindowDriver("0-9")
    driver.fetch()
    driver.acknowledge((0, 1, RENEW), (2, 9, RELEASE))
    for _ in range(2):
        driver.fetch("b")
        driver.acknowledge((2, 9, RELEASE), member="b")
    driver.acknowledge((0, 1, RELEASE))
    assert driver.state() == "0-1 available x1, 2-9 available x3"
    assert driver.fetch() == "0-1x2 2-4x4"


def test_more_than_a_piece_before_the_slow_ones_is_no_limit() -> None:
    """So it is in Apache Kafka: it stops at exactly the size of a piece."""
    driver = WindowDriver("0-9")
    driver.fetch()
    driver.acknowledge((0, 5, RENEW), (6, 9, RELEASE))
    for _ in range(2):
        driver.fetch("b")
        driver.acknowledge((6, 9, RELEASE), member="b")
    driver.acknowledge((0, 5, RELEASE))
    assert driver.fetch() == "0-5x2 6-9x4"


# --- dead letters -----------------------------------------------------------------------------------------------------

WITH_DEAD_LETTERS = LIMITS._replace(delivery_count_limit=1, dead_letter_topic="dead-letters")


def buried(driver: WindowDriver) -> str:
    """Return the dead letters, which are written."""
    change, letters, written = driver.window.bury()
    driver.complete(change)
    assert [each[:3] for each in letters] == [(each[0], each[1], each.delivery_count) for each in written]
    return ", ".join(f"{each.first_offset}-{each.last_offset} x{each.delivery_count} {each.reason}" for each in letters)


def test_records_that_are_given_up_get_dead_letters() -> None:
    driver = WindowDriver(*tens(1), limits=WITH_DEAD_LETTERS)
    driver.fetch()
    assert driver.acknowledge((0, 1, REJECT), (2, 3, RELEASE), (4, 4, GAP), (5, 6, ACCEPT)) == (
        "0-1 archiving x1, 2-3 archiving x1, 4 archived x1, 5-6 acknowledged x1"
    )
    assert driver.wait(LOCK_MS) == "7-9 archiving x1"
    assert driver.offsets == (0, 10, 10)
    assert driver.window.done_count == 3
    too_often = "Offset delivery count exceeded the threshold."
    assert buried(driver) == (f"0-1 x1 Offset rejected by client., 2-3 x1 {too_often}, 7-9 x1 {too_often}")
    assert driver.offsets == (10, 10, 10)
    assert buried(driver) == ""


def test_without_a_topic_there_are_no_dead_letters() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    driver.acknowledge((0, 9, REJECT))
    assert buried(driver) == ""


def test_nobody_gets_records_whose_dead_letter_is_being_written() -> None:
    driver = WindowDriver(*tens(2), limits=WITH_DEAD_LETTERS)
    driver.fetch(up_to=9)
    driver.acknowledge((0, 9, RELEASE))
    change, letters, _ = driver.window.bury()
    assert len(letters) == 1
    assert driver.window.bury()[1:] == ([], [])
    assert driver.error((0, 9, ACCEPT)) == NOT_ACQUIRED
    assert driver.fetch() == "10-19x1"
    driver.complete(change)
    assert driver.offsets == (10, 20, 20)


def test_a_rejection_that_could_not_be_written_is_no_reason() -> None:
    driver = WindowDriver(*tens(1), limits=WITH_DEAD_LETTERS)
    driver.fetch()
    change, _ = driver.begin((0, 4, REJECT))
    driver.complete(change, is_written=False)
    driver.error((5, 9, REJECT), (20, 20, ACCEPT))
    driver.wait(LOCK_MS)
    assert buried(driver) == "0-9 x1 Offset delivery count exceeded the threshold."


def test_dead_letters_that_a_former_leader_did_not_write_are_written() -> None:
    driver = restored(0, (0, 4, RecordState.ARCHIVING, 1), (5, 9, RecordState.ARCHIVING, 5), log=tens(1))
    assert buried(driver) == ("0-4 x1 Offset rejected by client., 5-9 x5 Offset delivery count exceeded the threshold.")
    assert driver.offsets == (10, 10, 10)


# --- room -------------------------------------------------------------------------------------------------------------


def test_no_more_records_are_acquired_than_may_be_locked() -> None:
    driver = WindowDriver(*singles(20), limits=LIMITS._replace(partition_max_record_locks=8))
    assert driver.window.can_acquire
    assert driver.fetch() == "0-7x1"
    assert not driver.window.can_acquire
    assert driver.fetch("b") == ""
    driver.acknowledge((1, 7, ACCEPT))
    assert not driver.window.can_acquire, "the window begins with the first that is not done"
    driver.acknowledge((0, 0, ACCEPT))
    assert driver.window.can_acquire
    assert driver.fetch("b", max_records=5) == "8-12x1"
    assert driver.fetch("b") == "13-15x1"


def test_a_whole_batch_may_exceed_the_room() -> None:
    driver = WindowDriver(*tens(2), limits=LIMITS._replace(partition_max_record_locks=8))
    assert driver.fetch() == "0-9x1"
    assert driver.fetch() == ""


def test_a_record_limit_keeps_to_the_room() -> None:
    driver = WindowDriver(*tens(2), limits=LIMITS._replace(partition_max_record_locks=15))
    assert driver.fetch_exactly(100) == "0-14x1"
    assert driver.fetch_exactly(100) == "15-19x1", "they are in the window already"


def test_without_room_records_of_the_window_are_delivered_again() -> None:
    driver = WindowDriver(*tens(3), limits=LIMITS._replace(partition_max_record_locks=20))
    driver.fetch()
    driver.acknowledge((7, 8, RELEASE))
    assert driver.window.can_acquire
    assert driver.fetch("b") == "7-8x2", "and none after the window"
    assert driver.offsets == (0, 20, 20)


# --- records that are not in the log ----------------------------------------------------------------------------------


def test_a_log_that_begins_later_moves_an_empty_window() -> None:
    driver = WindowDriver("5-9", start=2)
    assert driver.fetch() == "5-9x1"
    assert driver.offsets == (5, 10, 10)


def test_missing_offsets_between_reads_are_done() -> None:
    driver = WindowDriver("0-4", "8-9")
    assert driver.fetch(up_to=4) == "0-4x1"
    assert driver.fetch() == "8-9x1"
    driver.acknowledge((0, 4, ACCEPT))
    assert driver.offsets == (8, 10, 10)


def test_missing_offsets_within_a_read_are_acquired() -> None:
    """The client acknowledges them as a gap."""
    assert WindowDriver("0-4", "8-9").fetch() == "0-9x1"


def test_an_acknowledgement_may_span_missing_offsets() -> None:
    driver = WindowDriver("0-4", "8-9")
    driver.fetch(up_to=4)
    driver.fetch()
    assert driver.acknowledge((2, 9, ACCEPT)) == "2-4 acknowledged x1, 8-9 acknowledged x1"
    assert driver.error((0, 6, ACCEPT)) == (
        "INVALID_REQUEST: Batch record not found. The last offset in request is past acquired records."
    )
    assert driver.error((5, 6, ACCEPT)) == (
        "INVALID_REQUEST: Batch record not found. The first offset in request is past acquired records."
    )


def test_records_that_were_compacted_since_are_archived() -> None:
    driver = WindowDriver(*tens(3))
    for last in (9, 19, 29):
        driver.fetch(up_to=last)
    driver.acknowledge((5, 14, RELEASE))
    driver.log = driver.log[2:]
    assert driver.offsets == (0, 5, 30)
    assert driver.fetch("b") == ""
    assert driver.state() == "0-4 acquired x1 a, 5-14 archived x1, 15-29 acquired x1 a"
    assert driver.window.done_count == 10
    assert driver.offsets == (0, 30, 30)


def test_compacted_records_at_the_start_move_it() -> None:
    driver = WindowDriver(*tens(3))
    driver.fetch(up_to=19)
    driver.release()
    driver.log = driver.log[2:]
    assert driver.fetch() == "20-29x1"
    assert driver.offsets == (20, 30, 30)


def test_records_of_aborted_transactions_are_archived() -> None:
    driver = WindowDriver("0-4", "5-9 aborted", "10-14", "15-16 aborted", "17-19")
    assert driver.fetch() == "0-4x1 10-14x1 17-19x1"
    assert driver.state() == (
        "0-4 acquired x1 a, 5-9 archived x1, 10-14 acquired x1 a, 15-16 archived x1, 17-19 acquired x1 a"
    )
    assert driver.window.done_count == 7
    driver.acknowledge((0, 4, ACCEPT))
    assert driver.offsets == (10, 20, 20)


def test_pieces_of_aborted_transactions_are_left_out() -> None:
    driver = WindowDriver("0-4 aborted", "5-9", "10-14 aborted", "15-19")
    assert driver.fetch(batch_size=5) == "5-9x1 15-19x1"
    assert driver.offsets == (5, 20, 20)
    assert driver.error((10, 14, ACCEPT)) == NOT_ACQUIRED


def test_a_window_full_of_aborted_records_goes_on() -> None:
    driver = WindowDriver(*(f"{offset} aborted" for offset in range(250)), "250-259")
    fetched = [driver.fetch() for _ in range(3)]
    assert fetched == ["", "", "250-259x1"]
    assert driver.offsets == (250, 260, 260)


def test_aborted_records_beyond_a_record_limit_are_met_later() -> None:
    driver = WindowDriver("0-9 aborted", "10-19")
    assert driver.fetch_exactly(5) == ""
    assert driver.fetch_exactly(8) == "10-12x1"
    assert driver.offsets == (10, 13, 20)


# --- the log start moves ----------------------------------------------------------------------------------------------


def test_the_log_start_moves_the_start() -> None:
    driver = WindowDriver(*tens(3))
    for last in (9, 19, 29):
        driver.fetch(up_to=last)
    driver.acknowledge((0, 4, RELEASE), (12, 13, ACCEPT))
    assert not driver.window.move_to_log_start(0)
    assert driver.window.move_to_log_start(7)
    assert driver.state() == "7-11 acquired x1 a, 12-13 acknowledged x1, 14-29 acquired x1 a"
    assert driver.offsets == (7, 30, 30)
    assert driver.window.done_count == 2
    assert driver.window.move_to_log_start(12)
    assert driver.offsets == (14, 30, 30), "what is done at the log start is behind the group"
    assert not driver.window.move_to_log_start(14)


def test_a_log_start_after_everything_empties_the_window() -> None:
    driver = WindowDriver(*tens(1), "40-49")
    driver.fetch(up_to=9)
    change, _ = driver.begin((0, 4, RELEASE))
    assert driver.window.move_to_log_start(35)
    assert driver.offsets == (35, 35, 35)
    assert driver.acknowledge((5, 9, ACCEPT)) == ""
    driver.complete(change)
    assert driver.wait(LOCK_MS) == ""
    assert driver.release() == ""
    assert driver.fetch() == "40-49x1"


def test_the_log_start_may_move_while_something_is_written() -> None:
    driver = WindowDriver(*tens(1))
    driver.fetch()
    change, _ = driver.begin((2, 6, ACCEPT))
    driver.window.move_to_log_start(4)
    assert driver.window.done_count == 3
    driver.complete(change, is_written=False)
    assert driver.state() == "4-9 acquired x1 a"
    assert driver.window.done_count == 0


# --- the log is cut ---------------------------------------------------------------------------------------------------


def test_records_that_the_log_has_lost_are_forgotten() -> None:
    driver = WindowDriver(*tens(3))
    for last in (9, 19, 29):
        driver.fetch(up_to=last)
    driver.window.cut_off(30)
    assert driver.offsets == (0, 30, 30)
    driver.window.cut_off(14)
    assert driver.state() == "0-13 acquired x1 a"
    assert driver.offsets == (0, 14, 14)
    assert driver.fetch("b") == "14-29x1"
    driver.window.cut_off(0)
    assert driver.offsets == (0, 0, 0)


def test_a_log_that_ends_before_the_window_moves_it_back() -> None:
    driver = WindowDriver(*tens(2), start=15)
    driver.fetch()
    driver.window.cut_off(10)
    assert driver.offsets == (10, 10, 10)


def test_a_change_of_forgotten_records_does_nothing_to_new_ones() -> None:
    driver = WindowDriver(*tens(2))
    driver.fetch()
    change, _ = driver.begin((0, 19, ACCEPT))
    driver.window.cut_off(5)
    assert driver.fetch("b") == "5-19x1"
    assert driver.window.done_count == 5
    driver.complete(change)
    assert driver.state() == "5-19 acquired x1 b"
    assert driver.wait(LOCK_MS) == "5-19 available x1"


# --- restoring --------------------------------------------------------------------------------------------------------


def restored(start: int, *written: tuple[int, int, RecordState, int], log: list[str]) -> WindowDriver:
    driver = WindowDriver(*log, start=start)
    driver.window.restore(Written(*each) for each in written)
    return driver


def test_nothing_to_restore_is_an_empty_window() -> None:
    driver = restored(3, log=["0-9"])
    assert driver.offsets == (3, 3, 3)
    assert driver.fetch() == "3-9x1"


def test_written_states_are_restored() -> None:
    driver = restored(
        5, (5, 9, RecordState.AVAILABLE, 2), (10, 12, RecordState.ARCHIVED, 3), (13, 14, RecordState.ACKNOWLEDGED, 1),
        log=tens(3),
    )  # fmt: skip
    assert driver.state() == "5-9 available x2, 10-12 archived x3, 13-14 acknowledged x1"
    assert driver.window.done_count == 5
    assert driver.offsets == (5, 5, 15)
    assert driver.fetch() == "5-9x3 15-29x1"


def test_what_is_done_at_the_start_is_dropped() -> None:
    driver = restored(5, (5, 9, RecordState.ARCHIVED, 2), (10, 12, RecordState.AVAILABLE, 3), log=tens(3))
    assert driver.offsets == (10, 10, 13)
    driver = restored(5, (5, 9, RecordState.ARCHIVED, 2), log=tens(3))
    assert driver.offsets == (10, 10, 10)


def test_what_was_not_written_is_delivered() -> None:
    """It was acquired at the former leader."""
    driver = restored(0, (5, 9, RecordState.ACKNOWLEDGED, 1), (15, 19, RecordState.AVAILABLE, 1), log=tens(3))
    assert driver.offsets == (0, 0, 20)
    assert driver.fetch() == "0-4x1 10-14x1 15-19x2 20-29x1"


def test_what_was_not_written_is_delivered_like_new_records() -> None:
    driver = restored(0, (50, 54, RecordState.ACKNOWLEDGED, 1), log=tens(6))
    assert driver.fetch(max_records=12, batch_size=10) == "0-9x1 10-19x1"
    assert driver.fetch_exactly(3) == "20-22x1"
    assert driver.fetch("b", batch_size=10) == "23-29x1 30-39x1 40-49x1 55-59x1"
    driver = restored(3, (50, 54, RecordState.ACKNOWLEDGED, 1), log=singles(60))
    assert driver.fetch(max_records=4, batch_size=2) == "3-4x1 5-6x1"
    assert driver.fetch(up_to=8) == "7-8x1"
    assert driver.offsets == (3, 9, 55)


def test_what_was_not_written_and_is_not_in_the_log_is_done() -> None:
    driver = restored(0, (5, 9, RecordState.AVAILABLE, 1), log=["3-4", "5-9"])
    assert driver.fetch() == "3-4x1 5-9x2"
    assert driver.offsets == (3, 10, 10)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ([(4, 6, RecordState.AVAILABLE, 1)], "the state of 4 to 6 is not after 5"),
        ([(7, 6, RecordState.AVAILABLE, 1)], "the state of 7 to 6 is not after 5"),
        ([(5, 9, RecordState.AVAILABLE, 1), (9, 9, RecordState.ARCHIVED, 1)], "the state of 9 to 9 is not after 10"),
        ([(5, 9, RecordState.ACQUIRED, 1)], "the state of 5 to 9 is ACQUIRED"),
    ],
)
def test_a_state_that_cannot_have_been_written_is_refused(
    written: list[tuple[int, int, RecordState, int]], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        Window(5, LIMITS).restore(Written(*each) for each in written)


# --- what a fetch has to read -----------------------------------------------------------------------------------------


def test_a_fetch_reads_no_more_than_it_can_use() -> None:
    driver = WindowDriver(*tens(4))
    assert driver.window.last_wanted(Wanted("a", 15, 15, False)) == 14
    driver.fetch(max_records=15)
    driver.acknowledge((3, 3, RELEASE), (12, 13, RELEASE))
    assert driver.window.last_wanted(Wanted("a", 1, 15, False)) == 19, "the end of what was acquired together"
    assert driver.window.last_wanted(Wanted("a", 5, 15, False)) == 21

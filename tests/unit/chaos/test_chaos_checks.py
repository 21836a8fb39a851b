"""The checks of transactions, compacted topics and groups find every anomaly in journals that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from chaos_checks import (
    GroupCheck,
    Logs,
    Writes,
    check_group,
    error_anomalies,
    plain_anomalies,
    table_anomalies,
    transaction_anomalies,
)
from chaos_history import Place, Read, Value
from chaos_journal import Event

P, Q = ("t", 0), ("t", 1)


def log(partition: int, *values: tuple[int, int] | None) -> list[Read]:
    """Return the records of a partition; None is an offset without one, as a marker's."""
    return [Read(Place(partition, i), Value(*each)) for i, each in enumerate(values) if each is not None]


# --- plain records ------------------------------------------------------------------------------------------------


def written(*acked: tuple[int, int | None], sent: int = 4) -> Writes:
    """Return numbers that producer 1 sent to one partition; some were acknowledged, with an offset."""
    writes = Writes()
    writes.add(
        [
            {"starts": 1},
            {"sent": [["t", 0, number, None] for number in range(sent)]},
            {"acked": [["t", 0, number, offset] for number, offset in acked]},
        ]
    )
    return writes


def plain(writes: Writes, *values: tuple[int, int]) -> list[str]:
    reads: Event = {"reads": [["t", 0, i, f"{each[0]}:{each[1]}"] for i, each in enumerate(values)]}
    return plain_anomalies("t", writes, {P: log(0, *values)}, {"reader": [reads]}, [reads])


def test_acknowledged_records_at_their_offsets_are_no_anomaly_and_others_may_be_there_once() -> None:
    assert plain(written((0, 0), (1, 1), (3, None)), (1, 0), (1, 1), (1, 2), (1, 3)) == []
    assert plain(written((0, 0), (1, 1), (3, None)), (1, 0), (1, 1), (1, 3)) == []


@pytest.mark.parametrize(
    ("values", "anomaly"),
    [
        ([(1, 0)], "t: lost write: Value(producer=1, number=1)"),
        ([(1, 0), (1, 1), (1, 2), (1, 2)], "t: duplicate: Value(producer=1, number=2)"),
        ([(1, 0), (1, 2), (1, 1)], "t: lost write: Value(producer=1, number=1) was acknowledged at"),
        ([(1, 0), (1, 1), (1, 3), (1, 2)], "t: out of order: Value(producer=1, number=2)"),
        ([(1, 0), (1, 1), (9, 9)], "t: phantom"),
    ],
)
def test_lost_double_moved_and_strange_records_are_found(values: list[tuple[int, int]], anomaly: str) -> None:
    found = plain(written((0, 0), (1, 1)), *values)
    assert any(text.startswith(anomaly) for text in found), found


def test_one_offset_that_was_acknowledged_for_two_records_is_found() -> None:
    found = plain(written((0, 0), (1, 0)), (1, 0), (1, 1))
    assert any("was acknowledged for" in text for text in found), found


# --- transactions -------------------------------------------------------------------------------------------------


def transaction(*ends: Event) -> Writes:
    """Return one of producer 1, with a record in each of two partitions, which were acknowledged at offset 0."""
    writes = Writes()
    writes.add(
        [
            {"starts": 1},
            {"sent": [["t", 0, 0, None], ["t", 1, 1, None]], "txn": "a"},
            {"acked": [["t", 0, 0, 0], ["t", 1, 1, 0]]},
            *ends,
        ]
    )
    return writes


COMMITTED = ({"ends": "a", "commit": True}, {"txn": "a", "outcome": "committed"})
ABORTED = ({"ends": "a", "commit": False}, {"txn": "a", "outcome": "aborted"})
WHOLE = {P: log(0, (1, 0)), Q: log(1, (1, 1))}
HALF: Logs = {P: log(0, (1, 0)), Q: []}
NOTHING: Logs = {P: [], Q: []}


@pytest.mark.parametrize(
    ("ends", "committed", "anomaly"),
    [
        (COMMITTED, WHOLE, None),
        (COMMITTED, HALF, "torn transaction"),
        (COMMITTED, NOTHING, "lost transaction"),
        (COMMITTED[:1], WHOLE, None),
        (COMMITTED[:1], NOTHING, None),
        (COMMITTED[:1], HALF, "torn transaction: transaction a (unknown)"),
        (ABORTED, NOTHING, None),
        (ABORTED, WHOLE, "aborted read: transaction a (aborted)"),
        (ABORTED, HALF, "aborted read"),
        (ABORTED[:1], HALF, "aborted read: transaction a (not committed)"),
        ((), NOTHING, None),
        ((), WHOLE, "aborted read: transaction a (never asked for)"),
    ],
)
def test_transactions_are_whole_or_absent(ends: tuple[Event, ...], committed: Logs, anomaly: str | None) -> None:
    found = list(transaction_anomalies(["t"], transaction(*ends), committed, WHOLE, {}))
    assert [text for text in found if not text.startswith("t: lost write")] == [
        text for text in found if anomaly is not None and text.startswith(anomaly)
    ]
    assert bool(found) == (anomaly is not None)


def test_a_record_of_a_transaction_at_another_offset_is_found() -> None:
    moved = {P: log(0, None, (1, 0)), Q: log(1, (1, 1))}
    found = list(transaction_anomalies(["t"], transaction(*COMMITTED), moved, moved, {}))
    assert [text.split(" Value")[0] for text in found] == ["t: lost write:"]


def test_a_record_that_is_there_aborted_and_committed_is_found() -> None:
    twice = {P: log(0, (1, 0), (1, 0)), Q: log(1, (1, 1))}
    found = list(transaction_anomalies(["t"], transaction(*COMMITTED), WHOLE, twice, {}))
    assert [text.split(" Value")[0] for text in found] == ["t: duplicate:"]


def test_a_reader_that_got_a_record_of_an_aborted_transaction_is_found() -> None:
    reader: list[Event] = [{"reads": [["t", 0, 0, "1:0"]]}]
    found = list(transaction_anomalies(["t"], transaction(*ABORTED), NOTHING, WHOLE, {"reader": reader}))
    assert [text.split(" found")[0] for text in found] == ["t: vanished: reader"]


# --- compacted topics ---------------------------------------------------------------------------------------------


def table(*values: tuple[int, int]) -> list[str]:
    """Keys a and b get the numbers 0, 2 and 1, 3; all but 3 are acknowledged."""
    writes = Writes()
    sent = [["t", 0, number, "ab"[number % 2]] for number in range(4)]
    writes.add([{"starts": 1}, {"sent": sent}, {"acked": [["t", 0, number, number] for number in range(3)]}])
    return list(table_anomalies("t", writes, {P: log(0, *values)}))


def test_each_key_has_the_last_value_that_was_acknowledged_or_a_later_one() -> None:
    assert table((1, 0), (1, 1), (1, 2), (1, 3)) == table((1, 1), (1, 2)) == table((1, 2), (1, 3)) == []
    assert ["has None" in text for text in table((1, 2))] == [True]
    assert ["lost write: key a" in text for text in table((1, 0), (1, 1))] == [True]
    assert ["out of order" in text for text in table((1, 2), (1, 0), (1, 1))] == [True, False]
    assert ["phantom" in text for text in table((1, 1), (1, 2), (9, 9))] == [True]


# --- groups -------------------------------------------------------------------------------------------------------

ONE, TWO = ("one", 0), ("two", 0)
TEN = {P: log(0, *((1, number) for number in range(10)))}


def assigned() -> Event:
    return {"assigned": [list(P)]}


def revoked() -> Event:
    return {"revoked": [list(P)]}


def reads(first: int, end: int) -> Event:
    return {"reads": [[*P, offset, f"1:{offset}"] for offset in range(first, end)]}


def asks(offset: int) -> Event:
    return {"asks": [[*P, offset]]}


def commits(offset: int) -> tuple[Event, Event]:
    return asks(offset), {"committed": [[*P, offset]]}


def group(*script: Any, committed: int = 10) -> GroupCheck:
    """Return the check after events of members: a member is followed by what it did."""
    events, member = [], ONE
    for each in script:
        if each in (ONE, TWO):
            member = each
        else:
            events += [(member, event) for event in (each if isinstance(each, tuple) else (each,))]
    check = check_group("g", TEN, [(who, {"t": at, **event}) for at, (who, event) in enumerate(events)])
    check.end({P: committed})
    return check


def found_in(*script: Any, committed: int = 10) -> list[str]:
    return [text.split(": ", 2)[-1] for text in group(*script, committed=committed).found]


def test_a_new_owner_may_read_again_what_was_not_committed() -> None:
    good = (ONE, assigned(), reads(0, 6), commits(4), revoked(), TWO, assigned(), reads(4, 10), commits(10))
    assert found_in(*good) == []


def test_a_new_owner_that_begins_before_a_commit_went_back() -> None:
    bad = (ONE, assigned(), reads(0, 6), commits(4), revoked(), TWO, assigned(), reads(0, 10), commits(10))
    assert found_in(*bad) == ["went back: it began at 0 or before, although 4 was committed"]


def test_a_commit_without_an_answer_may_have_been_made_late() -> None:
    late = (ONE, assigned(), reads(0, 3), asks(2), reads(3, 6), commits(6), TWO, assigned(), reads(2, 10), commits(10))
    assert found_in(*late) == []
    older = (ONE, assigned(), reads(0, 3), asks(2), reads(3, 6), commits(6), TWO, assigned(), reads(1, 10), commits(10))
    assert found_in(*older) == ["went back: it began at 1 or before, although 2 was committed"]


def test_such_a_commit_counts_only_until_there_is_another_owner() -> None:
    first = (ONE, assigned(), reads(0, 3), asks(2), reads(3, 6), commits(6))
    again = (*first, TWO, assigned(), reads(6, 8), commits(8), ONE, assigned(), reads(2, 10), commits(10))
    assert found_in(*again) == ["went back: it began at 2 or before, although 8 was committed"]


def test_a_member_that_goes_back_or_forward_on_its_own_is_found() -> None:
    assert found_in(assigned(), reads(0, 10), reads(0, 10)) == ["went back from 9 to 0 on its own"]
    assert found_in(assigned(), reads(0, 4), reads(6, 10)) == [
        "skipped records from 3 to 6",
        "skipped records: it read 6, but nobody read 4",
    ]


def test_a_new_owner_that_begins_after_unread_records_is_found() -> None:
    bad = (ONE, assigned(), reads(0, 4), commits(4), TWO, assigned(), reads(5, 10), commits(10))
    assert found_in(*bad) == ["skipped records: it read 5, but nobody read 4"]


def test_records_that_nobody_read_and_lost_commits_are_found() -> None:
    assert group(assigned(), reads(0, 7), commits(7), committed=7).found == [
        "unseen: group g never read 7 of ('t', 0) and later ones"
    ]
    assert group(assigned(), reads(0, 10), commits(10), committed=7).found == [
        "lost commit: group g has 7 of ('t', 0), but 10 was committed"
    ]


def test_old_records_in_the_queue_of_librdkafka_are_counted_and_are_no_anomaly() -> None:
    """Its member gets the partition for the second time, returns what it had fetched before, and then jumps."""
    begin = (ONE, assigned(), reads(0, 1), revoked(), TWO, assigned(), reads(0, 6), commits(6), revoked())
    old = group(*begin, ONE, assigned(), reads(1, 3), reads(6, 10), commits(10))
    assert (old.found, old.stale) == ([], 1)
    new = found_in(*begin, ONE, assigned(), reads(1, 10), commits(10))
    assert new == ["went back: it began at 6 or before, although 6 was committed"]
    from_0 = found_in(*begin, ONE, assigned(), reads(0, 10), commits(10))
    assert from_0 == ["went back: it began at 0 or before, although 6 was committed"]


# --- clients ------------------------------------------------------------------------------------------------------


def test_fatal_errors_lost_positions_and_crashes_of_clients_are_found() -> None:
    events: list[Event] = [
        {"error": "COORDINATOR_NOT_AVAILABLE", "fatal": False, "text": "…"},
        {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "fatal": True, "text": "…"},
        {"error": "_AUTO_OFFSET_RESET", "fatal": False, "text": "…"},
        {"error": "_FATAL", "fatal": False, "text": "…"},
        {"crashed": "ValueError()"},
    ]
    assert [text.split()[4] for text in error_anomalies("c", events)] == [
        "OUT_OF_ORDER_SEQUENCE_NUMBER:",
        "_AUTO_OFFSET_RESET:",
        "_FATAL:",
        "ValueError()",
    ]

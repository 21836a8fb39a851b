"""The checks of what was sent, acknowledged and read find each anomaly by its name."""

from __future__ import annotations

import pytest
from chaos_history import History, Place, Read, Value, anomalies


def good_history() -> History:
    """Return the records of two producers in one partition, acknowledged and read by all."""
    history = History()
    for offset, value in enumerate([Value(0, 0), Value(1, 0), Value(0, 1), Value(1, 1)]):
        history.sent[0].add(value)
        history.acknowledge(Place(0, offset), value)
        for reads in (history.polls["reader"], history.shared, history.final[0]):
            reads.append(Read(Place(0, offset), value))
    return history


def break_history(history: History, anomaly: str) -> None:
    last = Read(Place(0, 4), Value(0, 2))
    match anomaly:
        case "inconsistent offsets":
            history.shared[1] = Read(Place(0, 1), Value(0, 1))
        case "phantom":
            history.shared.append(last)
        case "duplicate":
            history.final[0].append(Read(Place(0, 4), Value(0, 1)))
        case "lost write":
            history.final[0].pop()
        case "out of order":
            history.sent[0].add(Value(1, -1))
            history.final[0].append(Read(Place(0, 4), Value(1, -1)))
        case "nonmonotonic poll":
            history.polls["reader"].append(history.polls["reader"][0])
        case "poll skip":
            del history.polls["reader"][1]
        case "vanished":
            history.sent[0].add(last.value)
            history.polls["reader"].append(last)
        case "unseen":
            history.polls["reader"].pop()


def test_a_good_history_has_no_anomalies() -> None:
    history = good_history()
    history.acknowledge_somewhere(0, Value(1, 1))
    assert not anomalies(history)


def test_losing_a_value_acknowledged_without_an_offset_is_an_anomaly() -> None:
    history = good_history()
    history.acknowledge_somewhere(0, Value(1, 2))
    assert anomalies(history) == [
        "lost write: Value(producer=1, number=2) was acknowledged in partition 0 and is not there"
    ]


@pytest.mark.parametrize(
    "anomaly",
    ["inconsistent offsets", "phantom", "duplicate", "lost write", "out of order", "nonmonotonic poll", "poll skip",
     "unseen", "vanished"],
)  # fmt: skip
def test_each_anomaly_is_reported_by_name(anomaly: str) -> None:
    history = good_history()
    break_history(history, anomaly)
    assert any(line.startswith(anomaly) for line in anomalies(history)), anomalies(history)

"""Leader epochs, by which a replica finds the offset where two logs diverge (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.log.epochs import EpochEntry, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (1, (1, 10)), (2, (2, 30)), (3, (2, 30)), (4, (2, 30)), (5, (5, 70)), (6, (-1, -1))],
)
def test_the_end_offset_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 10), (5, 30)).end_offset_for(asked, log_end=70) == answer


def test_a_log_without_epochs() -> None:
    assert epochs().end_offset_for(0, 5) == (-1, -1)
    assert epochs().epoch_for_offset(5) == -1
    assert epochs().latest_epoch == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (29, 2), (30, 5), (99, 5)])
def test_epoch_for_offset(offset: int, epoch: int) -> None:
    assert epochs((2, 10), (5, 30)).epoch_for_offset(offset) == epoch


def test_assigned_epochs() -> None:
    known = epochs()
    known.assign(0, 0)
    known.assign(0, 50)
    known.assign(3, 60)
    assert known.entries == ((0, 0), (3, 60))
    known.assign(4, 60)
    assert known.entries == ((0, 0), (4, 60)), "an epoch without records is removed"
    known.assign(2, 20)
    assert known.entries == ((0, 0), (2, 20)), "epochs above the assigned one are removed"
    known.assign(-1, 99)
    assert known.latest_epoch == 2


def test_truncated_epochs() -> None:
    known = epochs((1, 0), (2, 10), (5, 30))
    known.truncate_from_end(30)
    assert known.entries == ((1, 0), (2, 10))
    assert known.latest_epoch == 2
    known = epochs((1, 0), (2, 10), (5, 30))
    known.truncate_from_start(10)
    assert known.entries == ((2, 10), (5, 30))
    known.truncate_from_start(15)
    assert known.entries == ((2, 15), (5, 30))
    known.truncate_from_start(99)
    assert known.entries == ((5, 99),)


def test_only_changes_make_the_epochs_dirty() -> None:
    known = epochs((1, 0), (2, 10))
    known.assign(2, 50)
    known.truncate_from_end(99)
    known.truncate_from_start(0)
    assert not known.is_dirty
    known.assign(3, 60)
    assert known.is_dirty


def test_the_leader_epoch_checkpoint_file() -> None:
    known = epochs((1, 0), (5, 30))
    assert known.encode() == b"0\n2\n1 0\n5 30\n"
    assert LeaderEpochs.decode(known.encode()).entries == known.entries
    for content in (b"0\n2\n5 0\n1 30\n", b"0\n2\n1 30\n5 30\n", b"0\n1\nx 0\n", b""):
        with pytest.raises(MalformedData):
            LeaderEpochs.decode(content)

"""Damage to logs, replicas that differ, journals of clients: all that the chaos run does with files alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from chaos_clients import Progress
from chaos_damage import KINDS, METADATA, damage
from chaos_journal import Journal, Tail
from chaos_replicas import different_replicas

SEGMENTS = {"0000.log": b"a" * 5000, "0100.log": b"b" * 5000}


def node(folder: Path, *partitions: str) -> Path:
    for name in (*partitions, METADATA):
        (folder / name).mkdir(parents=True)
        for segment, content in SEGMENTS.items():
            (folder / name / segment).write_bytes(content)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_done_to_the_last_segment_of_partitions_and_never_to_the_metadata(
    kind: str, seed: int, tmp_path: Path
) -> None:
    data = node(tmp_path, "a-0", "a-1", "b-0")
    names = damage(data, kind, random.Random(seed))
    assert names
    for name in ("a-0", "a-1", "b-0", METADATA):
        found = {path.name: path.read_bytes() for path in (data / name).glob("*.log")}
        assert (found != SEGMENTS) == (name in names)
        if kind != "directories removed":
            assert found["0000.log"] == SEGMENTS["0000.log"]


def test_nothing_is_damaged_where_nothing_is(tmp_path: Path) -> None:
    assert damage(node(tmp_path), "ends cut off", random.Random(1)) == []


def test_replicas_may_have_other_segments_but_not_other_bytes(tmp_path: Path) -> None:
    folders = [node(tmp_path / f"node-{number}" / "data", "a-0", "other-0") for number in (1, 2, 3)]
    (folders[1] / "a-0" / "0100.log").rename(folders[1] / "a-0" / "0200.log")
    (folders[2] / "other-0" / "0100.log").unlink()
    assert list(different_replicas(folders, ["a"])) == []
    (folders[2] / "a-0" / "0000.log").write_bytes(b"a" * 4999 + b"b")
    assert list(different_replicas(folders, ["a"])) == [
        "different replicas: a-0 of node-2 (10000 bytes) and node-3 (10000 bytes) differ from byte 4999 on"
    ]
    (folders[2] / "a-0" / "0000.log").write_bytes(SEGMENTS["0000.log"] + b"b" * 7)
    assert [text.split("(")[-1] for text in different_replicas(folders, ["a"])] == [
        "10007 bytes) differ from byte 10000 on"
    ]


def test_a_journal_is_read_line_by_line_and_a_half_line_later(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert list(tail.read()) == []
    with Journal(path) as journal:
        journal.note(sent=[1])
    with path.open("a") as file:
        file.write('{"acked"')
    assert [event["sent"] for event in tail.read()] == [[1]]
    assert list(tail.read()) == []
    with path.open("a") as file:
        file.write(":[2]}\n")
    assert list(tail.read()) == [{"acked": [2]}]


def test_progress_is_what_was_sent_since_and_came_through_in_each_partition() -> None:
    progress = Progress({"t": 2})
    progress.add({"t": 1.0, "sent": [["t", 0, 0, None], ["t", 1, 1, None]]})
    progress.add({"t": 3.0, "acked": [["t", 0, 0, 0], ["t", 1, 1, 0]]})
    assert progress.stuck_since(0.5) == []
    assert progress.stuck_since(2.0) == [("t", 0), ("t", 1)], "both were sent before"
    progress.add({"t": 4.0, "sent": [["t", 1, 2, None]]})
    progress.add({"t": 5.0, "acked": [["t", 1, 2, 1]]})
    assert progress.stuck_since(2.0) == [("t", 0)]
    progress.add({"t": 6.0, "reads": [["t", 0, 5, "1:1"]]})
    assert progress.stuck_since(2.0) == []


def test_a_transaction_is_progress_when_it_was_begun_since_and_committed() -> None:
    progress = Progress({"t": 1})
    for name, begun_s, outcome in (("a", 1.0, "committed"), ("b", 3.0, "aborted"), ("c", 5.0, "committed")):
        assert progress.stuck_since(2.0) == [("t", 0)]
        progress.add({"t": begun_s, "sent": [["t", 0, 0, None]], "txn": name})
        progress.add({"t": begun_s + 1, "acked": [["t", 0, 0, 0]]})
        progress.add({"t": begun_s + 2, "txn": name, "outcome": outcome})
    assert progress.stuck_since(2.0) == []

"""Notes of tasks beside a checkpoint: what is delivered, and that they wait."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from moldau.backends.progress_files import (
    Delivered,
    Tally,
    batch_name,
    digest_of,
    forget_other_batches,
    forget_tallies,
    note_tally,
    note_waiting,
    read_tally,
    read_waiting,
    tally_of,
)

A, B, C = digest_of("a"), digest_of("b"), digest_of("c")


def test_what_was_delivered_is_known_to_the_next_attempt(tmp_path: Path) -> None:
    first = Delivered(tmp_path, "x-1", 0)
    assert first.before() == frozenset()
    first.add([A])
    first.add([B])
    assert Delivered(tmp_path, "x-1", 0).before() == {A, B}, "also while the first is still there"
    assert Delivered(tmp_path, "x-1", 1).before() == frozenset()
    first.close()


def test_a_half_written_digest_is_ignored_and_removed(tmp_path: Path) -> None:
    one = Delivered(tmp_path, "x-1", 0)
    one.add([A])
    one.close()
    with open(tmp_path / "backend" / "x-1" / "0.delivered", "ab") as file:
        file.write(B[:5])
    again = Delivered(tmp_path, "x-1", 0)
    assert again.before() == {A}
    again.add([C])
    again.close()
    assert Delivered(tmp_path, "x-1", 0).before() == {A, C}


def test_only_the_notes_of_the_batch_that_runs_are_kept(tmp_path: Path) -> None:
    for batch in ("x-1", "x-2"):
        one = Delivered(tmp_path, batch, 0)
        one.add([A])
        one.close()
    note_waiting(tmp_path, 0, (datetime.now(UTC), "refused"))
    forget_other_batches(tmp_path, "x-2")
    assert [path.name for path in (tmp_path / "backend").iterdir()] == ["x-2"]
    assert read_waiting([tmp_path]) is None
    assert batch_name("a", 1) != batch_name("b", 1)


def test_the_longest_wait_is_shown(tmp_path: Path) -> None:
    assert read_waiting([tmp_path / "nothing"]) is None
    note_waiting(tmp_path, 0, (datetime(2026, 1, 31, 8, 5, tzinfo=UTC), "HTTP 500"))
    note_waiting(tmp_path, 1, (datetime(2026, 1, 31, 8, 0, tzinfo=UTC), "refused"))
    assert read_waiting([tmp_path]) == "the backend takes nothing since 2026-01-31 08:00:00 UTC: refused"
    note_waiting(tmp_path, 1, None)
    assert read_waiting([tmp_path]) == "the backend takes nothing since 2026-01-31 08:05:00 UTC: HTTP 500"
    (tmp_path / "backend" / "0.waiting").write_text("{")
    assert read_waiting([tmp_path]) is None


@pytest.mark.parametrize("parts", [("a", "b"), ("ab",), ("a", "", "b"), ("1:a", "b")])
def test_digests_differ_for_other_lists_of_texts(parts: tuple[str, ...]) -> None:
    others = {("a", "b"), ("ab",), ("a", "", "b"), ("1:a", "b")} - {parts}
    assert digest_of(*parts) not in {digest_of(*other) for other in others}


def test_tallies_of_tasks_are_added_up_and_outlive_a_batch(tmp_path: Path) -> None:
    assert read_tally(tmp_path) is None
    early = Tally(delivered=5, retries=1, last_error="early", last_error_at="2026-11-15T11:00:00.000Z")
    late = Tally(delivered=2, dead_letters=3, last_error="late", last_error_at="2026-11-15T11:00:01.000Z")
    note_tally(tmp_path, 0, late)
    note_tally(tmp_path, 1, early)
    forget_other_batches(tmp_path, batch_name("q", 2))
    assert read_tally(tmp_path) == early.plus(late) == late.plus(early)
    assert early.plus(late) == Tally(
        delivered=7, retries=1, dead_letters=3, last_error="late", last_error_at="2026-11-15T11:00:01.000Z"
    )
    assert tally_of(tmp_path, 1) == early
    assert read_waiting([tmp_path]) is None
    (tmp_path / "backend" / "1.tally").write_text('{"delivered"')
    assert read_tally(tmp_path) == late, "half a file is only less exact"
    forget_tallies([tmp_path])
    assert read_tally(tmp_path) is None

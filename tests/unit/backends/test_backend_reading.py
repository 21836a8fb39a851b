"""Ranges of positions of a source that can only be read from a position on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.backends.reading import LostRows, all_ends, next_ends, rows_of_range
from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.identity import of_pipeline
from moldau.pipelines.spec import BackendSource


@dataclass
class Logs:
    """Partitions whose rows are numbered from 1."""

    sizes: dict[str, int] = field(default_factory=dict)

    def partitions(self) -> Sequence[str]:
        return list(self.sizes)

    def read(self, partition: str, start: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in range((start or 0) + 1, self.sizes[partition] + 1):
            yield {"n": number}, number


def numbers(source: Logs, partition: str, start: int | None, end: int | None) -> list[int]:
    return [row["n"] for row in rows_of_range(source, partition, start, end)]


def test_a_batch_has_at_most_so_many_rows_of_all_partitions() -> None:
    source = Logs({"a": 10, "b": 2, "c": 0})
    assert next_ends(source, {}, 9) == {"a": 3, "b": 2}
    assert next_ends(source, {"a": 3, "b": 2}, 9) == {"a": 6, "b": 2}
    assert next_ends(source, {"a": 10, "b": 2}, 9) == {"a": 10, "b": 2}, "nothing new"
    assert all_ends(source, {}) == {"a": 10, "b": 2}


def test_rows_that_come_after_the_target_wait() -> None:
    source = Logs({"a": 3})
    target = all_ends(source, {})
    source.sizes = {"a": 5, "new": 1}
    assert next_ends(source, {}, 100, target) == {"a": 3}
    assert next_ends(source, {"a": 3}, 100, target) == {"a": 3}


def test_a_range_is_read_again_as_it_was() -> None:
    source = Logs({"a": 5})
    assert numbers(source, "a", 1, 3) == [2, 3]
    assert numbers(source, "a", None, None) == [1, 2, 3, 4, 5]
    source.sizes["a"] = 2
    with pytest.raises(LostRows, match="partition a ends before position 3"):
        numbers(source, "a", 1, 3)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 12), min_size=1), st.integers(1, 20))
def test_all_rows_are_read_once(sizes: dict[str, int], rows_max: int) -> None:
    source, start, read = Logs(sizes), {}, []
    while (end := next_ends(source, start, rows_max)) != start:
        moved = [name for name in end if end[name] != start.get(name)]
        batch = [(name, n) for name in moved for n in numbers(source, name, start.get(name), end[name])]
        assert 0 < len(batch) <= max(rows_max, len(sizes))
        read += batch
        start = dict(end)
    assert sorted(read) == [(name, n) for name in sorted(sizes) for n in range(1, sizes[name] + 1)]


@pytest.mark.parametrize("positions", [[None], [1, 1]])
def test_positions_that_are_none_or_do_not_move_are_refused(positions: list[Any]) -> None:
    class Odd(Logs):
        def read(self, partition: str, start: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
            return (({}, position) for position in positions)

    with pytest.raises(ValueError, match="gave the position"):
        all_ends(Odd({"a": 1}), {})


@pytest.mark.parametrize("end", [None, 2])
def test_a_row_without_a_position_does_not_end_a_range_in_silence(end: int | None) -> None:
    class Odd(Logs):
        def read(self, partition: str, start: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
            return (({"n": number}, position) for number, position in enumerate([1, None, 2], 1))

    with pytest.raises(ValueError, match="partition a gave the position None after 1"):
        numbers(Odd(), "a", None, end)


def source_of(folder: Path, keys: str) -> BackendSource:
    file = folder / "pipeline.yaml"
    file.write_text(f"name: p\nsources: {{rates: {{{keys}}}}}\nsinks: [{{from: rates, console: true}}]\n")
    (folder / "feed.py").write_text("class Rates: ...\n")
    pipeline = load(file)
    assert of_pipeline(pipeline)["rates-to-console"].sources == {"rates": ["rows of feed:Rates"]}
    source = pipeline.sources["rates"]
    assert isinstance(source, BackendSource)
    assert "pl4nted" not in repr(source)
    assert "pl4nted" not in pipeline.masked("with pl4nted-token")
    return source


def test_a_source_in_a_pipelines_file(tmp_path: Path) -> None:
    source = source_of(
        tmp_path, 'backend: "feed:Rates", schema: "n int", args: {token: pl4nted-token}, max_per_trigger: 5'
    )
    assert (source.user_class, source.args, source.max_per_trigger) == (
        ("feed", "Rates"), {"token": "pl4nted-token"}, 5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('backend: "feed:Rates"', "missing key 'schema'"),
        ('backend: http, schema: "n int"', "'http' is not module:Class"),
        ('backend: "feed:Absent", schema: "n int"', "feed.py has no class 'Absent'"),
        ('backend: "feed:Rates", schema: "n int", format: json', "'format' is not for a class"),
        ('backend: "feed:Rates", schema: "n int", deduplicate: [n]', "'deduplicate' needs a watermark"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        source_of(tmp_path, keys)
    assert message in "\n".join(str(problem) for problem in raised.value.problems)

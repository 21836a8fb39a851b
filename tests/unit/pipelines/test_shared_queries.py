"""Which sinks could share a query, as a hint of `validate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_yaml import load_text

from moldau.pipelines.planning.checking import sharing_hints

SOURCE = "name: p\nsources:\n  a: {topic: a, format: text}\n  b: {topic: b, format: text}\nsinks:\n"


@pytest.mark.parametrize(
    ("sinks", "hints"),
    [
        (["{name: x, from: a, topic: x}", "{name: y, from: a, console: true}"], {"y": "x"}),
        (["{name: x, from: a, topic: x}", "{name: y, from: b, topic: y}"], {}),
        (["{name: x, from: a, topic: x}", "{name: y, from: a, topic: y, mode: update}"], {}),
        (["{name: x, from: a, topic: x}", "{name: y, from: a, topic: y, trigger: 5 seconds}"], {}),
        (["{name: x, from: a, topic: x}", "{name: y, from: a, topic: y, with: x}"], {}),
        (
            ["{name: x, from: a, topic: x}", "{name: y, from: a, topic: y, with: x}", "{name: z, from: a, topic: z}"],
            {"z": "x"},
        ),
    ],
)
def test_sinks_of_the_same_rows_could_share_a_query(tmp_path: Path, sinks: list[str], hints: dict[str, str]) -> None:
    pipeline = load_text(tmp_path, SOURCE + "".join(f"  - {sink}\n" for sink in sinks))
    found = sharing_hints(pipeline)
    assert [problem.severity for problem in found] == ["hint"] * len(hints)
    for problem, (sink, first) in zip(found, hints.items(), strict=True):
        assert problem.message.startswith(f"sink {sink}: ")
        assert f"`with: {first}`" in (problem.hint or "")

"""Pipeline files for tests, with «marks» around the words at which problems are expected to point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from moldau.pipelines.problems import Problem
from moldau.pipelines.reading.loading import load
from moldau.pipelines.spec import Pipeline

WHOLE_PIPELINE = """\
name: shop
bootstrap: localhost:9092
sources:
  orders:
    topic: orders
    schema: id string, amount double, ts timestamp
sinks:
  - from: orders
    topic: big
"""


def marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without the marks, and the line and column of each marked word."""
    places = []
    for mark in re.finditer("«", text):
        before = re.sub("[«»]", "", text[: mark.start()])
        places.append((before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1))
    return re.sub("[«»]", "", text), places


def write(folder: Path, text: str, name: str = "pipeline.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load_text(folder: Path, text: str, variables: Mapping[str, str] | None = None) -> Pipeline:
    return load(write(folder, text), variables, environ={"HOME": "/somewhere", "SECRET": "pw"})


def line_column(problem: Problem) -> tuple[int, int]:
    assert problem.place is not None
    return problem.place.line, problem.place.column

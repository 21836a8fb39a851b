"""Damaged pipeline files: each loads or raises InvalidPipeline with places in the file, and at low cost."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from harness.depth import deep
from harness.operations import operations_of

from moldau.pipelines.problems import LINE_END, InvalidPipeline
from moldau.pipelines.reading.loading import load

FILES = deep(100, quick=40)
"""Damaged files; `make deep` tries more."""
COUNTED_FILES = deep(18, quick=6)
"""Damaged files whose reading is counted in executed lines of Python."""
HEAD = "name: shop\nsources:\n  a: {topic: a, format: text}\n"
TAIL = "sinks:\n  - {from: a, console: true}\n"
BASES = [
    f"bootstrap: b:9092\nkafka: {{a: b}}\nspark: {{spark.x: 1}}\ntrigger: 1 second\nconnector: kafka\n{HEAD}{TAIL}",
    "name: shop\nsources:\n  a:\n    topics: [b, c]\n    schema: id int\n    start: {b: {0: 1}}\n    headers: true\n"
    "    watermark: {column: ts, delay: 1s}\n    deduplicate: [id]\n    dead_letter: drop\n" + TAIL,
    "name: shop\nsources:\n  a: &x {file: gone, format: csv, schema: a int}\n  b: {<<: *x, watch: true}\n"
    "  c: {table: t}\n  d: {pattern: 'x.*', format: avro, schema_file: f.avsc}\n" + TAIL,
    f"vars: {{v: w, u: '${{v}}x'}}\n{HEAD}steps:\n  - name: s\n    sql: |\n      select *\n      from ${{v}}\n"
    f"  - name: p\n    python: m:f\n    inputs: [s, a]\n    args: {{k: [1, 2.5, ~]}}\n{TAIL}",
    HEAD + "sinks:\n  - from: a\n    topic: t\n    key: k\n    headers: {h: v}\n    partitions: 3\n    mode: update\n"
    "  - from: a\n    table: ./t\n    format: delta\n    mode: upsert\n    keys: [k]\n    delete_when: op = 'd'\n",
]
FRAGMENTS = [
    *"\t\n:{}[]'\"&*!|>-?#%@`,$\\ \0\x85\ufeff\u2028", "${", "<<: ", "*x", "&x ", "!!str ", "---\n", "- ", "? ", ": ",
    "null", "~", "[]", "{}", '"\\x00"', "|\n", ">2\n", "name", "topic", "${env:HOME}", "$${", "1e999", "日本", "((((",
    "-1", "..", "~root/x",
]  # fmt: skip


def damage(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(lines))
        line = lines[at]
        column = rng.randrange(len(line) + 1)
        lines[at] = rng.choice(
            (
                line[:column] + rng.choice(FRAGMENTS) + line[column:],
                line[:column] + line[column + 1 :],
                line[:column] + line[column + rng.randrange(1, 9) :],
                line[:column] + rng.choice(FRAGMENTS),
                " " * rng.randrange(9) + line.strip(),
                line + "\n" + rng.choice(lines),
                line.swapcase(),
                rng.choice(lines),
            )
        )
    return "\n".join(lines)


def assert_readable(error: InvalidPipeline, text: str) -> None:
    """Check that every problem has one line, and that its place, if it has one, is in the file."""
    lines = len(LINE_END.split(text))  # as editors count; YAML has more line breaks
    for problem in error.problems:
        assert problem.place is None or 1 <= problem.place.line <= lines, problem
        assert "\n" not in problem.message, problem
    assert error.render()


def test_damaged_files_load_or_are_refused(tmp_path: Path) -> None:
    rng = random.Random(20260131)
    path = tmp_path / "pipeline.yaml"
    good = 0
    for number in range(FILES):
        text = damage(BASES[number % len(BASES)], rng)
        path.write_text(text, encoding="utf-8", newline="")
        try:
            load(path, check_files=number % 3 == 0)
            good += 1
        except InvalidPipeline as error:
            assert_readable(error, text)
    assert FILES // 30 < good < FILES // 2


def test_damage_does_not_make_reading_much_slower(tmp_path: Path) -> None:
    rng = random.Random(20260131)
    path = tmp_path / "pipeline.yaml"

    def read() -> None:
        with suppress(InvalidPipeline):
            load(path, check_files=False)

    for base in BASES:
        path.write_text(base, encoding="utf-8", newline="")
        read()  # the first time also imports modules
        undamaged = operations_of(read)
        for _ in range(COUNTED_FILES // len(BASES)):
            path.write_text(damage(base, rng), encoding="utf-8", newline="")
            assert operations_of(read) < 10 * undamaged, path.read_text()

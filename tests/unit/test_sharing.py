"""The order in which parallel runs look at the test files."""

from __future__ import annotations

import pytest
from sharing import HERE, LONGEST, ORDERS, TestFile

QUICK = [TestFile(HERE / "unit" / f"test_{number}.py", []) for number in range(3)]
SLOW = [
    *(TestFile(HERE / "interop" / name, []) for name in LONGEST),
    *(TestFile(HERE / "spark" / f"test_{number}.py", []) for number in range(5)),
]


@pytest.mark.parametrize("start", ORDERS)
def test_every_run_comes_to_all_files(start: str) -> None:
    assert {file.path for file in ORDERS[start](QUICK, SLOW)} == {file.path for file in QUICK + SLOW}


@pytest.mark.parametrize("start", ["front", "early"])
def test_two_runs_begin_with_the_quick_files(start: str) -> None:
    assert ORDERS[start](QUICK, SLOW)[: len(QUICK)] == QUICK


def test_one_run_begins_with_the_longest_files() -> None:
    assert tuple(file.path.name for file in ORDERS["middle"](QUICK, SLOW)[: len(LONGEST)]) == LONGEST


def test_one_run_begins_with_the_files_with_spark() -> None:
    assert ORDERS["back"](QUICK, SLOW)[0] == SLOW[-1]

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


@pytest.mark.parametrize("start", ["front", "early", "middle"])
def test_runs_begin_with_the_quick_files(start: str) -> None:
    assert ORDERS[start](QUICK, SLOW)[: len(QUICK)] == QUICK


def test_the_run_that_starts_spark_begins_with_it() -> None:
    assert ORDERS["back"](QUICK, SLOW)[0] == SLOW[-1]

"""How parallel runs divide the test files: the order in which they look at them, and that they collect no others."""

from __future__ import annotations

import pytest
from runner.sharing import LONGEST, ORDERS, TESTS, Sharing, TestFile

pytest_plugins = "pytester"
QUICK = [TestFile(TESTS / "unit" / f"test_{number}.py") for number in range(3)]
SLOW = [
    *(TestFile(TESTS / "interop" / name) for name in LONGEST),
    *(TestFile(TESTS / "spark" / f"test_{number}.py") for number in range(5)),
]


@pytest.mark.parametrize("start", ORDERS)
def test_every_run_comes_to_all_files_but_one_to_those_with_spark(start: str) -> None:
    expected = [file for file in QUICK + SLOW if start == "back" or not file.needs_spark]
    assert {file.path for file in ORDERS[start](QUICK, SLOW)} == {file.path for file in expected}


@pytest.mark.parametrize("start", ["front", "early"])
def test_two_runs_begin_with_the_quick_files(start: str) -> None:
    assert ORDERS[start](QUICK, SLOW)[: len(QUICK)] == QUICK


def test_one_run_begins_with_the_longest_files() -> None:
    assert tuple(file.path.name for file in ORDERS["middle"](QUICK, SLOW)[: len(LONGEST)]) == LONGEST


def test_one_run_begins_with_the_files_with_spark() -> None:
    assert ORDERS["back"](QUICK, SLOW)[0] == SLOW[-1]


def test_a_run_collects_the_files_that_no_other_has_claimed(pytester: pytest.Pytester) -> None:
    claims = pytester.mkdir("claims")
    for name, text in {"a": "def test_it(): pass", "b": "1 / 0", "c": "def test_it(): assert 0"}.items():
        (pytester.mkdir(name) / f"test_{name}.py").write_text(text)
    (claims / "b--test_b.py").touch()
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", plugins=[Sharing(claims, "front", tests=pytester.path)]
    )
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    assert {file.name for file in claims.iterdir()} == {f"{name}--test_{name}.py" for name in "abc"}


def test_a_file_that_cannot_be_imported_is_an_error(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("a") / "test_a.py").write_text("1 / 0")
    plugin = Sharing(pytester.mkdir("claims"), "front", tests=pytester.path)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", plugins=[plugin])
    assert result.parseoutcomes() == {"errors": 1}
    assert result.ret == pytest.ExitCode.TESTS_FAILED

"""Several pytest runs side by side share the test files: each takes the next unclaimed file.

Each run collects all tests in the same order and claims a file by creating a file of that name in a shared directory
(MOLDAU_TEST_CLAIMS). Quick files compute, while most slow ones wait, so two runs begin with each. With
MOLDAU_TEST_FROM=back a run takes the last slow files first, which are those with Spark, a quarter of the whole; with
`middle` it takes the longest ones, then goes from the middle to the front. The runs `front` and `early` come to the
slow files after the quick ones, and go from the front, and from the first quarter to the front. So only one run starts
Spark, and all end at about the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

QUICK = ("tidy", "unit", "scripts")
LONGEST = ("test_transactional_failover.py", "test_testing_cluster.py", "test_failover_clients.py")
"""Files that mostly wait and take the longest: no run should come to them last."""
HERE = Path(__file__).parent


class TestFile(NamedTuple):
    __test__ = False  # not a test class, though its name looks like one to pytest

    path: Path
    items: list[pytest.Item]

    @property
    def is_quick(self) -> bool:
        return self.path.relative_to(HERE).parts[0] in QUICK

    @property
    def claim(self) -> str:
        return str(self.path.relative_to(HERE)).replace("/", "--")


def _from_quarter(files: list[TestFile]) -> list[TestFile]:
    quarter = len(files) // 4
    return [*reversed(files[:quarter]), *files[quarter:]]


def _from_middle(files: list[TestFile]) -> list[TestFile]:
    half = len(files) // 2
    longest = [file for file in files if file.path.name in LONGEST]
    return [*longest, *reversed(files[:half]), *files[half:]]


ORDERS: dict[str, Callable[[list[TestFile], list[TestFile]], list[TestFile]]] = {
    "front": lambda quick, slow: [*quick, *slow],
    "early": lambda quick, slow: [*quick, *_from_quarter(slow)],
    "middle": lambda quick, slow: [*_from_middle(slow), *reversed(quick)],
    "back": lambda quick, slow: [*reversed(slow), *reversed(quick)],
}
"""The order in which a run looks at the quick and the slow files."""


class Sharing:
    def __init__(self, claims: Path, start: str) -> None:
        assert start in ORDERS, f"MOLDAU_TEST_FROM={start}: it is one of {', '.join(ORDERS)}"
        self._claims = claims
        self._in_order = ORDERS[start]
        self._files: list[TestFile] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors while the tests were collected")
        by_file: dict[Path, list[pytest.Item]] = {}
        for each in session.items:
            by_file.setdefault(each.path, []).append(each)
        self._files = [TestFile(path, items) for path, items in by_file.items()]
        items = self._claimed_items()
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _claimed_items(self) -> Iterator[pytest.Item]:
        quick = [file for file in self._files if file.is_quick]
        slow = [file for file in self._files if not file.is_quick]
        for file in self._in_order(quick, slow):
            if self._claim(file):
                yield from file.items

    def _claim(self, file: TestFile) -> bool:
        try:
            (self._claims / file.claim).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def tests_of(self, path: Path) -> int:
        return next(len(file.items) for file in self._files if file.path == path)

    def share_claimed(self) -> float:
        """Return the share of tests in files that are claimed."""
        claimed = sum(len(file.items) for file in self._files if (self._claims / file.claim).exists())
        return claimed / max(1, sum(len(file.items) for file in self._files))

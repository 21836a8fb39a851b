"""Several pytest runs side by side share the test files: each takes the next unclaimed file.

Each run lists all test files in the same order and claims one by creating a file of that name in a shared directory
(MOLDAU_TEST_CLAIMS). It imports and collects only the files that it has claimed: to collect all takes 15 seconds of CPU
time. Quick files compute, while most slow ones wait, so two runs begin with each. With
MOLDAU_TEST_FROM=back a run takes the last slow files first, which are those with Spark, a quarter of the whole; with
`middle` it takes the longest ones, then goes from the middle to the front. The runs `front` and `early` come to the
slow files after the quick ones, and go from the front, and from the first quarter to the front. The files with Spark
are left to the run `back`: a second session would cost 15 seconds of CPU time for the few files that are left at the
end.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.leftovers import collect_leftovers

QUICK = ("tidy", "unit", "node", "scripts")
LONGEST = ("test_transactional_failover.py", "test_testing_cluster.py", "test_failover_clients.py")
"""Files that mostly wait and take the longest: no run should come to them last."""
TESTS = Path(__file__).parents[1]


class TestFile(NamedTuple):
    __test__ = False  # not a test class, though its name looks like one to pytest

    path: Path
    collector: pytest.Collector | None = None
    tests: Path = TESTS

    @property
    def is_quick(self) -> bool:
        return self.path.relative_to(self.tests).parts[0] in QUICK

    @property
    def needs_spark(self) -> bool:
        return self.path.relative_to(self.tests).parts[0] == "spark"

    @property
    def claim(self) -> str:
        return str(self.path.relative_to(self.tests)).replace("/", "--")


def _without_spark(files: list[TestFile]) -> list[TestFile]:
    return [file for file in files if not file.needs_spark]


def _from_quarter(files: list[TestFile]) -> list[TestFile]:
    quarter = len(files) // 4
    return [*reversed(files[:quarter]), *files[quarter:]]


def _from_middle(files: list[TestFile]) -> list[TestFile]:
    half = len(files) // 2
    longest = [file for file in files if file.path.name in LONGEST]
    return [*longest, *reversed(files[:half]), *files[half:]]


ORDERS: dict[str, Callable[[list[TestFile], list[TestFile]], list[TestFile]]] = {
    "front": lambda quick, slow: [*quick, *_without_spark(slow)],
    "early": lambda quick, slow: [*quick, *_without_spark(_from_quarter(slow))],
    "middle": lambda quick, slow: [*_without_spark(_from_middle(slow)), *reversed(quick)],
    "back": lambda quick, slow: [*reversed(slow), *reversed(quick)],
}
"""The order in which a run looks at the quick and the slow files."""


class Sharing:
    def __init__(self, claims: Path, start: str, tests: Path = TESTS) -> None:
        assert start in ORDERS, f"MOLDAU_TEST_FROM={start}: it is one of {', '.join(ORDERS)}"
        self._claims = claims
        self._tests = tests
        self._in_order = ORDERS[start]
        self._files: list[TestFile] = []
        self._are_all_listed = False
        self._tests_in: dict[Path, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        """List a file instead of importing it, until all are listed."""
        if self._are_all_listed or not isinstance(collector, pytest.File):
            return None
        self._files.append(TestFile(collector.path, collector, self._tests))
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._are_all_listed = True
        session.testscollected = len(self._files)  # a run for which the others leave nothing has not failed
        items = self._claimed_items(session)
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

    def _claimed_items(self, session: pytest.Session) -> Iterator[pytest.Item]:
        quick = [file for file in self._files if file.is_quick]
        slow = [file for file in self._files if not file.is_quick]
        for file in self._in_order(quick, slow):
            if self._claim(file):
                yield from self._collect(session, file)

    def _collect(self, session: pytest.Session, file: TestFile) -> list[pytest.Item]:
        assert file.collector is not None
        collect_leftovers()  # before the freeze below, which would keep them
        with hidden_from_garbage_collector():
            items = list(session.genitems(file.collector))
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
        session.testscollected += len(items)
        self._tests_in[file.path] = len(items)
        return items

    def _claim(self, file: TestFile) -> bool:
        try:
            (self._claims / file.claim).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def tests_of(self, path: Path) -> int:
        return self._tests_in[path]

    def share_claimed(self) -> float:
        """Return the share of files that are claimed."""
        return sum((self._claims / file.claim).exists() for file in self._files) / max(1, len(self._files))


@contextmanager
def hidden_from_garbage_collector() -> Iterator[None]:
    """Hide modules and tests that are collected meanwhile from the garbage collector: they stay, and it would look at
    them again and again. A full collection of all tests takes half a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

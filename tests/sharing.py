"""Several runs of pytest side by side share the test files: who is free takes the next one.

Each run collects all tests in the same order and claims a file by creating one of its name in a directory that all
know (MOLDAU_TEST_CLAIMS). A run from the front goes through the files as they stand. A run from the back
(MOLDAU_TEST_FROM=back) does so too as long as the files are quick, and then begins with the last, so that one run
alone starts a Spark, and both come to their end at the same time, wherever that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

QUICK = ("tidy", "unit", "scripts")
HERE = Path(__file__).parent


class TestFile(NamedTuple):
    __test__ = False  # not a test class, whatever pytest thinks of its name

    path: Path
    items: list[pytest.Item]

    @property
    def is_quick(self) -> bool:
        return self.path.relative_to(HERE).parts[0] in QUICK

    @property
    def claim(self) -> str:
        return str(self.path.relative_to(HERE)).replace("/", "--")


class Sharing:
    def __init__(self, claims: Path, start: str) -> None:
        assert start in ("front", "back"), f"MOLDAU_TEST_FROM={start}: it is front or back"
        self._claims = claims
        self._from_back = start == "back"
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
        for file in [*quick, *(reversed(slow) if self._from_back else slow)]:
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
        """Of all tests, those in files that somebody has claimed."""
        claimed = sum(len(file.items) for file in self._files if (self._claims / file.claim).exists())
        return claimed / max(1, sum(len(file.items) for file in self._files))

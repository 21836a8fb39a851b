"""A file system and a table log in memory, and drivers whose steps are run in a chosen order.

`Schedule` runs each driver in a thread, but only one at a time. Each look at the file system and each change of it is a
step; a driver stops before one when its allowance is used up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import pytest

from moldau.spark.lake import disk
from moldau.spark.lake.tables import BatchTag, DataFile
from moldau.spark.lake.transactions import Conflict, LastBatch, check_new


class Schedule:
    """Runs drivers step by step."""

    def __init__(self) -> None:
        self._current: Driver | None = None

    def step(self) -> None:
        if self._current is not None:
            self._current.step()

    def driver(self, work: Callable[[], object]) -> Driver:
        return Driver(work)

    def run(self, driver: Driver, steps: int = 1_000_000) -> None:
        """Let a driver make so many steps; fewer if it ends."""
        self._current = driver
        try:
            driver.proceed(steps)
        finally:
            self._current = None


class Driver:
    """Work in a thread of its own that stops before a step when its allowance is used up."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.steps = 0
        self.is_done = False
        self.result: object = None
        self._allowed = 0
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(work,), daemon=True)
        self._is_started = False

    def proceed(self, steps: int) -> None:
        if self.is_done:
            return
        self._allowed = steps
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        if self.is_done:
            self._thread.join()
            if isinstance(self.result, BaseException):
                raise self.result

    def step(self) -> None:
        while self._allowed <= 0:
            self._back.release()
            self._go.acquire()
        self._allowed -= 1
        self.steps += 1

    def _main(self, work: Callable[[], object]) -> None:
        try:
            self.result = work()
        except BaseException as error:
            self.result = error
        self.is_done = True
        self._back.release()


class MemoryDisk:
    """What the module `disk` does, in memory. Paths have no "/" at their end."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.files: dict[str, bytes] = {}
        self.directories: set[str] = set()
        self._step = step

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in (
            "ensure_directory", "move", "remove", "remove_directory", "remove_empty_directory", "create_content",
            "create_directory_with_file", "flush_directory", "content_of", "names", "exists",
        ):  # fmt: skip
            patch.setattr(disk, name, getattr(self, name))

    def write(self, path: str, content: bytes) -> None:
        """A task's file."""
        self._step()
        if os.path.dirname(path) not in self.directories:
            raise FileNotFoundError(path)
        self.files[path] = content

    def ensure_directory(self, path: str) -> None:
        self._step()
        while path not in ("", "/"):
            self.directories.add(path)
            path = os.path.dirname(path)

    def move(self, source: str, target: str) -> bool:
        self._step()
        if source in self.files:
            assert os.path.dirname(target) in self.directories
            self.files[target] = self.files.pop(source)
            return True
        if source not in self.directories:
            return False
        assert not self._inside(target), "a directory with files is not replaced"
        self._rename(source, target)
        return True

    def remove(self, path: str) -> None:
        self._step()
        self.files.pop(path, None)

    def remove_directory(self, path: str) -> None:
        for name in self.names(path):
            self.remove(os.path.join(path, name))
        self.remove_empty_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        self._step()
        if not self._inside(path):
            self.directories.discard(path)

    def create_content(self, path: str, content: bytes) -> bool:
        self._step()
        if path in self.files:
            return False
        if os.path.dirname(path) not in self.directories:
            raise FileNotFoundError(path)
        self.files[path] = content
        return True

    def create_directory_with_file(self, path: str, name: str, content: bytes) -> bool:
        self._step()
        if self._inside(path):
            return False
        self.directories.add(path)
        self.files[os.path.join(path, name)] = content
        return True

    def flush_directory(self, path: str) -> None:
        self._step()
        if path not in self.directories:
            raise FileNotFoundError(path)

    def content_of(self, path: str) -> bytes | None:
        self._step()
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        self._step()
        return self._inside(path)

    def exists(self, path: str) -> bool:
        self._step()
        return path in self.files or path in self.directories

    def _inside(self, path: str) -> list[str]:
        found = {
            name.removeprefix(path + "/").split("/")[0]
            for name in (*self.files, *self.directories)
            if name.startswith(path + "/")
        }
        return sorted(found)

    def _rename(self, source: str, target: str) -> None:
        def renamed(name: str) -> str:
            return target + name.removeprefix(source) if name == source or name.startswith(source + "/") else name

        self.files = {renamed(name): content for name, content in self.files.items()}
        self.directories = {renamed(name) for name in self.directories}


class MemoryLog:
    """A table with a log of its own: versions that are added by compare-and-swap."""

    def __init__(self, path: str, disk: MemoryDisk, step: Callable[[], None]) -> None:
        self.path = path
        self.files: list[str] = []
        self._disk, self._step = disk, step
        self._version = 0
        self._last: dict[str, LastBatch] = {}

    def last_batch(self, query_id: str) -> LastBatch | None:
        self._step()
        return self._last.get(query_id)

    def transact(self, files: Sequence[DataFile], tag: BatchTag, epoch: int) -> LastBatch | None:
        self._step()
        version, last = self._version, self._last.get(tag.query_id)
        check_new(last, tag)
        names = [os.path.join(self.path, file.name) for file in files]
        for name in names:
            if not self._disk.exists(name):
                raise FileNotFoundError(name)
        self._step()
        if self._version != version:
            raise Conflict("a newer version")
        self._version += 1
        self.files += names
        self._last[tag.query_id] = LastBatch(tag.batch_id, epoch)
        return last

"""Work in threads: its faults are reported to the loop, and nothing starts after `close`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from moldau.base.errors import StorageFault
from moldau.runtime.thread_work import ThreadWork


def test_a_disk_fault_is_returned_and_any_other_error_is_reported() -> None:
    faults: list[Exception] = []

    async def run_work() -> None:
        work = ThreadWork(faults.append, ThreadPoolExecutor(1))
        names: list[str] = []
        fault = StorageFault("/data", OSError(28, "No space left on device"))

        def fail_disk() -> None:
            raise fault

        def fail() -> None:
            raise ValueError("a bug")

        promises = [work.run(each) for each in (lambda: names.append(threading.current_thread().name), fail_disk, fail)]
        await work.wait()
        await asyncio.sleep(0)
        assert [promise.value() for promise in promises] == [None, fault, None]
        assert names != [threading.current_thread().name]
        work.close()
        late = work.run(fail)
        await work.wait()
        assert not late.done

    asyncio.run(run_work())
    assert [str(each) for each in faults] == ["a bug"]


def test_work_without_a_thread_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may be in the middle of other work, such as publishing an image, so nothing is raised to it."""
    faults: list[Exception] = []

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run_work() -> None:
        work = ThreadWork(faults.append, ThreadPoolExecutor(1))
        monkeypatch.setattr(threading.Thread, "start", refuse)
        promise = work.run(lambda: None)
        await work.wait()
        assert not promise.done
        work.close()

    asyncio.run(run_work())
    assert [str(each) for each in faults] == ["can't start new thread"]

"""The workers of views: each piece of work is limited, a failure has a one-line reason and does not affect the next."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S, wait_until

pytest.importorskip("duckdb")

from moldau.base.config_def import BrokerLayers
from moldau.base.promise import Promise
from moldau.base.setting_sources import SettingsError
from moldau.base.view_configs import VIEW_SELECT, VIEW_WHERE
from moldau.log.files import DiskFiles
from moldau.log.reading import Slice
from moldau.runtime.views.ports import NEEDS_DUCKDB, ViewsInThread, view_task
from moldau.runtime.views.queues import ViewQueues, ViewWork
from moldau.runtime.views.worker import Worker
from moldau.runtime.views.workers import COMMAND, ViewWorkers, view_workers
from moldau.settings import load
from moldau.views.definition import ViewDefinition, view_definition
from moldau.views.jobs import Evaluated, ViewFailed
from moldau.wire.records import Record, build_batch

BIG = view_definition({VIEW_WHERE: "a > 1"})


def segment(path: Path, *values: bytes) -> Slice:
    content = build_batch([Record(index, 5, None, value) for index, value in enumerate(values)])
    path.write_bytes(content)
    return Slice(DiskFiles().open(str(path)), 0, len(content))


async def result(promise: Promise[Evaluated | ViewFailed]) -> Evaluated | ViewFailed:
    done: asyncio.Future[Evaluated | ViewFailed] = asyncio.get_running_loop().create_future()
    promise.then(done.set_result)
    return await asyncio.wait_for(done, PATIENCE_S)


def with_workers(use: Callable[[ViewWorkers], object], **limits: object) -> None:
    async def run() -> None:
        workers = ViewWorkers(asyncio.get_running_loop(), **limits)  # type: ignore[arg-type]
        try:
            await use(workers)  # type: ignore[misc]
        finally:
            workers.close()

    asyncio.run(run())


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that the test has started so far."""
    processes: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return processes


def running(started: list[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    return [process for process in started if process.poll() is None]


def test_work_is_done_in_a_process_that_is_kept(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    records = segment(tmp_path / "log", b'{"a":1}', b'{"a":2}')

    async def use(workers: ViewWorkers) -> None:
        shown = await result(workers.evaluate("v", BIG, records, 0))
        assert isinstance(shown, Evaluated)
        assert (shown.seen, shown.shown, shown.next_offset) == (2, 1, 2)
        await result(workers.evaluate("v", BIG, records, 0))
        assert len(started) == len(running(started)) == 1

    with_workers(use)


def test_more_work_than_workers_is_done_in_order(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')

    async def use(workers: ViewWorkers) -> None:
        results = await asyncio.gather(*(result(workers.evaluate("v", BIG, records, 0)) for _ in range(6)))
        assert all(isinstance(each, Evaluated) for each in results)
        assert len(started) == len(running(started)) == 1

    with_workers(use, workers=1)


def test_work_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", json.dumps({"a": "x" * 10_000_000}).encode())
    slow = view_definition({VIEW_SELECT: ", ".join(f"sha256(a || '{number}') as a{number}" for number in range(200))})

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", slow, records, 0))
        assert failed == ViewFailed("evaluating the view took more than 1 s of CPU time", is_divisible=True)
        assert isinstance(await result(workers.evaluate("v", BIG, segment(tmp_path / "b", b"{}"), 0)), Evaluated)

    with_workers(use, workers=1, cpu_max_s=1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory")
def test_work_that_needs_too_much_memory_fails(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", json.dumps({"a": "x" * 20_000_000}).encode())
    greedy = view_definition({VIEW_SELECT: " || ".join(["a"] * 40) + " as b"})

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", greedy, records, 0))
        assert isinstance(failed, ViewFailed)
        assert "memory" in failed.why.lower()
        assert isinstance(await result(workers.evaluate("v", BIG, segment(tmp_path / "b", b"{}"), 0)), Evaluated)

    with_workers(use, workers=1, memory_bytes=400 << 20)


def test_a_replaced_file_makes_the_work_retriable(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    os.rename(tmp_path / "log", tmp_path / "old")
    segment(tmp_path / "log", b'{"a":3}')

    async def use(workers: ViewWorkers) -> None:
        for _ in range(2):
            failed = await result(workers.evaluate("v", BIG, records, 0))
            assert isinstance(failed, ViewFailed)
            assert failed.is_retriable
            (tmp_path / "log").unlink(missing_ok=True)

    with_workers(use)


def test_a_worker_that_dies_before_it_is_ready_fails_its_work(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    dying = [sys.executable, "-c", "import sys; sys.exit(1)"]

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", BIG, records, 0))
        assert failed == ViewFailed("the view's worker died before it was ready, with code 1", is_retriable=True)

    with_workers(use, command=dying)


def test_a_worker_that_cannot_be_started_is_not_the_views_fault(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", BIG, records, 0))
        assert isinstance(failed, ViewFailed)
        assert failed.is_retriable
        assert "no worker could be started" in failed.why

    with_workers(use, command=[str(tmp_path / "nothing")])


FAKE_WORKER = """
import os, sys, time
from multiprocessing.connection import Connection
connection = Connection(0)
connection.send(None)
connection.recv()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("end", "is_retriable"), [("SIGKILL", True), ("SIGTERM", True), ("SIGABRT", False)])
def test_a_worker_that_is_killed_is_not_the_views_fault_one_that_crashes_is(
    tmp_path: Path, end: str, is_retriable: bool
) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    script = FAKE_WORKER + f"import signal; os.kill(os.getpid(), signal.{end}); time.sleep(60)"

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", BIG, records, 0))
        assert isinstance(failed, ViewFailed)
        assert failed.is_retriable == is_retriable, failed.why

    with_workers(use, command=[sys.executable, "-c", script])


def test_work_that_fails_in_a_used_process_is_retried_in_a_new_one(tmp_path: Path) -> None:
    """For example, earlier work has filled the memory of the process."""
    records = segment(tmp_path / "log", b'{"a":2}')
    shown = "from moldau.views.jobs import Evaluated, ViewFailed; shown = Evaluated(0, 1, b'', (), (), 1, 1, 0, True)"
    script = FAKE_WORKER + shown + "\nconnection.send(shown); connection.recv(); connection.send(ViewFailed('full'))"

    async def use(workers: ViewWorkers) -> None:
        for _ in range(3):
            assert isinstance(await result(workers.evaluate("v", BIG, records, 0)), Evaluated)

    with_workers(use, workers=1, command=[sys.executable, "-c", script])


def test_an_unexpected_exception_fails_the_work_and_ends_its_process(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    unexpected = (
        "from moldau.runtime.worker_processes.serving import Unexpected; connection.send(Unexpected('KeyError'))"
    )
    script = f"{FAKE_WORKER}{unexpected}; time.sleep(60)"

    async def use(workers: ViewWorkers) -> None:
        failed = await result(workers.evaluate("v", BIG, records, 0))
        assert failed == ViewFailed("evaluating the view failed with KeyError", is_divisible=True)
        assert len(started) == 1
        wait_until(lambda: not running(started), "the process has ended")

    with_workers(use, workers=1, command=[sys.executable, "-c", script])


@pytest.mark.parametrize("answer", ["b'no pickle'", "b'cnobody.has.this\\nx\\n.'"])
def test_an_unreadable_result_fails_the_work_and_ends_its_process(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], answer: str
) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    script = FAKE_WORKER + f"connection.send_bytes({answer}); time.sleep(60)"

    async def use(workers: ViewWorkers) -> None:
        for count in (1, 2):
            failed = await result(workers.evaluate("v", BIG, records, 0))
            assert isinstance(failed, ViewFailed)
            assert failed.is_retriable
            assert failed.why.startswith("the view's worker failed: ")
            assert len(started) == count
            wait_until(lambda: not running(started), "the process has ended")

    with_workers(use, workers=1, command=[sys.executable, "-c", script])


def test_a_missing_thread_fails_the_work_and_keeps_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def use(workers: ViewWorkers) -> None:
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", refuse)
            failed = await result(workers.evaluate("v", BIG, records, 0))
        assert failed == ViewFailed("no thread could be started: can't start new thread", is_retriable=True)
        assert isinstance(await result(workers.evaluate("v", BIG, records, 0)), Evaluated)

    with_workers(use, workers=1)


def test_work_after_close_fails_at_once_and_starts_nothing(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')

    async def use(workers: ViewWorkers) -> None:
        workers.close()
        failed = await result(workers.evaluate("v", BIG, records, 0))
        assert isinstance(failed, ViewFailed)
        assert failed.is_retriable
        assert not started

    with_workers(use)


def test_a_process_that_starts_during_close_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    worker = Worker([sys.executable, "-c", FAKE_WORKER + "time.sleep(60)"], 1.0)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        worker.close(is_idle=False)
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    assert worker.run(view_task(BIG, records, 0)).is_retriable  # type: ignore[union-attr]
    wait_until(lambda: started[0].poll() is not None, "the process has ended")


def test_the_event_loop_does_not_wait_for_the_end_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    waits: list[threading.Thread] = []
    wait = subprocess.Popen.wait

    def watched(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waits.append(threading.current_thread())
        return wait(process, timeout)

    async def use(workers: ViewWorkers) -> None:
        await result(workers.evaluate("v", BIG, records, 0))
        monkeypatch.setattr(subprocess.Popen, "wait", watched)

    with_workers(use)
    assert threading.main_thread() not in waits


def work(view: str) -> ViewWork:
    unused: Any = None
    return ViewWork(view, unused, unused, Promise())


def test_views_take_turns() -> None:
    queues = ViewQueues(workers=3)
    for each in [*map(work, "aaaa"), *map(work, "bb"), work("c")]:
        queues.add(each)
    turns = [queues.begin_next() for _ in range(7)]
    assert "".join(each.view for each in turns if each) == "abcabaa"
    assert queues.begin_next() is None


def test_one_view_does_not_occupy_all_workers() -> None:
    queues = ViewQueues(workers=2)
    greedy = [work("a") for _ in range(3)]
    for each in greedy:
        queues.add(each)
    first = queues.begin_next()
    assert first is greedy[0]
    queues.add(work("b"))
    second = queues.begin_next()
    assert second is not None
    assert second.view == "b", "view a has its share of workers"
    queues.finish(second)
    assert queues.begin_next() is greedy[1], "no other view waits"


def test_withdrawn_work_is_not_begun() -> None:
    queues = ViewQueues(workers=1)
    one, other = work("a"), work("a")
    queues.add(one)
    queues.add(other)
    queues.withdraw("a", one.done)
    assert queues.begin_next() is other
    queues.withdraw("a", other.done)
    queues.withdraw("nobody", other.done)
    assert queues.begin_next() is None


def test_a_truncated_file_makes_the_work_retriable(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    os.truncate(tmp_path / "log", records.length - 1)

    async def use(workers: ViewWorkers) -> None:
        shorter = await result(workers.evaluate("v", BIG, records, 0))
        assert shorter == ViewFailed("the file is shorter than it was", is_retriable=True)

    with_workers(use)


def test_corrupt_records_fail_the_work(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    content = bytearray((tmp_path / "log").read_bytes())
    content[-2] ^= 1
    (tmp_path / "log").write_bytes(content)

    async def use(workers: ViewWorkers) -> None:
        wrong = await result(workers.evaluate("v", BIG, records, 0))
        assert wrong == ViewFailed("the batch at offset 0 does not match its CRC", is_divisible=True)

    with_workers(use)


def addresses_left(pid: int) -> int:
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    limit = next(int(line.split()[3]) for line in limits if line.startswith("Max address space"))
    return limit - int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory")
def test_libraries_do_not_reserve_the_address_space_of_a_worker(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    records = segment(tmp_path / "log", b'{"a":1}', b'{"a":2}')
    extra = 3 << 29  # more than the GiB that Arrow's own allocator would reserve

    async def use(workers: ViewWorkers) -> None:
        assert isinstance(await result(workers.evaluate("v", BIG, records, 0)), Evaluated)
        (process,) = started
        assert addresses_left(process.pid) > extra / 2  # a third would be left beside such a reservation

    with_workers(use, memory_bytes=extra)


def test_a_missing_duckdb_is_reported(tmp_path: Path) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    hiding = "import sys, runpy; sys.modules['duckdb'] = None; runpy.run_module(sys.argv.pop(1), run_name='__main__')"

    async def use(workers: ViewWorkers) -> None:
        assert await result(workers.evaluate("v", BIG, records, 0)) == ViewFailed(NEEDS_DUCKDB)

    with_workers(use, command=[sys.executable, "-c", hiding, COMMAND[-1]])


def test_views_in_a_thread_are_evaluated_for_simulations(tmp_path: Path) -> None:
    def run(work: Callable[[], None]) -> Promise[None]:
        work()
        done: Promise[None] = Promise()
        done.complete(None)
        return done

    definition: ViewDefinition = BIG
    shown = ViewsInThread(run).evaluate("v", definition, segment(tmp_path / "log", b'{"a":2}', b"{"), 0).value()  # type: ignore[arg-type]
    assert isinstance(shown, Evaluated)
    assert (shown.shown, shown.unreadable) == (1, 1)


def test_the_limits_are_configs_of_the_broker(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    records = segment(tmp_path / "log", b'{"a":2}')
    script = (
        FAKE_WORKER + "from moldau.views.jobs import ViewFailed; connection.send(ViewFailed(' '.join(sys.argv[1:])))"
    )
    static = {"moldau.views.workers": "1", "moldau.views.cpu.seconds": "3", "moldau.views.memory.bytes": "200000000"}

    async def run() -> None:
        workers = view_workers(
            asyncio.get_running_loop(), BrokerLayers(static=static), command=[sys.executable, "-c", script]
        )
        try:
            results = [result(workers.evaluate("v", BIG, records, 0)) for _ in range(2)]
            assert await asyncio.gather(*results) == [ViewFailed("200000000 3")] * 2
            assert len(running(started)) <= 1
        finally:
            workers.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "value"), [("workers", "0"), ("cpu.seconds", "0"), ("memory.bytes", "1000"), ("kept.bytes", "-1")]
)
def test_a_wrong_limit_is_reported_with_its_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=rf"moldau\.views\.{name}"):
        load(overrides=[("node.id", "1"), ("log.dirs", str(tmp_path)), (f"moldau.views.{name}", value)])

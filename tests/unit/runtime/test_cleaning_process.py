"""The cleaning process: it runs while it is needed, its death fails only its job, and it keeps to its
rate."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S, wait_until

from moldau.base.promise import Promise
from moldau.log.cleaning.job import CleaningJob, CleaningResult, SourceSegment
from moldau.platforms.processes import PROCESSES
from moldau.runtime.cleaning.ports import CleaningFailed
from moldau.runtime.cleaning.process import COMMAND, CleaningProcess
from moldau.runtime.cleaning.process_worker import Pace

JOB = CleaningJob(
    directory="nowhere",
    generation=0,
    segments=(),
    first_dirty_offset=0,
    up_to=0,
    aborted=(),
    producers={},
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 20,
    index_interval_bytes=4096,
    map_bytes_max=1 << 20,
    io_buffer_bytes=1 << 19,
    decompressed_bytes_max=1 << 20,
)

FAKE_WORKER = """
import os, sys, time
from multiprocessing.connection import Connection
from moldau.log.cleaning.job import CleaningResult
from moldau.runtime.worker_processes.serving import Unexpected

talk = Connection(0)
while True:
    order = talk.recv()
    what = order.job.directory
    if what == "die":
        os._exit(9)
    if what == "be silent":
        time.sleep(3600)
    if what == "send nonsense":
        talk.send_bytes(b"nonsense")
    if what == "fail unexpectedly":
        talk.send(Unexpected("KeyError"))
        time.sleep(3600)
    if what == "report the next rate":
        talk.send(None)
        order = talk.recv()
    talk.send(CleaningResult(int(order.bytes_per_second), (), 0, 0, 0, 0, 0, os.getpid()))
"""


@pytest.fixture
def fake_worker(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE_WORKER)
    return (sys.executable, str(script))


def with_process(
    test: Callable[[CleaningProcess], Awaitable[None]], command: tuple[str, ...], **options: float
) -> None:
    async def run() -> None:
        process = CleaningProcess(asyncio.get_running_loop(), command=command, **options)
        try:
            await asyncio.wait_for(test(process), PATIENCE_S)
        finally:
            process.close()

    asyncio.run(run())


async def outcome(promise: Promise[CleaningResult | CleaningFailed]) -> CleaningResult | CleaningFailed:
    future: asyncio.Future[CleaningResult | CleaningFailed] = asyncio.get_running_loop().create_future()
    promise.then(future.set_result)
    return await future


async def pid_of(promise: Promise[CleaningResult | CleaningFailed]) -> int:
    """Return the id of the process that did the job."""
    cleaned = await outcome(promise)
    assert isinstance(cleaned, CleaningResult), cleaned
    return cleaned.map_bytes


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds, while the loop runs."""
    await asyncio.to_thread(wait_until, condition, what)


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def job_that_must(what: str) -> CleaningJob:
    return JOB._replace(directory=what)


def test_one_process_does_job_after_job(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        assert process.pid is None
        first = await pid_of(process.clean(JOB, 1e6))
        assert first == process.pid != os.getpid()
        assert await pid_of(process.clean(JOB, 1e6)) == first

    with_process(test, fake_worker)


def test_an_idle_process_is_ended_and_another_started_when_there_is_work(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        first = await pid_of(process.clean(JOB, 1e6))
        await until(lambda: process.pid is None, "the idle process is ended")
        assert not is_running(first)
        assert await pid_of(process.clean(JOB, 1e6)) != first

    with_process(test, fake_worker, idle_s=0.05)


def test_the_loop_does_not_wait_for_the_end_of_an_idle_process(
    fake_worker: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[threading.Thread] = []
    wait = subprocess.Popen.wait

    def watched(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waits.append(threading.current_thread())
        return wait(process, timeout)

    async def test(process: CleaningProcess) -> None:
        await pid_of(process.clean(JOB, 1e6))
        monkeypatch.setattr(subprocess.Popen, "wait", watched)
        await until(lambda: process.pid is None, "the idle process is ended")
        assert threading.main_thread() not in waits

    with_process(test, fake_worker, idle_s=0.05)


def test_a_process_that_dies_fails_its_job_and_the_next_one_gets_another(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        assert await outcome(process.clean(job_that_must("die"), 1e6)) == CleaningFailed("its process died")
        await pid_of(process.clean(JOB, 1e6))

    with_process(test, fake_worker)


def test_a_result_that_cannot_be_read_fails_its_job_and_the_next_one_gets_another(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        failed = await outcome(process.clean(job_that_must("send nonsense"), 1e6))
        assert failed == CleaningFailed("its result cannot be read: UnpicklingError")
        await pid_of(process.clean(JOB, 1e6))

    with_process(test, fake_worker)


def test_an_unexpected_exception_fails_its_job_and_the_next_one_gets_another_process(
    fake_worker: tuple[str, ...],
) -> None:
    async def test(process: CleaningProcess) -> None:
        failed = await outcome(process.clean(job_that_must("fail unexpectedly"), 1e6))
        assert failed == CleaningFailed("its process failed with KeyError")
        await pid_of(process.clean(JOB, 1e6))

    with_process(test, fake_worker)


def test_a_process_killed_while_it_was_idle_is_replaced(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        first = await pid_of(process.clean(JOB, 1e6))
        os.kill(first, signal.SIGKILL)
        await until(lambda: PROCESSES.start_time(first) is None, "the killed process has ended")
        assert await pid_of(process.clean(JOB, 1e6)) != first

    with_process(test, fake_worker)


def test_a_silent_process_is_killed(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        failed = await outcome(process.clean(job_that_must("be silent"), 1e6))
        assert failed == CleaningFailed("its process was silent for 1 s")
        process._silence_max_s = PATIENCE_S  # a new process takes some time to start
        await pid_of(process.clean(JOB, 1e6))

    with_process(test, fake_worker, silence_max_s=0.6)


def test_a_job_that_is_abandoned_fails(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        promise = process.clean(job_that_must("be silent"), 1e6)
        process.abandon()
        assert await outcome(promise) == CleaningFailed("its process died")

    with_process(test, fake_worker)


def test_close_ends_the_process(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        process.clean(job_that_must("be silent"), 1e6)
        pid = process.pid
        assert pid is not None
        process.close()
        await until(lambda: not is_running(pid), "the process has ended")

    with_process(test, fake_worker)


def test_a_rate_set_while_a_job_runs_reaches_it(fake_worker: tuple[str, ...]) -> None:
    async def test(process: CleaningProcess) -> None:
        promise = process.clean(job_that_must("report the next rate"), 1e6)
        process.set_rate(5e6)
        cleaned = await outcome(promise)
        assert isinstance(cleaned, CleaningResult)
        assert cleaned.cleaned_up_to == 5_000_000

    with_process(test, fake_worker)


def test_a_missing_command_fails_the_job() -> None:
    async def test(process: CleaningProcess) -> None:
        failed = await outcome(process.clean(JOB, 1e6))
        assert isinstance(failed, CleaningFailed)
        assert failed.why.startswith("no process could be started")
        assert not failed.is_shortage

    with_process(test, ("/no/such/python",))


def test_a_job_without_a_thread_can_be_retried(fake_worker: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test(process: CleaningProcess) -> None:
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", refuse)
            failed = await outcome(process.clean(JOB, 1e6))
        assert failed == CleaningFailed("no thread could be started: can't start new thread", is_shortage=True)
        await pid_of(process.clean(JOB, 1e6))

    with_process(test, fake_worker)


def test_a_job_without_a_process_can_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def test(process: CleaningProcess) -> None:
        monkeypatch.setattr(subprocess, "Popen", refuse)
        failed = await outcome(process.clean(JOB, 1e6))
        assert isinstance(failed, CleaningFailed)
        assert failed.is_shortage

    with_process(test, COMMAND)


def test_the_real_process_reports_a_storage_fault(tmp_path: Path) -> None:
    job = job_that_must(str(tmp_path / "gone"))._replace(segments=(SourceSegment(0, 100),), up_to=10)

    async def test(process: CleaningProcess) -> None:
        failed = await outcome(process.clean(job, 1e9))
        assert isinstance(failed, CleaningFailed)
        assert "No such file or directory" in failed.why

    with_process(test, COMMAND)


PARENT = """
import sys, socket, subprocess, time
ours, theirs = socket.socketpair()
child = subprocess.Popen(sys.argv[1:], stdin=theirs.fileno())
theirs.close()
print(child.pid, flush=True)
time.sleep(3600)
"""


def test_the_real_process_does_not_outlive_its_broker() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *COMMAND], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_running(pid), "the cleaning process has ended")


class Watch:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_the_pace_delays_work_above_the_rate() -> None:
    watch = Watch()
    pace = Pace(lambda: watch.now_s, watch.sleep)
    pace.spend(1 << 40)
    assert watch.now_s == 0
    pace.set(1000)
    for _ in range(10):
        pace.spend(500)
    assert watch.now_s == pytest.approx(5.0)
    watch.now_s += 2.0
    pace.spend(1000)
    assert watch.now_s == pytest.approx(7.0)


def test_a_higher_rate_ends_a_long_wait() -> None:
    watch = Watch()

    def sleep(seconds: float) -> None:
        watch.sleep(seconds)
        if watch.now_s > 3:
            pace.set(1e12)

    pace = Pace(lambda: watch.now_s, sleep)
    pace.set(1)
    pace.spend(1_000_000)
    assert 3 < watch.now_s < 4

"""Worker processes: what the broker and the process do if something unexpected happens on either side."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S, wait_until

from moldau.runtime.worker_processes.process import Died, NoAnswer, Unreadable, WorkerProcess
from moldau.runtime.worker_processes.serving import Unexpected, answer_requests
from moldau.runtime.worker_processes.thread import WorkerThread

WORKER = """
import os, sys
from moldau.runtime.worker_processes.serving import answer_requests, serve

def answer(request):
    if request == "exit":
        os._exit(7)
    if request == "raise an OSError":
        raise OSError("secret")
    return os.environ["ADDED"], os.getpid()

serve(0, lambda connection: answer_requests(connection.recv, answer, connection.send))
"""


@pytest.fixture
def process() -> Iterator[WorkerProcess[tuple[str, int]]]:
    made: WorkerProcess[tuple[str, int]] = WorkerProcess([sys.executable, "-c", WORKER], environment={"ADDED": "yes"})
    yield made
    made.kill()


def ask(process: WorkerProcess[tuple[str, int]], request: str) -> tuple[str, int] | NoAnswer:
    return process.start() or process.ask(request, PATIENCE_S)


def test_a_process_without_an_answer_is_replaced(
    process: WorkerProcess[tuple[str, int]], capfd: pytest.CaptureFixture[str]
) -> None:
    for request, outcome in {
        "raise an OSError": Unexpected("OSError"),
        "exit": Died(7, was_ready=True),
    }.items():
        assert ask(process, "") == ("yes", process.pid)
        assert process.has_answered
        assert ask(process, request) == outcome
        assert process.pid is None
        assert not process.has_answered
    assert "secret" not in capfd.readouterr().err


def test_an_unexpected_exception_is_reported_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[object] = []
    requests = iter(["secret"])
    answer_requests(requests.__next__, lambda request: {}[request], sent.append)
    assert sent == [Unexpected("KeyError")]
    printed = capsys.readouterr().err
    assert Path(__file__).name in printed
    assert printed.endswith("\nKeyError\n")
    assert "secret" not in printed


def test_a_thread_that_fails_unexpectedly_is_free_again(
    process: WorkerProcess[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: reported.append(failed.exc_type))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        thread = WorkerThread(loop, process, "worker", idle_s=PATIENCE_S)
        for _ in range(2):
            done: asyncio.Future[object] = loop.create_future()
            thread.run(lambda: 1 // 0, done.set_result)
            assert await asyncio.wait_for(done, PATIENCE_S) == Unreadable("ZeroDivisionError")
        thread.close()

    asyncio.run(run())
    wait_until(lambda: reported == [ZeroDivisionError] * 2, "both threads have reported their exception")

"""Consume–transform–produce: copies a topic into another in transactions, with offsets, despite errors.

`Copier` does it with any of the libraries, `java_copier` with Apache Kafka's own clients. Both recover from every error
as the rules of transactions allow: abort and read again; if that is refused too, start again as a new process would.
As a process of its own, to be killed, it is

    python transactional_copier.py LIBRARY BOOTSTRAP SOURCE TARGET PARTITIONS

and ends with SIGTERM; or by itself with the status `STUCK` when its library does not return from a call: then it is to
be started again. It contains no assertions about behaviour.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest
from failover_senders import KAFKA_LIBS
from harness.patience import PATIENCE_S
from transactional_libraries import LIBRARIES, Found, Writer, next_places

CLOSE_S = 10.0
STUCK_S = 10.0
STUCK = 75


class Copier:
    """Copies until it is closed: each partition into the one of the same number, each value with a prefix."""

    def __init__(
        self, library: str, bootstrap: str, source: str, target: str, partitions: int, abort_every: int = 0
    ) -> None:
        self.library, self.bootstrap = LIBRARIES[library], bootstrap
        self.source, self.target, self.partitions = source, target, partitions
        self.group, self.transactional_id = group_of(target), transactional_id_of(target)
        self.abort_every, self.begun = abort_every, 0
        self.committed = 0
        self.seen_alive_s = time.monotonic()
        self.errors: list[str] = []
        """Errors from which it recovered."""
        self.fault: BaseException | None = None
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"copier to {target}")
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self.thread.join(PATIENCE_S)
        if self.fault is not None:
            raise self.fault

    def run(self) -> None:
        try:
            while not self.closing.is_set():
                self.run_once()
        except BaseException as fault:
            self.fault = fault

    def run_once(self) -> None:
        """Run until an error that needs a restart. The producer comes first: when it is ready, its last transaction has
        ended and all offsets are stable."""
        try:
            with self.library.writer(self.bootstrap, self.transactional_id) as writer:
                source = self.library.input(self.bootstrap, self.group, self.source, self.partitions, member=True)
                try:
                    while not self.closing.is_set():
                        self.seen_alive_s = time.monotonic()
                        if records := source.poll():
                            self.copy(writer, source, records)
                finally:
                    source.close()
        except self.library.errors as error:
            self.errors.append(repr(error))

    def copy(self, writer: Writer, source: Any, records: list[Found]) -> None:
        self.begun += 1
        try:
            writer.begin()
            for each in records:
                writer.send(self.target, copied(each.value), each.partition)
            writer.send_offsets(next_places(records), self.group, source)
            if self.abort_every and self.begun % self.abort_every == 0:
                writer.abort()
                source.rewind()
                return
            writer.commit()
            self.committed += 1
        except self.library.errors as error:
            self.errors.append(repr(error))
            writer.abort()
            source.rewind()


def copied(value: bytes) -> bytes:
    return b"copy of " + value


def group_of(target: str) -> str:
    return f"copiers-to-{target}"


def transactional_id_of(target: str) -> str:
    return f"tx-to-{target}"


class CopierProcess:
    """A copier in a process of its own, which prints the errors from which it recovered."""

    def __init__(self, command: list[str]) -> None:
        self.errors: list[str] = []
        self.command, self.is_closing = command, False
        self.process = self.start()
        self.thread = threading.Thread(target=self.listen, name=command[-1])
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> subprocess.Popen[str]:
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=found)

    def listen(self) -> None:
        while True:
            assert self.process.stdout is not None
            with self.process.stdout as lines:
                self.errors.extend(line.strip() for line in lines)
            if self.process.wait() != STUCK or self.is_closing:
                return
            self.process = self.start()

    @property
    def fault(self) -> BaseException | None:
        ended = self.process.poll() not in (None, STUCK)
        return RuntimeError(f"the copier has ended by itself: {self.errors}") if ended else None

    def close(self) -> None:
        """Stop it in order, or kill it if that takes too long."""
        self.is_closing = True
        self.process.terminate()
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.thread.join()


def java_copier(bootstrap: str, source: str, target: str) -> CopierProcess:
    """Return the same with Apache Kafka's own clients."""
    program = Path(__file__).with_name("TransactionalCopier.java")
    words = [str(program), bootstrap, source, target, group_of(target), transactional_id_of(target)]
    return CopierProcess(["java", "-Xmx192M", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_LIBS}/*", *words])


def open_copier(library: str, bootstrap: str, source: str, target: str, partitions: int) -> CopierProcess:
    """Start a copier in a process: some libraries leave threads and sockets behind when their coordinator dies."""
    if library == "java":
        return java_copier(bootstrap, source, target)
    return CopierProcess([sys.executable, __file__, library, bootstrap, source, target, str(partitions)])


needs_java = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("javac"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no JDK is on the PATH",
)
COPIERS = [*LIBRARIES, pytest.param("java", marks=needs_java)]


def main() -> None:
    library, bootstrap, source, target, partitions = sys.argv[1:]
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    with Copier(library, bootstrap, source, target, int(partitions)) as copier:
        reported = 0
        while not terminated.wait(0.1) and copier.fault is None:
            if time.monotonic() - copier.seen_alive_s > STUCK_S:
                print("stuck", flush=True)
                os._exit(STUCK)
            for error in copier.errors[reported:]:
                print(error, flush=True)
                reported += 1


if __name__ == "__main__":
    main()

"""Consume–transform–produce: a topic copied into another in transactions, offsets and all, whatever comes between.

`Copier` does it with any of the libraries, `JavaCopier` with Apache Kafka's own client. Both go on after every error in
the way that the transaction's rules allow: abort and read again; where that is refused too, begin anew as a process
would that was started again. What may not enter: assertions about behaviour.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

import pytest
from failover_senders import KAFKA_LIBS
from transactional_libraries import LIBRARIES, PATIENCE_S, Found, Writer, next_places


class Copier:
    """Copies until it is closed: each partition into the one of the same number, each value with a mark before it."""

    def __init__(
        self, library: str, bootstrap: str, source: str, target: str, partitions: int, abort_every: int = 0
    ) -> None:
        self.library, self.bootstrap = LIBRARIES[library], bootstrap
        self.source, self.target, self.partitions = source, target, partitions
        self.group, self.transactional_id = group_of(target), transactional_id_of(target)
        self.abort_every, self.begun = abort_every, 0
        self.committed = 0
        self.errors: list[str] = []
        """What went wrong and was mended."""
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
                self.live()
        except BaseException as fault:
            self.fault = fault

    def live(self) -> None:
        """One life. The producer comes first: it is ready when its last transaction is over, and all offsets stable."""
        try:
            with self.library.writer(self.bootstrap, self.transactional_id) as writer:
                source = self.library.input(self.bootstrap, self.group, self.source, self.partitions, member=True)
                try:
                    while not self.closing.is_set():
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


class JavaCopier:
    """The same by Apache Kafka's own clients, in a process of its own."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self.committed = 0
        self.errors: list[str] = []
        words = [bootstrap, source, target, group_of(target), transactional_id_of(target)]
        program = Path(__file__).with_name("TransactionalCopier.java")
        self.process = subprocess.Popen(
            ["java", "-Xmx192M", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_LIBS}/*", str(program), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.thread = threading.Thread(target=self.listen, name=f"copier to {target}")
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("committed "):
                    self.committed += 1
                else:
                    self.errors.append(line.strip())

    @property
    def fault(self) -> BaseException | None:
        return RuntimeError("it has ended by itself") if self.process.poll() is not None else None

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.thread.join()


def open_copier(library: str, bootstrap: str, source: str, target: str, partitions: int) -> Copier | JavaCopier:
    if library == "java":
        return JavaCopier(bootstrap, source, target)
    return Copier(library, bootstrap, source, target, partitions)


needs_java = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("javac"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no JDK is on the PATH",
)
COPIERS = [*LIBRARIES, pytest.param("java", marks=needs_java)]

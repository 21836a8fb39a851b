"""Apache Kafka's own cleaner, as a process that cleans directories one after the other, and logs as plain directories.

The tests' logs are in memory, Apache's on disk: this module copies them from one to the other. It contains no
expectations.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest
from harness.patience import PATIENCE_S

from moldau.log import layout
from moldau.log.txn_index import AbortedTxn
from moldau.testing.files import MemoryFiles

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
needs_java = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("javac"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no JDK is on the PATH",
)


class ApacheCleaner:
    def __init__(
        self, complaints: Path, *, delete_retention_ms: int, segment_bytes: int, index_interval_bytes: int
    ) -> None:
        self.complaints = complaints
        """Warnings of Apache's classes."""
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        program = str(Path(__file__).with_name("ApacheCleaner.java"))
        words = [str(each) for each in (delete_retention_ms, segment_bytes, index_interval_bytes)]
        command = ["java", "-Xmx192M", "-XX:TieredStopAtLevel=1", quiet, "-cp", f"{KAFKA_LIBS}/*", program, *words]
        with complaints.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE_S)

    def clean(self, directory: Path, end_offset: int, now_ms: int, first_dirty_offset: int, up_to: int) -> int:
        """Run one round over a log that ends at `end_offset`; return the offset up to which it is clean now."""
        (cleaned_up_to,) = self._ask("clean", directory, end_offset, now_ms, first_dirty_offset, up_to)
        return int(cleaned_up_to)

    def check(self, directory: Path, end_offset: int, now_ms: int) -> list[AbortedTxn]:
        """Look up every batch by offset and by time; return the aborted transactions."""
        return [AbortedTxn(*map(int, each.split(":"))) for each in self._ask("check", directory, end_offset, now_ms)]

    def _ask(self, kind: str, *words: object) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(kind, *words, file=self.process.stdin, flush=True)
        outcome = self.process.stdout.readline().split()
        complaints = self.complaints.read_text()
        if outcome[:1] != [f"{kind}ed"] or complaints:
            raise RuntimeError(f"{kind} {words}: {' '.join(outcome) or 'it has died'}\n{complaints}")
        return outcome[1:]


def write_out(files: MemoryFiles, source: str, target: Path, from_offset: int = 0) -> None:
    """Make the target equal to the source, but leave segments below that offset as they are."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if not is_segment_below(path.name, from_offset):
            path.unlink()
    for name in files.names(source):
        if not is_segment_below(name, from_offset):
            (target / name).write_bytes(files.read(f"{source}/{name}") or b"")


def read_in(files: MemoryFiles, target: str, source: Path) -> None:
    """The same in the other direction."""
    for name in files.names(target):
        files.unlink(f"{target}/{name}")
    for path in source.iterdir():
        file = files.open(f"{target}/{path.name}", create=True)
        file.pwrite(path.read_bytes(), 0)
        file.sync()
    files.sync_directory(target)


def is_segment_below(name: str, offset: int) -> bool:
    return name.endswith(layout.SEGMENT_FILES) and int(name[:20]) < offset

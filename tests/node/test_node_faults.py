"""A whole node on a failing disk: it stops in order, reports the fault, and leaves no clean-shutdown file."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from moldau.base.errors import StorageFault
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import ForeignDirectory
from moldau.node import Node
from moldau.settings import from_properties


class FaultyFiles(DiskFiles):
    """The real disk, with faults that a test sets."""

    refuses: Callable[[str], int] = staticmethod(lambda _: 0)
    """Maps the name of a file that is replaced to an errno, 0 for none."""
    refused = 0

    def rename(self, source: str, target: str) -> None:
        number = self.refuses(target)
        if number:
            self.refused += 1
            raise StorageFault(target, OSError(number, "planned fault"))
        super().rename(source, target)


def new_node(data_dir: Path, files: FaultyFiles) -> Node:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data_dir),
        "replica.high.watermark.checkpoint.interval.ms": "20",
    }
    return Node(from_properties(properties), files=files)


def test_a_storage_fault_in_periodic_work_stops_the_node_cleanly(tmp_path: Path) -> None:
    async def run() -> StorageFault:
        files = FaultyFiles()
        node = new_node(tmp_path, files)
        await node.start()
        files.refuses = lambda target: errno.EIO if target.endswith("-checkpoint") else 0
        fault = await asyncio.wait_for(node.failed, PATIENCE_S)
        await node.stop()
        return fault

    assert "planned fault" in str(asyncio.run(run()))
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("shortage", [errno.ENOSPC, errno.EMFILE])
def test_a_shortage_while_writing_a_checkpoint_does_not_stop_the_node(tmp_path: Path, shortage: int) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"

    async def run() -> None:
        loop = asyncio.get_running_loop()
        refused, accepted = asyncio.Event(), asyncio.Event()
        files = FaultyFiles()

        def refuse_twice(target: str) -> int:
            if target != str(checkpoint):
                return 0
            is_short = files.refused < 2
            loop.call_soon_threadsafe(refused.set if is_short else accepted.set)
            return shortage if is_short else 0

        files.refuses = refuse_twice
        node = new_node(tmp_path, files)
        await node.start()
        await asyncio.wait_for(refused.wait(), PATIENCE_S)
        await asyncio.wait_for(accepted.wait(), PATIENCE_S)
        assert not node.failed.done()
        await node.stop()

    asyncio.run(run())
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_failed_first_flush_keeps_the_node_from_starting(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.refuses = lambda target: errno.EIO if target.endswith("leader-epoch-checkpoint") else 0
    with pytest.raises(StorageFault, match="planned fault"):
        asyncio.run(new_node(tmp_path, files).start())


def test_a_refused_directory_is_unlocked(tmp_path: Path) -> None:
    """A node locks the directory before it reads who owns it."""

    async def run() -> None:
        mine = new_node(tmp_path, FaultyFiles())
        await mine.start()
        await mine.stop()
        other_node = Node(from_properties({**mine.settings.properties, "node.id": "2"}))
        with pytest.raises(ForeignDirectory):
            await other_node.start()
        again = new_node(tmp_path, FaultyFiles())
        await again.start()
        await again.stop()

    asyncio.run(run())

"""What a node knows of its last life: the epoch it had, if the machine has not been started since."""

from __future__ import annotations

from random import Random

import pytest

from moldau.log.checkpoints import replace_file
from moldau.runtime.broker.boot_marker import FILE, BootMarker
from moldau.testing.files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir("data")
    return files


def test_found_again_under_the_same_boot(files: MemoryFiles) -> None:
    BootMarker(files, "data", "boot-1").note(7)
    assert BootMarker(files.restart(), "data", "boot-1").broker_epoch() == 7


def test_not_after_the_machine_was_started_anew(files: MemoryFiles) -> None:
    BootMarker(files, "data", "boot-1").note(7)
    assert BootMarker(files.crash(Random(1)), "data", "boot-2").broker_epoch() == -1


def test_where_nobody_knows_the_boot_nothing_is_believed(files: MemoryFiles) -> None:
    BootMarker(files, "data", "").note(7)
    assert BootMarker(files, "data", "").broker_epoch() == -1


def test_forgotten_for_good(files: MemoryFiles) -> None:
    life = BootMarker(files, "data", "boot-1")
    life.note(7)
    life.forget()
    assert BootMarker(files.crash(Random(1)), "data", "boot-1").broker_epoch() == -1
    life.forget()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"bootId":"boot-1","brokerEpoch":"x"}'])
def test_what_cannot_be_read_is_not_believed(files: MemoryFiles, content: bytes) -> None:
    replace_file(files, "data", FILE, content)
    assert BootMarker(files, "data", "boot-1").broker_epoch() == -1

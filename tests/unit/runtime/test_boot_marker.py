"""The boot marker returns the last broker epoch, unless the machine was rebooted since."""

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


def test_the_epoch_is_found_after_a_restart_in_the_same_boot(files: MemoryFiles) -> None:
    BootMarker(files, "data", "boot-1").note(7)
    assert BootMarker(files.restart(), "data", "boot-1").broker_epoch() == 7


def test_the_epoch_is_unknown_after_a_reboot(files: MemoryFiles) -> None:
    BootMarker(files, "data", "boot-1").note(7)
    assert BootMarker(files.crash(Random(1)), "data", "boot-2").broker_epoch() == -1


def test_without_a_boot_id_the_epoch_is_unknown(files: MemoryFiles) -> None:
    BootMarker(files, "data", "").note(7)
    assert BootMarker(files, "data", "").broker_epoch() == -1


def test_a_forgotten_marker_is_not_found_after_a_crash(files: MemoryFiles) -> None:
    marker = BootMarker(files, "data", "boot-1")
    marker.note(7)
    marker.forget()
    assert BootMarker(files.crash(Random(1)), "data", "boot-1").broker_epoch() == -1
    marker.forget()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"bootId":"boot-1","brokerEpoch":"x"}'])
def test_a_damaged_marker_is_ignored(files: MemoryFiles, content: bytes) -> None:
    replace_file(files, "data", FILE, content)
    assert BootMarker(files, "data", "boot-1").broker_epoch() == -1

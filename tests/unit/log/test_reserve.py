"""The reserve on the disk: who gets room of it when the disk is full, how much, and when it is filled again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.base.errors import StorageFault
from moldau.base.limits import RESERVE_BYTES
from moldau.base.reserve import RESERVE_FILE
from moldau.log import layout
from moldau.log.checkpoint_files import DISPENSABLE
from moldau.log.checkpoints import replace_file
from moldau.log.files import DiskFiles, write_all
from moldau.log.reserve import BLOCK_BYTES, PIECE_BYTES, UNSYNCED_BYTES, Reserve, ReservedFiles
from moldau.testing.files import MemoryFile, MemoryFiles

BALLAST = f"data/{RESERVE_FILE}"
METADATA = "data/__cluster_metadata-0"
LARGE_DISK = (1 << 40, 1 << 40)
STATE = "quorum-state"


class Disk:
    """Files in memory with a reserve that is whole, and a disk that is full from then on."""

    def __init__(self, size_max: int = RESERVE_BYTES) -> None:
        self.memory = MemoryFiles()
        self.memory.mkdir(METADATA)
        self.memory.mkdir("data/orders-0")
        self.space = LARGE_DISK
        self.reports: list[str] = []
        self.reserve = Reserve(
            self.memory,
            "data",
            size_max,
            lambda: self.space,
            lambda what, fault: self.reports.append(f"{what}: {fault}"),
        )
        self.files = ReservedFiles(self.memory, "data", self.reserve)
        self.reserve.fill()
        self.memory.bytes_left = 0

    def write(self, path: str, count: int) -> None:
        write_all(self.files.open(path, create=True), bytes(count), 0)

    def assert_refused(self, path: str, count: int = 100) -> None:
        with pytest.raises(StorageFault) as refused:
            self.write(path, count)
        assert refused.value.lacks_space


@pytest.fixture
def disk() -> Disk:
    return Disk()


# --- who gets room ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        (METADATA, STATE),
        (METADATA, layout.LEADER_EPOCH_CHECKPOINT),
        ("data", "meta.properties"),
        ("data", layout.CLEAN_SHUTDOWN),
        ("data", layout.LOG_STARTS),
        ("data", ".moldau_last_life"),
    ],
)
def test_a_small_file_is_replaced_on_a_full_disk(disk: Disk, directory: str, name: str) -> None:
    replace_file(disk.files, directory, name, b"new")
    assert disk.memory.read(f"{directory}/{name}") == b"new"
    assert disk.reserve.held == RESERVE_BYTES - BLOCK_BYTES, "what was not used is taken back"
    assert disk.reports == [f"some of the reserve is used: {directory}/{name}.tmp: No space left on device"]


@pytest.mark.parametrize(
    "path",
    [
        "data/orders-0/00000000000000000000.log",
        "data/orders-0/00000000000000000000.index",
        "data/orders-0/00000000000000000000.snapshot",
        "data/orders-0/leader-epoch-checkpoint.tmp",
        f"{METADATA}/00000000000000000123-0000000007.checkpoint.part",
        *(f"data/{name}.tmp" for name in DISPENSABLE),
    ],
)
def test_records_snapshots_and_dispensable_checkpoints_get_nothing(disk: Disk, path: str) -> None:
    disk.assert_refused(path)
    assert disk.reserve.held == RESERVE_BYTES
    assert disk.reports == []


def test_files_that_grow_get_half_of_it(disk: Disk) -> None:
    written = grow(disk, f"{METADATA}/00000000000000000000.log")
    assert RESERVE_BYTES // 2 - PIECE_BYTES - 2 * BLOCK_BYTES < written <= RESERVE_BYTES // 2
    assert RESERVE_BYTES // 2 <= disk.reserve.held <= RESERVE_BYTES // 2 + PIECE_BYTES + BLOCK_BYTES
    disk.memory.bytes_left = 0
    replace_file(disk.files, METADATA, STATE, b"the epoch is still written")
    disk.memory.bytes_left = 0
    disk.assert_refused("data/orders-0/00000000000000000000.txnindex")


def test_the_leader_epochs_of_a_partition_get_room_when_the_node_stops(disk: Disk) -> None:
    disk.files.is_stopping = True
    replace_file(disk.files, "data/orders-0", layout.LEADER_EPOCH_CHECKPOINT, b"new")
    assert disk.memory.read(f"data/orders-0/{layout.LEADER_EPOCH_CHECKPOINT}") == b"new"


def grow(disk: Disk, path: str) -> int:
    """Append to the file until there is no room; return its size."""
    file, size = disk.files.open(path, create=True), 0
    try:
        while True:
            write_all(file, bytes(1000), size)
            size += 1000
    except StorageFault:
        return size


def test_a_write_that_is_too_large_gives_nothing_back(disk: Disk) -> None:
    disk.assert_refused(f"{METADATA}/00000000000000000000.log", RESERVE_BYTES // 2)
    assert (disk.reserve.held, disk.memory.bytes_left) == (RESERVE_BYTES, 0)


def test_a_thousand_elections_fit_if_others_take_all_that_is_freed(disk: Disk) -> None:
    for epoch in range(1000):
        replace_file(disk.files, METADATA, STATE, str(epoch).encode())
        disk.memory.bytes_left = 0
    assert disk.memory.read(f"{METADATA}/{STATE}") == b"999"
    assert disk.reserve.held == RESERVE_BYTES - 1000 * BLOCK_BYTES


def test_without_a_reserve_the_fault_is_raised() -> None:
    disk = Disk(size_max=0)
    assert not disk.memory.exists(BALLAST)
    disk.assert_refused(f"{METADATA}/{STATE}.tmp")


def test_an_empty_reserve_raises_the_fault_of_the_write(disk: Disk) -> None:
    disk.memory.open(BALLAST).truncate(0)
    disk.memory.bytes_left = 0
    disk.assert_refused(f"{METADATA}/{STATE}.tmp")
    assert disk.reserve.held == 0
    assert disk.reserve.is_short


@pytest.mark.parametrize("fault", [errno.EIO, errno.EMFILE])
def test_other_faults_give_nothing_back(disk: Disk, fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFile, "pwrite", failing(fault))
    with pytest.raises(StorageFault):
        disk.write(f"{METADATA}/{STATE}.tmp", 10)
    assert disk.reserve.held == RESERVE_BYTES


def test_a_disk_that_cannot_even_truncate_raises_the_fault_of_the_write(disk: Disk) -> None:
    disk.memory.truncate_fails = True
    disk.assert_refused(f"{METADATA}/{STATE}.tmp")


def test_new_names_get_room_too(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt to open, rename or lock finds no room for the name."""
    for name in ("open", "rename", "lock"):
        monkeypatch.setattr(disk.memory, name, once_without_room(getattr(disk.memory, name), disk))
    replace_file(disk.files, METADATA, STATE, b"new")
    disk.files.lock("data/.lock")
    assert disk.memory.read(f"{METADATA}/{STATE}") == b"new"


def test_a_sync_that_finds_no_room_is_not_repeated_and_leaves_room_for_the_next_start(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(MemoryFile, "sync", failing(errno.ENOSPC, calls))
    with pytest.raises(StorageFault):
        replace_file(disk.files, METADATA, STATE, b"new")
    assert len(calls) == 1
    assert disk.memory.bytes_left is not None
    assert disk.memory.bytes_left >= UNSYNCED_BYTES


def failing(number: int, calls: list[object] | None = None) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        if calls is not None:
            calls.append(arguments)
        raise StorageFault("a file", OSError(number, "planned fault"))

    return fail


def once_without_room(call: Callable[..., object], disk: Disk) -> Callable[..., object]:
    refused: list[str] = []

    def replacement(path: str, *arguments: object, **options: object) -> object:
        if path != BALLAST and not refused:
            refused.append(path)
            raise StorageFault(path, OSError(errno.ENOSPC, "planned fault"))
        return call(path, *arguments, **options)

    return replacement


# --- filling it ---------------------------------------------------------------------------------------------------


def test_it_is_filled_again_when_there_is_room(disk: Disk) -> None:
    replace_file(disk.files, METADATA, STATE, b"new")
    assert disk.reserve.is_short
    disk.space = (LARGE_DISK[0], RESERVE_BYTES)
    disk.reserve.fill()
    assert disk.reserve.is_short, "others need the last megabytes too"
    disk.space, disk.memory.bytes_left = LARGE_DISK, None
    disk.reserve.fill()
    assert (disk.reserve.held, disk.reserve.is_short) == (RESERVE_BYTES, False)


def test_a_small_disk_has_a_small_reserve_and_its_log_gets_half_of_that(disk: Disk) -> None:
    disk.space = (32 << 20, 32 << 20)
    disk.reserve.fill()
    assert disk.reserve.held == 1 << 20
    disk.memory.bytes_left = 0
    disk.write(f"{METADATA}/00000000000000000000.log", (1 << 19) - PIECE_BYTES)
    disk.assert_refused(f"{METADATA}/00000000000000000001.log", 2 * PIECE_BYTES)


def test_a_reserve_that_is_turned_off_is_removed(disk: Disk) -> None:
    Reserve(disk.memory, "data", 0, lambda: LARGE_DISK, lambda *_: None).fill()
    assert not disk.memory.exists(BALLAST)


def test_a_reserve_that_was_deleted_counts_as_used_up_and_is_made_again(disk: Disk) -> None:
    disk.memory.unlink(BALLAST)
    disk.memory.bytes_left = 0  # somebody else took the room
    disk.assert_refused(f"{METADATA}/{STATE}.tmp")
    assert (disk.reserve.held, disk.reserve.is_short) == (0, True)
    disk.memory.bytes_left = None
    disk.reserve.fill()
    assert disk.reserve.held == RESERVE_BYTES


def test_on_a_real_disk_it_takes_space(tmp_path: Path) -> None:
    reserve = Reserve(DiskFiles(), str(tmp_path), RESERVE_BYTES, lambda: LARGE_DISK, lambda *_: None)
    reserve.fill()
    found = os.stat(tmp_path / RESERVE_FILE)
    assert found.st_size == RESERVE_BYTES
    assert found.st_blocks * 512 >= RESERVE_BYTES
    assert reserve.give_back(PIECE_BYTES)
    assert os.stat(tmp_path / RESERVE_FILE).st_size == RESERVE_BYTES - PIECE_BYTES

"""Taking space for a file: by the system's call, or by writing zeros."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_here import LINUX, linux_only

from moldau.platforms import allocation
from moldau.platforms.allocation import allocate_of

SIZE = (1 << 20) + 4096


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def allocated_bytes(descriptor: int) -> int:
    os.fsync(descriptor)
    return os.fstat(descriptor).st_blocks * 512


@pytest.mark.parametrize("platform", [LINUX, "darwin"])
def test_the_file_is_longer_and_takes_space(descriptor: int, platform: str) -> None:
    allocate = allocate_of(platform)
    for size in (4096, SIZE, SIZE, 10):
        allocate(descriptor, size)
    assert os.fstat(descriptor).st_size == SIZE, "it is never shortened"
    assert allocated_bytes(descriptor) >= SIZE


@linux_only
@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EINVAL])
def test_zeros_are_written_where_the_file_system_has_no_such_call(
    descriptor: int, refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation.os, "posix_fallocate", refuse_with(refusal))
    allocate_of("linux")(descriptor, SIZE)
    assert os.fstat(descriptor).st_size == SIZE
    assert allocated_bytes(descriptor) >= SIZE


@linux_only
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_broken_disk_is_reported(descriptor: int, fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation.os, "posix_fallocate", refuse_with(fault))
    with pytest.raises(OSError, match="planned") as raised:
        allocate_of("linux")(descriptor, SIZE)
    assert raised.value.errno == fault


def refuse_with(number: int) -> object:
    def refuse(*_: int) -> None:
        raise OSError(number, "planned")

    return refuse

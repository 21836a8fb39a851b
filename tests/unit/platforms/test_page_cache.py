"""Checking the page cache and reading into it, with real files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_here import LINUX, linux_only

from moldau.platforms import page_cache
from moldau.platforms.page_cache import READ_BYTES, assume_cached, page_cache_of, read_once

SIZE = 3 * READ_BYTES + 5


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment"
    path.write_bytes(bytes(SIZE))
    with path.open("rb") as file:
        yield file.fileno()


@pytest.mark.parametrize("platform", [LINUX, "darwin", "win32"])
def test_a_fetched_range_is_cached(fd: int, platform: str) -> None:
    is_cached, fetch = page_cache_of(platform)
    fetch(fd, 10, SIZE - 10)
    assert is_cached(fd, 10, SIZE - 10)


@pytest.mark.parametrize("platform", [LINUX, "darwin", "win32"])
def test_fetching_stops_at_the_end_of_the_file(fd: int, platform: str) -> None:
    _, fetch = page_cache_of(platform)
    fetch(fd, SIZE - 1, 10)
    fetch(fd, SIZE, 10)


@pytest.mark.parametrize(("position", "length"), [(0, SIZE), (7, READ_BYTES), (SIZE - 3, 3)])
def test_exactly_the_range_is_read(fd: int, position: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, read = os.pread, []

    def recording_pread(fd: int, count: int, at: int) -> bytes:
        read.append((at, count))
        return pread(fd, count, at)

    monkeypatch.setattr(os, "pread", recording_pread)
    read_once(fd, position, length)
    at = position
    for start, count in read:
        assert start == at
        at += count
    assert at == position + length


def test_other_systems_assume_that_everything_is_cached() -> None:
    assert page_cache_of("darwin") == (assume_cached, read_once)
    assert assume_cached(-1, 0, 1)


@linux_only
def test_linux_checks_the_page_cache() -> None:
    assert (page_cache.is_cached, page_cache.fetch) == page_cache_of("linux")
    assert page_cache.is_cached is not assume_cached

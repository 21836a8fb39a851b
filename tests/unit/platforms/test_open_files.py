"""Raising the limit of open files: simulated kernels of macOS and Linux refuse limits above a ceiling."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from running_here import linux_only

from moldau.platforms import open_files
from moldau.platforms.open_files import OPEN_MAX, files_per_process_max, raise_soft_limit

INFINITE = sys.maxsize


class Kernel:
    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.requested: list[int] = []

    def set_soft(self, limit: int) -> None:
        self.requested.append(limit)
        if limit > self.ceiling:
            raise ValueError("current limit exceeds maximum limit")


@pytest.mark.parametrize(
    ("soft", "hard", "per_process", "ceiling", "granted"),
    [
        (256, INFINITE, 245_760, 245_760, 245_760),
        (256, INFINITE, 245_760, OPEN_MAX, OPEN_MAX),  # an older macOS
        (256, INFINITE, None, OPEN_MAX, OPEN_MAX),
        (256, 4096, 245_760, 245_760, 4096),  # a hard limit that was set
        (256, INFINITE, 245_760, 100, 256),  # all are refused: the limit stays unchanged
        (300_000, INFINITE, 245_760, INFINITE, 300_000),  # never lower than before
        (OPEN_MAX, INFINITE, None, INFINITE, OPEN_MAX),
    ],
)
def test_the_highest_allowed_limit_is_set(
    soft: int, hard: int, per_process: int | None, ceiling: int, granted: int
) -> None:
    kernel = Kernel(ceiling)
    assert raise_soft_limit(soft, hard, per_process, kernel.set_soft) == granted
    assert all(soft < wanted <= hard and wanted != INFINITE for wanted in kernel.requested)
    if granted > soft:
        assert kernel.requested[-1] == granted


def test_an_os_error_counts_as_a_refusal() -> None:
    def refuse(wanted: int) -> None:
        raise OSError(1, "Operation not permitted")

    assert raise_soft_limit(256, INFINITE, 1000, refuse) == 256


LOWERED = """
import resource, sys
from moldau.platforms.open_files import raise_open_files_limit, open_files_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
assert open_files_limit() == 256
raise_open_files_limit(sys.argv[1])
print(open_files_limit())
"""


def raise_limit_as_on(platform: str) -> int:
    return int(subprocess.run([sys.executable, "-c", LOWERED, platform], check=True, capture_output=True).stdout)


@linux_only
def test_on_linux_the_soft_limit_becomes_the_hard_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_limit_as_on("linux") == (sys.maxsize if hard == resource.RLIM_INFINITY else hard)


@pytest.mark.parametrize(
    ("soft", "nr_open", "expected"),
    [
        (256, 1 << 20, (8192, 8192)),  # no ceiling below the hard limit
        (256, 4096, (4096, 4096)),
        (4096, 4096, (4096, 8192)),  # nothing to gain: unchanged
        (256, None, (256, 8192)),  # refused, and no /proc to read the ceiling from: unchanged
    ],
)
def test_linux_refuses_a_hard_limit_above_nr_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, nr_open: int | None, expected: tuple[int, int]
) -> None:
    limits = (soft, 8192)

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[1] > (nr_open or 4096):
            raise ValueError("not allowed to raise maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    monkeypatch.setattr(open_files, "nr_open", lambda: nr_open, raising=False)
    open_files.raise_open_files_limit("linux")
    assert limits == expected


@linux_only
def test_the_limit_is_raised_as_on_macos() -> None:
    """Linux has no `kern.maxfilesperproc`, so the limit that macOS always allows is used."""
    assert files_per_process_max() is None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_limit_as_on("darwin") == (OPEN_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_MAX))


RESERVING = """
import sys
from moldau.platforms.open_files import reserve_descriptors
def table_size():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("FDSize")))
before = table_size()
reserve_descriptors(int(sys.argv[1]))
print(before, table_size())
with open("/dev/null") as file:
    print(file.fileno())
"""


@linux_only
def test_reserving_descriptors_grows_the_table_of_open_files() -> None:
    run = subprocess.run([sys.executable, "-c", RESERVING, "900"], capture_output=True, text=True, check=True)
    before, after, next_file = map(int, run.stdout.split())
    assert before < 900 <= after
    assert next_file < 20, "no file stays open"


def test_reserving_more_descriptors_than_the_limit_is_accepted() -> None:
    open_files.reserve_descriptors(1 << 40)

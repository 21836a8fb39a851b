"""Disks of nodes that fill up and become empty again: a tmpfs for each, whose size is changed while it is mounted.

A full disk has exactly the bytes that are in use, rounded up to pages: nothing has to be written to fill it. Mounting
needs root; `why_no_disks` says what is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SIZE_BYTES = 2 << 30
"""Of a disk that is not full. It takes memory only for what is written to it."""
PAGE_BYTES = 4096


@cache
def why_no_disks() -> str | None:
    """Return why no tmpfs can be mounted, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    if shutil.which("mount") is None:
        return "there is no mount command"
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        try:
            disk.mount()
        except subprocess.CalledProcessError as error:
            return f"a tmpfs cannot be mounted: {error.stderr.strip()}"
        disk.unmount()
    return None


@dataclass
class Disk:
    folder: Path
    is_full: bool = False

    def mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "moldau-chaos", str(self.folder))

    def unmount(self) -> None:
        """The files are gone then."""
        _run("umount", "--lazy", str(self.folder))

    def fill(self, free_bytes: int = 0) -> None:
        """Leave so much free, or a few pages less if the node writes meanwhile."""
        for _ in range(20):
            with contextlib.suppress(subprocess.CalledProcessError):  # more was written than fits now
                self._resize(self._used_bytes() + free_bytes)
                self.is_full = True
                return
        raise AssertionError(f"{self.folder} could not be filled: its node writes too fast")

    def empty(self) -> None:
        self._resize(SIZE_BYTES)
        self.is_full = False

    def keep(self, folder: Path) -> None:
        """Copy the files elsewhere, to be looked at after the test."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore_dangling_symlinks=True)

    def _used_bytes(self) -> int:
        about = os.statvfs(self.folder)
        return (about.f_blocks - about.f_bfree) * about.f_frsize

    def _resize(self, size_bytes: int) -> None:
        pages = max(1, -(-size_bytes // PAGE_BYTES))
        _run("mount", "-o", f"remount,size={pages * PAGE_BYTES}", str(self.folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)

"""Cleaned segments take the place of old ones, in steps that a crash may come between.

    <base>.log.cleaned     being written, or whole and synced: of no meaning yet, removed when the log is opened
    <base>.log.swap        decided: it stands for every segment from its base to the end of its last batch. Opening
                           the log finishes what is left to do
    <base>.log             in its place; those it replaced are `.deleted`

The .log is renamed after its side files, so `.log.swap` says that all of them are there. The last batch of the last
segment that is replaced is always kept, if need be without records: so the end of a `.swap` tells what it replaces, and
each segment still ends where the next one begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.log import layout
from moldau.log.cleaning.job import Cleaned, CleaningJob
from moldau.log.files import Files
from moldau.log.walk import walk_headers

_LOG_LAST: Final = (*layout.SIDE_FILES, layout.LOG)


@dataclass(slots=True)
class SwapWork:
    """A swap that has begun, one new segment after the other: each is first named, and put in its place when all names
    are on disk. The oldest go first: what a tombstone speaks of must be gone before the tombstone is."""

    files_layer: Files
    directory: str
    cleaned: Cleaned
    named: int = 0
    replaced: int = 0
    is_synced: bool = False

    @property
    def is_named(self) -> bool:
        return self.named == len(self.cleaned.groups)

    @property
    def is_over(self) -> bool:
        return self.replaced == len(self.cleaned.groups)

    def name_next(self) -> None:
        """From here on a crash leads to this segment and not to those it replaces."""
        group = self.cleaned.groups[self.named]
        rename_all(self.files_layer, path_of(self.directory, group.base_offset), layout.CLEANED, layout.SWAP)
        self.named += 1

    def sync(self) -> None:
        """May run in a thread. What it does not reach, a crash may undo, the newest first."""
        self.files_layer.sync_directory(self.directory)
        self.is_synced = True

    def take_back(self) -> None:
        """All that is not in its place yet."""
        for group in reversed(self.cleaned.groups[self.replaced :]):
            for suffix in (layout.SWAP, layout.CLEANED):
                discard_segment(self.files_layer, path_of(self.directory, group.base_offset), suffix)


def path_of(directory: str, base_offset: int) -> str:
    return f"{directory}/{layout.offset_name(base_offset)}"


def rename_all(files: Files, stem: str, source: str, target: str) -> None:
    """The files of one segment, from one suffix to another; the .log last. An index that is not there stays so."""
    for suffix in _LOG_LAST:
        if files.exists(stem + suffix + source):
            files.rename(stem + suffix + source, stem + suffix + target)


def discard(files: Files, job: CleaningJob) -> None:
    """Removes what was written for a job."""
    for segment in job.segments:
        discard_segment(files, path_of(job.directory, segment.base_offset), layout.CLEANED)


def discard_segment(files: Files, stem: str, suffix: str) -> None:
    """The .log first: without it the others say nothing."""
    for part in reversed(_LOG_LAST):
        files.unlink(stem + part + suffix)


def complete_swaps(files: Files, directory: str, names: list[str]) -> list[str]:
    """Before a log is opened: half-done cleaning is undone, a swap that was decided is finished. The names left."""
    bases = [base for name in names if (base := layout.offset_of(name, layout.LOG + layout.SWAP)) is not None]
    for base_offset in sorted(bases):
        _complete(files, directory, base_offset)
    stray = [name for name in files.names(directory) if name.endswith((layout.CLEANED, layout.SWAP))]
    for name in stray:
        files.unlink(f"{directory}/{name}")
    return files.names(directory) if bases or stray else names


def _complete(files: Files, directory: str, base_offset: int) -> None:
    stem = path_of(directory, base_offset)
    file = files.open(stem + layout.LOG + layout.SWAP)
    next_offset = base_offset
    for _, header in walk_headers(file, 0, file.size()):
        next_offset = header.next_offset
    # Until the .log has its name the .swap is there, and a crash begins this anew.
    for name in files.names(directory):
        is_of_segment = name.endswith(layout.SEGMENT_FILES) and name[:20].isdigit()
        if is_of_segment and base_offset <= int(name[:20]) < next_offset:
            files.unlink(f"{directory}/{name}")
    rename_all(files, stem, layout.SWAP, "")
    files.sync_directory(directory)

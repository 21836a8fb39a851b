"""Replaces old segments with cleaned ones, in steps; a crash may happen between any two.

    <base>.log.cleaned     being written, or whole and synced: not valid yet, removed when the log is opened
    <base>.log.swap        decided: it replaces every segment from its base to the end of its last batch. Opening
                           the log completes the swap
    <base>.log             in place; the replaced segments are `.deleted`

The .log is renamed after its indexes, so they are there when `.log.swap` appears. After a crash in the last step they
may be gone, and are rebuilt. The last batch of the last replaced segment is always kept, if need be without records: so
the end of a `.swap` says what it replaces, and each segment still ends where the next one begins. A crash may lose
renames and removals that are not synced, but only the newest of them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base.errors import StorageFault
from moldau.log import layout
from moldau.log.cleaning.job import CleaningJob, CleaningResult
from moldau.log.files import Files
from moldau.log.walk import walk_headers

LOG_LAST: Final = (*layout.INDEX_FILES, layout.LOG)


@dataclass(slots=True)
class SwapWork:
    """A swap under way. All new segments are first renamed to `.swap`; once the names are synced, each replaces its old
    segments. The oldest come first: the records that a tombstone deletes must be gone before the tombstone."""

    files: Files
    directory: str
    cleaned: CleaningResult
    renamed: int = 0
    replaced: int = 0
    is_synced: bool = False

    @property
    def is_renamed(self) -> bool:
        return self.renamed == len(self.cleaned.groups)

    @property
    def is_done(self) -> bool:
        return self.replaced == len(self.cleaned.groups)

    def rename_next(self) -> None:
        """Rename the next segment to `.swap`: after a crash, opening the log completes the swap."""
        group = self.cleaned.groups[self.renamed]
        rename_segment_files(self.files, segment_path(self.directory, group.base_offset), layout.CLEANED, layout.SWAP)
        self.renamed += 1

    def sync(self) -> None:
        """Sync the names of the files. Thread-safe."""
        self.files.sync_directory(self.directory)
        self.is_synced = True

    def roll_back(self) -> None:
        """Delete the new segments that have not replaced old ones yet, the newest first: a crash leaves only
        older ones."""
        for group in reversed(self.cleaned.groups[self.replaced :]):
            for suffix in (layout.SWAP, layout.CLEANED):
                delete_segment_files(self.files, segment_path(self.directory, group.base_offset), suffix)


def segment_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{layout.offset_name(base_offset)}"


def rename_segment_files(files: Files, stem: str, source: str, target: str) -> None:
    """Rename the files of one segment from suffix `source` to `target`, the .log last. Missing indexes are skipped."""
    for old_name, new_name in existing(files, stem, LOG_LAST, source, target):
        files.rename(old_name, new_name)


def rename_all(files: Files, renames: Sequence[tuple[str, str]]) -> None:
    """Rename all files from their first name to their second one; if there is no room for a name, none of them."""
    done: list[tuple[str, str]] = []
    try:
        for source, target in renames:
            files.rename(source, target)
            done.append((source, target))
    except StorageFault as fault:
        if fault.is_shortage:
            _rename_back(files, done)
        raise


def _rename_back(files: Files, done: list[tuple[str, str]]) -> None:
    """A directory has room for names that it has just had. If not, the fault is no shortage that a retry could end."""
    for source, target in reversed(done):
        try:
            files.rename(target, source)
        except StorageFault as fault:
            raise StorageFault(source, OSError(errno.EIO, f"cannot get its name back: {fault}")) from fault


def existing(files: Files, stem: str, suffixes: Iterable[str], source: str, target: str) -> list[tuple[str, str]]:
    """Return the names of the files of one segment that exist with suffix `source`, and those with `target`."""
    return [
        (stem + suffix + source, stem + suffix + target) for suffix in suffixes if files.exists(stem + suffix + source)
    ]


def delete_cleaned_files(files: Files, job: CleaningJob) -> None:
    """Delete the `.cleaned` files that a job has written."""
    for segment in job.segments:
        delete_segment_files(files, segment_path(job.directory, segment.base_offset), layout.CLEANED)


def delete_segment_files(files: Files, stem: str, suffix: str) -> None:
    """Delete the files of one segment, the .log first: without it the others are ignored."""
    for part in reversed(LOG_LAST):
        files.unlink(stem + part + suffix)


def complete_swaps(files: Files, directory: str, names: list[str]) -> list[str]:
    """Complete decided swaps and delete other files of a compaction, before a log is opened. Return the names left."""
    bases = [base for name in names if (base := layout.offset_of(name, layout.LOG + layout.SWAP)) is not None]
    for base_offset in sorted(bases):
        _complete_swap(files, directory, base_offset)
    stray = [name for name in files.names(directory) if name.endswith((layout.CLEANED, layout.SWAP))]
    for name in stray:
        files.unlink(f"{directory}/{name}")
    return files.names(directory) if bases or stray else names


def _complete_swap(files: Files, directory: str, base_offset: int) -> None:
    stem = segment_path(directory, base_offset)
    file = files.open(stem + layout.LOG + layout.SWAP)
    next_offset = base_offset
    for _, header in walk_headers(file, 0, file.size()):
        next_offset = header.next_offset
    # The .swap exists until the .log is renamed: after a crash this is done again.
    for name in files.names(directory):
        is_of_segment = name.endswith(layout.SEGMENT_FILES) and name[:20].isdigit()
        if is_of_segment and base_offset <= int(name[:20]) < next_offset:
            files.unlink(f"{directory}/{name}")
    rename_segment_files(files, stem, layout.SWAP, "")
    files.sync_directory(directory)

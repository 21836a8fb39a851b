"""Files beside a checkpoint in which the tasks of a micro-batch note what they delivered, and that they wait.

    backend/<batch>/<task>.delivered     the digests of delivered rows, 16 bytes each, in any order
    backend/<task>.waiting               JSON: {"since": ISO 8601, "reason": text}, while the circuit is open
    backend/<task>.tally                 JSON: a Tally, of all micro-batches since the run began

A batch that is repeated, after a stop or a crash, leaves out the rows that are noted. A half-written digest at the end
is ignored. If executors do not share the directory with each other or with the driver, more rows are sent twice and the
driver does not see that tasks wait, but nothing is lost.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

DIGEST_BYTES: Final = 16
DIRECTORY: Final = "backend"
WAITING: Final = ".waiting"
TALLY: Final = ".tally"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of rows."""

    delivered: int = 0
    retries: int = 0
    """How often a row was not taken and tried again."""
    dead_letters: int = 0
    last_error: str | None = None
    """Why a row was not taken the last time that one was not."""
    last_error_at: str = ""
    """ISO 8601."""

    def plus(self, other: Tally) -> Tally:
        last = max(self, other, key=lambda tally: tally.last_error_at)
        return Tally(
            delivered=self.delivered + other.delivered,
            retries=self.retries + other.retries,
            dead_letters=self.dead_letters + other.dead_letters,
            last_error=last.last_error,
            last_error_at=last.last_error_at,
        )


def digest_of(*parts: str) -> bytes:
    """Return a digest of texts that is different for each list of texts."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        content = part.encode("utf-8", errors="surrogatepass")
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.digest()


class Delivered:
    """The rows of one task that are delivered."""

    def __init__(self, state: Path, batch: str, task: int) -> None:
        self._path = state / DIRECTORY / batch / f"{task}.delivered"
        self._file: BinaryIO | None = None

    def before(self) -> frozenset[bytes]:
        """Return the digests that an earlier attempt noted."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return frozenset()
        ends = range(DIGEST_BYTES, len(content) + 1, DIGEST_BYTES)
        return frozenset(content[end - DIGEST_BYTES : end] for end in ends)

    def add(self, digests: Iterable[bytes]) -> None:
        if self._file is None:
            self._file = self._open()
        self._file.write(b"".join(digests))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        if torn := file.tell() % DIGEST_BYTES:
            file.truncate(file.tell() - torn)
        return file


def batch_name(query_id: str, batch_id: int) -> str:
    return f"{digest_of(query_id).hex()[:8]}-{batch_id}"


def forget_other_batches(state: Path, batch: str) -> None:
    """Remove what was noted for earlier batches, and the notes of tasks that are gone."""
    forget_waiting([state])
    for path in _listed(state / DIRECTORY):
        if path.is_dir() and path.name != batch:
            shutil.rmtree(path, ignore_errors=True)


def forget_waiting(states: Sequence[Path]) -> None:
    """Remove the notes of tasks that were killed while they waited."""
    for path in (path for state in states for path in _listed(state / DIRECTORY) if path.suffix == WAITING):
        path.unlink(missing_ok=True)


def note_waiting(state: Path, task: int, note: tuple[datetime, str] | None) -> None:
    """Write or remove the note that a task waits since a time for a reason. Without it only the status is less exact,
    so errors of the file system are ignored."""
    path = state / DIRECTORY / f"{task}{WAITING}"
    with suppress(OSError):
        if note is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        since = note[0].astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"since": since, "reason": note[1]}), encoding="utf-8")
        new.replace(path)


def read_waiting(states: Sequence[Path]) -> str | None:
    """Return since when, and why, tasks wait, for users; None if none of them does."""
    notes = []
    for path in (path for state in states for path in _listed(state / DIRECTORY) if path.suffix == WAITING):
        with suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text(encoding="utf-8"))
            notes.append((str(note["since"]), str(note["reason"])))
    if not notes:
        return None
    since, reason = min(notes)
    return f"the backend takes nothing since {since.replace('T', ' ').removesuffix('Z')} UTC: {reason}"


def note_tally(state: Path, task: int, tally: Tally) -> None:
    """Write what became of the rows of a task. Without it only the status is less exact, so errors of the file system
    are ignored."""
    path = state / DIRECTORY / f"{task}{TALLY}"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new-tally")
        new.write_text(json.dumps(asdict(tally)), encoding="utf-8")
        new.replace(path)


def tally_of(state: Path, task: int) -> Tally:
    """Return what the task noted in this run."""
    return _read_tally(state / DIRECTORY / f"{task}{TALLY}")


def read_tally(state: Path) -> Tally | None:
    """Return what all tasks noted, together; None if none did."""
    paths = [path for path in _listed(state / DIRECTORY) if path.suffix == TALLY]
    return reduce(Tally.plus, map(_read_tally, paths)) if paths else None


def forget_tallies(states: Sequence[Path]) -> None:
    """Remove the notes of an earlier run."""
    for path in (path for state in states for path in _listed(state / DIRECTORY) if path.suffix == TALLY):
        path.unlink(missing_ok=True)


def _read_tally(path: Path) -> Tally:
    """Return the tally in a file; nothing if it cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        return Tally(**json.loads(path.read_text(encoding="utf-8")))
    return Tally()


def _listed(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from list(directory.iterdir())

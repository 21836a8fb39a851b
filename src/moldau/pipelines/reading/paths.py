"""Paths of files and tables in a pipeline file, and whether they can be read.

A path is relative to the directory of the pipeline file, or a URL. Only what is on this machine is looked at
(`locations.py`). Files may also be given by a pattern in Hadoop's notation, because Spark finds
them: `*`, `?`, `[a-z]`, `[^a]`, `{one,two}`, and a backslash before a character that stands for itself.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.pipelines.locations import is_url, local_path, local_table
from moldau.pipelines.problems import did_you_mean, quoted
from moldau.pipelines.reading.sections import Section

EXPANSIONS_MAX: Final = 2_000
"""A pattern whose braces take more steps to expand is not looked at here: Spark looks when the pipeline is compiled."""
DEPTH_MAX: Final = 200
"""A pattern with more directories matches nothing: `glob` calls itself for each of them."""
_PATTERN_CHARACTER: Final = re.compile(r"[{}\[\]*?\\]")
_INNERMOST_BRACES: Final = re.compile(r"(?<!\\)\{((?:[^{}\\]|\\.)*)\}")
_UNCLOSED: Final = re.compile(r"(?<!\\)(?:\{|\[[^][/]*(?:[/[]|$))")
_COMMA: Final = re.compile(r"(?<!\\),")
_ESCAPED_OR_NEGATED: Final = re.compile(r"\\(.)|\[\^", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory of the pipeline's file, to which paths are relative.

    `files_must_exist` is off in a test that brings its own files; `connects` for a command that connects to nothing, so
    that the settings of connections are left out.
    """

    path: Path
    files_must_exist: bool = True
    connects: bool = True

    def resolve(self, written: str) -> str:
        """Return the absolute path; a URL stays as it is."""
        if is_url(written) or not written:
            return written
        home = str(Path.home()) if written.startswith("~/") else ""
        return (self.path / (home + written[1:] if home else written)).absolute().as_posix()

    def files_problem(self, written: str) -> str | None:
        """Return why Spark cannot read a file, a directory or the files of a pattern; None if it can."""
        if not self.files_must_exist or not written:
            return None
        path = local_path(self.resolve(written))
        if path is None:
            return _host_problem(written)
        if not _PATTERN_CHARACTER.search(path):
            return _path_problem(written, path)
        return None if _matches_any(path) else self._pattern_problem(written, path)

    def table_problem(self, written: str) -> str | None:
        """Return why a table cannot be read; None if it can."""
        path = local_table(self.resolve(written))
        if not self.files_must_exist or not path:
            return None
        return _path_problem(written, path, "table")

    def _pattern_problem(self, written: str, path: str) -> str:
        if not _PATTERN_CHARACTER.search(written):
            return f"Spark cannot read files in {quoted(str(self.path))}: it reads {{}}[]*?\\ in a path as a pattern"
        literal = "; before the characters {}[]*?\\ of a file's name, write \\" if os.path.exists(path) else ""
        return f"no file matches {quoted(written)}{literal}"


def read_path(section: Section, key: str, folder: Folder) -> Path | None:
    """Return the path of a local file; None if it cannot be read."""
    written = section.text(key)
    if written is None:
        return None
    resolved = folder.resolve(written)
    path = local_path(resolved) or resolved
    if not folder.files_must_exist:
        return Path(path)
    problem = _path_problem(written, path)
    if problem is None and not os.path.isfile(path):
        problem = f"{quoted(written)} is not a file"
    if problem is not None:
        section.refuse(problem, section.value_place(key))
        return None
    return Path(path)


def _host_problem(written: str) -> str | None:
    if not written.startswith("file:"):
        return None
    return f"{quoted(written)} names a host; a file of this machine is  file:/path"


def _path_problem(written: str, path: str, what: str = "file") -> str | None:
    """Return why a path cannot be read; None if it can."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file can have this name
        folder, name = os.path.split(path)
        return f"there is no {what} {quoted(written)}{did_you_mean(name, _names_in(folder))}"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if os.access(path, os.R_OK):
            return None
        reason = "permission denied"
    return f"{quoted(written)} cannot be read: {reason.lower()}"


def _names_in(folder: str) -> list[str]:
    """Return the names that may be suggested: none if the folder cannot be read."""
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


# --- patterns -------------------------------------------------------------------------------------------------------


def _matches_any(pattern: str) -> bool:
    """Return whether a file matches the pattern, or the pattern has too many alternatives to look."""
    alternatives = _alternatives(pattern)
    if alternatives is None:
        return True
    return "\0" not in pattern and any(map(_matches, alternatives))


def _matches(pattern: str) -> bool:
    """Return whether a file matches a pattern without braces. A bracket that is not closed makes it invalid."""
    if pattern.count("/") > DEPTH_MAX or _UNCLOSED.search(pattern):
        return False
    return any(glob.iglob(_python_pattern(pattern)))


def _alternatives(pattern: str) -> list[str] | None:
    """Return the patterns without braces that a pattern with braces stands for; with nested braces, some occur more
    than once. None if there are too many."""
    pending = [pattern]
    expanded: list[str] = []
    for _ in range(EXPANSIONS_MAX):
        if not pending:
            return expanded
        current = pending.pop()
        braces = _INNERMOST_BRACES.search(current)
        if braces is None:
            expanded.append(current)
        else:
            before, after = current[: braces.start()], current[braces.end() :]
            parts = _COMMA.split(braces[1])
            if len(pending) + len(parts) > EXPANSIONS_MAX:
                return None
            pending += [before + each + after for each in parts]
    return None


def _python_pattern(pattern: str) -> str:
    """Return the pattern in the notation of `glob`, which has no escapes and writes [!a] for [^a]."""
    return _ESCAPED_OR_NEGATED.sub(lambda found: "[!" if found[1] is None else glob.escape(found[1]), pattern)

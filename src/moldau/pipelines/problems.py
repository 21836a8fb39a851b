"""The problems of a pipeline, shown as a compiler does: place, message, and a caret under the word.

The reader collects problems and reads on, so that one run shows everything to fix in the file.
This module only formats problems; `reading` and `planning` find them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from moldau.client.secret_properties import SECRET_NAMES
from moldau.pipelines.spec import Place

PROBLEMS_SHOWN_MAX = 50
LINE_WIDTH_MAX = 110
"""Of a quoted source line. Of a longer line, only the part around the word is shown."""
LINE_END = re.compile(r"\r\n|\n|\r")
_WORD = re.compile(r"\$\{[^}\n]*\}?|[\w.\-]+|\"[^\"\n]*\"?|'[^'\n]*'?|`[^`\n]*`?|\S")
_NAME_END = r"(?![\w.])"
_SECRET_KEY = rf"(?:{SECRET_NAMES.replace('$', _NAME_END)})[\w.]*[\"']?\s*[:=]\s*"
"""The key of a password that is written into the file: a shown line hides the password."""
_SECRET = re.compile(rf"({_SECRET_KEY})(\"[^\"]*\"|'[^']*'|[^\s,}}][^,}}]*)", re.IGNORECASE)
_SECRET_OF_URL = re.compile(r"(://[^:@/\s]*:)([^\s]+)(?=@)")
_SECRET_OUTSIDE_OF_BRACKETS = re.compile(rf"([^{{]*?{_SECRET_KEY})(.+)", re.IGNORECASE)


_URL_PASSWORD = re.compile(r"(://[^\s:/@]*:)(\S+)(?=@)")

Severity = Literal["error", "warning", "hint"]
"""With an error a pipeline does not start. A warning is something probably not meant; a hint may improve something."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. Without a place it concerns the whole file, and the message names the file."""

    message: str
    place: Place | None
    hint: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        """Return one line in the form that editors and build logs parse: file:line:column: warning: message."""
        message = self.message if self.severity == "error" else f"{self.severity}: {self.message}"
        return f"{self.place}: {message}" if self.place else message


def of_severity(problems: Iterable[Problem], *severities: Severity) -> list[Problem]:
    return [problem for problem in problems if problem.severity in severities]


class PipelineError(Exception):
    """A fault that the pipeline's author or operator has to fix. They read the text."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and notebooks show instead of a traceback."""
        return [str(self)]


class InvalidPipeline(PipelineError):
    """A pipeline that cannot run, with all its problems in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(dict.fromkeys(problems), key=_position))
        assert self.problems, "an invalid pipeline without a problem"
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def _render_traceback_(self) -> list[str]:
        return self.render().splitlines()

    def render(self) -> str:
        """Return all problems with their source lines, as text without colours."""
        shown = [render(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        left = len(self.problems) - len(shown)
        return "\n".join([*shown, f"… and {left} more"] if left else shown)


def _position(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ", did you mean 'x'?" for the nearest candidate, or "". Upper and lower case count as the same."""
    by_folded = {name.casefold(): name for name in candidates}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f", did you mean {quoted(by_folded[near[0]])}?" if near else ""


def one_of(words: Sequence[str]) -> str:
    """Return the words as "'a', 'b' or 'c'"."""
    quoted = [f"'{word}'" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def quoted(text: str, longest: int = 60) -> str:
    """Return the text in quotes for a message: on one line, printable, and cut to `longest` characters."""
    return f"'{printable(text if len(text) <= longest else text[: longest - 1] + '…')}'"


def printable(text: str) -> str:
    """Return the text on one line, with escapes instead of characters that a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def render(problem: Problem) -> str:
    """Return the problem, its source line with a caret under the word, and the hint."""
    lines = [str(problem)]
    if problem.place and (line := _source_line(problem.place)) is not None:
        lines += _line_with_caret(line, problem.place)
    if problem.hint:
        lines.append(f"      = {problem.hint}")
    return "\n".join(lines)


def _source_line(place: Place) -> str | None:
    """Read the line from the file again, so that problems stay small. Return None if the file is gone."""
    try:
        text = Path(place.file).read_bytes().decode("utf-8-sig", errors="replace")
    except OSError:
        return None
    lines = LINE_END.split(text)
    return _without_secrets(lines[place.line - 1]) if place.line <= len(lines) else None


def _without_secrets(line: str) -> str:
    line = _SECRET_OF_URL.sub(_hide, line)
    outside_of_brackets = _SECRET_OUTSIDE_OF_BRACKETS.fullmatch(line)
    line = _hide(outside_of_brackets) if outside_of_brackets else _SECRET.sub(_hide, line)
    return _URL_PASSWORD.sub(_hide, line)


def _hide(secret: re.Match[str]) -> str:
    """Return as many stars as there were characters: the caret stays under its word."""
    return secret[1] + "*" * len(secret[2])


def _line_with_caret(line: str, place: Place) -> list[str]:
    start = min(place.column - 1, len(line))
    word = _WORD.match(line, start)
    length = len(word.group()) if word else 1
    first = max(0, start - LINE_WIDTH_MAX // 2) if len(line) > LINE_WIDTH_MAX else 0
    shown = _printable(line[first : first + LINE_WIDTH_MAX])
    before, under = shown[: start - first], shown[start - first :][:length]
    carets = "^" * max(1, _cells(under))
    return [f"{place.line:5} | {shown.rstrip()}", f"      | {' ' * _cells(before)}{carets}"]


def _printable(text: str) -> str:
    """Replace tabs by spaces and control characters by �, so that a terminal shows them instead of obeying them."""
    return "".join(char if char.isprintable() else " " if char == "\t" else "�" for char in text)


def _cells(text: str) -> int:
    """Return how many terminal columns the text takes: two per wide character, none per combining one."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

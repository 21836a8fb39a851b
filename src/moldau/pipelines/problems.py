"""What is wrong with a pipeline, told as a good compiler does: place, sentence, and a caret under the word.

A reader collects problems and goes on, so that one look at the output is enough to mend the whole file.
Only telling lives here; finding problems is the business of loading and checking.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from moldau.pipelines.spec import Place

PROBLEMS_SHOWN_MAX = 50
LINE_WIDTH_MAX = 110
"""Of a quoted source line. From a longer one the surroundings of the word are shown."""
LINE_END = re.compile(r"\r\n|\n|\r")
_WORD = re.compile(r"\$\{[^}\n]*\}?|[\w.\-]+|\"[^\"\n]*\"?|'[^'\n]*'?|`[^`\n]*`?|\S")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. Without a place it is about the file as a whole, and the message names it."""

    message: str
    place: Place | None
    hint: str | None = None

    def __str__(self) -> str:
        """One line, as editors and build logs parse it: file:line:column: message."""
        return f"{self.place}: {self.message}" if self.place else self.message


class PipelineError(Exception):
    """Something about a pipeline that its author or operator has to mend. The text is meant to be read by them."""

    def _render_traceback_(self) -> list[str]:
        """What IPython and notebooks show in place of a traceback."""
        return [str(self)]


class InvalidPipeline(PipelineError):
    """A pipeline that cannot be run as it stands, with everything that was found wrong, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(dict.fromkeys(problems), key=_position))
        assert self.problems, "an invalid pipeline without a problem"
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def _render_traceback_(self) -> list[str]:
        return self.render().splitlines()

    def render(self) -> str:
        """All problems with their source lines, ready for a terminal without colours."""
        shown = [render(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        left = len(self.problems) - len(shown)
        return "\n".join([*shown, f"… and {left} more"] if left else shown)


def _position(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ ", did you mean 'x'?" for the nearest known word, or nothing. Case is not what people mean to differ in."""
    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f", did you mean '{by_folded[near[0]]}'?" if near else ""


def one_of(words: Sequence[str]) -> str:
    """'a', 'b' or 'c'."""
    quoted = [f"'{word}'" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def quoted(text: str, longest: int = 60) -> str:
    """A value as a message may show it: on one line, printable, and not longer than a line."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "'" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut) + "'"


def render(problem: Problem) -> str:
    """The problem, the line it is on with a caret under the word, and the hint."""
    told = [str(problem)]
    if problem.place and (line := _source_line(problem.place)) is not None:
        told += _pointed(line, problem.place)
    if problem.hint:
        told.append(f"      = {problem.hint}")
    return "\n".join(told)


def _source_line(place: Place) -> str | None:
    """Read back from the file: problems stay small, and a file that is gone by now only costs the quotation."""
    try:
        text = Path(place.file).read_bytes().decode("utf-8-sig", errors="replace")
    except OSError:
        return None
    lines = LINE_END.split(text)
    return lines[place.line - 1] if place.line <= len(lines) else None


def _pointed(line: str, place: Place) -> list[str]:
    start = min(place.column - 1, len(line))
    word = _WORD.match(line, start)
    length = len(word.group()) if word else 1
    first = max(0, start - LINE_WIDTH_MAX // 2) if len(line) > LINE_WIDTH_MAX else 0
    shown = _printable(line[first : first + LINE_WIDTH_MAX])
    before, under = shown[: start - first], shown[start - first :][:length]
    carets = "^" * max(1, _cells(under))
    return [f"{place.line:5} | {shown.rstrip()}", f"      | {' ' * _cells(before)}{carets}"]


def _printable(text: str) -> str:
    """One cell or more for each character, and nothing that a terminal would obey."""
    return "".join(char if char.isprintable() else " " if char == "\t" else "�" for char in text)


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes: two for wide characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

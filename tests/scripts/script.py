"""Text scripts for state machines: a command, a line of dashes, and the expected answer.

A script is a sequence of exchanges. Lines that begin with `#` are remarks.

    # A remark on what follows.
    command word word key=value
    ----
    the answer, up to the next empty line

With MOLDAU_REWRITE=1 in the environment, the answers are written into the file instead of being compared: read the
difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moldau.base.errors import ErrorCode

DASHES = "----"
REWRITE = "MOLDAU_REWRITE"


@dataclass
class Command:
    """One command: its name, its plain words and its words with a value."""

    name: str
    words: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    def number(self, key: str, default: int) -> int:
        return int(self.values.get(key, default))


@dataclass
class Exchange:
    remarks: list[str]
    line: str
    answer: str
    at: int

    @property
    def command(self) -> Command:
        name, *rest = self.line.split()
        pairs = [(word.partition("=")[0], word.partition("=")[2]) for word in rest if "=" in word]
        return Command(name, [word for word in rest if "=" not in word], dict(pairs))

    def text(self) -> str:
        return "\n".join([*self.remarks, self.line, DASHES, *([self.answer] if self.answer else [])]) + "\n"


def parse(text: str) -> tuple[list[Exchange], list[str]]:
    """Return the exchanges, and the remarks after the last of them."""
    exchanges: list[Exchange] = []
    remarks: list[str] = []
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        line = lines[place]
        if line.startswith("#") or (not line and remarks):
            remarks.append(line)
            place += 1
            continue
        if not line:
            place += 1
            continue
        assert place + 1 < len(lines), f"line {place + 1}: {line!r} is not followed by {DASHES}"
        assert lines[place + 1] == DASHES, f"line {place + 2}: {DASHES} expected after {line!r}"
        end = place + 2
        while end < len(lines) and lines[end]:
            end += 1
        exchanges.append(Exchange(remarks, line, "\n".join(lines[place + 2 : end]), place + 1))
        remarks, place = [], end
    return exchanges, remarks


def error_name(code: int) -> str:
    """Return how answers show an error code."""
    return "ok" if code == ErrorCode.NONE else ErrorCode(code).name


def run_script(path: Path, answer: Callable[[Command], str]) -> None:
    """Run every command of the script, in order; compare the answers, or write them into the file."""
    exchanges, tail = parse(path.read_text())
    assert exchanges, f"{path} has no commands"
    is_rewriting = bool(os.environ.get(REWRITE))
    for exchange in exchanges:
        found = answer(exchange.command).rstrip("\n")
        assert "" not in found.split("\n") or not found, "an answer may not contain an empty line"
        if is_rewriting:
            exchange.answer = found
        else:
            assert found == exchange.answer, f"{path}:{exchange.at}: {exchange.line}"
    if is_rewriting:
        path.write_text("\n".join([*(exchange.text() for exchange in exchanges), *tail]))

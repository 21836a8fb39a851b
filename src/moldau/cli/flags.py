"""Flags the way Kafka's tools read them, which is jopt-simple's way: `--topic x`, `--topic=x`, `-topic x`; a flag may
be repeated; words that belong to no flag are ignored; names are never abbreviated; numbers are read when asked for.

Here live names, help and the rules between flags. What a flag does is the tool's; no client may enter.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau import __version__

KAFKA_VERSION: Final = "4.3.1"
"""The release whose flags and output these tools follow."""
HELP_WIDTH: Final = 80
LEFT_COLUMN_MAX: Final = 40

GONE: Final = {
    "zookeeper": "--zookeeper is gone: there is no ZooKeeper. Name a broker: --bootstrap-server localhost:9092",
    "new-consumer": "--new-consumer is gone: there is one consumer. Leave the flag out",
}
"""Flags of old slides that no tool takes today, and what to write in their place."""


class UsageError(Exception):
    """The command line is wrong. The text is Kafka's; the tool adds where help is."""


class HelpRequested(Exception):
    """`--help`, or nothing at all: the tool prints its help and ends with status 1, as Kafka's do."""


class VersionRequested(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag without its dashes. `takes` names its argument in the help; without it the flag is a switch."""

    name: str
    says: str
    takes: str = ""
    kind: str = "String"
    default: str | None = None
    argument_optional: bool = False
    short: str = ""
    """One letter, for the tools that have such."""
    many: bool = False
    """Takes all words up to the next that begins with a dash."""
    older: tuple[str, ...] = ()
    """Names of former releases, read as this one with a word of warning."""
    replaced_by: str = ""
    """Deprecated by Kafka: accepted, warned about, and refused together with the flag named here."""

    @property
    def left(self) -> str:
        """How the flag stands in the left column of the help."""
        if not self.takes:
            return f"--{self.name}"
        if self.many:
            return f"--{self.name} {self.takes} ..."
        named = self.kind if self.takes == self.kind else f"{self.kind}: {self.takes}"
        return f"--{self.name} [{named}]" if self.argument_optional else f"--{self.name} <{named}>"

    @property
    def right(self) -> str:
        said = f"(DEPRECATED: use --{self.replaced_by}) {self.says}" if self.replaced_by else self.says
        return said if self.default is None else f"{said} (default: {self.default})"


HELP = Flag("help", "Print usage information.")
VERSION = Flag("version", "Display Kafka version.")


@dataclass(slots=True)
class Arguments:
    """What stood on the command line. Ask for values by the flag's name of today."""

    flags: dict[str, Flag]
    values: dict[str, list[str]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    """Flags and values as they stood, a switch with an empty value: for the tool where one flag belongs to another."""
    warnings: list[str] = field(default_factory=list)
    """What Kafka says of a deprecated flag, and where Kafka says it: on stdout."""
    notes: list[str] = field(default_factory=list)
    """What is ours to say, on stderr."""

    def has(self, name: str) -> bool:
        return name in self.values

    def texts(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def text(self, name: str) -> str | None:
        """The one value, or the flag's default."""
        values = self.values.get(name, [])
        if len(values) > 1:
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else self.flags[name].default

    def integer(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"Cannot parse argument '{text}' of option {name}") from None

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')

    def refuse(self, used: str, *others: str) -> None:
        """`used` may not stand beside any of `others`."""
        for other in others:
            if self.has(used) and self.has(other):
                raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def require_one(self, *names: str) -> None:
        if sum(map(self.has, names)) != 1:
            listed = ", ".join(f"[{name}]" for name in names)
            raise UsageError(f"Exactly one of the following arguments is required: {listed}")

    def settle(self, old: str, new: str, warning: str, clash: str) -> None:
        """A deprecated flag counts as the new one, with a `warning`; `clash` is said when both are given."""
        if not self.has(old):
            return
        if self.has(new):
            raise UsageError(clash.format(old=old, new=new))
        self.warnings.append(warning.format(old=old, new=new))
        self.values[new] = self.values[old]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of one tool. `warning` and `clash` are worded by each of Kafka's tools in its own way."""

    intro: str
    flags: Sequence[Flag]
    warning: str = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
    clash: str = "Options --{old} and --{new} cannot be specified together."

    def parse(self, argv: Sequence[str]) -> Arguments:
        """Reads a command line; HelpWanted and VersionWanted come before any complaint about the rest."""
        if not argv:
            raise HelpRequested
        arguments = self._read(argv)
        if arguments.has("help"):
            raise HelpRequested
        if arguments.has("version"):
            raise VersionRequested
        for flag in self.flags:
            if flag.replaced_by:
                arguments.settle(flag.name, flag.replaced_by, self.warning, self.clash)
        return arguments

    def _read(self, argv: Sequence[str]) -> Arguments:
        arguments = Arguments({flag.name: flag for flag in (*self.flags, HELP, VERSION)})
        known = dict(arguments.flags)
        known.update((old, flag) for flag in self.flags for old in (*flag.older, flag.short))
        words = list(reversed(argv))
        while words:
            word = words.pop()
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                continue
            name, equals, value = word.lstrip("-").partition("=")
            flag = self._flag(known, name)
            if name in flag.older:
                arguments.notes.append(f"Option --{name} is deprecated. Use --{flag.name} instead.")
            argument = _argument(flag, value if equals else None, words)
            arguments.values.setdefault(flag.name, []).extend(argument)
            arguments.order.append((flag.name, " ".join(argument)))
        return arguments

    def _flag(self, known: dict[str, Flag], name: str) -> Flag:
        if name in known:
            return known[name]
        raise UsageError(GONE.get(name, f"{name} is not a recognized option"))

    def kind(self, name: str) -> str:
        return next(flag.kind for flag in self.flags if flag.name == name)

    def help(self) -> str:
        """Two columns, sorted by name."""
        shown = sorted((*self.flags, HELP, VERSION), key=lambda flag: flag.name)
        width = min(LEFT_COLUMN_MAX, max(len(flag.left) for flag in shown))
        rows = [(self.intro, ""), *_row("Option", "Description", width), *_row("------", "-----------", width)]
        for flag in shown:
            rows += _row(flag.left, flag.right, width)
        return "\n".join(f"{left:<{width}} {right}".rstrip() for left, right in rows)


def _argument(flag: Flag, attached: str | None, words: list[str]) -> list[str]:
    """The values a flag brings: none for a switch. `words` is the rest of the line, last word first."""
    if not flag.takes:
        return []
    if attached is not None:
        return [attached]
    if flag.argument_optional:
        return [words.pop()] if words and not words[-1].startswith("-") else []
    if not words:
        raise UsageError(f"Option {flag.name} requires an argument")
    taken = [words.pop()]
    while flag.many and words and not words[-1].startswith("-"):
        taken.append(words.pop())
    return taken


def _row(left: str, right: str, width: int) -> Iterable[tuple[str, str]]:
    """A row of the help, both cells folded; further lines of a cell are set in by two."""
    lefts = textwrap.wrap(left, width, subsequent_indent="  ", break_long_words=False)
    rights = textwrap.wrap(right, HELP_WIDTH - width - 1, subsequent_indent="  ")
    for row in range(max(len(lefts), len(rights))):
        yield (lefts[row] if row < len(lefts) else "", rights[row] if row < len(rights) else "")


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments; a value may hold further equals signs, and a key without a value has an empty one."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def version_line() -> str:
    return f"{KAFKA_VERSION} (Moldau {__version__})"

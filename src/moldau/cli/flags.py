"""Command-line flags as Kafka's tools (jopt-simple) parse them: `--topic x`, `--topic=x`, `-topic x`; a flag may be
repeated; words that belong to no flag are ignored; names cannot be abbreviated; numbers are parsed on access.

This module has names, help texts and the rules between flags. Tools decide what a flag does; import no client here.
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

REMOVED_FLAGS: Final = {
    "zookeeper": "--zookeeper is gone: there is no ZooKeeper. Name a broker: --bootstrap-server localhost:9092",
    "new-consumer": "--new-consumer is gone: there is one consumer. Leave the flag out",
}
"""Flags from old tutorials that no tool accepts today, and what to write instead."""


class UsageError(Exception):
    """The command line is wrong. The text is Kafka's; the tool adds how to get help."""


class HelpRequested(Exception):
    """`--help`, or no arguments: the tool prints its help and exits with status 1, as Kafka's tools do."""


class VersionRequested(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag without its dashes. `takes` is the name of its argument in the help; a switch has none."""

    name: str
    description: str
    takes: str = ""
    kind: str = "String"
    default: str | None = None
    argument_optional: bool = False
    short: str = ""
    """One letter, in the tools that have short flags."""
    many: bool = False
    """Takes all words up to the next one that begins with a dash."""
    older: tuple[str, ...] = ()
    """Names in former releases, accepted with a warning."""
    replaced_by: str = ""
    """Deprecated by Kafka: accepted with a warning, and refused together with the flag named here."""

    @property
    def left(self) -> str:
        """The flag in the left column of the help."""
        if not self.takes:
            return f"--{self.name}"
        if self.many:
            return f"--{self.name} {self.takes} ..."
        argument = self.kind if self.takes == self.kind else f"{self.kind}: {self.takes}"
        return f"--{self.name} [{argument}]" if self.argument_optional else f"--{self.name} <{argument}>"

    @property
    def right(self) -> str:
        text = f"(DEPRECATED: use --{self.replaced_by}) {self.description}" if self.replaced_by else self.description
        return text if self.default is None else f"{text} (default: {self.default})"


HELP = Flag("help", "Print usage information.")
VERSION = Flag("version", "Display Kafka version.")


@dataclass(slots=True)
class Arguments:
    """The parsed command line. Values are looked up by the flag's current name."""

    flags: dict[str, Flag]
    values: dict[str, list[str]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    """Flags and values in order, a switch with an empty value: for a tool where one flag belongs to another."""
    warnings: list[str] = field(default_factory=list)
    """What Kafka prints about deprecated flags; like Kafka, on stdout."""
    notes: list[str] = field(default_factory=list)
    """Our own remarks, on stderr."""

    def has(self, name: str) -> bool:
        return name in self.values

    def texts(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def text(self, name: str) -> str | None:
        """Return the flag's one value, or its default."""
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
        """Raise UsageError if `used` stands together with any of `others`."""
        for other in others:
            if self.has(used) and self.has(other):
                raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def require_one(self, *names: str) -> None:
        if sum(map(self.has, names)) != 1:
            listed = ", ".join(f"[{name}]" for name in names)
            raise UsageError(f"Exactly one of the following arguments is required: {listed}")

    def settle(self, old: str, new: str, warning: str, clash: str) -> None:
        """Treat a deprecated flag as the new one, with a `warning`; raise `clash` if both are present."""
        if not self.has(old):
            return
        if self.has(new):
            raise UsageError(clash.format(old=old, new=new))
        self.warnings.append(warning.format(old=old, new=new))
        self.values[new] = self.values[old]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of one tool. `warning` and `clash` are worded differently by each of Kafka's tools."""

    intro: str
    flags: Sequence[Flag]
    warning: str = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
    clash: str = "Options --{old} and --{new} cannot be specified together."

    def parse(self, argv: Sequence[str]) -> Arguments:
        """Parse a command line; HelpRequested and VersionRequested take precedence over any UsageError."""
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
        flags_by_name = dict(arguments.flags)
        flags_by_name.update((old, flag) for flag in self.flags for old in (*flag.older, flag.short))
        words = list(reversed(argv))
        while words:
            word = words.pop()
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                continue
            name, equals, value = word.lstrip("-").partition("=")
            flag = self._flag(flags_by_name, name)
            if name in flag.older:
                arguments.notes.append(f"Option --{name} is deprecated. Use --{flag.name} instead.")
            argument = _argument(flag, value if equals else None, words)
            arguments.values.setdefault(flag.name, []).extend(argument)
            arguments.order.append((flag.name, " ".join(argument)))
        return arguments

    def _flag(self, flags_by_name: dict[str, Flag], name: str) -> Flag:
        if name in flags_by_name:
            return flags_by_name[name]
        raise UsageError(REMOVED_FLAGS.get(name, f"{name} is not a recognized option"))

    def kind(self, name: str) -> str:
        return next(flag.kind for flag in self.flags if flag.name == name)

    def help(self) -> str:
        """Return the help in two columns, sorted by name."""
        flags = sorted((*self.flags, HELP, VERSION), key=lambda flag: flag.name)
        width = min(LEFT_COLUMN_MAX, max(len(flag.left) for flag in flags))
        rows = [(self.intro, ""), *_row("Option", "Description", width), *_row("------", "-----------", width)]
        for flag in flags:
            rows += _row(flag.left, flag.right, width)
        return "\n".join(f"{left:<{width}} {right}".rstrip() for left, right in rows)


def _argument(flag: Flag, attached: str | None, words: list[str]) -> list[str]:
    """Return the values of a flag: none for a switch. `words` is the rest of the command line, last word first."""
    if not flag.takes:
        return []
    if attached is not None:
        return [attached]
    if flag.argument_optional:
        return [words.pop()] if words and not words[-1].startswith("-") else []
    if not words:
        raise UsageError(f"Option {flag.name} requires an argument")
    values = [words.pop()]
    while flag.many and words and not words[-1].startswith("-"):
        values.append(words.pop())
    return values


def _row(left: str, right: str, width: int) -> Iterable[tuple[str, str]]:
    """Yield the lines of one row of the help; both cells are wrapped, further lines of a cell indented by two."""
    lefts = textwrap.wrap(left, width, subsequent_indent="  ", break_long_words=False)
    rights = textwrap.wrap(right, HELP_WIDTH - width - 1, subsequent_indent="  ")
    for row in range(max(len(lefts), len(rights))):
        yield (lefts[row] if row < len(lefts) else "", rights[row] if row < len(rights) else "")


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` arguments; a value may contain equals signs, and a key without one has an empty value."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def version_line() -> str:
    return f"{KAFKA_VERSION} (Moldau {__version__})"

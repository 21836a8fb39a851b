"""Command-line flags as Kafka's tools (jopt-simple) parse them: `--topic x`, `--topic=x`, `-topic x`; a flag may be
repeated; names cannot be abbreviated; numbers are parsed on access. A word that belongs to no flag is ignored, because
Kafka's tools ignore it too and a script that runs with them must run with these.

This module has names, help texts and the rules between flags. Tools decide what a flag does. Import no client here:
`--help` and usage errors must not wait until librdkafka is loaded, and must work where it is not installed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from moldau import __version__

KAFKA_VERSION: Final = "4.3.1"
"""The release whose flags and output these tools follow."""
JAVA_BITS: Final = {"Integer": 32, "Long": 64}
HELP_WIDTH: Final = 80
USAGE_COLUMN_MAX: Final = 40

# A flag that is no longer current is in one of three places:
# - Flag.former_names: Kafka no longer has the name, but its meaning is clear. It works, with a note of ours on stderr.
# - Flag.replaced_by: Kafka still accepts the flag and calls it deprecated. It works, with Kafka's warning on stdout.
# - REMOVED_FLAGS: neither Kafka nor we can do what the flag asks for. It is a usage error that says what to write.

REMOVED_FLAGS: Final = {
    "zookeeper": "--zookeeper is gone: there is no ZooKeeper. Name a broker: --bootstrap-server localhost:9092",
    "new-consumer": "--new-consumer is gone: there is one consumer. Leave the flag out",
}
"""Flags from old tutorials that no tool accepts today, and the error that says what to write instead."""


class UsageError(Exception):
    """The command line is wrong. The message is Kafka's, except in REMOVED_FLAGS; the tool adds how to get help."""


class HelpRequested(Exception):
    """`--help`, or no arguments: the tool prints its help and exits with status 1, as Kafka's tools do."""


class VersionRequested(Exception):
    """`--version`: the tool prints its version and exits with status 0."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a tool. Names are written without dashes."""

    name: str
    description: str
    argument_name: str = ""
    """The name of the argument in the help. A switch takes no argument and has an empty name here."""
    java_type: str = "String"
    """The Java type of the argument. It is printed, and says which numbers `Arguments.integer` accepts."""
    default: str | None = None
    argument_optional: bool = False
    short: str = ""
    """One letter, in the tools that have short flags; empty if the flag has no short name."""
    takes_several_words: bool = False
    """The argument is all words up to the next one that begins with a dash."""
    former_names: tuple[str, ...] = ()
    """Names in former releases, accepted with a note on stderr."""
    replaced_by: str = ""
    """The flag to use instead of this deprecated one. Both together are a usage error."""

    @property
    def help_usage(self) -> str:
        """The left column of the help: the flag and its argument."""
        if not self.argument_name:
            return f"--{self.name}"
        if self.takes_several_words:
            return f"--{self.name} {self.argument_name} ..."
        is_type_enough = self.argument_name == self.java_type
        argument = self.java_type if is_type_enough else f"{self.java_type}: {self.argument_name}"
        return f"--{self.name} [{argument}]" if self.argument_optional else f"--{self.name} <{argument}>"

    @property
    def help_description(self) -> str:
        """The right column of the help."""
        text = f"(DEPRECATED: use --{self.replaced_by}) {self.description}" if self.replaced_by else self.description
        return text if self.default is None else f"{text} (default: {self.default})"


HELP = Flag("help", "Print usage information.")
VERSION = Flag("version", "Display Kafka version.")


@dataclass(slots=True)
class Arguments:
    """The parsed command line. Values are looked up by the flag's current name."""

    flags: dict[str, Flag]
    values: dict[str, list[str]] = field(default_factory=dict)
    in_order: list[tuple[str, str]] = field(default_factory=list)
    """(flag, value) in the order of the command line, with an empty value for a switch. kafka-configs needs it: the
    n-th --entity-name or --entity-default belongs to the n-th --entity-type."""
    warnings: list[str] = field(default_factory=list)
    """What Kafka prints about deprecated flags. The tool prints it on stdout, where Kafka prints it."""
    notes: list[str] = field(default_factory=list)
    """What Kafka does not print: that a former name was used. The tool prints it on stderr."""

    def has(self, name: str) -> bool:
        return name in self.values

    def values_of(self, name: str) -> list[str]:
        """Return all values of a flag that may be repeated; defaults do not count."""
        return self.values.get(name, [])

    def single_value(self, name: str) -> str | None:
        """Return the value of a flag, or its default if it is absent. Raise UsageError if it is repeated."""
        values = self.values.get(name, [])
        if len(values) > 1:
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else self.flags[name].default

    def integer(self, name: str) -> int | None:
        value = self.single_value(name)
        if value is None:
            return None
        # int() also accepts underscores and blanks, which Java refuses.
        bits = JAVA_BITS[self.flags[name].java_type]
        if not re.fullmatch(r"[+-]?\d{1,19}", value) or not -(1 << bits - 1) <= int(value) < 1 << bits - 1:
            raise UsageError(f"Cannot parse argument '{value}' of option {name}")
        return int(value)

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')

    def forbid_together(self, name: str, *others: str) -> None:
        """Raise UsageError if the flag `name` is used together with any of `others`."""
        for other in others:
            if self.has(name) and self.has(other):
                raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def require_exactly_one(self, *names: str) -> None:
        if sum(map(self.has, names)) != 1:
            listed = ", ".join(f"[{name}]" for name in names)
            raise UsageError(f"Exactly one of the following arguments is required: {listed}")

    def replace_deprecated(self, old: str, new: str, warning: str, conflict_message: str) -> None:
        """Give the values of the deprecated flag `old` to `new`, with a `warning`; `old` keeps them too.

        Raise UsageError with `conflict_message` if both flags are present. {old} and {new} in both texts are replaced.
        """
        if not self.has(old):
            return
        if self.has(new):
            raise UsageError(conflict_message.format(old=old, new=new))
        self.warnings.append(warning.format(old=old, new=new))
        self.values[new] = self.values[old]


@dataclass(frozen=True, slots=True)
class ToolFlags:
    """The flags of one tool. Each of Kafka's tools has its own wording of `warning` and `conflict_message`."""

    intro: str
    flags: Sequence[Flag]
    warning: str = "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
    conflict_message: str = "Options --{old} and --{new} cannot be specified together."

    def parse(self, argv: Sequence[str]) -> Arguments:
        """Parse a command line.

        An unknown flag or a missing argument raises UsageError even beside `--help`. HelpRequested and
        VersionRequested then take precedence over conflicts between flags, which are checked afterwards, here and in
        the tool.
        """
        if not argv:
            raise HelpRequested
        arguments = self._read_words(argv)
        if arguments.has("help"):
            raise HelpRequested
        if arguments.has("version"):
            raise VersionRequested
        for flag in self.flags:
            if flag.replaced_by:
                arguments.replace_deprecated(flag.name, flag.replaced_by, self.warning, self.conflict_message)
        return arguments

    def _read_words(self, argv: Sequence[str]) -> Arguments:
        """Return the flags of a command line with their values, before any rule between flags is checked."""
        arguments = Arguments({flag.name: flag for flag in (*self.flags, HELP, VERSION)})
        flags_by_name = dict(arguments.flags)
        for flag in self.flags:
            # Skip empty short names: the word `---` has an empty name too and would match a flag without a short name.
            flags_by_name.update((name, flag) for name in (*flag.former_names, flag.short) if name)
        words = list(reversed(argv))  # The next word is the last of the list: cheap to pop.
        while words:
            word = words.pop()
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                continue
            name, equals, value = word.lstrip("-").partition("=")
            flag = self._flag(flags_by_name, name)
            if name in flag.former_names:
                arguments.notes.append(f"Option --{name} is deprecated. Use --{flag.name} instead.")
            values = _pop_values(flag, value if equals else None, words)
            arguments.values.setdefault(flag.name, []).extend(values)
            arguments.in_order.append((flag.name, " ".join(values)))
        return arguments

    def _flag(self, flags_by_name: dict[str, Flag], name: str) -> Flag:
        if name in flags_by_name:
            return flags_by_name[name]
        raise UsageError(REMOVED_FLAGS.get(name, f"{name} is not a recognized option"))

    def java_type(self, name: str) -> str:
        return next(flag.java_type for flag in self.flags if flag.name == name)

    def help(self) -> str:
        """Return the help in two columns, sorted by name."""
        flags = sorted((*self.flags, HELP, VERSION), key=lambda flag: flag.name)
        width = min(USAGE_COLUMN_MAX, max(len(flag.help_usage) for flag in flags))
        lines = [(self.intro, "")]
        lines += _wrap_row("Option", "Description", width)
        lines += _wrap_row("------", "-----------", width)
        for flag in flags:
            lines += _wrap_row(flag.help_usage, flag.help_description, width)
        return "\n".join(f"{usage:<{width}} {description}".rstrip() for usage, description in lines)


def _pop_values(flag: Flag, attached: str | None, words: list[str]) -> list[str]:
    """Return the values of a flag, which are none for a switch, and remove them from `words`.

    `attached` is the value after an equals sign. `words` is the rest of the command line, last word first.
    """
    if not flag.argument_name:
        return []
    if attached is not None:
        return [attached]
    if flag.argument_optional:
        return [words.pop()] if words and not words[-1].startswith("-") else []
    if not words:
        raise UsageError(f"Option {flag.name} requires an argument")
    values = [words.pop()]
    while flag.takes_several_words and words and not words[-1].startswith("-"):
        values.append(words.pop())
    return values


def _wrap_row(usage: str, description: str, width: int) -> Iterable[tuple[str, str]]:
    """Return the lines of one row of the help; both cells are wrapped, further lines of a cell indented by two."""
    usage_lines = textwrap.wrap(usage, width, subsequent_indent="  ", break_long_words=False)
    description_lines = textwrap.wrap(description, HELP_WIDTH - width - 1, subsequent_indent="  ")
    return zip_longest(usage_lines, description_lines, fillvalue="")


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` words. The first equals sign ends the key; a word without one is a key with an empty value."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def version_line() -> str:
    return f"{KAFKA_VERSION} (Moldau {__version__})"

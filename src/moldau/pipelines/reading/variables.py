"""Replaces ${name}, ${env:NAME} and ${file:PATH} in the texts of a pipeline file, before anything else uses them.

`vars` gives values, --set overrides them, ${env:NAME} reads the environment, ${file:PATH} a file, and
${file:PATH:KEY} a property of a file. $${ is a plain ${. A replaced text still knows the places of its characters. The
environment and the files are arguments. Values may be passwords: no message quotes them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moldau.pipelines.problems import Problem, did_you_mean, quoted
from moldau.pipelines.reading.value_files import UnreadableValue, ValueFiles
from moldau.pipelines.reading.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from moldau.pipelines.spec import Place, Segment, TextMap

REPLACED_LENGTH_MAX = 1024 * 1024
"""Limit of all inserted values together: a variable made of variables can double the length each time."""
_USE = re.compile(r"\$\$\{|\$\{([^}\n]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ENV = "env:"
_FILE = "file:"


@dataclass(frozen=True, slots=True)
class Outside:
    """Where values come from that are not in the pipeline's file."""

    environ: Mapping[str, str] = field(repr=False)
    files: ValueFiles
    must_resolve_unused: bool = True
    """Whether variables that nothing uses must have values too."""


def replace_variables(
    root: MappingNode, settings: Mapping[str, str], outside: Outside
) -> tuple[MappingNode, list[Problem]]:
    """Return the tree without `vars` and with all variables replaced, and the problems of the variables."""
    replacement = _Replacement(settings, outside)
    declared = root.values.get("vars")
    if isinstance(declared, MappingNode):
        replacement.declare(declared)
    elif declared is not None and not (isinstance(declared, ScalarNode) and declared.empty):
        replacement.refuse("'vars' must be a mapping of names to values", declared.place)
    rest = {name: value for name, value in root.values.items() if name != "vars"}
    tree = replacement.mapping(replace(root, values=rest))
    replacement.report_postponed()
    replacement.refuse_unknown_settings(root.keys.get("vars", root.place))
    return tree, replacement.problems


@dataclass(slots=True)
class _Replacement:
    """Replaces the variables of one file. `settings` are the values of --set."""

    settings: Mapping[str, str]
    outside: Outside
    problems: list[Problem] = field(default_factory=list)
    _values: dict[str, str] = field(default_factory=dict)
    _declared: set[str] = field(default_factory=set)
    _declaring: str | None = None
    """The variable whose text is being replaced; None outside `vars`."""
    _used: dict[str | None, set[str]] = field(default_factory=dict)
    """The variables that a variable's text uses, by its name; under None those that the rest of the file uses."""
    _postponed: dict[str, list[Problem]] = field(default_factory=dict)
    """Problems of variables that are reported if the variable is used."""
    _length: int = 0
    _done: dict[int, tuple[Node, Node]] = field(default_factory=dict)
    """Old and new node by id of the old: a node that aliases repeat is replaced and reported once. Keeping the old
    node alive keeps its id unique."""

    def __post_init__(self) -> None:
        self._values.update(self.settings)

    def refuse(self, message: str, place: Place, hint: str | None = None) -> None:
        self.problems.append(Problem(message, place, hint))

    def declare(self, declared: MappingNode) -> None:
        """Set the variables in the order of the file, so that a variable may use those above it."""
        self._declared.update(declared.values)
        for name, value in declared.values.items():
            place = declared.keys[name]
            if not _NAME.fullmatch(name):
                self.refuse(f"{quoted(name)} cannot be a variable's name: use letters, digits, _ and -", place)
            if name in self.settings:
                continue
            if not isinstance(value, ScalarNode):
                self.refuse(f"the variable {quoted(name)} must be a text", value.place)
                self._values[name] = ""
            else:
                before = len(self.problems)
                self._values[name] = self._declared_text(name, value, place)
                if not self.outside.must_resolve_unused:
                    self._postponed[name] = self.problems[before:]
                    del self.problems[before:]

    def _declared_text(self, name: str, value: ScalarNode, place: Place) -> str:
        if value.empty:
            hint = f"give it one here, or {_set_option(name)}"
            self.refuse(f"the variable {quoted(name)} has no value", place, hint)
            return ""
        self._declaring = name
        text = self.scalar(value).text
        self._declaring = None
        return text

    def report_postponed(self) -> None:
        """Report the problems of the variables that the file uses, and of those that their texts use, each once."""
        waiting, seen = list(self._used.get(None, ())), set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                self.problems += self._postponed.get(name, ())
                waiting += self._used.get(name, ())

    def refuse_unknown_settings(self, place: Place) -> None:
        known = self._declared.union(*self._used.values())
        for name in self.settings.keys() - known:
            suggestion = did_you_mean(name, known)
            self.refuse(f"{name} is given a value, but this file has no such variable{suggestion}", place)

    def node(self, node: Node) -> Node:
        done = self._done.get(id(node))
        if done is None:
            if isinstance(node, ScalarNode):
                new: Node = self.scalar(node)
            elif isinstance(node, SequenceNode):
                new = replace(node, values=tuple(self.node(value) for value in node.values))
            else:
                new = self.mapping(node)
            done = self._done[id(node)] = (node, new)
        return done[1]

    def mapping(self, node: MappingNode) -> MappingNode:
        return replace(node, values={name: self.node(value) for name, value in node.values.items()})

    def scalar(self, scalar: ScalarNode) -> ScalarNode:
        """Return the text with variables replaced. It counts as plain even if quoted: `"${n}"`, which YAML requires
        inside {…}, may be a number. But a variable without text is an empty text, not a key without a value."""
        if "${" not in scalar.text:
            return scalar
        uses = list(_USE.finditer(scalar.text))
        replaced = self._replaced_map(scalar.map, uses)
        plain = replaced.text != "" and (scalar.plain or any(use.group(1) is not None for use in uses))
        return replace(scalar, map=replaced, plain=plain)

    def _replaced_map(self, old: TextMap, uses: list[re.Match[str]]) -> TextMap:
        parts: list[str] = []
        segments: list[Segment] = []
        length = done = 0
        for use in uses:
            value = self._value(use, old.at(use.start()))
            parts += [old.text[done : use.start()], value]
            segments += _shift_segments(old, done, use.start(), length - done)
            length += use.start() - done
            place = old.at(use.start())
            segments.append(Segment(length, place.line, place.column, single_place=True))
            length += len(value)
            done = use.end()
            self._length += len(value)
            if self._length > REPLACED_LENGTH_MAX:
                self._refuse_length(place)
                return old
        parts.append(old.text[done:])
        segments += _shift_segments(old, done, len(old.text) + 1, length - done)
        return TextMap(old.file, "".join(parts), tuple(segments))

    def _refuse_length(self, place: Place) -> None:
        """Report it once; the texts after it stay unreplaced."""
        message = f"with variables replaced, the file grows by more than {REPLACED_LENGTH_MAX} characters"
        if not any(problem.message == message for problem in self.problems):
            self.refuse(message, place)

    def _value(self, use: re.Match[str], place: Place) -> str:
        name, closed = use.group(1), use.group(2)
        if name is None:
            return "${"
        if not closed:
            self.refuse("'${' without a '}'", place, "write $${ where a plain ${ is meant")
            return ""
        if name.startswith(_ENV):
            return self._from_environment(name.removeprefix(_ENV), place)
        if name.startswith(_FILE):
            return self._from_file(name.removeprefix(_FILE), place)
        self._used.setdefault(self._declaring, set()).add(name)
        if name in self._values:
            return self._values[name]
        if name in self._declared:
            self.refuse(f"the variable {quoted(name)} is used above the line that gives it a value", place)
        else:
            suggestion = did_you_mean(name, self._declared | self._values.keys())
            hint = None if suggestion else f"add it to vars, or give it a value {_set_option(name)}"
            self.refuse(f"unknown variable {quoted(name)}{suggestion}", place, hint)
        return ""

    def _from_environment(self, name: str, place: Place) -> str:
        environ = self.outside.environ
        try:
            value = environ.get(name)
        except UnicodeEncodeError:  # no environment can have such a name, half of a surrogate pair
            value = None
        if value is None:
            self.refuse(f"the environment has no variable {quoted(name)}{did_you_mean(name, environ)}", place)
        return value or ""

    def _from_file(self, written: str, place: Place) -> str:
        try:
            return self.outside.files.value(written)
        except UnreadableValue as unreadable:
            self.refuse(str(unreadable), place)
            return ""


def _shift_segments(old: TextMap, start: int, end: int, by: int) -> list[Segment]:
    """Return the segments of [start, end) of the old text after those characters move by `by`."""
    if start >= end:
        return []
    at = max(0, bisect_right(old.segments, start, key=lambda segment: segment.start) - 1)
    after = bisect_left(old.segments, end, key=lambda segment: segment.start)
    place = old.at(start)
    inside = [replace(segment, start=segment.start + by) for segment in old.segments[at + 1 : after]]
    return [Segment(start + by, place.line, place.column, old.segments[at].single_place), *inside]


def _set_option(name: str) -> str:
    return f"with --set {name}=… (in Python, load(FILE, {name}=…))"

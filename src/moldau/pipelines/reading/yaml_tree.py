"""Reads YAML into a tree of values that know their places: every key and every text has its line and column.

PyYAML only parses events; this module builds the tree, because a pipeline file is stricter than YAML: a key may occur
once, tags are refused, and too much nesting or repetition is refused before it takes memory.
Numbers and booleans stay texts until the reader of a key needs one: `topic: 007` is a topic. Keys have no meaning here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from moldau.pipelines.problems import InvalidPipeline, Problem, quoted
from moldau.pipelines.reading.syntax_errors import syntax_problem
from moldau.pipelines.reading.text_maps import FileText, text_map
from moldau.pipelines.spec import Place, TextMap

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
VALUES_MAX = 20_000
"""Limit of values with aliases expanded: ten lines of aliases of aliases can be a million values."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_MERGE = "<<"


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A text. A `plain` one (without quotes) may be a number, a boolean or empty."""

    map: TextMap
    plain: bool
    place: Place
    weight: int = 1
    """How many values the node is, with all values inside it and aliases expanded."""
    depth: int = 1
    """How many levels of nodes it has."""

    @property
    def text(self) -> str:
        return self.map.text

    @property
    def empty(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    values: tuple[Node, ...]
    place: Place
    weight: int
    depth: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping: the value and the place of each key, merged ones (<<) last."""

    values: dict[str, Node]
    keys: dict[str, Place]
    place: Place
    weight: int
    depth: int


Node = ScalarNode | SequenceNode | MappingNode


def read_yaml(file: str, content: bytes) -> MappingNode:
    """Return the mapping that is the content of a file, or raise InvalidPipeline."""
    text = _decode(file, content)
    file_text = FileText(file, text)
    problems: list[Problem] = []
    try:
        root = _Composer(file_text, problems).document()
    except yaml.MarkedYAMLError as error:
        problems.append(syntax_problem(file_text, error))
    except yaml.reader.ReaderError as error:
        message = f"the character U+{int(error.character):04X} is not allowed in YAML"
        problems.append(Problem(message, file_text.place(error.position)))
    except _FatalProblem as error:
        problems.append(error.problem)
    if problems:
        raise InvalidPipeline(problems)
    return root


def _decode(file: str, content: bytes) -> str:
    top = Place(file=file, line=1, column=1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidPipeline([Problem(f"the file is larger than {FILE_BYTES_MAX // 1024} KiB", top)])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = FileText(file, content[: error.start].decode("utf-8-sig", errors="replace"))
        message = f"the file is not UTF-8: byte 0x{content[error.start]:02x}"
        raise InvalidPipeline([Problem(message, before.place(len(before.text)))]) from None


class _FatalProblem(Exception):
    """Ends the reading, because further problems would only follow from this one: the file is empty, or too large."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.problem = Problem(message, place)


@dataclass(slots=True)
class _Composer:
    """Builds the tree of one document from the parser's events."""

    file_text: FileText
    problems: list[Problem]
    _events: Iterator[yaml.Event] = field(init=False)
    _anchors: dict[str, Node] = field(default_factory=dict)
    _open_anchors: set[str] = field(default_factory=set)
    _values: int = 0

    def __post_init__(self) -> None:
        self._events = yaml.parse(self.file_text.text, Loader=yaml.SafeLoader)

    def document(self) -> MappingNode:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise _FatalProblem("the file is empty", self.file_text.place(0))
        root = self._node(next(self._events), depth=1)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise _FatalProblem("a second YAML document: a pipeline is one document in one file", self._place(after))
        if isinstance(root, MappingNode):
            return root
        if isinstance(root, ScalarNode) and root.empty:
            raise _FatalProblem("the file is empty", self.file_text.place(0))
        raise _FatalProblem("a pipeline is a mapping: it begins with 'name: …'", root.place)

    def _refuse(self, message: str, place: Place) -> None:
        self.problems.append(Problem(message, place))

    def _place(self, event: yaml.Event) -> Place:
        assert event.start_mark is not None
        return self.file_text.place(event.start_mark.index)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise _FatalProblem(f"nested more than {DEPTH_MAX} deep", self._place(event))
        if isinstance(event, yaml.AliasEvent):
            return self._count(self._alias(event, depth), event)
        assert isinstance(event, yaml.NodeEvent)
        if event.anchor is not None:
            self._open_anchors.add(event.anchor)
        node = self._count(self._new_node(event, depth), event)
        if event.anchor is not None:
            self._open_anchors.discard(event.anchor)
            self._anchors[event.anchor] = node
        return node

    def _count(self, node: Node, event: yaml.Event) -> Node:
        """Count an alias with all its parts, any other node as one: its parts were counted when they were read."""
        self._values += node.weight if isinstance(event, yaml.AliasEvent) else 1
        if self._values > VALUES_MAX or node.weight > VALUES_MAX:
            raise _FatalProblem(f"more than {VALUES_MAX} values, with aliases followed", self._place(event))
        return node

    def _alias(self, event: yaml.AliasEvent, depth: int) -> Node:
        name = event.anchor or ""
        node = self._anchors.get(name)
        if node is None:
            inside = name in self._open_anchors
            why = "is inside the anchor it refers to" if inside else "has no anchor before it"
            raise _FatalProblem(f"the alias *{name} {why}", self._place(event))
        if depth + node.depth - 1 > DEPTH_MAX:
            raise _FatalProblem(f"nested more than {DEPTH_MAX} deep", self._place(event))
        return node

    def _new_node(self, event: yaml.NodeEvent, depth: int) -> Node:
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._refuse(f"the YAML tag {quoted(tag)} is not used in a pipeline file", self._place(event))
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, depth)
        return self._mapping(event, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        assert event.start_mark is not None
        assert event.end_mark is not None
        start, end = event.start_mark.index, event.end_mark.index
        where = text_map(self.file_text, event.value, start, end, event.style or None)
        place = where.at(0) if event.style in ("|", ">") and event.value.strip() else self._place(event)
        return ScalarNode(where, plain=not event.style, place=place)

    def _sequence(self, event: yaml.NodeEvent, depth: int) -> SequenceNode:
        values = []
        while not isinstance(following := next(self._events), yaml.SequenceEndEvent):
            values.append(self._node(following, depth + 1))
        return SequenceNode(tuple(values), self._place(event), _weight(values), _depth(values))

    def _mapping(self, event: yaml.NodeEvent, depth: int) -> MappingNode:
        values: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        merged: list[MappingNode] = []
        while not isinstance(following := next(self._events), yaml.MappingEndEvent):
            key = self._node(following, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, ScalarNode):
                self._refuse("a key must be a text", key.place)
            elif key.plain and key.text == _MERGE:
                merged += self._mergeable(value)
            elif key.text in values:
                first = keys[key.text].line
                self._refuse(f"the key {quoted(key.text)} occurs twice, first on line {first}", key.place)
            else:
                values[key.text], keys[key.text] = value, key.place
        for other in merged:
            for name in other.values:
                if name not in values:
                    values[name], keys[name] = other.values[name], other.keys[name]
        parts = list(values.values())
        return MappingNode(values, keys, self._place(event), _weight(parts), _depth(parts))

    def _mergeable(self, value: Node) -> list[MappingNode]:
        """Return the mappings that << merges: one or a list, in which the first has precedence."""
        parts = value.values if isinstance(value, SequenceNode) else (value,)
        mappings = [part for part in parts if isinstance(part, MappingNode)]
        if len(mappings) < len(parts):
            self._refuse("<< merges a mapping: name one with *alias", value.place)
        return mappings


def _weight(values: list[Node]) -> int:
    return 1 + sum(value.weight for value in values)


def _depth(values: list[Node]) -> int:
    return 1 + max((value.depth for value in values), default=0)

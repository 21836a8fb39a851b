"""Reads one mapping of a pipeline file key by key: each key has the right type, or a problem points at its place.

Each method records what is wrong and then returns a harmless value, so that reading continues and all problems of a
file are found in one run. The callers decide which keys go together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from moldau.base.limits import INT64_MAX
from moldau.base.topic_names import topic_name_problem
from moldau.pipelines.problems import Problem, did_you_mean, one_of, quoted
from moldau.pipelines.reading.times import parse_duration
from moldau.pipelines.reading.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from moldau.pipelines.spec import REAL_TIME, Place, Watermark

Choice = TypeVar("Choice", bound=str)

INT_DIGITS_MAX = 38
"""As many as Spark's widest decimal has."""
_TRUE = frozenset({"true", "True", "TRUE", "yes", "on"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "off"})
REAL_TIME_BATCH = "5 minutes"
_REAL_TIME = re.compile(r"real[-_ ]?time|continuous", re.IGNORECASE)
_INT = re.compile(r"[-+]?(\d+)")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@dataclass(slots=True)
class Section:
    """One mapping. `what` is its name in messages ("source 'events'"; "" for the whole file), `place` is the position
    of problems about missing keys."""

    entries: MappingNode
    what: str
    place: Place
    problems: list[Problem]
    known_keys: set[str] = field(default_factory=set)
    """Keys that have been read or may be present. `finish` refuses all others."""
    misplaced: set[str] = field(default_factory=set)
    """Keys that are known elsewhere but refused in this mapping."""
    option_names: frozenset[str] = frozenset()
    """Names that belong one level deeper, under `options`."""

    def refuse(self, message: str, place: Place | None = None, hint: str | None = None) -> None:
        whole = f"{self.what}: {message}" if self.what else message
        self.problems.append(Problem(whole, place or self.place, hint))

    def has(self, key: str) -> bool:
        """Return whether the key is present, with or without a value."""
        self.known_keys.add(key)
        return key in self.entries.values

    def node(self, key: str) -> Node | None:
        """Return the value of a key, or None. A key without a value is a problem: its author meant something."""
        if not self.has(key):
            return None
        value = self.entries.values[key]
        if isinstance(value, ScalarNode) and value.empty:
            self.refuse(f"'{key}' has no value", self.key_place(key))
            return None
        return value

    def key_place(self, key: str) -> Place:
        return self.entries.keys.get(key, self.place)

    def value_place(self, key: str) -> Place:
        value = self.entries.values.get(key)
        return value.place if isinstance(value, ScalarNode) else self.key_place(key)

    def scalar(self, key: str, expected: str) -> ScalarNode | None:
        value = self.node(key)
        if value is None or isinstance(value, ScalarNode):
            return value
        self.refuse(f"'{key}' must be {expected}, not {_kind(value)}", self.key_place(key))
        return None

    def text(self, key: str) -> str | None:
        value = self.scalar(key, "a text")
        if value is not None and not value.text.strip():
            self.refuse(f"'{key}' is empty", value.place)
            return None
        return value.text if value else None

    def required_text(self, key: str) -> str:
        if not self.has(key):
            self.refuse(f"missing key '{key}'")
        return self.text(key) or ""

    def choice(self, key: str, choices: Sequence[Choice], default: Choice, whose: str = "") -> Choice:
        value = self.scalar(key, one_of(choices))
        if value is None:
            return default
        for choice in choices:
            if value.text == choice:
                return choice
        suggestion = did_you_mean(value.text, choices)
        hint = None if suggestion else f"{key} may be {one_of(choices)}"
        self.refuse(f"{quoted(value.text)} is not a {key}{whose}{suggestion}", value.place, hint)
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.scalar(key, "true or false")
        if value is None:
            return default
        if value.plain and value.text in _TRUE | _FALSE:
            return value.text in _TRUE
        self.refuse(f"'{key}' must be true or false, not {quoted(value.text)}", value.place)
        return default

    def count(self, key: str, most: int = INT64_MAX) -> int | None:
        """Return a whole number from 1 to `most`."""
        value = self.scalar(key, "a whole number")
        if value is None:
            return None
        if not value.plain or not re.fullmatch(r"[1-9]\d{0,17}", value.text):
            self.refuse(f"'{key}' must be a whole number of at least 1, not {quoted(value.text)}", value.place)
            return None
        if int(value.text) > most:
            self.refuse(f"'{key}' is at most {most}", value.place)
            return None
        return int(value.text)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        return tuple(scalar.text for scalar in self.scalars(key))

    def scalars(self, key: str) -> tuple[ScalarNode, ...]:
        value = self.node(key)
        if value is None:
            return ()
        if isinstance(value, MappingNode):
            self.refuse(f"'{key}' must be a list, not a mapping", self.key_place(key))
            return ()
        items = value.values if isinstance(value, SequenceNode) else (value,)
        if not items:
            self.refuse(f"'{key}' is an empty list", self.key_place(key))
        good: dict[str, ScalarNode] = {}
        for item in items:
            if not isinstance(item, ScalarNode) or item.empty or not item.text.strip():
                self.refuse(f"'{key}' must be a list of texts", item.place)
            elif item.text in good:
                self.refuse(f"{quoted(item.text)} is listed twice in '{key}'", item.place)
            else:
                good[item.text] = item
        return tuple(good.values())

    def mapping(self, key: str) -> Mapping[str, str]:
        """Return names and texts, such as options."""
        value = self.node(key)
        if value is None:
            return {}
        if not isinstance(value, MappingNode):
            self.refuse(f"'{key}' must be a mapping, not {_kind(value)}", self.value_place(key))
            return {}
        texts = {}
        for name, part in value.values.items():
            if isinstance(part, ScalarNode) and not part.empty:
                texts[name] = part.text
            else:
                self.refuse(f"'{key}.{name}' must be a text", value.keys[name])
        return texts

    def duration(self, key: str) -> str | None:
        value = self.scalar(key, "a duration such as '10 seconds'")
        if value is None:
            return None
        parsed = parse_duration(value.text)
        if parsed is None:
            self.refuse(
                f"{quoted(value.text)} is not a duration",
                value.place,
                "write a number and a unit, such as '10 seconds'",
            )
        return parsed

    def trigger(self, has_real_time: bool = False) -> str | None:
        """Return how often micro-batches begin, or real-time mode where the connector has it. Spark's other triggers,
        texts or mappings, are refused."""
        value = self.node("trigger")
        kind = value.text if isinstance(value, ScalarNode) else ""
        if isinstance(value, MappingNode):
            kind = next(iter(value.values), "")
        if not _REAL_TIME.match(kind):
            return self.duration("trigger")
        if has_real_time and not kind.lower().startswith("continuous"):
            return self._real_time(value)
        self.refuse(
            "real-time and continuous mode are only for Spark's own sources and sinks",
            self.value_place("trigger"),
            "leave 'trigger' out: each micro-batch then begins when the last is done; or use `connector: kafka` and"
            " `trigger: real-time` for the whole pipeline",
        )
        return None

    def _real_time(self, value: Node | None) -> str | None:
        given = next(iter(value.values.values())) if isinstance(value, MappingNode) else None
        text = given.text if isinstance(given, ScalarNode) else REAL_TIME_BATCH
        if (duration := parse_duration(text)) is None:
            self.refuse(f"{quoted(text)} is not a duration", self.value_place("trigger"), "such as 5 minutes")
            return None
        return f"{REAL_TIME}{duration}"

    def topic(self, key: str) -> str | None:
        value = self.scalar(key, "a topic's name")
        return self.topic_name(value) if value else None

    def topic_name(self, value: ScalarNode) -> str:
        if problem := topic_name_problem(value.text):
            self.refuse(f"not a topic's name: {problem}", value.place)
        return value.text

    def section(self, key: str) -> Section | None:
        value = self.node(key)
        if value is None or isinstance(value, MappingNode):
            what = f"{self.what}, {key}" if self.what else key
            return Section(value, what, self.key_place(key), self.problems) if value else None
        self.refuse(f"'{key}' must be a mapping, not {_kind(value)}", self.value_place(key))
        return None

    def watermark(self) -> Watermark | None:
        inner = self.section("watermark")
        if inner is None:
            return None
        column, delay = inner.required_text("column"), inner.duration("delay")
        if not inner.has("delay"):
            inner.refuse("missing key 'delay'", hint="how late a row may come, such as '10 seconds'")
        inner.finish()
        return Watermark(column=column, delay=delay or "0 seconds")

    def only_one_of(
        self, keys: Sequence[str], question: str, others: Iterable[str], synonyms: Mapping[str, str]
    ) -> str | None:
        """Return which of the keys is present; several are a problem. If none is present, refuse that, finish the
        section and return None; `others` are the other keys allowed in it."""
        present = [key for key in keys if self.has(key)]
        for other in present[1:]:
            self.refuse(f"'{present[0]}' and '{other}' do not go together: give one of them", self.key_place(other))
        if present:
            return present[0]
        self.known_keys.update(others)
        misspelt = [key for key in self.entries.values if key not in self.known_keys]
        if not any(synonyms.get(key) in keys or did_you_mean(key, keys) for key in misspelt):
            self.refuse(f"{question} Give {one_of(keys)}")
        self.finish(synonyms)
        return None

    def refuse_keys(self, keys: Iterable[str], why: Callable[[str], str]) -> None:
        """Refuse keys that have a meaning elsewhere but not in this mapping."""
        for key in keys:
            self.misplaced.add(key)
            if self.has(key):
                self.refuse(why(key), self.key_place(key))

    def finish(self, synonyms: Mapping[str, str] | None = None) -> None:
        """Refuse every key that is not in `known_keys`."""
        allowed = self.known_keys - self.misplaced
        for key in self.entries.values:
            if key not in self.known_keys:
                synonym = (synonyms or {}).get(key)
                suggestion = did_you_mean(key, allowed)
                if synonym in allowed:
                    suggestion = f", did you mean '{synonym}'?"
                hint = None if suggestion else f"known here: {', '.join(sorted(allowed))}"
                if key in self.option_names:
                    suggestion, hint = ", which is an option", f"write  options: {{{key}: …}}"
                self.refuse(f"unknown key {quoted(key)}{suggestion}", self.entries.keys[key], hint)

    def python_value(self, node: Node) -> object:
        """Return a value as a Python object, by YAML's core types, for arguments of Python steps."""
        if isinstance(node, SequenceNode):
            return [self.python_value(value) for value in node.values]
        if isinstance(node, MappingNode):
            return {name: self.python_value(value) for name, value in node.values.items()}
        if not node.plain:
            return node.text
        if node.empty:
            return None
        if node.text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return node.text.lower() == "true"
        if integer := _INT.fullmatch(node.text):
            return self._integer(node, len(integer[1]))
        return float(node.text) if _FLOAT.fullmatch(node.text) else node.text

    def _integer(self, node: ScalarNode, digits: int) -> int:
        if digits <= INT_DIGITS_MAX:
            return int(node.text)
        message = f"a whole number has at most {INT_DIGITS_MAX} digits, and this one {digits}"
        self.refuse(message, node.place, "in quotes it is a text")
        return 0


def _kind(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return "a text"
    return "a list" if isinstance(node, SequenceNode) else "a mapping"

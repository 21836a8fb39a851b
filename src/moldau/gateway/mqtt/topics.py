"""Topic names of MQTT and topics of Kafka: where a message goes, which name a record has, where a filter finds records.

Without a rule the first level is the Kafka topic, and the rest is the key: `telemetry/plant1/line2` is a record of the
topic `telemetry` with the key `plant1/line2`; a name of one level is a record without a key. A rule, such as
`plants/+/line/# -> telemetry`, sends what its filter matches to a Kafka topic; the key is the whole name. The first
rule that matches decides. A Kafka topic that rules lead to is reached only by them: so topic and key of a record always
say which name it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.base.topic_names import topic_name_problem
from moldau.gateway.mqtt.packets import topic_name_fits
from moldau.gateway.mqtt.properties import STRING_BYTES_MAX
from moldau.gateway.mqtt.reasons import Reason

SESSIONS_TOPIC: Final = "_mqtt_sessions"
RETAINED_TOPIC: Final = "_mqtt_retained"
LEVELS_MAX: Final = 128
"""Levels of a name or filter. Real ones have ten; 65,535 bytes could have as many levels."""
NAMES_KEPT: Final = 20_000
"""Names whose places are remembered: looking one up takes a tenth of working it out."""


class Place(NamedTuple):
    """Where messages with a name go."""

    topic: str
    key: bytes | None


class Refusal(NamedTuple):
    """Why a name or filter cannot be used."""

    reason: Reason
    what: str


class Rule(NamedTuple):
    filter: str
    levels: tuple[str, ...]
    topic: str


class BadRule(ValueError):
    """A rule that cannot be understood; one line that says why."""


def parse_rule(text: str) -> Rule:
    """Parse `FILTER -> KAFKA-TOPIC`."""
    written, arrow, topic = (part.strip() for part in text.partition("->"))
    if not arrow or not written or not topic:
        raise BadRule(f"{text!r}: write a filter, an arrow and a Kafka topic, such as 'plants/+/line/# -> telemetry'")
    if problem := filter_problem(written):
        raise BadRule(f"{text!r}: {problem}")
    if written.startswith("$"):
        raise BadRule(f"{text!r}: names that begin with $ belong to the server")
    if problem := topic_name_problem(topic):
        raise BadRule(f"{text!r}: not a Kafka topic: {problem}")
    if is_internal(topic):
        raise BadRule(f"{text!r}: {topic} is an internal topic")
    return Rule(written, tuple(written.split("/")), topic)


def filter_problem(text: str) -> str | None:
    """Return what is wrong with a filter of MQTT, or None."""
    if not text or len(text.encode()) > STRING_BYTES_MAX:
        return "the filter is empty or too long"
    levels = text.split("/")
    if len(levels) > LEVELS_MAX:
        return f"the filter has more than {LEVELS_MAX} levels"
    for place, level in enumerate(levels):
        if "#" in level and (level != "#" or place != len(levels) - 1):
            return "# must be the whole last level"
        if "+" in level and level != "+":
            return "+ must be a whole level"
    return None


def is_internal(topic: str) -> bool:
    """Whether a Kafka topic is nobody's business: those of brokers, and those in which the gateway keeps its own."""
    return topic.startswith("__") or topic in (SESSIONS_TOPIC, RETAINED_TOPIC)


def matches(levels: Sequence[str], name: Sequence[str]) -> bool:
    """Whether the filter matches the name, both as levels. Wildcards in the first level match no `$SYS`."""
    if name[0].startswith("$") and levels[0] in ("+", "#"):
        return False
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(name) or (level != "+" and level != name[place]):
            return False
    return len(levels) == len(name)


def overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a name can match both filters."""
    for left, right in zip(one, other, strict=False):
        if left == "#" or right == "#":
            return True
        if left != right and "+" not in (left, right):
            return False
    longer = one if len(one) > len(other) else other
    shortest = min(len(one), len(other))
    return len(one) == len(other) or list(longer[shortest:]) == ["#"]


def contains(outer: Sequence[str], inner: Sequence[str]) -> bool:
    """Whether the outer filter matches every name that the inner one matches."""
    for place, level in enumerate(outer):
        if level == "#":
            return True
        if place >= len(inner) or inner[place] == "#":
            return False
        if level not in ("+", inner[place]):
            return False
    return len(outer) == len(inner)


class TopicRules:
    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._ruled = frozenset(rule.topic for rule in rules)
        self._places: dict[str, Place | Refusal] = {}
        self._names: dict[tuple[str, bytes | None], str | None] = {}

    def place(self, name: str) -> Place | Refusal:
        """Return where messages with this name go."""
        found = self._places.get(name)
        if found is None:
            if len(self._places) >= NAMES_KEPT:
                self._places.clear()
            found = self._places[name] = self._find_place(name)
        return found

    def name(self, topic: str, key: bytes | None) -> str | None:
        """Return the topic name of a record; None if no message with any name could have become it."""
        known = topic, key
        if known in self._names:
            return self._names[known]
        if len(self._names) >= NAMES_KEPT:
            self._names.clear()
        found = self._names[known] = self._find_name(topic, key)
        return found

    def topics(self, text: str) -> tuple[str, ...] | Refusal:
        """Return the Kafka topics that have what a filter matches."""
        if text.startswith("$share/") or text == "$share":
            return Refusal(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "use a consumer group of Kafka")
        if problem := filter_problem(text):
            return Refusal(Reason.TOPIC_FILTER_INVALID, problem)
        if text.startswith("$"):
            return Refusal(Reason.TOPIC_FILTER_INVALID, "there are no topics that begin with $ here")
        levels = text.split("/")
        found: list[str] = []
        for rule in self._rules:
            if overlap(rule.levels, levels):
                found.append(rule.topic)
                if contains(rule.levels, levels):
                    return tuple(dict.fromkeys(found))
        if levels[0] in ("+", "#"):
            what = "the first level is a wildcard, and no rule says which Kafka topic that is"
            return Refusal(Reason.TOPIC_FILTER_INVALID, what)
        if levels[0] not in self._ruled:
            problem = _topic_problem(levels[0])
            if problem and not found:
                return Refusal(Reason.TOPIC_FILTER_INVALID, problem)
            if not problem:
                found.append(levels[0])
        elif not found:
            return Refusal(Reason.TOPIC_FILTER_INVALID, _ruled_problem(levels[0]))
        return tuple(dict.fromkeys(found))

    def _find_place(self, name: str) -> Place | Refusal:
        levels = name.split("/")
        if not topic_name_fits(name) or name.startswith("$") or len(levels) > LEVELS_MAX:
            return Refusal(Reason.TOPIC_NAME_INVALID, "the name is too long, begins with $ or has too many levels")
        for rule in self._rules:
            if matches(rule.levels, levels):
                return Place(rule.topic, name.encode())
        topic, slash, rest = name.partition("/")
        if topic in self._ruled:
            return Refusal(Reason.TOPIC_NAME_INVALID, _ruled_problem(topic))
        if problem := _topic_problem(topic):
            return Refusal(Reason.TOPIC_NAME_INVALID, problem)
        return Place(topic, rest.encode() if slash else None)

    def _find_name(self, topic: str, key: bytes | None) -> str | None:
        try:
            text = None if key is None else key.decode()
        except UnicodeDecodeError:
            return None
        if topic in self._ruled:
            name = text
        else:
            name = topic if text is None else f"{topic}/{text}"
        if name is None or not topic_name_fits(name):
            return None
        return name if self._find_place(name) == Place(topic, key) else None


def _topic_problem(topic: str) -> str | None:
    if problem := topic_name_problem(topic):
        return f"the first level is not a Kafka topic: {problem}"
    return f"{topic} is an internal topic" if is_internal(topic) else None


def _ruled_problem(topic: str) -> str:
    return f"the Kafka topic {topic} is reached by the names of its rules"

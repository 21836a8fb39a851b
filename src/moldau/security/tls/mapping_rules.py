"""`ssl.principal.mapping.rules`: which user a certificate's subject is. The grammar and its errors are Kafka's.

A value is a list of `DEFAULT` (the subject itself) and `RULE:pattern/replacement/[LU]`. The first rule whose pattern
matches the whole subject decides. RE2 matches the patterns, which write all that mapping rules usually contain as
Java's do: its time is linear, whatever the pattern and the subject. Python's regular expressions are only for patterns
that RE2 cannot read (lookahead, back references) and where google-re2 is not installed; then subjects must be short.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final, NamedTuple

DEFAULT_RULES: Final = "DEFAULT"
SUBJECT_LENGTH_MAX: Final = 4096
BACKTRACKED_LENGTH_MAX: Final = 256
"""Of a subject that Python's `re` matches. A usual pattern, `^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?)$`, takes time
that grows with the fifth power of the length. Real subjects have a few dozen characters."""

_RULE_TEXT: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_RULE: Final = re.compile(_RULE_TEXT)
_SPLITTER: Final = re.compile(rf"\s*({_RULE_TEXT})\s*(,\s*|$)")
_REPLACED: Final = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)|[$\\]", re.DOTALL)


class NoRuleApplies(Exception):
    """No rule matches the subject of a client's certificate: the client has no name."""


class Rule(NamedTuple):
    pattern: Any
    """Of RE2 or `re`; None for DEFAULT."""
    replacement: str = ""
    case: str = ""
    """L for lower, U for upper."""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if isinstance(self.pattern, re.Pattern) and len(subject) > BACKTRACKED_LENGTH_MAX:
            raise NoRuleApplies(f"the subject of the certificate has {len(subject)} characters")
        if self.pattern.fullmatch(subject) is None:
            return None
        name: str = self.pattern.sub(self._expand, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _expand(self, match: Any) -> str:
        return _REPLACED.sub(lambda part: _replaced(part, match), self.replacement)

    def __str__(self) -> str:
        if self.pattern is None:
            return "DEFAULT"
        return "/".join(filter(None, (f"RULE:{self.pattern.pattern}", self.replacement, self.case)))


class MappingRules:
    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """Raise ValueError, in one line, if the text is not a list of rules."""
        self._rules = tuple(
            rule for found in _SPLITTER.finditer(text.strip()) if (rule := _parse(found[1])) is not None
        )

    def user(self, subject: str) -> str:
        """Return the name of the user with this subject. Raise NoRuleApplies if there is none."""
        if len(subject) > SUBJECT_LENGTH_MAX:
            raise NoRuleApplies(f"the subject of the certificate has {len(subject)} characters")
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleApplies(f"No rules apply to {subject}, rules [{', '.join(map(str, self._rules))}]")


def _parse(text: str) -> Rule | None:
    """Parse one rule; None for an empty one."""
    match = _RULE.match(text)
    assert match is not None, "the last alternative matches everything"
    if match.end() != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    if match[1] is not None:
        return Rule(None)
    if match[2] is None:
        return None
    try:
        pattern = _compile(match[2])
    except (re.error, FutureWarning) as wrong:
        raise ValueError(f"Invalid rule: `{text}`: {wrong}") from None
    for part in _REPLACED.finditer(match[3]):
        if part[2] is not None and part[2] not in pattern.groupindex:
            raise ValueError(f"Invalid rule: `{text}`: there is no group {part[2]}")
        if part[0] in ("$", "\\"):
            raise ValueError(f"Invalid rule: `{text}`: {part[0]} in the replacement refers to nothing")
    return Rule(pattern, match[3], match[4])


def _compile(text: str) -> Any:
    """Return the pattern of RE2, or else of `re`. A set inside a set is refused: it means something else in Java."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        backtracking = re.compile(text)
    try:
        import re2
    except ModuleNotFoundError:
        return backtracking
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error:
        return backtracking


def _replaced(part: re.Match[str], match: Any) -> str:
    """Return the text for a `\\x`, `${name}` or `$n` of a replacement. Of `$12` with one group, 2 is an ordinary
    character; with no group at all, everything is."""
    if part[1] is not None:
        return part[1]
    if part[2] is not None:
        return match[part[2]] or ""
    digits = part[3]
    groups = match.re.groups
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= groups and (digits[0] != "0" or length == 1):
            return (match[int(digits[:length])] or "") + digits[length:]
    return part[0]

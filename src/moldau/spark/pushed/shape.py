"""What the options `where` and `fields` ask for, and the view of a topic that shows it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.base.limits import TOPIC_NAME_LENGTH_MAX
from moldau.base.view_configs import (
    VIEW_FORMAT,
    VIEW_FROM,
    VIEW_HEADERS,
    VIEW_KEY,
    VIEW_MADE_BY,
    VIEW_MADE_BY_LENGTH_MAX,
    VIEW_ON_ERROR,
    VIEW_SELECT,
    VIEW_WHERE,
)

PREFIX: Final = "moldau-spark-view-"
"""The names of views that the connector makes begin so."""
MADE_BY: Final = "spark"
OPTIONS: Final = {VIEW_WHERE: "where", VIEW_SELECT: "fields"}
"""The connector's options, by the configs that they become."""
DEFAULTS: Final = {VIEW_FORMAT: "json", VIEW_KEY: "keep", VIEW_HEADERS: "keep", VIEW_ON_ERROR: "skip"}
_DIGEST_LENGTH: Final = 16
_QUOTED_OR_BLANK: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\s+""")


@dataclass(frozen=True, slots=True)
class Shape:
    """The records and fields that a reader wants of every topic. Texts that differ in blanks are the same shape."""

    where: str | None = None
    fields: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", _one_line(self.where))
        object.__setattr__(self, "fields", _one_line(self.fields))

    def view_name(self, source: str) -> str:
        """The name under which every reader looks for the view and makes it. It must never change: users have rights
        on it."""
        key = json.dumps([source, self.where, self.fields]).encode()
        digest = hashlib.sha256(key).hexdigest()[:_DIGEST_LENGTH]
        return f"{PREFIX}{source[: TOPIC_NAME_LENGTH_MAX - len(PREFIX) - 1 - _DIGEST_LENGTH]}-{digest}"

    def definition(self, source: str) -> dict[str, str]:
        """The configs that say what the view shows."""
        given = {VIEW_FROM: source, VIEW_WHERE: self.where, VIEW_SELECT: self.fields}
        return {name: value for name, value in given.items() if value is not None}

    def is_shown_by(self, configs: Mapping[str, str], source: str) -> bool:
        """Whether a topic with these configs shows exactly this of `source`."""
        return (
            configs.get(VIEW_FROM) == source
            and Shape(configs.get(VIEW_WHERE), configs.get(VIEW_SELECT)) == self
            and all(configs.get(name, default) == default for name, default in DEFAULTS.items())
        )

    def command(self, source: str) -> str:
        """The command that makes the view."""
        parts = ["moldau", "view", "create", self.view_name(source), "--from", source]
        for option, text in (("--where", self.where), ("--select", self.fields)):
            parts += [option, text] if text is not None else []
        return shlex.join(parts).replace("\n", " ")


def made_by(user: str | None) -> str:
    """What a view says of its origin."""
    text = f"{MADE_BY} for {user}" if user else MADE_BY
    return text if text.isprintable() and len(text) <= VIEW_MADE_BY_LENGTH_MAX else MADE_BY


def is_made(configs: Mapping[str, str]) -> bool:
    """Whether the connector made this view, and not a user."""
    return configs.get(VIEW_MADE_BY, "").partition(" ")[0] == MADE_BY


def _one_line(text: str | None) -> str | None:
    """Make blanks and line breaks outside of quotes one blank. None for an empty text, which a view ignores."""
    if text is None:
        return None
    return _QUOTED_OR_BLANK.sub(lambda found: found[1] or " ", text).strip() or None

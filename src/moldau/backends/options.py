"""The options of a backend, which are texts in the pipeline's file, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class Options:
    """Every reader raises ValueError for a value that it does not understand, and names the option, not the value: it
    may be a password."""

    texts: Mapping[str, str]

    @overload
    def text(self, name: str) -> str | None: ...

    @overload
    def text(self, name: str, default: str) -> str: ...

    def text(self, name: str, default: str | None = None) -> str | None:
        return self.texts.get(name, default)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.texts.get(name, default)
        if value not in choices:
            raise ValueError(f"the option '{name}' must be one of {', '.join(choices)}")
        return value

    def number(self, name: str, default: int, least: int = 0, most: int = 65_535) -> int:
        text = self.texts.get(name, str(default))
        if not text.isascii() or not text.isdigit() or not least <= int(text[:18]) <= most:
            raise ValueError(f"the option '{name}' must be a whole number from {least} to {most}")
        return int(text)

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a list such as `404, 409`."""
        parts = [part.strip() for part in self.texts.get(name, "").split(",") if part.strip()]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise ValueError(f"the option '{name}' must be a list of numbers")
        return [int(part) for part in parts]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        return {name.removeprefix(prefix): value for name, value in self.texts.items() if name.startswith(prefix)}

"""A preview of rows as plain values. This needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The first rows of a source or step, each value as text, None for null."""

    name: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    has_more: bool = False
    seconds: float = 0.0
    error: str | None = None

"""The options of a stream of changes, as texts for Spark and as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moldau.databases.changes.address import Address, parse_address
from moldau.databases.changes.columns import Column, columns_from_json, columns_to_json
from moldau.databases.changes.postgresql import ACTIONS, Wanted, object_name
from moldau.databases.changes.rows import TRUNCATIONS, Truncation
from moldau.databases.changes.tables import parse_table

ROWS_MAX: Final = 100_000
"""Changes in a micro-batch, unless maxRowsPerTrigger says otherwise. A transaction is never divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    address: Address
    table: tuple[str, str]
    columns: tuple[Column, ...]
    is_declared: bool = False
    """Whether the user gave the columns: then others are not missed."""
    pipeline: str
    source: str
    directory: Path | None = None
    """Where the stream keeps its files: tasks must reach it too."""
    checkpoints: Path | None = None
    """The checkpoints of all queries of the pipeline."""
    published_as: str | None = None
    truncation: Truncation = "fail"
    rows_max: int = ROWS_MAX
    limit: int | None = None
    """How many rows a batch reads at most."""
    growing: str | None = None
    """The column of a SQLite table that grows."""

    @property
    def publication(self) -> str:
        return self.published_as or object_name(self.pipeline, self.source)

    @property
    def wanted(self) -> Wanted:
        """Return what must be published. A truncation that is to be skipped may be missing."""
        skipped = {"truncate"} if self.truncation == "skip" else set()
        return Wanted(frozenset(column.name for column in self.columns), frozenset(ACTIONS) - skipped)

    @property
    def shown_table(self) -> str:
        return ".".join(filter(None, self.table))

    @property
    def files(self) -> Path:
        if self.directory is None:
            raise ValueError(
                "the option stateDirectory is missing: a directory for the snapshot, beside the checkpoint"
            )
        return self.directory

    def to_spark(self) -> dict[str, str]:
        """Return the options for Spark, which hides the one called password."""
        options = {
            "url": self.address.url, "table": self.shown_table, "columns": json.dumps(columns_to_json(self.columns)),
            "isDeclared": str(self.is_declared).lower(), "pipeline": self.pipeline, "source": self.source,
            "truncate": self.truncation, "maxRowsPerTrigger": str(self.rows_max),
        }  # fmt: skip
        optional: Mapping[str, Any] = {
            "password": self.address.password, "stateDirectory": self.directory, "checkpoints": self.checkpoints,
            "publication": self.published_as, "growing": self.growing, "limit": self.limit,
        }  # fmt: skip
        return options | {name: str(value) for name, value in optional.items() if value is not None}


def read_options(options: Mapping[str, str]) -> ChangeOptions:
    """Raises ValueError. The columns may be missing: then the database is asked for them."""
    given = {name.lower(): value for name, value in options.items()}
    address = parse_address(given.get("url", ""))
    if (password := given.get("password")) is not None:
        address = Address(address.kind, address.url, password, address.secrets | {password})
    truncation = given.get("truncate", "fail")
    if truncation not in TRUNCATIONS:
        raise ValueError(f"truncate is one of {', '.join(TRUNCATIONS)}, not {truncation!r}")
    rows_max = given.get("maxrowspertrigger", str(ROWS_MAX))
    if not rows_max.isdecimal() or int(rows_max) < 1:
        raise ValueError(f"maxRowsPerTrigger is a whole number of at least 1, not {rows_max!r}")
    limit = given.get("limit")
    if limit is not None and not limit.isdecimal():
        raise ValueError(f"limit is a whole number, not {limit!r}")
    directory, checkpoints = given.get("statedirectory"), given.get("checkpoints")
    try:
        columns = columns_from_json(json.loads(given.get("columns", "[]")))
    except ValueError as error:
        raise ValueError(f"columns is not a list of columns: {error}") from None
    return ChangeOptions(
        address=address,
        table=parse_table(given.get("table", "")),
        columns=columns,
        is_declared=given.get("isdeclared") == "true",
        pipeline=given.get("pipeline", "spark"),
        source=given.get("source", given.get("table", "")),
        directory=None if directory is None else Path(directory),
        checkpoints=None if checkpoints is None else Path(checkpoints),
        published_as=given.get("publication"),
        truncation=truncation,
        rows_max=int(rows_max),
        limit=None if limit is None else int(limit),
        growing=given.get("growing"),
    )

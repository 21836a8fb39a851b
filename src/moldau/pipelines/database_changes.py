"""The options of the streams of database changes of a pipeline. This module uses no Spark and opens no connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.databases.changes.address import Address, Kind
from moldau.pipelines.spec import DatabaseSource, Pipeline

if TYPE_CHECKING:
    from moldau.databases.changes.columns import Column
    from moldau.databases.changes.options import ChangeOptions

DATABASES: Final = "databases"
"""In the state directory: the files of the streams (databases/changes/slot_files.py)."""
CHECKPOINTS: Final = "checkpoints"


def database_sources(pipeline: Pipeline) -> Iterator[DatabaseSource]:
    return (source for source in pipeline.sources.values() if isinstance(source, DatabaseSource))


def address_of(source: DatabaseSource) -> Address:
    kind: Kind = "sqlite" if source.url.startswith("sqlite:") else "postgresql"
    secrets = frozenset(source.options.values())
    return Address(kind, source.url, source.options.get("password"), secrets)


def table_of(source: DatabaseSource) -> tuple[str, str]:
    """Return schema and name."""
    schema, _, name = source.table.rpartition(".")
    return schema, name


def change_options(
    pipeline: Pipeline, source: DatabaseSource, columns: Sequence[Column] = (), state: Path | None = None
) -> ChangeOptions:
    """Return the options of a stream. Without the state directory it can be planned, but not started."""
    from moldau.databases.changes.options import ROWS_MAX, ChangeOptions  # they import pyarrow

    return ChangeOptions(
        address=address_of(source),
        table=table_of(source),
        columns=tuple(columns),
        is_declared=source.schema is not None,
        pipeline=pipeline.name,
        source=source.name,
        directory=None if state is None else files_of(source, state),
        checkpoints=None if state is None else state / CHECKPOINTS,
        published_as=source.publication,
        truncation=source.truncate,
        rows_max=source.max_per_trigger or ROWS_MAX,
        growing=source.growing,
    )


def files_of(source: DatabaseSource, state: Path) -> Path:
    return state / DATABASES / source.name

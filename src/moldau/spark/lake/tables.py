"""The interface of a lake table: the Protocol `LakeTable`, its values, and the function that opens a table.

Each kind of table (Parquet, Delta, Iceberg) is one module behind `LakeTable`. Tasks write Parquet files into a staging
directory that no reader sees; the driver's `commit` makes a micro-batch visible at once, unless it already is visible.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa

KINDS = ("parquet", "delta", "iceberg")
SPLIT_BYTES = 16 << 20
INSTALL_LAKE = "pip install 'moldau[lake]'"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class LakeError(Exception):
    """A user error, such as a wrong option or an unsuitable column, in one sentence that names the table."""


@dataclass(frozen=True, slots=True)
class BatchTag:
    """A micro-batch of a query: the key by which a table knows that it already has a batch.

    Spark replays a batch after a crash with the same query id, the same batch id and the same range of offsets.
    """

    query_id: str
    batch_id: int
    once: bool = False
    """For a write that is never replayed: the table need not remember it."""
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    """The driver that writes; the same for all batches of one start of the query. Of two drivers that write for one
    query, one is refused. If it is not given, this write counts as a driver of its own."""

    def __post_init__(self) -> None:
        for what, value in (("query", self.query_id), ("run", self.run_id)):
            if not _ID.fullmatch(value):
                raise LakeError(
                    f"the {what} id {value!r} must be at most 200 letters, digits, '.', '_' and '-', the first of them "
                    "a letter or digit"
                )
        if self.batch_id < 0:
            raise LakeError(f"the batch id {self.batch_id} is negative")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task has written and is not visible yet; names are relative to the table's directory."""

    staged: str
    name: str
    partition: tuple[tuple[str, str | None], ...]
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Target:
    """What a task needs to write files for the table; it is sent to the executors."""

    path: str
    schema: pa.Schema
    """All columns in the table's order and types."""
    partition_by: tuple[str, ...] = ()
    data_folder: str = ""
    keeps_partition_columns: bool = False
    """Iceberg stores them in the files; Parquet and Delta in directory names and in the log, where an empty text is
    null."""


@dataclass(frozen=True, slots=True)
class Split:
    """Some files of the table version for which the read was planned."""

    version: int | None
    files: tuple[str, ...]


def split_files(files: Sequence[str], size: int, parts_max: int, version: int | None = None) -> list[Split]:
    """Divide files of `size` bytes in total into parts of about SPLIT_BYTES or less each, if `parts_max` allows."""
    parts = max(1, min(parts_max, len(files), -(-size // SPLIT_BYTES)))
    return [Split(version, tuple(files[part::parts])) for part in range(parts)]


class LakeTable(Protocol):
    path: str

    def prepare(self, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        """Create the table, or add new columns; raise LakeError for a schema that does not fit, before rows are
        written."""

    def commit(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
        """Add the files to the table in one transaction. Return False if the table already has this batch."""

    def schema(self) -> pa.Schema:
        """Return the columns of the existing table."""

    def splits(self, parts_max: int) -> list[Split]:
        """Divide the current table into at most `parts_max` parts."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part, in the columns of `schema`."""


def local_path(path: str) -> str:
    """Return an absolute path. Raises LakeError for anything but a local or shared directory."""
    if not path:
        raise LakeError("a table needs the option path, a local or shared directory")
    if not _SCHEME.match(path) and not path.lower().startswith("file:"):
        return os.path.abspath(path)
    # Not by urlsplit, which takes `?` and `#` for the end of the path.
    scheme, _, location = path.partition(":")
    host = ""
    if location.startswith("//"):
        host, _, rest = location[2:].partition("/")
        location = f"/{rest}"
    if scheme.lower() != "file" or host not in ("", "localhost"):
        raise LakeError(f"{path}: tables are written to local or shared directories (a plain path or file://) only")
    return os.path.abspath(unquote(location))


def missing_package(kind: str) -> str | None:
    """Return the error for a kind whose package is not installed; None if it is.

    Imports nothing, because that takes a second.
    """
    package = _PACKAGES.get(kind)
    return None if package is None or find_spec(package) is not None else _needs_package(kind, package)


def _needs_package(kind: str, package: str | None) -> str:
    return f"{_ARTICLE[kind]} table needs the package {package}: {INSTALL_LAKE}"


def open_table(path: str, kind: str) -> LakeTable:
    """Return the table at this path, which need not exist yet. Raises LakeError for a table of another kind."""
    if kind not in KINDS:
        raise LakeError(f"{path}: the format {kind!r} is not known; it is one of {', '.join(KINDS)}")
    directory = local_path(path)
    if (problem := path_problem(directory, kind)) is not None:
        raise LakeError(problem)
    existing_kind = kind_at(directory)
    if existing_kind is not None and existing_kind != kind:
        raise LakeError(
            f"{directory} is {_ARTICLE[existing_kind]} table, not {_ARTICLE[kind]} one: set format to {existing_kind}"
        )
    if existing_kind is None and kind != "parquet" and _has_parquet_files(directory):
        raise LakeError(f"{directory} holds plain Parquet files and cannot become {_ARTICLE[kind]} table")
    try:
        module = import_module(f"moldau.spark.lake.{kind}")
    except ModuleNotFoundError as missing:
        raise LakeError(_needs_package(kind, missing.name)) from None
    opener: Callable[[str], LakeTable] = module.TABLE
    return opener(directory)


def path_problem(directory: str, kind: str) -> str | None:
    """Return why there can be no table of this kind in a directory; None if there can."""
    misread = _MISREAD.get(kind)
    found = None if misread is None else misread.search(directory)
    if found is None:
        return None
    return f"{directory}: {_ARTICLE[kind]} table cannot be in a directory with {found[0]!r} in its path"


def no_table(path: str, kind: str) -> LakeError:
    """Return the error for a missing table. It suggests a similar name if the path does not exist."""
    if os.path.exists(path):
        return LakeError(f"{path}: there is no {kind} table")
    folder, name = os.path.split(path)
    beside: list[str] = []
    with suppress(OSError):  # it is only for a hint
        beside = os.listdir(folder)
    near = get_close_matches(name, beside, n=1)
    hint = f"; did you mean {os.path.join(folder, near[0])}?" if near else ""
    return LakeError(f"{path}: there is no table{hint}")


_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
_MISREAD = {"delta": re.compile("%[0-9a-fA-F]{2}"), "iceberg": re.compile("[?]|%[0-9a-fA-F]{2}")}
"""What the packages take for a part of a URL in any path: they would read or write in another directory."""
_ARTICLE = {"parquet": "a Parquet", "delta": "a Delta", "iceberg": "an Iceberg"}


def kind_at(path: str) -> str | None:
    """Return the kind of the table in a directory by the files that each kind has; None if there is no table."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise LakeError(f"{path} is a file; a table is a directory")
    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    if os.path.isfile(os.path.join(path, "metadata", "catalog.db")) or os.path.isfile(
        os.path.join(path, "metadata", "version-hint.text")
    ):
        return "iceberg"
    if os.path.isfile(os.path.join(path, "_moldau", "table.json")):
        return "parquet"
    return None


def _has_parquet_files(path: str) -> bool:
    if not os.path.isdir(path):
        return False
    with os.scandir(path) as entries:
        return any(entry.name.endswith(".parquet") or "=" in entry.name for entry in entries)

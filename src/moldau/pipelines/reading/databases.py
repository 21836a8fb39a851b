"""Sources of a pipeline file that are databases: `{database: URL, table: NAME, changes: true}`."""

from __future__ import annotations

from typing import Final, get_args
from urllib.parse import quote

from moldau.databases.changes.address import Address, parse_address
from moldau.pipelines.reading.paths import Folder
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.yaml_tree import MappingNode
from moldau.pipelines.spec import DatabaseSource, Truncation

TRUNCATIONS: Final[tuple[Truncation, ...]] = get_args(Truncation)
DATABASE_KEYS: Final = ("changes", "key", "truncate", "publication")
_OF_TOPICS: Final = (
    "topic", "topics", "pattern", "format", "schema_file", "framing", "start", "headers", "dead_letter", "fail_above",
    "tombstone", "options",
)  # fmt: skip
_SYNONYMS: Final = {"keys": "key", "primary_key": "key", "url": "database"}


def database_source(name: str, section: Section, folder: Folder) -> DatabaseSource:
    address = _address(section)
    table = _table(section, address)
    growing = _changes(section, address)
    source = DatabaseSource(
        name=name,
        place=section.place,
        url=f"sqlite:///{quote(folder.resolve(address.path))}" if address.kind == "sqlite" else address.url,
        table=table,
        schema=section.text("schema"),
        key=section.texts("key"),
        growing=growing,
        truncate=section.choice("truncate", TRUNCATIONS, "fail"),
        publication=section.text("publication"),
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
        max_per_trigger=section.count("max_per_trigger"),
        options={f"password.{number}": secret for number, secret in enumerate(sorted(address.secrets))}
        | ({} if address.password is None else {"password": address.password}),
    )
    if growing is not None:
        _check_growing(section, source)
    if section.has("deduplicate") and not section.has("watermark"):
        hint = "such as  watermark: {column: ts, delay: 10 seconds}"
        section.refuse("'deduplicate' needs a watermark", section.key_place("deduplicate"), hint)
    section.refuse_keys(_OF_TOPICS, lambda key: f"'{key}' is not for databases")
    section.refuse_keys(("file", "watch"), lambda key: f"'{key}' is for files")
    section.finish(_SYNONYMS)
    return source


def _address(section: Section) -> Address:
    text = section.text("database")
    try:
        return parse_address(text or "")
    except ValueError as error:
        if text is not None:
            section.refuse(str(error), section.value_place("database"))
        return Address("postgresql", "")


def _table(section: Section, address: Address) -> str:
    text = section.required_text("table")
    schema, dot, name = text.rpartition(".")
    if text and (not name or (dot and not schema)):
        section.refuse("'table' is a name such as orders or shop.orders", section.value_place("table"))
    return text if dot or address.kind == "sqlite" else f"public.{name}"


def _changes(section: Section, address: Address) -> str | None:
    """Return the column that grows, or None for the changes of the database's log."""
    node = section.node("changes")
    hint = "write  changes: true"
    if isinstance(node, MappingNode):
        inner = section.section("changes")
        assert inner is not None, "it is a mapping"
        column = inner.required_text("column")
        inner.finish()
        if address.kind == "postgresql":
            section.refuse("the changes of PostgreSQL come from its log", section.key_place("changes"), hint)
        return column
    if not section.flag("changes"):
        section.refuse("a database is read as the stream of its changes", section.key_place("database"), hint)
    elif address.kind == "sqlite":
        hint = "write  changes: {column: updated_at}, or another column that grows with each change"
        section.refuse("SQLite has no log of changes", section.key_place("changes"), hint)
    return None


def _check_growing(section: Section, source: DatabaseSource) -> None:
    section.refuse_keys(("publication", "truncate"), lambda key: f"'{key}' is for databases with a log of changes")
    if not section.has("key"):
        section.refuse("'key' is missing: the columns that identify a row", hint="such as  key: id")

"""PostgreSQL over plain SQL: its catalog, publications and replication slots.

A connection sends values as one session of PostgreSQL writes them, whatever the server's settings are. Errors of the
network are ConnectionError, which a pipeline retries; what trying again does not change is ChangesRefused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moldau.base.errors import MalformedData
from moldau.databases.changes.address import Address
from moldau.databases.changes.columns import Column, spark_type
from moldau.databases.changes.errors import ChangesError, ChangesLost, ChangesRefused
from moldau.databases.changes.offsets import lsn_text, parse_lsn

if TYPE_CHECKING:
    import psycopg

MISSING_PACKAGE: Final = "changes of PostgreSQL need psycopg: pip install 'moldau[databases]'"
CONNECT_TIMEOUT_S: Final = 10
VERSION_MIN: Final = 130_000
"""PostgreSQL 13 publishes partitioned tables."""
SETTINGS: Final = (
    "SET client_encoding = 'UTF8'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';"
    " SET extra_float_digits = 3; SET bytea_output = 'hex'; SET statement_timeout = 0; SET lock_timeout = 0;"
    " SET idle_in_transaction_session_timeout = 0; SET search_path = ''; SET row_security = off"
)
ACTIONS: Final = ("insert", "update", "delete", "truncate")
FILTERS_VERSION_MIN: Final = 150_000
"""From PostgreSQL 15 on a publication can leave out rows and columns."""
_ACTIONS: Final = (
    "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_catalog.pg_publication WHERE pubname = %s"
)
_FILTERS: Final = """
    SELECT rowfilter, attnames::text[], array(
        SELECT attname::text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = schemaname AND c.relname = tablename AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attgenerated = '')
    FROM pg_catalog.pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)"""
SLOT_BUSY_S: Final = 30.0
"""How long to wait for a slot that another connection reads: that of a task that was cancelled, for example."""
OPEN_TRANSACTIONS_S: Final = 300.0
"""How long to wait, before the snapshot, for transactions that were open."""
POLL_S: Final = 0.05
_NAME_LENGTH_MAX: Final = 63
_LOGIN: Final = re.compile(r"authentication failed|role \".*\" does not exist|no password supplied|pg_hba\.conf")
_COPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
_COPY_END: Final = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Table:
    oid: int
    schema: str
    name: str
    identity: str
    """Its replica identity: d (primary key), f (full), i (an index), n (nothing)."""
    columns: tuple[Column, ...]

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def has_key(self) -> bool:
        return any(column.is_key for column in self.columns)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream reads of a table."""

    columns: frozenset[str]
    actions: frozenset[str]
    """Of ACTIONS."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """What pg_replication_slots says about a slot."""

    name: str
    confirmed: int
    retained_bytes: int
    """Of the database's log, which it keeps for the slot."""
    behind_bytes: int
    """Of the database's log, between the position of the slot and its end."""
    wal_status: str
    safe_bytes: int | None
    """How much more log may be written until the slot is lost; None without a limit."""
    is_active: bool


def connect(
    address: Address, application: str = "moldau", timeout_s: int = CONNECT_TIMEOUT_S
) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection in autocommit mode. Raises ConnectionError or ChangesRefused."""
    try:
        import psycopg
    except ImportError as error:
        raise ChangesRefused(MISSING_PACKAGE) from error
    options: dict[str, Any] = {} if address.password is None else {"password": address.password}
    try:
        connection = psycopg.connect(
            address.url, autocommit=True, application_name=application, connect_timeout=timeout_s,
            keepalives_idle=30, keepalives_interval=10, keepalives_count=3, tcp_user_timeout=60_000, **options,
        )  # fmt: skip
    except psycopg.OperationalError as error:
        sentence = f"database {address.shown}: {_flat(error)}"
        if _LOGIN.search(str(error)):
            raise ChangesRefused(sentence) from None
        raise ConnectionError(sentence) from None
    except psycopg.Error as error:
        raise ChangesRefused(f"database {address.shown}: {_flat(error)}") from None
    with translated(address):
        connection.execute(SETTINGS)
    return connection


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Raise errors of the driver as our own, in one line, without parameters."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        sentence = f"database {address.shown}: {_flat(error)}"
        if state.startswith("42501"):
            raise ChangesRefused(
                f"{sentence}; the user needs REPLICATION, SELECT on the table, and CREATE on the database with"
                " ownership of the table, or an existing `publication`"
            ) from None
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state.startswith(("55", "58")):
            raise ConnectionError(sentence) from None
        raise ChangesError(sentence) from None


def _flat(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- the catalog ----------------------------------------------------------------------------------------------------

_FIND: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident,
           (SELECT i.inhrelid::pg_catalog.regclass::text FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid
            LIMIT 1)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s"""
_COLUMNS: Final = """
    WITH RECURSIVE identity AS (
        SELECT i.indkey::int2[] AS columns FROM pg_catalog.pg_index i
        WHERE i.indrelid = %(table)s AND i.indisvalid
          AND CASE WHEN %(identity)s = 'i' THEN i.indisreplident ELSE i.indisprimary END
    ), base (attnum, oid, modifier) AS (
        SELECT attnum, atttypid, atttypmod FROM pg_catalog.pg_attribute WHERE attrelid = %(table)s
        UNION ALL
        SELECT b.attnum, t.typbasetype, CASE WHEN t.typtypmod = -1 THEN b.modifier ELSE t.typtypmod END
        FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
    )
    SELECT a.attname, a.atttypid, b.oid, b.modifier,
           coalesce(a.attnum = ANY (SELECT unnest(columns) FROM identity), false)
    FROM pg_catalog.pg_attribute a
    JOIN base b ON b.attnum = a.attnum
    JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
    WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum"""
"""Generated columns are left out: the log does not have them."""


def read_table(connection: psycopg.Connection[Any], address: Address, schema: str, name: str) -> Table:
    """Return the table. Raises ChangesRefused if its changes cannot be read."""
    with translated(address):
        found = connection.execute(_FIND, (schema, name)).fetchone()
        if found is None:
            raise ChangesRefused(f"database {address.shown} has no table {schema}.{name}")
        oid, schema, name, kind, persistence, identity = map(_text, found[:6])
        rows = connection.execute(_COLUMNS, {"table": int(oid), "identity": identity}).fetchall()
    if kind not in ("r", "p") or persistence != "p":
        raise ChangesRefused(f"{schema}.{name} is not an ordinary table: the log has no changes of it")
    if kind == "r" and found[6] is not None:
        raise ChangesRefused(
            f"table {schema}.{name} has tables that inherit from it, such as {found[6]}: their rows are rows of it, but"
            " the log has them under their own names; read each of these tables as a source of its own"
        )
    columns = tuple(Column(row[0], spark_type(row[2], row[3]), row[1], bool(row[4])) for row in rows)
    table = Table(int(oid), schema, name, identity, columns)
    if identity == "n":
        raise ChangesRefused(
            f"table {table.shown} has REPLICA IDENTITY NOTHING, so the log does not say which row was changed or"
            f" deleted; ALTER TABLE {table.shown} REPLICA IDENTITY DEFAULT"
        )
    if not table.has_key and identity != "f":
        raise ChangesRefused(
            f"table {table.shown} has no primary key, so the log does not say which row was changed or deleted; give it"
            f" one, or ALTER TABLE {table.shown} REPLICA IDENTITY FULL"
        )
    return table


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def check_server(connection: psycopg.Connection[Any], address: Address) -> None:
    """Raise ChangesRefused if the server has no logical decoding."""
    if connection.info.server_version < VERSION_MIN:
        raise ChangesRefused(f"database {address.shown} is older than PostgreSQL 13")
    with translated(address):
        level, is_standby = connection.execute(
            "SELECT current_setting('wal_level'), pg_catalog.pg_is_in_recovery()"
        ).fetchone() or ("", False)
    if is_standby:
        raise ChangesRefused(f"database {address.shown} is a standby: changes are read from the primary")
    if level != "logical":
        raise ChangesRefused(
            f"database {address.shown} has wal_level {level}: ALTER SYSTEM SET wal_level = 'logical', then restart it"
        )


# --- publications and slots -----------------------------------------------------------------------------------------


def object_name(pipeline: str, source: str, suffix: str = "") -> str:
    """Return the name of a publication or slot: moldau_<pipeline>_<source>[_<suffix>], as PostgreSQL allows it."""
    room = _NAME_LENGTH_MAX - (len(suffix) + 1 if suffix else 0)
    name = re.sub(r"[^a-z0-9_]", "_", f"moldau_{pipeline}_{source}".lower())[:room]
    return f"{name}_{suffix}" if suffix else name


def ensure_publication(
    connection: psycopg.Connection[Any], address: Address, name: str, table: Table, wanted: Wanted
) -> None:
    """Create the publication of the table if there is none. Raises ChangesRefused if there is one without the table, or
    without some of its changes."""
    from psycopg import sql

    with translated(address):
        published = "SELECT true FROM pg_catalog.pg_publication WHERE pubname = %s"
        if connection.execute(published, (name,)).fetchone() is None:
            statement = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
            connection.execute(
                sql.SQL(statement).format(sql.Identifier(name), sql.Identifier(table.schema, table.name))
            )
        if not _is_published(connection, name, table.schema, table.name):
            raise ChangesRefused(
                f"publication {name} of database {address.shown} does not have the table {table.shown}:"
                f" ALTER PUBLICATION {name} ADD TABLE {table.shown}"
            )
        _check_filters(connection, address, name, (table.schema, table.name), wanted)


def check_publication(
    connection: psycopg.Connection[Any], address: Address, name: str, table: tuple[str, str], wanted: Wanted
) -> None:
    """Raise ChangesLost if the publication no longer has the table, because it was created again or taken out of it:
    else the slot would be read on, without a change, for ever. Raise ChangesRefused if there is no such table, or if
    the publication leaves out some of its changes."""
    with translated(address):
        if not _is_published(connection, name, *table):
            read_table(connection, address, *table)
            raise ChangesLost(
                f"publication {name} of database {address.shown} no longer has the table {'.'.join(table)}, and changes"
                " are missing; `moldau pipeline run FILE --fresh` reads the whole table again"
            )
        _check_filters(connection, address, name, table, wanted)


def _check_filters(
    connection: psycopg.Connection[Any], address: Address, name: str, table: tuple[str, str], wanted: Wanted
) -> None:
    """Raise ChangesRefused if the publication leaves out actions, rows or columns: they would be missing silently."""
    shown = f"publication {name} of database {address.shown}"
    actions = connection.execute(_ACTIONS, (name,)).fetchone()
    assert actions is not None, "its table was found"
    if missing := [
        action for action, is_in in zip(ACTIONS, actions, strict=True) if action in wanted.actions and not is_in
    ]:
        raise ChangesRefused(
            f"{shown} leaves out {', '.join(missing)}: ALTER PUBLICATION {name} SET (publish = '{', '.join(ACTIONS)}')"
        )
    if connection.info.server_version < FILTERS_VERSION_MIN:
        return
    found = connection.execute(_FILTERS, (name, *table)).fetchone()
    assert found is not None, "its table was found"
    condition, columns, of_table = found
    if condition is not None:
        raise ChangesRefused(f"{shown} has only the rows of {'.'.join(table)} with {condition}: take away its WHERE")
    left_out = [each for each in of_table if each not in columns and each in wanted.columns]
    if left_out:
        raise ChangesRefused(
            f"{shown} leaves out column {left_out[0]} of {'.'.join(table)}: give the source a `schema` without it, or"
            " take away the publication's list of columns"
        )


def _is_published(connection: psycopg.Connection[Any], name: str, schema: str, table: str) -> bool:
    tables = "SELECT true FROM pg_catalog.pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)"
    return connection.execute(tables, (name, schema, table)).fetchone() is not None


def create_slot(connection: psycopg.Connection[Any], address: Address, slot: str) -> int:
    """Create a slot and return from where on it has all transactions. Waits for those that are open."""
    import psycopg

    with translated(address):
        connection.execute(f"SET statement_timeout = {round(OPEN_TRANSACTIONS_S * 1000)}")
        try:
            created = connection.execute(
                "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,)
            ).fetchone()
        except psycopg.errors.QueryCanceled:
            raise _open_for_too_long(address, _oldest_open(connection)) from None
        finally:
            if not connection.broken:
                connection.execute("SET statement_timeout = 0")
    return parse_lsn(_first(created))


def slot_state(connection: psycopg.Connection[Any], address: Address, slot: str) -> SlotState | None:
    """Return the state of a slot, or None if there is none."""
    with translated(address):
        found = connection.execute(
            "SELECT slot_name, confirmed_flush_lsn, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(),"
            " restart_lsn)::bigint, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(),"
            " confirmed_flush_lsn)::bigint, wal_status, safe_wal_size, active"
            " FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
            (slot,),
        ).fetchone()
    if found is None:
        return None
    name, confirmed, retained, behind, wal_status, safe, active = found
    return SlotState(
        name,
        parse_lsn(confirmed or "0/0"),
        int(retained or 0),
        max(0, int(behind or 0)),
        wal_status or "lost",
        safe,
        active,
    )


def check_slot(connection: psycopg.Connection[Any], address: Address, slot: str) -> SlotState:
    """Return the state of the slot. Raises ChangesLost if it no longer has the changes."""
    state = slot_state(connection, address, slot)
    again = "`moldau pipeline run FILE --fresh` reads the whole table again"
    if state is None:
        raise ChangesLost(
            f"the replication slot {slot} of database {address.shown} is gone, and with it the changes since; {again}"
        )
    if state.wal_status == "lost":
        raise ChangesLost(
            f"the database {address.shown} no longer keeps its log for the slot {slot}, which was not read for too long"
            f" (max_slot_wal_keep_size); {again}"
        )
    return state


def drop_slot(connection: psycopg.Connection[Any], address: Address, slot: str) -> bool:
    """Drop the slot if it is there; return whether it was."""
    with translated(address):
        dropped = while_busy(
            lambda: connection.execute(
                "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots"
                " WHERE slot_name = %s",
                (slot,),
            ).fetchone()
        )
    return dropped is not None


def drop_publication(connection: psycopg.Connection[Any], address: Address, name: str) -> None:
    from psycopg import sql

    with translated(address):
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def advance_slot(connection: psycopg.Connection[Any], address: Address, slot: str, lsn: int) -> None:
    """Let the database forget its log before `lsn`. A position that the slot has passed already is no error."""
    with translated(address):
        while_busy(
            lambda: connection.execute(
                "SELECT pg_catalog.pg_replication_slot_advance(slot_name, %s) FROM pg_catalog.pg_replication_slots"
                " WHERE slot_name = %s AND confirmed_flush_lsn < %s",
                (lsn_text(lsn), slot, lsn_text(lsn)),
            )
        )


def log_ends(connection: psycopg.Connection[Any], address: Address) -> tuple[int, int]:
    """Return up to where the log is written to disk, and where the next record begins."""
    with translated(address):
        row = connection.execute(
            "SELECT pg_catalog.pg_current_wal_flush_lsn()::text, pg_catalog.pg_current_wal_insert_lsn()::text"
        ).fetchone()
    assert row is not None
    return parse_lsn(row[0]), parse_lsn(row[1])


def find_changes(
    connection: psycopg.Connection[Any], address: Address, slot: str, publication: str, upto: int | None, most: int
) -> int | None:
    """Return where the last transaction with changes ends, None if there is none; look at `most` changes or a few more.
    The changes stay in the slot."""
    with translated(address):
        row = while_busy(
            lambda: connection.execute(
                "SELECT max(lsn)::text FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version',"
                " '1', 'publication_names', %s)",
                (slot, None if upto is None else lsn_text(upto), most, _quoted(publication)),
            ).fetchone()
        )
    return None if row is None or row[0] is None else parse_lsn(row[0])


def read_changes(
    connection: psycopg.Connection[Any], address: Address, slot: str, publication: str, end: int
) -> Iterator[bytes]:
    """Yield the messages of the slot up to `end` and perhaps of one transaction more. They stay in the slot."""
    from psycopg import sql

    statement = sql.SQL(
        "COPY (SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes({}, {}, NULL, 'proto_version', '1',"
        " 'publication_names', {})) TO STDOUT (FORMAT binary)"
    ).format(sql.Literal(slot), sql.Literal(lsn_text(end)), sql.Literal(_quoted(publication)))

    def begin() -> tuple[Any, Any, bytes]:
        copying = connection.cursor().copy(statement)
        copy = copying.__enter__()
        try:
            return copying, copy, bytes(copy.read())
        except BaseException as error:
            copying.__exit__(type(error), error, None)
            raise

    with translated(address):
        copying, copy, block = while_busy(begin)
        try:
            yield from _copied_values(block, copy.read)
        except BaseException as error:
            copying.__exit__(type(error), error, None)
            raise
        copying.__exit__(None, None, None)


def _copied_values(block: bytes, read: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the values of one column in PostgreSQL's binary format; each block has whole rows."""
    if not block.startswith(_COPY_SIGNATURE) or len(block) < 19:
        raise MalformedData("the database did not answer in the binary format of COPY")
    block = block[19 + int.from_bytes(block[15:19]) :]
    while True:
        if block and block != _COPY_END:
            length = int.from_bytes(block[2:6], signed=True)
            if block[:2] != b"\x00\x01" or length < 0 or len(block) != 6 + length:
                raise MalformedData("the database sent a row in COPY that cannot be read")
            yield block[6:]
        block = bytes(read())
        if not block:
            return


def while_busy(act: Callable[[], Any]) -> Any:
    """Act, and again while another connection reads the slot, for at most SLOT_BUSY_S."""
    import psycopg

    deadline = time.monotonic() + SLOT_BUSY_S
    while True:
        try:
            return act()
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def wait_for_open_transactions(connection: psycopg.Connection[Any], address: Address) -> None:
    """Return when every transaction that is open now has ended, and is visible if it committed.

    A new transaction id is above all others. A snapshot lists only those in progress below the last one that has ended,
    so the list alone would not do.
    """
    deadline = time.monotonic() + OPEN_TRANSACTIONS_S
    with translated(address):
        barrier = int(_first(connection.execute("SELECT pg_catalog.pg_current_xact_id()::text").fetchone()))
        while (oldest := _oldest_open(connection)) <= barrier:
            if time.monotonic() > deadline:
                raise _open_for_too_long(address, oldest)
            time.sleep(POLL_S)


def _open_for_too_long(address: Address, xid: int) -> ChangesError:
    return ChangesError(
        f"database {address.shown}: transaction {xid} has been open for {OPEN_TRANSACTIONS_S:.0f} s, and the table can"
        " be read only after its end; pg_stat_activity (backend_xid) and pg_prepared_xacts say whose it is"
    )


def _oldest_open(connection: psycopg.Connection[Any]) -> int:
    oldest = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text"
    return int(_first(connection.execute(oldest).fetchone()))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first(row: tuple[Any, ...] | None) -> str:
    assert row is not None, "the function returns one row"
    return str(row[0])

"""The texts of statements, the types of columns, and the addresses of databases."""

from __future__ import annotations

import pyarrow as pa
import pytest

from moldau.databases import sql
from moldau.databases.batches import Batch, State, next_state
from moldau.databases.columns import Column, TableColumn
from moldau.databases.destinations import Destination, columns_problem, layout_of, matching
from moldau.databases.dialects import DIALECTS, DUCKDB, MYSQL, POSTGRESQL, SQLITE, Dialect
from moldau.databases.errors import DatabaseRefused, DriverFenced
from moldau.databases.last_rows import LastRows
from moldau.databases.rows import PART_ROWS, TableRows
from moldau.databases.sql import Merge, TableName, table_name
from moldau.databases.urls import BadUrl, parse_url, secrets_of

MERGE = Merge(
    table=TableName("last", "shop"), columns=("bike", "n", "to"), keys=("bike",), order_by="n", deletes=True
)  # fmt: skip


def test_names_are_quoted() -> None:
    assert sql.quoted('a"b') == '"a""b"'
    assert sql.create_table(TableName('t"'), [("a", "INT"), ("b b", "TEXT")], ["a"], ["b b"]) == (
        'CREATE TABLE IF NOT EXISTS "t""" ("a" INT NOT NULL, "b b" TEXT NOT NULL, PRIMARY KEY ("a"))'
    )
    assert sql.insert('"t"', ["a", "b"]) == 'INSERT INTO "t" ("a", "b") VALUES (?, ?)'
    assert sql.add_column(TableName("t", "s"), "%", "INT") == 'ALTER TABLE "s"."t" ADD COLUMN "%" INT'


def test_parameters_of_other_drivers() -> None:
    statement = sql.insert('"t%?"', ["?", '%"'])
    assert sql.format_style(statement) == 'INSERT INTO "t%%?" ("?", "%%""") VALUES (%s, %s)'


def test_upsert() -> None:
    assert sql.upsert(MERGE) == (
        'INSERT INTO "shop"."last" AS t ("bike", "n", "to") SELECT "bike", "n", "to" FROM "moldau_rows"'
        ' WHERE NOT "moldau_deletes" ON CONFLICT ("bike") DO UPDATE SET "n" = excluded."n", "to" = excluded."to"'
        ' WHERE (t."n" IS NULL OR excluded."n" >= t."n")'
    )
    only_keys = Merge(table=TableName("t"), columns=("a",), keys=("a",))
    assert sql.upsert(only_keys).endswith('WHERE TRUE ON CONFLICT ("a") DO NOTHING')
    assert sql.mysql_upsert(only_keys).endswith('WHERE TRUE ON DUPLICATE KEY UPDATE "a" = VALUES("a")')


def test_deletes() -> None:
    assert sql.delete_marked(MERGE) == (
        'DELETE FROM "shop"."last" WHERE ("bike") IN (SELECT s."bike" FROM "moldau_rows" s JOIN "shop"."last" t'
        ' ON t."bike" = s."bike" WHERE s."moldau_deletes" AND (t."n" IS NULL OR s."n" >= t."n"))'
    )
    assert sql.mysql_forget_older(MERGE) == (
        'DELETE s FROM "moldau_rows" s JOIN "shop"."last" t ON t."bike" = s."bike"'
        ' WHERE NOT coalesce((t."n" IS NULL OR s."n" >= t."n"), FALSE)'
    )


@pytest.mark.parametrize(
    ("dialect", "arrow", "sql_type"),
    [
        (POSTGRESQL, pa.int8(), "SMALLINT"),
        (POSTGRESQL, pa.decimal128(10, 2), "NUMERIC(10,2)"),
        (POSTGRESQL, pa.timestamp("us", "UTC"), "TIMESTAMPTZ"),
        (POSTGRESQL, pa.float32(), "REAL"),
        (SQLITE, pa.decimal128(10, 2), "TEXT"),
        (SQLITE, pa.int16(), "INTEGER"),
        (DUCKDB, pa.large_string(), "VARCHAR"),
        (MYSQL, pa.timestamp("us"), "DATETIME(6)"),
    ],
)
def test_new_columns(dialect: Dialect, arrow: pa.DataType, sql_type: str) -> None:
    assert dialect.sql_type(Column("c", arrow)) == sql_type


def test_keys_of_mysql_have_a_length_and_are_compared_by_bytes() -> None:
    assert MYSQL.sql_type(Column("c", pa.string()), is_key=True) == "VARCHAR(255) COLLATE utf8mb4_bin"
    assert MYSQL.sql_type(Column("c", pa.string()), is_key=False).startswith("LONGTEXT")
    assert POSTGRESQL.sql_type(Column("c", pa.string(), is_json=True)) == "JSONB"


@pytest.mark.parametrize(
    ("dialect", "arrow", "sql_type", "fits"),
    [
        (POSTGRESQL, pa.int64(), "integer", True),  # the database refuses what is out of range
        (POSTGRESQL, pa.int64(), "double precision", False),  # it would lose digits silently
        (POSTGRESQL, pa.float64(), "real", False),
        (POSTGRESQL, pa.float32(), "real", True),
        (POSTGRESQL, pa.decimal128(10, 2), "numeric(10,2)", True),
        (POSTGRESQL, pa.decimal128(10, 2), "numeric(20,1)", False),
        (POSTGRESQL, pa.decimal128(10, 2), "numeric", True),
        (POSTGRESQL, pa.timestamp("us", "UTC"), "timestamp without time zone", False),
        (POSTGRESQL, pa.timestamp("us"), "timestamp(3) without time zone", True),
        (POSTGRESQL, pa.string(), "uuid", True),
        (POSTGRESQL, pa.binary(), "text", False),
        (MYSQL, pa.int64(), "bigint(20) unsigned", True),
        (MYSQL, pa.bool_(), "tinyint(1)", True),
        (MYSQL, pa.string(), "varchar(20)", True),
        (SQLITE, pa.string(), "INTEGER", False),  # it would change '007' into 7
        (SQLITE, pa.string(), "VARCHAR(9)", True),
        (DUCKDB, pa.decimal128(10, 4), "DECIMAL(18,3)", False),
    ],
)
def test_existing_columns(dialect: Dialect, arrow: pa.DataType, sql_type: str, fits: bool) -> None:
    assert dialect.fits(Column("c", arrow), sql_type) is fits


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.kind)
def test_every_dialect_has_every_family(dialect: Dialect) -> None:
    families = {"boolean", "integer", "float", "decimal", "text", "bytes", "date", "time zone", "no zone", "json"}
    assert dialect.accepted.keys() == families
    assert dialect.types.keys() == families - {"integer", "float"}


def test_the_text_of_postgresql_is_ordered_by_bytes() -> None:
    assert POSTGRESQL.comparison(Column("c", pa.string())) == ' COLLATE "C"'
    assert POSTGRESQL.comparison(Column("c", pa.int64())) == ""


# --- addresses --------------------------------------------------------------------------------------------------------


def test_a_url_of_a_server() -> None:
    url = parse_url("postgres://shop:p%40ss@db.example.org/orders?sslmode=require&sslpassword=hush")
    assert (url.kind, url.user, url.password, url.host, url.port) == (
        "postgresql",
        "shop",
        "p@ss",
        "db.example.org",
        5432,
    )
    assert url.shown == "postgresql://db.example.org:5432/orders"
    assert url.parameters["sslmode"] == "require"
    assert "p%40ss" not in repr(url)
    assert secrets_of(url.text) == {"p@ss", "p%40ss", "hush"}
    assert parse_url("mysql://[::1]:33/x").host == "::1"
    assert parse_url("postgresql://u@one:1,two:2/x").shown == "postgresql://one:1,two:2/x"
    assert parse_url("postgresql:///x?host=/run/postgresql").shown == "postgresql://localhost:5432/x"


@pytest.mark.parametrize("text", ["sqlite:///out.db", "sqlite:////data/out.db", "duckdb:///%7E.db"])
def test_a_url_of_a_file(text: str) -> None:
    url = parse_url(text)
    assert url.is_file
    assert url.shown == text
    assert secrets_of(text) == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out.db", "it is not a URL"),
        (
            "oracle://u:secret@h/x",
            "oracle is not a known kind of database: there are postgresql, mysql, sqlite, duckdb",
        ),
        ("sqlite://", "it needs a file"),
        ("sqlite:///:memory:", "it needs a file"),
        ("postgresql://u:sec/ret@h/x", "write special characters of a password as %XX"),
        ("postgresql://u:secret@h:99999/x", "it is not postgresql://user:password@host:port/database"),
    ],
)
def test_a_bad_url_is_refused_without_its_password(text: str, message: str) -> None:
    with pytest.raises(BadUrl) as refused:
        parse_url(text)
    assert message in str(refused.value)
    assert "sec" not in str(refused.value)
    assert secrets_of(text) == {text}


@pytest.mark.parametrize(("written", "name"), [("t", TableName("t")), ("s.t", TableName("t", "s"))])
def test_table_names(written: str, name: TableName) -> None:
    assert table_name(written) == name
    assert str(name) == written


@pytest.mark.parametrize("written", ["", "a.b.c", ".t", "t.", "moldau_batches", "s.moldau_rows", "x" * 64, "a\0"])
def test_bad_table_names(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a table|has at most 63 bytes"):
        table_name(written)


# --- batches and rows -------------------------------------------------------------------------------------------------


def test_batches_of_one_driver_and_of_several() -> None:
    state = next_state("t", State(), Batch("q", 4, "a"))
    assert state == State(4, 1, "a")
    assert next_state("t", state, Batch("q", 4, "a")) is None
    assert next_state("t", state, Batch("q", 3, "b")) is None, "what is there claims nothing"
    later = next_state("t", state, Batch("q", 5, "b"))
    assert later == State(5, 2, "b", ("a",))
    assert next_state("t", later, Batch("q", 5, "a")) is None
    with pytest.raises(DriverFenced, match="so batch 6 of this one was not written"):
        next_state("t", later, Batch("q", 6, "a"))
    assert next_state("t", later, Batch("q", 6, "b")) == State(6, 2, "b", ("a",))


def test_so_many_former_drivers_are_known() -> None:
    state: State | None = State()
    for number in range(50):
        assert state is not None
        state = next_state("t", state, Batch("q", number, f"run{number}"))
    assert state is not None
    assert state.former_runs == tuple(f"run{number}" for number in range(48, 16, -1))


def test_the_last_rows_of_keys_in_many_parts() -> None:
    count = 2 * PART_ROWS + 7
    table = pa.table({"key": [number % 10 for number in range(count)], "n": [-number for number in range(count)]})
    kept = [
        (part.to_pylist(), positions.to_pylist())
        for part, positions in LastRows(TableRows(table), ["key"], None).parts()
    ]
    assert [position for _, positions in kept for position in positions] == list(range(count - 10, count))
    assert [row["n"] for rows, _ in kept for row in rows] == [-number for number in range(count - 10, count)]
    first = [positions.to_pylist() for _, positions in LastRows(TableRows(table), ["key"], "n").parts()]
    assert first == [list(range(10))]


def test_columns_that_cannot_be_stored() -> None:
    def problem(schema: dict[str, pa.DataType], **more: object) -> str | None:
        url = parse_url(str(more.pop("url", "sqlite:///x.db")))
        to = Destination(url=url, table=TableName("t"), **more)  # type: ignore[arg-type]
        return columns_problem(to, [Column(name, kind) for name, kind in schema.items()])

    number, text = pa.int64(), pa.string()
    assert problem({"a": number, "A": text}) == "columns a and A differ only in case"
    assert "column a is duration[us], for which" in str(problem({"a": pa.duration("us")}))
    assert "has more than 63 bytes" in str(problem({"a" * 64: number}))
    assert "needs keys" in str(problem({"a": number}, mode="upsert"))
    keyed = {"mode": "history", "keys": ("a",)}
    assert "needs options: {order_by: column}" in str(problem({"a": number}, **keyed))
    assert "itself makes column valid_to" in str(problem({"a": number, "VALID_TO": number}, order_by="a", **keyed))
    decimal = {"a": number, "d": pa.decimal128(5, 2)}
    ordered = {"mode": "upsert", "keys": ("a",), "order_by": "d"}
    assert "sqlite cannot order by d, as it stores decimal values as text" in str(problem(decimal, **ordered))
    assert problem(decimal, url="duckdb:///x", **ordered) is None
    assert problem({"a": number}, mode="upsert", keys=("a",)) is None
    with pytest.raises(
        DatabaseRefused, match=r"sqlite:///x\.db, table t: the rows have no column b, which is to be a key"
    ):
        layout_of(
            Destination(url=parse_url("sqlite:///x.db"), table=TableName("t"), mode="upsert", keys=("b",)),
            pa.schema([("a", number)]),
        )


def test_columns_are_found_in_any_case() -> None:
    existing = [TableColumn("A", "int"), TableColumn("b", "int"), TableColumn("B", "int")]
    assert matching("a", existing) == existing[0]
    assert matching("b", existing) == existing[1]
    assert matching("c", existing) is None
    assert matching("B", existing[1:2]) == existing[1]

"""Columns in DDL, found without Spark."""

from __future__ import annotations

import pytest

from moldau.pipelines.ddl_columns import ddl_columns


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("id string", ["id"]),
        ("id string not null, Qty int,\n  at: timestamp", ["id", "Qty", "at"]),
        (
            "who struct<age: int, name: string>, tags array<struct<a:int,b:int>>, age decimal(6,2)",
            ["who", "tags", "age"],
        ),
        (
            "`a b, c` int, `d``e` string comment 'x, y z', f map<string,int> comment \"g int, h\"",
            ["a b, c", "d`e", "f"],
        ),
        ("struct<a: int, b: int>", []),
        ("int", []),
        ("", []),
        ("a int,", []),
        ("id string, 5 int >", ["id", "5"]),
        ("id 'string", []),
    ],
)
def test_columns_are_found_where_they_begin(ddl: str, names: list[str]) -> None:
    columns = ddl_columns(ddl)
    assert [column.name for column in columns] == names
    for column in columns:
        assert ddl[column.offset :].lstrip("`").startswith(column.name[0])

"""Which CSV sources have their columns found by name, and how a name is found in a header."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_yaml import load_text

from moldau.pipelines.planning.csv_files import MissingColumn, find_columns, has_named_columns
from moldau.pipelines.spec import FileSource

PIPELINE = """
name: shop
sources:
  users: {file: 'users.*', SOURCE}
sinks:
  - {from: users, console: true}
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("format: csv, schema: 'id int'", True),
        ("format: csv, schema: 'id int', options: {HEADER: TRUE, sep: ;}", True),
        ("format: csv", False),
        ("format: json, schema: 'id int'", False),
        ("format: csv, schema: 'id int', options: {header: false}", False),
        ("format: csv, schema: 'id int', options: {enforceSchema: true}", False),
    ],
)
def test_columns_are_found_by_name_if_the_files_have_a_header(tmp_path: Path, source: str, expected: bool) -> None:
    (tmp_path / "users.csv").touch()
    users = load_text(tmp_path, PIPELINE.replace("SOURCE", source)).sources["users"]
    assert isinstance(users, FileSource)
    assert has_named_columns(users) is expected


def test_names_are_found_in_any_order_and_case() -> None:
    assert find_columns("u.csv", ["Name", " id ", "_c2"], ["id", "name"]) == {"id": " id ", "name": "Name"}


@pytest.mark.parametrize(
    ("header", "column"),
    [(["id", "id "], "id"), (["id ", "id"], "id"), (["ID", "id", " Id"], "id"), (["ID", " id"], "ID")],
)
def test_the_exact_name_wins_then_the_first_column(header: list[str], column: str) -> None:
    assert find_columns("u.csv", header, ["id"]) == {"id": column}


def test_a_column_that_the_header_lacks_is_refused_with_a_suggestion() -> None:
    with pytest.raises(MissingColumn, match=r"^there is no column nmae in the header of u.csv, did you mean 'name'\?$"):
        find_columns("u.csv", ["id", "name"], ["id", "nmae"])

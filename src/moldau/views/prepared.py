"""Queries as prepared statements: DuckDB needs as long to plan a query as to run it over some thousand records.

Only workers import this module.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, NamedTuple

import numpy.typing as npt
import pyarrow as pa

from moldau.views.sql import Query

STATEMENTS_MAX: Final = 100
CHARACTERS_MAX: Final = 100_000
"""Of the SQL of all prepared statements: a plan takes many times as much memory. A longer one stays alone."""


class _Records:
    """What a statement reads: the table that it is given before it is executed. DuckDB asks for it each time."""

    table: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self.table is not None, "a statement has a table while it is planned and executed"
        return self.table.__arrow_c_stream__(requested_schema)


class _Statement(NamedTuple):
    name: str
    source: str
    """The name of the table that it reads."""
    records: _Records
    characters: int


class PreparedQueries:
    """The statements that were used last. Workers are not told when a view is deleted, so old ones must go."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._statements: OrderedDict[tuple[Query, pa.Schema], _Statement] = OrderedDict()
        self._numbers = count()

    def table(self, query: Query, records: pa.Table) -> pa.Table:
        """Return the query's columns for each record, in order. Raise what DuckDB raises."""
        with self._statement(query, records) as name:
            return self._connection.sql(f"EXECUTE {name}").to_arrow_table()

    def arrays(self, query: Query, records: pa.Table) -> Mapping[str, npt.NDArray[Any]]:
        """Return the same by column, masked where it is null: faster if all columns are numbers; texts become Python
        objects."""
        with self._statement(query, records) as name:
            found: Mapping[str, npt.NDArray[Any]] = self._connection.execute(f"EXECUTE {name}").fetchnumpy()
            return found

    @contextmanager
    def _statement(self, query: Query, records: pa.Table) -> Iterator[str]:
        """Yield the name of the statement, which reads these records until the end."""
        key = query, records.schema
        statement = self._statements.get(key)
        if statement is None:
            statement = self._statements[key] = self._prepare(query, records)
        self._statements.move_to_end(key)
        statement.records.table = records
        try:
            yield statement.name
        finally:
            statement.records.table = None

    def _prepare(self, query: Query, records: pa.Table) -> _Statement:
        number = next(self._numbers)
        source = f"records{number}"
        sql = query.sql(source)
        statement = _Statement(f"query{number}", source, _Records(), len(sql))
        self._make_room(statement.characters)
        statement.records.table = records
        self._connection.register(statement.source, statement.records)
        try:
            self._connection.execute(f"PREPARE {statement.name} AS {sql}")
        except BaseException:
            self._connection.unregister(statement.source)
            raise
        return statement

    def _make_room(self, characters: int) -> None:
        characters += sum(each.characters for each in self._statements.values())
        while self._statements and (characters > CHARACTERS_MAX or len(self._statements) >= STATEMENTS_MAX):
            _, oldest = self._statements.popitem(last=False)
            characters -= oldest.characters
            self._connection.execute(f"DEALLOCATE {oldest.name}")
            self._connection.unregister(oldest.source)

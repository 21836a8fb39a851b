"""In a test case, the changes of a database come from a file: `tests/<case>/input/<source>.jsonl`, one change a line.

    {"id": 1, "total": 20}                                              an insert
    {"_op": "u", "id": 1, "total": 25, "_before": {"id": 1}}            an update
    {"_op": "d", "id": 1}                                               a deletion

The columns that the stream adds and a line leaves out are filled in. No database is needed, so the source has to give
`schema` and `key`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from moldau.pipelines.cases.files import BadCase
from moldau.pipelines.spec import DatabaseSource, FileSource

FIRST_TS_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, as of records without a timestamp."""
OPS: Final = ("r", "c", "u", "d", "t")


def staged_changes(source: DatabaseSource, input_file: Path | None, folder: Path) -> FileSource:
    """Return files in `folder` with the changes of the case. Raises BadCase."""
    if source.schema is None or not source.key:
        raise BadCase(
            f"source {source.name}: a test case runs without the database, so give it `schema` and `key`, such as"
            "  schema: id bigint, total double  and  key: id"
        )
    folder.mkdir(parents=True)
    lines = [] if input_file is None else [json.dumps(row) for row in _rows(source, input_file)]
    (folder / "changes.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    schema = (
        f"{source.schema}, _op string, _before struct<{source.schema}>, _lsn bigint, _index bigint, _ts_ms bigint,"
        " _xid bigint, _key string"
    )
    return FileSource(name=source.name, place=source.place, path=str(folder), format="json", schema=schema, watch=True)


def _rows(source: DatabaseSource, file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix != ".jsonl":
        raise BadCase(f"{file}: the changes of a database are lines of JSON, in {source.name}.jsonl")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadCase(f"{file}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict) or row.get("_op", "c") not in OPS:
            raise BadCase(f"{file}:{number}: a change is an object of columns; its _op is one of {', '.join(OPS)}")
        key = json.dumps({name: row.get(name) for name in source.key}, separators=(",", ":"), ensure_ascii=False)
        added = {"_op": "c", "_lsn": number, "_index": 0, "_ts_ms": FIRST_TS_MS, "_xid": number, "_key": key}
        yield added | row

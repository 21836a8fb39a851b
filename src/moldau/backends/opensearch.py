r"""OpenSearch and Elasticsearch: rows as documents, by the bulk call.

    POST /_bulk                                   {"errors": true, "items": [
    {"index": {"_index": "orders", "_id": "7"}}     {"index": {"status": 201}},
    {"n": 1}                                        {"index": {"status": 429, "error": {"type": …, "reason": …}}}]}

Each document has its own status: 2xx is taken, 429 and 5xx are tried again, others are refused for good. The id is the
row's key, so a document that is sent again replaces itself; with `op_type: create`, 409 says that it is there already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from moldau.backends.http import HttpSettings, check
from moldau.backends.interface import Failed, Refused, Retry, Row
from moldau.backends.options import Options

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""The answer to ten thousand documents has a few MB."""
OP_TYPES: Final = ("index", "create")
ID_BYTES_MAX: Final = 512
TOO_LARGE: Final = 413
ANSWER_PARTS: Final = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
"""Makes the answer short."""
REASON_LENGTH_MAX: Final = 200
_INDEX: Final = re.compile(r"(?![-_+.])[^A-Z\x00-\x20\"*+/\\|?#,:<>]{1,255}")


@dataclass(frozen=True, slots=True)
class OpenSearchSettings:
    http: HttpSettings
    index: str | None
    op_type: str

    @staticmethod
    def read(url: str, options: Options, timeout_s: float) -> OpenSearchSettings:
        """Raises ValueError for what cannot work."""
        http = HttpSettings.read(url, options, timeout_s, "application/x-ndjson")
        index = options.text("index")
        if index is not None and not _INDEX.fullmatch(index):
            raise ValueError("the option 'index' is not the name of an index, which is in lower case")
        return OpenSearchSettings(http, index, options.choice("op_type", OP_TYPES, "index"))


def lines_of(row: Row, settings: OpenSearchSettings) -> bytes:
    """Return the two lines of a document. Raises Refused for what cannot be one."""
    index = row.values.get("index") or settings.index
    if not index or not _INDEX.fullmatch(index):
        raise Refused(f"{index!r} is not the name of an index")
    if len(row.key.encode()) > ID_BYTES_MAX:
        raise Refused(f"the id has more than {ID_BYTES_MAX} bytes")
    document = row.values.get("document") or ""
    try:
        content = json.loads(document)
        # Written again only if it has line ends, which would begin the next document.
        line = json.dumps(content) if "\n" in document or "\r" in document else document
    except (ValueError, RecursionError) as error:
        raise Refused(f"the document is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise Refused("the document is not a JSON object")
    action = json.dumps({settings.op_type: {"_index": index, "_id": row.key}})
    return f"{action}\n{line}\n".encode()


class OpenSearchBackend:
    def __init__(self, settings: OpenSearchSettings) -> None:
        self._settings = settings
        self._connection = settings.http.connection(settings.http.address, ANSWER_BYTES_MAX)

    def open(self) -> None:
        """The first call connects."""

    def write(self, rows: Sequence[Row]) -> list[Failed]:
        failures: list[Failed] = []
        documents: dict[int, bytes] = {}
        for index, row in enumerate(rows):
            try:
                documents[index] = lines_of(row, self._settings)
            except Refused as error:
                failures.append(Failed(index, error))
        return failures + self._call(documents)

    def close(self) -> None:
        self._connection.close()

    def _call(self, documents: Mapping[int, bytes]) -> list[Failed]:
        """Send documents, by the index of their row. Those that are too large together are sent in halves."""
        if not documents:
            return []
        settings = self._settings.http
        path, _, query = settings.address.path.partition("?")
        target = f"{path.rstrip('/')}/_bulk?{ANSWER_PARTS}{'&' + query if query else ''}"
        response = self._connection.exchange("POST", target, settings.headers, b"".join(documents.values()))
        if response.status == TOO_LARGE and len(documents) > 1:
            indexes = list(documents)
            halves = indexes[: len(indexes) // 2], indexes[len(indexes) // 2 :]
            return [failed for half in halves for failed in self._half({index: documents[index] for index in half})]
        check(response, settings.retried, datetime.now(UTC))
        if response.is_cut:
            raise Retry("the answer to a bulk call is too long; smaller `batch_rows` help")
        return list(_failures(list(documents), _items(response.body)))

    def _half(self, documents: Mapping[int, bytes]) -> list[Failed]:
        """Send documents beside others, which keep their own outcomes whatever becomes of these."""
        try:
            return self._call(documents)
        except (Refused, Retry, OSError) as error:
            return [Failed(index, error) for index in documents]


def _items(body: bytes) -> list[Mapping[str, Any]] | None:
    """Return the items of an answer; None if it says that there are no errors. Raises Retry for what is no answer."""
    try:
        answer = json.loads(body)
        if answer["errors"] is False:
            return None
        return [next(iter(item.values())) for item in answer["items"]]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise Retry("the answer is not that of a bulk call") from error


def _failures(indexes: Sequence[int], items: list[Mapping[str, Any]] | None) -> list[Failed]:
    if items is None:
        return []
    if len(items) != len(indexes):
        raise Retry(f"the answer is about {len(items)} documents, and {len(indexes)} were sent")
    found = ((index, _error_of(item)) for index, item in zip(indexes, items, strict=True))
    return [Failed(index, error) for index, error in found if error is not None]


def _error_of(item: Mapping[str, Any]) -> Refused | Retry | None:
    status = item.get("status")
    if not isinstance(status, int):
        return Retry("an item of the answer has no status")
    error = item.get("error")
    details = error if isinstance(error, Mapping) else {}
    reason = f"{status} {details.get('type', '')}: {details.get('reason', '')}".strip(": ")[:REASON_LENGTH_MAX]
    if 200 <= status < 300:
        return None
    if status == 409 and details.get("type") == "version_conflict_engine_exception":
        return None  # of `create`: the document is there
    return Retry(reason) if status == 429 or status >= 500 else Refused(reason)

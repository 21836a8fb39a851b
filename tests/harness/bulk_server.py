"""A small OpenSearch: the bulk call as documented, with an answer for each document, and faults that a test plans.

https://docs.opensearch.org/latest/api-reference/document-apis/bulk/: action and document in a line each, the answer's
items in the order of the request, `errors` true if one failed; 400 for a body that does not end in a line end.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from harness.web_server import Request, response

INDEX = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@dataclass
class BulkServer:
    """`answer` is for WebServer."""

    documents: dict[tuple[str, str], Any] = field(default_factory=dict)
    faults: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """For the id of a document: statuses and types of the errors of its next attempts."""
    whole: list[bytes] = field(default_factory=list)
    """Answers to the next whole requests."""
    lines_max: int = 10_000
    """A request with more lines is too large."""

    def answer(self, request: Request) -> bytes:
        assert request.method == "POST"
        assert request.target.partition("?")[0] == "/_bulk"
        assert request.headers["content-type"] == "application/x-ndjson"
        if self.whole:
            return self.whole.pop(0)
        lines = request.body.split(b"\n")
        if lines.pop() != b"":
            return response(400, b'{"error":"The bulk request must be terminated by a newline"}')
        if len(lines) > self.lines_max:
            return response(413)
        items = [self._one(json.loads(lines[n]), lines[n + 1]) for n in range(0, len(lines), 2)]
        errors = any("error" in next(iter(item.values())) for item in items)
        return response(200, json.dumps({"took": 1, "errors": errors, "items": items}).encode())

    def _one(self, action: dict[str, dict[str, str]], document: bytes) -> dict[str, Any]:
        [(op_type, target)] = action.items()
        index, id_ = target["_index"], target["_id"]
        faults = self.faults.get(id_)
        if faults:
            status, kind = faults.pop(0)
            return {op_type: {"_id": id_, "status": status, "error": {"type": kind, "reason": f"{id_} failed"}}}
        if op_type == "create" and (index, id_) in self.documents:
            error = {"type": "version_conflict_engine_exception", "reason": "document already exists"}
            return {op_type: {"_id": id_, "status": 409, "error": error}}
        assert INDEX.fullmatch(index)
        is_new = (index, id_) not in self.documents
        self.documents[index, id_] = json.loads(document)
        return {op_type: {"_id": id_, "status": 201 if is_new else 200, "result": "created" if is_new else "updated"}}

"""Targets of records out and of the REST proxy: where a reader begins, a record as JSON, the proxy's bodies."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any, NamedTuple

from fuzz_checks import Limits, Violation
from fuzz_http import or_refused
from fuzz_mutations import mutate
from fuzz_wire import Stateless

from moldau.gateway.http.positions import text_of
from moldau.gateway.http.proxy.consumer_config import consumer_config
from moldau.gateway.http.proxy.failures import ProxyError
from moldau.gateway.http.proxy.json_objects import JsonObjects
from moldau.gateway.http.proxy.records import records_of
from moldau.gateway.http.proxy.requests import V2_BINARY, V2_JSON
from moldau.gateway.http.record_json import record_json
from moldau.gateway.http.starts import start_of
from moldau.gateway.ports import FoundRecord

VALUES = (b'{"t": 21.50}', b'"\xc3\xa9"', b"21.5 C", b"\xff\x00", b"[1,\n2]", b'{"a": [null, true, {}]}')
QUERIES = (b"from=earliest&group=g", b"from=0:13,1:40&partition=1", b"from=2026-11-19T08:00:00Z", b"max=7&wait=2")
IDS = ("", "0:13,1:40", "7:0")
PROXY_STATUSES = (400, 413, 422)


class Reading(NamedTuple):
    query: bytes
    last_id: str
    value: bytes
    header: bytes


class RecordsOut(Stateless):
    """A reader's request is refused or says where to begin; a record is one line of JSON from which its value can be
    had."""

    name = "records out"
    limits = Limits(operations=3_000, per_byte=60, memory=400_000)

    def make(self, rng: Random) -> Reading:
        query, last_id, value = rng.choice(QUERIES), rng.choice(IDS), rng.choice(VALUES)
        what = rng.randrange(4)
        if what == 0:
            query = bytes(mutate(query, rng))
        elif what == 1:
            last_id = bytes(mutate(last_id.encode() or b"1", rng)).decode("latin-1")
        else:
            value = bytes(mutate(value, rng))
        return Reading(query, last_id, value, rng.choice(VALUES))

    def size_of(self, made: Reading) -> int:
        return len(made.query) + len(made.last_id) + len(made.value) + len(made.header)

    def run(self, made: Reading) -> None:
        begun = or_refused(lambda: start_of(made.query, "latest", made.last_id, ("max", "wait")))
        if begun is not None and begun[0].resumed is not None and not text_of(begun[0].resumed):
            raise Violation("a reader goes on nowhere")
        line = record_json(FoundRecord(1, 2, 3, made.header, made.value, (("h", made.header),)))
        if b"\n" in line or b"\r" in line:
            raise Violation("a record has more than one line")
        found = json.loads(line)["value"]
        if isinstance(found, dict) and found.keys() == {"base64"} and _is_no_text(made.value):
            found = base64.b64decode(found["base64"])
            if found != made.value:
                raise Violation("the bytes of a record are others")
        elif found != made.value.decode() and found != json.loads(made.value):
            raise Violation("the value of a record is another")


class RestCalls(Stateless):
    """A body of the REST proxy is refused with a status, or its records are those that Python's own parser finds; a
    stream is cut where its objects end, however it comes."""

    name = "rest proxy"
    limits = Limits(operations=6_000, per_byte=120, memory=600_000)

    def make(self, rng: Random) -> tuple[str, bytes, int]:
        texts = [base64.b64encode(value).decode() for value in VALUES]
        kind = rng.choice((V2_JSON, V2_BINARY, "stream", "config"))
        if kind == "config":
            body = json.dumps({"name": "a", "format": "json", "fetch.min.bytes": 7, "auto.commit.enable": "true"})
        elif kind == "stream":
            body = " ".join(json.dumps({"value": {"type": "JSON", "data": {"a": "}{\\"}}}) for _ in range(3))
        else:
            record = {"key": None, "value": rng.choice(texts), "partition": rng.choice((None, 1))}
            body = json.dumps({"records": [record] * rng.randint(0, 3)})
        return kind, bytes(mutate(body.encode(), rng)), rng.randint(1, 60)

    def size_of(self, made: tuple[str, bytes, int]) -> int:
        return len(made[1])

    def run(self, made: tuple[str, bytes, int]) -> None:
        kind, body, step = made
        if kind == "stream":
            whole, pieces = _cut(body, len(body) or 1), _cut(body, step)
            if whole != pieces:
                raise Violation("a stream is cut in another way if it comes in pieces")
        elif kind == "config":
            _or_proxy_error(lambda: consumer_config("g", body))
        else:
            records = _or_proxy_error(lambda: records_of(kind, body))
            if records is not None and len(records) != len(json.loads(body)["records"]):
                raise Violation("there are more or fewer records than in the body")


def _cut(data: bytes, step: int) -> list[bytes]:
    objects = JsonObjects()
    found: list[bytes] = []
    for start in range(0, len(data), step):
        objects.feed(data[start : start + step])
        while objects.has_more:
            found += objects.take()
    return found


def _is_no_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


def _or_proxy_error(work: Any) -> Any:
    try:
        return work()
    except ProxyError as refused:
        if refused.status not in PROXY_STATUSES or len(refused.message) > 600:
            raise Violation(f"a client is told {refused.status} {refused.message!r}") from None
        return None

"""The target of the gateway's HTTP: what a device sends before it is known who it is and what it means."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any, NamedTuple

from fuzz_checks import Limits, Violation
from fuzz_mutations import mutate
from fuzz_wire import Stateless

from moldau.gateway.http.bodies import Options, options_of, records_of, values_of
from moldau.gateway.http.credentials import credentials_of
from moldau.gateway.http.intake import topic_name
from moldau.web.failures import ApiError

TYPES = ("application/json", "application/x-ndjson", "text/plain", "application/x+json")
QUERIES = (
    b"",
    b"key=k&partition=1",
    b"key_field=id",
    b"timestamp=2026-11-19T08:00:00%2B01:00",
    b"timestamp=12",
    b"key=%C5%BE",
)
AUTHORIZATIONS = (
    None,
    b"Basic " + base64.b64encode("žofie:a:b".encode()),
    b"Bearer eyJ.eyJzdWIiOiJhIn0.x",
    b"Digest a=1",
)
ELEMENTS = (b'{"id": 1}', b'{"id":"a\\u00e9","x":[1,2.50,null]}', b"[]", b'"text"', b"-1.5e3", b"true", b'{"id":null}')
STATUSES = (400, 401, 413, 414)


class Sent(NamedTuple):
    content_type: str
    query: bytes
    header: bytes
    authorization: bytes | None
    path: str
    body: bytes


class HttpRecords(Stateless):
    """A request is refused with a status, or its values are the JSON that Python's own parser finds in the body."""

    name = "http"
    limits = Limits(operations=3_000, per_byte=60, memory=400_000)

    def make(self, rng: Random) -> Sent:
        elements = [rng.choice(ELEMENTS) for _ in range(rng.randint(0, 5))]
        kind = rng.choice(TYPES)
        body = b"\n".join(elements) if "ndjson" in kind else b"[" + b", ".join(elements) + b"]"
        query, header, authorization = rng.choice(QUERIES), b"value", rng.choice(AUTHORIZATIONS)
        what = rng.randrange(4)
        if what == 0:
            query = bytes(mutate(query or b"key=a", rng))
        elif what == 1 and authorization is not None:
            authorization = bytes(mutate(authorization, rng))
        else:
            body = bytes(mutate(body, rng))
        path = bytes(mutate(b"tele%2Fmetry", rng)).decode("latin-1") if rng.random() < 0.2 else "telemetry"
        return Sent(kind, query, header, authorization, path, body)

    def size_of(self, made: Sent) -> int:
        return len(made.query) + len(made.body) + len(made.authorization or b"") + len(made.path)

    def run(self, made: Sent) -> None:
        options = or_refused(lambda: options_of(made.query, [(b"kafka-header-h", made.header)])) or Options()
        or_refused(lambda: credentials_of(made.authorization, None))
        or_refused(lambda: topic_name(made.path))
        values = or_refused(lambda: values_of(made.content_type, made.body))
        if values is None:
            return
        if made.content_type.endswith("json") and [json.loads(each) for each in values] != _expected(made):
            raise Violation("the values are not those of the body")
        records = or_refused(lambda: records_of(values, options))
        if records is not None and [each.value for each in records] != values:
            raise Violation("the records have other values than the body")


def _expected(made: Sent) -> Any:
    if "ndjson" in made.content_type:
        return [json.loads(line) for line in made.body.split(b"\n") if line.strip()]
    found = json.loads(made.body)
    return found if isinstance(found, list) else [found]


def or_refused(work: Any) -> Any:
    try:
        return work()
    except ApiError as refused:
        if refused.status not in STATUSES or not refused.message.isprintable() or len(refused.message) > 400:
            raise Violation(f"a device is told {refused.status} {refused.message!r}") from None
        return None

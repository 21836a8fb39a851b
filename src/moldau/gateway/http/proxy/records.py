"""v2's records in: JSON that is left as it is, or bytes in base64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.bodies import RECORDS_MAX
from moldau.gateway.http.intake import off_the_loop
from moldau.gateway.http.proxy.appending import appended
from moldau.gateway.http.proxy.failures import (
    PARTITION_NOT_FOUND,
    UNAUTHENTICATED,
    UNAUTHORIZED,
    ProxyError,
    partition_not_found,
    proxy_error,
    unprocessable,
)
from moldau.gateway.http.proxy.metadata import found_topic
from moldau.gateway.http.proxy.requests import (
    V2_BINARY,
    V2_JSON,
    Answer,
    Request,
    json_answer,
    parsed,
    partition_of_path,
    unsupported,
)
from moldau.gateway.ports import Appended, NewRecord, Place

NULL: Final = msgspec.Raw(b"null")
COST: Final = 4
"""Of reading these records, compared with the gateway's own."""
OUTCOME_BYTES: Final = 100
"""Of a record in an answer."""
STATUSES: Final = {UNAUTHENTICATED: 401, UNAUTHORIZED: 403}
"""Of a whole answer in which a record has this error; else it is 200."""
Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    key: msgspec.Raw = NULL
    value: msgspec.Raw = NULL
    partition: Index | None = None


class BinaryRecord(msgspec.Struct, forbid_unknown_fields=True):
    key: bytes | None = None
    value: bytes | None = None
    partition: Index | None = None


class _Schemas(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What clients may send with both formats, and only others need."""

    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class JsonRecords(_Schemas, forbid_unknown_fields=True, kw_only=True):
    records: list[JsonRecord]


class BinaryRecords(_Schemas, forbid_unknown_fields=True, kw_only=True):
    records: list[BinaryRecord]


_json: Final = msgspec.json.Decoder(JsonRecords)
_binary: Final = msgspec.json.Decoder(BinaryRecords)


async def append(request: Request) -> Answer:
    (topic,) = request.names
    return await _append(request, topic, None)


async def append_to_partition(request: Request) -> Answer:
    topic, text = request.names
    partition = partition_of_path(text)
    found = await found_topic(request.account, topic)
    if partition not in [each.partition_index for each in found.partitions]:
        raise partition_not_found(partition)
    return await _append(request, topic, partition)


async def _append(request: Request, topic: str, partition: int | None) -> Answer:
    content_type = request.content_type
    if content_type not in (V2_JSON, V2_BINARY):
        raise unsupported(content_type, V2_JSON, V2_BINARY)
    body = await request.body()
    records = await off_the_loop(len(body) * COST, lambda: records_of(content_type, body, partition))
    counters = request.intake.counters
    counters.requests += 1
    counters.records += len(records)
    counters.bytes += len(body)
    outcomes = await appended(request.account, topic, records)
    return await off_the_loop(len(outcomes) * OUTCOME_BYTES, lambda: answer_of(outcomes))


def records_of(content_type: str, body: bytes, partition: int | None = None) -> list[NewRecord]:
    """Return the records in a body. Those without a partition of their own go to this one. ProxyError if the body is
    not what its type says."""
    if content_type == V2_JSON:
        records = [
            NewRecord(
                as_sent(each.value),
                as_sent(each.key),
                partition=partition if each.partition is None else each.partition,
            )
            for each in parsed(_json, body).records
        ]
    else:
        records = [
            NewRecord(each.value, each.key, partition=partition if each.partition is None else each.partition)
            for each in parsed(_binary, body).records
        ]
    if not records:
        raise unprocessable("records must not be empty")
    if len(records) > RECORDS_MAX:
        raise ProxyError(413, 413, f"a request has at most {RECORDS_MAX} records")
    return records


def as_sent(raw: msgspec.Raw) -> bytes | None:
    """Return JSON as the client wrote it; null is no value."""
    data = bytes(raw)
    return None if data == b"null" else data


def answer_of(results: Appended) -> Answer:
    """Return where each record is, or why it was refused. Only a refused login or right is an error of the whole."""
    outcomes = [_outcome(each) for each in results]
    codes: Sequence[int | None] = [each["error_code"] for each in outcomes]
    status = next((STATUSES[code] for code in codes if code in STATUSES), 200)
    return json_answer({"offsets": outcomes, "key_schema_id": None, "value_schema_id": None}, status=status)


def _outcome(outcome: Place | KafkaError) -> dict[str, Any]:
    if isinstance(outcome, Place):
        return {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}
    error = proxy_error(outcome)
    code = PARTITION_NOT_FOUND if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.code
    return {"partition": None, "offset": None, "error_code": code, "error": error.message}

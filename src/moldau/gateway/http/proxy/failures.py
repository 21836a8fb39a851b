"""Errors as the REST proxy tells them: a status, a code of its own and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import RETRIABLE
from moldau.gateway.http.intake import Pair, headers_of_failure
from moldau.gateway.http.words import API_ERRORS

NOT_FOUND: Final = 404
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
INSTANCE_NOT_FOUND: Final = 40403
UNKNOWN_TOPIC: Final = 40403
"""What v3 calls it; in v2 this code is that of a consumer."""
NOT_JSON: Final = 40801
ILLEGAL_STATE: Final = 40903
INVALID_CONFIG: Final = 42204
PAYLOAD: Final = 42206
UNAUTHENTICATED: Final = 40101
UNAUTHORIZED: Final = 40301
TOO_MANY: Final = 42901
KAFKA_ERROR: Final = 50002
KAFKA_RETRIABLE: Final = 50003

BAD_REQUESTS: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
STATUSES: Final = {
    **dict.fromkeys(RETRIABLE, (500, KAFKA_RETRIABLE)),
    **dict.fromkeys(BAD_REQUESTS, (400, 40002)),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, TOPIC_NOT_FOUND),
    ErrorCode.BROKER_NOT_AVAILABLE: (503, 50302),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 413),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, TOO_MANY),
}
OWN_CODES: Final = {401: UNAUTHENTICATED, 403: UNAUTHORIZED, 429: TOO_MANY, 502: KAFKA_ERROR}
"""Codes of errors that are not Kafka's; else the code is the status."""


class ProxyError(Exception):
    def __init__(self, status: int, code: int, message: str, headers: Sequence[Pair] = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers

    def body(self) -> dict[str, int | str]:
        return {"error_code": self.code, "message": self.message}


def topic_not_found(name: str) -> ProxyError:
    return ProxyError(404, TOPIC_NOT_FOUND, f"Topic not found: there is no topic {name[:250]}")


def partition_not_found(partition: object) -> ProxyError:
    return ProxyError(404, PARTITION_NOT_FOUND, f"Partition not found: there is no partition {str(partition)[:20]}")


def instance_not_found() -> ProxyError:
    return ProxyError(404, INSTANCE_NOT_FOUND, "Consumer instance not found.")


def unprocessable(message: str, code: int = 422) -> ProxyError:
    return ProxyError(422, code, message)


def schemas_needed(what: str) -> ProxyError:
    """Avro, JSON Schema and Protobuf need a registry of schemas."""
    text = f"Payload error. {what} needs a schema registry, which this gateway does not have; known are json and binary"
    return unprocessable(text, PAYLOAD)


def proxy_error(error: Exception) -> ProxyError:
    """Return what a client is told. A mistake of ours is logged."""
    if isinstance(error, ProxyError):
        return error
    told = API_ERRORS.of(error)
    if isinstance(error, KafkaError):
        status, code = _of_kafka(error.code)
    else:
        status, code = told.status, OWN_CODES.get(told.status, told.status)
    return ProxyError(status, code, told.message, headers_of_failure(told))


def _of_kafka(code: ErrorCode) -> tuple[int, int]:
    if code.name.endswith("AUTHORIZATION_FAILED"):
        return 403, UNAUTHORIZED
    if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return 401, UNAUTHENTICATED
    return STATUSES.get(code, (500, KAFKA_ERROR))

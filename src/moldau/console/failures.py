"""Errors of the API: a status, a code and one sentence. Everything that can go wrong becomes one of them here, once."""

from __future__ import annotations

import logging
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, UnusableProperty
from moldau.cli.cluster.connect import kafka_failure
from moldau.cli.connect import CommandFailed, NotFound
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.offsets import BadOffset

log = logging.getLogger(__name__)

STATUSES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}
NOT_ALLOWED: Final = "NOT_ALLOWED"


class ApiError(Exception):
    """What the client is told. `extra` are further fields of the error, such as the column of a mistake."""

    def __init__(self, status: int, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.extra = status, code, message, extra

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, **self.extra}}


def bad_request(message: str, **extra: Any) -> ApiError:
    return ApiError(400, "BAD_REQUEST", message, **extra)


def not_found(message: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", message)


def too_many(message: str) -> ApiError:
    return ApiError(429, "TOO_MANY", message)


def internal_error(error: Exception) -> ApiError:
    """Log a mistake of ours; return what the client is told of it."""
    log.error("internal error", exc_info=error)
    return ApiError(500, "INTERNAL", f"a mistake of the console: {type(error).__name__}; its log says more")


def api_error(error: Exception) -> ApiError | None:
    """Return what a client is told of an error, None if it is a mistake of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, KafkaError):
        return from_kafka(error)
    if isinstance(error, NotFound):
        return not_found(error.message)
    if isinstance(error, CommandFailed):
        cause = error.__cause__
        if isinstance(cause, KafkaError):
            return from_kafka(cause, error.message)
        return ApiError(409, "CONFLICT", error.message)
    if isinstance(error, ToolFailed | BadOffset | UnusableProperty):
        return bad_request(str(error))
    if isinstance(error, UnicodeEncodeError):  # JSON has such texts, and Kafka's requests do not
        return bad_request("a text has half of a surrogate pair, which is no character")
    if isinstance(error, OSError | MalformedData):
        return ApiError(502, "CLUSTER_UNREACHABLE", f"the cluster does not answer: {error}")
    return None


def from_kafka(error: KafkaError, message: str | None = None) -> ApiError:
    text = message or kafka_failure(error).message
    if error.code.name.endswith("AUTHORIZATION_FAILED"):
        return ApiError(403, NOT_ALLOWED, text)
    if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return ApiError(401, "LOGIN_FAILED", text)
    return ApiError(STATUSES.get(error.code, 400), error.code.name, text)

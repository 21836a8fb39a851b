"""Errors of an API: a status, a code and one sentence. Everything that can go wrong becomes one of them here, once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, UnusableProperty
from moldau.client.cluster import RETRIABLE
from moldau.operations.failures import InvalidChoice, NotFound, OperationFailed, kafka_failure
from moldau.operations.next_steps import Note
from moldau.operations.offsets import BadOffset

log = logging.getLogger(__name__)

STATUSES: Final = {
    **dict.fromkeys(RETRIABLE, 503),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: 503,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: 503,
    ErrorCode.LISTENER_NOT_FOUND: 503,
    ErrorCode.REBALANCE_IN_PROGRESS: 503,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: 503,
    ErrorCode.CONCURRENT_TRANSACTIONS: 503,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: 503,
    ErrorCode.STALE_CONTROLLER_EPOCH: 503,
    ErrorCode.UNKNOWN_CONTROLLER_ID: 503,
    ErrorCode.NEW_LEADER_ELECTED: 503,
    ErrorCode.REBOOTSTRAP_REQUIRED: 503,
    ErrorCode.UNKNOWN_SERVER_ERROR: 502,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
}
"""Of all others the user's request is the cause: 400."""
TRY_AGAIN: Final = "try again in a moment"
NOT_ALLOWED: Final = "NOT_ALLOWED"
UNREACHABLE: Final = "CLUSTER_UNREACHABLE"


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


@dataclass(frozen=True, slots=True)
class ApiErrors:
    """Makes an `ApiError` of any error, in the words of one server."""

    server: str
    """Its name, as in "a mistake of the console"."""
    worded: Callable[[Note | OperationFailed], str]
    """Says why an operation failed, with what helps there."""

    def of(self, error: Exception) -> ApiError:
        """Return what the client is told. A mistake of ours is logged, and the client is told no more than its type."""
        known = self.known(error)
        if known is not None:
            return known
        log.error("internal error", exc_info=error)
        return ApiError(500, "INTERNAL", f"a mistake of {self.server}: {type(error).__name__}; its log says more")

    def known(self, error: Exception) -> ApiError | None:
        """Return what the client is told, None if the error is a mistake of ours."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, KafkaError):
            return _from_kafka(error, self.worded(kafka_failure(error)))
        if isinstance(error, OperationFailed):
            return _from_operation(error, self.worded(error))
        if isinstance(error, BadOffset | UnusableProperty):
            return bad_request(str(error))
        if isinstance(error, UnicodeEncodeError):  # JSON has such texts, and Kafka's requests do not
            return bad_request("a text has half of a surrogate pair, which is no character")
        if isinstance(error, OSError | MalformedData):
            return ApiError(502, UNREACHABLE, f"the cluster does not answer: {error}")
        return None


def _from_operation(failed: OperationFailed, text: str) -> ApiError:
    if failed.error is not None:
        return _from_kafka(failed.error, text)
    if isinstance(failed, NotFound):
        return not_found(text)
    return bad_request(text) if isinstance(failed, InvalidChoice) else ApiError(409, "CONFLICT", text)


def _from_kafka(error: KafkaError, text: str) -> ApiError:
    if error.code.name.endswith("AUTHORIZATION_FAILED"):
        return ApiError(403, NOT_ALLOWED, text)
    if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return ApiError(401, "LOGIN_FAILED", text)
    status = STATUSES.get(error.code, 400)
    if status == 503 and TRY_AGAIN not in text:
        text = f"{text.rstrip('.')}; {TRY_AGAIN}"
    return ApiError(status, error.code.name, text)

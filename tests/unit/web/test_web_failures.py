"""What the API answers to each kind of error."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, UnusableProperty
from moldau.client.cluster import RETRIABLE, Unreachable
from moldau.operations.failures import InvalidChoice, NotFound, OperationFailed, kafka_failure
from moldau.operations.offsets import BadOffset
from moldau.web.failures import ApiErrors

ERRORS = ApiErrors("the server", lambda what: (what.note if isinstance(what, OperationFailed) else what).text)


@pytest.mark.parametrize(
    ("status", "codes"),
    [
        (400, "INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_TOPIC_EXCEPTION POLICY_VIOLATION"),
        (400, "INVALID_REPLICA_ASSIGNMENT UNSUPPORTED_VERSION SECURITY_DISABLED"),
        (403, "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"),
        (404, "UNKNOWN_TOPIC_OR_PARTITION GROUP_ID_NOT_FOUND TRANSACTIONAL_ID_NOT_FOUND OFFSET_OUT_OF_RANGE"),
        (409, "TOPIC_ALREADY_EXISTS NON_EMPTY_GROUP UNKNOWN_MEMBER_ID"),
        (413, "MESSAGE_TOO_LARGE"),
        (429, "THROTTLING_QUOTA_EXCEEDED"),
        (502, "UNKNOWN_SERVER_ERROR"),
        (503, "BROKER_NOT_AVAILABLE NETWORK_EXCEPTION LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER NOT_CONTROLLER"),
        (503, "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR REBALANCE_IN_PROGRESS"),
        (503, "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND REPLICA_NOT_AVAILABLE OFFSET_NOT_AVAILABLE"),
        (503, "KAFKA_STORAGE_ERROR PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        (503, "CONCURRENT_TRANSACTIONS UNSTABLE_OFFSET_COMMIT FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH"),
        (504, "REQUEST_TIMED_OUT"),
    ],
)
def test_the_status_of_an_error_of_kafka(status: int, codes: str) -> None:
    for name in codes.split():
        error = KafkaError(ErrorCode[name])
        for wrapped in (error, kafka_failure(error, "topic orders")):
            answer = ERRORS.known(wrapped)
            assert answer is not None
            assert (answer.status, name) == (status, name)
            assert answer.code == ("NOT_ALLOWED" if status == 403 else name)
            assert ("try again in a moment" in answer.message) is (status == 503)


def test_no_error_that_passes_by_itself_is_called_a_mistake_of_the_user() -> None:
    answers = [ERRORS.known(KafkaError(code)) for code in RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    assert {answer.status for answer in answers if answer is not None} == {503, 504}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unreachable("No broker answers"), 502, "CLUSTER_UNREACHABLE"),
        (TimeoutError("no answer for 10 s"), 502, "CLUSTER_UNREACHABLE"),
        (MalformedData("cut off"), 502, "CLUSTER_UNREACHABLE"),
        (NotFound("no group nobody"), 404, "NOT_FOUND"),
        (OperationFailed("the group has members"), 409, "CONFLICT"),
        (InvalidChoice("too few brokers"), 400, "BAD_REQUEST"),
        (BadOffset("not a time"), 400, "BAD_REQUEST"),
        (UnusableProperty("no such mechanism"), 400, "BAD_REQUEST"),
        (KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED), 401, "LOGIN_FAILED"),
    ],
)
def test_the_status_of_other_errors(error: Exception, status: int, code: str) -> None:
    answer = ERRORS.known(error)
    assert answer is not None
    assert (answer.status, answer.code) == (status, code)


def test_a_mistake_of_ours_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert ERRORS.known(ZeroDivisionError()) is None
    answer = ERRORS.of(ZeroDivisionError("of the test"))
    assert (answer.status, answer.code) == (500, "INTERNAL")
    assert answer.message == "a mistake of the server: ZeroDivisionError; its log says more"
    assert "of the test" in caplog.text
    assert ERRORS.of(NotFound("no group nobody")).message == "no group nobody"

"""Errors as Kafka's Java tools print them: the exception's class, then its message.

Few responses contain the message; error_messages.py has the others. CLASSES has the classes whose names do not follow
from the error code's name. Pure.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.kafka.java.error_messages import MESSAGES

PACKAGE: Final = "org.apache.kafka.common.errors"
WRAPPED: Final = "java.util.concurrent.ExecutionException: "
"""Printed before an error of one of Kafka's futures that the Java tool does not unwrap."""
CLASSES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "InvalidRegularExpression",
}


def message_of(error: KafkaError) -> str:
    """Return the text of getMessage()."""
    return error.message or MESSAGES.get(error.code, error.code.name)


def without_message(error: KafkaError) -> KafkaError:
    """Return the error without a message of our own, as Kafka's clients make it from the bare code."""
    return KafkaError(error.code)


def default_text(error: KafkaError) -> str:
    """Return the text of getMessage() that Kafka's clients have for the bare code."""
    return message_of(without_message(error))


def exception_text(error: KafkaError) -> str:
    """Return the text of toString()."""
    return f"{exception_class(error.code)}: {message_of(error)}"


def exception_class(code: ErrorCode) -> str:
    """Return the text of getClass().getName()."""
    by_rule = "".join(word.capitalize() for word in code.name.split("_")).removesuffix("Exception")
    return f"{PACKAGE}.{CLASSES.get(code, f'{by_rule}Exception')}"

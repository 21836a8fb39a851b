"""Errors as Kafka's Java tools print them: the exception's class, then its message.

Few responses contain the message; this module has tables of the others, and of the classes whose names do not follow
from the error code's name. Pure.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError

PACKAGE: Final = "org.apache.kafka.common.errors"
WRAPPED: Final = "java.util.concurrent.ExecutionException: "
"""Printed before an error of one of Kafka's futures that the Java tool does not unwrap."""
CLASSES: Final = {
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmpty",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorization",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorization",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorization",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorage",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthentication",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorization",
}
MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing, so a rejoin is needed.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is actively"
    " subscribed to it.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "Delegation Token is not found on server.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "Specified Principal is not valid Owner/Renewer.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL"
    " channels and on delegation token authenticated channels.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "Delegation Token is expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "Supplied principalType is not supported.",
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
    return f"{PACKAGE}.{CLASSES.get(code, by_rule)}Exception"

"""Reason codes of MQTT 5, and what they are called in MQTT 3.1.1, which has few."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from moldau.base.errors import ErrorCode


class Reason(IntEnum):
    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def words(self) -> str:
        """As in the standard's tables, but in lower case."""
        return self.name.lower().replace("_", " ")


FAILURE_IN_SUBACK: Final = 0x80
"""The only refusal of a subscription in MQTT 3.1.1."""

CONNACK_ACCEPTED: Final = 0
CONNACK_UNACCEPTABLE_VERSION: Final = 1
CONNACK_IDENTIFIER_REJECTED: Final = 2
CONNACK_SERVER_UNAVAILABLE: Final = 3
CONNACK_BAD_USER_OR_PASSWORD: Final = 4
CONNACK_NOT_AUTHORIZED: Final = 5

_RETURN_CODES: Final = {
    Reason.SUCCESS: CONNACK_ACCEPTED,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: CONNACK_UNACCEPTABLE_VERSION,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: CONNACK_IDENTIFIER_REJECTED,
    Reason.BAD_USER_NAME_OR_PASSWORD: CONNACK_BAD_USER_OR_PASSWORD,
    Reason.NOT_AUTHORIZED: CONNACK_NOT_AUTHORIZED,
    Reason.SERVER_UNAVAILABLE: CONNACK_SERVER_UNAVAILABLE,
    Reason.SERVER_BUSY: CONNACK_SERVER_UNAVAILABLE,
    Reason.QUOTA_EXCEEDED: CONNACK_SERVER_UNAVAILABLE,
}


def connack_return_code(reason: Reason) -> int | None:
    """Return how a CONNACK of MQTT 3.1.1 says it; None if it cannot, and the connection is only closed."""
    return _RETURN_CODES.get(reason)


_OF_KAFKA: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reason.TOPIC_NAME_INVALID,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME_INVALID,
    ErrorCode.MESSAGE_TOO_LARGE: Reason.PACKET_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reason.PACKET_TOO_LARGE,
    ErrorCode.INVALID_RECORD: Reason.PAYLOAD_FORMAT_INVALID,
    ErrorCode.CORRUPT_MESSAGE: Reason.PAYLOAD_FORMAT_INVALID,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reason.QUOTA_EXCEEDED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Reason.BAD_USER_NAME_OR_PASSWORD,
    ErrorCode.POLICY_VIOLATION: Reason.ADMINISTRATIVE_ACTION,
}


def reason_of(code: ErrorCode) -> Reason:
    """Return what an error of the cluster is to a publisher or subscriber."""
    return _OF_KAFKA.get(code, Reason.UNSPECIFIED_ERROR)


MAY_BE_IN_PUBACK: Final = frozenset(
    {
        Reason.SUCCESS,
        Reason.NO_MATCHING_SUBSCRIBERS,
        Reason.UNSPECIFIED_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
        Reason.NOT_AUTHORIZED,
        Reason.TOPIC_NAME_INVALID,
        Reason.PACKET_IDENTIFIER_IN_USE,
        Reason.QUOTA_EXCEEDED,
        Reason.PAYLOAD_FORMAT_INVALID,
    }
)


def puback_reason(reason: Reason) -> Reason:
    """Return the nearest reason that the standard allows in a PUBACK."""
    return reason if reason in MAY_BE_IN_PUBACK else Reason.IMPLEMENTATION_SPECIFIC_ERROR


_MAY_BE_IN_SUBACK: Final = frozenset(
    {
        Reason.UNSPECIFIED_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
        Reason.NOT_AUTHORIZED,
        Reason.TOPIC_FILTER_INVALID,
        Reason.QUOTA_EXCEEDED,
        Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
        Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    }
)


def suback_reason(reason: Reason) -> Reason:
    """Return the nearest reason that the standard allows in a SUBACK."""
    if reason is Reason.TOPIC_NAME_INVALID:
        return Reason.TOPIC_FILTER_INVALID
    return reason if reason in _MAY_BE_IN_SUBACK else Reason.IMPLEMENTATION_SPECIFIC_ERROR

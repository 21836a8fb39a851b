"""The errors for requests that are denied: the kind of resource determines the code, and the text is Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.security.acls.access import Needs
from moldau.security.acls.bindings import ResourceType

_ERRORS: Final[Mapping[ResourceType, tuple[ErrorCode, str]]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


def denied(needs: Needs) -> KafkaError:
    """Return the error for a client that lacks this permission."""
    return KafkaError(*_ERRORS[needs.resource])

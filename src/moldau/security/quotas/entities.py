"""Whom a quota is for, and which of several quotas holds for a client: the most specific one that sets the key.

A quota is for a user, a client id, or both; each may be a name or the default of all that have no quota of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset((USER, CLIENT_ID, IP))

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)

CLIENT_ID_LENGTH_MAX: Final = 256
"""Of client ids that are remembered as they are. A client may send 32 KiB, and ever new ones."""

Entity = frozenset[tuple[str, str | None]]
"""The types and names of an entity; the name None is the default."""
Quotas = Mapping[Entity, Mapping[str, float]]


class Quota(NamedTuple):
    limit: float
    shared_by: Hashable
    """Equal for the clients that use up the limit together."""


def entity(**names: str | None) -> Entity:
    """Return an entity; `client_id` is the type client-id."""
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def short_client_id(client_id: str) -> str:
    """Return what is remembered of a client id: of a long one its beginning and its hash. That is longer than any other
    that is remembered, so that it is never the same."""
    if len(client_id) <= CLIENT_ID_LENGTH_MAX:
        return client_id
    return client_id[:CLIENT_ID_LENGTH_MAX] + sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()


def find_quota(quotas: Quotas, key: str, user: str, client_id: str) -> Quota | None:
    """Return the quota of a client; None if it is not limited."""
    for names in _BY_PRECEDENCE:
        wanted = frozenset(
            (kind, None if is_default else user if kind == USER else client_id) for kind, is_default in names
        )
        limit = quotas.get(wanted, {}).get(key)
        if limit is not None:
            kinds = {kind for kind, _ in names}
            return Quota(
                limit, (user if USER in kinds else None, short_client_id(client_id) if CLIENT_ID in kinds else None)
            )
    return None


_BY_PRECEDENCE: Final = (
    ((USER, False), (CLIENT_ID, False)),
    ((USER, False), (CLIENT_ID, True)),
    ((USER, False),),
    ((USER, True), (CLIENT_ID, False)),
    ((USER, True), (CLIENT_ID, True)),
    ((USER, True),),
    ((CLIENT_ID, False),),
    ((CLIENT_ID, True),),
)
"""The most specific first. True means the default of the type."""

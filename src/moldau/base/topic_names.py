"""The names of topics: which are legal, which collide, and which are internal."""

from __future__ import annotations

import re

from moldau.base.limits import TOPIC_NAME_LENGTH_MAX

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

METADATA_TOPIC = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""The topics that brokers mark as internal in their responses, as in Kafka. METADATA_TOPIC is not one of them: it is
the log of the controllers' quorum, and no response to clients lists it as a topic."""


def topic_name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name, or None. A legal name is safe as part of a directory name."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return the key under which names collide: metric names do not distinguish periods and underscores."""
    return name.replace(".", "_")

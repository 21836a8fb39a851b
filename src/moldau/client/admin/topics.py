"""Create, grow and delete topics, and read the configs of topics and brokers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.requests import topics as requests
from moldau.client.requests.ask import error_of, raise_error
from moldau.client.requests.configs import BROKER, TOPIC, describe_configs
from moldau.client.requests.topics import Growth, NewTopic
from moldau.wire.messages.create_partitions import CreatePartitionsTopicResult
from moldau.wire.messages.create_topics import CreatableTopicResult
from moldau.wire.messages.delete_topics import DeletableTopicResult
from moldau.wire.messages.describe_configs import DescribeConfigsResourceResult

TIMEOUT_MS_MIN: Final = 1_000
TOPICS_PER_REQUEST: Final = 500
"""Topics whose configs are asked for at once."""
ANSWER_MS: Final = 2_000
"""The time for the response itself."""
SOURCES: Final = {1: "topic", 2: "broker", 3: "broker", 4: "broker", 5: "default"}
TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
INLINE_TAGS: Final = frozenset({"a", "b", "code", "em", "i"})
_TAG: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>")


Outcomes = dict[str, KafkaError | None]
"""The error of each topic; None on success."""


class Config(NamedTuple):
    name: str
    value: str | None
    default: str | None
    """The value that applies if this one is removed: the next of the synonyms."""
    source: str
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None


def create_topic(
    admin: ClusterAdmin,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic, or only check that it could be; -1 is the broker's default. Raises KafkaError."""
    topic = NewTopic(name, partitions, replication_factor, configs or {})
    _raise(create_topics(admin, [topic], validate_only)[name])


def create_topics(admin: ClusterAdmin, topics: Iterable[NewTopic], validate_only: bool = False) -> Outcomes:
    return _outcomes(requests.create_topics(admin.ask_change, topics, _timeout_ms(admin), validate_only))


def grow_topic(admin: ClusterAdmin, name: str, partitions: int) -> None:
    """Add partitions, so that there are this many."""
    _raise(grow_topics(admin, [Growth(name, partitions)])[name])


def grow_topics(admin: ClusterAdmin, growth: Iterable[Growth]) -> Outcomes:
    return _outcomes(requests.create_partitions(admin.ask_change, growth, _timeout_ms(admin)))


def delete_topic(admin: ClusterAdmin, name: str) -> None:
    _raise(delete_topics(admin, [name])[name])


def delete_topics(admin: ClusterAdmin, names: Sequence[str]) -> Outcomes:
    return _outcomes(requests.delete_topics(admin.ask_change, _timeout_ms(admin), names))


def _outcomes(
    results: Iterable[CreatableTopicResult | CreatePartitionsTopicResult | DeletableTopicResult],
) -> Outcomes:
    return {each.name or "": error_of(each.error_code, each.error_message) for each in results}


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise error


def chosen_configs(
    admin: ClusterAdmin, topics: Sequence[str], names: Sequence[str] | None
) -> dict[str, dict[str, str | None] | KafkaError]:
    """Return these configs, or all, of each topic, or why they cannot be read. A broker leaves out what it does not
    know."""
    found: dict[str, dict[str, str | None] | KafkaError] = {}
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        for result in describe_configs(admin.ask, TOPIC, topics[start : start + TOPICS_PER_REQUEST], names):
            found[result.resource_name] = (
                KafkaError(ErrorCode(result.error_code), result.error_message)
                if result.error_code
                else {entry.name: entry.value for entry in result.configs}
            )
    return found


def topic_configs(admin: ClusterAdmin, name: str) -> list[Config]:
    return _configs(admin, TOPIC, name, None)


def broker_configs(admin: ClusterAdmin, broker: int) -> list[Config]:
    return _configs(admin, BROKER, str(broker), broker)


def _configs(admin: ClusterAdmin, kind: int, name: str, broker: int | None) -> list[Config]:
    ask = admin.ask if broker is None else partial(admin.ask, node_id=broker)
    (result,) = describe_configs(ask, kind, [name], synonyms=True, documentation=True)
    raise_error(result.error_code, result.error_message)
    return sorted(map(_config, result.configs))


def _config(entry: DescribeConfigsResourceResult) -> Config:
    others: Sequence[str | None] = [each.value for each in entry.synonyms if each.source != entry.config_source]
    source = SOURCES.get(entry.config_source, "default")
    return Config(
        entry.name,
        None if entry.is_sensitive else entry.value,
        (others[0] if others else None) if source != "default" else entry.value,
        source,
        entry.read_only,
        entry.is_sensitive,
        TYPES[entry.config_type] if 0 <= entry.config_type < len(TYPES) else TYPES[0],
        plain_text(entry.documentation or "") or None,
    )


def plain_text(documentation: str) -> str:
    """Return the documentation of a config without its markup: that of Apache Kafka is HTML."""
    return html.unescape(_TAG.sub(lambda tag: "" if tag[1].lower() in INLINE_TAGS else " ", documentation)).strip()


def _timeout_ms(admin: ClusterAdmin) -> int:
    """Return how long the broker may take. It has to answer before the client gives up and asks again: the retry of a
    change that was only slow would fail, because the topic exists already, or no longer."""
    return max(TIMEOUT_MS_MIN, admin.change_ms - ANSWER_MS)

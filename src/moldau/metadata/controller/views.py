"""Creating views, and refusing what a view cannot do: it has no log, and its partitions are those of its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid, uuid_text
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.base.view_configs import (
    VIEW_CONFIGS,
    VIEW_FROM,
    VIEW_MADE_BY,
    VIEW_MADE_BY_LENGTH_MAX,
    VIEW_PREFIX,
    VIEW_SOURCE_ID,
)
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord, TopicRecord
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfigs, CreatableTopicResult
from moldau.wire.schema import MetadataRecord

VIEWS_MAX: Final = 1000
"""Views of a cluster. Every change of the metadata looks at all of them."""
CHARACTERS_PER_REQUEST_MAX: Final = 200_000
"""Of the definitions of all views in one request: the controller does nothing else while it checks them."""
_NAMES: Final = frozenset(definition.name for definition in VIEW_CONFIGS)


class NewViews:
    """The views of one request, and whether there may be more."""

    def __init__(self, image: MetadataImage) -> None:
        self._existing = len(image.views)
        self._characters = 0
        self.count = 0
        """Accepted so far; the caller counts."""

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise KafkaError if there is one view too many, or too much to check."""
        if self._existing + self.count >= VIEWS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {VIEWS_MAX} views already; delete one first.")
        self._characters += sum(map(len, configs.values()))
        if self._characters > CHARACTERS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"More than {CHARACTERS_PER_REQUEST_MAX} characters of views in one request: create them in several.",
            )


def create_view(
    image: MetadataImage,
    topic: CreatableTopic,
    configs: Mapping[str, str],
    describe_configs: Callable[[Mapping[str, str]], Sequence[CreatableTopicConfigs]],
    topic_id: Uuid,
    new_views: NewViews,
) -> tuple[CreatableTopicResult, list[MetadataRecord]]:
    """Return the result and the records of a new view, whose name is free. Raise KafkaError if it is wrong."""
    source = _source(image, configs)
    _check_layout(topic, source)
    new_views.check(configs)
    _check_configs(configs)
    stored = {**configs, VIEW_SOURCE_ID: uuid_text(source.id)}
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(ConfigResource.TOPIC, topic.name, name, value) for name, value in stored.items()]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(source.partitions),
        replication_factor=source.replication_factor,
        configs=describe_configs(stored),
    )
    return result, records


def _source(image: MetadataImage, configs: Mapping[str, str]) -> TopicImage:
    name = configs.get(VIEW_FROM)
    if not name:
        given = ", ".join(sorted(each for each in configs if each.startswith(VIEW_PREFIX)))
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{given}: only a view has this, and a view needs {VIEW_FROM}.")
    source = image.topics.get(name)
    if source is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{VIEW_FROM}: there is no topic '{name}'.")
    if source.is_view:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{VIEW_FROM}: '{name}' is a view; a view shows a stored topic.")
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{VIEW_FROM}: '{name}' is internal and has no views.")
    return source


def _check_configs(configs: Mapping[str, str]) -> None:
    if VIEW_SOURCE_ID in configs:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{VIEW_SOURCE_ID} is set by the controller alone.")
    unknown = sorted(name for name in configs if name.startswith(VIEW_PREFIX) and name not in _NAMES)
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {', '.join(unknown)}.")
    others = sorted(name for name in configs if not name.startswith(VIEW_PREFIX))
    if others:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{', '.join(others)}: a view has no log that this could apply to.")
    made_by = configs.get(VIEW_MADE_BY, "")
    if len(made_by) > VIEW_MADE_BY_LENGTH_MAX or not made_by.isprintable():
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{VIEW_MADE_BY} has at most {VIEW_MADE_BY_LENGTH_MAX} printable characters."
        )
    from moldau.views.definition import view_definition  # for the first view: most clusters have none
    from moldau.views.parser import BadExpression
    from moldau.views.sql import compile_queries

    try:
        compile_queries(view_definition(configs))
    except BadExpression as wrong:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{wrong}.") from None


def _check_layout(topic: CreatableTopic, source: TopicImage) -> None:
    partitions, factor = len(source.partitions), source.replication_factor
    if topic.assignments:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A view is where its source '{source.name}' is: assign nothing.")
    if topic.num_partitions not in (-1, partitions):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A view has the partitions of its source '{source.name}': {partitions}, or -1 for the same.",
        )
    if topic.replication_factor not in (-1, factor):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A view has the replicas of its source '{source.name}': {factor}, or -1 for the same.",
        )


def source_name(image: MetadataImage, topic: TopicImage) -> str:
    """The name of a view's source, also if it was deleted."""
    return image.configs_of(ConfigResource.TOPIC, topic.name).get(VIEW_FROM, "")


def produce_error(image: MetadataImage, view: str) -> KafkaError:
    """Return the error for a produce request to a view."""
    source = source_name(image, image.topics[view])
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"'{view}' is a view and cannot be written; produce to its source '{source}'."
    )


def refuse_view(image: MetadataImage, topic: TopicImage) -> None:
    """Raise KafkaError for a change of partitions, replicas or leaders of a view."""
    if topic.is_view:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"'{topic.name}' is a view; its partitions are those of '{source_name(image, topic)}'.",
        )


def refuse_view_configs(image: MetadataImage, name: str, new: Mapping[str, str]) -> None:
    """Raise KafkaError if a view would be changed, or a stored topic would become one."""
    if name in image.views:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"'{name}' is a view, and a view does not change: delete it and create another."
        )
    wrong = sorted(each for each in new if each.startswith(VIEW_PREFIX))
    if wrong:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{', '.join(wrong)}: a topic becomes a view only by its creation.")

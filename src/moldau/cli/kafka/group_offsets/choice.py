"""The groups and partitions that a command line of kafka-consumer-groups or kafka-share-groups selects, and how both
print an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments
from moldau.cli.kafka.group_offsets import reset_plan
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.group_values import CLASSIC, CONSUMER, state_name
from moldau.client.admin.groups import Groups


class WrongArgument(Exception):
    """The value of a flag is wrong. It is detected after the tool has connected, and reported as a usage error."""


def error_line(message: str) -> str:
    return f"\nError: {message}"


def chosen_groups(arguments: Arguments, groups: Groups) -> list[str]:
    return listed_ids(groups) if arguments.has("all-groups") else arguments.values_of("group")


def listed_ids(groups: Groups) -> list[str]:
    """Return the ids of all consumer groups, sorted."""
    try:
        group_ids = [group.group_id for group in groups.listed(types=(CLASSIC, CONSUMER)) if group.is_consumer_group]
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(error)) from error
    return sorted(set(group_ids))


def parse_states(text: str | None, valid_states: Sequence[str]) -> list[str]:
    """Parse `stable,empty` and return the states in Kafka's spelling. An empty list selects all states."""
    states = [state_name(name.strip()) for name in (text or "").rstrip(",").split(",")] if text else []
    if not set(states) <= set(valid_states):
        raise WrongArgument(f"Invalid state list '{text}'. Valid states are: {', '.join(valid_states)}")
    return states


def split_topics(topic_arguments: Iterable[str]) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions that are named one by one, and the topics that are named as a whole."""
    partitions: list[TopicPartition] = []
    topics: list[str] = []
    for argument in topic_arguments:
        if ":" not in argument:
            topics.append(argument)
            continue
        try:
            topic, indexes = reset_plan.parse_topic(argument)
        except ValueError as error:
            raise WrongArgument(str(error)) from error
        partitions += [TopicPartition(topic, index) for index in indexes]
    return partitions, topics

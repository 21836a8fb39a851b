"""Views by the admin client: create one, read the configs of all, and a temporary one for a single command."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.view_configs import VIEW_FROM, VIEW_MADE_BY, VIEW_PREFIX, VIEW_SELECT, VIEW_WHERE
from moldau.cli.cluster.connect import admin_failures, command_failure
from moldau.cli.connect import Broker, CommandFailed
from moldau.cli.partition_offsets import DELETED_MEANWHILE
from moldau.client.admin.cluster_values import TopicReplicas
from moldau.client.admin.topics import chosen_configs, create_topic, delete_topic

TEMPORARY_PREFIX = "moldau-passing-view-"
"""The names of views that one command makes and deletes."""
TEMPORARY_MADE_BY = "moldau-consume"
"""What they say made them: `view delete --made-by` finds those that a killed command left."""


def create_view(broker: Broker, name: str, configs: Mapping[str, str]) -> None:
    with admin_failures(name):
        create_topic(broker.admin, name, configs=configs)


def readable_views(broker: Broker, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configs of those of these topics that are views, without topics whose configs this user may not read
    or that are deleted meanwhile."""
    return view_configs(broker, topics, DELETED_MEANWHILE | {ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def views_of(broker: Broker, sources: Collection[str]) -> dict[str, list[str]]:
    """Return the names of the views of each source that has some, of those that this user may see. Only the source is
    asked for: there may be thousands of topics."""
    others = sorted(name for name in broker.metadata().topics if name not in sources)
    views: dict[str, list[str]] = {}
    with admin_failures():
        found = chosen_configs(broker.admin, others, [VIEW_FROM])
    for name, configs in found.items():
        source = None if isinstance(configs, KafkaError) else configs.get(VIEW_FROM)
        if source is not None and source in sources:
            views.setdefault(source, []).append(name)
    return views


def source_of(broker: Broker, topic: str) -> str | None:
    """Return what a topic is a view of; None if it is stored, or this user may not see that."""
    return readable_views(broker, [topic]).get(topic, {}).get(VIEW_FROM)


def refuse_orphans(broker: Broker, topics: Iterable[TopicReplicas]) -> None:
    """Fail if one of the topics is a view whose source was deleted: nobody can read it."""
    for topic in topics:
        if not topic.partitions and (source := source_of(broker, topic.name)) is not None:
            raise CommandFailed(
                f"{topic.name} is a view of {source}, which was deleted: it shows nothing;"
                f" `moldau view delete {topic.name}` deletes it"
            )


def view_configs(
    broker: Broker, topics: Iterable[str], skipped: Collection[ErrorCode] = ()
) -> dict[str, dict[str, str]]:
    """Return the configs of those of these topics that are views, without topics that fail with an error in
    `skipped`."""
    with admin_failures():
        described = chosen_configs(broker.admin, list(topics), None)
    found = {}
    for name, configs in described.items():
        if isinstance(configs, KafkaError):
            if configs.code not in skipped:
                raise command_failure(configs, name) from configs
        elif configs.get(VIEW_FROM):
            found[name] = {key: value or "" for key, value in configs.items() if key.startswith(VIEW_PREFIX)}
    return found


@contextmanager
def temporary_view(broker: Broker, source: str, where: str | None, fields: str | None) -> Iterator[str]:
    """Create a view for one command, and delete it afterwards."""
    name = TEMPORARY_PREFIX + secrets.token_hex(6)
    given = {VIEW_FROM: source, VIEW_WHERE: where, VIEW_SELECT: fields, VIEW_MADE_BY: TEMPORARY_MADE_BY}
    create_view(broker, name, {key: value for key, value in given.items() if value is not None})
    try:
        yield name
    finally:
        with suppress(KafkaError, OSError, MalformedData):
            delete_topic(broker.admin, name)

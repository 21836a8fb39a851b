"""Views by the admin client: create one, read the configs of all, and a temporary one for a single command."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from moldau.base.errors import KafkaError
from moldau.base.view_configs import VIEW_FROM, VIEW_MADE_BY, VIEW_PREFIX, VIEW_SELECT, VIEW_WHERE
from moldau.cli.cluster.connect import answering_cluster
from moldau.cli.cluster_metadata import TopicMetadata
from moldau.cli.connect import Broker, CommandFailed, admin_api, error_name, outcome
from moldau.cli.partition_offsets import DELETED_MEANWHILE
from moldau.client.cluster_admin import ClusterAdmin
from moldau.client.topic_admin import chosen_configs

TIMEOUT_MS = 15_000
TEMPORARY_PREFIX = "moldau-passing-view-"
"""The names of views that one command makes and deletes."""
TEMPORARY_MADE_BY = "moldau-consume"
"""What they say made them: `view delete --made-by` finds those that a killed command left."""


def create_view(broker: Broker, name: str, configs: Mapping[str, str]) -> None:
    new = admin_api().NewTopic(name, num_partitions=-1, replication_factor=-1, config=dict(configs))
    outcome(broker.admin.create_topics([new])[name], name)


def readable_views(broker: Broker, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configs of those of these topics that are views, without topics whose configs this user may not read
    or that are deleted meanwhile."""
    return view_configs(broker, topics, DELETED_MEANWHILE | {"TOPIC_AUTHORIZATION_FAILED"})


def views_of(broker: Broker, sources: Collection[str]) -> dict[str, list[str]]:
    """Return the names of the views of each source that has some, of those that this user may see. Only the source is
    asked for: there may be thousands of topics."""
    others = sorted(name for name in broker.metadata().topics if name not in sources)
    views: dict[str, list[str]] = {}
    with answering_cluster(broker) as cluster:
        for name, configs in chosen_configs(ClusterAdmin(cluster, TIMEOUT_MS), others, [VIEW_FROM]).items():
            source = None if isinstance(configs, KafkaError) else configs.get(VIEW_FROM)
            if source is not None and source in sources:
                views.setdefault(source, []).append(name)
    return views


def source_of(broker: Broker, topic: str) -> str | None:
    """Return what a topic is a view of; None if it is stored, or this user may not see that."""
    return readable_views(broker, [topic]).get(topic, {}).get(VIEW_FROM)


def refuse_orphans(broker: Broker, topics: Iterable[TopicMetadata]) -> None:
    """Fail if one of the topics is a view whose source was deleted: nobody can read it."""
    for topic in topics:
        if not topic.partitions and (source := source_of(broker, topic.topic)) is not None:
            raise CommandFailed(
                f"{topic.topic} is a view of {source}, which was deleted: it shows nothing;"
                f" `moldau view delete {topic.topic}` deletes it"
            )


def view_configs(broker: Broker, topics: Iterable[str], skipped: Collection[str] = ()) -> dict[str, dict[str, str]]:
    """Return the configs of those of these topics that are views, without topics that fail with an error whose name is
    in `skipped`."""
    api = admin_api()
    resources = [api.ConfigResource(api.ConfigResource.Type.TOPIC, name) for name in topics]
    if not resources:
        return {}
    found = {}
    for resource, future in broker.admin.describe_configs(resources).items():
        try:
            entries = outcome(future, resource.name)
        except CommandFailed as error:
            if error_name(error) not in skipped:
                raise
            continue
        configs = {each.name: each.value for each in entries.values() if each.name.startswith(VIEW_PREFIX)}
        if configs.get(VIEW_FROM):
            found[resource.name] = configs
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
        with suppress(CommandFailed):
            outcome(broker.admin.delete_topics([name])[name], name)

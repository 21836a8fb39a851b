"""Which topics are views of others. A view does not change, so a topic's configs are read once for each topic id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.view_configs import (
    VIEW_FORMAT,
    VIEW_FROM,
    VIEW_HEADERS,
    VIEW_KEY,
    VIEW_MADE_BY,
    VIEW_ON_ERROR,
    VIEW_SELECT,
    VIEW_WHERE,
)
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.topics import chosen_configs
from moldau.console.collector.state import TopicState, View, Views

NAMES: Final = (
    VIEW_FROM, VIEW_WHERE, VIEW_SELECT, VIEW_FORMAT, VIEW_KEY, VIEW_HEADERS, VIEW_ON_ERROR, VIEW_MADE_BY,
)  # fmt: skip


def view_of(configs: Mapping[str, str | None]) -> View | None:
    """Return the view that a topic with these configs is; None if it is stored."""
    source, *others = (configs.get(name) or None for name in NAMES)
    return None if source is None else View(source, *others)


def view_data(view: View | None, topic: TopicState | None) -> dict[str, Any] | None:
    """Return a view as JSON. Without partitions, its source was deleted."""
    if view is None:
        return None
    said = view._asdict()
    return {"from": said.pop("source"), **said, "source_deleted": topic is not None and not topic.leaders}


def read_views(admin: ClusterAdmin, topics: Mapping[str, TopicState], before: Views) -> Views:
    """Find the views among these topics; ask for the configs of those that are new. Topics whose configs the user may
    not see count as stored."""
    keys = {name: (name, topic.topic_id) for name, topic in topics.items()}
    known = {key: before.known[key] for key in keys.values() if key in before.known}
    new = [name for name, key in keys.items() if key not in known]
    for name, configs in chosen_configs(admin, new, NAMES).items():
        if not isinstance(configs, KafkaError):
            known[keys[name]] = view_of(configs)
        elif configs.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            known[keys[name]] = None
    return Views({name: view for name, key in keys.items() if (view := known.get(key)) is not None}, known)

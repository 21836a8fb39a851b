"""Finds the views that show a shape of some topics, or makes them.

Requests go to any broker. Nothing is made before the broker has agreed to make all of it (CreateTopics with
validate_only) and has shown that it knows views: other brokers refuse their configs, or would silently make a stored
topic without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.base.view_configs import VIEW_CONFIGS, VIEW_FROM, VIEW_MADE_BY, VIEW_PREFIX
from moldau.client.cluster import RETRIABLE, Cluster
from moldau.client.requests.configs import TOPIC, describe_configs
from moldau.client.requests.metadata import metadata
from moldau.client.requests.topics import NewTopic, create_topics, delete_topics
from moldau.spark.pushed.shape import OPTIONS, PREFIX, Shape, is_made
from moldau.wire.messages.create_topics import CreatableTopicResult

TIMEOUT_MS: Final = 10_000
SEARCHED_TOPICS_MAX: Final = 2_000
"""Among more topics no view of another name is searched: that describes all of them."""
TOPICS_PER_REQUEST: Final = 500
ATTEMPTS_MAX: Final = 3
"""How often views are looked up again, because others made or deleted them in between."""
_KEYS: Final = tuple(definition.name for definition in VIEW_CONFIGS)
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class View(NamedTuple):
    name: str
    topic_id: bytes
    """The definition of a view does not change, but another topic may get its name."""


Views = dict[str, View]
"""The view of each topic."""


class _Layout(NamedTuple):
    """A topic in the metadata."""

    error: ErrorCode
    topic_id: bytes
    partitions: int

    @property
    def is_orphan(self) -> bool:
        """Whether it is a view whose source was deleted: it is unknown to readers, but has an id."""
        return self.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.topic_id != ZERO_UUID


class _Known(NamedTuple):
    """What is known of one topic."""

    error: ErrorCode
    configs: Mapping[str, str]
    """Those of a view; empty for a stored topic."""
    topic_id: bytes = ZERO_UUID
    partitions: int = 0


def find_or_make(cluster: Cluster, sources: Sequence[str], shape: Shape, origin: str) -> Views:
    """Return a view for each topic, except for topics that do not exist. `origin` is noted in those that are made.

    Raises KafkaError, whose message says what the user or an administrator can do. The error is retriable if the
    broker does not know yet what the controller knows.
    """
    views: Views = {}
    missing = list(sources)
    for _ in range(ATTEMPTS_MAX):
        own = _describe(cluster, [shape.view_name(source) for source in missing])
        views |= _usable(own, missing, shape)
        missing = [source for source in missing if source not in views]
        views |= _search(cluster, missing, shape)
        missing = [source for source in missing if source not in views]
        if not missing:
            return views
        _check_free(cluster, own, missing, shape)
        made = _make(cluster, missing, shape, origin, own)
        if made is not None:
            return views | made
    raise KafkaError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"Others make or delete views of {', '.join(missing)}, and {cluster.bootstrap} does not show them yet",
    )


def check(cluster: Cluster, sources: Sequence[str], shape: Shape) -> list[str]:
    """Return the topics that do not exist. Raise KafkaError if a view can neither be found nor made. Makes nothing."""
    own = _describe(cluster, [shape.view_name(source) for source in sources])
    found = _usable(own, sources, shape)
    missing = [source for source in sources if source not in found]
    try:
        _check_free(cluster, own, missing, shape)
        new = [source for source in missing if own[shape.view_name(source)].error]  # one without a source is replaced
        return _create(cluster, new, shape, "", validate_only=True).absent if new else []
    except KafkaError as error:
        is_hopeless = error.code in (ErrorCode.INVALID_CONFIG, ErrorCode.UNSUPPORTED_VERSION)
        if not is_hopeless and _search(cluster, missing, shape).keys() == set(missing):
            return []
        raise


def _usable(known: Mapping[str, _Known], sources: Iterable[str], shape: Shape) -> Views:
    """The topics whose view has its own name. A view without partitions has lost its source."""
    named = {source: shape.view_name(source) for source in sources}
    return {
        source: View(name, known[name].topic_id)
        for source, name in named.items()
        if known[name].partitions and shape.is_shown_by(known[name].configs, source)
    }


def _search(cluster: Cluster, sources: Sequence[str], shape: Shape) -> Views:
    """Views of any name that show the same, such as one that an administrator made. The first name wins."""
    if not sources:
        return {}
    names = sorted(name for name, layout in _layouts(cluster, None).items() if layout.partitions)
    if len(names) > SEARCHED_TOPICS_MAX:
        return {}
    found: Views = {}
    for name, known in _describe(cluster, names).items():
        for source in sources:
            if source not in found and known.partitions and shape.is_shown_by(known.configs, source):
                found[source] = View(name, known.topic_id)
    return found


def _check_free(cluster: Cluster, own: Mapping[str, _Known], sources: Iterable[str], shape: Shape) -> None:
    """Raise KafkaError if a view's name is taken by something else, or if the user may not see a view of this name."""
    named = {source: shape.view_name(source) for source in sources}
    shown = _layouts(cluster, list(named.values())) if named else {}
    for source, name in named.items():
        known = own[name]
        if denial := next((error for error in (known.error, shown[name].error) if error in _DENIED), None):
            raise _denied(source, shape, denial)
        if known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if known.error:
            raise KafkaError(known.error, f"{name}: {known.error.name}")
        if not shape.is_shown_by(known.configs, source):
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"{name} at {cluster.bootstrap} is no view of {source} with this where and fields, but has the name of"
                f" one. If nobody needs it, `moldau topic delete {name}` deletes it",
            )
        if not is_made(known.configs):
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"{name} is a view of a topic {source} that was deleted. `moldau view delete {name}` deletes it; then"
                f" `{shape.command(source)}` makes it anew",
            )


class _Created(NamedTuple):
    made: Views
    absent: list[str]
    """Topics that do not exist."""
    has_others: bool
    """Whether somebody else made a view in between."""


def _make(
    cluster: Cluster, sources: Sequence[str], shape: Shape, origin: str, own: Mapping[str, _Known]
) -> Views | None:
    """Return the views that were made; None if others made one at the same time: look again."""
    lost = [known.topic_id for source in sources if not (known := own[shape.view_name(source)]).error]
    if lost:
        _delete(cluster, lost)
    checked = _create(cluster, sources, shape, origin, validate_only=True)
    wanted = [source for source in sources if source in checked.made]
    created = _create(cluster, wanted, shape, origin, validate_only=False) if wanted else checked
    if checked.has_others or created.has_others:
        return None
    cluster.retry(lambda: _check_visible(cluster, created.made), TIMEOUT_MS)
    return created.made


def _create(cluster: Cluster, sources: Sequence[str], shape: Shape, origin: str, validate_only: bool) -> _Created:
    mark = {VIEW_MADE_BY: origin} if origin else {}
    topics = [NewTopic(shape.view_name(source), configs=shape.definition(source) | mark) for source in sources]
    response = create_topics(cluster.ask_any, topics, TIMEOUT_MS, validate_only)
    results = {result.name: result for result in response}
    _check_complete([topic.name for topic in topics], results)
    created = _Created({}, [], any(each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS for each in response))
    for source in sources:
        result = results[shape.view_name(source)]
        if not result.error_code:
            _check_knows_views(cluster, result)
            created.made[source] = View(result.name, bytes(result.topic_id))
        elif result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            created.absent.append(source)
        elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise _refusal(cluster, result, source, shape)
    return created


def _check_knows_views(cluster: Cluster, result: CreatableTopicResult) -> None:
    """The response has the configs that the broker knows. The user may see them, or would have been refused before."""
    if VIEW_FROM not in {config.name for config in result.configs or ()}:
        raise _no_views(cluster)


def _refusal(cluster: Cluster, result: CreatableTopicResult, source: str, shape: Shape) -> KafkaError:
    code, message = ErrorCode(result.error_code), result.error_message or ErrorCode(result.error_code).name
    if code in RETRIABLE:
        return KafkaError(code, f"{result.name}: {message}")
    if code in _DENIED:
        return _denied(source, shape, code)
    if "nknown topic config" in message and VIEW_PREFIX in message:  # Apache names any one of them
        return _no_views(cluster)
    for config, option in OPTIONS.items():
        if message.startswith(f"{config}: "):
            return KafkaError(code, f"{option}: {message.removeprefix(config + ': ').removesuffix('.')}")
    return KafkaError(code, f"{source} cannot be read with where or fields: {message.removesuffix('.')}")


def _no_views(cluster: Cluster) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"The broker at {cluster.bootstrap} is not Moldau and has no views, which the options where and fields need;"
        " leave them out, and filter in Spark",
    )


def _denied(source: str, shape: Shape, code: ErrorCode) -> KafkaError:
    name = shape.view_name(source)
    return KafkaError(
        code,
        f"To read {source} with where or fields, this user needs a view of it and may not make one (READ on {source};"
        f" CREATE, DESCRIBE_CONFIGS and READ on topics that begin with {PREFIX}). An administrator can:"
        f" `{shape.command(source)}` and `moldau acl allow USER read,describe-configs --topic {name}`",
    )


def _delete(cluster: Cluster, topic_ids: Iterable[bytes]) -> None:
    """Delete views whose source is gone. By id: another reader may have made one under the same name by now."""
    for result in delete_topics(cluster.ask_any, TIMEOUT_MS, topic_ids=topic_ids):
        if result.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_ID):
            code = ErrorCode(result.error_code)
            raise KafkaError(code, f"{result.name} has lost its source and cannot be deleted: {code.name}")


def _check_visible(cluster: Cluster, made: Views) -> None:
    shown = _layouts(cluster, [view.name for view in made.values()])
    for view in made.values():
        if not shown[view.name].partitions:
            code = shown[view.name].error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"{view.name} is made, but {cluster.bootstrap} does not show it: {code.name}")


def _describe(cluster: Cluster, names: Sequence[str]) -> dict[str, _Known]:
    """Return what is known of each of these topics."""
    known: dict[str, _Known] = {}
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        some = names[start : start + TOPICS_PER_REQUEST]
        for result in describe_configs(cluster.ask_any, TOPIC, some, list(_KEYS)):
            configs = {entry.name: entry.value for entry in result.configs if entry.value is not None}
            known[result.resource_name] = _Known(ErrorCode(result.error_code), configs)
    _check_complete(names, known)
    views = [name for name, each in known.items() if each.configs]
    for name, layout in (_layouts(cluster, views) if views else {}).items():
        error = ErrorCode.NONE if layout.is_orphan else layout.error
        known[name] = _Known(error, known[name].configs, layout.topic_id, layout.partitions)
    return known


def _layouts(cluster: Cluster, names: Sequence[str] | None) -> dict[str, _Layout]:
    """Return these topics, or all that the user may see, as they are in the metadata."""
    response = metadata(cluster.ask_any, names)
    layouts = {
        topic.name or "": _Layout(ErrorCode(topic.error_code), bytes(topic.topic_id), len(topic.partitions))
        for topic in response.topics
        if not topic.is_internal
    }
    _check_complete(names or (), layouts)
    return layouts


def _check_complete(names: Iterable[str], response: Mapping[str, object]) -> None:
    if absent := set(names) - response.keys():
        raise MalformedData(f"the response does not have {min(absent)}, which was in the request")

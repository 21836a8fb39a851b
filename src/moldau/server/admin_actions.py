"""What an administrative request changed, for the audit log: the resources, how they were changed, and the results.

Values of configs, passwords and hashes are never part of it: a config may be a secret.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.base.limits import TOPIC_NAME_LENGTH_MAX
from moldau.base.view_configs import VIEW_FROM
from moldau.metadata.records import ConfigResource
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.wire.apis import ApiKey

NAMES_MAX: Final = 20
"""Names of configs or partitions in one line; the rest is counted."""
CONFIG_OPERATIONS: Final = {0: "set", 1: "delete", 2: "append", 3: "subtract"}
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class AdminAction(NamedTuple):
    resource: str
    """KIND:NAME"""
    error_code: int
    detail: object = ""
    """Its text is made only for a line that is written."""


class _Lazy:
    """A text that is made when it is needed."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __str__(self) -> str:
        return self._make()


def _joined(items: Sequence[object]) -> str:
    return _first_joined(items, len(items))


def _first_joined(items: Iterable[object], count: int) -> str:
    """Join the first of `count` items."""
    rest = f",+{count - NAMES_MAX}" if count > NAMES_MAX else ""
    return ",".join(map(str, islice(items, NAMES_MAX))) + rest


def _partition_count(topics: Sequence[Any]) -> int:
    return sum(map(len, map(attrgetter("partitions"), topics)))


def _create_topics(request: Any, response: Any) -> Iterator[AdminAction]:
    """Responses before version 5 do not have the numbers; requests have -1 for the defaults."""
    requested = {topic.name: topic for topic in request.topics}
    for result in response.topics:
        topic = requested.get(result.name)
        source = None if topic is None else _view_source(topic)
        counted = result if result.num_partitions >= 0 else topic or result
        detail = f"partitions={counted.num_partitions} replicas={counted.replication_factor}"
        if result.error_code:
            detail = ""
        if source:
            detail = f"view of {source[:TOPIC_NAME_LENGTH_MAX]} {detail}".rstrip()
        yield AdminAction(f"topic:{result.name}", result.error_code, detail)


def _view_source(topic: Any) -> str | None:
    """Return the source of a view, None for other topics. Its readers see what is in the source."""
    if not topic.configs:
        return None
    return next((config.value for config in topic.configs if config.name == VIEW_FROM), None)


def _delete_topics(request: Any, response: Any) -> Iterator[AdminAction]:
    for result in response.responses:
        name = result.name if result.name is not None else f"id-{result.topic_id.hex()}"
        yield AdminAction(f"topic:{name}", result.error_code)


def _create_partitions(request: Any, response: Any) -> Iterator[AdminAction]:
    counts = {topic.name: topic.count for topic in request.topics}
    for result in response.results:
        yield AdminAction(f"topic:{result.name}", result.error_code, f"partitions={counts.get(result.name)}")


def _alter_configs(request: Any, response: Any) -> Iterator[AdminAction]:
    """The names of the configs, not their values."""
    key = attrgetter("resource_type", "resource_name")
    changes = dict(zip(map(key, request.resources), request.resources, strict=True))
    for result in response.responses:
        kind = _config_kind(result.resource_type)
        change = changes.get(key(result))
        detail = "" if change is None else _Lazy(partial(_config_names, change))
        yield AdminAction(f"{kind}:{result.resource_name}", result.error_code, detail)


def _config_names(resource: Any) -> str:
    names = (
        f"{CONFIG_OPERATIONS.get(getattr(config, 'config_operation', 0), 'set')}:{config.name}"
        for config in resource.configs
    )
    return _first_joined(names, len(resource.configs))


def _config_kind(code: int) -> str:
    try:
        return ConfigResource(code).name.lower()
    except ValueError:
        return str(code)


def _create_acls(request: Any, response: Any) -> Iterator[AdminAction]:
    for creation, result in zip(request.creations, response.results, strict=False):
        yield _acl(creation, creation.resource_pattern_type, result.error_code)


def _delete_acls(request: Any, response: Any) -> Iterator[AdminAction]:
    for result in response.filter_results:
        if result.error_code:
            yield AdminAction("acl:", result.error_code)
        for removed in result.matching_acls:
            yield _acl(removed, removed.pattern_type, removed.error_code)


def _acl(acl: Any, pattern_type: int, error_code: int) -> AdminAction:
    kind = _resource_kind(acl.resource_type)
    return AdminAction(f"{kind}:{acl.resource_name}", error_code, _Lazy(partial(_acl_text, acl, pattern_type)))


@cache
def _resource_kind(code: int) -> str:
    return ResourceType(code).name.lower()


def _acl_text(acl: Any, pattern_type: int) -> str:
    binding = AclBinding(
        ResourceType(acl.resource_type),
        acl.resource_name,
        PatternType(pattern_type),
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        Permission(acl.permission_type),
    )
    return str(binding)


def _alter_scram(request: Any, response: Any) -> Iterator[AdminAction]:
    changes: dict[str, list[Any]] = defaultdict(list)
    for each in chain(request.deletions, request.upsertions):
        changes[each.name].append(each)
    for result in response.results:
        detail = _Lazy(partial(_scram_changes, changes.get(result.user, ())))
        yield AdminAction(f"user:{result.user}", result.error_code, detail)


def _scram_changes(changes: Sequence[Any]) -> str:
    names = (
        f"{'set' if hasattr(each, 'salt') else 'delete'}:{SCRAM_MECHANISMS.get(each.mechanism, str(each.mechanism))}"
        for each in changes
    )
    return _first_joined(names, len(changes))


def _alter_quotas(request: Any, response: Any) -> Iterator[AdminAction]:
    part_key = attrgetter("entity_type", "entity_name")
    changes = {frozenset(map(part_key, entry.entity)): entry.ops for entry in request.entries}
    for result in response.entries:
        ops = changes.get(frozenset(map(part_key, result.entity)), ())
        yield AdminAction(
            f"quota:{_quota_entity(result.entity)}", result.error_code, _Lazy(partial(_quota_changes, ops))
        )


def _quota_changes(ops: Sequence[Any]) -> str:
    changes = (f"delete:{change.key}" if change.remove else f"{change.key}={change.value:g}" for change in ops)
    return _first_joined(changes, len(ops))


def _quota_entity(parts: Sequence[Any]) -> str:
    """Return the parts in order, of an entity with nonsensically many parts only the first."""
    some = parts[:NAMES_MAX]
    names = ("<default>" if part.entity_name is None else part.entity_name for part in some)
    return ",".join(sorted(f"{part.entity_type}={name}" for part, name in zip(some, names, strict=True)))


def _reassign(request: Any, response: Any) -> Iterator[AdminAction]:
    """The response has the partitions in the order of the request."""
    if response.error_code:
        yield AdminAction("cluster:", response.error_code, f"partitions={_partition_count(request.topics)}")
    for requested, topic in zip(request.topics, response.responses, strict=False):
        for wanted, each in zip(requested.partitions, topic.partitions, strict=False):
            detail = "cancel" if wanted.replicas is None else _Lazy(partial(_replicas, wanted))
            yield AdminAction(f"partition:{topic.name}-{each.partition_index}", each.error_code, detail)


def _replicas(partition: Any) -> str:
    return f"replicas={_joined(partition.replicas)}"


def _elect_leaders(request: Any, response: Any) -> Iterator[AdminAction]:
    kind = "unclean" if request.election_type else "preferred"
    if response.error_code:
        yield AdminAction("cluster:", response.error_code, kind)
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield AdminAction(f"partition:{topic.topic}-{each.partition_id}", each.error_code, kind)


def _update_features(request: Any, response: Any) -> Iterator[AdminAction]:
    levels = [f"{update.feature}={update.max_version_level}" for update in request.feature_updates]
    yield AdminAction("cluster:", response.error_code, _joined(levels))


def _unregister_broker(request: Any, response: Any) -> Iterator[AdminAction]:
    yield AdminAction(f"broker:{request.broker_id}", response.error_code)


def _raft_voter(request: Any, response: Any) -> Iterator[AdminAction]:
    yield AdminAction(f"voter:{request.voter_id}", response.error_code)


def _delete_groups(request: Any, response: Any) -> Iterator[AdminAction]:
    for result in response.results:
        yield AdminAction(f"group:{result.group_id}", result.error_code)


def _delete_offsets(request: Any, response: Any) -> Iterator[AdminAction]:
    names = (f"{topic.name}-{each.partition_index}" for topic in request.topics for each in topic.partitions)
    detail = _first_joined(names, _partition_count(request.topics))
    yield AdminAction(f"group:{request.group_id}", response.error_code or first_error(response), detail)


def _reset_offsets(request: Any, response: Any) -> Iterator[AdminAction]:
    names = (
        f"{topic.name or topic.topic_id.hex()}-{each.partition_index}={each.committed_offset}"
        for topic in request.topics
        for each in topic.partitions
    )
    detail = _first_joined(names, _partition_count(request.topics))
    yield AdminAction(f"group:{request.group_id}", first_error(response), detail)


def first_error(response: Any) -> int:
    """Return the first error of a partition; 0 if there is none."""
    codes = (map(attrgetter("error_code"), topic.partitions) for topic in response.topics)
    return next(filter(None, chain.from_iterable(codes)), 0)


def _delete_records(request: Any, response: Any) -> Iterator[AdminAction]:
    for topic in response.topics:
        for each in topic.partitions:
            yield AdminAction(
                f"partition:{topic.name}-{each.partition_index}", each.error_code, f"before={each.low_watermark}"
            )


Describe = Callable[[Any, Any], Iterator[AdminAction]]


def _create_token(request: Any, response: Any) -> Iterator[AdminAction]:
    owner = f"{response.principal_type}:{response.principal_name}"
    detail = "" if response.error_code else f"owner={owner} expires={response.expiry_timestamp_ms}"
    yield AdminAction(f"delegation_token:{response.token_id}", response.error_code, detail)


def _change_token(request: Any, response: Any) -> Iterator[AdminAction]:
    """The request has no id of the token, and its HMAC is a secret."""
    detail = "" if response.error_code else f"expires={response.expiry_timestamp_ms}"
    yield AdminAction("delegation_token:", response.error_code, detail)


ADMIN_ACTIONS: Final[Mapping[ApiKey, Describe]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.ADD_RAFT_VOTER: _raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: _raft_voter,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.OFFSET_COMMIT: _reset_offsets,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _change_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _change_token,
}
"""The APIs that are audited. Each function returns the actions of a request that was answered."""


def is_administrative(api: ApiKey, request: Any) -> bool:
    """Return whether a request of an audited API is to be logged: not if it only validates, and commits of offsets only
    without a member. Tools reset offsets so, but also consumers that assign partitions themselves commit so."""
    if api is ApiKey.OFFSET_COMMIT:
        return bool(request.generation_id_or_member_epoch < 0)  # then a member id means nothing
    return not getattr(request, "validate_only", False)


def admin_actions(api: ApiKey, request: Any, response: Any) -> Iterator[AdminAction]:
    """Return what the request changed, or tried to change."""
    return ADMIN_ACTIONS[api](request, response)


@cache
def result_name(error_code: int) -> str:
    """Return OK, or the name of the error."""
    return ErrorCode(error_code).name if error_code else "OK"

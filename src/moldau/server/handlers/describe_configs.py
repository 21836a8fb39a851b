"""DescribeConfigs v1–4. Every config of a topic or broker, with its value, its source and its synonyms.

Defaults are included: clients that read, change and write back all configs rely on it. If a client asks for some keys,
they come in its order. Brokers and controllers serve it: a node describes its own configs and loggers, and the configs
of the cluster, of topics and of client metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from moldau.base.broker_configs import cluster_default_configs, effective_broker_configs
from moldau.base.client_metrics_configs import effective_client_metrics_configs
from moldau.base.clock import Timers
from moldau.base.config_def import ConfigEntry, ConfigSource
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.group_configs import effective_group_configs
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX, TOPIC_NAME_LENGTH_MAX
from moldau.base.promise import Promise
from moldau.base.topic_configs import effective_topic_configs
from moldau.base.topic_names import topic_name_problem
from moldau.base.turns import CHECKS_A_TURN, RESOURCES_A_TURN
from moldau.base.view_configs import VIEW_STATISTICS
from moldau.metadata.broker_configs import CLUSTER_DEFAULT, broker_layers
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigResource
from moldau.replica.view_counts import ViewCounts
from moldau.runtime.log_levels import LogLevels
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_DESCRIBE_CONFIGS, GROUP_DESCRIBE_CONFIGS, TOPIC_DESCRIBE_CONFIGS
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.config_access import describing_error, is_known_kind
from moldau.server.handlers.replies import in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

N = TypeVar("N", ConfigEntry, DescribeConfigsResourceResult)

RESOURCES_MAX: Final = 10_000
"""A request of 256 KiB could name 25,000; each takes 11 KB of memory until it is sent."""


class DescribeConfigs(Handler):
    api = ApiKey.DESCRIBE_CONFIGS
    versions = (1, 4)
    needs = (TOPIC_DESCRIBE_CONFIGS, GROUP_DESCRIBE_CONFIGS, CLUSTER_DESCRIBE_CONFIGS)
    elements_max = LONG_ELEMENTS_MAX  # it refuses more than RESOURCES_MAX itself, with a reason
    is_on_controllers = True
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        node_id: int,
        static_configs: Mapping[str, str],
        timers: Timers,
        log_levels: LogLevels,
        find_view_counts: Callable[[str], ViewCounts | None] = lambda view: None,
    ) -> None:
        """`find_view_counts` returns what this node has evaluated of a view."""
        self._find_view_counts = find_view_counts
        self._log_levels = log_levels
        self._timers = timers
        self._current = current
        self._node_id = node_id
        self._static_configs = static_configs

    def answer(
        self, request: DescribeConfigsRequest, caller: Caller
    ) -> DescribeConfigsResponse | Promise[DescribeConfigsResponse]:
        if len(request.resources) > RESOURCES_MAX:
            return self._refusal(
                request, f"{len(request.resources)} resources in one request; the limit is {RESOURCES_MAX}"
            )
        unknown = next((each for each in request.resources if not is_known_kind(each.resource_type)), None)
        if unknown is not None:  # as in Kafka, the whole request is refused
            name = unknown.resource_name[:TOPIC_NAME_LENGTH_MAX]  # every result repeats it
            return self._refusal(request, f"Unexpected resource type {unknown.resource_type} for resource {name}")
        return in_turns(
            self._timers,
            _each_once(request.resources),
            lambda resource: self._describe(resource, request, caller.access),
            lambda results: DescribeConfigsResponse(results=results),
            RESOURCES_A_TURN,
        )

    def _refusal(
        self, request: DescribeConfigsRequest, message: str
    ) -> DescribeConfigsResponse | Promise[DescribeConfigsResponse]:
        code = ErrorCode.INVALID_REQUEST
        return in_turns(
            self._timers,
            request.resources,
            lambda each: DescribeConfigsResult(code, message, each.resource_type, each.resource_name),
            lambda results: DescribeConfigsResponse(results=results),
            CHECKS_A_TURN,
        )

    def _describe(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest, access: Access
    ) -> DescribeConfigsResult:
        try:
            denial = describing_error(access, resource.resource_type, resource.resource_name)
            if denial is not None:
                raise denial
            if resource.resource_type == ConfigResource.BROKER_LOGGER:
                results = _asked_for(self._loggers(resource.resource_name), resource)
            else:
                requested_names = frozenset(resource.configuration_keys or ())
                entries = self._entries(resource.resource_type, resource.resource_name, requested_names)
                results = [_result(entry, request) for entry in _asked_for(entries, resource)]
        except KafkaError as error:
            return DescribeConfigsResult(
                error.code, error.message or "", resource.resource_type, resource.resource_name
            )
        return DescribeConfigsResult(0, "", resource.resource_type, resource.resource_name, results)

    def _loggers(self, name: str) -> list[DescribeConfigsResourceResult]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if name != str(self._node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._node_id} but received {name}"
            )
        source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        return [
            DescribeConfigsResourceResult(logger, level, False, source, False, [])
            for logger, level in self._log_levels.levels().items()
        ]

    def _entries(self, kind: int, name: str, requested_names: frozenset[str]) -> Iterable[ConfigEntry]:
        """Return the configs of a resource; of a topic only the requested ones, because all take half a millisecond."""
        image = self._current.image
        layers = broker_layers(image, self._node_id, self._static_configs)
        if kind == ConfigResource.TOPIC:
            problem = topic_name_problem(name)
            if problem:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            configs = effective_topic_configs(image.configs_of(kind, name), layers, requested_names)
            return (*configs, *_view_entries(self._find_view_counts(name))) if name in image.views else configs
        if kind == ConfigResource.BROKER and name == CLUSTER_DEFAULT:
            return cluster_default_configs(layers)
        if kind == ConfigResource.BROKER:
            if name != str(self._node_id):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._node_id} or empty string, but received {name}",
                )
            return effective_broker_configs(layers)
        if kind == ConfigResource.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return effective_client_metrics_configs(image.configs_of(kind, name))
        if kind == ConfigResource.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return effective_group_configs(image.configs_of(kind, name), layers)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _asked_for(configs: Iterable[N], resource: DescribeConfigsResource) -> list[N]:
    """Return the configs with the keys that the client asked for, in its order; all of them if it named none."""
    if not resource.configuration_keys:
        return list(configs)
    by_name = {config.name: config for config in configs}
    return [by_name[key] for key in dict.fromkeys(resource.configuration_keys) if key in by_name]


def _view_entries(counts: ViewCounts | None) -> list[ConfigEntry]:
    if counts is None:
        return []
    return [
        ConfigEntry(definition, str(getattr(counts, name)), ConfigSource.DYNAMIC_TOPIC_CONFIG, ())
        for name, definition in VIEW_STATISTICS.items()
    ]


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.definition.read_only,
        entry.source,
        entry.definition.sensitive,
        [DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source) for synonym in synonyms],
        entry.definition.type,
        entry.definition.documentation if request.include_documentation else None,
    )


def _each_once(resources: Sequence[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Return the resources without repetitions: one that is named often must not cost more than once."""
    unique: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in resources:
        unique.setdefault((each.resource_type, each.resource_name), each)
    return list(unique.values())

"""kafka-configs: shows and alters the configs of topics, brokers, groups, clients and users.

This module has the flags, the entities they name, and the configs sent by DescribeConfigs and IncrementalAlterConfigs.
config_quotas.py has quotas and SCRAM credentials, which have requests of their own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.connection.nodes import all_metadata, channel_to_active_controller, node_addresses
from moldau.cli.kafka.tool import ToolFailed, run, trace
from moldau.client.secret_properties import is_secret
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.describe_configs import DescribeConfigsResourceResult


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of config resource: its number in requests, and the source of its dynamic configs in responses."""

    id: int
    dynamic_source: int | None


RESOURCE_TYPES: Final = {
    "topics": ResourceType(2, 1),
    "brokers": ResourceType(4, 2),
    "broker-loggers": ResourceType(8, None),
    "client-metrics": ResourceType(16, 7),
    "groups": ResourceType(32, 8),
}
"""The config resource types by the entity types of the flags."""
QUOTA_ENTITY_TYPES: Final = ("users", "clients", "ips")
"""Entity types that have quotas instead of configs."""
ENTITY_TYPES: Final = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers")
DYNAMIC_DEFAULT_BROKER: Final = 3
SOURCES: Final = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
HIDDEN: Final = "[hidden]"
GROUPS_TIMEOUT_MS: Final = 10_000
"""IncrementalAlterConfigs' operations."""

SHORT_FLAGS: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "group": "groups",
    "client-metrics": "client-metrics",
}
DEFAULTS_FLAGS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
"""Flags for the default entities. The other entity types have no default."""

FLAGS = ToolFlags(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics"
    " or group",
    (
        Flag("bootstrap-server", "Brokers to connect to, HOST:PORT.", "server to connect to"),
        Flag("bootstrap-controller", "Controllers to connect to, HOST:PORT.", "controller to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("describe", "Show the settings of an entity."),
        Flag("all", "With --describe: defaults and static settings too."),
        Flag("alter", "Change the settings of an entity."),
        Flag(
            "entity-type", "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.", "String"
        ),
        Flag("entity-name", "The name of the entity.", "String"),
        Flag("entity-default", "The default of clients, users, brokers or ips."),
        Flag("add-config", "Settings to make: 'k1=v1,k2=[v1,v2],k3=v3', brackets around values with commas.", "String"),
        Flag("add-config-file", "A properties file of settings to make.", "String"),
        Flag("delete-config", "Settings to remove: 'k1,k2'.", "String"),
        Flag("force", "Accepted and ignored: this tool never asks."),
        *(
            Flag(name, f"Short for --entity-type {entity_type} --entity-name.", "String")
            for name, entity_type in SHORT_FLAGS.items()
        ),
        *(
            Flag(name, f"Short for --entity-type {entity_type} --entity-default.")
            for name, entity_type in DEFAULTS_FLAGS.items()
        ),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-configs", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    if arguments.has("describe") == arguments.has("alter"):
        raise UsageError("Command must include exactly one action: --describe, --alter")
    entities = named_entities(arguments)
    _check(arguments, entities)
    brokers, controllers = arguments.single_value("bootstrap-server"), arguments.single_value("bootstrap-controller")
    servers = brokers or controllers or ""
    java_config = properties.load(arguments.single_value("command-config"))
    changes = _parse_changes(arguments)
    connect = channel_to_active_controller if controllers else clients.channel
    with connect(servers, java_config) as channel:
        command = Command(channel, servers, java_config, entities)
        try:
            if arguments.has("describe"):
                command.describe(arguments.has("all"))
            else:
                command.alter(*changes)
        except clients.ResponseError as error:
            trace()
            command_line = " ".join(_words_without_secrets(arguments))
            raise ToolFailed(f"Error while executing config command with args '{command_line}': {error}") from error
    return 0


def _words_without_secrets(arguments: Arguments) -> Iterator[str]:
    """Yield the command line as it was parsed: a flag has several spellings, and secrets must be found in all. The
    whole value of an --add-config with a secret in it is hidden: a password may have any character, so nobody knows
    where it ends."""
    for flag, value in arguments.in_order:
        yield f"--{flag}"
        if value:
            yield HIDDEN if flag == "add-config" and is_secret(value) else value


@dataclass(slots=True)
class Entity:
    type: str
    name: str | None = None
    """An empty name is the default entity of the type, None stands for all entities of the type."""


def named_entities(arguments: Arguments) -> list[Entity]:
    """Return the entities that the flags name. The n-th --entity-name or -default belongs to the n-th --entity-type."""
    entities = [Entity(value) for flag, value in arguments.in_order if flag == "entity-type"]
    names = [value for flag, value in arguments.in_order if flag in ("entity-name", "entity-default")]
    if len(names) > len(entities):
        raise ToolFailed("An entity type must be specified with every entity name")
    for entity, name in zip(entities, names, strict=False):
        entity.name = name
    for flag, _ in arguments.in_order:
        if flag in SHORT_FLAGS:
            entities.append(Entity(SHORT_FLAGS[flag], arguments.single_value(flag)))
        elif flag in DEFAULTS_FLAGS:
            entities.append(Entity(DEFAULTS_FLAGS[flag], ""))
    return entities


def _check(arguments: Arguments, entities: list[Entity]) -> None:
    if not arguments.has("bootstrap-server") and not arguments.has("bootstrap-controller"):
        raise ToolFailed("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if arguments.has("bootstrap-server") and arguments.has("bootstrap-controller"):
        raise ToolFailed("Only one of --bootstrap-server or --bootstrap-controller can be specified.")
    if not entities:
        raise ToolFailed("At least one entity type must be specified")
    for entity in entities:
        if entity.type not in ENTITY_TYPES:
            raise ToolFailed(
                f"Invalid entity type {entity.type}, the entity type must be one of {', '.join(ENTITY_TYPES)}"
                " with a --bootstrap-server or --bootstrap-controller argument"
            )
        if entity.type in ("brokers", "broker-loggers") and entity.name and not re.fullmatch(r"-?\d+", entity.name):
            raise ToolFailed(
                f"The entity name for {entity.type} must be a valid integer broker id, but it is: {entity.name}"
            )
    entity_types = [entity.type for entity in entities]
    if len(entities) > 1 and sorted(entity_types) != ["clients", "users"]:
        raise ToolFailed("Only 'users' and 'clients' entity types may be specified together")
    has_default = entity_types[0] in DEFAULTS_FLAGS.values()
    if not arguments.has("alter"):
        if arguments.has("entity-default") and not has_default:
            raise ToolFailed(f"--entity-default must not be specified with --describe of {entity_types[0]}")
        return
    for entity in entities:
        if entity.name is None or (entity.name == "" and not has_default):
            raise ToolFailed(f"An entity name must be specified with --alter of {','.join(entity_types)}")
    if arguments.has("add-config") and arguments.has("add-config-file"):
        raise ToolFailed("Only one of --add-config or --add-config-file must be specified")
    if not any(map(arguments.has, ("add-config", "add-config-file", "delete-config"))):
        raise ToolFailed(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _parse_changes(arguments: Arguments) -> tuple[dict[str, str], list[str]]:
    """Return the configs to set, and the names of configs to remove."""
    added = properties.load(arguments.single_value("add-config-file"))
    added.update(parse_added(arguments.single_value("add-config")))
    removed = [name.strip() for text in arguments.values_of("delete-config") for name in text.split(",")]
    return added, removed


def parse_added(text: str | None) -> dict[str, str]:
    """Parse `k1=v1,k2=[v1,v2]`: commas and equals signs inside brackets do not separate."""
    if text is None:
        return {}
    # A separator is outside brackets if the next bracket after it opens, or if there is none.
    outside = r"(?=[^\]]*(?:\[|$))"
    parts = re.split("," + outside, text)
    while text and parts and not parts[-1]:
        parts.pop()  # Java's split drops empty parts at the end, but an empty text is one part.
    pairs = [re.split(r"\s*=\s*" + outside, part) for part in parts]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolFailed(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or '
            ' "key=[val1,val2]" to group values which contain commas.'
        )
    for name, _ in pairs:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", name.strip()):
            shown = HIDDEN if is_secret(text) else name  # it may be a piece of a password
            raise ToolFailed(f"Invalid character found for config key: {shown}")
    return {name.strip(): re.sub(r"[\[\]]", "", value).strip() for name, value in pairs}


@dataclass(frozen=True, slots=True)
class Command:
    """One call of the tool: a connection, and the entities to show or alter."""

    channel: Channel
    bootstrap_servers: str
    java_config: Mapping[str, str]
    entities: list[Entity]

    def describe(self, everything: bool) -> None:
        from moldau.cli.kafka import config_quotas

        first_entity = self.entities[0]
        if first_entity.type in QUOTA_ENTITY_TYPES:
            config_quotas.describe(self.channel, [(entity.type, entity.name) for entity in self.entities])
            return
        for name in self._find_names(first_entity):
            entries = self.entries_of(first_entity.type, name)
            if name == "":
                print(f"Default configs for {first_entity.type} in the cluster are:")
            else:
                print(f"{'All' if everything else 'Dynamic'} configs for {first_entity.type[:-1]} {name} are:")
            source = DYNAMIC_DEFAULT_BROKER if name == "" else RESOURCE_TYPES[first_entity.type].dynamic_source
            for entry in sorted(entries, key=lambda entry: entry.name):
                if everything or source is None or entry.config_source == source:
                    print(entry_line(entry))

    def alter(self, added: Mapping[str, str], removed: Sequence[str]) -> None:
        from moldau.cli.kafka import config_quotas

        first_entity = self.entities[0]
        name = first_entity.name or ""
        if first_entity.type in QUOTA_ENTITY_TYPES:
            names_by_type = [(entity.type, entity.name or "") for entity in self.entities]
            config_quotas.alter(self.channel, names_by_type, added, removed)
        else:
            self.alter_resource(first_entity.type, name, added, removed)
        # For a user and a client together, Kafka prints the client.
        printed_entity = next((entity for entity in self.entities if entity.type == "clients"), first_entity)
        if printed_entity.name:
            print(f"Completed updating config for {printed_entity.type[:-1]} {printed_entity.name}.")
        else:
            print(f"Completed updating default config for {printed_entity.type} in the cluster.")

    def _find_names(self, entity: Entity) -> list[str]:
        """Return the names of the entities to show. If the named entity does not exist, print that and return none."""
        if entity.name == "":
            return [""]
        if entity.name is None:
            existing = self._existing(entity.type)
            return [*existing, ""] if entity.type == "brokers" else existing
        if entity.type == "groups":
            # Ask for groups with configs last, as Kafka does: that needs a right on the cluster.
            exists = entity.name in self._groups() or entity.name in self.names_with_configs(entity.type)
        else:
            exists = entity.name in self._existing(entity.type)
        if exists:
            return [entity.name]
        print(f"The {entity.type[:-1]} '{entity.name}' doesn't exist and doesn't have dynamic config.")
        return []

    def _existing(self, entity_type: str) -> list[str]:
        if entity_type == "topics":
            return sorted(topic.name or "" for topic in all_metadata(self.channel).topics)
        if entity_type in ("brokers", "broker-loggers"):
            return list(node_addresses(self.channel))
        return sorted(self.names_with_configs(entity_type) | (self._groups() if entity_type == "groups" else set()))

    def names_with_configs(self, entity_type: str) -> set[str]:
        from moldau.client.requests.configs import resources_with_configs

        if not self.channel.offers(ApiKey.LIST_CONFIG_RESOURCES):
            return set()
        with clients.response_errors():
            return resources_with_configs(self.channel.ask, RESOURCE_TYPES[entity_type].id)

    def _groups(self) -> set[str]:
        """Return the groups of all brokers: each lists those it coordinates."""
        from moldau.base.errors import KafkaError
        from moldau.client.admin.groups import Groups

        if not self.channel.offers(ApiKey.LIST_GROUPS):
            return set()
        cluster = clients.cluster(self.bootstrap_servers, self.java_config)
        try:
            return {group.group_id for group in Groups(cluster, GROUPS_TIMEOUT_MS).listed()}
        except KafkaError as error:
            raise clients.ResponseError(str(error)) from error
        finally:
            cluster.close()

    @contextmanager
    def _channel_for(self, entity_type: str, name: str) -> Iterator[Channel]:
        """Yield the connection to use. Only the broker itself knows all of its configs, so connect to it for those."""
        if entity_type not in ("brokers", "broker-loggers") or name == "":
            yield self.channel
            return
        address = node_addresses(self.channel).get(name)
        if address is None:
            raise clients.ResponseError(f"The broker '{name}' does not exist.")
        with clients.channel_to(*address, self.java_config) as channel:
            yield channel

    def entries_of(self, entity_type: str, name: str) -> Sequence[DescribeConfigsResourceResult]:
        from moldau.client.requests.configs import describe_configs

        with self._channel_for(entity_type, name) as channel:
            (result,) = describe_configs(channel.ask, RESOURCE_TYPES[entity_type].id, [name], synonyms=True)
        clients.raise_for_error(result.error_code, result.error_message)
        return result.configs

    def alter_resource(self, entity_type: str, name: str, added: Mapping[str, str], removed: Sequence[str]) -> None:
        from moldau.client.requests.configs import alter_configs

        changes = {(RESOURCE_TYPES[entity_type].id, name): [*added.items(), *((key, None) for key in removed)]}
        # Among controllers, the active one alters the configs of all nodes.
        is_active_controller = entity_type == "brokers" and not self.channel.offers(ApiKey.METADATA)
        connection = nullcontext(self.channel) if is_active_controller else self._channel_for(entity_type, name)
        with connection as channel, clients.response_errors():
            alter_configs(channel.ask, changes)


def entry_line(entry: DescribeConfigsResourceResult) -> str:
    """Return `  name=value sensitive=false synonyms={SOURCE:name=value, ...}`. Brokers send secrets as null."""
    synonyms = ", ".join(
        f"{SOURCES.get(synonym.source, 'UNKNOWN')}:{synonym.name}={_or_null(synonym.value)}"
        for synonym in entry.synonyms
    )
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_or_null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _or_null(value: str | None) -> str:
    return "null" if value is None else value


if __name__ == "__main__":
    sys.exit(main())

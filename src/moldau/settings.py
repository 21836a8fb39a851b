"""The settings of a node, with Kafka's property names: file, environment and command line become one frozen Settings.

Later sources override earlier ones: defaults, server.properties, `KAFKA_*` variables, `--override`, other options of
the command. An invalid value ends the start with one line that names key, value and source; `warnings` names keys
without effect. This module opens no listeners and does not touch the data directory.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moldau.base.broker_configs import broker_config
from moldau.base.cluster_settings import (
    BalanceSettings,
    BrokerSessionSettings,
    QuorumSettings,
    ReplicationSettings,
    check_cluster_id,
    check_roles,
    read_quorum,
    read_replication,
)
from moldau.base.config_def import BrokerLayers, ConfigDef, ConfigValue
from moldau.base.connection_settings import ConnectionLimits, read_connection_limits
from moldau.base.ids import NodeId
from moldau.base.listener_settings import ListenerSettings, read_listeners, read_metrics_listener
from moldau.base.listeners import SHARED_LISTENER_VARIABLE, WILDCARD_HOSTS, Listener
from moldau.base.setting_sources import (
    SettingsError,
    SettingText,
    Values,
    read_environment,
    read_file,
    warn_of_unknown_keys,
)
from moldau.base.settings import groups, log, node, own, security
from moldau.base.settings.fields import read_settings, setting, setting_values
from moldau.base.topic_configs import TOPIC_CONFIGS, topic_config_values
from moldau.coordinator.group.settings import GroupSettings, read_groups
from moldau.coordinator.share.settings import ShareCoordinatorSettings, ShareStateTopicSettings
from moldau.coordinator.transaction.settings import TransactionLogSettings, TransactionSettings
from moldau.platforms.addresses import FALLBACK_HOST, is_own_host, own_host
from moldau.security.authorizer_settings import AuthorizerSettings
from moldau.security.quotas.rates import Window
from moldau.security.sasl.use import SaslSettings
from moldau.security.security_settings import (
    ReadSecurity,
    SecurityReader,
    SecuritySettings,
    no_security,
    warn_of_security,
)
from moldau.security.tls.settings import TlsSettings
from moldau.security.token_settings import TokenSettings

if TYPE_CHECKING:
    from moldau.security.sasl.oauthbearer.settings import TokenRequest

__all__ = [
    "Settings",
    "SettingsError",
    "from_properties",
    "from_texts",
    "load",
    "log_dirs",
    "read_texts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    node_id: NodeId
    cluster_id: str | None
    """From CLUSTER_ID; None means the id of meta.properties, or a new one for an empty directory."""
    process_roles: tuple[str, ...] = setting(node.PROCESS_ROLES)
    broker_rack: str | None = setting(node.BROKER_RACK)
    is_alone: bool
    """Whether this node is broker and controller, and the settings name no other node."""
    shared_listener: str | None
    """The listener whose port the nodes of one machine share (`moldau start --cores`)."""
    listeners: tuple[Listener, ...]
    """The listeners for clients and brokers, in the configured order."""
    controller_listeners: tuple[Listener, ...]
    advertised_controllers: tuple[Listener, ...]
    """The addresses at which other controllers reach this one."""
    controller_listener_name: str
    """The listener by which this node connects to controllers."""
    advertised_listeners: tuple[Listener, ...]
    """The addresses that clients connect to. A port of zero means the port that was bound."""
    inter_broker_listener_name: str
    """Empty for a node that is only a controller."""
    log_dirs: tuple[str, ...]
    num_partitions: int = setting(log.NUM_PARTITIONS)
    default_replication_factor: int = setting(log.DEFAULT_REPLICATION_FACTOR)
    auto_create_topics_enable: bool = setting(log.AUTO_CREATE_TOPICS_ENABLE)
    delete_topic_enable: bool = setting(log.DELETE_TOPIC_ENABLE)
    connection_limits: ConnectionLimits
    decompressed_bytes_max: int = setting(own.MOLDAU_MAX_DECOMPRESSED_BYTES)
    reserve_bytes: int = setting(own.MOLDAU_RESERVE_BYTES)
    connections_max_idle_ms: int = setting(node.CONNECTIONS_MAX_IDLE_MS)
    socket_request_max_bytes: int = setting(node.SOCKET_REQUEST_MAX_BYTES)
    socket_send_buffer_bytes: int = setting(node.SOCKET_SEND_BUFFER_BYTES)
    socket_receive_buffer_bytes: int = setting(node.SOCKET_RECEIVE_BUFFER_BYTES)
    fetch_max_bytes: int = setting(node.FETCH_MAX_BYTES)
    max_incremental_fetch_session_cache_slots: int = setting(node.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS)
    message_max_bytes: int = setting(log.MESSAGE_MAX_BYTES)
    min_insync_replicas: int = setting(log.MIN_INSYNC_REPLICAS)
    log_retention_check_interval_ms: int = setting(log.LOG_RETENTION_CHECK_INTERVAL_MS)
    log_flush_scheduler_interval_ms: int = setting(log.LOG_FLUSH_SCHEDULER_INTERVAL_MS)
    replica_high_watermark_checkpoint_interval_ms: int = setting(log.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS)
    producer_id_expiration_check_interval_ms: int = setting(log.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS)
    offsets_topic_num_partitions: int = setting(groups.OFFSETS_TOPIC_NUM_PARTITIONS)
    offsets_topic_replication_factor: int = setting(groups.OFFSETS_TOPIC_REPLICATION_FACTOR)
    offsets_topic_segment_bytes: int = setting(groups.OFFSETS_TOPIC_SEGMENT_BYTES)
    offsets_retention_check_interval_ms: int = setting(groups.OFFSETS_RETENTION_CHECK_INTERVAL_MS)
    groups: GroupSettings
    transactions: TransactionSettings
    transaction_log: TransactionLogSettings
    share_coordinator: ShareCoordinatorSettings
    share_state_topic: ShareStateTopicSettings
    quorum: QuorumSettings
    sessions: BrokerSessionSettings
    replication: ReplicationSettings
    balance: BalanceSettings
    authorizer: AuthorizerSettings
    quota_window: Window
    controller_quota_window: Window
    sasl: SaslSettings
    delegation_tokens: TokenSettings
    tls: Mapping[str, TlsSettings]
    """By listener, for those that use TLS: those of this node, and the controllers' that it connects to."""
    metrics_listener: Listener | None
    """Where metrics are served; None if they are not."""
    metrics_per_partition: bool = setting(own.METRICS_PER_PARTITION)
    properties: Mapping[str, str] = field(repr=False)
    """Every property that was set, as text, passwords too."""
    warnings: tuple[str, ...] = ()

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    def value(self, row: ConfigDef) -> ConfigValue:
        """Return the value of any broker key, or its default."""
        return row.parse(self.properties[row.name]) if row.name in self.properties else row.default

    def broker_layers(self) -> BrokerLayers:
        """Return this node's static configs, which dynamic ones override."""
        return BrokerLayers(static={**self.properties, node.BROKER_ID.name: str(self.node_id)})


def load(
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    flags: Mapping[str, SettingText] | None = None,
    *,
    with_security: bool = True,
) -> Settings:
    """Load the settings of a node. `flags` are command options for a property; they override everything else. Without
    `with_security`, logins, TLS and the authorizer are neither checked nor returned."""
    return from_texts(read_texts(file, environ, overrides, flags), environ, with_security)


def read_texts(
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    flags: Mapping[str, SettingText] | None = None,
) -> dict[str, SettingText]:
    """Return every setting as text, from the source that wins."""
    texts: dict[str, SettingText] = {}
    if file is not None:
        texts.update(read_file(file))
    texts.update(read_environment(environ or {}))
    texts.update((key, SettingText(text, "--override")) for key, text in overrides)
    texts.update(flags or {})
    return texts


def from_texts(
    texts: Mapping[str, SettingText], environ: Mapping[str, str] | None = None, with_security: bool = True
) -> Settings:
    environ = environ or {}
    read_security = SecurityReader.of(_token_source, environ.get("KAFKA_OPTS", "")) if with_security else no_security
    cluster_id, shared_listener = environ.get("CLUSTER_ID") or None, environ.get(SHARED_LISTENER_VARIABLE) or None
    try:
        return _build_settings(texts, cluster_id, read_security, shared_listener)
    except SettingsError as wrong:
        wrong.warnings = tuple(warn_of_unknown_keys(texts))
        raise


def from_properties(properties: Mapping[str, str], cluster_id: str | None = None) -> Settings:
    """Return settings from properties alone, for tests and embedded nodes."""
    texts = {key: SettingText(text, "properties") for key, text in properties.items()}
    return _build_settings(texts, cluster_id, SecurityReader(_token_source))


def _warn_of_directories(values: Values) -> Iterator[str]:
    if len(_read_log_dirs(values)) > 1:
        key = log.LOG_DIRS if values.strings(log.LOG_DIRS) else log.LOG_DIR
        yield f"{values.origin(key)}: {key}: Moldau uses only the first of several directories"


def _warn_of_cleaner_threads(values: Values) -> Iterator[str]:
    key = log.LOG_CLEANER_THREADS
    if values.integer(key) > 1:
        yield f"{values.origin(key)}: {key}: Moldau compacts one log at a time"


def _warn_of_fallback_host(values: Values, listeners: ListenerSettings) -> Iterator[str]:
    """Warn if the node listens on all interfaces but advertises `FALLBACK_HOST`, which other machines cannot use."""
    is_wildcard = any(each.host in WILDCARD_HOSTS for each in listeners.broker_listeners)
    if (
        is_wildcard
        and not values.strings(node.ADVERTISED_LISTENERS)
        and any(a.host == FALLBACK_HOST for a in listeners.advertised)
    ):
        yield (
            f"the advertised host is {FALLBACK_HOST}, which works only on this machine: make the machine's name"
            f" ({socket.gethostname()}) resolvable, or set advertised.listeners"
        )


def _warnings(values: Values, listeners: ListenerSettings, security: SecuritySettings) -> Iterator[str]:
    yield from values.warnings()
    yield from _warn_of_directories(values)
    yield from _warn_of_cleaner_threads(values)
    yield from warn_of_security(values, listeners, security)
    yield from _warn_of_fallback_host(values, listeners)


def _build_settings(
    texts: Mapping[str, SettingText],
    cluster_id: str | None,
    read_security: ReadSecurity,
    shared_listener: str | None = None,
) -> Settings:
    values = Values(texts)
    node_id = _read_node_id(values)
    _check(values, cluster_id)
    listeners, quorum = read_listeners(values, own_host), read_quorum(values)
    check_roles(values, node_id, listeners.broker_listeners, listeners.controllers, quorum)
    is_alone = shared_listener is None and _is_alone(node_id, values.strings(node.PROCESS_ROLES), quorum, listeners)
    secured = read_security(values, listeners, is_alone)
    return Settings(
        **setting_values(Settings, values.value),
        node_id=node_id,
        cluster_id=cluster_id,
        is_alone=is_alone,
        shared_listener=shared_listener,
        listeners=listeners.broker_listeners,
        controller_listeners=listeners.controllers,
        advertised_controllers=listeners.advertised_controllers,
        controller_listener_name=listeners.controller_name,
        advertised_listeners=listeners.advertised,
        inter_broker_listener_name=listeners.inter_broker_name,
        log_dirs=_read_log_dirs(values),
        connection_limits=read_connection_limits(values),
        groups=read_groups(values),
        transactions=read_settings(TransactionSettings, values.value),
        transaction_log=read_settings(TransactionLogSettings, values.value),
        share_coordinator=read_settings(ShareCoordinatorSettings, values.value),
        share_state_topic=read_settings(ShareStateTopicSettings, values.value),
        quorum=quorum,
        sessions=read_settings(BrokerSessionSettings, values.value),
        replication=read_replication(values),
        balance=read_settings(BalanceSettings, values.value),
        authorizer=secured.authorizer,
        quota_window=_read_window(values, security.QUOTA_WINDOW_NUM, security.QUOTA_WINDOW_SIZE_SECONDS),
        controller_quota_window=_read_window(
            values, security.CONTROLLER_QUOTA_WINDOW_NUM, security.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS
        ),
        sasl=secured.sasl,
        delegation_tokens=read_settings(TokenSettings, values.value),
        tls=secured.tls,
        metrics_listener=read_metrics_listener(values),
        properties={key: each.text for key, each in texts.items() if broker_config(key)},
        warnings=tuple(_warnings(values, listeners, secured)),
    )


def _read_window(values: Values, samples: ConfigDef, seconds: ConfigDef) -> Window:
    return Window(values.integer(samples), values.integer(seconds) * 1000)


def _check(values: Values, cluster_id: str | None) -> None:
    if cluster_id is not None:
        check_cluster_id(cluster_id, "CLUSTER_ID")
    _check_topic_defaults(values)
    _check_cleaner(values)


def _token_source(request: TokenRequest) -> Callable[[], str]:
    from moldau.client.access_tokens import AccessTokens  # only here: most nodes do not need it

    return AccessTokens(request).current


def log_dirs(texts: Mapping[str, SettingText]) -> tuple[str, ...]:
    """Return the log directories, before anything else of the settings is checked."""
    keys = (log.LOG_DIRS.name, log.LOG_DIR.name)
    return _read_log_dirs(Values({key: texts[key] for key in keys if key in texts}))


def _read_log_dirs(values: Values) -> tuple[str, ...]:
    return values.strings(log.LOG_DIRS) or values.strings(log.LOG_DIR)


def _read_node_id(values: Values) -> NodeId:
    broker_id = values.integer(node.BROKER_ID)
    if node.NODE_ID in values and broker_id not in (-1, values.integer(node.NODE_ID)):
        raise values.error(
            node.BROKER_ID, f"differs from {node.NODE_ID}={values.integer(node.NODE_ID)}; set one of them"
        )
    return NodeId(values.integer(node.NODE_ID) if node.NODE_ID in values or broker_id == -1 else broker_id)


def _check_cleaner(values: Values) -> None:
    key = log.LOG_CLEANER_DEDUPE_BUFFER_SIZE
    if values.integer(key) // max(values.integer(log.LOG_CLEANER_THREADS), 1) <= 1 << 20:
        raise values.error(key, f"expected more than 1048576 for each of {log.LOG_CLEANER_THREADS}")


def _check_topic_defaults(values: Values) -> None:
    """Check that the broker keys with the defaults of topics have values that are valid for topics."""
    layers = BrokerLayers(static={key: each.text for key, each in values.texts.items()})
    for name, value in topic_config_values({}, layers).items():
        definition = TOPIC_CONFIGS[name]
        complaint = definition.validator.complaint(value) if definition.validator else None
        if complaint:
            culprit = next(synonym.name for synonym in definition.synonyms if synonym.name in values)
            raise values.error(culprit, f"{complaint}, as {name} of a topic")


def _is_alone(node_id: NodeId, roles: tuple[str, ...], quorum: QuorumSettings, listeners: ListenerSettings) -> bool:
    own = [(each.host, each.port) for each in (*listeners.controllers, *listeners.advertised_controllers)]

    def is_own(server: tuple[str, int]) -> bool:
        return server in own or (server[1] in {port for _, port in own} and is_own_host(server[0]))

    return (
        {"broker", "controller"} <= set(roles)
        and all(voter.id == node_id for voter in quorum.voters)
        and all(map(is_own, quorum.bootstrap_servers))
    )

"""Broker keys that only Moldau has, mostly limits. Like Kafka's internal keys they are shown by DescribeConfigs only if
they are set. This module contains only the table.
"""

from __future__ import annotations

from typing import Final

from moldau.base import limits
from moldau.base.config_def import ConfigDef, ConfigType, ConfigValue, Range

CONNECTION_REQUESTS_MAX: Final = "moldau.max.connection.requests"
CONNECTION_UNSENT_BYTES_MAX: Final = "moldau.max.connection.unsent.bytes"
UNSENT_BUDGET_BYTES: Final = "moldau.max.unsent.bytes"
REQUEST_RATE_MIN: Final = "moldau.min.request.bytes.per.second"
RESPONSE_RATE_MIN: Final = "moldau.min.response.bytes.per.second"
UNAUTHENTICATED_BYTES_MAX: Final = "moldau.max.unauthenticated.request.bytes"
AUTHENTICATION_TIMEOUT_MS: Final = "moldau.authentication.timeout.ms"
DECOMPRESSED_BYTES_MAX: Final = "moldau.max.decompressed.bytes"
SCRAM_SECRET: Final = "moldau.scram.secret"
RESERVE_BYTES: Final = "moldau.reserve.bytes"
TRANSACTIONAL_IDS_MAX: Final = "moldau.max.transactional.ids.per.partition"
IGNORE_DYNAMIC_OF_LISTENERS: Final = "moldau.ignore.dynamic.listener.configs"
VIEW_WORKERS: Final = "moldau.views.workers"
VIEW_CPU_SECONDS: Final = "moldau.views.cpu.seconds"
VIEW_MEMORY_BYTES: Final = "moldau.views.memory.bytes"
VIEW_KEPT_BYTES: Final = "moldau.views.kept.bytes"


def _key(name: str, kind: ConfigType, default: ConfigValue, documentation: str, low: int = 1) -> ConfigDef:
    return ConfigDef(name, kind, default, Range(low), documentation, internal=True)


OWN: Final[tuple[ConfigDef, ...]] = (
    _key(
        CONNECTION_REQUESTS_MAX,
        ConfigType.INT,
        limits.REQUESTS_IN_FLIGHT_MAX,
        "Maximum number of requests of a connection that wait for a response; then the connection is not read.",
    ),
    _key(
        CONNECTION_UNSENT_BYTES_MAX,
        ConfigType.INT,
        limits.UNSENT_BYTES_MAX,
        "Maximum bytes of responses that wait for a slow client; then its connection is not read.",
    ),
    _key(
        UNSENT_BUDGET_BYTES,
        ConfigType.LONG,
        limits.UNSENT_BUDGET_BYTES,
        "Bytes of unsent responses of all connections together; above it, a client that does not read is disconnected.",
    ),
    _key(
        REQUEST_RATE_MIN,
        ConfigType.INT,
        limits.REQUEST_BYTES_PER_SECOND_MIN,
        "A request that arrives slower than this, over 30 s, closes its connection; 0 means no limit.",
        0,
    ),
    _key(
        RESPONSE_RATE_MIN,
        ConfigType.INT,
        limits.RESPONSE_BYTES_PER_SECOND_MIN,
        "A response that is read slower than this, over connections.max.idle.ms, closes its connection; 0: no limit.",
        0,
    ),
    _key(
        AUTHENTICATION_TIMEOUT_MS,
        ConfigType.INT,
        limits.AUTHENTICATION_MS_MAX,
        "How long a client may take for the TLS handshake, and then for SASL.",
    ),
    _key(
        UNAUTHENTICATED_BYTES_MAX,
        ConfigType.LONG,
        limits.UNAUTHENTICATED_BUDGET_BYTES,
        "Memory for requests that are still arriving from all clients that have not authenticated yet.",
    ),
    _key(
        DECOMPRESSED_BYTES_MAX,
        ConfigType.INT,
        limits.DECOMPRESSED_BYTES_MAX,
        "Largest size of a batch after decompression, when the broker has to decompress it.",
    ),
    _key(
        RESERVE_BYTES,
        ConfigType.LONG,
        limits.RESERVE_BYTES,
        "Disk space that a node keeps for the time when its disk is full; at most a 32nd of the disk. 0: none.",
        0,
    ),
    _key(
        TRANSACTIONAL_IDS_MAX,
        ConfigType.INT,
        limits.TRANSACTIONAL_IDS_MAX,
        "Maximum number of transactional ids in one partition of __transaction_state; new ones are refused.",
    ),
    _key(VIEW_WORKERS, ConfigType.INT, limits.VIEW_WORKERS, "Processes that evaluate views, once somebody reads one."),
    _key(
        VIEW_CPU_SECONDS,
        ConfigType.INT,
        limits.VIEW_CPU_SECONDS,
        "CPU time for about 4 MiB of a view's source; if it takes more, the view's readers get an error.",
    ),
    _key(
        VIEW_MEMORY_BYTES,
        ConfigType.LONG,
        limits.VIEW_MEMORY_BYTES,
        "Memory of each process that evaluates views, beyond what it has loaded when it starts.",
        limits.VIEW_MEMORY_BYTES_MIN,
    ),
    _key(
        VIEW_KEPT_BYTES,
        ConfigType.LONG,
        limits.VIEW_KEPT_BYTES,
        "Bytes of evaluated records that are kept for further readers.",
        0,
    ),
    ConfigDef(
        IGNORE_DYNAMIC_OF_LISTENERS,
        ConfigType.BOOLEAN,
        False,
        documentation="Whether listeners use only the properties file, until the next start without this setting.",
        internal=True,
    ),
    ConfigDef(
        SCRAM_SECRET,
        ConfigType.PASSWORD,
        None,
        documentation="Made by the controller. The salts that are sent to unknown SCRAM users are derived from it.",
        internal=True,
    ),
    ConfigDef(
        "metrics.listener",
        ConfigType.STRING,
        "",
        documentation="Where to serve metrics for Prometheus, host:port; empty: not served.",
        internal=True,
    ),
    ConfigDef(
        "metrics.per.partition",
        ConfigType.BOOLEAN,
        True,
        documentation="Whether metrics include a series for each partition.",
        internal=True,
    ),
)

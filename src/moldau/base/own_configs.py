"""Broker keys that only Moldau has: limits for which Kafka has no setting. Like Kafka's internal keys they are shown by
DescribeConfigs only if they are set. This module contains only the table.
"""

from __future__ import annotations

from typing import Final

from moldau.base import limits
from moldau.base.config_def import ConfigDef, ConfigType, ConfigValue, Range

CONNECTION_REQUESTS_MAX: Final = "moldau.max.connection.requests"
CONNECTION_UNSENT_BYTES_MAX: Final = "moldau.max.connection.unsent.bytes"
UNSENT_BYTES_MAX: Final = "moldau.max.unsent.bytes"
REQUEST_RATE_MIN: Final = "moldau.min.request.bytes.per.second"
RESPONSE_RATE_MIN: Final = "moldau.min.response.bytes.per.second"
AUTHENTICATION_TIMEOUT_MS: Final = "moldau.authentication.timeout.ms"
DECOMPRESSED_BYTES_MAX: Final = "moldau.max.decompressed.bytes"
TRANSACTIONAL_IDS_MAX: Final = "moldau.max.transactional.ids.per.partition"


def _key(name: str, kind: ConfigType, default: ConfigValue, documentation: str, low: int = 1) -> ConfigDef:
    return ConfigDef(name, kind, default, Range(low), documentation, internal=True)


OWN: Final[tuple[ConfigDef, ...]] = (
    _key(
        CONNECTION_REQUESTS_MAX,
        ConfigType.INT,
        limits.REQUESTS_IN_FLIGHT_MAX,
        "Requests of one connection that wait for a response; then the connection is not read.",
    ),
    _key(
        CONNECTION_UNSENT_BYTES_MAX,
        ConfigType.INT,
        limits.UNSENT_BYTES_MAX,
        "Bytes of responses that a client does not read; then its connection is not read.",
    ),
    _key(
        UNSENT_BYTES_MAX,
        ConfigType.LONG,
        limits.UNSENT_BUDGET_BYTES,
        "The same for all connections together; above it, a client that does not read is disconnected.",
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
        DECOMPRESSED_BYTES_MAX,
        ConfigType.INT,
        limits.DECOMPRESSED_BYTES_MAX,
        "Largest size of a batch after decompression, when the broker has to decompress it.",
    ),
    _key(
        TRANSACTIONAL_IDS_MAX,
        ConfigType.INT,
        limits.TRANSACTIONAL_IDS_MAX,
        "Most transactional ids in one partition of __transaction_state; new ones are refused.",
    ),
    ConfigDef(
        "metrics.listener",
        ConfigType.STRING,
        "",
        documentation="Where to serve metrics for Prometheus, host:port; nothing: nowhere.",
        internal=True,
    ),
    ConfigDef(
        "metrics.per.partition",
        ConfigType.BOOLEAN,
        True,
        documentation="Whether metrics include series of single partitions.",
        internal=True,
    ),
)

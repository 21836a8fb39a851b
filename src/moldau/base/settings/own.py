"""Broker keys that only Moldau has, mostly limits. Like Kafka's internal keys they are shown by DescribeConfigs only if
they are set.
"""

from __future__ import annotations

from typing import Final

from moldau.base import limits
from moldau.base.config_def import BOOLEAN, INT, LONG, PASSWORD, STRING, ConfigDef, Range

# fmt: off
MOLDAU_MAX_CONNECTION_REQUESTS: Final = ConfigDef(
    "moldau.max.connection.requests", INT, limits.REQUESTS_IN_FLIGHT_MAX, Range(1),
    "Maximum number of requests of a connection that wait for a response; then the connection is not read.",
    internal=True)
MOLDAU_MAX_CONNECTION_UNSENT_BYTES: Final = ConfigDef(
    "moldau.max.connection.unsent.bytes", INT, limits.UNSENT_BYTES_MAX, Range(1),
    "Maximum bytes of responses that wait for a slow client; then its connection is not read.", internal=True)
MOLDAU_MAX_UNSENT_BYTES: Final = ConfigDef(
    "moldau.max.unsent.bytes", LONG, limits.UNSENT_BUDGET_BYTES, Range(1),
    "Bytes of unsent responses of all connections together; above it, a client that does not read is disconnected.",
    internal=True)
MOLDAU_MIN_REQUEST_BYTES_PER_SECOND: Final = ConfigDef(
    "moldau.min.request.bytes.per.second", INT, limits.REQUEST_BYTES_PER_SECOND_MIN, Range(0),
    "A request that arrives slower than this, over 30 s, closes its connection; 0 means no limit.", internal=True)
MOLDAU_MIN_RESPONSE_BYTES_PER_SECOND: Final = ConfigDef(
    "moldau.min.response.bytes.per.second", INT, limits.RESPONSE_BYTES_PER_SECOND_MIN, Range(0),
    "A response that is read slower than this, over connections.max.idle.ms, closes its connection; 0: no limit.",
    internal=True)
MOLDAU_AUTHENTICATION_TIMEOUT_MS: Final = ConfigDef(
    "moldau.authentication.timeout.ms", INT, limits.AUTHENTICATION_MS_MAX, Range(1),
    "How long a client may take for the TLS handshake, and then for SASL.", internal=True)
MOLDAU_MAX_UNAUTHENTICATED_REQUEST_BYTES: Final = ConfigDef(
    "moldau.max.unauthenticated.request.bytes", LONG, limits.UNAUTHENTICATED_BUDGET_BYTES, Range(1),
    "Memory for requests that are still arriving from all clients that have not authenticated yet.", internal=True)
MOLDAU_MAX_DECOMPRESSED_BYTES: Final = ConfigDef(
    "moldau.max.decompressed.bytes", INT, limits.DECOMPRESSED_BYTES_MAX, Range(1),
    "Largest size of a batch after decompression, when the broker has to decompress it.", internal=True)
MOLDAU_RESERVE_BYTES: Final = ConfigDef(
    "moldau.reserve.bytes", LONG, limits.RESERVE_BYTES, Range(0),
    "Disk space that a node keeps for the time when its disk is full; at most a 32nd of the disk. 0: none.",
    internal=True)
MOLDAU_MAX_TRANSACTIONAL_IDS_PER_PARTITION: Final = ConfigDef(
    "moldau.max.transactional.ids.per.partition", INT, limits.TRANSACTIONAL_IDS_MAX, Range(1),
    "Maximum number of transactional ids in one partition of __transaction_state; new ones are refused.", internal=True)
MOLDAU_VIEWS_WORKERS: Final = ConfigDef(
    "moldau.views.workers", INT, limits.VIEW_WORKERS, Range(1),
    "Processes that evaluate views, once somebody reads one.", internal=True)
MOLDAU_VIEWS_CPU_SECONDS: Final = ConfigDef(
    "moldau.views.cpu.seconds", INT, limits.VIEW_CPU_SECONDS, Range(1),
    "CPU time for about 4 MiB of a view's source; if it takes more, the view's readers get an error.", internal=True)
MOLDAU_VIEWS_MEMORY_BYTES: Final = ConfigDef(
    "moldau.views.memory.bytes", LONG, limits.VIEW_MEMORY_BYTES, Range(limits.VIEW_MEMORY_BYTES_MIN),
    "Memory of each process that evaluates views, beyond what it has loaded when it starts.", internal=True)
MOLDAU_VIEWS_KEPT_BYTES: Final = ConfigDef(
    "moldau.views.kept.bytes", LONG, limits.VIEW_KEPT_BYTES, Range(0),
    "Bytes of evaluated records that are kept for further readers.", internal=True)
MOLDAU_IGNORE_DYNAMIC_LISTENER_CONFIGS: Final = ConfigDef(
    "moldau.ignore.dynamic.listener.configs", BOOLEAN, False, None,
    "Whether listeners use only the properties file, until the next start without this setting.", internal=True)
MOLDAU_SCRAM_SECRET: Final = ConfigDef(
    "moldau.scram.secret", PASSWORD, None, None,
    "Made by the controller. The salts that are sent to unknown SCRAM users are derived from it.", internal=True)
METRICS_LISTENER: Final = ConfigDef(
    "metrics.listener", STRING, "", None,
    "Where to serve metrics for Prometheus, host:port; empty: not served.", internal=True)
METRICS_PER_PARTITION: Final = ConfigDef(
    "metrics.per.partition", BOOLEAN, True, None,
    "Whether metrics include a series for each partition.", internal=True)

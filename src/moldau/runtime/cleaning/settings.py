"""The cleaner's settings, from a broker's `log.cleaner.*` keys; all but log.cleaner.enable may change while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.base.broker_configs import broker_integer, broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.settings import log
from moldau.base.settings.fields import setting, setting_values

MAP_BYTES_MIN: Final = 1 << 20
IO_BUFFER_BYTES_MIN: Final = 64 << 10


def _map_bytes(configured: int) -> int:
    """Values set while the broker runs are not validated; too small ones are raised to the minimum."""
    return max(configured, MAP_BYTES_MIN)


def _io_buffer_bytes(configured: int) -> int:
    return max(configured, IO_BUFFER_BYTES_MIN)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    is_enabled: bool = True
    backoff_ms: int = setting(log.LOG_CLEANER_BACKOFF_MS)
    bytes_per_second: float = setting(log.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND)
    """The limit for bytes read and written together."""
    map_bytes_max: int = setting(log.LOG_CLEANER_DEDUPE_BUFFER_SIZE, _map_bytes)
    io_buffer_bytes: int = setting(log.LOG_CLEANER_IO_BUFFER_SIZE, _io_buffer_bytes)


def cleaner_settings(layers: BrokerLayers) -> CleanerSettings:
    # As in Kafka, 0 threads disable the cleaner; any other number means one thread here.
    has_threads = broker_integer(log.LOG_CLEANER_THREADS, layers) > 0
    return CleanerSettings(
        is_enabled=bool(broker_value(log.LOG_CLEANER_ENABLE, layers)) and has_threads,
        **setting_values(CleanerSettings, partial(broker_value, layers=layers)),
    )

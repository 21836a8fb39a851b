"""The cleaner's settings, from a broker's `log.cleaner.*` keys; all but log.cleaner.enable may change while it runs."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers

MAP_BYTES_MIN: Final = 1 << 20
IO_BUFFER_BYTES_MIN: Final = 64 << 10


class CleanerSettings(NamedTuple):
    is_enabled: bool = True
    backoff_ms: int = 15_000
    bytes_per_second: float = 1.7976931348623157e308
    """The limit for bytes read and written together."""
    map_bytes_max: int = 128 << 20
    io_buffer_bytes: int = 512 << 10


def cleaner_settings(layers: BrokerLayers) -> CleanerSettings:
    return CleanerSettings(
        # As in Kafka, 0 threads disable the cleaner; any other number means one thread here.
        is_enabled=bool(broker_value("log.cleaner.enable", layers)) and _number("log.cleaner.threads", layers) > 0,
        backoff_ms=int(_number("log.cleaner.backoff.ms", layers)),
        bytes_per_second=_number("log.cleaner.io.max.bytes.per.second", layers),
        # Values set while the broker runs are not validated; too small ones are raised to the minimum.
        map_bytes_max=max(int(_number("log.cleaner.dedupe.buffer.size", layers)), MAP_BYTES_MIN),
        io_buffer_bytes=max(int(_number("log.cleaner.io.buffer.size", layers)), IO_BUFFER_BYTES_MIN),
    )


def _number(key: str, layers: BrokerLayers) -> float:
    value = broker_value(key, layers)
    assert isinstance(value, int | float), f"{key} is not a number"
    return value

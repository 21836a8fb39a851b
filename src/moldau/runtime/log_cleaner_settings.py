"""What a broker's `log.cleaner.*` keys say to the cleaner; all but log.cleaner.enable may change while it runs."""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers


class CleanerSettings(NamedTuple):
    is_enabled: bool = True
    backoff_ms: int = 15_000
    bytes_per_second: float = 1.7976931348623157e308
    """Read and written, together."""
    map_bytes_max: int = 128 << 20
    io_buffer_bytes: int = 512 << 10


def cleaner_settings(layers: BrokerLayers) -> CleanerSettings:
    return CleanerSettings(
        # Kafka's cleaner is off when it is given no threads; ours has one, however many it is given.
        is_enabled=bool(broker_value("log.cleaner.enable", layers)) and _number("log.cleaner.threads", layers) > 0,
        backoff_ms=int(_number("log.cleaner.backoff.ms", layers)),
        bytes_per_second=_number("log.cleaner.io.max.bytes.per.second", layers),
        map_bytes_max=int(_number("log.cleaner.dedupe.buffer.size", layers)),
        io_buffer_bytes=int(_number("log.cleaner.io.buffer.size", layers)),
    )


def _number(key: str, layers: BrokerLayers) -> float:
    value = broker_value(key, layers)
    assert isinstance(value, int | float), f"{key} is a number"
    return value

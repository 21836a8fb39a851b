"""The settings of metrics: where they are served, and whether single partitions have series."""

from __future__ import annotations

from typing import Final

from moldau.base.listeners import Listener, parse_listener
from moldau.base.setting_sources import Values

METRICS_LISTENER: Final = "metrics.listener"
METRICS_PER_PARTITION: Final = "metrics.per.partition"
_NAME: Final = "METRICS"


def read_metrics_listener(values: Values) -> Listener | None:
    """Return the address of `metrics.listener`; None if it is not set. Raise SettingsError if it is no address."""
    text = values.text(METRICS_LISTENER)
    if text is None:
        return None
    try:
        return parse_listener(f"{_NAME}://{text}", {_NAME: "PLAINTEXT"})
    except ValueError:
        raise values.error(METRICS_LISTENER, "expected HOST:PORT, such as localhost:9404") from None

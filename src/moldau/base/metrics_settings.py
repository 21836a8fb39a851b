"""The setting of where metrics are served."""

from __future__ import annotations

from typing import Final

from moldau.base.listeners import Listener, parse_listener
from moldau.base.setting_sources import Values
from moldau.base.settings import own

_NAME: Final = "METRICS"


def read_metrics_listener(values: Values) -> Listener | None:
    """Return the address of `metrics.listener`; None if it is not set. Raise SettingsError if it is no address."""
    text = values.text(own.METRICS_LISTENER)
    if text is None:
        return None
    try:
        return parse_listener(f"{_NAME}://{text}", {_NAME: "PLAINTEXT"})
    except ValueError:
        raise values.error(own.METRICS_LISTENER, "expected HOST:PORT, such as localhost:9404") from None

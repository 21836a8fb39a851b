"""Broker keys that Kafka does not have; a part of `implemented_configs`.

They are `internal`: DescribeConfigs lists them only where they are set, so that the other keys are exactly Kafka's.
"""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import ConfigDef, ConfigType

OWN: Final = (
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

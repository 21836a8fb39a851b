"""The settings of delegation tokens, from properties with Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from moldau.base.setting_sources import Values

SECRET_KEY: Final = "delegation.token.secret.key"
MAX_LIFETIME_MS: Final = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_MS: Final = "delegation.token.expiry.time.ms"
CHECK_INTERVAL_MS: Final = "delegation.token.expiry.check.interval.ms"


@dataclass(frozen=True, slots=True)
class TokenSettings:
    secret_key: str = field(default="", repr=False)
    """The same on all nodes; empty if there are no delegation tokens."""
    lifetime_ms_max: int = 0
    expiry_time_ms: int = 0
    """How long a new or renewed token is valid."""
    check_interval_ms: int = 0
    """How often expired tokens are removed."""

    @property
    def is_enabled(self) -> bool:
        return bool(self.secret_key)


def read_delegation_tokens(values: Values) -> TokenSettings:
    return TokenSettings(
        values.text(SECRET_KEY) or "",
        values.integer(MAX_LIFETIME_MS),
        values.integer(EXPIRY_TIME_MS),
        values.integer(CHECK_INTERVAL_MS),
    )

"""The settings of delegation tokens."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.settings import security
from moldau.base.settings.fields import setting


def _or_empty(text: str | None) -> str:
    return text or ""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    secret_key: str = setting(security.DELEGATION_TOKEN_SECRET_KEY, _or_empty, shown=False)
    """The same on all nodes; empty if there are no delegation tokens."""
    lifetime_ms_max: int = setting(security.DELEGATION_TOKEN_MAX_LIFETIME_MS)
    expiry_time_ms: int = setting(security.DELEGATION_TOKEN_EXPIRY_TIME_MS)
    """How long a new or renewed token is valid."""
    check_interval_ms: int = setting(security.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS)
    """How often expired tokens are removed."""

    @property
    def is_enabled(self) -> bool:
        return bool(self.secret_key)

"""Settings of SASL that are valid, but most likely not meant so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from moldau.base.setting_sources import Values
from moldau.base.settings.security import SASL_JAAS_CONFIG
from moldau.security.sasl.mechanism import PLAIN
from moldau.security.sasl.oauthbearer.settings import AUDIENCE, ISSUER, JWKS_URL, TOKEN_URL
from moldau.security.sasl.oauthbearer.urls import is_exposed
from moldau.security.sasl.settings import jaas_key
from moldau.security.sasl.use import SaslSettings

_WITHOUT_MECHANISM: Final = re.compile(r"(?:listener\.name\.[^.]+\.)?sasl\.jaas\.config")


def warn_of_sasl(values: Values) -> Iterator[str]:
    """Yield a line for each JAAS line that names no mechanism, since it has no effect, as in Kafka, and for settings of
    OAUTHBEARER that are less safe than they could be."""
    for key, setting in values.texts.items():
        if _WITHOUT_MECHANISM.fullmatch(key):
            yield (
                f"{setting.origin}: {key} has no effect; expected"
                f" listener.name.LISTENER.MECHANISM.{SASL_JAAS_CONFIG}, in lower case"
            )
        if key.endswith((JWKS_URL, TOKEN_URL)) and is_exposed(setting.text):
            yield f"{setting.origin}: {key}: http: can be read and changed on the way; use https:"
        if key.endswith(JWKS_URL):
            for what in (AUDIENCE, ISSUER):
                if not any(each.endswith(what) for each in values.texts):
                    yield f"{setting.origin}: {key} without {what}: a token for another service may be accepted"


def warn_of_missing_users(sasl: SaslSettings) -> Iterator[str]:
    """Yield a line for each listener with PLAIN whose JAAS line names no user of it."""
    for listener, settings in sasl.listeners.items():
        if PLAIN in settings.lifetimes_ms and not settings.passwords:
            yield (
                f'{jaas_key(listener, PLAIN)}: has no user_NAME="PASSWORD", so nobody can log in with PLAIN on listener'
                f" {listener}; username and password are only those of the node itself"
            )

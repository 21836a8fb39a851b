"""The settings with which librdkafka logs in as a user of the gateway: for consumers in groups."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings.security import SSL_PRINCIPAL_MAPPING_RULES
from moldau.client.properties import for_librdkafka
from moldau.security.sasl.client import ClientLogin

TOKEN_S: Final = 3_600.0
"""How long a token lasts that does not say it."""


def client_settings(bootstrap: str, properties: Mapping[str, str], login: ClientLogin | None) -> dict[str, Any]:
    """Return the settings of a user; `properties` say how the cluster is reached. KafkaError if librdkafka has no such
    login."""
    others = {
        name: value
        for name, value in properties.items()
        if not name.startswith("sasl.") and name != SSL_PRINCIPAL_MAPPING_RULES.name
    }
    settings: dict[str, Any] = {**for_librdkafka(others), "bootstrap.servers": bootstrap}
    if login is None:
        return settings
    if login.by_token:
        text = "consumers in groups need a user's password or a token; with a certificate, follow a topic instead"
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
    settings["sasl.mechanism"] = login.mechanism
    if login.token is None:
        return settings | {"sasl.username": login.user, "sasl.password": login.password}
    get_token, extensions = login.token, dict(login.extensions)

    def current_token(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = get_token()
        return token, claims(token).get("exp") or time.time() + TOKEN_S, login.user, extensions

    return settings | {"oauth_cb": current_token}


def claims(token: str) -> dict[str, Any]:
    """Return what a token says of itself: a broker verifies it before anything is done with it. Nothing if it cannot be
    read."""
    try:
        payload = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

"""Kafka's broker keys for SASL OAUTHBEARER that have an effect in Moldau; a part of `implemented_configs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moldau.base.config_def import ConfigDef, ConfigType

_OAUTH: Final = "sasl.oauthbearer."
_CLASSES: Final = "org.apache.kafka.common.security.oauthbearer."
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
LONG: Final = ConfigType.LONG
CLASS: Final = ConfigType.CLASS

_ROWS: Final[tuple[tuple[ConfigDef, str], ...]] = (
    (ConfigDef(f"{_OAUTH}jwks.endpoint.url", STRING, None), "Where the keys are that verify tokens: https:, file:."),
    (ConfigDef(f"{_OAUTH}jwks.endpoint.refresh.ms", LONG, 3_600_000), "How often these keys are read."),
    (ConfigDef(f"{_OAUTH}jwks.endpoint.retry.backoff.ms", LONG, 100), "The first pause after they could not be read."),
    (ConfigDef(f"{_OAUTH}jwks.endpoint.retry.backoff.max.ms", LONG, 10_000), "The longest such pause."),
    (ConfigDef(f"{_OAUTH}expected.audience", ConfigType.LIST, ()), "The audiences (aud) of which a token needs one."),
    (ConfigDef(f"{_OAUTH}expected.issuer", STRING, None), "The issuer (iss) that a token needs."),
    (ConfigDef(f"{_OAUTH}clock.skew.seconds", INT, 30), "How much the clock of the issuer may differ."),
    (ConfigDef(f"{_OAUTH}scope.claim.name", STRING, "scope"), "The claim with the scopes of a token."),
    (ConfigDef(f"{_OAUTH}sub.claim.name", STRING, "sub"), "The claim with the name of the user."),
    (
        ConfigDef(f"{_OAUTH}jwt.validator.class", CLASS, f"{_CLASSES}DefaultJwtValidator"),
        "Kafka's validator; any other is refused.",
    ),
    (
        ConfigDef(f"{_OAUTH}jwt.retriever.class", CLASS, f"{_CLASSES}DefaultJwtRetriever"),
        "Kafka's retriever; any other is refused.",
    ),
    (
        ConfigDef(f"{_OAUTH}token.endpoint.url", STRING, None),
        "Where this node gets its own token: the https: URL of an endpoint, or the file: URL of a token.",
    ),
    (ConfigDef(f"{_OAUTH}client.credentials.client.id", STRING, None), "This node's client id at the token endpoint."),
    (
        ConfigDef(f"{_OAUTH}client.credentials.client.secret", ConfigType.PASSWORD, None),
        "The secret of that client.",
    ),
    (ConfigDef(f"{_OAUTH}scope", STRING, None), "The scope that this node requests."),
    (ConfigDef("sasl.login.connect.timeout.ms", INT, None), "How long to wait for a connection to the token endpoint."),
    (ConfigDef("sasl.login.read.timeout.ms", INT, None), "How long to wait for the answer of the token endpoint."),
    (ConfigDef("sasl.login.retry.backoff.ms", LONG, 100), "The first pause after the token endpoint failed."),
    (ConfigDef("sasl.login.retry.backoff.max.ms", LONG, 10_000), "How long to retry the token endpoint."),
)

OAUTH: Final[tuple[ConfigDef, ...]] = tuple(replace(each, documentation=line) for each, line in _ROWS)
OAUTH_NAMES: Final = frozenset(each.name for each in OAUTH)

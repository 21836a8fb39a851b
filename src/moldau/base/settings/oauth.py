"""Broker keys of SASL OAUTHBEARER."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import CLASS, INT, LIST, LONG, OF_OAUTHBEARER, PASSWORD, STRING, ConfigDef

CLASSES: Final = "org.apache.kafka.common.security.oauthbearer."

# fmt: off
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = ConfigDef(
    "sasl.oauthbearer.jwks.endpoint.url", STRING, None, None,
    "Where the keys are that verify tokens: https:, file:.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = ConfigDef(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None,
    "How often these keys are read.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS: Final = ConfigDef(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None,
    "The first pause after they could not be read.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS: Final = ConfigDef(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None,
    "The longest such pause.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = ConfigDef(
    "sasl.oauthbearer.expected.audience", LIST, (), None,
    "The audiences (aud) of which a token needs one.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = ConfigDef(
    "sasl.oauthbearer.expected.issuer", STRING, None, None,
    "The issuer (iss) that a token needs.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = ConfigDef(
    "sasl.oauthbearer.clock.skew.seconds", INT, 30, None,
    "How much the clock of the issuer may differ.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME: Final = ConfigDef(
    "sasl.oauthbearer.scope.claim.name", STRING, "scope", None,
    "The claim with the scopes of a token.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = ConfigDef(
    "sasl.oauthbearer.sub.claim.name", STRING, "sub", None,
    "The claim with the name of the user.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS: Final = ConfigDef(
    "sasl.oauthbearer.jwt.validator.class", CLASS, f"{CLASSES}DefaultJwtValidator", None,
    "Kafka's validator; any other is refused.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS: Final = ConfigDef(
    "sasl.oauthbearer.jwt.retriever.class", CLASS, f"{CLASSES}DefaultJwtRetriever", None,
    "Kafka's retriever; any other is refused.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: Final = ConfigDef(
    "sasl.oauthbearer.token.endpoint.url", STRING, None, None,
    "Where this node gets its own token: the https: URL of an endpoint, or the file: URL of a token.",
    listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID: Final = ConfigDef(
    "sasl.oauthbearer.client.credentials.client.id", STRING, None, None,
    "This node's client id at the token endpoint.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET: Final = ConfigDef(
    "sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None,
    "The secret of that client.", listener_forms=OF_OAUTHBEARER)
SASL_OAUTHBEARER_SCOPE: Final = ConfigDef(
    "sasl.oauthbearer.scope", STRING, None, None,
    "The scope that this node requests.", listener_forms=OF_OAUTHBEARER)
SASL_LOGIN_CONNECT_TIMEOUT_MS: Final = ConfigDef(
    "sasl.login.connect.timeout.ms", INT, None, None,
    "How long to wait for a connection to the token endpoint.", listener_forms=OF_OAUTHBEARER)
SASL_LOGIN_READ_TIMEOUT_MS: Final = ConfigDef(
    "sasl.login.read.timeout.ms", INT, None, None,
    "How long to wait for the answer of the token endpoint.", listener_forms=OF_OAUTHBEARER)
SASL_LOGIN_RETRY_BACKOFF_MS: Final = ConfigDef(
    "sasl.login.retry.backoff.ms", LONG, 100, None,
    "The first pause after the token endpoint failed.", listener_forms=OF_OAUTHBEARER)
SASL_LOGIN_RETRY_BACKOFF_MAX_MS: Final = ConfigDef(
    "sasl.login.retry.backoff.max.ms", LONG, 10_000, None,
    "How long to retry the token endpoint.", listener_forms=OF_OAUTHBEARER)

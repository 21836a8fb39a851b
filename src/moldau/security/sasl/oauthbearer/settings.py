"""The settings of OAUTHBEARER, with Kafka's names: which tokens a listener accepts, and where a client gets its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from moldau.security.sasl.oauthbearer.messages import is_extension
from moldau.security.sasl.oauthbearer.urls import parse_endpoint

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
TIMEOUT_MS: Final = 10_000
_SERVER_HANDLERS: Final = ("OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler")
_LOGIN_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler")
_VALIDATORS: Final = ("DefaultJwtValidator", "BrokerJwtValidator")
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_ASSERTIONS: Final = ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss")
_EXTENSION: Final = "extension_"
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")

TextOf = Callable[[str], str | None]
"""Returns the text of a setting, or of its default; None if there is none."""
ErrorFor = Callable[[str, str], Exception]
"""Returns the error that names a setting and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens a listener accepts, besides that their signature has to be valid."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_seconds: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """Where the keys are that verify tokens, and how often to read them."""

    url: str
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_ms_max: int = 10_000
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Properties `ssl.` for an https URL."""


@dataclass(frozen=True, slots=True)
class OAuthBearerSettings:
    jwks: JwksSettings
    rules: TokenRules


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """How a client or node gets its token: from a file, or from an identity provider for its id and secret."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    is_header_url_encoded: bool = False
    connect_timeout_ms: int = TIMEOUT_MS
    read_timeout_ms: int = TIMEOUT_MS
    retry_ms: int = 100
    retry_ms_max: int = 10_000
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def user(self) -> str:
        """Who logs in, for the log: the token itself is not known yet."""
        return self.client_id or f"the bearer of {self.url}"


def require_joserfc(error: Exception) -> None:
    """Raise the error if the package is missing that verifies tokens."""
    if find_spec("joserfc") is None:
        raise error


def read_validation(
    text_of: TextOf, options: Mapping[str, str], error: ErrorFor, allowed: frozenset[str] | None
) -> OAuthBearerSettings:
    """Read which tokens a listener accepts. `options` are those of its JAAS line; `allowed` are the URLs that may be
    used, None for all."""
    _refuse_unsigned(options, error)
    _check_class(SERVER_HANDLER, _SERVER_HANDLERS, text_of, error)
    _check_class("sasl.oauthbearer.jwt.validator.class", _VALIDATORS, text_of, error)
    url = text_of(JWKS_URL)
    if not url:
        raise error(
            JWKS_URL,
            "is not set, but OAUTHBEARER needs it to verify signatures; Kafka would accept unsigned tokens without it,"
            " Moldau does not",
        )
    _check_url(JWKS_URL, url, error, allowed)
    jwks = JwksSettings(
        url,
        _number(text_of, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 1, error),
        _number(text_of, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 0, error),
        _number(text_of, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 0, error),
        _tls(options),
    )
    rules = TokenRules(
        tuple(filter(None, (each.strip() for each in (text_of(AUDIENCE) or "").split(",")))),
        text_of(ISSUER) or None,
        _number(text_of, "sasl.oauthbearer.clock.skew.seconds", 0, error),
        _claim(text_of, "sasl.oauthbearer.scope.claim.name", error),
        _claim(text_of, "sasl.oauthbearer.sub.claim.name", error),
    )
    return OAuthBearerSettings(jwks, rules)


def read_token_request(
    text_of: TextOf, options: Mapping[str, str], error: ErrorFor, allowed: frozenset[str] | None
) -> TokenRequest:
    """Read where a client or node gets its token. The options of the JAAS line are the older names of some settings."""
    _refuse_unsigned(options, error)
    _check_class(LOGIN_HANDLER, _LOGIN_HANDLERS, text_of, error)
    _check_class("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS, text_of, error)
    for key in _ASSERTIONS:
        if text_of(key):
            raise error(key, f"assertions are not supported; expected {CLIENT_ID} and {CLIENT_SECRET}")
    url = text_of(TOKEN_URL)
    if not url:
        raise error(TOKEN_URL, "is not set; expected the https: URL of a token endpoint, or the file: URL of a token")
    _check_url(TOKEN_URL, url, error, allowed)
    client_id = (text_of(CLIENT_ID) or options.get("clientId") or "").strip()
    secret = (text_of(CLIENT_SECRET) or options.get("clientSecret") or "").strip()
    if not parse_endpoint(url).is_file:
        for key, value in ((CLIENT_ID, client_id), (CLIENT_SECRET, secret)):
            if not value:
                raise error(key, f"is not set, but {TOKEN_URL} needs it")
    extensions = {key[len(_EXTENSION) :]: value for key, value in options.items() if key.startswith(_EXTENSION)}
    for name, value in extensions.items():
        if not is_extension(name, value):
            raise error("sasl.jaas.config", f"the extension {name} has a name or value that is not allowed")
    return TokenRequest(
        url,
        client_id,
        secret,
        (text_of("sasl.oauthbearer.scope") or options.get("scope") or "").strip() or None,
        (text_of("sasl.oauthbearer.header.urlencode") or "").lower() == "true",
        _number(text_of, "sasl.login.connect.timeout.ms", 1, error, TIMEOUT_MS),
        _number(text_of, "sasl.login.read.timeout.ms", 1, error, TIMEOUT_MS),
        _number(text_of, "sasl.login.retry.backoff.ms", 0, error, 100),
        _number(text_of, "sasl.login.retry.backoff.max.ms", 0, error, 10_000),
        _tls(options),
        tuple(sorted(extensions.items())),
    )


def _refuse_unsigned(options: Mapping[str, str], error: ErrorFor) -> None:
    if any(name.startswith(("unsecuredValidator", "unsecuredLogin")) for name in options):
        raise error("sasl.jaas.config", "unsigned tokens (unsecuredLogin..., unsecuredValidator...) are not supported")


def _check_class(key: str, supported: tuple[str, ...], text_of: TextOf, error: ErrorFor) -> None:
    name = text_of(key)
    if name and name not in [PACKAGE + each for each in supported]:
        raise error(key, f"not supported; expected {PACKAGE}{supported[0]}, or nothing")


def _check_url(key: str, url: str, error: ErrorFor, allowed: frozenset[str] | None) -> None:
    try:
        parse_endpoint(url)
    except ValueError as wrong:
        raise error(key, str(wrong)) from None
    if allowed is not None and url not in allowed:
        raise error(key, "is not one of org.apache.kafka.sasl.oauthbearer.allowed.urls in KAFKA_OPTS")


def _number(text_of: TextOf, key: str, lowest: int, error: ErrorFor, default: int | None = None) -> int:
    text = text_of(key) or str(default)
    if not _NUMBER.fullmatch(text) or int(text) < lowest:
        raise error(key, f"expected a number, at least {lowest}")
    return int(text)


def _claim(text_of: TextOf, key: str, error: ErrorFor) -> str:
    name = (text_of(key) or "").strip()
    if not name:
        raise error(key, "expected the name of a claim")
    return name


def _tls(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in options.items() if key.startswith("ssl.")))

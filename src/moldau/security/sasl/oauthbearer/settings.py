"""The settings of OAUTHBEARER, with Kafka's names: which tokens a listener accepts, and where a client gets its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from moldau.base.config_def import ConfigDef
from moldau.base.settings import accepted, oauth, security
from moldau.base.settings.fields import setting
from moldau.security.sasl.oauthbearer.messages import is_extension
from moldau.security.sasl.oauthbearer.urls import parse_endpoint

JWKS_URL: Final = oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name
AUDIENCE: Final = oauth.SASL_OAUTHBEARER_EXPECTED_AUDIENCE.name
ISSUER: Final = oauth.SASL_OAUTHBEARER_EXPECTED_ISSUER.name
TOKEN_URL: Final = oauth.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL.name
CLIENT_ID: Final = oauth.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID.name
CLIENT_SECRET: Final = oauth.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET.name
SERVER_HANDLER: Final = accepted.SASL_SERVER_CALLBACK_HANDLER_CLASS.name
LOGIN_HANDLER: Final = accepted.SASL_LOGIN_CALLBACK_HANDLER_CLASS.name
TIMEOUT_MS: Final = 10_000
_SERVER_HANDLERS: Final = ("OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler")
_LOGIN_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler")
_VALIDATORS: Final = ("DefaultJwtValidator", "BrokerJwtValidator")
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_ASSERTIONS: Final = (
    accepted.SASL_OAUTHBEARER_ASSERTION_FILE.name,
    accepted.SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS.name,
)
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
    clock_skew_seconds: int = setting(oauth.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS)
    scope_claim: str = setting(oauth.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME)
    sub_claim: str = setting(oauth.SASL_OAUTHBEARER_SUB_CLAIM_NAME)


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """Where the keys are that verify tokens, and how often to read them."""

    url: str
    refresh_ms: int = setting(oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS)
    retry_ms: int = setting(oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS)
    retry_ms_max: int = setting(oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS)
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
    retry_ms: int = setting(oauth.SASL_LOGIN_RETRY_BACKOFF_MS)
    retry_ms_max: int = setting(oauth.SASL_LOGIN_RETRY_BACKOFF_MAX_MS)
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
    _check_class(oauth.SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS.name, _VALIDATORS, text_of, error)
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
        _number(text_of, oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS, 1, error),
        _number(text_of, oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS, 0, error),
        _number(text_of, oauth.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS, 0, error),
        _tls(options),
    )
    rules = TokenRules(
        tuple(filter(None, (each.strip() for each in (text_of(AUDIENCE) or "").split(",")))),
        text_of(ISSUER) or None,
        _number(text_of, oauth.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS, 0, error),
        _claim(text_of, oauth.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME, error),
        _claim(text_of, oauth.SASL_OAUTHBEARER_SUB_CLAIM_NAME, error),
    )
    return OAuthBearerSettings(jwks, rules)


def read_token_request(
    text_of: TextOf, options: Mapping[str, str], error: ErrorFor, allowed: frozenset[str] | None
) -> TokenRequest:
    """Read where a client or node gets its token. The options of the JAAS line are the older names of some settings."""
    _refuse_unsigned(options, error)
    _check_class(LOGIN_HANDLER, _LOGIN_HANDLERS, text_of, error)
    _check_class(oauth.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS.name, _RETRIEVERS, text_of, error)
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
            raise error(security.SASL_JAAS_CONFIG.name, f"the extension {name} has a name or value that is not allowed")
    return TokenRequest(
        url,
        client_id,
        secret,
        (text_of(oauth.SASL_OAUTHBEARER_SCOPE.name) or options.get("scope") or "").strip() or None,
        (text_of("sasl.oauthbearer.header.urlencode") or "").lower() == "true",
        _number(text_of, oauth.SASL_LOGIN_CONNECT_TIMEOUT_MS, 1, error, TIMEOUT_MS),
        _number(text_of, oauth.SASL_LOGIN_READ_TIMEOUT_MS, 1, error, TIMEOUT_MS),
        _number(text_of, oauth.SASL_LOGIN_RETRY_BACKOFF_MS, 0, error),
        _number(text_of, oauth.SASL_LOGIN_RETRY_BACKOFF_MAX_MS, 0, error),
        _tls(options),
        tuple(sorted(extensions.items())),
    )


def _refuse_unsigned(options: Mapping[str, str], error: ErrorFor) -> None:
    if any(name.startswith(("unsecuredValidator", "unsecuredLogin")) for name in options):
        raise error(
            security.SASL_JAAS_CONFIG.name,
            "unsigned tokens (unsecuredLogin..., unsecuredValidator...) are not supported",
        )


def _check_class(key: str, supported: tuple[str, ...], text_of: TextOf, error: ErrorFor) -> None:
    name = text_of(key)
    if name and name not in [oauth.CLASSES + each for each in supported]:
        raise error(key, f"not supported; expected {oauth.CLASSES}{supported[0]}, or nothing")


def _check_url(key: str, url: str, error: ErrorFor, allowed: frozenset[str] | None) -> None:
    try:
        parse_endpoint(url)
    except ValueError as wrong:
        raise error(key, str(wrong)) from None
    if allowed is not None and url not in allowed:
        raise error(key, "is not one of org.apache.kafka.sasl.oauthbearer.allowed.urls in KAFKA_OPTS")


def _number(text_of: TextOf, key: ConfigDef, lowest: int, error: ErrorFor, default: int | None = None) -> int:
    text = text_of(key.name) or key.default_text or str(default)
    if not _NUMBER.fullmatch(text) or int(text) < lowest:
        raise error(key.name, f"expected a number, at least {lowest}")
    return int(text)


def _claim(text_of: TextOf, key: ConfigDef, error: ErrorFor) -> str:
    name = (text_of(key.name) or "").strip()
    if not name:
        raise error(key.name, "expected the name of a claim")
    return name


def _tls(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in options.items() if key.startswith("ssl.")))

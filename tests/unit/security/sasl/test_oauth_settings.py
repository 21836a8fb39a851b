"""The settings of OAUTHBEARER, of nodes and of clients: what they mean, and what is refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.base.errors import UnusableProperty
from moldau.client.properties import access_tokens, for_librdkafka, security, with_tokens
from moldau.security.sasl.oauthbearer.settings import JwksSettings, TokenRules
from moldau.settings import Settings, SettingsError, from_properties, load

PLANTED = "s3cr3t-planted"
CLASSES = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{CLASSES}OAuthBearerLoginModule required"
LISTENER = "listener.name.sasl_plaintext."
MECHANISM = f"{LISTENER}oauthbearer."
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN = "sasl.oauthbearer.token.endpoint.url"
ALONE = {
    "listeners": "SASL_PLAINTEXT://localhost:9092",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    JWKS: "https://idp.test/keys",
    "sasl.oauthbearer.expected.audience": "kafka, other",
    "sasl.oauthbearer.expected.issuer": "https://idp.test",
}
CLUSTER = {
    **ALONE,
    "node.id": "1",
    "listeners": "SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "controller.quorum.voters": "1@localhost:9093,2@localhost:9094",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    TOKEN: "https://idp.test/token",
    "sasl.oauthbearer.client.credentials.client.id": "node",
    "sasl.oauthbearer.client.credentials.client.secret": PLANTED,
}


def oauth(settings: Settings) -> Any:
    return settings.sasl.listeners["SASL_PLAINTEXT"].oauthbearer


def refusal(properties: dict[str, str], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(environ=environ, overrides=properties.items())
    line = str(refused.value)
    assert PLANTED not in line
    assert "\n" not in line
    return line


def without(properties: dict[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in names}


def test_a_listener_has_kafkas_defaults() -> None:
    settings = from_properties(ALONE)
    assert oauth(settings).jwks == JwksSettings("https://idp.test/keys", 3_600_000, 100, 10_000)
    assert oauth(settings).rules == TokenRules(("kafka", "other"), "https://idp.test", 30, "scope", "sub")
    assert settings.sasl.broker_login is None
    assert settings.warnings == ()


def test_listener_and_mechanism_prefixes_override_settings() -> None:
    properties = {
        **ALONE,
        f"{MECHANISM}{JWKS}": "file:///keys.json",
        f"{LISTENER}sasl.oauthbearer.expected.issuer": "other",
        f"{MECHANISM}sasl.oauthbearer.clock.skew.seconds": "5",
        "sasl.oauthbearer.sub.claim.name": "email",
        f"{MECHANISM}sasl.oauthbearer.scope.claim.name": "scp",
        f"{MECHANISM}sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
        f"{MECHANISM}sasl.jaas.config": f'{MODULE} ssl.truststore.type="PEM" ssl.truststore.location="/ca.pem";',
        f"{MECHANISM}sasl.server.callback.handler.class": f"{CLASSES}OAuthBearerValidatorCallbackHandler",
        f"{MECHANISM}connections.max.reauth.ms": "5000",
    }
    settings = from_properties(properties)
    tls = (("ssl.truststore.location", "/ca.pem"), ("ssl.truststore.type", "PEM"))
    assert oauth(settings).jwks == JwksSettings("file:///keys.json", 1000, 100, 10_000, tls)
    assert oauth(settings).rules == TokenRules(("kafka", "other"), "other", 5, "scp", "email")
    assert settings.sasl.listeners["SASL_PLAINTEXT"].lifetimes_ms == {"OAUTHBEARER": 5000}
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({JWKS: ""}, f"{JWKS}=: is not set, but OAUTHBEARER needs it to verify signatures"),
        ({JWKS: "idp.test/keys"}, "expected a URL that begins with https:, http: or file:"),
        ({f"{MECHANISM}sasl.jaas.config": f'{MODULE} unsecuredValidatorStringValue="{PLANTED}";'}, "unsigned tokens"),
        ({f"{MECHANISM}sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="{PLANTED}";'}, "unsigned tokens"),
        ({f"{MECHANISM}sasl.jaas.config": f"x.PlainLoginModule required a='{PLANTED}';"}, "expected the login module"),
        ({f"{MECHANISM}sasl.server.callback.handler.class": "com.example.Mine"}, "not supported; expected org.apache"),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, "not supported; expected org.apache"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "expected a number, at least 1"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "expected a number, at least 0"),
        ({"sasl.oauthbearer.sub.claim.name": " "}, "expected the name of a claim"),
    ],
)
def test_wrong_listener_settings_are_refused(changes: dict[str, str], sentence: str) -> None:
    assert sentence in refusal({**ALONE, **changes})


def test_a_url_with_a_password_is_refused_and_not_quoted() -> None:
    line = refusal({**ALONE, JWKS: f"https://user:{PLANTED}@idp.test/"})
    assert line == f"--override: {JWKS}: expected a URL without user and password"


def test_a_missing_jwks_url_is_refused_with_the_reason() -> None:
    assert "Kafka would accept unsigned tokens without it, Moldau does not" in refusal(without(ALONE, JWKS))


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    monkeypatch.setattr("moldau.security.sasl.oauthbearer.settings.find_spec", lambda name: None)
    assert "OAUTHBEARER needs the package joserfc: pip install 'moldau[oauth]'" in refusal(ALONE)


def test_urls_that_java_does_not_allow_are_refused() -> None:
    name = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
    allowed = {"KAFKA_OPTS": f"{name}=https://idp.test/keys,https://x"}
    assert oauth(load(environ=allowed, overrides=ALONE.items())).jwks.url == ALONE[JWKS]
    assert "allowed.urls" in refusal(ALONE, {"KAFKA_OPTS": f"{name}=https://other"})
    assert "allowed.urls" in refusal(CLUSTER, allowed)


def test_less_safe_settings_are_warned_of() -> None:
    properties = {**without(ALONE, "sasl.oauthbearer.expected.audience"), JWKS: "http://idp.test/keys"}
    exposed, audience = from_properties(properties).warnings
    assert "http: can be read and changed on the way; use https:" in exposed
    assert "without sasl.oauthbearer.expected.audience: a token for another service may be accepted" in audience


def test_handlers_of_other_mechanisms_have_no_effect() -> None:
    key = f"{LISTENER}plain.sasl.server.callback.handler.class"
    (warning,) = from_properties({**ALONE, key: "com.example.Mine"}).warnings
    assert f"{key} is accepted but has no effect" in warning


# --- logins -----------------------------------------------------------------------------------------------------


def test_cluster_nodes_log_in_with_tokens() -> None:
    settings = from_properties(CLUSTER)
    login = settings.sasl.broker_login
    assert login is not None
    assert settings.sasl.controller_login is not None
    assert (login.mechanism, login.user) == ("OAUTHBEARER", "node")
    assert login.token is not None
    assert PLANTED not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({TOKEN: ""}, f"{TOKEN}=: is not set; expected the https: URL"),
        ({TOKEN: "ftp://x"}, "expected a URL that begins with"),
        ({"sasl.oauthbearer.client.credentials.client.id": ""}, "is not set, but sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.client.credentials.client.secret": ""}, "is not set, but sasl.oauthbearer.token"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{CLASSES}JwtBearerJwtRetriever"}, "not supported"),
        ({"sasl.oauthbearer.assertion.file": "/x"}, "assertions are not supported"),
        ({f"{MECHANISM}sasl.login.callback.handler.class": "com.example.Mine"}, "not supported; expected org.apache"),
        ({f"{MECHANISM}sasl.jaas.config": f'{MODULE} extension_auth="{PLANTED}";'}, "the extension auth has a name"),
        ({"sasl.login.connect.timeout.ms": "0"}, "expected a number, at least 1"),
    ],
)
def test_wrong_login_settings_are_refused(changes: dict[str, str], sentence: str) -> None:
    assert sentence in refusal({**CLUSTER, **changes})


CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", TOKEN: "https://idp.test/token"}


def test_clients_accept_new_and_old_property_names() -> None:
    new = {
        **CLIENT,
        "sasl.oauthbearer.client.credentials.client.id": "ann",
        "sasl.oauthbearer.client.credentials.client.secret": PLANTED,
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.connect.timeout.ms": "1234",
    }
    old = f'{MODULE} clientId="ann" clientSecret="{PLANTED}" scope="a b" extension_traceId="7";'
    of_librdkafka = {
        **CLIENT,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "ann",
        "sasl.oauthbearer.client.secret": PLANTED,
        "sasl.oauthbearer.scope": "a b",
    }
    requests = [access_tokens(each)[1] for each in (new, {**CLIENT, "sasl.jaas.config": old}, of_librdkafka)]
    assert {(each.client_id, each.client_secret, each.scope) for each in requests} == {("ann", PLANTED, "a b")}
    assert [each.is_header_url_encoded for each in requests] == [True, False, False]
    assert [each.connect_timeout_ms for each in requests] == [1234, 10_000, 10_000]
    assert requests[1].extensions == (("traceId", "7"),)
    assert PLANTED not in repr(requests)


def test_librdkafka_gets_our_tokens_unless_it_gets_its_own(tmp_path: Path) -> None:
    token = tmp_path / "token"
    file = {**CLIENT, TOKEN: token.as_uri(), "sasl.jaas.config": f"{MODULE};", "linger.ms": "5"}
    with pytest.raises(UnusableProperty, match=f"no token from {token.as_uri()}: cannot be read"):
        for_librdkafka(file)
    token.write_text("a.b.c")
    settings = for_librdkafka(file)
    assert settings.pop("oauth_cb")
    assert settings == {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "linger.ms": "5"}
    oidc = {**CLIENT, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "x"}
    assert for_librdkafka(oidc) == with_tokens(oidc) == oidc
    assert with_tokens({"sasl.mechanism": "PLAIN", TOKEN: "x"}) == {"sasl.mechanism": "PLAIN", TOKEN: "x"}


def test_a_client_without_a_token_url_is_refused() -> None:
    for read in (security, for_librdkafka):
        with pytest.raises(UnusableProperty, match=f"{TOKEN}: is not set"):
            read(without(CLIENT, TOKEN))


@pytest.mark.parametrize("text", ["--5", "9" * 5_000, "soon"])
def test_a_client_timeout_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(UnusableProperty, match=r"sasl\.login\.read\.timeout\.ms: expected a number, at least 1"):
        access_tokens({**CLIENT, TOKEN: "file:///token", "sasl.login.read.timeout.ms": text})


def test_allowed_urls_apply_to_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://other")
    with pytest.raises(UnusableProperty, match=r"allowed\.urls"):
        security({**CLIENT, TOKEN: "file:///etc/passwd"})
